"""Verus: low-delay congestion control for links whose capacity nobody can predict, and the lab that proves it."""

"""The lab: what to run, running it, and what came of it."""

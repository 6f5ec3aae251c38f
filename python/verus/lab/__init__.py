"""The lab: descriptions of runs, running them, and their results."""

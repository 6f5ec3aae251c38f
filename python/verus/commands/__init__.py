"""The verbs of `verus`: a module each, and the table of them (`verbs.py`)."""

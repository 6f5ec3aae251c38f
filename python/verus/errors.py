"""What can go wrong with what a user typed or passed, in one sentence that names the place.

Every message that leaves the package names a field, a file or a line; the command line turns field
names into flags and exits with code 2.
"""

from __future__ import annotations


class FieldError(ValueError):
    """A value that cannot be used.

    Attributes:
        field: The name of the argument that holds it, as the Python API spells it (``duration_s``).
        problem: What is wrong with it, as the rest of a sentence.

    Example:
        >>> str(FieldError("duration_s", "must be above 0, not -1"))
        'duration_s: must be above 0, not -1'
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

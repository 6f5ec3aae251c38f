"""`python -m verus` is the command `verus`."""

from verus.cli import main

if __name__ == "__main__":
    main()

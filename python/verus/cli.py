"""The command `verus`: hands the verbs of a server to their binary, and the lab's verbs to `verus.commands`.

Nothing heavy is imported before it is needed. Exit codes: 0; 1 a run failed; 2 bad usage or input;
3 it ran, but a published target was missed; 130 on Ctrl-C. Errors go to standard error, one message each.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from verus import EXTENSION
from verus.endpoints.program import BAD_INPUT, ENDPOINT, ENDPOINT_VERBS, find_endpoint

#: Options that are valid before a verb.
_GLOBAL = ("-v", "--verbose", "-q", "--quiet")

FAILED, INTERRUPTED = 1, 130

#: Positional arguments of verbs.
_PLACES = ("name",)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and exits with its code.

    Args:
        arguments: The words after `verus` on the command line; those of this process if None.
    """
    words_given = _ask_for_help(list(sys.argv[1:] if arguments is None else arguments))
    verb = next((word for word in words_given if word not in _GLOBAL), None)
    if verb in ENDPOINT_VERBS:
        _hand_over(verb, words_given)
    # Matrices here are small: OpenBLAS's other threads would only spin while they wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if words_given[:1] == ["complete"] and (words := _behind_verb(words_given)) and (binary := find_endpoint()[0]):
        os.execv(binary, [ENDPOINT, "complete", "--", *words])
    try:
        sys.exit(run(words_given))
    except KeyboardInterrupt:  # before there was anything to interrupt
        sys.exit(_complain("interrupted; nothing was written", INTERRUPTED))


def _behind_verb(words: Sequence[str]) -> list[str]:
    """The words that a shell asks to complete, if they begin with a verb of the endpoint and more follow."""
    rest = list(words[1:])
    for skipped in ("--", "help"):
        rest = rest[1:] if rest[:1] == [skipped] else rest
    return rest if len(rest) > 1 and rest[0] in ENDPOINT_VERBS else []


def _ask_for_help(words: list[str]) -> list[str]:
    """`help compare` as `compare --help`."""
    return [*words[1:], "--help"] if words[:1] == ["help"] else words


def run(arguments: Sequence[str]) -> int:
    """Runs one of the lab's verbs; returns the exit code."""
    from verus.commands.output import patient

    with patient() as printed:
        try:
            code = _run(arguments)
        except KeyboardInterrupt as error:
            code = _complain(str(error) or "interrupted; nothing was written", INTERRUPTED)
        sys.stdout.flush()
        if printed.problem is not None:
            code = _complain(f"standard output cannot be written: {printed.problem}", code or FAILED)
    return code


def _run(arguments: Sequence[str]) -> int:
    from verus.commands import verbs

    words = _ask_for_help(list(arguments))
    if not words or words[0] in ("--help", "-h"):
        return _print(verbs.overview())
    if words[0] == "complete":
        return _complete(words[2:] if words[1:2] == ["--"] else words[1:])
    leading = list(itertools.takewhile(_GLOBAL.__contains__, words))
    words = [*words[len(leading) :], *leading]
    if words[0] not in (*verbs.first_words(), "--version", "-V"):
        from verus.commands.mistakes import unknown_verb

        return _complain(unknown_verb(words[0]), BAD_INPUT)

    from cyclopts import CycloptsError

    try:
        from verus.commands.app import app
    except ImportError as error:
        if os.environ.get(EXTENSION):
            return _complain(str(error), BAD_INPUT)
        raise
    from verus.errors import FieldError, in_flags, not_utf8

    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else 0
    except FieldError as error:
        if error.field in _PLACES:
            return _complain(error.problem, BAD_INPUT)
        return _complain(in_flags(error), BAD_INPUT, getattr(error, "__notes__", ()))
    except CycloptsError as error:
        from verus.commands.mistakes import usage

        return _complain(usage(error), BAD_INPUT)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        message = f"`{error.filename}`: {error.strerror}" if named else str(error)
        return _complain(message, BAD_INPUT, getattr(error, "__notes__", ()))
    except UnicodeEncodeError as error:
        return _complain(not_utf8(error), BAD_INPUT)
    except ValueError as error:
        return _complain(str(error), BAD_INPUT, getattr(error, "__notes__", ()))
    except RuntimeError as error:
        return _complain(str(error), FAILED, getattr(error, "__notes__", ()))


def _complete(words: list[str]) -> int:
    """Prints completions of the last word for a shell, a line each."""
    from verus.commands.completion import candidates

    return _print("\n".join(candidates(words)))


def _print(text: str) -> int:
    print(text)
    return 0


def _complain(message: str, code: int, more: Iterable[str] = ()) -> int:
    from verus.report.printable import line

    print(line(f"verus: {message}"), file=sys.stderr)
    for told in more:
        print(line(f"  {told}"), file=sys.stderr)
    if sys.exc_info()[0] and ("-v" in sys.argv or "--verbose" in sys.argv):
        import traceback

        for told in traceback.format_exc().rstrip("\n").split("\n"):
            print(line(told), file=sys.stderr)
    return code


def _hand_over(verb: str, arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the verb's binary, which then gets signals and pipes and sets the exit code itself."""
    import signal

    binary, looked = find_endpoint()
    if binary is None:
        problem = f"`{verb}` needs the program `{ENDPOINT}`, which is not in {looked}"
        sys.exit(_complain(f"{problem} (in a copy of the repository, `make build` makes it)", BAD_INPUT))
    # Python ignores these signals, and the program that replaces this process would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(binary, ["verus", *arguments])
    except OSError as error:
        sys.exit(_complain(f"`{binary}` cannot be run: {error.strerror}", BAD_INPUT))

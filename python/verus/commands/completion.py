"""`verus completion`: a script for a shell, which asks `verus complete` how the words typed so far may go on.

Verbs come from `verbs.py`, options from the verbs' own signatures, and schemes, keys, queues and channels from the
lists that are parsed. Behind a verb of the endpoint, the endpoint answers, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from verus import _verus
from verus.commands.verbs import VERBS, first_words

Shell = Literal["bash", "zsh", "fish"]

#: Each script asks with the words so far, the last of them unfinished or empty. Bash splits words
#: at `:` and `=`, too, so its script splits the line itself. It also removes the part up to the
#: last of these letters, which Bash keeps. Without completions, a shell offers files.
_SCRIPTS: dict[str, str] = {
    "bash": r"""_verus() {
    local line=${COMP_LINE:0:COMP_POINT} words word
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[${#words[@]}-1]}
    mapfile -t COMPREPLY < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]] && compopt -o nospace
    local before=${word%"${word##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -F _verus verus verus-cc verus-endpoint
""",
    "zsh": r"""#compdef verus verus-cc verus-endpoint
_verus() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    (( $#found )) || { _files; return }
    local -a open=("${(@M)found:#*[=:]}") whole=("${(@)found:#*[=:]}")
    (( $#open )) && compadd -S '' -a open
    (( $#whole )) && compadd -a whole
}
compdef _verus verus verus-cc verus-endpoint
""",
    "fish": r"""for program in verus verus-cc verus-endpoint
    complete -c $program -a "($program complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)"
end
""",
}


def completion(shell: Shell, /) -> None:
    """Print a script that completes verbs, options, schemes and their keys, queues, channels and experiments.

    Parameters
    ----------
    shell
        `bash`, `zsh` or `fish`.
    """
    print(_SCRIPTS[shell], end="")


def candidates(words: Sequence[str]) -> list[str]:
    """Completions of the last of these words, which may be empty; the words follow `verus`.

    Example:
        >>> candidates(["comp"]), candidates(["compare", "--scheme", "verus:rat"])
        (['compare', 'completion'], ['verus:ratio='])
    """
    *before, last = words or [""]
    if before[:1] == ["help"]:
        before = before[1:]
    elif not before:
        return [word for word in [*first_words(), "help", "--help", "--version"] if word.startswith(last)]
    verb = " ".join(before[:2]) if " ".join(before[:2]) in VERBS else " ".join(before[:1])
    inner = [name.rpartition(" ")[2] for name in VERBS if name.startswith(f"{verb} ")]
    if not before or inner:
        return [word for word in inner or first_words() if word.startswith(last)]
    if verb not in VERBS:
        return []
    options = _options(verb)
    if last.startswith("-"):
        return [name for name in [*options, "--help"] if name.startswith(last)]
    option = next((word for word in reversed(before) if word.startswith("-")), "")
    # After an option with one value, the next word is an argument of the verb.
    argument = options.get(option)
    if argument is not None and (argument.parameter.consume_multiple or before[-1] == option):
        return _values(argument, last)
    arguments = [argument for argument in _arguments(verb) if not any(name.startswith("-") for name in argument.names)]
    return [value for argument in arguments[:1] for value in _values(argument, last, verb)]


def _arguments(verb: str) -> list[Any]:
    from verus.commands.app import app

    inner = app
    for word in verb.split():
        inner = inner[word]
    return [argument for argument in inner.assemble_argument_collection() if argument.show]


def _options(verb: str) -> dict[str, Any]:
    """The options of a verb, each by all its names."""
    return {name: argument for argument in _arguments(verb) for name in argument.names if name.startswith("-")}


def _values(argument: Any, last: str, verb: str = "") -> list[str]:
    """Values of an option or an argument that begin with `last`."""
    if choices := argument.get_choices(force=True):
        return [str(choice) for choice in choices if str(choice).startswith(last)]
    metavar = (argument.parameter.metavar or "").removesuffix("...")
    look: Callable[[str], list[str]] | None = {
        "SCHEME": lambda text: _verus.complete("scheme", text),
        "QUEUE": lambda text: _verus.complete("queue", text),
        "JITTER": lambda text: _verus.complete("jitter", text),
        "REORDER": lambda text: _verus.complete("reorder", text),
        "MODEL": lambda text: _verus.complete("loss", text),
        "MEDIUM": lambda text: _verus.complete("medium", text),
        "TRAFFIC": lambda text: _verus.complete("traffic", text),
        "CHANNEL": lambda text: _verus.complete("channel", text),
        "MIX": lambda text: _verus.complete("mix", text),
    }.get(metavar)
    if look is not None:
        return look(last)
    if verb == "reproduce":
        from verus.papers import NAMES

        return [name for name in ("all", "list", *NAMES) if name.startswith(last)]
    if verb == "trace fetch":
        from verus.lab.fetch import recordings

        names = [name for entry in recordings() for name in (*entry.groups, entry.name)]
        return [name for name in dict.fromkeys(names) if name.startswith(last)]
    if verb.startswith("list "):
        kind = verb.removeprefix("list ").removesuffix("s")
        return [name for name in _verus.complete(kind, last) if ":" not in name]
    return (
        _verus.complete("channel", last) if verb in ("trace info", "trace plot", "trace generate", "trace fit") else []
    )

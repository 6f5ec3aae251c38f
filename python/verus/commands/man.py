"""`verus man`: a manual page for each verb, from the same tables as its help."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from verus import _verus
from verus.commands.help import about, name, synopsis
from verus.commands.options import one
from verus.commands.talk import Talk
from verus.commands.verbs import PAGES, SUMMARY, VERBS, Verb
from verus.endpoints.program import ENDPOINT, ENDPOINT_VERBS, find_endpoint
from verus.errors import FieldError
from verus.lab.atomic_write import write_whole


def man(
    folder: Annotated[Path, one("DIR", name="DIR")],
    /,
    *,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Write a manual page for each verb into a folder, such as `~/.local/share/man/man1`.

    Parameters
    ----------
    folder
        Folder for the pages; it is created if it does not exist.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FieldError("name", f"`{folder}` cannot be made ({error.strerror or error})") from error
    pages = {"verus": _overview()} | {f"verus-{word.replace(' ', '-')}": _page(word, VERBS[word]) for word in VERBS}
    for page, text in pages.items():
        write_whole(folder / f"{page}.1", text.encode(), field="name")
    endpoint, looked = find_endpoint()
    if endpoint is None:
        talk.say(f"none of {', '.join(ENDPOINT_VERBS)}: `{ENDPOINT}` is not in {looked}")
    elif (ran := subprocess.run([endpoint, "man", folder], check=False)).returncode:
        raise FieldError("name", f"`{endpoint} man` ended with code {ran.returncode}")
    talk.say(
        f"{len(list(folder.glob('verus*.1')))} pages in `{folder}`; `man -M` and `MANPATH` take the folder above it"
    )


def _overview() -> str:
    summaries = {f"verus-{word}(1)": verb.about for word, verb in VERBS.items() if " " not in word}
    summaries |= {f"verus-{word}(1)": summary for word, summary in ENDPOINT_VERBS.items()}
    verbs = "".join(f".TP\n\\fB{_text(word)}\\fR\n{_text(summary)}\n" for word, summary in summaries.items())
    return _head("verus", SUMMARY) + f".SH SYNOPSIS\n\\fBverus\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n.SH VERBS\n{verbs}"


def _page(word: str, verb: Verb) -> str:
    from verus.commands.app import app

    inner = app
    for part in word.split():
        inner = inner[part]
    entries: Any = _HelpEntries()
    formatter, inner.help_formatter = inner.help_formatter, entries
    try:
        App.help_print(app, word)  # without the examples below it
    finally:
        inner.help_formatter = formatter
    lists = {"VERBS": entries.verbs, "ARGUMENTS": entries.arguments, "OPTIONS": entries.options}
    text = _head(f"verus {word}", verb.about)
    rest = synopsis([], inner).removeprefix("verus")
    text += f".SH SYNOPSIS\n\\fBverus {_text(word)}\\fR{_text(rest)}\n"
    for title, rows in lists.items():
        if rows:
            text += f".SH {title}\n" + "".join(
                f".TP\n\\fB{_text(label)}\\fR\n{_text(description)}\n" for label, description in rows
            )
    examples = "".join(f"{_text(example)}\n" for example in verb.examples)
    return text + f".SH EXAMPLES\n.nf\n{examples}.fi\n.SH SEE ALSO\n{_text(PAGES + verb.page)}\n"


class _HelpEntries:
    """Collects the entries that help would print."""

    def __init__(self) -> None:
        self.verbs: list[tuple[str, str]] = []
        self.arguments: list[tuple[str, str]] = []
        self.options: list[tuple[str, str]] = []

    def render_usage(self, *_: Any) -> None:
        """Ignored: the page writes its own usage."""

    def render_description(self, *_: Any) -> None:
        """Likewise."""

    def __call__(self, _console: Any, _options: Any, panel: Any) -> None:
        for entry in panel.entries:
            listed = self.arguments if entry.positional_label else self.options
            (listed if panel.format == "parameter" else self.verbs).append((name(entry), about(entry)))


def _head(called: str, summary: str) -> str:
    page = called.replace(" ", "-")
    heading = f'.TH {page} 1 "{datetime.date.today().isoformat()}" "verus {_verus.version()}"'
    return f"{heading}\n.SH NAME\n{_text(page)} \\- {_text(summary.removesuffix('.'))}\n"


def _text(text: str) -> str:
    """Escapes text for roff, which interprets backslashes, hyphens, and a dot or a quote at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)

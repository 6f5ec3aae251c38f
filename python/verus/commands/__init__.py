"""The lab's verbs, from the table in `verus.verbs`. Each lives in a module of its own, imported when it is called."""

from __future__ import annotations

from cyclopts import App

from verus import _verus
from verus.commands.help import PlainHelp
from verus.endpoint import ENDPOINT_VERBS
from verus.verbs import SUMMARY, VERBS, after

app = App(
    name="verus",
    help=SUMMARY,
    version=_verus.version,
    version_flags=["--version", "-V"],
    help_format="plaintext",
    help_formatter=PlainHelp(""),
    suppress_keyboard_interrupt=False,  # `cli` says what became of the work
)

_groups = {"": app}
for name, verb in VERBS.items():
    group, _, word = name.rpartition(" ")
    tail = PlainHelp(after(verb.examples, verb.page))
    if ":" in verb.module:  # a group of its own making
        _groups[group].command(f"verus.commands.{verb.module}", name=word, help=verb.about)
    elif verb.module:
        where = f"verus.commands.{verb.module}:{word}"
        _groups[group].command(where, name=word, help=verb.about, help_formatter=tail)
    else:
        _groups[name] = App(name=word, help=verb.about, help_formatter=tail)
        _groups[group].command(_groups[name])

# `cli` hands these to `verus-endpoint` before anything here is imported; they are named for completion.
for name, about in ENDPOINT_VERBS.items():
    app.command(App(name=name, help=about))

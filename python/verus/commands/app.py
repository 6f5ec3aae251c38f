"""The app of the lab's verbs, from the table in `verbs.py`. A verb's module is imported when the verb is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import App, Parameter

from verus import _verus
from verus.commands.help import PlainHelp, synopsis
from verus.commands.verbs import SUMMARY, VERBS, after
from verus.endpoints.program import ENDPOINT_VERBS


class _Command(App):
    """The whole command. The library prints arguments, options and verbs as separate lists; examples come last."""

    def help_print(
        self,
        tokens: Annotated[str | Iterable[str] | None, Parameter(show=False)] = None,
        *,
        console: Annotated[Any, Parameter(parse=False)] = None,
    ) -> None:
        """The help of a verb, its examples, and the page that says more."""
        words, apps, _ = self.parse_commands(tokens)
        apps[-1].usage = synopsis(words, apps[-1])
        if apps[-1].default_command is not None:
            apps[-1].help = None  # all that its docstring says, rather than the line of a list
        super().help_print(tokens, console=console)
        if verb := VERBS.get(" ".join(words)) or VERBS.get(words[0] if words else ""):
            print(after(verb.examples, verb.page))


app: App = _Command(
    name="verus",
    help=SUMMARY,
    version=_verus.version,
    version_flags=["--version", "-V"],
    help_format="plaintext",
    help_formatter=PlainHelp(),
    suppress_keyboard_interrupt=False,  # `cli` reports the state of the work
)

_groups = {"": app}
for name, verb in VERBS.items():
    group, _, word = name.rpartition(" ")
    if ":" in verb.module:  # a group of its own making
        _groups[group].command(f"verus.commands.{verb.module}", name=word, help=verb.about)
    elif verb.module:
        where = f"verus.commands.{verb.module}:{word}"
        _groups[group].command(where, name=word, help=verb.about)
    else:
        _groups[name] = App(name=word, help=verb.about)
        _groups[group].command(_groups[name])

# `cli` hands these to `verus-endpoint` before anything here is imported; they are named for completion.
for name, about in ENDPOINT_VERBS.items():
    app.command(App(name=name, help=about))

"""The lab's verbs. Each lives in a module of its own, imported when it is called."""

from __future__ import annotations

from cyclopts import App, Group

from verus import _verus
from verus.endpoint import ENDPOINT_VERBS

app = App(
    name="verus",
    help="Low-delay congestion control for links whose capacity nobody can predict, and the lab that proves it.",
    version=_verus.version,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # `cli` says what became of the work
)
app.register_install_completion_command(help="Install completions for this shell.")

app.command(
    "verus.commands.compare:compare",
    name="compare",
    help="Run controllers over channels: a table, results and a report.",
)
app.command(
    "verus.commands.sweep:app",
    name="sweep",
    help="Run a study: any parameters over channels, queues and seeds, from a file.",
)
app.command(
    "verus.commands.reproduce:reproduce",
    name="reproduce",
    help="Redraw published results and check each against its target.",
)
app.command(
    "verus.commands.check:check",
    name="check",
    help="Run suites that others published, with their thresholds, against any sender.",
)

listing = App(name="list", help="What there is: schemes, queues, jitter, traffic and channels, with keys and units.")
listing.command("verus.commands.catalogue:schemes", name="schemes", help="Congestion controllers.")
listing.command("verus.commands.catalogue:queues", name="queues", help="Queue disciplines.")
listing.command("verus.commands.catalogue:jitter", name="jitter", help="What packets wait for behind the bottleneck.")
listing.command("verus.commands.catalogue:reorder", name="reorder", help="Which packets others overtake.")
listing.command("verus.commands.catalogue:traffic", name="traffic", help="What flows have to send, and when.")
listing.command("verus.commands.catalogue:measures", name="measures", help="What rows of suites can ask for.")
listing.command("verus.commands.catalogue:scenario", name="scenario", help="Fields of a scenario, with ranges.")
listing.command("verus.commands.catalogue:channels", name="channels", help="Built-in channels and public recordings.")
app.command(listing)

trace = App(name="trace", help="Traces: look at them, make them, convert them, fetch public recordings.")
trace.command("verus.commands.trace:info", name="info", help="Statistics of a trace.")
trace.command("verus.commands.trace:plot", name="plot", help="Draw a trace's rate over time.")
trace.command("verus.commands.trace:convert", name="convert", help="Turn a log of arrival times into a trace.")
trace.command("verus.commands.trace:generate", name="generate", help="Write a synthetic channel as a trace file.")
trace.command("verus.commands.trace:fetch", name="fetch", help="Download public recordings by name.")
app.command(trace)

app.command("verus.commands.train:train", name="train", help="Watch a controller and write a model of it.")
model = App(name="model", help="Models: look at what `verus train` wrote.")
model.command("verus.commands.model:info", name="info", help="States, density, sizes and the matrix of a model.")
app.command(model)

app.command("verus.commands.analyze:analyze", name="analyze", help="All metrics of a Mahimahi link log.")
app.command("verus.commands.report:report", name="report", help="Draw the page of saved runs again.")

# `cli` hands these to `verus-endpoint` before anything here is imported; they are named for the help.
live = Group("Live paths", sort_key=1)
for verb, about in ENDPOINT_VERBS.items():
    app.command(App(name=verb, help=about, group=live))

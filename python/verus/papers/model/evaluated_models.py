"""Models beside Verus in the same scenarios: ratios, tables and the stacked bars of Figs. 7 to 10 of the 2016 paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verus.lab.scenario import Run
from verus.papers.experiment import Experiment
from verus.papers.model import trained_models
from verus.papers.model.trained_models import EVALUATION, MODEL, PROPAGATION_MS, USERS, VERUS
from verus.papers.reproduction import MODEL_PAPER, Column, ColumnResults, Reproduction, Table, with_interval
from verus.report import figures
from verus.report.figures import Figure

#: The channels from the steadiest to the most variable one, as claims name them.
KINDS = ("steady-1", "steady-2", "middle-1", "middle-2", "variable")


def throughput(results: ColumnResults, label: str, base: str = VERUS) -> float:
    """Throughput of all users together, over that of `base`."""
    return results.where(label=label).mean("throughput_mbps") / results.where(label=base).mean("throughput_mbps")


def delay(results: ColumnResults, label: str, base: str = VERUS) -> float:
    """Packet delay, over that of `base`."""
    of = trained_models.packet_delay_ms
    return of(results.where(label=label)) / of(results.where(label=base))


def by_users(results: ColumnResults) -> dict[str, ColumnResults]:
    """The runs by number of users."""
    return {part: results.where(part=part) for part in map(trained_models.spoken, USERS)}


def table(groups: Mapping[str, ColumnResults], title: str) -> Table:
    """A row for each group and label: throughput, delay and fairness, with 95 % intervals over the seeds."""
    rows = []
    for name, here in groups.items():
        for label in here.labels():
            selected = here.where(label=label)
            delays = [queueing + PROPAGATION_MS for queueing in selected.values("qdelay_mean_ms")]
            rows.append(
                [
                    f"{name}, {label}",
                    with_interval(selected.values("throughput_mbps"), 2),
                    with_interval(delays, 1),
                    f"{throughput(here, label):.3f}",
                    f"{delay(here, label):.2f}",
                    f"{min(selected.values('jain')):.3f}",
                ]
            )
    heads = [
        "",
        "throughput of all, Mbit/s",
        "packet delay, ms",
        "throughput over Verus's",
        "delay over Verus's",
        "least Jain's index",
    ]
    return Table(title=title, heads=heads, rows=rows)


def bars(groups: Mapping[str, ColumnResults], *, name: str, what: str, caption: str, x: str) -> Sequence[Figure]:
    """Throughput and delay, as the paper draws them: a stack for each group and label, a part of it for each user."""

    def stacked(value: Callable[[Mapping[str, Any]], float]) -> list[dict[str, Any]]:
        return [
            {"group": group, "name": label, "part": f"user {user + 1}", "y": sum(own) / len(own)}
            for group, here in groups.items()
            for label in here.labels()
            for user, own in enumerate(
                zip(*([value(flow) for flow in row["per_flow"]] for row in here.where(label=label).rows), strict=True)
            )
        ]

    caption = f"{caption} A part of each bar is a user. {trained_models.DELAY}"
    width = 130 * len(groups)
    return [
        figures.bars(
            stacked(value),
            name=f"{name}{letter}",
            title=f"{title} {what}",
            caption=caption,
            x=x,
            y=f"{title.lower()}, {unit} (users stacked)",
            stacked=True,
            columns=1,
            size=(width, 260),
        )
        for letter, title, unit, value in (
            ("a", "Throughput", "Mbit/s", lambda flow: flow["throughput_mbps"]),
            ("b", "Packet delay", "ms", lambda flow: flow["qdelay_mean_ms"] + PROPAGATION_MS),
        )
    ]


def matching(
    *,
    name: str,
    users: int,
    title: str,
    figure: str,
    shows: str,
    delays_within: tuple[float, float],
    claimed: Sequence[str],
) -> Experiment:
    """An experiment of section 6.4: users of a model and users of Verus on all five channels.

    The model was trained with the same number of users.

    Args:
        name: The experiment's name.
        users: Number of users.
        title: Title of its page.
        figure: The figure to cite.
        shows: The paper's result, in our words.
        delays_within: Range of the ratio of the model's delay to Verus's in which a channel counts.
        claimed: Names of the values that have a claim.
    """

    def runs(column: Column) -> list[Run]:
        return [
            run
            for place in EVALUATION
            for run in (
                *trained_models.evaluation(column, place, users),
                *trained_models.evaluation(column, place, users, [users]),
            )
        ]

    def measure(results: ColumnResults) -> Mapping[str, float | None]:
        places = {place: results.where(place=place) for place in EVALUATION}
        rates = {place: throughput(here, MODEL) for place, here in places.items()}
        delays = {place: delay(here, MODEL) for place, here in places.items()}
        least, most = delays_within
        values = {
            "throughput": float(sum(0.9 <= rate <= 1.1 for rate in rates.values())),
            "throughput-higher": float(sum(rate > 1 for rate in rates.values())),
            "delay": float(sum(least <= each <= most for each in delays.values())),
            "fair": min(results.where(label=MODEL).values("jain")),
        }
        for place, kind in zip(results.measured, KINDS, strict=True):
            values |= {f"{kind}-delay": delays[place], f"{kind}-throughput": rates[place]}
        return {each: values[each] for each in claimed}

    def groups(results: ColumnResults) -> dict[str, ColumnResults]:
        return {place: results.where(place=place) for place in EVALUATION}

    def tables(results: ColumnResults) -> Sequence[Table]:
        order = ", ".join(results.measured)
        title = f"Verus and the model, {users} users; from the steadiest channel to the most variable: {order}"
        return [table(groups(results), title)]

    def draw(results: ColumnResults) -> Sequence[Figure]:
        caption = (
            f"{users} users of Verus (robust mode, R = 2) or of a model trained with {users} users, 300 s on each of "
            f"five LTE downlinks, queue {trained_models.QUEUE}, model with five seeds."
        )
        file = name.removeprefix("model-")
        return bars(groups(results), name=file, what=f"of {users} users", caption=caption, x="channel trace")

    return Reproduction(
        name=name,
        title=title,
        source=f"{MODEL_PAPER}, {figure}",
        shows=shows,
        set_up=trained_models.SET_UP,
        channels=trained_models.CHANNELS,
        runs=runs,
        compute=trained_models.by_variation,
        measure=measure,
        tables=tables,
        draw=draw,
        saved=trained_models.saved,
    ).experiment()

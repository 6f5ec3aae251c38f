"""SIGCOMM 2015, Table 1: Jain's fairness index for 2 to 20 users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.claims import BUILT_IN
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table
from verus.papers.sigcomm import five_scenarios
from verus.report import figures
from verus.report.figures import Figure

USERS = (2, 5, 10, 15, 20)
SCHEMES = {"Cubic": "cubic", "NewReno": "newreno", "Verus": "verus:ratio=2"}
DURATION_S = 300.0

#: Queues in which Cubic's flows are looked at beside, where they are many.
BESIDE = {
    "RED with 0.1 %": "red:min=375000,max=1125000,p=0.001",
    "drop-tail of 9 Mbit": "droptail:bytes=1125000",
}
MANY = (10, 20)

#: The table's published values, in per cent.
PUBLISHED = {
    "Cubic": (98.1, 93.5, 76.2, 75.2, 70.1),
    "NewReno": (89.7, 86.3, 83.8, 83.3, 82.0),
    "Verus": (94.6, 87.6, 90.7, 86.8, 78.6),
}


def runs(column: Column) -> list[Run]:
    """Every number of users of each scheme over each channel."""
    return [
        column.run(place, scheme, flows=users, label=label, seed=seed, duration_s=DURATION_S, series=False)
        for place in five_scenarios.CHANNELS
        for label, scheme in SCHEMES.items()
        for users in USERS
        for seed in column.seeds(1)
    ] + [
        column.run(place, scheme, flows=users, label=label, part=part, queue=queue, duration_s=DURATION_S, series=False)
        for part, queue in BESIDE.items()
        for place in five_scenarios.CHANNELS
        for label, scheme in SCHEMES.items()
        if label == "Cubic"
        for users in MANY
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    index = {label: {users: _index(results, label, users) for users in USERS} for label in SCHEMES}
    values: dict[str, float | None] = {
        f"{label.lower()}-{users}": value for label, row in index.items() for users, value in row.items()
    }
    for users in (10, 15, 20):
        values[f"above-cubic-{users}"] = index["Verus"][users] - index["Cubic"][users]
    for users in (2, 5):
        values[f"below-cubic-{users}"] = index["Cubic"][users] - index["Verus"][users]
        values[f"above-newreno-{users}"] = index["Verus"][users] - index["NewReno"][users]
    values["newreno-consistent"] = max(index["NewReno"].values()) - min(index["NewReno"].values())
    values["cubic-drops"] = index["Cubic"][USERS[0]] - index["Cubic"][USERS[-1]]
    return values


def _index(results: ColumnResults, label: str, users: int, key: str = "jain", part: str = "") -> float:
    return 100 * results.where(label=label, flows=users, part=part).mean(key)


def tables(results: ColumnResults) -> Sequence[Table]:
    """The table beside the published one, and each channel by itself."""
    beside = [
        [
            f"{users} users",
            *(f"{_index(results, label, users):.1f} ({PUBLISHED[label][at]:.1f})" for label in SCHEMES),
            *(f"{_index(results, label, users, 'jain_active'):.1f}" for label in SCHEMES),
        ]
        for at, users in enumerate(USERS)
    ]
    heads = ["", *(f"{label} (published)" for label in SCHEMES), *(f"{label}, active only" for label in SCHEMES)]
    measured_rows = [
        [
            f"{place}, {label}",
            *(f"{_index(results.where(place=place), label, users):.1f}" for users in USERS),
        ]
        for place in five_scenarios.CHANNELS
        for label in SCHEMES
    ]
    return [
        Table(
            title="Jain's index over windows of 1 s, averaged; means of the five channels, %", heads=heads, rows=beside
        ),
        Table(title="Each channel, %", heads=["", *(f"{users} users" for users in USERS)], rows=measured_rows),
        Table(
            title="Cubic's index in other queues, %",
            heads=["", *(f"{users} users" for users in MANY)],
            rows=[
                [name, *(f"{_index(results, 'Cubic', users, part=part):.1f}" for users in MANY)]
                for name, part in (("RED with 10 %", ""), *((part, part) for part in BESIDE))
            ],
        ),
        Table(
            title="Throughput of a flow and mean queueing delay, means of the five channels",
            heads=["", *(f"{label}, {unit}" for label in SCHEMES for unit in ("Mbit/s", "ms"))],
            rows=[
                [
                    f"{users} users",
                    *(
                        text
                        for label in SCHEMES
                        for here in (results.where(label=label, flows=users, part=""),)
                        for text in (
                            f"{here.mean('throughput_mbps') / users:.2f}",
                            f"{here.mean('qdelay_mean_ms'):.0f}",
                        )
                    ),
                ]
                for users in USERS
            ],
        ),
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """The index over the number of users, ours and the published."""
    indices = {label: [_index(results, label, users) for users in USERS] for label in SCHEMES}
    rows = [
        {"panel": panel, "name": label, "x": users, "y": value}
        for panel, index in (
            ("Published", PUBLISHED),
            ("Here, on built-in channels" if results.column == BUILT_IN else "Here, on recordings", indices),
        )
        for label in SCHEMES
        for users, value in zip(USERS, index[label], strict=True)
    ]
    traces = ", ".join(dict.fromkeys(row["trace"] for row in results.rows))
    caption = (
        f"Mean over five channels ({traces}) of Jain's index of the flows' throughputs over windows of 1 s; "
        f"{DURATION_S:g} s, {results.seeds_text()}. Queue {PAPER_QUEUE}, 20 ms of propagation each way. Verus in "
        "robust mode with R = 2."
    )
    return [
        figures.lines(
            rows,
            name="table1",
            title="Fairness over the number of users",
            caption=caption,
            x="users",
            y="Jain's index, %",
            zero=False,
            y_domain=(60, 100),
            dots=True,
            columns=2,
            size=(380, 240),
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-table1",
    title="Table 1: Jain's fairness index",
    source=f"{SIGCOMM}, Table 1",
    shows=(
        "Jain's index of 2 to 20 flows over windows of a second, averaged over time and over five scenarios. Cubic is "
        "fairest with few users and loses most with many; Verus keeps 79 to 95 %, and is fairer than Cubic from ten "
        "users on."
    ),
    set_up=(
        f"2, 5, 10, 15 and 20 flows of one protocol over one link, {DURATION_S:g} s, R = 2 as the text says. "
        f"{five_scenarios.WORDS} The queue is that of the paper's simulations, RED from 3 to 9 Mbit, 10 %; 20 ms of "
        "propagation each way, alike for all flows, and a start of all at once are our choice, since the paper states "
        "neither. A second without any delivery does not count."
    ),
    channels=five_scenarios.CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()

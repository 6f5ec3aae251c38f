"""SIGCOMM 2015, Fig. 8: Verus, Sprout, Cubic and Vegas on 3G and LTE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from verus.lab.scenario import PAPER_QUEUE
from verus.papers.reproduction import SIGCOMM, ColumnResults, Reproduction
from verus.papers.sigcomm import stationary_phones

#: R is that of the figure's legend.
SCHEMES = ("verus:ratio=6", "sprout", "cubic", "vegas")


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    over_cubic = {}
    for place in stationary_phones.CHANNELS:
        here, end = results.where(place=place, queue=stationary_phones.QUEUE), place.lower()
        verus, sprout, cubic, vegas = (here.where(label=label) for label in here.labels())
        delay, throughput = verus.mean("qdelay_mean_ms"), verus.mean("throughput_mbps")
        over_cubic[place] = throughput / cubic.mean("throughput_mbps")
        values |= {
            f"delay-cubic-{end}": cubic.mean("qdelay_mean_ms") / delay,
            f"delay-vegas-{end}": vegas.mean("qdelay_mean_ms") / delay,
            f"throughput-cubic-{end}": over_cubic[place],
            f"throughput-sprout-{end}": throughput / sprout.mean("throughput_mbps"),
            f"delay-sprout-{end}": delay / sprout.mean("qdelay_mean_ms"),
        }
    return {**values, "lte-more-favourable": over_cubic["LTE"] / over_cubic["3G"]}


def sentences(results: ColumnResults) -> Sequence[str]:
    """A sentence on the queue's effect on the main ratio."""
    ratios = {
        queue: " and ".join(
            f"{_delay(results, place, queue, 'Cubic') / _delay(results, place, queue, 'Verus R=6'):.3g} on {place}"
            for place in stationary_phones.CHANNELS
        )
        for queue in (stationary_phones.QUEUE, PAPER_QUEUE)
    }
    deep, red = ratios.values()
    return [
        f"Mean delay, Cubic over Verus: {deep} in the deep queue, {red} in RED. Cubic fills whatever buffer there is, "
        "and Verus does not."
    ]


def _delay(results: ColumnResults, place: str, queue: str, label: str) -> float:
    return results.where(place=place, queue=queue, label=label).mean("qdelay_mean_ms")


EXPERIMENT = Reproduction(
    name="sigcomm-fig08",
    title="Fig. 8: Verus, Sprout, Cubic and Vegas on 3G and LTE",
    source=f"{SIGCOMM}, Fig. 8",
    shows=(
        "Verus's mean delay is an order of magnitude below Cubic's and Vegas's. Its throughput is marginally above "
        "Cubic's on 3G and more so on LTE. Beside Sprout it has slightly more throughput and slightly more delay."
    ),
    set_up=(
        stationary_phones.SET_UP
        + " R = 6, as the figure's legend says. Cubic and Vegas were copies by scp over the kernel's TCP; here they "
        "are our own, with unlimited data and an acknowledgement for each packet."
    ),
    channels=stationary_phones.CHANNELS,
    runs=partial(stationary_phones.runs, schemes=SCHEMES),
    measure=measure,
    tables=stationary_phones.tables,
    sentences=sentences,
    draw=partial(stationary_phones.draw, name="fig08", title="Throughput and delay on 3G and LTE"),
).experiment()

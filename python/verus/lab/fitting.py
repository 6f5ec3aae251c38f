"""Models of a recording or of a log, as settings of a path: rate, losses, jitter, and how well each fits.

Parameters are fitted to the whole. The quality is judged apart, by held-out data: a model of the first half is compared
with the second half, by the distance of Kolmogorov and Smirnov.
"""

from __future__ import annotations

import abc
import bisect
import codecs
import functools
import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verus import _verus
from verus.lab import bounded_reading

Numbers = NDArray[np.float64]
Lost = NDArray[np.bool_]

#: Fewer losses or delays than these make no fit.
LEAST_LOSSES = 30
LEAST_DELAYS = 100
#: The length of a model's own sample, beside which a distribution is judged, and its seed.
_SAMPLE = 200_000
_SEED = 1
#: The largest log of packets, bytes.
_LARGEST_LOG = 256 << 20
#: The most opportunities of a link log.
_MOST_OPPORTUNITIES = 100_000_000
#: The header of a log of packets.
HEADER = "sent_ms,received_ms"
#: Bins of a histogram.
_BINS = 30
#: Width of the bins in which a rate is compared, ms; and the longest stretch of a built-in channel beside it, s.
_RATE_BIN_MS = 100
_LONGEST_S = 300.0
#: Wi-Fi's waits, as in `verus list jitter` (draft-huitema-ccwg-c4-test): means of two Poisson numbers of events, the
#: lengths of their events in ms, and the mean that a share of 1 of the longer waits adds, ms.
_SHORT_EVENTS, _SHORT_MS = 1.0, 1.0
_LONG_EVENTS, _LONG_MS, _SPAN_MS = 12.0, 7.5, 84.0
#: Waits that are longer have the second part, all but one in 2,000 of those that have it.
_LONG_FROM_MS = 15.0


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A distribution of the second half beside that of a model of the first half.

    Attributes:
        name: Its name, with its unit.
        ks_distance: The distance of Kolmogorov and Smirnov, the largest difference of the two cumulative shares.
        edges: Edges of the bins of both histograms.
        measured: Share of the second half's values in each bin.
        model: Share of the model's values in each bin.
    """

    name: str
    ks_distance: float
    edges: list[float]
    measured: list[float]
    model: list[float]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A model with its parameters.

    Attributes:
        model: The kind of model: ``rate``, ``loss`` or ``jitter``.
        settings: The settings of a path that make it, as `verus.Link` takes them.
        method: How its parameters were found.
        quantities: How well a fit of the first half describes the second; empty where there is too little of it.
    """

    model: str
    settings: Mapping[str, float | str]
    method: str
    quantities: list[Quantity]

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Packets:
    """Packets in the order of sending.

    Attributes:
        lost: Whether each was lost.
        delays_ms: The time that each took that arrived, behind the bottleneck where that is known.
    """

    lost: Lost
    delays_ms: Numbers


def read_packets(path: Path) -> Packets:
    """Reads a log of packets: results of ``verus compare --records``, or a CSV file of `HEADER`.

    In the file each line is a packet, in the order of sending; the second number is left out where the packet was lost.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such log; the message names the file and the line.
    """
    if path.is_dir():
        return _of_results(path)
    text = bounded_reading.given(path, _LARGEST_LOG).removeprefix(codecs.BOM_UTF8)
    sent: list[float] = []
    received: list[float] = []
    for number, line in enumerate(io.BytesIO(text), 1):
        fields = line.decode("utf-8", errors="replace").strip().split(",")
        if number == 1 and ",".join(fields) == HEADER:
            continue
        try:
            first, second = fields
            times = float(first), float(second) if second else np.nan
        except ValueError:
            times = np.nan, np.inf
        if not (np.isfinite(times[0]) and not np.isinf(times[1])):
            raise ValueError(f"`{path}`, line {number}: `{','.join(fields)[:40]}` is not a row of {HEADER}")
        if sent and times[0] < sent[-1]:
            raise ValueError(
                f"`{path}`, line {number}: sent at {times[0]:g} ms, after one at {sent[-1]:g} ms: sort by it"
            )
        sent.append(times[0])
        received.append(times[1])
    delays = np.array(received) - np.array(sent)
    lost = np.isnan(delays)
    return Packets(lost=lost, delays_ms=delays[~lost])


@dataclass(frozen=True, kw_only=True)
class LinkLog:
    """A Mahimahi link log.

    Attributes:
        times_ms: Opportunities of 1500 bytes.
        lost: Whether each packet was dropped, in the order of arrival, up to the last that departed.
    """

    times_ms: NDArray[np.int64]
    lost: Lost


def read_link_log(path: Path) -> LinkLog | None:
    """Reads a Mahimahi link log; None if the file is another one.

    Raises:
        OSError: It cannot be read.
        ValueError: A line is wrong, or the log claims more than `_MOST_OPPORTUNITIES`.
    """
    if (fates := _verus.link_log_fates(path)) is None:
        return None
    times, sizes, lost = fates
    carried = np.cumsum(sizes) // 1500
    if len(carried) and carried[-1] > _MOST_OPPORTUNITIES:
        raise ValueError(f"`{path}`: more than {_MOST_OPPORTUNITIES} opportunities of 1500 bytes")
    return LinkLog(times_ms=np.repeat(times, np.diff(carried, prepend=0)), lost=lost)


def is_log(path: Path) -> bool:
    """Whether it is a log for `read_packets`, rather than a channel: one with other separators is refused there."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(len(codecs.BOM_UTF8) + len(HEADER) + 2)
            names = re.split(rb"[,;\s]+", first.removeprefix(codecs.BOM_UTF8).strip())
            return names == HEADER.encode().split(b",")
    except OSError:
        return False


def _of_results(folder: Path) -> Packets:
    from verus.lab.results import Results

    records = Results.read(folder).records
    if records is None:
        raise ValueError(f"`{folder}` has no packets: run it again with --records")
    if len(set(records["run"].to_pylist())) > 1:
        raise ValueError(f"`{folder}` has several runs: fit one with one trace, queue, scheme and seed")
    column = {name: records[name].to_numpy() for name in ("departed_ms", "received_ms", "dropped_ms")}
    column = {name: np.asarray(values, dtype=float) for name, values in column.items()}
    arrived = np.isfinite(column["received_ms"])
    lost = np.isfinite(column["dropped_ms"]) & ~arrived
    complete = arrived | lost  # the rest was under way at the end
    return Packets(lost=lost[complete], delays_ms=(column["received_ms"] - column["departed_ms"])[arrived])


# Losses.


class LossModel(abc.ABC):
    """A hidden Markov chain that loses packets: its state before a transition decides about a packet."""

    @abc.abstractmethod
    def chain(self) -> tuple[Numbers, Numbers]:
        """The probability of each transition, from the row's state, and that of a loss in each state."""

    @abc.abstractmethod
    def text(self) -> str:
        """The setting ``loss_model``."""

    def draw(self, packets: int, rng: np.random.Generator) -> Lost:
        """Whether each of so many packets is lost, from the first state on."""
        change, loss = (values.tolist() for values in self.chain())
        below = [list(itertools.accumulate(row[:-1])) for row in change]
        changes, losses = rng.random((2, packets)).tolist()
        state, lost = 0, np.zeros(packets, dtype=bool)
        for at in range(packets):
            lost[at] = losses[at] < loss[state]
            state = bisect.bisect_right(below[state], changes[at])
        return lost

    def log_likelihood(self, blocks: Blocks) -> float:
        """Logarithm of the probability of these losses, of a chain that has forgotten its beginning."""
        return _log_likelihood(self.parts(), blocks)[0]

    @abc.abstractmethod
    def _joint(self) -> Numbers:
        """The probability of each transition, from a packet's fate and state to those of the next.

        In every model, either fate has two possible states: a transition between two fates is a matrix of 2 × 2.
        """

    def parts(self) -> Numbers:
        """Arguments of `_log_likelihood`: the share of each fate and state, and `_joint`."""
        joint = self._joint()
        return np.concatenate([_stationary(joint.reshape(4, 4)), joint.ravel()])


@dataclass(frozen=True)
class Gilbert(LossModel):
    """The model of Gilbert and Elliott, as netem's ``gemodel``.

    Attributes:
        p: Probability of going from the good state to the bad.
        r: Probability of going back.
        loss: Probability of a loss in the bad state, 1-h.
        good_loss: Probability of a loss in the good state, 1-k.
    """

    p: float
    r: float
    loss: float = 1.0
    good_loss: float = 0.0

    def chain(self) -> tuple[Numbers, Numbers]:
        """See `LossModel`: the good state, and the bad."""
        change = np.array([[1.0 - self.p, self.p], [self.r, 1.0 - self.r]])
        return change, np.array([self.good_loss, self.loss])

    def _joint(self) -> Numbers:
        change, loss = self.chain()
        return np.tile(change[:, None, :] * np.stack([1.0 - loss, loss]), (2, 1, 1, 1))

    def text(self) -> str:
        """See `LossModel`."""
        return f"gemodel:p={self.p:.4g},r={self.r:.4g},1-h={self.loss:.4g},1-k={self.good_loss:.4g}"


@dataclass(frozen=True)
class FourState(LossModel):
    """netem's chain ``state``: 1 received within a gap, 2 received within a burst, 3 lost in a burst, 4 lost in a gap.

    Attributes:
        p13: Probability of going from state 1 to state 3; the others likewise.
    """

    p13: float
    p31: float
    p32: float
    p23: float
    p14: float

    def chain(self) -> tuple[Numbers, Numbers]:
        """See `LossModel`."""
        change = np.array(
            [
                [1.0 - self.p13 - self.p14, 0.0, self.p13, self.p14],
                [0.0, 1.0 - self.p23, self.p23, 0.0],
                [self.p31, self.p32, 1.0 - self.p31 - self.p32, 0.0],
                [1.0, 0.0, 0.0, 0.0],
            ]
        )
        return change, np.array([0.0, 0.0, 1.0, 1.0])

    def _joint(self) -> Numbers:
        return self.chain()[0].reshape(2, 2, 2, 2)

    def text(self) -> str:
        """See `LossModel`."""
        return "state:" + ",".join(f"{name}={value:.4g}" for name, value in asdict(self).items())


class Blocks:
    """Fates of packets in blocks of 2, 4, 8 and so on. Equal blocks are kept once.

    Attributes:
        first: The first packet's fate: 1 if it was lost.
        halves: For each size, the indices of both halves of each distinct block among the blocks of half the size. The
            smallest are transitions: twice a packet's fate plus that of the next packet, or 4 behind the last.
    """

    def __init__(self, lost: Lost) -> None:
        fates = lost.astype(np.int8)
        self.first = int(fates[0])
        blocks = np.full(1 << (len(lost) - 2).bit_length(), 4, dtype=np.int8)
        blocks[: len(lost) - 1] = 2 * fates[:-1] + fates[1:]
        self.halves: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        distinct = 5
        while len(blocks) > 1:
            pairs, blocks = np.unique(blocks[::2] * distinct + blocks[1::2], return_inverse=True)
            self.halves.append(np.divmod(pairs, distinct))
            distinct = len(pairs)


def _product(first: Numbers, second: Numbers) -> Numbers:
    """Products of matrices of 2 × 2 that lie along the last axis."""
    return np.asarray(first[:, 0, None] * second[0] + first[:, 1, None] * second[1])


def _sums(indices: NDArray[np.int64], matrices: Numbers, count: int) -> Numbers:
    """Sums of the matrices that have the same index."""
    return np.array([[np.bincount(indices, entry, count) for entry in row] for row in matrices])


def _log_likelihood(parts: Numbers, blocks: Blocks) -> tuple[float, Numbers]:
    """Logarithm of the probability of these fates, and its derivatives by the parts of a `LossModel`.

    The forward algorithm (Rabiner, Proceedings of the IEEE 77, 1989) multiplies a matrix for each packet. Here
    neighbours are multiplied in pairs, and equal pairs once. Derivatives propagate backwards through the products.
    """
    shares, joint = parts[:4].reshape(2, 2)[blocks.first], parts[4:].reshape(2, 2, 2, 2)
    matrices = np.stack([*joint.swapaxes(1, 2).reshape(4, 2, 2), np.eye(2)], axis=-1)
    logs, steps = np.zeros(5), []
    with np.errstate(divide="ignore", invalid="ignore"):
        for left, right in blocks.halves:
            first, second = matrices.take(left, axis=-1), matrices.take(right, axis=-1)
            product = _product(first, second)
            largest = product.max(axis=(0, 1))
            steps.append((left, right, first, second, largest, len(logs)))
            matrices, logs = product / largest, logs[left] + logs[right] + np.log(largest)
        ends = matrices[..., 0].sum(axis=1)
        total = float(logs[0] + np.log(shares @ ends))
    if not np.isfinite(total):
        return -1e300, np.zeros(len(parts))
    slopes = np.tile(shares[:, None, None], (1, 2, 1)) / (shares @ ends)
    for left, right, first, second, largest, count in reversed(steps):
        slopes = slopes / largest
        by_first, by_second = _product(slopes, second.swapaxes(0, 1)), _product(first.swapaxes(0, 1), slopes)
        slopes = _sums(left, by_first, count) + _sums(right, by_second, count)
    by_shares = np.zeros((2, 2))
    by_shares[blocks.first] = ends / (shares @ ends)
    by_joint = slopes[..., :4].reshape(2, 2, 2, 2).transpose(2, 0, 3, 1)
    return total, np.concatenate([by_shares.ravel(), by_joint.ravel()])


def _stationary(change: Numbers) -> Numbers:
    """The share of time that a chain spends in each state."""
    return np.asarray(np.linalg.solve(np.eye(len(change)) - change.T + 1.0, np.ones(len(change))), dtype=float)


def _most_likely(of: Callable[[Numbers], LossModel], starts: Sequence[Numbers], blocks: Blocks) -> LossModel:
    """The model of maximum likelihood, whose parameters are `of` numbers without bounds; from each start by BFGS."""
    from scipy.optimize import minimize

    steps = 1e-5 * np.eye(len(starts[0]))

    def objective(point: Numbers) -> tuple[float, Numbers]:
        total, by_parts = _log_likelihood(of(point).parts(), blocks)
        parts_by_point = [(of(point + step).parts() - of(point - step).parts()) / 2e-5 for step in steps]
        return -total, -np.array(parts_by_point) @ by_parts

    # Probabilities stay within 10⁻⁵ of 0 and 1.
    bounds = [(-11.5, 11.5)] * len(starts[0])
    optima = [minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    return of(min(optima, key=lambda one: one.fun).x)


def _four_state(point: Numbers) -> FourState:
    """The chain of these logarithms of odds: of each transition beside staying."""
    o13, o31, o32, o23, o14 = np.exp(point)
    leave_1, leave_3 = 1.0 + o13 + o14, 1.0 + o31 + o32
    values = (o13 / leave_1, o31 / leave_3, o32 / leave_3, o23 / (1.0 + o23), o14 / leave_1)
    return FourState(*(float(value) for value in values))


def fit_loss_model(lost: Lost) -> tuple[LossModel, str]:
    """The model of these losses, and how it was found.

    Of independent losses, the simple model (every packet in the bad state is lost), Gilbert's (none in the good state
    is), Gilbert and Elliott's and the chain of four states, the one with the least Bayesian information criterion. The
    simple one has its maximum likelihood in the shares of transitions (Yajnik et al., INFOCOM 1999). A search finds the
    maximum of the others.

    Raises:
        ValueError: There are fewer than `LEAST_LOSSES` losses, or nothing but losses.
    """
    if len(lost) and lost.all():
        raise ValueError(f"all of {len(lost)} packets were lost; a fit takes some that arrived")
    if np.count_nonzero(lost) < LEAST_LOSSES:
        raise ValueError(f"{np.count_nonzero(lost)} of {len(lost)} packets were lost; a fit takes {LEAST_LOSSES}")
    from scipy.special import expit, logit

    def gilbert(point: Numbers) -> Gilbert:
        return Gilbert(*(float(share) for share in expit(point)))

    blocks = Blocks(lost)
    rate = float(lost.mean())
    before, after = lost[:-1], lost[1:]
    simple = Gilbert(float(after[~before].mean()), float((~after[before]).mean()))
    candidates: list[tuple[int, LossModel, str]] = [(1, Gilbert(rate, 1.0 - rate), "independent losses")]
    if 0.0 < simple.r < 1.0:
        candidates.append((2, simple, "maximum likelihood of the transitions"))
    # States last ten times as long as runs, and as long: the maximum is found from one of these.
    p, r = np.clip([simple.p, simple.r], 1e-4, 0.9)
    hidden = [logit([p / slower, r / slower, 0.8, rate / 3.0]) for slower in (10.0, 1.0)]
    chain = [np.log([p / 2.0, r / 2.0, r / 2.0, faster * p, p / 2.0]) for faster in (1.5, 10.0)]
    method = "maximum likelihood of a hidden chain"
    candidates += [
        (3, _most_likely(gilbert, [point[:3] for point in hidden], blocks), method),
        (4, _most_likely(gilbert, hidden, blocks), method),
        (5, _most_likely(_four_state, chain, blocks), "maximum likelihood of four states"),
    ]
    criterion = [free * np.log(len(lost)) - 2.0 * model.log_likelihood(blocks) for free, model, _ in candidates]
    _, model, method = candidates[int(np.argmin(criterion))]
    if isinstance(model, Gilbert) and model.good_loss > model.loss:
        model = Gilbert(model.r, model.p, model.good_loss, model.loss)
    return model, method


def fit_loss(lost: Lost) -> Fit:
    """The loss model of packets in the order of sending.

    Raises:
        ValueError: As `fit_loss_model`.
    """
    model, method = fit_loss_model(lost)
    middle = len(lost) // 2
    quantities = []
    try:
        sample = fit_loss_model(lost[:middle])[0].draw(_SAMPLE, np.random.default_rng(_SEED))
    except ValueError:
        pass
    else:
        for name, of in (("burst of losses, packets", True), ("gap between losses, packets", False)):
            measured, own = _runs(lost[middle:], of), _runs(sample, of)
            if len(measured) and len(own):
                quantities.append(_quantity(name, measured, own))
    settings: dict[str, float | str] = {"loss_model": model.text()}
    if method == "independent losses":
        settings = {"loss": float(f"{lost.mean():.4g}")}
    return Fit(model="loss", settings=settings, method=method, quantities=quantities)


def _runs(lost: Lost, of: bool) -> Numbers:
    """Lengths of the runs of losses, or of receptions."""
    ends = np.flatnonzero(np.diff(lost)) + 1
    # The first and the last are cut.
    return np.asarray(np.diff(ends)[lost[ends[:-1]] == of], dtype=float)


# Jitter.


def _uniform(delays: Numbers) -> tuple[float, dict[str, float]]:
    """Maximum likelihood, without its bias: the largest exceeds the least by (n - 1)/(n + 1) of the whole."""
    propagation, count = float(delays.min()), len(delays)
    return propagation, {"max_ms": float(np.ptp(delays)) * (count + 1) / (count - 1)}


def _gauss(delays: Numbers) -> tuple[float, dict[str, float]]:
    """Moments: the standard deviation is a third of the mean."""
    mean = 3.0 * float(delays.std())
    return max(0.0, float(delays.mean()) - mean), {"mean_ms": mean}


def _wifi(delays: Numbers) -> tuple[float, dict[str, float]]:
    """The share of packets with the longer wait; more than a third wait for nothing, so the least is propagation."""
    propagation = float(delays.min())
    share = float(np.mean(delays - propagation > _LONG_FROM_MS))
    return propagation, {"mean_ms": 1.0 + _SPAN_MS * share}


def _draw_uniform(rng: np.random.Generator, max_ms: float) -> Numbers:
    return rng.uniform(0.0, max_ms, _SAMPLE)


def _draw_gauss(rng: np.random.Generator, mean_ms: float) -> Numbers:
    return np.maximum(0.0, rng.normal(mean_ms, mean_ms / 3.0, _SAMPLE))


def _draw_wifi(rng: np.random.Generator, mean_ms: float) -> Numbers:
    def waits(events: float, millis: float, cut_from: int) -> Numbers:
        number = rng.poisson(events, _SAMPLE)
        passed = np.where(number >= cut_from, rng.random(_SAMPLE), 0.0)
        return np.asarray((number - passed) * millis)

    longer = rng.random(_SAMPLE) < (mean_ms - 1.0) / _SPAN_MS
    return waits(_SHORT_EVENTS, _SHORT_MS, 1) + longer * waits(_LONG_EVENTS, _LONG_MS, 2)


#: Each kind of jitter: how its parameters are found, and how its waits are drawn.
_JITTER: Mapping[str, tuple[Callable[[Numbers], tuple[float, dict[str, float]]], Callable[..., Numbers], str]] = {
    "uniform": (_uniform, _draw_uniform, "maximum likelihood"),
    "gauss": (_gauss, _draw_gauss, "moments"),
    "wifi": (_wifi, _draw_wifi, "the share of long waits"),
}


#: The longest propagation that ``verus compare`` takes.
_MOST_DELAY_MS = 100_000.0


def fit_jitter(delays_ms: Numbers) -> Fit | None:
    """The jitter of these one-way delays, and the propagation without it; None where they do not differ.

    Of the kinds of ``verus list jitter``, the one whose distribution is nearest. On a busy link packets wait for each
    other, so that delays of packets far apart describe the jitter better.

    Raises:
        ValueError: There are fewer than `LEAST_DELAYS`.
    """
    if len(delays_ms) < LEAST_DELAYS:
        raise ValueError(f"{len(delays_ms)} packets arrived; a fit takes {LEAST_DELAYS}")
    if float(np.ptp(delays_ms)) < 1e-6:
        return None
    middle = len(delays_ms) // 2
    first, second = delays_ms[:middle], delays_ms[middle:]

    def sample(kind: str, delays: Numbers) -> Numbers:
        parameters, draw, _ = _JITTER[kind]
        base, found = parameters(delays)
        return base + draw(np.random.default_rng(_SEED), **found)

    def nearest(delays: Numbers) -> str:
        return min(_JITTER, key=lambda kind: _distance(delays, sample(kind, delays)))

    parameters, _, method = _JITTER[kind := nearest(delays_ms)]
    base, found = parameters(delays_ms)
    values = ",".join(f"{key}={value:.4g}" for key, value in found.items())
    settings: dict[str, float | str] = {"jitter": f"{kind}:{values}"}
    if 0 <= base <= _MOST_DELAY_MS:
        settings = {"delay_ms": float(f"{base:.4g}"), **settings}
    else:
        method += "; the clocks of the two ends differ, so that propagation is unknown"
    quantities = [_quantity("one-way delay, ms", second, sample(nearest(first), first))]
    return Fit(model="jitter", settings=settings, method=method, quantities=quantities)


# Rates.


def fit_rate(times_ms: NDArray[np.int64], period_ms: int | None = None) -> Fit:
    """The channel of these opportunities of 1500 bytes: a constant rate, or the nearest built-in one.

    Nearest by the mean of three distances: rates in bins of 100 ms, gaps between milliseconds with an opportunity, and
    opportunities within one. The quantities compare the second half with the channel nearest to the first.

    Args:
        times_ms: The opportunities.
        period_ms: How long the channel lasts; by default until the last one.

    Raises:
        ValueError: It lasts less than 2 s.
    """
    duration_ms = period_ms or (int(times_ms[-1]) if len(times_ms) else 0)
    if duration_ms < 20 * _RATE_BIN_MS:
        raise ValueError(f"{duration_ms / 1000:g} s of a channel; a fit takes 2 s")
    seconds = min(_LONGEST_S, duration_ms / 1000)
    built_in = _built_in(seconds)

    def nearest(times: NDArray[np.int64]) -> tuple[str, dict[str, Numbers]]:
        mean_mbps = len(times) * 12.0 / int(times[-1])
        constant = np.floor(np.arange(1, int(mean_mbps * seconds / 0.012) + 1) * 12.0 / mean_mbps).astype(np.int64)
        values = _rate_values(times)
        candidates = {f"rate:{mean_mbps:.4g}": _rate_values(constant), **built_in}
        name = min(
            candidates, key=lambda name: np.mean([_distance(values[key], candidates[name][key]) for key in values])
        )
        return name, candidates[name]

    middle = int(np.searchsorted(times_ms, duration_ms // 2))
    second = _rate_values(times_ms[middle:] - times_ms[middle])
    name, _ = nearest(times_ms)
    _, model = nearest(times_ms[:middle])
    quantities = [_quantity(key, second[key], model[key]) for key in second]
    method = "mean" if name.startswith("rate:") else f"nearest of {len(built_in)} built-in channels"
    return Fit(model="rate", settings={"trace": name}, method=method, quantities=quantities)


@functools.lru_cache(maxsize=4)
def _built_in(seconds: float) -> dict[str, dict[str, Numbers]]:
    """The quantities of each built-in channel that lasts so long."""
    names = [channel["name"] for channel in _verus.list_channels() if channel["kind"] == "built-in"]
    return {name: _rate_values(_verus.trace_generate(name, _SEED, seconds)) for name in names}


def _rate_values(times_ms: NDArray[np.int64]) -> dict[str, Numbers]:
    """The three quantities by which channels are compared."""
    bins = np.bincount(times_ms // _RATE_BIN_MS)[:-1] * 12.0 / _RATE_BIN_MS
    instants, bursts = np.unique(times_ms, return_counts=True)
    return {
        f"rate in {_RATE_BIN_MS} ms, Mbit/s": bins.astype(float),
        "gap between opportunities, ms": np.diff(instants).astype(float),
        "opportunities within 1 ms": bursts.astype(float),
    }


# Distributions.


def _distance(measured: Numbers, model: Numbers) -> float:
    """The distance of Kolmogorov and Smirnov. SciPy's `ks_2samp` also computes a probability, which takes longest."""
    samples = np.sort(measured), np.sort(model)
    values = np.concatenate(samples)
    measured_share, model_share = (np.searchsorted(one, values, side="right") / len(one) for one in samples)
    return float(np.abs(measured_share - model_share).max())


def _quantity(name: str, measured: Numbers, model: Numbers) -> Quantity:
    """Two distributions, with histograms of common bins up to the 99th percentile, and one beyond."""
    both = np.concatenate([measured, model])
    low, high = float(both.min()), float(max(np.percentile(measured, 99), np.percentile(model, 99)))
    inner = np.linspace(low, max(high, low + 1e-9), _BINS)
    edges = np.append(inner, max(float(both.max()), inner[-1] + 1e-9))
    shares = [np.histogram(values, edges)[0] / len(values) for values in (measured, model)]
    return Quantity(
        name=name,
        ks_distance=_distance(measured, model),
        edges=[float(edge) for edge in edges],
        measured=[float(share) for share in shares[0]],
        model=[float(share) for share in shares[1]],
    )

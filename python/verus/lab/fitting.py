"""Models of a recording or of a log, as settings of a path: rate, losses, jitter, and how well each fits.

Parameters are fitted to the whole. The quality is judged apart, by held-out data: a model of the first half is compared
with the second half, by the distance of Kolmogorov and Smirnov.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
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
#: The header of such a log.
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
    text = bounded_reading.given(path, _LARGEST_LOG)
    sent, received = [], []
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
        sent.append(times[0])
        received.append(times[1])
    delays = np.array(received) - np.array(sent)
    lost = np.isnan(delays)
    return Packets(lost=lost, delays_ms=delays[~lost])


def is_log(path: Path) -> bool:
    """Whether `read_packets` takes it, rather than being a channel."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return file.readline(len(HEADER) + 2).strip() == HEADER.encode()
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


@dataclass(frozen=True)
class Gilbert:
    """The model of Gilbert and Elliott without losses in the good state, as netem's ``gemodel`` with 1-k = 0.

    Attributes:
        p: Probability of going from the good state to the bad.
        r: Probability of going back.
        loss: Probability of a loss in the bad state, 1-h.
    """

    p: float
    r: float
    loss: float = 1.0

    def text(self) -> str:
        """The setting ``loss_model``."""
        return f"gemodel:p={self.p:.4g},r={self.r:.4g},1-h={self.loss:.4g},1-k=0"

    def distances(self, steps: NDArray[np.int64]) -> Numbers:
        """Probability that the next loss comes so many packets after a loss.

        A loss happens in the bad state alone, so that the distances are independent of each other: the likelihood of
        a sequence is the product over them.
        """
        # A packet's state, given that none was lost since: it survives, and changes.
        survive = np.diag([1.0, 1.0 - self.loss])
        change = np.array([[1.0 - self.p, self.p], [self.r, 1.0 - self.r]])
        values, vectors = np.linalg.eig((survive @ change).T)
        begin = np.linalg.solve(vectors, np.array([self.r, 1.0 - self.r], dtype=complex))
        powers = values[:, None] ** (steps[None, :] - 1)
        bad: Numbers = np.real(vectors[1] * begin @ powers)
        return bad * self.loss

    def draw(self, packets: int, rng: np.random.Generator) -> Lost:
        """Whether each of so many packets is lost, in netem's order: by the state before the transition."""
        changes, losses = rng.random(packets), rng.random(packets)
        bad, lost = False, np.zeros(packets, dtype=bool)
        for at in range(packets):
            lost[at] = bad and losses[at] < self.loss
            bad = changes[at] >= self.r if bad else changes[at] < self.p
        return lost


def fit_gilbert(lost: Lost) -> tuple[Gilbert, str]:
    """The model of these losses, and how it was found.

    Of independent losses, the simple model (every packet in the bad state is lost) and Gilbert's, the one with the
    least Bayesian information criterion. The simple one has its maximum likelihood in the shares of transitions
    (Yajnik et al., INFOCOM 1999). Gilbert's begins with his moments (Bell System Technical Journal 39, 1960; Hasslinger
    and Hohlfeld, MMB 2008, equation 7) and is moved to the maximum by the method of Nelder and Mead.

    Raises:
        ValueError: There are fewer than `LEAST_LOSSES` losses, or nothing but losses.
    """
    if np.count_nonzero(lost) < LEAST_LOSSES or lost.all():
        raise ValueError(f"{np.count_nonzero(lost)} of {len(lost)} packets were lost; a fit takes {LEAST_LOSSES}")
    steps, counts = np.unique(np.diff(np.flatnonzero(lost)), return_counts=True)

    def likelihood(model: Gilbert) -> float:
        return float(counts @ np.log(np.maximum(model.distances(steps), 1e-300)))

    rate = float(lost.mean())
    before, after = lost[:-1], lost[1:]
    simple = Gilbert(float(after[~before].mean()), float((~after[before]).mean()))
    candidates = [(1, Gilbert(rate, 1.0 - rate), "independent losses")]
    if 0.0 < simple.r < 1.0:
        candidates.append((2, simple, "maximum likelihood of the transitions"))
    if moments := _moments(lost):
        from scipy.optimize import minimize
        from scipy.special import expit, logit

        def of(point: Numbers) -> Gilbert:
            return Gilbert(*(float(share) for share in expit(point)))

        start = logit(np.clip([moments.p, moments.r, moments.loss], 1e-6, 1.0 - 1e-6))
        best = minimize(lambda point: -likelihood(of(point)), start, method="Nelder-Mead", options={"maxiter": 600})
        candidates.append((3, of(best.x), "maximum likelihood of the distances between losses, from Gilbert's moments"))
    criterion = [free * np.log(counts.sum()) - 2.0 * likelihood(model) for free, model, _ in candidates]
    _, model, method = candidates[int(np.argmin(criterion))]
    return model, method


def _moments(lost: Lost) -> Gilbert | None:
    """Gilbert's three moments; None where they are of no such model."""
    a = float(lost.mean())
    b = float(lost[1:][lost[:-1]].mean())
    outer = lost[:-2] & lost[2:]
    if not outer.any():
        return None
    c = float(lost[1:-1][outer].mean())
    below = 2.0 * a * c - b * (a + c)
    if below == 0.0:
        return None
    stay = (a * c - b * b) / below  # 1 - r
    if not 0.0 < stay < 1.0:
        return None
    loss = b / stay
    r = 1.0 - stay
    if not a < loss <= 1.0:
        return None
    p = a * r / (loss - a)
    return Gilbert(p, r, loss) if 0.0 < p < 1.0 else None


def fit_loss(lost: Lost) -> Fit:
    """The loss model of packets in the order of sending.

    Raises:
        ValueError: As `fit_gilbert`.
    """
    model, method = fit_gilbert(lost)
    middle = len(lost) // 2
    quantities = []
    try:
        sample = fit_gilbert(lost[:middle])[0].draw(_SAMPLE, np.random.default_rng(_SEED))
    except ValueError:
        pass
    else:
        for name, of in (("burst of losses, packets", True), ("gap between losses, packets", False)):
            measured, own = _runs(lost[middle:], of), _runs(sample, of)
            if len(measured) and len(own):
                quantities.append(_quantity(name, measured, own))
    settings: dict[str, float | str] = {"loss_model": model.text()}
    if method == "independent losses":
        settings = {"loss": float(f"{model.p:.4g}")}
    return Fit(model="loss", settings=settings, method=method, quantities=quantities)


def _runs(lost: Lost, of: bool) -> Numbers:
    """Lengths of the runs of losses, or of receptions."""
    ends = np.flatnonzero(np.diff(lost)) + 1
    parts = np.split(lost, ends)
    # The first and the last are cut.
    return np.array([len(part) for part in parts[1:-1] if part[0] == of], dtype=float)


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
    settings: dict[str, float | str] = {"delay_ms": float(f"{base:.4g}"), "jitter": f"{kind}:{values}"}
    quantities = [_quantity("one-way delay, ms", second, sample(nearest(first), first))]
    return Fit(model="jitter", settings=settings, method=method, quantities=quantities)


# Rates.


def fit_rate(times_ms: NDArray[np.int64]) -> Fit:
    """The channel of these opportunities of 1500 bytes: a constant rate, or the nearest built-in one.

    Nearest by the mean of three distances: rates in bins of 100 ms, gaps between milliseconds with an opportunity, and
    opportunities within one. The quantities compare the second half with the channel nearest to the first.

    Raises:
        ValueError: They last less than 2 s.
    """
    duration_ms = int(times_ms[-1])
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
    from scipy.stats import ks_2samp

    return float(ks_2samp(measured, model, method="asymp").statistic)


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

"""`verus trace fit`: each model is recovered from packets that it made, and logs without a fit are named."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verus import _verus
from verus.lab import fitting

#: Runs the command in this process.
Command = Callable[..., Any]

#: Seeds of the simulations whose packets are fitted.
SEEDS = (1, 2, 3)


def packets(seed: int, *, mbps: float = 6, duration_s: float = 20, **path: Any) -> fitting.Packets:
    """Packets of 1500 bytes at a constant rate over a link with room for all: 10,000 of them by default."""
    scenario = {
        "trace": "rate:20",
        "queue": "infinite",
        "flows": [{"scheme": f"constant:rate_mbps={mbps}"}],
        "duration_s": duration_s,
        "seed": seed,
        "records": True,
        **path,
    }
    outcome = _verus.simulate(json.dumps(scenario))
    records = {name: np.asarray(outcome["records"][name]) for name in ("departed_ms", "received_ms", "dropped_ms")}
    arrived = np.isfinite(records["received_ms"])
    lost = np.isfinite(records["dropped_ms"])
    delays = (records["received_ms"] - records["departed_ms"])[arrived]
    return fitting.Packets(lost=lost[arrived | lost], delays_ms=delays)


@pytest.mark.parametrize("seed", SEEDS)
def test_bursts_of_losses_are_found_again_within_5_percent_of_their_parameters(seed: int) -> None:
    # Standard errors of 10,000 packets: 1.7 % of both.
    lost = packets(seed, loss_model="gemodel:p=0.4,r=0.4").lost
    assert abs(len(lost) - 10_000) < 10
    model, _ = fitting.fit_loss_model(lost)
    assert isinstance(model, fitting.Gilbert)
    assert model.loss == pytest.approx(1.0, abs=0.05)
    assert (model.p, model.r) == (pytest.approx(0.4, rel=0.05), pytest.approx(0.4, rel=0.05))
    fit = fitting.fit_loss(lost)
    assert {quantity.name.split()[0] for quantity in fit.quantities} == {"burst", "gap"}
    # The second half has 1,000 bursts, whose distance is above 0.05 in 1 % of samples, beside the error of the fit.
    assert all(quantity.ks_distance < 0.08 for quantity in fit.quantities)


@pytest.mark.parametrize("seed", SEEDS)
def test_receptions_within_bursts_are_found_again(seed: int) -> None:
    # Three parameters of a hidden state take more than 10,000 packets: their standard errors are 2 % of 400,000.
    truth = fitting.Gilbert(0.2, 0.2, 0.6)
    model, method = fitting.fit_loss_model(truth.draw(400_000, np.random.default_rng(seed)))
    assert method == "maximum likelihood of a hidden chain"
    assert isinstance(model, fitting.Gilbert)
    assert (model.p, model.r, model.loss) == (
        pytest.approx(truth.p, rel=0.05),
        pytest.approx(truth.r, rel=0.05),
        pytest.approx(truth.loss, rel=0.05),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_losses_are_not_taken_for_bursts(seed: int) -> None:
    # Standard error: 2 %.
    fit = fitting.fit_loss(packets(seed, loss=0.2).lost)
    assert fit.settings == {"loss": pytest.approx(0.2, rel=0.05)}


#: Models all of whose parameters show in the losses, and their relative standard errors of 10,000 packets, from the
#: curvature of the likelihood. Those of 200,000 packets are 0.22 of these, 1.6 % at most.
HIDDEN = [
    (fitting.Gilbert(0.1, 0.1, 0.9, 0.2), (0.066, 0.065, 0.008, 0.046)),
    (fitting.FourState(0.1, 0.2, 0.3, 0.8, 0.2), (0.068, 0.074, 0.058, 0.034, 0.039)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("truth", "errors"), HIDDEN)
def test_hidden_chains_are_found_again_within_their_standard_errors(
    truth: fitting.LossModel, errors: tuple[float, ...], seed: int
) -> None:
    # 5 % is the standard error of most parameters: only 1-h is known that well from 10,000 packets.
    model, _ = fitting.fit_loss_model(packets(seed, loss_model=truth.text()).lost)
    assert type(model) is type(truth)
    for fitted, value, error in zip(vars(model).values(), vars(truth).values(), errors, strict=True):
        assert fitted == pytest.approx(value, rel=max(0.05, 3 * error))


@pytest.mark.parametrize(("truth", "errors"), HIDDEN)
def test_hidden_chains_are_found_again_within_5_percent(truth: fitting.LossModel, errors: tuple[float, ...]) -> None:
    assert max(errors) * np.sqrt(10_000 / 200_000) < 0.05 / 3
    model, _ = fitting.fit_loss_model(truth.draw(200_000, np.random.default_rng(1)))
    assert type(model) is type(truth)
    assert list(vars(model).values()) == pytest.approx(list(vars(truth).values()), rel=0.05)


def test_the_likelihood_is_that_of_the_forward_algorithm() -> None:
    for model in (fitting.Gilbert(0.05, 0.3, 0.7, 0.02), fitting.FourState(0.1, 0.2, 0.3, 0.8, 0.2)):
        lost = model.draw(500, np.random.default_rng(1))
        change, loss = model.chain()
        shares = np.linalg.matrix_power(change, 10_000)[0]
        total = 0.0
        for is_lost in lost:
            shares = shares * (loss if is_lost else 1 - loss)
            total += float(np.log(shares.sum()))
            shares = shares / shares.sum() @ change
        assert model.log_likelihood(fitting.Blocks(lost)) == pytest.approx(total)


@pytest.mark.parametrize(("truth", "errors"), HIDDEN)
def test_no_neighbour_of_a_fit_is_more_likely(truth: fitting.LossModel, errors: tuple[float, ...]) -> None:
    lost = truth.draw(20_000, np.random.default_rng(1))
    blocks = fitting.Blocks(lost)
    model, _ = fitting.fit_loss_model(lost)
    best = model.log_likelihood(blocks)
    for (name, value), error in zip(vars(model).items(), errors, strict=True):
        # About a tenth of the standard error, which costs 0.004 or more.
        for factor in (1 - error / 15, 1 + error / 15):
            assert dataclasses.replace(model, **{name: value * factor}).log_likelihood(blocks) < best - 0.002


def test_a_link_log_has_a_rate_and_losses(verus: Command, tmp_path: Path) -> None:
    lost = fitting.Gilbert(0.05, 0.3).draw(6_000, np.random.default_rng(1))
    log = tmp_path / "log"
    # A packet each ms, of which some are dropped, and an opportunity of 1500 bytes each ms: 12 Mbit/s.
    lines = [f"{ms} + 1500\n{ms} # 1500\n{ms} {'d 1 1500' if lost[ms] else '- 1500 0'}\n" for ms in range(6_000)]
    log.write_text("# base timestamp: 0\n" + "".join(lines))
    read = fitting.read_link_log(log)
    assert read is not None
    assert np.array_equal(read.lost, lost[: len(read.lost)])
    assert len(lost) - len(read.lost) < 20
    ran = verus("trace", "fit", str(log))
    assert ran.code == 0, ran.err
    assert re.search(r"--trace rate:12 .*--loss-model gemodel:p=0.0[45]", ran.out), ran.out
    log.write_text("0 # 1500\n0 x 1\n")
    ran = verus("trace", "fit", str(log))
    assert (ran.code, ran.out) == (2, "")
    assert "line 2: `x` is not a kind of event" in ran.err


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("jitter", "key", "mbps"),
    [
        ("uniform:max_ms=20", "max_ms", 0.4),
        ("gauss:mean_ms=15", "mean_ms", 0.4),
        ("wifi:mean_ms=40", "mean_ms", 0.05),  # so far apart that no packet waits for another
    ],
)
def test_jitter_is_found_again_within_5_percent(jitter: str, key: str, mbps: float, seed: int) -> None:
    log = packets(seed, mbps=mbps, duration_s=10_000 * 0.012 / mbps, jitter=jitter)
    assert abs(len(log.delays_ms) - 10_000) < 20
    fit = fitting.fit_jitter(log.delays_ms)
    assert fit is not None
    kind, _, parameters = str(fit.settings["jitter"]).partition(":")
    assert kind == jitter.partition(":")[0]
    value = float(jitter.rpartition("=")[2])
    assert parameters == f"{key}={float(parameters.rpartition('=')[2]):.4g}"
    assert float(parameters.rpartition("=")[2]) == pytest.approx(value, rel=0.05)
    assert fit.settings["delay_ms"] == pytest.approx(20, abs=1)
    assert all(quantity.ks_distance < 0.05 for quantity in fit.quantities)


def test_a_constant_rate_and_a_built_in_channel_are_found_again() -> None:
    steady = np.floor(np.arange(1, 10_001) * 1.7).astype(np.int64)
    settings = fitting.fit_rate(steady).settings
    assert float(str(settings["trace"]).removeprefix("rate:")) == pytest.approx(12 / 1.7, rel=0.05)
    for name in ("city-waterfront-lte-up", "campus-pedestrian-lte-down"):
        fit = fitting.fit_rate(_verus.trace_generate(name, 5, 120.0))
        assert fit.settings == {"trace": name}
        assert len(fit.quantities) == 3
        assert all(quantity.ks_distance < 0.35 for quantity in fit.quantities)


def test_half_of_the_built_in_channels_are_named_as_themselves() -> None:
    """As docs/paths.md says, of 30 s with another seed than that of the fit."""
    names = [channel["name"] for channel in _verus.list_channels() if channel["kind"] == "built-in"]
    fits = {name: fitting.fit_rate(_verus.trace_generate(name, 5, 30.0)) for name in names}
    assert 2 * sum(fit.settings == {"trace": name} for name, fit in fits.items()) >= len(names)
    assert not any(str(fit.settings["trace"]).startswith("rate:") for fit in fits.values())


def test_histograms_are_shares_over_common_bins() -> None:
    fit = fitting.fit_loss(fitting.Gilbert(0.05, 0.3).draw(20_000, np.random.default_rng(1)))
    for quantity in fit.quantities:
        assert len(quantity.edges) == len(quantity.measured) + 1 == len(quantity.model) + 1
        assert sum(quantity.measured) == pytest.approx(1)
        assert sum(quantity.model) == pytest.approx(1)


def test_the_command_prints_options_that_compare_takes(verus: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rate = ["--trace", "rate:20", "--scheme", "constant:rate_mbps=2", "--duration", "60", "--records"]
    path = ["--loss-model", "gemodel:p=0.02,r=0.2", "--jitter", "gauss:mean_ms=15", "--queue", "infinite"]
    assert verus("compare", *rate, *path, "--out", str(folder)).code == 0
    ran = verus("trace", "fit", str(folder))
    assert ran.code == 0, ran.err
    options = ran.out.splitlines()[-1]
    assert options.startswith("--loss-model gemodel:p=")
    assert "--jitter gauss:mean_ms=" in options
    again = verus("compare", *rate[:6], "--json", *options.split())
    assert again.code == 0, again.err
    models = [json.loads(line) for line in verus("trace", "fit", str(folder), "--json").out.splitlines()]
    assert [model["model"] for model in models] == ["loss", "jitter"]
    assert all(model["quantities"][0]["measured"] for model in models)


def test_a_log_of_packets_is_read_line_by_line(verus: Command, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    draw = np.random.default_rng(1)
    lost = fitting.Gilbert(0.1, 0.3).draw(4_000, draw)
    waits = draw.uniform(0, 8, 4_000)
    rows = (f"{at * 10},{'' if lost[at] else at * 10 + 20 + waits[at]}" for at in range(4_000))
    log.write_text("\n".join([fitting.HEADER, *rows]) + "\n")
    ran = verus("trace", "fit", str(log))
    assert ran.code == 0, ran.err
    (fitted,) = re.findall(r"--jitter uniform:max_ms=([\d.]+)", ran.out)
    assert float(fitted) == pytest.approx(8, rel=0.05)
    log.write_text("\ufeff" + log.read_text())
    assert verus("trace", "fit", str(log)).out == ran.out
    log.write_text(f"{fitting.HEADER}\n0,20\n10,soon\n")
    ran = verus("trace", "fit", str(log))
    assert (ran.code, ran.out) == (2, "")
    assert f"line 3: `10,soon` is not a row of {fitting.HEADER}" in ran.err
    log.write_text(f"{fitting.HEADER.replace(',', ';')}\n0;20\n")
    ran = verus("trace", "fit", str(log))
    assert ran.code == 2
    assert f"line 1: `sent_ms;received_ms` is not a row of {fitting.HEADER}" in ran.err
    log.write_text(f"{fitting.HEADER}\n10,20\n0,30\n")
    assert "line 3: sent at 0 ms, after one at 10 ms" in verus("trace", "fit", str(log)).err
    # A receiver's clock that is behind says nothing of propagation.
    rows = (f"{at * 10},{at * 10 - 500 + waits[at]}" for at in range(4_000))
    log.write_text("\n".join([fitting.HEADER, *rows]) + "\n")
    ran = verus("trace", "fit", str(log))
    assert "--jitter uniform" in ran.out
    assert "--delay-ms" not in ran.out
    log.write_text(f"{fitting.HEADER}\n0,20\n10,\n")
    ran = verus("trace", "fit", str(log))
    assert ran.code == 1
    assert "No fit of loss: 1 of 2 packets were lost; a fit takes 30" in ran.err
    log.write_text(f"{fitting.HEADER}\n")
    assert "all of 0 packets" not in verus("trace", "fit", log).err
    log.write_text("\n".join([fitting.HEADER, *(f"{at * 10}," for at in range(40))]) + "\n")
    assert (
        "No fit of loss: all of 40 packets were lost; a fit takes some that arrived" in verus("trace", "fit", log).err
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-1] + b"\xff",
        lambda text: text + b"\n1,2,3",
        lambda text: text + b"\nnan,1",
        lambda text: b"",
    ],
)
def test_a_damaged_log_is_refused_or_read(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(damage(f"{fitting.HEADER}\n0,20\n10,30".encode()))
    try:
        packets = fitting.read_packets(log)
    except ValueError as error:
        assert "is not a row of" in str(error)  # noqa: PT017
    else:
        assert len(packets.lost) == 0

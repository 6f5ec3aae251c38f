"""The formulas of `docs/equilibrium.md`: against the laws integrated by themselves, the simulator, and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verus.lab.runner import run_all
from verus.papers.own import equilibrium
from verus.papers.own.equilibrium import DECREMENT_MS, EPOCH_MS, INCREMENT_MS, LAG_EPOCHS, cycle, paper_period

from .conftest import tables

DOCS = Path(__file__).parents[2] / "docs"
STEP_MS = 0.5


def delays_of_the_law(limit_ms: float, seconds: float) -> list[float]:
    """T over time if packets in flight follow the window.

    Eq. 4 uses the T of a round trip and the lag ago.
    """
    rise, fall, lag = INCREMENT_MS / EPOCH_MS, DECREMENT_MS / EPOCH_MS, LAG_EPOCHS * EPOCH_MS
    delay = [0.7 * limit_ms]
    newest = 0
    for step in range(round(seconds * 1e3 / STEP_MS)):
        now = step * STEP_MS
        while newest + 1 < len(delay) and (newest + 1) * STEP_MS + delay[newest + 1] + lag <= now:
            newest += 1
        rises = newest > 0 and delay[newest] > delay[newest - 1]
        slope = -rise if delay[newest] > limit_ms else -fall if rises else rise
        delay.append(delay[-1] + slope * STEP_MS)
    return delay[len(delay) // 2 :]


@pytest.mark.parametrize("limit_ms", [80.0, 200.0, 400.0])
def test_the_cycle_is_that_of_the_law_integrated_step_by_step(limit_ms: float) -> None:
    delay = np.asarray(delays_of_the_law(limit_ms, seconds=60))
    predicted = cycle(limit_ms)
    assert delay.mean() == pytest.approx(predicted.mean * limit_ms, rel=0.02)
    assert np.percentile(delay, 2) == pytest.approx(predicted.bottom * limit_ms, rel=0.08)
    assert np.percentile(delay, 98) == pytest.approx(predicted.top * limit_ms, rel=0.08)


def test_the_cycle_never_settles() -> None:
    delay = np.asarray(delays_of_the_law(200.0, seconds=60))
    is_bottom = (delay[1:-1] < delay[:-2]) & (delay[1:-1] < delay[2:])
    assert abs(cycle(200.0).growth) > 1
    assert np.std(delay[1:-1][is_bottom]) > 0.01 * 200


@pytest.mark.parametrize("row", [equilibrium.rows()[0], equilibrium.rows()[-1]], ids=lambda row: row.of)
def test_the_simulator_agrees(row: equilibrium.Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equilibrium, "DURATION_S", 60.0)
    monkeypatch.setattr(equilibrium, "LEFT_OUT_S", 20.0)
    (outcome,) = run_all([row.run(seed=1)])
    observation = row.observed(outcome)
    assert row.value(observation) / row.formula(observation) == pytest.approx(1, abs=row.within)


def test_the_page_states_what_the_formulas_give() -> None:
    text = " ".join((DOCS / "equilibrium.md").read_text(encoding="utf-8").split())
    predicted = cycle(1.0, lag_ms=0.0)
    assert f"B = {predicted.bottom:.3f} θ, A = {predicted.top:.3f} θ, mean T = {predicted.mean:.3f} θ" in text
    assert f"{predicted.mean:.3f} R D_min − D_min" in text
    assert f"for R > {1 / predicted.bottom:.2f}." in text
    assert f"{-predicted.growth:.3f} times in each cycle" in text
    period = paper_period(1.0, lag_ms=0.0)
    assert f"y = {2 * np.pi / period:.2f}, period {period:.1f} T* without d" in text
    root = complex(-0.318, 1.337)
    assert abs(root + np.exp(-root)) < 1e-3
    assert f"{root.real:.3f} ± {root.imag:.3f} i".replace("-", "−") in text
    assert (
        f"a factor of {np.exp(root.real):.2f} each round trip, with a period of {2 * np.pi / root.imag:.1f} T*" in text
    )
    for trip, seconds in ((40, "1.0 s"), (200, "13.4 s")):
        queue = equilibrium.steady_queue_ms(25)
        assert f"{16 / 3 * (trip + queue) ** 2 / queue / 1e3:.1f} s" == seconds
        assert f"{seconds} " in text


def test_the_table_of_the_page_has_every_row_and_none_misses() -> None:
    (table,) = (rows for rows in tables("equilibrium.md") if rows[0][0] == "formula")
    assert sorted(tuple(row[:3]) for row in table[1:]) == sorted(
        (row.of, row.flows_text, row.path) for row in equilibrium.rows()
    )
    assert not any("**" in row[-1] for row in table)

"""The environment of Gymnasium: its contract with learning agents."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from verus import Link
from verus.gym import ID, OBSERVED, CongestionEnv


def act(power: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([power], dtype=np.float32)


def play(env: CongestionEnv, seed: int, powers: list[float]) -> list[tuple[list[float], float]]:
    env.reset(seed=seed)
    steps = []
    for power in powers:
        observation, reward, *_ = env.step(act(power))
        steps.append((observation.tolist(), reward))
    return steps


def test_gymnasium_finds_nothing_to_complain_of() -> None:
    check_env(gymnasium.make(ID, duration_s=2).unwrapped)
    link = Link.from_trace("city-driving-3g-up", loss=0.01)
    check_env(gymnasium.make(ID, link=link, duration_s=2, competitors=["cubic"]).unwrapped)


def test_the_same_seed_and_actions_give_the_same_observations() -> None:
    env = CongestionEnv(link=Link.from_trace("city-driving-3g-up", loss=0.01), duration_s=5)
    powers = np.random.default_rng(1).uniform(-1, 1, 20).tolist()
    first = play(env, 7, powers)
    assert first == play(env, 7, powers)
    assert first == play(CongestionEnv(link=Link.from_trace("city-driving-3g-up", loss=0.01), duration_s=5), 7, powers)
    assert first != play(env, 8, powers)


def test_each_episode_of_one_seed_is_another() -> None:
    env = CongestionEnv(link=Link.from_trace("city-driving-3g-up"), duration_s=2)
    _, first = env.reset(seed=1)
    _, second = env.reset()
    _, again = env.reset(seed=1)
    assert first == again != second


def test_a_window_brings_its_rate_and_beyond_the_paths_a_queue() -> None:
    env = CongestionEnv(link=Link.constant(12, queue="infinite"), duration_s=10)
    # 10 packets and their double, on a path of 41 ms.
    (slow, slow_reward), *_, (fast, fast_reward) = play(env, 1, [0.0, 1.0, 0.0, 0.0])
    observation = dict(zip(OBSERVED, fast, strict=True))
    assert slow[5] == 10
    assert observation["window_packets"] == 20
    assert observation["delivered_mbps"] == pytest.approx(20 * 1500 * 8 / 41_000, rel=0.1)
    assert observation["sent_mbps"] == pytest.approx(observation["delivered_mbps"], rel=0.1)
    assert fast_reward > slow_reward
    crowded, worst = play(env, 1, [1.0] * 6)[-1]
    assert crowded[2] > 2 * crowded[3] > 0  # a window of 640 packets on a path that holds 41
    assert worst < 12 - 0.02 * (crowded[2] - crowded[3]) + 1e-3


def test_the_first_action_comes_before_the_first_packet() -> None:
    env = CongestionEnv(duration_s=1, interval_ms=10)
    ((seen, _),) = play(env, 1, [-1.0])
    assert seen[1] == pytest.approx(5 * 1500 * 8 / 10_000)


def test_losses_are_seen_and_cost() -> None:
    env = CongestionEnv(link=Link.constant(12, loss=0.2), duration_s=10)
    rewarded = play(env, 1, [0.0] * 30)
    shares = [seen[4] for seen, _ in rewarded]
    assert 0.1 < float(np.mean(shares)) < 0.3


def test_the_path_is_all_of_the_link() -> None:
    env = CongestionEnv(link=Link.constant(12, delay_ms=10, ack_delay_ms=30), duration_s=1)
    assert play(env, 1, [0.0] * 3)[-1][0][3] == pytest.approx(10 + 1 + 30)


def test_an_episode_is_truncated_at_its_end_and_over_then() -> None:
    env = CongestionEnv(duration_s=1, interval_ms=300)
    env.reset(seed=1)
    steps = [env.step(act(0)) for _ in range(4)]
    assert [step[2:4] for step in steps] == [(False, False)] * 3 + [(False, True)]
    assert [step[4]["time_s"] for step in steps] == pytest.approx([0.3, 0.6, 0.9, 1.0])
    with pytest.raises(RuntimeError, match=r"there is no episode: call reset\(\) first"):
        env.step(act(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duration_s": 0}, "duration_s: must be a number of seconds above 0, not 0"),
        ({"interval_ms": float("nan")}, "interval_ms: must be a number of ms above 0, not nan"),
        ({"duration_s": 1, "interval_ms": 2000}, "interval_ms: must be at most the 1 s of an episode, not 2000"),
        ({"packet_bytes": 0}, "packet_bytes: must be a whole number between 41 and 65535, not 0"),
        ({"loss_cost": -1}, "loss_cost: must be 0 or more, not -1"),
        ({"competitors": ["cubik"]}, "competitors: scheme `cubik`: unknown algorithm"),
        ({"competitors": "cubic"}, r"competitors: must be a list, such as \['cubic'\], not 'cubic' alone"),
        ({"competitors": [3]}, "competitors: 3 is neither a text nor a verus.Controller"),
        ({"competitors": ["linux:cc=cubic"]}, "competitors: "),
        ({"link": "rate:12"}, r"link: must be a Link, such as Link.from_trace\(…\), not 'rate:12'"),
        ({"duration_s": "1"}, "duration_s: must be a number, not '1'"),
        ({"packet_bytes": "1500"}, "packet_bytes: "),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CongestionEnv(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [[2.0], [float("nan")], [0.1, 0.2], []])
def test_an_action_of_another_space_is_refused(action: list[float]) -> None:
    env = CongestionEnv(duration_s=1)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="action must be one number between -1 and 1"):
        env.step(np.array(action, dtype=np.float32))

"""The quick attacks of `attacks/` on the endpoint that `make build` made: none falls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from attacks import probe_wire, sandbox  # noqa: E402
from attacks.__main__ import compare  # noqa: E402
from attacks.attack import Attack  # noqa: E402
from attacks.catalogue import ATTACKS  # noqa: E402
from attacks.endpoint import find_endpoint  # noqa: E402
from attacks.verdict import Verdict  # noqa: E402

QUICK = [attack for attack in ATTACKS.values() if attack.quick]


@pytest.fixture(scope="module")
def endpoint() -> Path:
    binary = find_endpoint()
    if binary is None:
        pytest.fail("verus-endpoint is absent: `make build` makes it")
    return binary


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, endpoint: Path) -> Iterator[dict[str, Future[Verdict]]]:
    """Verdicts on the selected attacks, run a few at a time: each mostly waits."""
    chosen = [item.callspec.params["attack"] for item in request.session.items if "attack" in params_of(item)]
    with ThreadPoolExecutor(3) as pool:
        yield {attack.name: pool.submit(sandbox.perform, attack, endpoint) for attack in chosen}


def params_of(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.mark.real_time
@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.name)
def test_none_falls(attack: Attack, verdicts: dict[str, Future[Verdict]]) -> None:
    verdict = verdicts[attack.name].result()
    if verdict.skipped:
        pytest.skip(f"{attack.name}: {verdict.skipped}")
    assert verdict.seen + verdict.wrong, "nothing was looked at"
    assert verdict.held, verdict.happened


def test_each_says_what_is_tried_and_what_must_happen() -> None:
    for attack in ATTACKS.values():
        assert attack.tried.endswith("."), attack.name
        assert len(attack.must) > 20, attack.name


def test_attackers_speak_the_format_that_is_documented() -> None:
    page = (ROOT / "docs" / "probe-wire-format.md").read_text()
    client_nonce, server_nonce = b"\xc1" * 16, b"\x5e" * 16
    vectors = re.findall(r"### Vector: ([\w-]+)\n.*?```hex\n(.*?)```", page, re.DOTALL)
    assert len(vectors) > 10
    for name, lines in vectors:
        packet = bytes.fromhex("".join(line.split(";")[0] for line in lines.splitlines()))
        handshake = probe_wire.handshake_key(b"a secret for tests" if name.endswith("-secret") else None)
        keys = (handshake, *probe_wire.connection_keys(handshake, client_nonce, server_nonce))
        assert any(probe_wire.sealed_with(packet, key) for key in keys), name
        assert (packet[0], packet[1]) == (probe_wire.MAGIC, probe_wire.VERSION), name


def test_an_attack_that_a_server_does_not_withstand_falls(tmp_path: Path) -> None:
    # It listens, answers nobody, and is no server of ours.
    impostor = tmp_path / "verus-endpoint"
    impostor.write_text(
        f"#!{sys.executable}\nimport socket, sys, time\n"
        "port = int(sys.argv[sys.argv.index('--port') + 1])\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', port))\n"
        "print('listening', flush=True); time.sleep(30)\n"
    )
    impostor.chmod(0o755)
    verdict = sandbox.perform(ATTACKS["probe-hello-flood"], impostor)
    assert not verdict.held
    assert verdict.word == "FELL"


def test_an_honest_client_that_is_held_up_makes_an_attack_fall() -> None:
    alone = {"throughput_mbps": 5.0, "goodput_mbps": 5.0, "rtt_p95_ms": 0.1}
    for beside, held in (
        ({"throughput_mbps": 4.9, "goodput_mbps": 4.9, "rtt_p95_ms": 1.0}, True),
        ({"throughput_mbps": 5.0, "goodput_mbps": 4.7, "rtt_p95_ms": 0.1}, False),
        ({"throughput_mbps": 5.0, "goodput_mbps": 5.0, "rtt_p95_ms": 1.2}, False),
    ):
        verdict = Verdict("probe-mtu-shrinks", honest=beside)
        compare(ATTACKS["probe-mtu-shrinks"], verdict, alone)
        assert verdict.held == held, verdict.happened


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--only", "nonsense"), 2, "no attack"),
        (("--endpoint", "/nonexistent"), 2, "verus-endpoint"),
        (("--list",), 0, ""),
    ],
)
def test_the_command_says_what_is_wrong(arguments: tuple[str, ...], code: int, words: str) -> None:
    command = [sys.executable, "-m", "attacks", *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONSAFEPATH": ""}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code
    assert words in ran.stderr
    if arguments == ("--list",):
        assert all(name in ran.stdout for name in ATTACKS)

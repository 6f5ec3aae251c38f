"""Linux's queues beside those of the simulator: the same Cubic flows through each, as a table.

    verus virtual build --source LINUX_SOURCE        # once: 6.17 or newer, which has DualPI2
    python scripts/kernel_queues.py                  # `make kernel-queues`
    python scripts/kernel_queues.py --only RED PIE

A kernel runs as an ordinary process, with this machine's files (docs/virtual.md). Its clock stands
still while it computes, so a busy machine changes nothing. Each run has a separate kernel, in which
`kernel_queues_guest.py` sets up the path. No root is needed; `ip` and `tc` (iproute2) are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verus import Flow, Link, simulate
from verus.endpoints import guest_kernel
from verus.endpoints.program import find_endpoint

HERE = Path(__file__).parent
MBPS, RTT_MS, WARM_UP_S, SECONDS = 10, 40, 10, 60
PACKET_BYTES = 1500
#: The transmission time of a packet of that size, which the simulator's delays include and those of
#: `tbf` do not.
SERVICE_MS = 8 * PACKET_BYTES / MBPS / 1e3
SEEDS = range(1, 6)
#: The largest differences between the simulator and the kernel, as shares.
GOODPUT, DELAY = 0.05, 0.20
#: The longest time of a kernel's run, s of the machine's clock.
PATIENCE_S = 900


@dataclass(frozen=True)
class Queue:
    """A queue in the syntax of `tc` and of Verus; an Ethernet header makes 1,500 bytes 1,514 in the kernel."""

    tc: str
    verus: str
    #: The options with marks, and those without; None where the queue never marks.
    tc_ecn: tuple[str, str] | None = ("ecn", "")
    verus_ecn: tuple[str, str] = ("ecn=yes", "ecn=no")
    #: Settings that `tc` computes, which must be in the kernel's own description.
    computed: str = ""

    def forms(self, ecn: bool) -> tuple[str, str]:
        """Both texts, with or without marks."""
        tc = f"{self.tc} {self.tc_ecn[not ecn]}" if self.tc_ecn else self.tc
        words = self.verus_ecn[not ecn] if self.tc_ecn else ""
        return tc.strip(), self.verus + (("," if ":" in self.verus else ":") + words if words else "")


QUEUES = {
    "drop-tail": Queue("pfifo limit 100", "droptail:packets=100", tc_ecn=None),
    "RED": Queue(
        "red limit 605600 min 30280 max 90840 avpkt 1514 burst 33 probability 0.1 bandwidth 10mbit",
        f"red:min=30000,max=90000,p=0.1,limit=600000,weight={2**-4}",
        tc_ecn=("ecn harddrop", ""),
        computed="ewma 4 probability 0.1",  # `tc` turns the burst into a weight of 2⁻⁴
    ),
    "CoDel": Queue("codel", "codel", tc_ecn=("ecn", "noecn")),
    "FQ-CoDel": Queue("fq_codel", "fq_codel", tc_ecn=("ecn", "noecn")),
    "PIE": Queue("pie", "pie", tc_ecn=("ecn", "noecn")),
    # It marks every packet that can carry a mark.
    "DualPI2": Queue("dualpi2", "dualpi2", tc_ecn=("", ""), verus_ecn=("", "")),
}


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    flows: int
    ecn: bool

    def kernel(self, endpoint: str) -> dict[str, Any]:
        """The results of the kernel's queue."""
        task = {
            "qdisc": QUEUES[self.name].forms(self.ecn)[0],
            "flows": self.flows,
            "ecn": self.ecn,
            "mbps": MBPS,
            "rtt_ms": RTT_MS,
            "warm_up_s": WARM_UP_S,
            "seconds": SECONDS,
        }
        with tempfile.TemporaryDirectory() as folder:
            task_path, result = Path(folder, "task.json"), Path(folder, "result.json")
            task_path.write_text(json.dumps(task))
            python, guest = Path(sys.executable).resolve(), HERE / "kernel_queues_guest.py"
            done = subprocess.run(
                [endpoint, "guest", "run", "--", python, guest.resolve(), task_path, result],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{self}: {done.stdout}")
            measured: dict[str, Any] = json.loads(result.read_text())
        if QUEUES[self.name].computed not in measured["qdisc"]:
            raise RuntimeError(f"{self}: other settings than {QUEUES[self.name].computed}: {measured['qdisc']}")
        print(f"{self}: {measured}", file=sys.stderr, flush=True)
        return measured

    def simulated(self) -> dict[str, float]:
        """The results of the simulator: means over seeds."""
        runs = [self.run(seed) for seed in SEEDS]
        return {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}

    def run(self, seed: int) -> dict[str, float]:
        """One simulated run, measured as the guest measures its own."""
        flow = "cubic:ecn=yes" if self.ecn else "cubic"
        done = simulate(
            link=Link.constant(MBPS, delay_ms=0, ack_delay_ms=RTT_MS, queue=QUEUES[self.name].forms(self.ecn)[1]),
            flows=[Flow(flow) for _ in range(self.flows)],
            duration_s=WARM_UP_S + SECONDS,
            packet_bytes=PACKET_BYTES,
            ack_every=2,
            seed=seed,
        )
        table = done.to_arrow()
        sent, left, received, dropped, new = (
            np.asarray(table[name].to_numpy(), dtype=float)
            for name in ("sent_ms", "departed_ms", "received_ms", "dropped_ms", "new_bytes")
        )
        start = 1e3 * WARM_UP_S
        counted = sent >= start
        bits = 8 * np.nansum(np.where(received >= start, new, 0))
        return {
            "goodput_mbps": bits / SECONDS / 1e6,
            "delay_mean_ms": float(np.nanmean((left - sent)[counted])) - SERVICE_MS,
            "delay_p95_ms": float(np.nanquantile((left - sent)[counted], 0.95)) - SERVICE_MS,
            "loss": float(np.mean(np.isfinite(dropped[counted]))),
        }

    def row(self, kernel: dict[str, Any], ours: dict[str, float]) -> str:
        """Both results, as a line of the table."""
        goodput = ours["goodput_mbps"] / kernel["goodput_mbps"]
        delay = ours["delay_mean_ms"] / kernel["delay_mean_ms"]
        missed = [
            what
            for what, ratio, most in (("goodput", goodput, GOODPUT), ("delay", delay, DELAY))
            if abs(ratio - 1) > most
        ]
        cells = [
            self.name,
            str(self.flows),
            "yes" if self.ecn else "no",
            f"{kernel['goodput_mbps']:.2f}",
            f"{ours['goodput_mbps']:.2f}",
            f"{goodput:.3f}",
            f"{kernel['delay_mean_ms']:.1f}",
            f"{ours['delay_mean_ms']:.1f}",
            f"{delay:.2f}",
            f"{kernel['delay_p95_ms']:.1f}",
            f"{ours['delay_p95_ms']:.1f}",
            f"{1e2 * kernel['loss']:.2f}",
            f"{1e2 * ours['loss']:.2f}",
            f"no: {' and '.join(missed)}" if missed else "yes",
        ]
        return f"| {' | '.join(cells)} |"


HEADS = (
    "queue",
    "flows",
    "ECN",
    *("goodput, Mbit/s: Linux", "Verus", "ratio"),
    *("mean delay, ms: Linux", "Verus", "ratio"),
    *("95th percentile, ms: Linux", "Verus"),
    *("lost, %: Linux", "Verus"),
    "within",
)


def cases(names: list[str]) -> Iterator[Case]:
    """The rows."""
    for name in names:
        for flows in (1, 4):
            for ecn in (False, True) if QUEUES[name].tc_ecn else (False,):
                yield Case(name, flows, ecn)


def table(names: list[str], jobs: int) -> Iterator[str]:
    """The kernel's version, then the lines of the table."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if missing := [tool for tool in ("ip", "tc") if not shutil.which(tool, path=path)]:
        sys.exit(f"{' and '.join(missing)} not found: install iproute2")
    endpoint, looked = find_endpoint()
    if endpoint is None:
        sys.exit(f"verus-endpoint is not in {looked}: `make build` makes it")
    lacking = guest_kernel.describe().lacking
    if "DualPI2" in names and "CONFIG_NET_SCH_DUALPI2" in lacking:
        sys.exit("the guest kernel has no DualPI2, which Linux has since 6.17: verus virtual build --source …")
    rows = list(cases(names))
    with ThreadPoolExecutor(jobs) as pool:
        kernels = list(pool.map(lambda case: case.kernel(endpoint), rows))
    yield f"Linux {kernels[0]['kernel']}"
    yield ""
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{'---|' * len(HEADS)}"
    for case, kernel in zip(rows, kernels, strict=True):
        yield case.row(kernel, case.simulated())


def main() -> None:
    """Prints the table, and each kernel's results to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=QUEUES, default=list(QUEUES), help="these queues alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kernels at the same time")
    options = parser.parse_args()
    for line in table(options.only, options.jobs):
        print(line)


if __name__ == "__main__":
    main()

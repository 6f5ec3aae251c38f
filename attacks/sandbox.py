"""Each attack in namespaces of its own, which the kernel removes with it, whatever ends it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacks.attack import ATTACKS, Attack
from attacks.endpoint import Process, Server
from attacks.stage import HERE, Stage
from attacks.verdict import Verdict

UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
ROOT = Path(__file__).parents[1]


def dies_with_us() -> None:
    """In a child: end when the parent does, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def available() -> str:
    """Why there are no namespaces here; empty if there are."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("unshare") is None:
        return "needs unshare (util-linux)"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def missing(attack: Attack) -> str:
    """What this attack needs and this machine does not grant; empty if nothing."""
    if not attack.needs:
        return ""
    if why := available():
        return why
    for tool in ("ip", "mount", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    return ""


@contextlib.contextmanager
def work_folder(isolated: bool) -> Iterator[Path]:
    """An empty folder; in a sandbox its contents are in memory and vanish with it."""
    folder = Path(tempfile.mkdtemp(prefix="verus-attacks-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=not isolated)


def command(isolated: bool, *words: object) -> list[str]:
    """A command of this package, in a sandbox if it is to be."""
    return [*(UNSHARE if isolated else ()), sys.executable, "-m", "attacks.sandbox", *map(str, words)]


def settle(folder: Path) -> None:
    """In the sandbox: a loopback device, a disk in memory, and notes of no other process."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(folder)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)


def perform(attack: Attack, binary: Path, *, honest: bool = False, shared: dict[str, Server] | None = None) -> Verdict:
    """Run one attack and say what happened; beside servers of others' if `shared`."""
    verdict = Verdict(attack.name)
    if why := missing(attack):
        verdict.skipped = why
        return verdict
    isolated = shared is None and not available()
    servers = {
        name: [server.process.pid, server.port, list(server.client_options)] for name, server in (shared or {}).items()
    }
    began = time.monotonic()
    with work_folder(isolated) as folder:
        task = {
            "name": attack.name,
            "binary": str(binary),
            "folder": str(folder),
            "isolated": isolated,
            "honest": honest,
            "shared": servers,
        }
        child = subprocess.Popen(
            command(isolated, json.dumps(task)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=dies_with_us,
        )
        try:
            out, err = child.communicate(timeout=attack.timeout_s)
        except subprocess.TimeoutExpired:
            out, err = "", ""
            verdict.held = False
            verdict.wrong.append(f"not done after {attack.timeout_s:.0f} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if out.strip():
            verdict = Verdict(**json.loads(out.strip().splitlines()[-1]))
        elif verdict.held:
            verdict.held = False
            verdict.wrong.append(f"the attack itself failed: {err.strip().splitlines()[-1:]}")
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


class Foreign(Process):
    """A process that another one started: it can be looked at, and not ended."""

    def __init__(self, pid: int) -> None:
        """The process of this number."""
        self.number = pid

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.number

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return Path(f"/proc/{self.number}").exists()

    @property
    def code(self) -> int | None:
        """Known to its parent alone."""
        return None

    @property
    def said(self) -> str:
        """Its output is its parent's."""
        return ""


def find(name: str) -> Attack:
    """An attack, or an honest client without any.

    Only what is against the same is loaded: each attack has a process of its own, and QUIC takes longest to load.
    """
    importlib.import_module(f"attacks.{name.partition('-')[0]}")
    if name in ATTACKS:
        return ATTACKS[name]
    from attacks.catalogue import BASELINES

    return BASELINES[name]


def main(task: dict[str, Any]) -> None:
    """In the child: run the attack, and print its verdict."""
    attack = find(task["name"])
    folder = Path(task["folder"])
    if task["isolated"]:
        settle(folder)
    verdict = Verdict(attack.name)
    shared = {
        name: Server(Foreign(pid), HERE, port, tuple(options)) for name, (pid, port, options) in task["shared"].items()
    }
    try:
        with Stage(verdict, Path(task["binary"]), folder, honest=task["honest"], shared=shared) as stage:
            attack.run(stage)
    except Exception as error:  # an attack that cannot be made has not been withstood
        verdict.held = False
        traced = error.__traceback__
        while traced is not None and traced.tb_next is not None:
            traced = traced.tb_next
        line = traced.tb_lineno if traced else 0
        verdict.wrong.append(f"{type(error).__name__}: {error} (line {line})")
    print(json.dumps(dataclasses.asdict(verdict)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Where an attack takes place: what it starts ends with it, and what it expects is noted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attacks import endpoint
from attacks.endpoint import Process, Ran, Server, until
from attacks.network import Peer
from attacks.verdict import Verdict

#: Attackers come from here, honest clients from 127.0.0.1: all of 127/8 is this machine.
ATTACKER = "127.66.6.6"
HERE = "127.0.0.1"

#: An honest client's rate, and how long it measures.
HONEST_MBPS = 5
HONEST_S = 4
HONEST_BYTES = HONEST_MBPS * HONEST_S * 1_000_000 // 8


class Stage:
    """Starts servers and clients, keeps them in order, and ends them."""

    def __init__(
        self,
        verdict: Verdict,
        binary: Path,
        work: Path,
        *,
        honest: bool = False,
        shared: dict[str, Server] | None = None,
    ) -> None:
        """Work in the folder `work`, with honest clients beside or without, and servers of others' if given."""
        self.verdict, self.binary, self.work, self.honest = verdict, binary, work, honest
        self.shared = shared or {}
        self.ending = contextlib.ExitStack()
        self.started = 0
        self._beside: list[threading.Thread] = []

    def __enter__(self) -> Stage:
        """Nothing to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started."""
        self.finish_honest()
        self.ending.close()

    # What was seen.

    def expect(self, held: bool, seen: str, otherwise: str | None = None) -> bool:
        """Note what was seen (or `otherwise`, if that is given and it fell); the attack falls if `held` is false."""
        text = endpoint.printable(seen if held or otherwise is None else otherwise)
        (self.verdict.seen if held else self.verdict.wrong).append(text)
        self.verdict.held &= held
        return held

    def figure(self, **figures: Any) -> None:
        """Note a figure."""
        self.verdict.figures.update(figures)

    def lives(self, server: Server | Process, name: str = "the server") -> bool:
        """Expect that it lives."""
        process = server.process if isinstance(server, Server) else server
        return self.expect(
            process.alive, f"{name} lives", f"{name} ended, exit {process.code}: {process.last_line[:160]}"
        )

    # What is started.

    def folder(self, name: str) -> Path:
        """A new folder."""
        made = self.work / name
        made.mkdir(parents=True)
        return made

    def start(self, *words: object, **more: Any) -> Process:
        """Start a command; it is killed when the stage is left."""
        self.started += 1
        log = self.work / f"{self.started}.log"
        with log.open("wb") as output:
            options: dict[str, Any] = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL, **more}
            popen = subprocess.Popen([str(word) for word in words], **options)
        process = Process(popen, log)
        self.ending.callback(process.stop, 9)
        return process

    def endpoint(self, *words: object, **more: Any) -> Process:
        """Start `verus-endpoint WORDS`."""
        return self.start(self.binary, *words, **more)

    def run(self, *words: object, seconds: float = 20, prefix: Sequence[str] = (), **more: Any) -> Ran:
        """Run `verus-endpoint WORDS` to its end."""
        return endpoint.ran([*prefix, self.binary, *words], seconds=seconds, **more)

    def probe_server(self, *options: object, host: str = HERE, honest: bool = True) -> Server:
        """A `probe server`, and an honest client beside what follows."""
        if not options and "probe" in self.shared:
            return self.shared["probe"]
        port = endpoint.free_port()
        # On all addresses where more than the loopback is attacked.
        listening = ("--bind", host) if host == HERE else ()
        process = self.endpoint("probe", "server", *listening, "--port", port, *options)
        self._listens(process, port)
        if honest:
            self.begin_honest(Server(process, HERE, port))
        return Server(process, host, port)

    def config(self) -> Path:
        """A folder for keys, tokens and known hosts."""
        return self.work / "config"

    def serve(self, folder: Path, *options: object, honest: bool = True, shared: bool = True) -> Server:
        """A `serve`, and an honest transfer beside what follows."""
        if shared and not options and "serve" in self.shared:
            return self.shared["serve"]
        port = endpoint.free_port()
        words = ("serve", folder, "--bind", HERE, "--port", port, "--config", self.config(), *options)
        process = self.endpoint(*words)
        self._listens(process, port)
        server = Server(process, HERE, port, ("--config", str(self.config())))
        if honest:
            self.begin_honest_transfer(server)
        return server

    def _listens(self, process: Process, port: int) -> None:
        def bound() -> bool:
            wanted = f":{port:04X} "
            tables = (Path("/proc/net") / name for name in ("udp", "udp6"))
            return not process.alive or any(wanted in table.read_text() for table in tables if table.exists())

        if not until(bound, 10) or not process.alive:
            raise RuntimeError(f"the server did not start: {process.last_line}")
        until(lambda: bool(process.log.stat().st_size), 2)

    def peer(self) -> Peer:
        """Another host."""
        made = Peer()
        self.ending.callback(made.close)
        return made

    # An honest client beside.

    def begin_honest(self, server: Server) -> None:
        """Measure at 5 Mbit/s beside what follows."""
        if not self.honest:
            return
        options = ("--rate-mbps", HONEST_MBPS, "--duration", HONEST_S, "--json")

        def measure() -> None:
            ran = self.run("probe", "client", server.name, *options, seconds=HONEST_S + 15)
            rows = ran.rows()
            if ran.code == 0 and rows:
                names = ("throughput_mbps", "goodput_mbps", "rtt_mean_ms", "rtt_p95_ms")
                self.verdict.honest = {name: float(rows[0][name]) for name in names}  # type: ignore[arg-type]
            else:
                self.expect(False, f"an honest client beside it failed, exit {ran.code}: {ran.last_line[:120]}")

        self._begin(measure)

    def begin_honest_transfer(self, server: Server) -> None:
        """Send a file at 5 Mbit/s beside what follows."""
        if not self.honest:
            return
        file = self.work / "honest"
        file.write_bytes(os.urandom(HONEST_BYTES))
        scheme = ("--scheme", f"constant:rate_mbps={HONEST_MBPS}")

        def send() -> None:
            ran = self.run("send", file, server.name, *scheme, "--json", *server.client_options, seconds=HONEST_S + 15)
            rows = ran.rows()
            if ran.code == 0 and rows:
                self.verdict.honest = {"goodput_mbps": float(rows[0]["goodput_mbps"])}  # type: ignore[arg-type]
            else:
                self.expect(False, f"an honest transfer beside it failed, exit {ran.code}: {ran.last_line[:120]}")

        self._begin(send)

    def _begin(self, work: Any) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self._beside.append(thread)
        time.sleep(0.3)

    def finish_honest(self) -> None:
        """Wait for the honest client."""
        for thread in self._beside:
            thread.join()
        self._beside.clear()

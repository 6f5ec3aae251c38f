"""`verus trace fetch`: files are complete, or nothing is kept. No test needs the Internet."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from verus import _verus
from verus.lab import fetch

Command = Callable[..., Any]

CONTENT = "".join(f"{time}\n" for time in range(1, 20000, 3)).encode()
NAME = "cs244-2017/city_drive_2min"


class Server(HTTPServer):
    """Answers every request as `behaviour` says, and records the requested paths."""

    behaviour = "good"
    missing: tuple[str, ...] = ()
    requested: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requested.append(self.path)
        match "missing" if self.path.endswith(self.server.missing) else self.server.behaviour:
            case "missing":
                self.send_error(404)
            case "endless":
                self.send_response(200)
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(bytes(1 << 16))
                except OSError:
                    pass
            case behaviour:
                content = CONTENT.replace(b"7", b"8") if behaviour == "other" else CONTENT
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if behaviour == "cut short" else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, verus: Command) -> Iterator[Server]:
    """A server that publishes one recording, and a catalogue that expects its content."""
    served = Server(("127.0.0.1", 0), Handler)
    served.requested = []
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("VERUS_TRACE_URL", f"http://127.0.0.1:{served.server_port}")
    entries = _verus.catalogue

    def catalogue() -> list[dict[str, Any]]:
        return [{**entry, "sha256": hashlib.sha256(CONTENT).hexdigest()} for entry in entries()]

    monkeypatch.setattr(_verus, "catalogue", catalogue)
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def cached(folder: Path) -> list[Path]:
    return [path for path in (folder / ".cache").rglob("*") if path.is_file()]


def test_a_recording_is_brought_checked_and_kept(verus: Command, server: Server, tmp_path: Path) -> None:
    ran = verus("trace", "fetch", NAME)
    assert ran.code == 0, ran.err
    (path,) = cached(tmp_path)
    assert path.read_bytes() == CONTENT
    assert str(path) in ran.err
    assert "licence: " in ran.err
    assert "cite: Zaki" in ran.err
    (request,) = server.requested
    assert request.startswith("/sanderszzw/cs244-verus/")
    assert request.endswith("/traces/city_drive_2min")


def test_what_is_there_is_not_fetched_again(verus: Command, server: Server) -> None:
    verus("trace", "fetch", NAME)
    again = verus("trace", "fetch", "city_drive_2min")
    assert again.code == 0
    assert "already there" in again.err
    assert len(server.requested) == 1


def test_a_damaged_copy_is_fetched_again(verus: Command, server: Server, tmp_path: Path) -> None:
    verus("trace", "fetch", NAME)
    (path,) = cached(tmp_path)
    path.write_bytes(CONTENT[:100])
    assert verus("trace", "fetch", NAME).code == 0
    assert path.read_bytes() == CONTENT
    assert len(server.requested) == 2


def test_a_group_brings_all_of_its_recordings(verus: Command, server: Server, tmp_path: Path) -> None:
    assert verus("trace", "fetch", "cs244").code == 0
    assert {path.name for path in cached(tmp_path)} == {
        "ATT-LTE-driving-2016.up",
        "TMobile-LTE-driving.up",
        "Verizon-EVDO-driving.up",
        "camp_ped_2min",
        "city_drive_2min",
        "highway_drive_2min",
    }
    assert len(server.requested) == 6


def test_what_cannot_be_brought_does_not_keep_the_rest_away(verus: Command, server: Server, tmp_path: Path) -> None:
    server.missing = ("camp_ped_2min", "TMobile-LTE-driving.up")
    ran = verus("trace", "fetch", "cs244")
    assert ran.code == 1
    assert len(cached(tmp_path)) == 4
    assert len(server.requested) == 6
    *_, summary, first, second = ran.err.splitlines()
    assert summary == "verus: 2 of 6 recordings could not be fetched:"
    assert {name for name in server.missing if name in first + second} == set(server.missing)
    assert first.endswith("answered 404 Not Found")
    assert second.endswith("answered 404 Not Found")
    # Complete files are kept, and the next command requests only the others.
    server.missing = ()
    assert verus("trace", "fetch", "cs244").code == 0
    assert len(server.requested) == 8


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("other", ["is not the recording", "SHA-256"]),
        ("cut short", ["cut short"]),
        ("missing", ["404"]),
        ("endless", ["more than"]),
    ],
)
def test_a_broken_download_leaves_nothing(
    behaviour: str, words: list[str], verus: Command, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", 2**20)
    server.behaviour = behaviour
    ran = verus("trace", "fetch", NAME)
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    for word in [NAME, *words]:
        assert word in ran.err
    assert cached(tmp_path) == []


def test_a_server_that_is_not_there_leaves_nothing(
    verus: Command, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERUS_TRACE_URL", "http://127.0.0.1:1")
    ran = verus("trace", "fetch", NAME)
    assert ran.code == 1
    assert "cannot be reached" in ran.err
    assert cached(tmp_path) == []


def test_only_http_is_followed(verus: Command, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERUS_TRACE_URL", "file:///etc")
    ran = verus("trace", "fetch", NAME)
    assert ran.code == 1
    assert "http" in ran.err


def test_without_a_name_the_catalogue_is_shown(verus: Command) -> None:
    ran = verus("trace", "fetch")
    assert ran.code == 0
    assert NAME in ran.out
    assert "no licence stated" in ran.out

"""`verus play`: the playground, served on this machine or written to a folder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from verus.commands.options import COUNT, Flag, one, words
from verus.commands.talk import Talk, tell
from verus.errors import FieldError
from verus.lab.arguments import whole
from verus.lab.atomic_write import replace_whole
from verus.lab.results_folder import check_folder

#: The default port.
PORT = 8017

#: The limits of a connection's silence, in seconds, and of the number of connections.
_PATIENCE_S, _MOST_CONNECTED = 10, 64

#: Files of the page, and the content type of each; `play.wasm` is built from crates/play.
FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "scene.js": "text/javascript; charset=utf-8",
    "scenario.js": "text/javascript; charset=utf-8",
    "worker.js": "text/javascript; charset=utf-8",
    "play.wasm": "application/wasm",
    "uplot.js": "text/javascript; charset=utf-8",
    "uplot.css": "text/css; charset=utf-8",
    "uplot.LICENSE": "text/plain; charset=utf-8",
}


def play(
    *,
    port: Annotated[int | None, COUNT] = None,
    browser: Annotated[bool, Parameter(name="--browser", negative="--no-browser", show_default=False)] = True,
    export: Annotated[Path | None, one("DIR")] = None,
    force: Flag = False,
    schemes: Annotated[list[str] | None, words("SCHEME", name="--scheme", show=False)] = None,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Open the playground in the browser: watch a controller on a link, or set its window yourself.

    The simulator runs in the page. Nothing leaves this machine, and the numbers are those of `verus
    compare`. Senders are chosen in the page, among those of `verus list schemes`; it takes no
    controller of your own.

    Parameters
    ----------
    port
        Port, on this machine only (loopback). Default: 8017, or another if that is taken.
    browser
        Open it in the browser (the default), or only print its address.
    export
        Write the page to this folder, for any static web server, and serve nothing.
    force
        Write into that folder even if it is not empty.
    """
    if schemes is not None:
        raise FieldError(
            "schemes",
            "is chosen in the page, among those of `verus list schemes`; it takes no controller of your own, which "
            "`verus compare` and `verus.gym` do (docs/own-controller.md)",
        )
    if port is not None:
        whole("port", port, 1, 65535)
    content = files()
    if export is not None:
        if port is not None:
            raise FieldError("port", "is where the page is served, which --export leaves to others")
        try:
            check_folder(export, force=force)
            export.mkdir(parents=True, exist_ok=True)
            for name, file in content.items():
                replace_whole(export / name, file)
        except FieldError as error:
            raise FieldError("export", error.problem) from error
        talk.say(f"Playground: {export} (any server of files will do)")
        return
    with server(content, port) as serving:
        address = f"http://127.0.0.1:{serving.server_port}/"
        tell(f"{address} until Ctrl-C")
        sys.stdout.flush()
        if browser and not _open(address):
            talk.say("No browser could be opened: open the address above.")
        before = signal.signal(signal.SIGINT, serving.interrupt)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGINT, before)


class _Server(ThreadingHTTPServer):
    """Ends with the command, even while browsers are connected. Closes the oldest of too many connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *of: Any) -> None:
        self._connected: dict[socket.socket, None] = {}
        self._alone = threading.Lock()
        self._is_interrupted = False
        self._places = threading.BoundedSemaphore(_MOST_CONNECTED)
        super().__init__(*of)

    def interrupt(self, *_: object) -> None:
        """Handles Ctrl-C. An exception could get lost: Python ignores those of callbacks of weak references."""
        self._is_interrupted = True

    def service_actions(self) -> None:
        """Ends serving once it is interrupted; called at least twice a second."""
        if self._is_interrupted:
            raise KeyboardInterrupt

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in its own thread, once there are fewer than `_MOST_CONNECTED`."""
        with self._alone:
            if len(self._connected) >= _MOST_CONNECTED:
                with contextlib.suppress(OSError):
                    next(iter(self._connected)).shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends
        self._places.acquire()
        with self._alone:
            self._connected[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection; its place becomes free when its thread ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs no failed connection: a terminal that nobody reads would block its thread for ever."""

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._alone:
            self._connected.pop(request, None)
        super().shutdown_request(request)


def server(content: Mapping[str, bytes], port: int | None) -> _Server:
    """A server of these files on this machine.

    Raises:
        FieldError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        """Serves these files only, and never reads the file system."""

        protocol_version = "HTTP/1.1"
        timeout = _PATIENCE_S
        server_version, sys_version = "verus", ""

        def do_GET(self) -> None:
            """Sends a file."""
            self._send(body=True)

        def do_HEAD(self) -> None:
            """Sends a file's headers."""
            self._send(body=False)

        def _send(self, *, body: bool) -> None:
            name = self.path.partition("?")[0].removeprefix("/") or "index.html"
            file = content.get(name)
            status = HTTPStatus.NOT_FOUND if file is None else HTTPStatus.OK
            file = file or b"There is no such file.\n"
            self.send_response(status)
            self.send_header("Content-Type", FILES.get(name, "text/plain; charset=utf-8"))
            self.send_header("Content-Length", str(len(file)))
            self.send_header("Cache-Control", "no-cache")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if body:
                self.wfile.write(file)

        def log_message(self, format: str, *args: object) -> None:
            """Logs no request."""

    for wanted in (PORT, 0) if port is None else (port,):
        try:
            return _Server(("127.0.0.1", wanted), Handler)
        except OSError as error:
            problem = error
    raise FieldError("port", f"{port or PORT} cannot be had ({problem.strerror or problem})")


def _open(address: str) -> bool:
    """Opens the address in a browser, except one for terminals, which cannot show it; whether there was one."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    return webbrowser.open(address)


def files() -> dict[str, bytes]:
    """The files to serve, by name.

    Raises:
        FileNotFoundError: The module was not built.
    """
    folder = resources.files("verus") / "play"
    try:
        return {name: (folder / name).read_bytes() for name in FILES}
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "the playground's WebAssembly module is not built: `make play` does, in a copy of the repository "
            "(it takes `rustup target add wasm32-unknown-unknown`)"
        ) from error

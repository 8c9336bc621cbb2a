"""Serve a folder to the installers that run here, as any static server does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.02  # seconds in which the end of a server is noticed


class QuietServer(ThreadingHTTPServer):
    """A server of this machine that says nothing of clients that leave before the end, as installers do."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what is none of those."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return f"http://127.0.0.1:{self.server_port}/"


class QuietHandler(SimpleHTTPRequestHandler):
    """Gives files out, and prints no line of each."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a page is two writes, and the second would wait for the first's ACK

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""


@contextmanager
def run_server(server: QuietServer) -> Iterator[QuietServer]:
    """Answer while the block runs."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serve_folder(folder: Path) -> Iterator[QuietServer]:
    """Serve a folder, HTML and no JSON, while the block runs."""
    with run_server(QuietServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))) as server:
        yield server

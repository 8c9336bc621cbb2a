"""A server that chooses between HTML and JSON (PEP 691), gives parts of files, and remembers requests."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, NamedTuple

from rocm_wheels.index import pages


class ServedRequest(NamedTuple):
    """What was asked for: method, path as it came, the range ("" for all), and the status of the answer."""

    method: str
    path: str
    range: str
    status: int


class IndexServer(ThreadingHTTPServer):
    """``requests`` are those so far, ``sent`` counts the bytes of files.

    It says nothing of clients that leave before the end, as installers do.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.requests: list[ServedRequest] = []
        self.sent = 0
        super().__init__(("127.0.0.1", 0), partial(IndexHandler, directory=str(self.folder)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class IndexHandler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a page is two writes, and the second would wait for the first's ACK
    server: IndexServer

    def log_message(self, *_arguments: object) -> None:
        pass

    def translate_path(self, path: str) -> str:
        found, page = super().translate_path(path), ""
        if path.endswith("/") and pages.JSON_TYPE in self.headers.get("Accept", ""):
            page = "index.json"
        return f"{found}{page}" if Path(found, page).is_file() else found

    def guess_type(self, path: Any) -> str:
        return pages.JSON_TYPE if str(path).endswith("/index.json") else super().guess_type(path)

    def end_headers(self) -> None:
        self.send_header("Vary", "Accept")
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def send_head(self) -> IO[bytes] | None:
        path = Path(self.translate_path(self.path))
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if span is None or not path.is_file():
            return super().send_head()
        size = path.stat().st_size
        first = int(span[1]) if span[1] else max(0, size - int(span[2]))
        end = min(size, int(span[2]) + 1) if span[1] and span[2] else size
        if first >= end:
            self.send_error(416)
            return None
        with path.open("rb") as file:
            file.seek(first)
            content = file.read(end - first)
        self.send_response(206)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while piece := source.read(1 << 18):
            outputfile.write(piece)
            self.server.sent += len(piece)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        asked = self.headers.get("Range", "")
        self.server.requests.append(ServedRequest(self.command, self.path, asked, int(code)))


@contextmanager
def serve_folder(folder: Path) -> Iterator[IndexServer]:
    """Serve a folder while the block runs."""
    with IndexServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

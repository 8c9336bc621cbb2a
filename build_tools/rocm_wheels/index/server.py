"""A server for tests: one folder, on this machine, with the content types and answers of a real one.

It chooses between HTML and JSON by ``Accept`` or ``?format=`` (PEP 691), answers ranges, says 404 for what
is not there. It has no limits, no encryption and no access control.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from rocm_wheels.errors import UsageError
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.views import HTML, JSON, STATE

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
    ".whl": "application/octet-stream",
}
_FORMATS = {JSON_TYPE: JSON, HTML_TYPE: HTML, "text/html": HTML}
_LATEST = {"application/vnd.pypi.simple.latest+json": JSON_TYPE}
_LATEST["application/vnd.pypi.simple.latest+html"] = HTML_TYPE
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PIECE = 1 << 20
_POLL = 0.02  # seconds in which the end of a server is noticed


@dataclass(frozen=True)
class Request:
    """What was asked for: method, path as it came, the range ("" for all), and the status of the answer."""

    method: str
    path: str
    range: str
    status: int


class IndexServer(ThreadingHTTPServer):
    """Serves a folder; ``asked`` lists the requests so far."""

    daemon_threads = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder.resolve()
        self.asked: list[Request] = []
        try:
            super().__init__((host, port), _Handler)
        except OSError as cause:
            raise UsageError(f"cannot listen on {host}:{port}", tip="choose another --port") from cause

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that leave before the end, as installers do that have seen enough."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The URL of the folder."""
        host, port = self.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}/"


@contextmanager
def serving(folder: Path) -> Iterator[IndexServer]:
    """Serve a folder while the block runs."""
    with IndexServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def chosen_type(accept: str) -> str | None:
    """Return the type of page that is liked best by an ``Accept`` header; None when none is.

    Without a header it is text/html, which every client of PEP 503 reads.
    """
    best, quality = None, 0.0
    for word in (accept or "text/html").split(","):
        kind, *parameters = [part.strip() for part in word.split(";")]
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        q = float(weight) if re.fullmatch(r"[01](\.[0-9]*)?", weight) else 0.0
        kind = _LATEST.get(kind, "text/html" if kind in ("*/*", "text/*") else kind)
        if kind in _FORMATS and q > quality:
            best, quality = kind, q
    return best


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a page is two writes, and the second would wait for the first's ACK
    server: IndexServer

    def _get(self) -> None:
        self._answer(body=True)

    def _head(self) -> None:
        self._answer(body=False)

    do_GET, do_HEAD = _get, _head  # the names that http.server looks for

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet: ``asked`` has it."""

    def _answer(self, *, body: bool) -> None:
        parts = urlsplit(self.path)
        place = self._place(unquote(parts.path))
        if place is None:
            self._plain(HTTPStatus.NOT_FOUND)
        elif place.is_file():
            self._file(place, _TYPES.get(place.suffix, "application/octet-stream"), body=body)
        elif not parts.path.endswith("/"):
            query = f"?{parts.query}" if parts.query else ""
            self._plain(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"{parts.path}/{query}"})
        else:
            self._page(place, parse_qs(parts.query).get("format", [""])[0], body=body)

    def _place(self, path: str) -> Path | None:
        words = [word for word in path.split("/") if word]
        if any(word in ("..", STATE) or "\0" in word or "\\" in word for word in words):
            return None
        found = self.server.folder.joinpath(*words)
        try:
            inside = found.resolve().is_relative_to(self.server.folder) and found.exists()
        except OSError:  # a name that is too long for any file
            return None
        return found if inside else None

    def _page(self, folder: Path, wanted: str, *, body: bool) -> None:
        kind = chosen_type(wanted or self.headers.get("Accept", ""))
        if kind is None:
            self._plain(HTTPStatus.NOT_ACCEPTABLE)
            return
        page = folder / _FORMATS[kind]
        if not page.is_file():
            page, kind = folder / HTML, "text/html"
        if page.is_file():
            said = kind if kind == JSON_TYPE else f"{kind}; charset=utf-8"
            self._file(page, said, body=body)
        else:
            self._plain(HTTPStatus.NOT_FOUND)

    def _file(self, path: Path, kind: str, *, body: bool) -> None:
        try:
            file = path.open("rb")
        except OSError:
            self._plain(HTTPStatus.NOT_FOUND)
            return
        with file:
            size = file.seek(0, 2)
            asked = self.headers.get("Range", "")
            span = _span(asked, size)
            headers = {"Content-Type": kind, "Vary": "Accept", "Accept-Ranges": "bytes"}
            headers["Last-Modified"] = formatdate(path.stat().st_mtime, usegmt=True)
            if span is None:
                self._plain(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
                return
            first, end = span
            part = bool(asked) and _RANGE.fullmatch(asked)
            if part:
                headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
            self._begin(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK, end - first, headers)
            if body:
                self._send(file, first, end)

    def _send(self, file: BinaryIO, first: int, end: int) -> None:
        file.seek(first)
        while first < end and (piece := file.read(min(_PIECE, end - first))):
            self.wfile.write(piece)
            first += len(piece)

    def _plain(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        said = f"{status.value} {status.phrase}\n".encode()
        self._begin(status, len(said), {"Content-Type": "text/plain", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(said)

    def _begin(self, status: HTTPStatus, length: int, headers: dict[str, str]) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append(Request(self.command, self.path, asked, status.value))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _span(asked: str, size: int) -> tuple[int, int] | None:
    """Return what a Range header asks for as (first, end); all for one that we do not know, None for none."""
    found = _RANGE.fullmatch(asked)
    if not found or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        first, end = max(0, size - int(found[2])), size
    else:
        first, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
    return (first, end) if first < end else None

"""Serve a folder as an index on this machine, with the content types and answers of a real server.

It is for tests and dry runs. It chooses between HTML and JSON by ``Accept`` or ``?format=`` (PEP 691),
answers ranges, says 404 for what is not there. It has no limits, no encryption and no access control.
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

from rocm_wheels.core import errors
from rocm_wheels.index import pages
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, STATE_FOLDER

_TYPES_BY_SUFFIX = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".metadata": "text/plain; charset=utf-8",
    ".whl": "application/octet-stream",
}
_PAGES_BY_TYPE = {pages.JSON_TYPE: JSON_PAGE, pages.HTML_TYPE: HTML_PAGE, "text/html": HTML_PAGE}
_LATEST_TYPES = {"application/vnd.pypi.simple.latest+json": pages.JSON_TYPE}
_LATEST_TYPES["application/vnd.pypi.simple.latest+html"] = pages.HTML_TYPE
_RANGE_HEADER = re.compile(r"bytes=(\d*)-(\d*)")
_PIECE_SIZE = 1 << 20
_POLL_SECONDS = 0.02  # seconds in which the end of a server is noticed


@dataclass(frozen=True)
class ServedRequest:
    """What was asked for: method, path as it came, the range ("" for all), and the status of the answer."""

    method: str
    path: str
    range: str
    status: int


class IndexServer(ThreadingHTTPServer):
    """Serves a folder; ``requests`` lists the requests so far, ``sent`` counts the bytes of files."""

    daemon_threads = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder.resolve()
        self.requests: list[ServedRequest] = []
        self.sent = 0
        try:
            super().__init__((host, port), _IndexHandler)
        except OSError as cause:
            raise errors.UsageError(f"cannot listen on {host}:{port}", tip="choose another --port") from cause

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
def serve_folder(folder: Path) -> Iterator[IndexServer]:
    """Serve a folder while the block runs."""
    with IndexServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def choose_type(accept: str) -> str | None:
    """Return the type of page that is liked best by an ``Accept`` header; None when none is.

    Without a header it is text/html, which every client of PEP 503 reads.
    """
    best, quality = None, 0.0
    for word in (accept or "text/html").split(","):
        kind, *parameters = [part.strip() for part in word.split(";")]
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        q = float(weight) if re.fullmatch(r"[01](\.[0-9]*)?", weight) else 0.0
        kind = _LATEST_TYPES.get(kind, "text/html" if kind in ("*/*", "text/*") else kind)
        if kind in _PAGES_BY_TYPE and q > quality:
            best, quality = kind, q
    return best


class _IndexHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a page is two writes, and the second would wait for the first's ACK
    server: IndexServer

    def _handle_get(self) -> None:
        self._send_answer(body=True)

    def _handle_head(self) -> None:
        self._send_answer(body=False)

    do_GET, do_HEAD = _handle_get, _handle_head  # the names that http.server looks for

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet: ``requests`` has it."""

    def _send_answer(self, *, body: bool) -> None:
        parts = urlsplit(self.path)
        path = self._find_path(unquote(parts.path))
        if path is None:
            self._send_status(HTTPStatus.NOT_FOUND)
        elif path.is_file():
            self._send_file(path, _TYPES_BY_SUFFIX.get(path.suffix, "application/octet-stream"), body=body)
        elif not parts.path.endswith("/"):
            query = f"?{parts.query}" if parts.query else ""
            self._send_status(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"{parts.path}/{query}"})
        else:
            self._send_page(path, parse_qs(parts.query).get("format", [""])[0], body=body)

    def _find_path(self, path: str) -> Path | None:
        words = [word for word in path.split("/") if word]
        if any(word in ("..", STATE_FOLDER) or "\0" in word or "\\" in word for word in words):
            return None
        candidate = self.server.folder.joinpath(*words)
        try:
            is_inside = candidate.resolve().is_relative_to(self.server.folder) and candidate.exists()
        except OSError:  # a name that is too long for any file
            return None
        return candidate if is_inside else None

    def _send_page(self, folder: Path, wanted_format: str, *, body: bool) -> None:
        kind = choose_type(wanted_format or self.headers.get("Accept", ""))
        if kind is None:
            self._send_status(HTTPStatus.NOT_ACCEPTABLE)
            return
        page = folder / _PAGES_BY_TYPE[kind]
        if not page.is_file():
            page, kind = folder / HTML_PAGE, "text/html"
        if page.is_file():
            content_type = kind if kind == pages.JSON_TYPE else f"{kind}; charset=utf-8"
            self._send_file(page, content_type, body=body)
        else:
            self._send_status(HTTPStatus.NOT_FOUND)

    def _send_file(self, path: Path, kind: str, *, body: bool) -> None:
        try:
            file = path.open("rb")
        except OSError:
            self._send_status(HTTPStatus.NOT_FOUND)
            return
        with file:
            size = file.seek(0, 2)
            range_header = self.headers.get("Range", "")
            span = _parse_range(range_header, size)
            headers = {"Content-Type": kind, "Vary": "Accept", "Accept-Ranges": "bytes"}
            headers["Last-Modified"] = formatdate(path.stat().st_mtime, usegmt=True)
            if span is None:
                self._send_status(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"}
                )
                return
            first, end = span
            part = bool(range_header) and _RANGE_HEADER.fullmatch(range_header)
            if part:
                headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
            self._send_headers(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK, end - first, headers)
            if body:
                self._send_span(file, first, end)

    def _send_span(self, file: BinaryIO, first: int, end: int) -> None:
        file.seek(first)
        while first < end and (piece := file.read(min(_PIECE_SIZE, end - first))):
            self.wfile.write(piece)
            self.server.sent += len(piece)
            first += len(piece)

    def _send_status(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        text = f"{status.value} {status.phrase}\n".encode()
        self._send_headers(status, len(text), {"Content-Type": "text/plain", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(text)

    def _send_headers(self, status: HTTPStatus, length: int, headers: dict[str, str]) -> None:
        range_header = self.headers.get("Range", "")
        self.server.requests.append(ServedRequest(self.command, self.path, range_header, status.value))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _parse_range(range_header: str, size: int) -> tuple[int, int] | None:
    """Return what a Range header asks for as (first, end); all for one that we do not know, None for none."""
    match = _RANGE_HEADER.fullmatch(range_header)
    if not match or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    return (first, end) if first < end else None

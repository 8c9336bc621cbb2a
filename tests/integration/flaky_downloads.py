"""Files over HTTP on this machine, with ranges and validators as real servers have them, or with faults."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

RANGE = re.compile(r"bytes=(\d+)-")


class FileServer:
    """Serves ``files`` (content by name); ``ways`` say, in turn, how the next answers to GET go wrong.

    ``cut`` (half of what was asked for, then the connection is closed), ``busy`` (503), ``wait`` (429 with
    Retry-After), ``missing`` (404), ``closed`` (403), ``other`` (other bytes of the same size), ``whole``
    (ranges are ignored), ``unsatisfied`` (416), ``elsewhere`` (206 of another part), ``slow`` (a piece at a
    time). ``ranges`` False: never any; ``validators`` False: neither ETag nor date. ``asked`` are (name,
    range, status).
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ways: list[str] = []
        self.ranges = self.validators = True
        self.asked: list[tuple[str, str, int]] = []
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                server.answer(self, body=True)

            def do_HEAD(self) -> None:
                server.answer(self, body=False)

            def log_message(self, *_arguments: object) -> None:
                """Keep quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/"

    def answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        name = unquote(handler.path.lstrip("/"))
        with self.lock:
            way = self.ways.pop(0) if self.ways and body else ""
        status, headers, content = self.content(name, handler, way)
        if body:
            self.asked.append((name, handler.headers.get("Range", ""), status))
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if not body:
            return
        if way == "cut":
            handler.wfile.write(content[: len(content) // 2])
            handler.close_connection = True
            return
        step = len(content) if way != "slow" else 1 << 16
        try:
            for at in range(0, len(content), max(step, 1)):
                handler.wfile.write(content[at : at + step])
                time.sleep(0.02 if way == "slow" else 0)
        except ConnectionError:
            handler.close_connection = True

    def content(
        self, name: str, handler: BaseHTTPRequestHandler, way: str
    ) -> tuple[int, dict[str, str], bytes]:
        plain = {"busy": 503, "wait": 429, "missing": 404, "closed": 403}
        if way in plain:
            return plain[way], {"Retry-After": "0"} if way == "wait" else {}, b"no"
        if name not in self.files:
            return 404, {}, b"no"
        content = self.files[name]
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": etag} if self.validators else {}
        if way == "other":
            content = content[::-1]
        found = RANGE.fullmatch(handler.headers.get("Range", ""))
        same = handler.headers.get("If-Range", etag) == etag
        if found and same and self.ranges and way != "whole":
            first = int(found[1])
            if way == "unsatisfied" or first >= len(content):
                return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
            if way == "elsewhere":
                first = 0
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            return 206, headers, content[first:]
        return 200, headers, content


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    """Serve while the block runs."""
    server = FileServer(files)
    thread = threading.Thread(target=server.http.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()

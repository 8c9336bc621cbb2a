"""HTTP servers on this machine that fail in chosen ways: of git repositories (by git's own), and of files."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote


@dataclass(frozen=True)
class Fault:
    """How an answer goes wrong: another status instead of it, or so much of it, in pieces with pauses."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    share: float = 1  # then the connection ends; of none, not even the status comes
    silent: bool = False  # and before it ends nothing comes for long
    pause: float = 0  # after each piece, in seconds


FAULTS: dict[str, Fault] = {
    "": Fault(),
    "busy": Fault(503),
    "wait": Fault(429, {"Retry-After": "0"}),
    "missing": Fault(404),
    "forbidden": Fault(403),
    "broken": Fault(500),
    "cut": Fault(share=0.5),
    "stall": Fault(share=0.5, silent=True),
    "mute": Fault(share=0, silent=True),
    "slow": Fault(pause=0.02),
    # of files alone: other bytes of the same size; ranges ignored, refused, or of another part
    "other": Fault(),
    "whole": Fault(),
    "unsatisfied": Fault(),
    "elsewhere": Fault(),
}
PIECE = 1 << 16


class Request(NamedTuple):
    """What was asked for (HEAD aside), the range, and the status of the answer, or 0 for none."""

    name: str
    span: str
    status: int


class Answer(NamedTuple):
    """A status, headers and a body."""

    status: int
    headers: dict[str, str]
    content: bytes


class FlakyServer:
    """Answers requests; ``fail`` says how the next ones fail that are for a path with ``where`` in it.

    ``requests`` are those so far; ``stalled`` is set when an answer stands still.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.where = ""
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.stalled = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                server.handle(self)

            do_POST = do_HEAD = do_GET

            def log_message(self, *_arguments: object) -> None:
                """Keep quiet."""

        self.handler = Handler
        self.url = ""

    def fail(self, *faults: str, where: str = "") -> None:
        assert FAULTS.keys() >= set(faults)
        self.faults, self.where = list(faults), where

    def take_fault(self, handler: BaseHTTPRequestHandler) -> str:
        """Return the fault of a request, which happens once."""
        with self.lock:
            hit = self.faults and self.where in handler.path and handler.command != "HEAD"
            return self.faults.pop(0) if hit else ""

    def answer(self, handler: BaseHTTPRequestHandler, sent: bytes, fault: str) -> Answer:
        """Return what a server without faults answers; some faults are in the answer itself."""
        raise NotImplementedError

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        sent = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        name = self.take_fault(handler)
        fault = FAULTS[name]
        answer = Answer(fault.status, dict(fault.headers), b"no")
        if not fault.status:
            answer = self.answer(handler, sent, name)
        if handler.command != "HEAD":
            place, status = unquote(handler.path.lstrip("/")), answer.status if fault.share else 0
            self.requests.append(Request(place, handler.headers.get("Range", ""), status))
        if not fault.share:
            self._stand_still(handler)
            return
        handler.send_response(answer.status)
        for key, value in answer.headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(answer.content)))
        handler.end_headers()
        if handler.command != "HEAD":
            self._send(handler, answer.content, fault)

    def _send(self, handler: BaseHTTPRequestHandler, content: bytes, fault: Fault) -> None:
        part = content[: int(len(content) * fault.share)]
        step = PIECE if fault.pause else max(len(part), 1)
        try:
            for start in range(0, len(part), step):
                handler.wfile.write(part[start : start + step])
                time.sleep(fault.pause)
        except ConnectionError:
            handler.close_connection = True
        if fault.silent:
            self._stand_still(handler)
        if fault.share < 1:
            handler.close_connection = True

    def _stand_still(self, handler: BaseHTTPRequestHandler) -> None:
        self.stalled.set()
        self.over.wait(60)
        handler.close_connection = True


class GitServer(FlakyServer):
    """Serves all repositories below a folder.

    ``packs`` lists the repositories that objects were sent from; each such answer takes ``delay`` seconds,
    and ``most`` of them were under way at a time. With ``first_protocol`` it knows no other.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.packs: list[str] = []
        self.first_protocol = False
        self.delay = 0.0
        self.now = self.most = 0

    def answer(self, handler: BaseHTTPRequestHandler, sent: bytes, fault: str) -> Answer:
        path, _, query = handler.path.partition("?")
        if handler.headers.get("Content-Encoding") == "gzip":
            sent = gzip.decompress(sent)
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command,
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(sent)),
            "GIT_PROTOCOL": "" if self.first_protocol else handler.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=sent, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        if b"command=fetch" in sent:
            with self.lock:
                self.packs.append(path.split("/")[1])
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(self.delay)
            with self.lock:
                self.now -= 1
        return Answer(int(headers.pop("Status", "200").split()[0]), headers, content)


class FileServer(FlakyServer):
    """Serves ``files`` (content by name) with ranges and validators, as real servers do.

    ``ranges`` False: never any; ``validators`` False: neither ETag nor date.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self.files = dict(files)
        self.ranges = self.validators = True

    def answer(self, handler: BaseHTTPRequestHandler, sent: bytes, fault: str) -> Answer:
        name = unquote(handler.path.lstrip("/"))
        if name not in self.files:
            return Answer(404, {}, b"no")
        content = self.files[name]
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": etag} if self.validators else {}
        if name.endswith((".html", "/")) or not name:  # as servers of files say it of what they list
            headers["Content-Type"] = "text/html"
        if fault == "other":
            content = content[::-1]
        span = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        same = handler.headers.get("If-Range", etag) == etag
        if not (span and same and self.ranges) or fault == "whole":
            return Answer(200, headers, content)
        first = int(span[1])
        if fault == "unsatisfied" or first >= len(content):
            return Answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
        if fault == "elsewhere":
            first = 0
        headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        return Answer(206, headers, content[first:])


Kind = TypeVar("Kind", bound=FlakyServer)


@contextmanager
def serving(server: Kind) -> Iterator[Kind]:
    """Have a server answer while the block runs."""
    with serve_requests(server.handler) as url:
        server.url = url
        try:
            yield server
        finally:
            server.over.set()


@contextmanager
def serve_requests(handler: Any) -> Iterator[str]:
    """Have requests answered by a handler while the block runs, and give the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()

"""Files for ``bench_hosts``: an index of variants, a large wheel and its server, a library of 1 GB."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import clock
from binaries import bundle, compress, elf, hip
from servers import Shelf

from rocm_wheels.core import files
from rocm_wheels.variants.document import SCHEMA

_PIECE = 1 << 20
PYTHONS = range(10, 14)
SYSTEM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
VERSION = "2.9.1+rocm7.2"


def variants(count: int) -> dict[str, Any]:
    """Return a document of variants that every machine supports: targets, and releases of ROCm."""
    values = [f"g{number:03}" for number in range(count)]
    listed = {"gfx_arch": values, "level": ["b", "a"]}
    return {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["x", "rocm"]},
        "providers": {
            "x": {"static-properties": listed, "feature-order": ["gfx_arch", "level"]},
            "rocm": {"static-properties": {"version": ["7.2", "7.1", "7.0"]}},
        },
        "variants": {
            "null": {},
            **{
                f"v{number}": {
                    "x": {"gfx_arch": sorted({values[-number], values[number // 2]}), "level": ["a"]},
                    "rocm": {"version": [("7.0", "7.2", "7.1")[number % 3]]},
                }
                for number in range(1, count)
            },
        },
    }


def variant_index(root: Path, wheels: int, labels: int) -> Path:
    """Write an index of ``wheels`` variant wheels: releases for four Pythons, in ``labels`` variants each."""
    shelf, document = Shelf(root), variants(labels)
    for release in range(wheels // labels // len(PYTHONS)):
        version = f"2.{release}.0"
        for minor in PYTHONS:
            for label, properties in document["variants"].items():
                own = {**document, "variants": {label: properties}}
                shelf.wheel(version, label, tag=f"cp3{minor}-cp3{minor}-{SYSTEM}", document=own)
        shelf.document(document, version)
    return shelf.write()


def large_wheel(folder: Path, megabytes: int) -> Path:
    """Write a torch of bytes that do not compress, deflated as published wheels are, on a page of its own."""
    project = folder / "torch"
    project.mkdir(parents=True)
    path = project / f"torch-{VERSION}-py3-none-{SYSTEM}.whl"
    noise = clock.pack(os.urandom(20 << 20))
    count = max(1, megabytes * 1_000_000 // len(noise[1]))
    about = f"__version__ = '{VERSION}'\nhip = '7.2.26015'\ncuda = None\n"
    small = {
        "lib/libtorch_hip.so": elf({".hip_fatbin": bundle(hip("gfx942"))}),
        "__init__.py": b"",
        "version.py": about.encode(),
    }
    members = [(f"torch/lib/libpart{number}.so", noise) for number in range(count)]
    members += [(f"torch/{name}", clock.pack(content)) for name, content in small.items()]
    clock.write_wheel(path, members)
    digest = files.hash_file(path)
    link = path.name.replace("+", "%2B")
    page = f'<!DOCTYPE html>\n<a href="{link}#sha256={digest}">{path.name}</a>\n'
    (project / "index.html").write_text(page)
    return path


class CountingServer(ThreadingHTTPServer):
    """Serves a folder as a server of static files does: ranges, ETag, nothing anew; counts what it sends.

    ``hold_at``: after so many bytes of a wheel it waits for ``go_on``, and sets ``held``.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.hold_at: int | None = None
        self.held, self.go_on = threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that were killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


@contextmanager
def counting(folder: Path) -> Iterator[CountingServer]:
    """Serve while the block runs."""
    with CountingServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an ACK
    server: CountingServer

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        place = self.server.folder / unquote(self.path.split("?")[0]).strip("/")
        path = place / "index.html" if place.is_dir() else place
        if not path.is_file():
            self._head(404, {"Content-Length": "0"})
            return
        size = path.stat().st_size
        tag = f'"{path.stat().st_mtime_ns:x}"'
        headers = {
            "ETag": tag,
            "Accept-Ranges": "bytes",
            "Cache-Control": "max-age=600" * (path.suffix == ".whl"),
        }
        headers["Content-Type"] = "text/html" if path.suffix == ".html" else "application/octet-stream"
        if self.headers.get("If-None-Match") == tag:
            self._head(304, headers)
            return
        asked = self.headers.get("Range", "")
        first, end = 0, size
        if asked.startswith("bytes=") and self.headers.get("If-Range", tag) == tag:
            low, _, high = asked.removeprefix("bytes=").partition("-")
            first = int(low) if low else max(0, size - int(high))
            end = min(size, int(high) + 1) if low and high else size
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        self._head(
            206 if "Content-Range" in headers else 200, {**headers, "Content-Length": str(end - first)}
        )
        if body:
            self._send(path, first, end)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def _send(self, path: Path, first: int, end: int) -> None:
        server, hold_at = self.server, self.server.hold_at
        if first:
            hold_at = None  # the list of a wheel's files, which is at its end
        with open(path, "rb") as file:
            while first < end:
                if hold_at is not None and path.suffix == ".whl" and first >= hold_at:
                    server.held.set()
                    server.go_on.wait()
                    self.close_connection = True
                    return
                sent = os.sendfile(self.connection.fileno(), file.fileno(), first, min(_PIECE, end - first))
                server.sent += sent
                first += sent


def large_library(path: Path, megabytes: int, bundles: int) -> None:
    """Write a library as ``libtorch_hip.so`` is: many bundles of five targets, every other one compressed."""
    targets = ("gfx906", "gfx90a", "gfx942", "gfx1100", "gfx9-4-generic")
    each = megabytes * 1_000_000 // bundles // len(targets)
    code = [hip(target) for target in targets]
    plain = bundle(*((name, head + os.urandom(each - len(head))) for name, head in code))
    pieces = (plain, compress(plain, 3, "zstd"))
    padded = [piece + bytes(-len(piece) % 4096) for piece in pieces]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf({".hip_fatbin": b"".join(padded) * (bundles // 2)}))

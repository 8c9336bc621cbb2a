"""One index for one installer: served on this machine, with what ``offers`` has and nothing else.

Resolvers are asked against it alone: each project is there from the place that it may come from, one file
of a version, without variant labels, with METADATA to read. Large files are never asked for: what is
resolved is fetched by ``fetch``. What cannot be looked up is an error (400: no installer asks again), not a
project without files.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name

from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.hosts.install.offers import Offer, Offers
from rocm_wheels.index.reach import UnreachableError


@contextmanager
def served(offers: Offers) -> Iterator[str]:
    """Serve offers while the block runs; gives the URL of the index."""

    class Handler(_Handler):
        known = offers

    with _Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of an installer that leaves before the end: it has seen enough, or was interrupted."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an ACK
    known: Offers

    def _get(self) -> None:
        words = [unquote(word) for word in self.path.partition("?")[0].split("/") if word]
        try:
            status, kind, content = self._answer(words)
        except (UnreachableError, RocmWheelsError, OSError, ValueError) as cause:
            self.known.faults.append((words[1] if len(words) > 1 else "", str(cause)))
            status, kind, content = 400, "text/plain", str(cause).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = _get  # the names that http.server looks for

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""

    def _answer(self, words: list[str]) -> tuple[int, str, bytes]:
        if len(words) == 2 and words[0] == "simple":
            offers = self.known.of(canonicalize_name(words[1]))
            return (200, "text/html", _page(offers)) if offers else (404, "text/plain", b"not offered")
        if len(words) == 3 and words[0] == "files":
            name = words[2].removesuffix(".metadata")
            offer = self.known.named(words[1], name)
            if offer is not None and words[2].endswith(".metadata"):
                return 200, "text/plain", self.known.metadata(offer)
            if offer is not None and offer.source != "installed":
                return 200, "application/octet-stream", self.known.content(offer)
        return 404, "text/plain", b"not here"


def _page(offers: tuple[Offer, ...]) -> bytes:
    lines = ["<!DOCTYPE html><html><body>"]
    for one in offers:
        said = "" if one.is_sdist else ' data-core-metadata="true" data-dist-info-metadata="true"'
        if one.requires_python:
            said += f' data-requires-python="{escape(one.requires_python)}"'
        if one.yanked is not None:
            said += f' data-yanked="{escape(one.yanked)}"'
        url = f"/files/{one.project}/{quote(one.shown)}"
        lines.append(f'<a href="{url}"{said}>{escape(one.shown)}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()

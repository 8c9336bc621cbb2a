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
from rocm_wheels.hosts.install.offers import PackageOffer, PackageOffers
from rocm_wheels.index.reach import UnreachableError


@contextmanager
def serve_offers(offers: PackageOffers) -> Iterator[str]:
    """Serve offers while the block runs; gives the URL of the index."""

    class Handler(_OfferHandler):
        package_offers = offers

    with _OfferServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        finally:
            server.shutdown()
            thread.join()


class _OfferServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of an installer that leaves before the end: it has seen enough, or was interrupted."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _OfferHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an ACK
    package_offers: PackageOffers

    def _handle_get(self) -> None:
        words = [unquote(word) for word in self.path.partition("?")[0].split("/") if word]
        try:
            status, kind, content = self._find_response(words)
        except (UnreachableError, RocmWheelsError, OSError, ValueError) as cause:
            self.package_offers.faults.append((words[1] if len(words) > 1 else "", str(cause)))
            status, kind, content = 400, "text/plain", str(cause).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = _handle_get  # the names that http.server looks for

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""

    def _find_response(self, words: list[str]) -> tuple[int, str, bytes]:
        if len(words) == 2 and words[0] == "simple":
            offers = self.package_offers.list_offers(canonicalize_name(words[1]))
            return (200, "text/html", _render_page(offers)) if offers else (404, "text/plain", b"not offered")
        if len(words) == 3 and words[0] == "files":
            name = words[2].removesuffix(".metadata")
            offer = self.package_offers.find_by_installer_name(words[1], name)
            if offer is not None and words[2].endswith(".metadata"):
                return 200, "text/plain", self.package_offers.read_metadata(offer)
            if offer is not None and offer.source != "installed":
                return 200, "application/octet-stream", self.package_offers.read_content(offer)
        return 404, "text/plain", b"not here"


def _render_page(offers: tuple[PackageOffer, ...]) -> bytes:
    lines = ["<!DOCTYPE html><html><body>"]
    for offer in offers:
        attributes = "" if offer.is_sdist else ' data-core-metadata="true" data-dist-info-metadata="true"'
        if offer.requires_python:
            attributes += f' data-requires-python="{escape(offer.requires_python)}"'
        if offer.yanked is not None:
            attributes += f' data-yanked="{escape(offer.yanked)}"'
        url = f"/files/{offer.project}/{quote(offer.installer_name)}"
        lines.append(f'<a href="{url}"{attributes}>{escape(offer.installer_name)}</a><br>')
    return "\n".join([*lines, "</body></html>"]).encode()

"""An S3 in a thread of the tests (moto), and a bad line to it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from rocm_wheels.release.stores.attempts import Attempts
from rocm_wheels.release.stores.s3 import S3Store
from rocm_wheels.release.stores.s3_client import Client

_numbers = count(1)
QUICK = Attempts((0.01,) * 5)


@lru_cache
def moto() -> str:
    """Start the server, once, and return its URL; it ends with the process."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return "http://{}:{}".format(*server.get_host_and_port())


def environment(endpoint: str) -> Mapping[str, str]:
    """Return the variables that reach a server."""
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@lru_cache
def _client(endpoint: str) -> Client:
    return Client(environment(endpoint))  # to make one takes longer than a test


def a_bucket() -> str:
    """Make a new bucket and return its name."""
    name = f"bucket-{next(_numbers)}"
    _client(moto()).call("create_bucket", Bucket=name)
    return name


def a_store(endpoint: str = "", *, bucket: str = "") -> S3Store:
    """Return a store in a new bucket, or in one that is there, reached by ``endpoint``."""
    store = S3Store(bucket or a_bucket(), "some/where", {}, attempts=QUICK)
    store._client = _client(endpoint or moto())
    return store


class Line(ThreadingHTTPServer):
    """A proxy. ``faults`` says what happens to a request: its method and path to one of the words below.

    ``""`` nothing; a status (``503``): the server never hears of it; ``lost``: the server does it and the
    answer is lost; ``half``: half of the answer comes.
    """

    daemon_threads = True

    def __init__(self, faults: Callable[[str, str], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults = faults

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Line

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        fault = self.server.faults(self.command, self.path)
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        behind = http.client.HTTPConnection(moto().removeprefix("http://"))
        headers = {key: value for key, value in self.headers.items() if key.lower() != "expect"}
        behind.request(self.command, self.path, sent, headers)
        answer = behind.getresponse()
        content = answer.read()
        if fault == "lost":
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("transfer-encoding", "connection", "server", "date"):
                self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if fault == "half" else content)
        if fault == "half":
            self.wfile.flush()
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any

    def log_message(self, *_arguments: object) -> None:
        """Keep quiet."""


@lru_cache
def _line() -> Line:
    line = Line(lambda *_: "")
    threading.Thread(target=line.serve_forever, daemon=True).start()
    return line


@contextmanager
def bad_line(faults: Callable[[str, str], str]) -> Iterator[Line]:
    """Have the line between a store and the server go wrong while the block runs."""
    line = _line()
    line.faults = faults
    yield line
    line.faults = lambda *_: ""

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

from rocm_wheels.core import retry
from rocm_wheels.stores import s3

_numbers = count(1)
QUICK = retry.RetryPolicy(retries=5, first_wait=0.01, growth=1)


@lru_cache
def moto() -> str:
    """Start the server, once, and return its URL; it ends with the process."""
    import logging

    from moto import backends
    from moto.server import ThreadedMotoServer

    modules = list(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules  # otherwise it asks the disk, 180 times for each request
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return "http://{}:{}".format(*server.get_host_and_port())


def environment(endpoint: str) -> Mapping[str, str]:
    """Return the variables that reach a server."""
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@lru_cache
def _client(endpoint: str) -> s3.S3Client:
    return s3.S3Client(environment(endpoint), policy=QUICK)  # to make one takes longer than a test


def a_bucket() -> str:
    """Make a new bucket and return its name."""
    name = f"bucket-{next(_numbers)}"
    _client(moto()).call("create_bucket", Bucket=name)
    return name


def a_store(endpoint: str = "", *, bucket: str = "") -> s3.S3Store:
    """Return a store in a new bucket, or in one that is there, reached by ``endpoint``."""
    store = s3.S3Store(bucket or a_bucket(), "some/where", {})
    store._client = _client(endpoint or moto())
    return store


class Line(ThreadingHTTPServer):
    """A proxy. ``faults`` says what happens to a request: its method and path to one of the words below.

    | word | what happens |
    |---|---|
    | ``""`` | nothing |
    | ``503`` ``403 ExpiredToken`` | a status, maybe with S3's word; the server never hears of the request |
    | ``lost`` | the server does it and the answer is lost |
    | ``half`` | half of the answer comes |
    | ``short`` | half of the answer comes and is said to be all |
    | ``weak`` | the ETag is a weak one, as from a proxy that compresses |
    | ``deaf`` | the server says that it knows no conditions, where there is one |

    ``refuses`` tells, also by the headers, which requests are answered with 403.
    """

    daemon_threads = True

    def __init__(self, faults: Callable[[str, str], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults = faults
        self.refuses: Callable[[str, str, Mapping[str, str]], bool] = lambda *_: False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Line

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        fault = self.server.faults(self.command, self.path)
        if self.server.refuses(self.command, self.path, self.headers):
            fault = "403 AccessDenied"
        if fault == "deaf":
            asked = {key.lower() for key in self.headers} & {"if-match", "if-none-match"}
            fault = "501 NotImplemented" if asked and self.command in ("PUT", "POST") else ""
        if fault[:3].isdigit():
            said = f"<Error><Code>{fault[4:]}</Code></Error>".encode() if fault[4:] else b""
            self.send_response(int(fault[:3]))
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said if self.command != "HEAD" else b"")
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
        if fault == "short" and self.command == "GET":
            content = content[: len(content) // 2]
        headers = {key.lower(): value for key, value in answer.getheaders()}
        if fault == "weak" and "etag" in headers:
            headers["etag"] = f"W/{headers['etag']}"
        if fault == "short" and self.command == "GET":
            headers["content-length"] = str(len(content))
        for key in headers.keys() - {"transfer-encoding", "connection", "server", "date"}:
            self.send_header(key, headers[key])
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
    line.faults, line.refuses = lambda *_: "", lambda *_: False

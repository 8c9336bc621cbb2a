"""Servers on this machine: of files, repositories, indexes and S3; all may fail."""

from __future__ import annotations

import gzip
import hashlib
import html
import http.client
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import unquote

from packaging.tags import Tag, parse_tag
from wheels import Draft

from rocm_wheels.core import retry
from rocm_wheels.gpus import gpu, variables
from rocm_wheels.index import pages, reader
from rocm_wheels.stores import s3
from rocm_wheels.user import candidates
from rocm_wheels.user.choose import choose_wheels
from rocm_wheels.user.host import TargetHost
from rocm_wheels.variants.document import SCHEMA

# ---- HTTP servers on this machine that fail in chosen ways: of git repositories (by git's own), and of
# files.


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


# ---- A server that chooses between HTML and JSON (PEP 691), gives parts of files, and remembers requests.


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


# ---- An S3 in a thread of the tests (moto), and a bad line to it.


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


# ---- Small indexes in a folder for tests of choosing, and machines to choose for. Everything is
# constructed.


TAG = "cp312-cp312-linux_x86_64"
TAGS: tuple[Tag, ...] = tuple(
    tag
    for name in (TAG, "cp312-abi3-linux_x86_64", "py3-none-linux_x86_64", "py3-none-any")
    for tag in parse_tag(name)
)
PLUGIN = {
    "requires": ["rocm-bootstrap>=0.3,<1"],
    "plugin-api": "rocm_bootstrap.variant_provider:AMDVariantPlugin",
}
PROVIDERS: dict[str, Any] = {"amd": PLUGIN, "rocm": {"static-properties": {"version": ["7.2", "7.1", "7.0"]}}}
Properties = Mapping[str, Mapping[str, Sequence[str]]]


def gfx(*targets: str, rocm: str = "") -> Properties:
    """Return the properties of a stamped wheel."""
    found: dict[str, dict[str, list[str]]] = {"amd": {"gfx_arch": sorted(targets)}} if targets else {}
    return {**found, "rocm": {"version": [rocm]}} if rocm else found


RELEASE: dict[str, Properties] = {
    "null": {},
    "rocm7.0_gfx9": gfx("gfx90a", "gfx942", rocm="7.0"),
    "rocm7.2_gfx9": gfx("gfx90a", "gfx942", rocm="7.2"),
    "rocm7.2_gfx110x": gfx("gfx1100", "gfx1101", "gfx1102", rocm="7.2"),
    "rocm7.2_gfx12": gfx("gfx12_generic", rocm="7.2"),
}


class Shelf:
    """An index in a folder; ``add`` puts a file on a project's page, ``write`` writes the pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages: dict[str, list[str]] = {}

    def add(self, project: str, name: str, content: bytes, **attributes: str) -> Path:
        """Put a file there, with attributes of its link (``yanked``, ``requires_python``)."""
        path = self.root / project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        said = "".join(
            f' data-{key.replace("_", "-")}="{html.escape(text)}"' for key, text in attributes.items()
        )
        href = name.replace("+", "%2B")
        digest = sha256(content).hexdigest()
        self.pages.setdefault(project, []).append(f'<a href="{href}#sha256={digest}"{said}>{name}</a><br>')
        return path

    def wheel(
        self,
        version: str,
        label: str = "",
        *,
        project: str = "torch",
        tag: str = TAG,
        document: Any = None,
        fields: Sequence[str] = (),
        requires: Sequence[str] = (),
        **attributes: str,
    ) -> Path:
        """Put a wheel there; with a ``document`` as its ``variant.json``."""
        draft = Draft(project.replace("-", "_"), version, tag, fields=list(fields), requires=list(requires))
        if document:
            draft.members[f"{draft.folder}/variant.json"] = json.dumps(document).encode()
        name = f"{draft.distribution}-{version}-{tag}{label and '-' + label}.whl"
        draft.file_name = name
        (self.root / "made").mkdir(parents=True, exist_ok=True)
        path = draft.write(self.root / "made")
        return self.add(project, name, path.read_bytes(), **attributes)

    def release(
        self, variants: Mapping[str, Properties], version: str = "2.9.0", *, listed: bool = True, **top: Any
    ) -> None:
        """Put a wheel for each variant there, and the document that lists them all."""
        providers = top.pop("providers", PROVIDERS)
        whole = {
            "$schema": SCHEMA,
            "default-priorities": {"namespace": list(providers)},
            "providers": providers,
            **top,
        }
        for label, properties in variants.items():
            self.wheel(version, label, document={**whole, "variants": {label: properties}})
        if listed:
            self.document({**whole, "variants": variants}, version)

    def document(self, content: Any, version: str = "2.9.0") -> None:
        """Put a ``-variants.json`` there."""
        self.add("torch", f"torch-{version}-variants.json", json.dumps(content).encode())

    def write(self) -> Path:
        """Write the pages; return the folder of the index."""
        for project, links in self.pages.items():
            page = "<!DOCTYPE html>\n<html><body>\n" + "\n".join(links) + "\n</body></html>\n"
            (self.root / project / "index.html").write_text(page, encoding="utf-8")
        return self.root

    def choose(
        self, *requirements: str, on: TargetHost | None = None, pre: bool = False
    ) -> candidates.WheelChoice:
        """Write the pages, and choose for a machine (gfx942) from them; the first choice."""
        self.write()
        asked = requirements or ("torch",)
        return choose_wheels(asked, str(self.root), on or machine("gfx942"), reader.IndexReader(), pre=pre)[0]


def machine(
    *targets: str, rocm: str | None = None, vendor: str = "amd", python: str = "3.12.4", **more: Any
) -> TargetHost:
    """Return a Linux machine with GPUs of these targets."""
    gpus = tuple(
        gpu.Gpu(
            vendor,
            gfx=one if vendor == "amd" else None,
            index=n,
            integrated=one in gpu.INTEGRATED_TARGETS,
            source="kfd",
            confidence="read",
        )
        for n, one in enumerate(targets)
    )
    found = (gpu.RocmInstallation(rocm, "info", "/opt/rocm"),) if rocm else ()
    return host(gpu.Hardware(gpus=gpus, rocm=found), python=python, **more)


def host(hardware: gpu.Hardware, *, python: str = "3.12.4") -> TargetHost:
    """Return a Linux machine with this hardware."""
    short = ".".join(python.split(".")[:2])
    return TargetHost(
        "linux",
        "x86_64",
        short,
        TAGS,
        hardware,
        {"amd": variables.list_supported_features(hardware)},
        python,
    )

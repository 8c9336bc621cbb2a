"""git over HTTP on this machine, by git's own server, which fails in a chosen way as often as chosen."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server:
    """Serves all repositories below a folder; ``fail`` says how the next requests fail.

    Ways: ``busy`` (503), ``cut`` (half of the answer, then the connection is closed), ``stall``
    (half of the answer, then silence), ``forbidden`` (403). Only requests for a path that contains
    ``where`` fail. ``packs`` lists the repositories that objects were sent from; each such answer takes
    ``delay`` seconds, and ``most`` of them were under way at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ways: list[str] = []
        self.where = ""
        self.packs: list[str] = []
        self.asked: list[str] = []
        self.settings: dict[str, str] = {}
        self.first_protocol = False
        self.delay = 0.0
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.stalled = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            do_POST = do_GET

            def log_message(self, *_arguments: object) -> None:
                """Keep quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def fail(self, *ways: str, where: str = "") -> None:
        self.ways, self.where = list(ways), where

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        with self.lock:
            self.asked.append(handler.path)
            way = self.ways.pop(0) if self.ways and self.where in path else ""
            if b"command=fetch" in body:
                self.packs.append(path.split("/")[1])
        if way in ("busy", "forbidden"):
            handler.send_error(503 if way == "busy" else 403)
            return
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": str(len(self.settings) + 1),
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command,
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": "" if self.first_protocol else handler.headers.get("Git-Protocol", ""),
        }
        for number, (key, value) in enumerate(self.settings.items(), start=1):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        if self.delay and b"command=fetch" in body:
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(self.delay)
            with self.lock:
                self.now -= 1
        handler.send_response(int(fields.pop("Status", "200").split()[0]))
        for key, value in fields.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if way in ("cut", "stall"):
            handler.wfile.write(content[: len(content) // 2])
            handler.wfile.flush()
            if way == "stall":
                self.stalled.set()
                self.over.wait(60)
            handler.close_connection = True
            return
        handler.wfile.write(content)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve while the block runs."""
    server = Server(folder)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()

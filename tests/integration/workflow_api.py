"""What GitHub tells of the jobs of a run, as far as our scripts ask: pages of jobs, runs of a workflow.

Names, states and keys are those of https://docs.github.com/en/rest/actions/workflow-jobs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

RUN, TOKEN = "4711", "ghs_0123456789abcdef"


class ActionsServer:
    """Knows the jobs of one run by their names. Whoever is queued has been so for ``hours``."""

    def __init__(self, hours: float = 4) -> None:
        self.hours = hours
        self.jobs: dict[tuple[str, ...], dict[str, object]] = {}
        self.asked: list[str] = []

    def begin(self, names: tuple[str, ...], label: str, status: str) -> None:
        """Note the state of a job."""
        created = datetime.now(timezone.utc) - timedelta(hours=self.hours)
        self.jobs[names] = {
            "name": " / ".join(names),
            "status": status,
            "labels": [label],
            "created_at": f"{created:%Y-%m-%dT%H:%M:%SZ}",
            "runner_name": None if status == "queued" else f"{label}-1",
        }

    def forget(self, names: tuple[str, ...]) -> None:
        """Take a job away that is none: it calls others."""
        self.jobs.pop(names, None)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer as long as this lasts; yield the address of the API."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()

    def _answer(self, url: str, token: str) -> tuple[int, dict[str, object]]:
        self.asked.append(url)
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        if token != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        size, page = (int(query[key][0]) for key in ("per_page", "page"))
        part = slice((page - 1) * size, page * size)
        if path.endswith(f"/actions/runs/{RUN}/jobs"):
            return 200, {"total_count": len(self.jobs), "jobs": [*self.jobs.values()][part]}
        if path.endswith("/actions/workflows/nightly.yml/runs"):
            runs = [{"id": int(RUN)}] if self.jobs and query["status"] == ["in_progress"] else []
            return 200, {"total_count": len(runs), "workflow_runs": runs[part]}
        return 404, {"message": "Not Found"}

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, document = server._answer(self.path, self.headers.get("Authorization", ""))
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        return Handler

"""A server that answers as GitHub's REST API documents, as far as issues go; and a webhook beside it.

Source: docs.github.com/en/rest/issues, version 2022-11-28.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

TOKEN = "ghs_0123456789abcdef"


@dataclass
class Github:
    """A server that answers as GitHub's REST API documents; ``pushes``: the token may set labels."""

    pushes: bool = True
    page: int = 2
    issues: list[dict[str, Any]] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    hook_status: int = 204
    url: str = ""

    def answer(self, method: str, path: str, query: str, body: Any, token: str) -> tuple[int, Any, str]:
        """Return status, JSON, and the address of the next page."""
        if path == "/hook/s3cret":
            self.hooks.append(body)
            return self.hook_status, None, ""
        if token != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}, ""
        root = "/repos/rocm/wheels"
        if path == f"{root}/labels/rocm-wheels-failure":
            return (200, {}, "") if self.labels else (404, {"message": "Not Found"}, "")
        if (method, path) == ("POST", f"{root}/labels"):
            if not self.pushes:
                return 403, {"message": "Resource not accessible by integration"}, ""
            self.labels.add(body["name"])
            return 201, {}, ""
        if (method, path) == ("GET", f"{root}/issues"):
            wanted = dict(part.split("=") for part in query.split("&"))
            label = wanted["labels"]
            listed = [
                item
                for item in self.issues
                if item["state"] == wanted["state"] and label in [x["name"] for x in item["labels"]]
            ]
            number = int(wanted.get("page", 1))
            following = f"{self.url}{root}/issues?labels={label}&state={wanted['state']}&page={number + 1}"
            more = len(listed) > number * self.page
            return 200, listed[(number - 1) * self.page : number * self.page], following if more else ""
        if (method, path) == ("POST", f"{root}/issues"):
            labels = [{"name": name} for name in body["labels"] if self.pushes]
            issue = {
                **body,
                "number": len(self.issues) + 1,
                "state": "open",
                "labels": labels,
                "comments": [],
            }
            self.issues.append(issue)
            return 201, issue, ""
        for issue in self.issues:
            if path == f"{root}/issues/{issue['number']}" and method == "PATCH":
                issue.update(body)
                return 200, issue, ""
            if path == f"{root}/issues/{issue['number']}/comments" and method == "POST":
                issue["comments"].append(body["body"])
                return 201, {}, ""
        return 404, {"message": "Not Found"}, ""


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[Github]:
    found = Github()

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path, _, query = self.path.partition("?")
            token = self.headers.get("Authorization", "")
            status, content, following = found.answer(self.command, path, query, body, token)
            data = json.dumps(content).encode() if content is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if following:
                self.send_header("Link", f'<{following}>; rel="next"')
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _respond

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GITHUB_API_URL", found.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    yield found
    server.shutdown()
    server.server_close()

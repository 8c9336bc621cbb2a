"""The server for tests answers as servers of indexes do."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from index_wheels import NOW, wheel

from rocm_wheels.cli import boundary, index
from rocm_wheels.index import pages, reader, update
from rocm_wheels.index.server import IndexServer, serve_folder

TORCH = "/torch/torch-2.9.1%2Brocm7.1.0-py3-none-any.whl"
PIP = f"{pages.JSON_TYPE}, {pages.HTML_TYPE}; q=0.1, text/html; q=0.01"
HTML = "text/html; charset=utf-8"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret").write_text("secret")
    update.add_wheels(folder / "index", [wheel(folder)], now=NOW)
    with serve_folder(folder / "index") as running:
        yield running


def ask(
    server: IndexServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    host, port = server.server_address[:2]
    connection = HTTPConnection(str(host), port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, content


ACCEPTED = [
    ("", HTML),
    ("*/*", HTML),
    ("text/html", HTML),
    (PIP, pages.JSON_TYPE),
    (f"{pages.JSON_TYPE};q=0.2, text/html", HTML),
    (pages.HTML_TYPE, f"{pages.HTML_TYPE}; charset=utf-8"),
    ("application/vnd.pypi.simple.latest+json", pages.JSON_TYPE),
]


@pytest.mark.parametrize(("accept", "kind"), ACCEPTED)
def test_the_form_is_chosen_by_accept(server: IndexServer, accept: str, kind: str) -> None:
    for path in ("/", "/torch/"):
        status, headers, content = ask(server, path, Accept=accept)
        assert (status, headers["content-type"], headers["vary"]) == (200, kind, "Accept")
        assert content.startswith(b"{" if kind == pages.JSON_TYPE else b"<!DOCTYPE html>")


def test_the_form_can_be_asked_for_in_the_url(server: IndexServer) -> None:
    status, headers, content = ask(server, f"/torch/?format={pages.JSON_TYPE.replace('+', '%2B')}")
    assert (status, headers["content-type"]) == (200, pages.JSON_TYPE)
    assert json.loads(content)["name"] == "torch"
    assert ask(server, "/torch/", Accept="image/png")[0] == 406


STATUS = [
    ("/none/", 404),
    ("/torch/none.whl", 404),
    ("/.index/torch.jsonl", 404),
    ("/../secret", 404),
    ("/%2e%2e/secret", 404),
    ("/torch/%00", 404),
    (f"/{'a' * 5000}/", 404),
    ("/torch", 301),
    (TORCH, 200),
    (TORCH.replace("%2B", "+"), 200),
    (f"{TORCH}.metadata", 200),
]


@pytest.mark.parametrize(("path", "status"), STATUS)
def test_what_is_there(server: IndexServer, path: str, status: int) -> None:
    assert ask(server, path)[0] == status
    found, headers, content = ask(server, path, "HEAD")
    assert (found, content) == (status, b"")
    assert int(headers["content-length"]) > 0


RANGES = [
    ("bytes=0-3", 206, slice(0, 4)),
    ("bytes=4-", 206, slice(4, None)),
    ("bytes=-5", 206, slice(-5, None)),
]
RANGES += [("bytes=999999-", 416, slice(0, 0)), ("lines=1-2", 200, slice(None))]


@pytest.mark.parametrize(("asked", "status", "part"), RANGES)
def test_parts_of_files(server: IndexServer, asked: str, status: int, part: slice) -> None:
    whole = ask(server, TORCH)[2]
    found, headers, content = ask(server, TORCH, Range=asked)
    assert found == status
    if status != 416:
        assert content == whole[part]
    if status == 206:
        assert headers["content-range"].endswith(f"/{len(whole)}")


def test_a_client_that_leaves_is_no_matter(
    server: IndexServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(tmp_path / "large.bin", "wb") as file:
        file.truncate(64 << 20)
    with serve_folder(tmp_path) as other:
        with socket.create_connection(other.server_address[:2]) as leaving:
            leaving.sendall(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            leaving.recv(1)  # the rest is not read: the connection is reset
        assert ask(other, "/none")[0] == 404
    other.server_close()
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken(server: IndexServer, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert boundary.run_command(index.serve, [str(server.folder), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_no_proxy_stands_between_us_and_a_server_of_this_machine(
    server: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert reader.IndexReader(retries=0).get(f"{server.url}torch/", accept=pages.HTML_TYPE).status == 200
    with pytest.raises(reader.UnreachableError):
        reader.IndexReader(retries=0).get("http://192.0.2.1/")  # others are asked through it

"""What servers and folders give out in place of a page of an index, and what commands say of it.

Four answers are told apart: a page, which may be empty; nothing there; a server that cannot be reached or
used; and what is no page, which never passes for an index without wheels.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from commands import Ended, call
from servers import Answer, FlakyServer, serving
from wheels import Draft

from rocm_wheels.index import reader

pytestmark = pytest.mark.contract

HTML, JSON = "text/html", "application/vnd.pypi.simple.v1+json"
WHEEL = "torch-2.9.0-py3-none-any.whl"
EMPTY = "<!DOCTYPE html><html><head><title>Links for torch</title></head><body></body></html>"
LINKS = f'<!DOCTYPE html><html><body><a href="{WHEEL}">{WHEEL}</a></body></html>'
FORM = '<form action="/login" method="post"><input name="user">{}<button>Sign in</button></form>'
PASSWORD = FORM.format('<input type="password" name="secret">')


def json_page(**changes: object) -> str:
    file = {"filename": WHEEL, "url": WHEEL, "hashes": {}, "core-metadata": False}
    page = {"meta": {"api-version": "1.1"}, "name": "torch", "versions": ["2.9.0"], "files": [file]}
    return json.dumps({**page, **changes})


# what a server gives out for a project's page: content type, content
UNREADABLE: dict[str, tuple[str, str | bytes]] = {
    "api-2.0": (JSON, json_page(meta={"api-version": "2.0"}, files=[])),
    "api-2.0-html": (HTML, f'<meta name="pypi:repository-version" content="2.0">{LINKS}'),
    "plain-json": ("application/json", json_page()),
    "json-error": (JSON, '{"errors": [{"status": 401, "message": "Unauthorized"}]}'),
    "plain-json-error": ("application/json; charset=utf-8", '{"message": "Unauthorized"}'),
    "json-files-object": (JSON, json_page(files={})),
    "json-list": (JSON, "[]"),
    "json-deep": (JSON, "[" * 100_000),
    "json-cut": (JSON, json_page()[:-20]),
    "json-projects": (JSON, '{"meta": {"api-version": "1.0"}, "projects": [{"name": "torch"}]}'),
    "json-as-html": (HTML, json_page()),
    "html-as-json": (JSON, LINKS),
    "login": (HTML, f"<html><title>Sign in</title>{PASSWORD}</html>"),
    "login-with-links": (HTML, f'<html>{PASSWORD}<a href="/">Home</a><a href="reset">Forgot it?</a></html>'),
    "login-by-name": (HTML, f"<html>{FORM.format('')}</html>"),
    "login-elsewhere": (HTML, '<html><a href="https://sso.example.org/start">Sign in</a></html>'),
    "login-by-script": (HTML, '<html><div id="root"></div><script src="/app.js"></script></html>'),
    "other-projects": (
        HTML,
        '<html><a href="/simple/torch/">torch</a><a href="/simple/vision/">v</a></html>',
    ),
    "octets": ("application/octet-stream", LINKS),
    "plain-text": ("text/plain", LINKS),
    "no-type": ("", LINKS),
    "text-as-html": (HTML, "Service is being maintained"),
    "nothing": (HTML, ""),
    "nothing-as-json": (JSON, ""),
    "gzip": (HTML, gzip.compress(LINKS.encode())),
    "binary": (HTML, bytes(range(256))),
    "utf-16": (HTML, LINKS.encode("utf-16")),
    "utf-16-unmarked": (f"{HTML}; charset=utf-16", LINKS.encode("utf-16-le")),
    "latin-1": (HTML, f"<p>caf\xe9{LINKS}".encode("latin-1")),
    "odd-section": (HTML, "<html><![SECRET[x]]></html>"),
    "not-a-url": (HTML, '<html><a href="http://[half/">x</a></html>'),
}
# the same, of what every reader has to read
READABLE: dict[str, tuple[str, str]] = {
    "html": (HTML, LINKS),
    "type-with-charset": ("Text/HTML; charset=UTF-8", LINKS),
    "html-type": ("application/vnd.pypi.simple.v1+html", LINKS),
    "json": (JSON, json_page()),
    "json-1.4": (JSON, json_page(meta={"api-version": "1.4"}, **{"alternate-locations": []})),
    "bare-links": (HTML, f"<a href={WHEEL}>{WHEEL}</a>"),
    "form-and-links": (HTML, f'<form action="refresh" method="post"><input type="submit"></form>{LINKS}'),
    "listing": (HTML, f'<a href="../">up</a><a href="?C=N">by name</a><a href="cpu/">cpu</a>{LINKS}'),
}
EMPTY_PAGES: dict[str, tuple[str, str]] = {
    "html": (HTML, EMPTY),
    "json": (JSON, json_page(files=[], versions=[])),
    "listing": (HTML, '<h1>Index of /torch</h1><a href="../">up</a><a href="?C=N">by name</a>'),
}


DAMAGED = Answer(200, {"Content-Type": HTML, "Content-Encoding": "gzip"}, b"no gzip")


class Pages(FlakyServer):
    """Gives out answers by path; a root page that links torch, a wheel, and 404 of all else."""

    def __init__(self, answers: dict[str, Answer], wheel: bytes = b"") -> None:
        super().__init__()
        root = '<!DOCTYPE html><html><body><a href="torch/">torch</a></body></html>'
        self.answers = {
            "/": Answer(200, {"Content-Type": HTML}, root.encode()),
            f"/torch/{WHEEL}": Answer(200, {"Content-Type": "application/octet-stream"}, wheel),
            **answers,
        }

    def answer(self, handler: BaseHTTPRequestHandler, sent: bytes, fault: str) -> Answer:
        return self.answers.get(handler.path, Answer(404, {}, b"no"))


def make_answer(kind: str, content: str | bytes, status: int = 200) -> Answer:
    content = content.encode() if isinstance(content, str) else content
    return Answer(status, {"Content-Type": kind} if kind else {}, content)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    draft = Draft("torch", "2.9.0", "py3-none-any", requires=["numpy"])
    return draft.write(tmp_path_factory.mktemp("wheel")).read_bytes()


@pytest.fixture
def server(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    monkeypatch.setitem(reader.IndexReader.__init__.__kwdefaults__, "retries", 0)
    with serving(Pages({}, wheel)) as running:
        yield running


def choose(index: str, *words: str, code: int = 0) -> Ended:
    machine = ("--gfx", "none", "--rocm", "none", "--python", "3.12", "--platform", "linux-x86_64")
    return call("choose", "torch", "--index", index, *machine, *words, code=code)


def read(index: str, **options: object) -> type[BaseException] | int | None:
    """Return what comes of reading torch's page: the number of links, None, or the class of the error."""
    base = index if index.endswith("/") else f"{index}/"
    try:
        page = reader.IndexReader(retries=0).read_page(base, f"{base}torch/", project="torch", **options)  # type: ignore[arg-type]
    except (reader.UnreachableError, reader.UnreadablePageError) as error:
        return type(error)
    return None if page is None else len(page)


def list_answers() -> Iterator[tuple[str, dict[str, Answer], object, int, int | None]]:
    """Yield answers by name: what is given out, what reading gives, exit codes of choosing and verifying."""
    for name, page in UNREADABLE.items():
        yield name, {"/torch/": make_answer(*page)}, reader.UnreadablePageError, 2, 14
    for name, page in READABLE.items():
        yield f"page {name}", {"/torch/": make_answer(*page)}, int, 0, None
    for name, page in EMPTY_PAGES.items():
        yield f"empty {name}", {"/torch/": make_answer(*page)}, int, 17, None
    for number, content in enumerate((PASSWORD, "<html><p>Who?</html>", LINKS.replace(WHEEL, "help"))):
        led = {"/torch/": Answer(302, {"Location": "/login"}, b""), "/login": make_answer(HTML, content)}
        yield f"led to a login {number}", led, reader.UnreadablePageError, 2, None
    yield "damaged encoding", {"/torch/": DAMAGED}, reader.UnreadablePageError, 2, 14
    for status in (401, 407, 429, 500, 502, 503):  # a server that fails or refuses is out of reach
        yield str(status), {"/torch/": make_answer(HTML, LINKS, status)}, reader.UnreachableError, 17, None
    for status in (404, 410):  # absent, whatever is shown to people with it
        yield str(status), {"/torch/": make_answer(HTML, PASSWORD, status)}, None, 17, None


@pytest.mark.parametrize(
    ("answers", "read_as", "chosen", "verified"),
    [pytest.param(*row, id=name) for name, *row in list_answers()],
)
def test_every_answer_is_one_of_four(
    answers: dict[str, Answer], read_as: object, chosen: int, verified: int | None, server: Pages
) -> None:
    server.answers |= answers
    found = read(server.url)
    assert isinstance(found, int) if read_as is int else found is read_as
    choose(server.url, code=chosen)
    if verified is not None:
        call("index", "verify", server.url, code=verified)


def test_a_page_may_be_elsewhere(server: Pages) -> None:
    server.answers |= {
        "/torch/": Answer(301, {"Location": "/cdn/Torch/index.html"}, b""),
        "/cdn/Torch/index.html": make_answer(HTML, LINKS.replace(f'"{WHEEL}', f'"/torch/{WHEEL}')),
    }
    choose(server.url)
    server.answers["/cdn/Torch/index.html"] = make_answer(HTML, EMPTY)
    assert read(server.url) == 0


FAILURES = [  # what a server answers for the page, and what is said of it
    (Answer(302, {"Location": "ftp://files.example/"}, b""), "it is, or leads to, no address of a server"),
    (Answer(302, {"Location": "http://[half/"}, b""), "it is, or leads to, no address of a server"),
    (Answer(302, {"Location": "/torch/"}, b""), "it redirects without end"),
    (DAMAGED, "is not encoded as it says"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES, ids=["scheme", "url", "loop", "encoding"])
def test_a_failure_is_told_in_words_of_ours(
    answer: Answer, reason: str, server: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "0")
    server.answers["/torch/"] = answer
    assert reason in call("index", "verify", server.url, code=14).out
    server.answers["/"] = answer
    assert reason in call("index", "verify", server.url, code=(2, 17)).err


@pytest.mark.parametrize(
    "url", ["http://[half/", "http://127.0.0.1:99999/", "http:///x/", f"http://{'a' * 70}.example/"]
)
def test_an_address_that_is_none_is_told(url: str) -> None:
    assert "Failed to parse" not in call("index", "verify", url, code=(2, 17)).err


def test_a_server_that_is_not_there_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"  # nobody listens
        assert read(url) is reader.UnreachableError
        choose(url, code=17)
        call("index", "verify", url, code=17)
    assert read("http://no-such-server.invalid/") is reader.UnreachableError


@pytest.mark.parametrize(
    ("status", "kind"),
    [*((status, reader.UnusableAnswerError) for status in (200, 416, 501)), (500, reader.UnreachableError)],
)
def test_a_server_without_ranges_is_not_one_out_of_reach(
    status: int, kind: type[Exception], server: Pages, wheel: bytes
) -> None:
    server.answers[f"/torch/{WHEEL}"] = make_answer("application/octet-stream", wheel, status)
    with pytest.raises(reader.UnreachableError) as failure:
        reader.IndexReader(retries=0).fetch_metadata_and_variant(f"{server.url}/torch/{WHEEL}", WHEEL, None)
    assert type(failure.value) is kind


@pytest.mark.parametrize("name", ["api-2.0", "login", "octets"])
def test_other_commands_say_so_too(
    name: str, server: Pages, wheel: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.url}/dependencies/")
    new = tmp_path / "torch-2.9.1-py3-none-any.whl"
    new.write_bytes(wheel)
    index = ("--index", server.url)
    machine = ("--gfx", "none", "--dry-run", "--python", sys.executable)
    commands = {
        "/torch/": [
            ["install", "torch", *index, *machine],
            ["audit", "--set", server.url],
            ["index", "resolve-check", server.url, str(new)],
        ],
        "/dependencies/numpy/": [["install", "torch", *index, *machine]],
    }
    for path, lines in commands.items():
        server.answers["/torch/"] = make_answer(*READABLE["html"])
        server.answers[path] = make_answer(*UNREADABLE[name])
        for line in lines:
            told = call(*line, code=2)
            assert "Usage:" not in told.err
            assert path in told.err  # the page, not the command line


@pytest.mark.parametrize("name", ["api-2.0-html", "login", "gzip", "nothing", "other-projects"])
def test_pages_of_folders_are_judged_as_those_of_servers(name: str, tmp_path: Path) -> None:
    content = UNREADABLE[name][1]
    (tmp_path / "torch").mkdir()
    page = tmp_path / "torch" / "index.html"
    page.write_bytes(content.encode() if isinstance(content, str) else content)
    (tmp_path / "index.html").write_text('<!DOCTYPE html><a href="torch/">torch</a>')
    for place in (str(tmp_path), tmp_path.as_uri()):
        choose(place, code=2)
        call("index", "verify", place, code=14)


def test_a_root_page_that_is_none_is_no_index_without_projects(server: Pages) -> None:
    for name in ("login", "login-by-script", "octets", "api-2.0", "nothing"):
        server.answers["/"] = make_answer(*UNREADABLE[name])
        call("index", "verify", server.url, code=14)

"""Every fault of an index is found, in a folder and on a server; a right one has none."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from commands import call
from servers import Answer, FileServer, FlakyServer, serve_folder, serve_requests, serving
from wheels import NOW, Properties, variant, wheel

from rocm_wheels.core import errors
from rocm_wheels.index import reader, update, verify

pytestmark = pytest.mark.contract

TORCH = "torch-2.9.1+rocm7.1.0-py3-none-any.whl"
LINK = "torch-2.9.1%2Brocm7.1.0-py3-none-any.whl"
LABELS: dict[str, Properties] = {"null": {}, "gfx942": {"amd": {"gfx_arch": ["gfx942"]}}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A right index: a plain wheel, two variants, another project."""
    fresh, root = tmp_path / "fresh", tmp_path / "index"
    large = "x" * 100_000  # not read whole from a server
    update.add_wheels(
        root, [wheel(fresh, text=large), wheel(fresh, "triton", "3.6.0", requires=("numpy",))], now=NOW
    )
    labelled = [variant(fresh, label, values, namespaces=("amd",)) for label, values in LABELS.items()]
    update.add_wheels(root, labelled, now=NOW)
    return root


def edit(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        target = root / path
        text = target.read_text()
        assert old in text, text
        target.write_text(text.replace(old, new))

    return change


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


def plain(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """Make the change on an index as others write them: HTML only, no page for --find-links."""

    def on_plain(root: Path) -> None:
        for path in [*root.rglob("index.json"), root / "links.html"]:
            path.unlink()
        change(root)

    return on_plain


def drop(pattern: str) -> Callable[[Path], None]:
    """Remove something from every link of a page."""

    def change(root: Path) -> None:
        page = root / "torch/index.html"
        text, count = re.subn(pattern, "", page.read_text())
        assert count
        page.write_text(text)

    return change


def replaced(root: Path) -> None:
    path = root / "torch" / TORCH
    path.unlink()
    wheel(path.parent, text="other")


def renamed(root: Path) -> None:
    (root / "torch" / TORCH).rename(root / "triton" / TORCH)
    edit("triton/index.html", "</body>", f'<a href="{LINK}#sha256={"0" * 64}">{TORCH}</a><br>\n</body>')(root)


def damaged(root: Path) -> None:
    (root / "torch" / TORCH).write_bytes(b"PK and nothing")


def other_variants(root: Path) -> None:
    for path in root.rglob("*-variants.json"):
        document = json.loads(path.read_text())
        document["variants"]["gfx942"]["amd"]["gfx_arch"] = ["gfx1100"]
        path.write_text(json.dumps(document))


def unlist_variants(root: Path) -> None:
    page = root / "torch/index.html"
    lines = page.read_text().splitlines(keepends=True)
    page.write_text("".join(line for line in lines if "variants.json" not in line))


def offer_provenance(url: str) -> Callable[[Path], None]:
    """Have the page say that the plain wheel has a provenance object."""
    return plain(edit("torch/index.html", f">{TORCH}<", f' data-provenance="{url}">{TORCH}<'))


def wrong_object(root: Path) -> None:
    (root / "torch" / f"{TORCH}.provenance").write_bytes(b'{"version": 1, "attestation_bundles": []}')


# (fault, what is done to the index, others that come with it)
TABLE: list[tuple[str, Callable[[Path], None], set[str]]] = [
    ("broken-link", lambda root: (root / "torch" / TORCH).unlink(), set()),
    ("broken-link", plain(edit("index.html", "triton/", "tritan/")), {"not-normalized", "not-listed"}),
    ("bad-page", edit("torch/index.html", 'content="1.1"', 'content="2.0"'), set()),
    ("bad-page", lambda root: (root / "triton/index.html").write_bytes(b"\xff\xfe"), set()),
    ("bad-page", lambda root: (root / "triton/index.json").write_text("{}"), set()),
    ("not-normalized", plain(edit("index.html", 'href="triton/">triton', 'href="Triton/">Triton')), {"broken-link", "not-listed"}),
    ("not-normalized", plain(edit("index.html", 'href="triton/"', 'href="triton"')), {"not-listed"}),
    ("wrong-page", plain(renamed), {"broken-link", "wrong-hash", "no-metadata", "requires-python"}),
    ("bad-name", plain(edit("torch/index.html", f">{TORCH}<", ">torch<")), set()),
    ("bad-name", plain(edit("torch/index.html", "</body>", '<a href="../index.html#sha256=0">index.html</a></body>')), set()),
    ("unescaped-plus", plain(edit("torch/index.html", LINK, TORCH)), set()),
    ("no-hash", plain(drop(r"#sha256=[0-9a-f]{64}")), set()),
    ("wrong-hash", replaced, {"wrong-size"}),
    ("wrong-size", replaced, {"wrong-hash"}),
    ("no-metadata", plain(drop(r' data-(core|dist-info)-metadata="[^"]*"')), set()),
    ("missing-metadata", lambda root: (root / "torch" / f"{TORCH}.metadata").unlink(), set()),
    ("wrong-metadata", edit(f"torch/{TORCH}.metadata", "Requires-Python: >=3.10", "Requires-Python: >=3.9"), set()),
    ("requires-python", plain(drop(r' data-requires-python="[^"]*"')), set()),
    ("requires-python", plain(edit("torch/index.html", "&gt;=3.10", "&gt;=3.9")), set()),
    ("bad-wheel", damaged, {"wrong-hash", "wrong-size"}),
    ("missing-variants", plain(unlist_variants), set()),
    ("wrong-variants", other_variants, set()),
    ("variants-entry", plain(edit("torch/index.html", '">torch-2.9.1-variants', '" data-requires-python="x">torch-2.9.1-variants')), set()),
    ("provenance-url", offer_provenance("torch.provenance"), set()),
    ("provenance-url", offer_provenance("http://[half/torch.provenance"), set()),
    ("missing-provenance", offer_provenance("http://127.0.0.1:1/torch.provenance"), set()),
    ("wrong-provenance", both(wrong_object, offer_provenance("https://wheels.example.org/x.provenance")), set()),
    ("forms-differ", edit("torch/index.json", '"requires-python": ">=3.10"', '"requires-python": ">=3.11"'), set()),
    ("forms-differ", lambda root: (root / "links.html").write_text("<html></html>"), set()),
    ("stale-page", edit("torch/index.html", "</body>", "<!-- --></body>"), set()),
    ("stale-page", lambda root: (root / "torch/index.json").unlink(), set()),
    ("not-listed", edit("index.html", '<a href="triton/">triton</a><br>\n', ""), {"forms-differ"}),
]  # fmt: skip


def found(root: Path | str, retries: int = 0, **options: bool) -> set[str]:
    return {one.check for one in findings(root, retries, **options)}


def findings(root: Path | str, retries: int = 0, **options: bool) -> tuple[errors.Finding, ...]:
    return verify.verify_index(str(root), reach=reader.IndexReader(retries=retries), **options).findings


def test_a_right_index_has_no_faults(root: Path) -> None:
    assert verify.verify_index(str(root), full=True).findings == ()
    with serve_folder(root) as server:
        result = verify.verify_index(server.url, full=True)
        assert (result.findings, result.projects, result.files) == ((), 2, 5)
        told = call("index", "verify", server.url, "--json").json
    assert (told["passed"], told["files"], told["findings"]) == (True, 5, [])


@pytest.mark.parametrize(
    ("fault", "change", "others"), TABLE, ids=[f"{n}-{row[0]}" for n, row in enumerate(TABLE)]
)
def test_fault(root: Path, fault: str, change: Callable[[Path], None], others: set[str]) -> None:
    change(root)
    here = found(root) - {"stale-page", "forms-differ"}
    everything = found(root)
    assert fault in everything
    assert here - {fault} == others - {"stale-page", "forms-differ"}, everything
    if fault in ("stale-page", "not-listed", "wrong-provenance"):
        return  # seen in a folder only, or at a place that a page must name whole
    with serve_folder(root) as server:
        assert fault in found(server.url, full=True)


def test_the_table_has_every_fault() -> None:
    on_servers = {"forbidden", "wrong-type", "no-ranges"}
    assert {row[0] for row in TABLE} | on_servers == set(verify.FAULTS)


ODD_VALUES = [None, True, 1.5, "torch", "a/b-1.0.tar.gz", "http://[/x", "\ud800", [], {}]


@pytest.mark.parametrize("page", ["torch/index.json", "index.json"])
def test_no_page_as_json_is_too_odd_to_be_told(page: str, tmp_path: Path) -> None:
    """Whatever stands in place of any value, or nothing: findings, as of the rest of the index."""
    root = tmp_path / "index"
    update.add_wheels(root, [variant(tmp_path, "gfx942", LABELS["gfx942"], namespaces=("amd",))], now=NOW)
    content = json.loads((root / page).read_text())
    file = content.get("files", content.get("projects"))[-1]
    with serve_folder(root) as server:
        for holder in (content, file):
            for key, value in list(holder.items()):
                for odd in (*ODD_VALUES, ...):
                    holder.pop(key) if odd is ... else holder.update({key: odd})
                    (root / page).write_text(json.dumps(content))
                    assert isinstance(found(root), set)
                    found(server.url)
                    holder[key] = value


def test_families_are_read_too(root: Path, tmp_path: Path) -> None:
    update.add_wheels(root, [wheel(tmp_path / "f", "apex", "1.0")], now=NOW, family="gfx1100")
    assert verify.verify_index(str(root)).findings == ()
    (root / "gfx1100/apex/apex-1.0-py3-none-any.whl").unlink()
    (finding,) = verify.verify_index(str(root)).findings
    assert finding.check == "broken-link"
    assert "/gfx1100/apex/" in finding.subject


@contextmanager
def strange(root: Path, way: str) -> Iterator[str]:
    """Serve an index in a wrong way: ``forbidden``, ``wrong-type``, ``no-ranges``, ``unreadable``,
    ``broken`` (connections of wheels), ``busy`` (each path once)."""
    busy: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = root / self.path.lstrip("/").replace("%2B", "+")
            path = path / "index.html" if path.is_dir() else path
            if way == "busy" and self.path not in busy:
                busy.add(self.path)
                self.send_error(503)
                return
            if not path.is_file():
                self.send_error(403 if way == "forbidden" else 404)
                return
            content = path.read_bytes()
            if way == "broken" and path.suffix == ".whl":
                self.close_connection = True
                return
            if way == "unreadable" and path.suffix == ".whl" and self.command == "GET":
                self.send_error(500)
                return
            self.send_response(200)
            html = path.suffix == ".html" and way != "wrong-type"
            self.send_header("Content-Type", "text/html" if html else "binary/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_arguments: object) -> None:
            """Keep quiet."""

    with serve_requests(Handler) as url:
        yield url


@pytest.mark.parametrize("way", ["forbidden", "wrong-type"])
def test_servers(root: Path, way: str) -> None:
    with strange(root, way) as url:
        told = call("index", "verify", url, code=14)
    assert f"error: {way}: {url}/" in told.out
    assert f" in {url}" in told.err


def test_credentials_of_a_url_are_not_shown(root: Path) -> None:
    with strange(root, "forbidden") as url:
        for more in ([], ["--json"]):
            told = call("index", "verify", url.replace("//", "//user:geheim@"), *more, code=14)
            assert "geheim" not in told.out + told.err


def test_a_file_that_breaks_off_is_told(root: Path) -> None:
    """With --full files are read whole; one that can be looked at and not read is no crash."""
    with strange(root, "unreadable") as url:
        told = {one.message for one in findings(url, full=True) if one.check == "broken-link"}
    assert any("cannot be read whole: " in message for message in told)


def test_a_connection_that_breaks_is_told_in_plain_words(root: Path) -> None:
    with strange(root, "broken") as url:
        told = {one.message for one in findings(url) if one.check == "broken-link"}
    assert {message.partition(" cannot be reached: ")[2] for message in told} == {"the connection broke"}


def test_a_server_does_not_lead_to_this_disk(root: Path, tmp_path: Path) -> None:
    """A page that links to a file here would have it read, and its digest shown."""
    secret = tmp_path / "secret-1.0-py3-none-any.whl"
    secret.write_text("secret")
    for page in (root / "index.json", root / "torch" / "index.json"):
        page.unlink()
    for page in (root / "index.html", root / "torch" / "index.html"):
        text = page.read_text()
        page.write_text(text.replace("</body>", f'<a href="{secret.as_uri()}#sha256=0">secret</a></body>'))
    with serve_folder(root) as server:
        found = verify.verify_index(server.url, full=True).findings
    told = [one for one in found if secret.as_uri() in one.subject + one.message]
    assert {one.check for one in told} == {"broken-link", "forms-differ"}
    assert sum("leads from a server to a file of this machine" in one.message for one in told) == 2


def test_a_server_without_ranges_is_slow_not_wrong(root: Path) -> None:
    with strange(root, "no-ranges") as url:
        result = verify.verify_index(url)
    assert {finding.check for finding in result.findings} == {"no-ranges"}
    assert result.errors == ()


class EndlessPages(FlakyServer):
    """Answers with a page of 65 MiB, sent as 65 KiB."""

    def answer(self, handler: BaseHTTPRequestHandler, sent: bytes, fault: str) -> Answer:
        headers = {"Content-Type": "text/html", "Content-Encoding": "gzip"}
        return Answer(200, headers, gzip.compress(bytes(65 << 20)))


def test_a_page_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(EndlessPages()) as server:
        with pytest.raises(reader.UnusableAnswerError, match="sends more than 64 MiB"):
            reader.IndexReader().get(server.url)
        assert len(server.requests) == 1
        monkeypatch.setattr("rocm_wheels.index.http_session.MOST_SECONDS", -1.0)
        with pytest.raises(reader.UnusableAnswerError, match="did not come within"):
            reader.IndexReader().get(server.url)


def test_a_server_without_ranges_is_not_called_silent(tmp_path: Path) -> None:
    torch = wheel(tmp_path, text="x" * (80 << 10))
    served = FileServer({torch.name: torch.read_bytes()})
    served.ranges = False
    with serving(served):
        url = f"{served.url}/{torch.name}"
        with pytest.raises(reader.UnusableAnswerError, match=re.escape(torch.name)):
            reader.IndexReader().fetch_metadata_and_variant(url, torch.name, None)


def test_a_busy_server_is_asked_again(root: Path) -> None:
    with strange(root, "busy") as url:
        assert found(url, retries=2) == {"no-ranges"}


def test_no_proxy_stands_between_us_and_a_server_of_this_machine(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serve_folder(root) as server:
        assert reader.IndexReader(retries=0).get(f"{server.url}torch/").status == 200
    with pytest.raises(reader.UnreachableError):
        reader.IndexReader(retries=0).get("http://192.0.2.1/")  # others are asked through it

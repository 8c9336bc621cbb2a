"""One index of several: real installers take a name from its owner alone, whoever else offers it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import pytest
from commands import Ended, call, make_key, needs_ssh_keygen
from crash import Watched, before_first_call, killed_at_writes, run_on_full_disk
from pythons import make_environment
from servers import IndexHandler, IndexServer, a_bucket, serve_folder
from wheels import NOW, files, variant, wheel

from rocm_wheels.cli import evidence
from rocm_wheels.core import errors
from rocm_wheels.index import (
    federation,
    http_session,
    manifest,
    owners,
    pages,
    reader,
    signing,
    update,
    verify,
)
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.s3 import S3Store

pytestmark = [pytest.mark.slow]
SIGNED_AT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
PAGES = ("index.html", "index.json")
PACKAGES = {"torch": "2.9.0+rocm7.1.0", "triton": "3.5.0", "rocm-sdk-core": "7.1.0", "numpy": "2.3.0"}
OWNERS = """
sources:
  rocm: {url}rocm/
  ours: {url}ours/
  pypi: {url}pypi/
owners:
  rocm: rocm
  rocm-*: rocm
  torch: ours
  triton: ours
  numpy: pypi
"""


def lay_out(root: Path) -> None:
    """ROCm's packages; a torch and its triton; the rest, with a torch, triton and ROCm of strangers."""
    fresh = root.parent / "fresh"
    torch = {"requires": ("triton==3.5.0", "rocm-sdk-core==7.1.0", "numpy")}
    indexes = {
        "rocm": [wheel(fresh, "rocm_sdk_core", "7.1.0"), wheel(fresh, "rocm", "7.1.0")],
        "ours": [
            wheel(fresh, version="2.9.0+rocm7.1.0", **torch),  # type: ignore[arg-type]
            wheel(fresh, version="2.9.1+rocm7.1.0", **torch),  # type: ignore[arg-type]
            wheel(fresh, "triton", "3.5.0"),
        ],
        "pypi": [
            wheel(fresh, "numpy", "2.3.0"),
            wheel(fresh, version="99.0"),
            wheel(fresh / "strangers", "triton", "3.5.0", text="another one"),
            wheel(fresh, "rocm_sdk_core", "99.0"),
            wheel(fresh, "rocm_sdk_evil", "1.0"),
        ],
    }
    for name, wheels in indexes.items():
        update.add_wheels(root / name, wheels, now=NOW)
    update.yank_wheels(root / "ours", ["torch==2.9.1+rocm7.1.0"], reason="wrong kernels")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[IndexServer]:
    lay_out(tmp_path / "www")
    with serve_folder(tmp_path / "www") as server:
        yield server


def state_owners(folder: Path, server: IndexServer, *changes: tuple[str, str]) -> Path:
    text = OWNERS.format(url=server.url)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "owners.yaml"
    path.write_text(text)
    return path


def shown_by(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(folder).items() if name.endswith(PAGES)}


@pytest.mark.contract_slow
@pytest.mark.network
def test_installers_take_names_from_their_owners(
    installer: list[str], world: IndexServer, tmp_path: Path
) -> None:
    public = world.folder / "public"
    done = call("index", "federate", state_owners(tmp_path, world), public)
    assert "not taken from pypi: rocm-sdk-core, torch, triton" in done.out
    assert {path.parent.name for path in public.glob("*/index.html")} == {
        *("numpy", "rocm", "rocm-sdk-core", "torch", "triton")
    }
    assert not list(public.rglob("*.whl"))
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    env = {**kept, "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}
    target = tmp_path / "site"
    words = [*installer, "--index-url", f"{world.url}public/", "--target", str(target), "torch"]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = dict(path.name.removesuffix(".dist-info").split("-") for path in target.glob("*.dist-info"))
    assert found == {
        "torch": "2.9.0+rocm7.1.0",  # the newer one is yanked, as its owner says
        "triton": "3.5.0",
        "rocm_sdk_core": "7.1.0",
        "numpy": "2.3.0",
    }
    assert "another one" not in (target / "triton" / "__init__.py").read_text()


@pytest.mark.contract
def test_pages_say_all_that_their_owners_say(world: IndexServer, tmp_path: Path) -> None:
    labelled = variant(tmp_path / "variants", "a", {"rocm": {"version": ["7.2"]}}, version="3.0")
    update.add_wheels(world.folder / "ours", [labelled], now=NOW)
    public = world.folder / "public"
    call("index", "federate", state_owners(tmp_path, world), public)
    assert verify.verify_index(f"{world.url}public/").findings == ()
    assert verify.verify_index(str(public)).findings == ()
    theirs, shown = (
        json.loads((world.folder / f"{name}/torch/index.json").read_text()) for name in ("ours", "public")
    )
    for file in (*theirs["files"], *shown["files"]):
        file.pop("url")
    assert sorted(shown["files"], key=str) == sorted(theirs["files"], key=str)
    assert shown["meta"] == {"api-version": "1.2", "tracks": [f"{world.url}ours/torch/"]}
    assert (
        f'<meta name="pypi:tracks" content="{world.url}ours/torch/">'
        in (public / "torch/index.html").read_text()
    )
    links = reader.IndexReader().read_page("", f"{world.url}public/torch/", project="torch") or ()
    assert {link.url.rpartition("/")[0] for link in links} >= {f"{world.url}ours/torch"}


@pytest.mark.contract
def test_a_refresh_asks_what_changed_and_writes_that_alone(world: IndexServer, tmp_path: Path) -> None:
    """Folders have tags as good servers have; the server of the tests has none, and is asked for all."""
    stated, public = tmp_path / "owners.yaml", world.folder / "public"
    stated.write_text(OWNERS.format(url="www/"))
    first = call("index", "federate", stated, public, "--json").json["indexes"][str(public)]
    assert len(first["written"]) == 5
    before = {path: path.stat().st_mtime_ns for path in public.rglob("*") if path.is_file()}
    assert call("index", "federate", stated, public, "--json").json["indexes"][str(public)]["written"] == []
    assert {path: path.stat().st_mtime_ns for path in public.rglob("*") if path.is_file()} == before
    (public / "torch" / "index.html").write_text("somebody was here")
    shutil.copytree(world.folder / "pypi" / "torch", public / "triton-rocm")
    update.add_wheels(world.folder / "ours", [wheel(tmp_path, "triton", "3.6.0")], now=NOW)
    planned = call("index", "federate", stated, public, "--dry-run", "--json").json
    again = call("index", "federate", stated, public, "--json").json["indexes"][str(public)]
    assert again["written"] == ["torch", "triton"] and again["strays"] == ["triton-rocm"]
    shutil.rmtree(public / "triton-rocm")
    assert planned == {"dry_run": True, "indexes": {str(public): again}, "dropped": []}
    # within one disk links are relative: the folder can be served from anywhere
    assert '"size": ' in (public / "triton" / "index.json").read_text(), (
        "as their JSON says, and HTML does not"
    )
    page = (public / "triton" / "index.html").read_text()
    assert 'href="../../ours/triton/triton-3.6.0-py3-none-any.whl#sha256=' in page
    assert verify.verify_index(str(public)).findings == ()
    moved = tmp_path / "elsewhere"
    shutil.copytree(world.folder, moved)
    assert verify.verify_index(str(moved / "public")).findings == ()
    deeper = world.folder / "all" / "public"
    deeper.parent.mkdir()
    public.rename(deeper)
    call("index", "federate", stated, deeper)
    assert 'href="../../../ours/triton/triton-3.6.0' in (deeper / "triton" / "index.html").read_text()


def test_what_a_server_calls_unchanged_is_not_read_again(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []

    def answer(handler: IndexHandler) -> None:
        """As nginx and S3 do: a page has an ETag, and who has it already gets none."""
        path = Path(handler.translate_path(handler.path))
        tag = f'"{hashlib.md5(path.read_bytes()).hexdigest()}"' if path.is_file() else ""
        status = 404 if not tag else 304 if handler.headers.get("If-None-Match") == tag else 200
        answers.append((handler.path, status))
        handler.send_response(status)
        handler.send_header("ETag", tag)
        content = path.read_bytes() if status == 200 else b""
        handler.send_header("Content-Type", handler.guess_type(str(path)))
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    monkeypatch.setattr(IndexHandler, "do_GET", answer)
    stated, place = state_owners(tmp_path, world), tmp_path / "public"
    federate(stated, FolderStore(place))
    answers.clear()
    assert federate(stated, FolderStore(place)).written == ()
    read = {path for path, status in answers if status == 200}
    assert not any(path.count("/") > 2 for path in read), "only lists of names"
    assert sum(status == 304 for _, status in answers) == 5
    answers.clear()
    stated.write_text(stated.read_text().replace("  numpy: pypi\n", ""))
    federate(stated, FolderStore(place))
    assert not any(status == 304 for _, status in answers), "what was read for other owners is read again"


@pytest.mark.contract
@pytest.mark.usefixtures("s3")
def test_stores_in_s3(world: IndexServer, tmp_path: Path) -> None:
    """Links within a bucket are relative; those of a folder need to be said where people see them."""
    bucket = a_bucket()
    store = S3Store(bucket, "ours", os.environ)
    for path, content in files(world.folder / "ours").items():
        if not path.startswith("."):
            store.create(path, content)
    stated = state_owners(tmp_path, world, (f"ours: {world.url}ours/", f"ours: s3://{bucket}/ours"))
    call("index", "federate", stated, f"s3://{bucket}/public")
    shown = S3Store(bucket, "public", os.environ)
    page = json.loads(shown.read("torch/index.json").content)
    assert {file["url"].rpartition("/")[0] for file in page["files"]} == {"../../ours/torch"}
    (file,) = json.loads(shown.read("numpy/index.json").content)["files"]
    assert file["url"].startswith(f"{world.url}pypi/numpy/numpy-2.3.0")
    before = list(shown.listing(""))
    call("index", "federate", stated, f"s3://{bucket}/public")
    assert list(shown.listing("")) == before
    stated.write_text(stated.read_text().replace(f"{world.url}rocm/", str(world.folder / "rocm")))
    done = call("index", "federate", stated, f"s3://{bucket}/public", code=15)
    assert "is on this machine, and the index is not" in done.err and "url: https://" in done.err
    text = f"{{index: '{world.folder / 'rocm'}', url: https://rocm.example/simple}}"
    stated.write_text(stated.read_text().replace(str(world.folder / "rocm"), text))
    call("index", "federate", stated, f"s3://{bucket}/public")
    (file,) = json.loads(shown.read("rocm-sdk-core/index.json").content)["files"]
    assert file["url"].startswith("https://rocm.example/simple/rocm-sdk-core/rocm_sdk_core-7.1.0-")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("gone", "no files at their owner: torch (ours); the index stays"),
        ("empty", "no files at their owner: torch (ours); the index stays"),
        ("unreachable", "source ours: "),
        ("exchanged", "triton-3.5.0-py3-none-any.whl had sha256"),
        ("no hash", "states no sha256 of torch-2.9.0+rocm7.1.0-py3-none-any.whl"),
        ("garbage", "source ours: "),
    ],
)
def test_an_index_stays_when_a_source_is_not_as_it_was(
    fault: str, message: str, world: IndexServer, tmp_path: Path
) -> None:
    public, ours = world.folder / "public", world.folder / "ours"
    stated = state_owners(tmp_path, world)
    call("index", "federate", stated, public)
    before = files(public)
    if fault == "gone":
        shutil.rmtree(ours / "torch")
    elif fault == "unreachable":
        stated.write_text(stated.read_text().replace(f"{world.url}ours/", "http://127.0.0.1:9/"))
    elif fault == "exchanged":
        shutil.rmtree(ours / "triton")
        update.add_wheels(ours, [wheel(tmp_path / "other", "triton", "3.5.0", text="other")], now=NOW)
    else:  # a source with pages as HTML alone
        for page in ours.rglob("index.json"):
            page.unlink()
        page = ours / "torch" / "index.html"
        contents = {
            "empty": pages.make_project_html("torch", []).decode(),
            "garbage": "<form><input type=password></form>",
            "no hash": re.sub("#sha256=[0-9a-f]+", "", page.read_text()),
        }
        page.write_text(contents[fault])
    done = call("index", "federate", stated, public, code=15)
    assert message in done.err
    assert files(public) == before
    if fault in ("gone", "empty"):
        done = call("index", "federate", stated, public, "--drop-missing")
        assert "dropped: torch" in done.out and "without a project: torch" in done.out
        assert call("index", "federate", stated, public, code=15).err.startswith("error: no files at")
        assert not (public / "torch").exists()
        assert "torch" not in (public / "index.html").read_text()
    if fault == "no hash":
        text = stated.read_text().replace(
            f"ours: {world.url}ours/", f"ours: {{index: '{world.url}ours/', allow_no_hash: true}}"
        )
        stated.write_text(text)
        known = re.findall("#sha256=[0-9a-f]+", (public / "torch" / "index.html").read_text())
        new = wheel(tmp_path, version="2.9.9")
        page.write_text(page.read_text().replace("</body>", f"<a href='{new.name}'>it</a></body>"))
        assert "files without sha256: torch" in call("index", "federate", stated, public).out
        shown = (public / "torch" / "index.html").read_text()
        assert "torch-2.9.9" in shown, "and of what had one it is known still"
        assert re.findall("#sha256=[0-9a-f]+", shown) == known and len(known) == 2


TROUBLES = {  # of the page of one name: what a server does, and what is said
    "500": "answers 500",
    "401": "answers 401",
    "304": "answers 304",
    "404": "no files at their owner: numpy (pypi)",
    "hangs": "the server is silent",
    "drips": "did not come within",
    "large": "sends more than 0 MiB",
    "cut": "cannot be reached",
    "gzip": "is not encoded as it says",
    "loop": "redirects without end",
    "type": "it comes as image/png",
    "login": "it is for people",
}


def answer_wrongly(handler: IndexHandler, trouble: str) -> None:
    """Answer with a status of trouble, or with a page that is not as its head says."""
    status = int(trouble) if trouble.isdigit() else 302 if trouble == "loop" else 200
    content = b"<form><input type=password></form>" if trouble == "login" else b" " * 3000
    content = content if status == 200 else b""
    kind, size = "image/png" if trouble == "type" else "text/html", len(content) + (trouble == "cut")
    if trouble == "hangs":
        time.sleep(1.5)
    handler.send_response(status)
    for name, value in {"Content-Type": kind, "Content-Length": size, "Location": handler.path}.items():
        handler.send_header(name, str(value))
    handler.send_header("Connection", "close")
    if trouble == "gzip":
        handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    for number in range(0, len(content), 100):
        handler.wfile.write(content[number : number + 100])
        time.sleep(0.1 if trouble == "drips" else 0)
    handler.close_connection = True


@pytest.mark.contract
def test_a_server_in_trouble_leaves_the_index_as_it_was(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "0")
    monkeypatch.setenv("ROCM_WHEELS_TIMEOUT", "1")
    stated, public, get = tmp_path / "owners.yaml", tmp_path / "public", IndexHandler.do_GET
    stated.write_text(f"sources: {{pypi: '{world.url}pypi/'}}\nowners: {{numpy: pypi}}\n")
    federate(stated, FolderStore(public))
    before = files(public)
    for trouble, message in TROUBLES.items():

        def answer(handler: IndexHandler, trouble: str = trouble) -> None:
            answer_wrongly(handler, trouble) if "/numpy/" in handler.path else get(handler)

        with monkeypatch.context() as patch:
            patch.setattr(IndexHandler, "do_GET", answer)
            patch.setattr(http_session, "MOST_SECONDS", 0.5 if trouble == "drips" else 60)
            patch.setattr(http_session, "MOST_BYTES", 2000 if trouble == "large" else 1 << 20)
            done = call("index", "federate", stated, public, code=15)
        assert "source pypi: " in done.err or trouble == "404"
        assert message in done.err and files(public) == before, trouble
    assert federate(stated, FolderStore(public)).written == ()


FORGED_FILES: dict[str, tuple[dict[str, Any], str]] = {  # keys of a file on an owner's page, and what is said
    "size": ({"size": True}, "it is damaged, or of another form"),
    "digest": ({"hashes": {"sha256": "../" * 20 + "torc"}}, "which is none"),
    "weak digest": ({"hashes": {"md5": "0" * 32}}, "states no sha256 of numpy-2.3.0-py3-none-any.whl"),
    "metadata": ({"core-metadata": {"sha256": "x"}}, "which is none"),
    "secret": ({"provenance": "https://me:secret@pypi.org/x.provenance"}, "holds a password"),
    "token": ({"provenance": "https://pypi.org/x?token=secret"}, "or was signed for a time"),
    "relative": ({"provenance": "../x.provenance"}, "is no address that others can reach"),
    "half": ({"provenance": "https://[half"}, "is no address"),
    "bracket": ({"url": "https://[half/numpy-2.3.0-py3-none-any.whl"}, "is damaged, or of another form"),
    "number": ({"requires-python": 3}, "it is damaged, or of another form"),
}


@pytest.mark.contract
def test_what_a_page_forges_is_refused_or_stays_text(world: IndexServer, tmp_path: Path) -> None:
    stated, public = tmp_path / "owners.yaml", tmp_path / "public"
    stated.write_text("sources: {pypi: www/pypi}\nowners: {NumPy: pypi}\n")
    page = world.folder / "pypi" / "numpy" / "index.json"
    top = json.loads(page.read_text())
    (file,) = top["files"]
    for name, (changes, message) in FORGED_FILES.items():
        page.write_text(json.dumps({**top, "files": [{**file, **changes}]}))
        done = call("index", "federate", stated, public, code=15)
        assert message in done.err and "secret" not in done.err, name
        assert not public.exists()
    texts = {"yanked": "</a><script>", "requires-python": '>=3"><script>', "upload-time": "<script>"}
    odd = {**file, "filename": "x", "url": "numpy-1.0%0A::error::x%1b[2J.whl"}
    tracks = [
        "https://me:secret@pypi.org/simple/numpy/",
        "https://[half",
        "javascript:x",
        "http://inside/numpy/",
    ]
    meta = {**top["meta"], "tracks": tracks}
    page.write_text(json.dumps({**top, "meta": meta, "files": [{**file, **texts, "size": -1}, odd]}))
    done = call("index", "federate", stated, public)
    assert "files left out: 'numpy-1.0\\n::error::x\\x1b[2J.whl'" in done.out
    shown = json.loads((public / "numpy" / "index.json").read_text())
    assert shown["meta"] == {"api-version": "1.0", "tracks": ["http://inside/numpy/"]}
    assert {key: shown["files"][0][key] for key in texts} == texts and "size" not in shown["files"][0]
    html = (public / "numpy" / "index.html").read_text()
    assert "<script" not in html and "secret" not in html


@pytest.mark.contract
def test_an_encrypted_connection_is_checked_and_stays_one(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", "0")
    files_of_tls = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    words += " -addext subjectAltName=IP:127.0.0.1"
    command = [*words.split(), "-keyout", files_of_tls[0], "-out", files_of_tls[1]]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files_of_tls[1], files_of_tls[0])
    stated, public, get = tmp_path / "owners.yaml", tmp_path / "public", IndexHandler.do_GET
    with serve_folder(world.folder) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        stated.write_text(f"sources: {{pypi: '{url}pypi/'}}\nowners: {{numpy: pypi}}\n")
        assert "certificate" in call("index", "federate", stated, public, code=15).err
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", files_of_tls[1])
        call("index", "federate", stated, public)

        def lead_away(handler: IndexHandler) -> None:
            if handler.server is world or "/numpy/" not in handler.path:
                return get(handler)
            handler.send_response(301)
            handler.send_header("Location", f"{world.url}{handler.path.lstrip('/')}")
            handler.send_header("Content-Length", "0")
            return handler.end_headers()

        monkeypatch.setattr(IndexHandler, "do_GET", lead_away)
        done = call("index", "federate", stated, public, code=15)
        assert f"leads to {world.url}pypi/numpy/" in done.err


@pytest.mark.contract
def test_a_password_of_a_source_is_nowhere_but_in_netrc(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that a server puts into the address that it leads to."""
    get = IndexHandler.do_GET
    expected = f"Basic {base64.b64encode(b'me:secret').decode()}"

    def ask_for_password(handler: IndexHandler) -> None:
        if handler.headers.get("Authorization") != expected:
            return handler.send_error(401)
        if handler.path != "/pypi/numpy/index.json" or not (world.folder / "moved").exists():
            return get(handler)
        handler.send_response(302)
        handler.send_header("Location", f"http://me:secret@127.0.0.1:{world.server_port}/moved/index.json")
        handler.send_header("Content-Length", "0")
        return handler.end_headers()

    monkeypatch.setattr(IndexHandler, "do_GET", ask_for_password)
    stated, public = tmp_path / "owners.yaml", tmp_path / "public"
    stated.write_text(f"sources: {{pypi: '{world.url}pypi/'}}\nowners: {{numpy: pypi}}\n")
    assert "in ~/.netrc, or in the URL of an option" in call("index", "federate", stated, public, code=15).err
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    shutil.copytree(world.folder / "pypi" / "numpy", world.folder / "moved")
    done = call("index", "federate", stated, public, code=15)
    assert "holds a password" in done.err and "secret" not in done.err
    shutil.rmtree(world.folder / "moved")
    done = call("index", "federate", stated, public)
    assert "secret" not in done.out + done.err
    assert not any(b"secret" in content for content in files(public).values())


@pytest.mark.contract
@pytest.mark.parametrize("room", [0, 900])
def test_a_full_disk_leaves_what_the_same_command_finishes(
    room: int, world: IndexServer, tmp_path: Path
) -> None:
    stated, public = tmp_path / "owners.yaml", tmp_path / "public"
    stated.write_text(OWNERS.format(url="www/"))
    code, told = run_on_full_disk(["index", "federate", str(stated), str(public)], room)
    assert code == 15 and "cannot write" in told
    call("index", "federate", stated, public)
    assert verify.verify_index(str(public)).findings == ()


@needs_ssh_keygen
@pytest.mark.contract
@pytest.mark.usefixtures("s3")
def test_a_whole_bucket_is_a_source_of_a_signed_index_in_it(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bucket, signer = a_bucket(), make_signer(tmp_path)
    store = S3Store(bucket, "", os.environ)
    for path, content in files(world.folder / "ours").items():
        if not path.startswith("."):
            store.create(path, content)
    page = json.loads(store.read("triton/index.json").content)
    link = f"{urljoin(store.url_of('index.html'), '.hidden/')}{page['files'][0]['filename']}"
    page["files"][0]["url"] = link  # no file of a store: there is no METADATA to be read of it
    stored = store.read("triton/index.json")
    store.replace("triton/index.json", json.dumps(page).encode(), stored.tag)
    stated = tmp_path / "owners.yaml"
    stated.write_text(f"sources: {{ours: 's3://{bucket}'}}\nowners: {{triton: ours, torch: ours}}\n")
    words = ["index", "federate", stated, f"s3://{bucket}/all", "--sign-with", signer.key]
    assert ", signed" in call(*words).out
    shown = S3Store(bucket, "all", os.environ)
    content = shown.read("torch/index.json").content
    assert {file["url"].rpartition("/")[0] for file in json.loads(content)["files"]} == {"../../torch"}
    signed = shown.read("all.manifest.json").content
    known = manifest.verify_manifest(signed, "it", signer.trusted, signer.env).manifest
    assert (known.family, known.channel) == ("all", "all") and known.states_content(
        "torch/index.json", content
    )
    before = list(shown.listing(""))
    assert ", signed" not in call(*words).out and list(shown.listing("")) == before


def test_the_first_run_names_what_nobody_has(world: IndexServer, tmp_path: Path) -> None:
    stated = state_owners(tmp_path, world, ("  numpy: pypi", "  numpy: pypi\n  scipy: pypi\n  hip-*: rocm"))
    done = call("index", "federate", stated, tmp_path / "public", code=15)
    assert "no files at their owner: scipy (pypi)" in done.err
    stated.write_text(stated.read_text().replace("  scipy: pypi\n", "").replace("  numpy: pypi\n", ""))
    done = call("index", "federate", stated, tmp_path / "public")
    assert "without a project: hip-*" in done.out and "required, and not listed: numpy" in done.out


def test_files_of_others_on_a_page_are_left_out(world: IndexServer, tmp_path: Path) -> None:
    """A page of numpy with a torch, files of former times, and the links of a server that lists a folder."""
    ours = world.folder / "pypi"
    for page in ours.rglob("index.json"):
        page.unlink()
    page = ours / "numpy" / "index.html"
    digest = f"#sha256={'0' * 64}"
    names = (
        "torch-99.0-py3-none-any.whl",
        "torch-99.0-variants.json",
        "numpy-1.0.win32.exe",
        "numpy-1.0.zip",
        "numpy-not.a.version-x.whl",
    )
    links = [f'<a href="{name}{digest}">{name}</a>\n' for name in names]
    others = (
        "<meta name=base content='https://evil.example/'><base href='./'><base href='https://evil.example/'>"
    )
    page.write_text(
        page.read_text().replace("<body>", f"{others}<body><a href='../'>up</a>" + "".join(links))
    )
    result = federate(state_owners(tmp_path, world), FolderStore(tmp_path / "public"))
    assert result.left_out == names
    (file,) = json.loads((tmp_path / "public/numpy/index.json").read_text())["files"]
    assert file["filename"] == "numpy-2.3.0-py3-none-any.whl" and "size" not in file
    assert file["url"].startswith(f"{world.url}pypi/numpy/"), "by the first base, as for pip and uv"
    meta = json.loads((tmp_path / "public/numpy/index.json").read_text())["meta"]
    assert meta["api-version"] == "1.0", "later ones state every size"


def test_a_page_that_installers_would_read_otherwise(world: IndexServer, tmp_path: Path) -> None:
    """Of two links of one name each may take another one; and some texts cannot be in any page."""
    page = world.folder / "pypi" / "numpy" / "index.json"
    top = json.loads(page.read_text())
    (file,) = top["files"]
    twin = {**file, "url": f"other%2F{file['url']}"}
    stated, public = state_owners(tmp_path, world), tmp_path / "public"
    page.write_text(json.dumps({**top, "files": [{**file, "yanked": "\ud800"}]}))
    done = call("index", "federate", stated, public, code=15)
    assert "source pypi: " in done.err and "it is damaged, or of another form" in done.err
    page.write_text(json.dumps({**top, "files": [twin, twin]}))
    assert federate(stated, FolderStore(public)).left_out == ()
    assert "/numpy/other%2Fnumpy-2.3.0-py3-none-any.whl#sha256=" in (public / "numpy/index.html").read_text()
    newer = {**file, "filename": "numpy-2.4-py3-none-any.whl", "url": "numpy-2.4-py3-none-any.whl"}
    other = {**newer, "hashes": {"sha256": "0" * 64}}
    page.write_text(json.dumps({**top, "files": [twin, newer, other]}))
    assert "files left out: numpy-2.4-py3-none-any.whl" in call("index", "federate", stated, public).out
    assert "numpy-2.4" not in (public / "numpy/index.html").read_text()


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("https://cdn.example/numpy-2.3.0-py3-none-any.whl?X-Amz-Signature=secret", "was signed for a time"),
        ("https://me:secret@cdn.example/numpy-2.3.0-py3-none-any.whl", "holds a password"),
        ("file:///etc/numpy-2.3.0-py3-none-any.whl", "is no address that others can reach"),
        ("javascript:/numpy-2.3.0-py3-none-any.whl", "is no address that others can reach"),
        ("../../files/numpy-2.3.0-py3-none-any.whl", "lies above what is seen at https://seen.example/"),
    ],
)
def test_links_that_do_not_last_are_refused(
    link: str, fault: str, world: IndexServer, tmp_path: Path
) -> None:
    page = world.folder / "pypi" / "numpy" / "index.json"
    (world.folder / "pypi" / "index.json").unlink()
    text = page.with_suffix(".html").read_text()
    page.with_suffix(".html").write_text(re.sub('href="numpy[^#"]*', f'href="{link}', text))
    page.unlink()
    source = f"{{index: '{world.url}pypi/', url: 'https://seen.example'}}"
    stated = state_owners(tmp_path, world, (f"pypi: {world.url}pypi/", f"pypi: {source}"))
    done = call("index", "federate", stated, tmp_path / "public", code=15)
    assert "source pypi: " in done.err and fault in done.err and "secret" not in done.err


def test_an_index_of_an_index_names_the_first_owner(world: IndexServer, tmp_path: Path) -> None:
    """PEP 708: never an index that itself follows another one. Of both forms of a page."""
    federate(state_owners(tmp_path, world), FolderStore(world.folder / "public"))
    stated = tmp_path / "second.yaml"
    stated.write_text(f"sources: {{all: '{world.url}public/'}}\nowners: {{'*': all}}\n")
    for _form in ("index.json", "index.html"):
        result = federate(stated, FolderStore(tmp_path / "second"))
        assert result.projects == 5
        meta = json.loads((tmp_path / "second/torch/index.json").read_text())["meta"]
        assert meta["tracks"] == [f"{world.url}ours/torch/"]
        for page in (world.folder / "public").rglob("index.json"):
            page.unlink()
        shutil.rmtree(tmp_path / "second")


@pytest.mark.contract
@pytest.mark.parametrize("form", ["json", "html"])
def test_names_are_taken_however_a_list_writes_them(form: str, world: IndexServer, tmp_path: Path) -> None:
    """PyPI's list as JSON has them as they were registered. Others list what is no project, or empty."""
    listed = ["ROCm_SDK.Core", "rocm", "rocm-empty", "../rocm", "rocm-<script>", "rocm-" + "a" * 300, ""]
    page = world.folder / "rocm" / "index.json"
    page.write_text(
        json.dumps({"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in listed]})
    )
    if form == "html":
        page.unlink()
        links = [f"<a href='{quote(name)}/'>it</a>" for name in [*listed[1:], "rocm-sdk-core", ".."]]
        page.with_suffix(".html").write_text("".join([*links, "<a href='rocm-links.html'>it</a>"]))
    (world.folder / "rocm" / "rocm-empty").mkdir()
    (world.folder / "rocm" / "rocm-empty" / "index.html").write_bytes(
        pages.make_project_html("rocm-empty", [])
    )
    stated = state_owners(tmp_path, world, ("  rocm: rocm\n", ""), ("  rocm-*: rocm", "  '*': rocm"))
    done = call("index", "federate", stated, tmp_path / "public", "--json").json["indexes"]
    assert done[str(tmp_path / "public")]["written"] == ["numpy", "rocm", "rocm-sdk-core", "torch", "triton"]


def test_more_names_than_anybody_wants_are_refused(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "_MOST_NAMES", 4)
    done = call("index", "federate", state_owners(tmp_path, world), tmp_path / "public", code=15)
    assert "5 names would be listed: 4 at most" in done.err and "without a default" in done.err


def test_a_default_owns_no_code_for_gpus(world: IndexServer, tmp_path: Path) -> None:
    changes = [("  numpy: pypi\n", "default: pypi\n"), ("  triton: ours\n", "")]
    done = call("index", "federate", state_owners(tmp_path, world, *changes), tmp_path / "public")
    assert "need an owner of their own: triton" in done.out
    names = {path.parent.name for path in (tmp_path / "public").glob("*/index.html")}
    assert names == {"numpy", "rocm", "rocm-sdk-core", "torch"}


def test_a_name_with_two_owners_is_none_of_a_stranger(world: IndexServer, tmp_path: Path) -> None:
    """Anybody can call a project so that two patterns are of it: that stops no refresh."""
    changes = [("  rocm-*: rocm", "  rocm-*: rocm\n  '*-evil': ours"), ("  numpy: pypi", "  numpy*: pypi")]
    stated = state_owners(tmp_path, world, *changes)
    done = call("index", "federate", stated, tmp_path / "public")
    assert "not taken from pypi: rocm-sdk-core, rocm-sdk-evil, torch, triton" in done.out
    update.add_wheels(world.folder / "rocm", [wheel(tmp_path, "rocm_sdk_evil", "1.0")], now=NOW)
    done = call("index", "federate", stated, tmp_path / "public", code=2)
    assert "rocm-sdk-evil has two owners that are as exact as each other: " in done.err


def test_a_name_that_changes_its_owner_or_has_none_any_more(world: IndexServer, tmp_path: Path) -> None:
    public = tmp_path / "public"
    call("index", "federate", state_owners(tmp_path, world), public)
    stated = state_owners(tmp_path, world, ("  numpy: pypi\n", ""), ("  torch: ours", "  torch: pypi"))
    done = call("index", "federate", stated, public)
    assert "dropped: numpy" in done.out and "not taken from ours: torch" in done.out
    (file,) = json.loads((public / "torch" / "index.json").read_text())["files"]
    assert file["filename"].startswith("torch-99.0")


def federate(
    stated: Path, store: Watched | FolderStore, signer: signing.ReleaseSigner | None = None
) -> federation.Federated:
    document = owners.load_owners(stated)
    sources = federation.open_sources(document, lambda _keys: pytest.fail("nothing is signed"), {})
    keeper = signing.ManifestKeeper(store, "public.manifest.json", "public", "public", signer)
    return federation.Federation(document, sources, store, keeper).refresh()


def make_signer(folder: Path) -> signing.ReleaseSigner:
    env = {"PATH": os.environ["PATH"]}
    return signing.ReleaseSigner(make_key(folder / "release"), env, SIGNED_AT, anew=True)


def list_unsigned(place: Path, signer: signing.ReleaseSigner) -> list[str]:
    """Return the pages of an index that its manifest does not state as they are."""
    name = "public.manifest.json"
    content = (place / name).read_bytes()
    stated = manifest.verify_manifest(content, name, signer.trusted, signer.env).manifest
    shown = shown_by(place)
    return [name for name in {*shown, *stated.files} if not stated.states_content(name, shown.get(name))]


@needs_ssh_keygen
@pytest.mark.contract
def test_killed_at_each_write(world: IndexServer, tmp_path: Path) -> None:
    """Whoever reads meanwhile finds what a torch requires; and the same command carries on."""
    start, stated, signer = tmp_path / "public", state_owners(tmp_path, world), make_signer(tmp_path)
    federate(stated, FolderStore(start), signer)
    newer = wheel(tmp_path, version="2.9.2", requires=("triton==3.6.0",))
    update.add_wheels(world.folder / "ours", [newer, wheel(tmp_path, "triton", "3.6.0")], now=NOW)
    stated.write_text(stated.read_text().replace("  rocm: rocm\n", ""))
    expected = tmp_path / "expected"
    shutil.copytree(start, expected)
    federate(stated, FolderStore(expected), signer)
    for write, place in killed_at_writes(
        start, lambda store: federate(stated, store, signer), exhaustive=True
    ):
        shown = {name: (place / name / "index.html").read_text() for name in ("torch", "triton")}
        assert "torch-2.9.2" not in shown["torch"] or "triton-3.6.0" in shown["triton"], write
        federate(stated, FolderStore(place), signer)
        assert shown_by(place) == shown_by(expected) and list_unsigned(place, signer) == []
        assert not json.loads((place / federation.STATE_FILE).read_text())["mark"]


@needs_ssh_keygen
@pytest.mark.contract
@pytest.mark.parametrize(
    "at",
    [
        f"replace {federation.STATE_FILE}",
        "create numpy/index.json",
        "create index.html",
        "replace public.manifest.json",
        "signs",
    ],
)
def test_two_runs_at_once(
    at: str, world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that another one has overtaken begins again: what it read, or signs, is older."""
    stated, place, signer = state_owners(tmp_path, world), tmp_path / "public", make_signer(tmp_path)
    store = Watched(FolderStore(place), at=at)

    def overtake() -> None:
        update.add_wheels(world.folder / "ours", [wheel(tmp_path, version="2.9.5")], now=NOW)
        federate(stated, FolderStore(place), signer)
        store.at, store.fault = "replace torch/index.json", "before"  # by what was read before

    store.guest = overtake
    if at == "signs":
        before_first_call(monkeypatch, signing.ManifestKeeper, "write", overtake)
    federate(stated, store, signer)
    assert store.guest is None or at == "signs"
    assert "torch-2.9.5" in (place / "torch" / "index.html").read_text()
    assert verify.verify_index(str(place)).findings == ()
    assert federate(stated, FolderStore(place), signer).written == () and list_unsigned(place, signer) == []


@needs_ssh_keygen
@pytest.mark.contract
def test_a_signed_source_is_held_to_its_manifest(world: IndexServer, tmp_path: Path) -> None:
    key = make_key(tmp_path / "release")
    channel = world.folder / "family" / "simple" / "stable"
    channel.parent.mkdir(parents=True)
    shutil.move(world.folder / "ours", channel)
    place = world.folder / "family"
    shown = {
        path.relative_to(place).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in channel.rglob("index.*")
    }
    stating = manifest.Manifest(
        family="family",
        channel="stable",
        version=1,
        issued="2026-11-21T12:00:00Z",
        expires="2999-01-01T00:00:00Z",
        document="0" * 64,
        files=shown,
    )
    signed = manifest.sign_manifest(stating, key, {"PATH": os.environ["PATH"]})
    (place / "stable.manifest.json").write_bytes(signed)
    source = f"{{index: '{world.url}family/simple/stable/', signed_by: [release.pub]}}"
    stated = state_owners(tmp_path, world, (f"ours: {world.url}ours/", f"ours: {source}"))
    public = tmp_path / "public"
    call("index", "federate", stated, public)
    before = files(public)
    page = channel / "torch" / "index.json"
    page.write_text(page.read_text().replace("2.9.0", "2.8.0"))
    (channel / "torch" / "index.html").write_text(page.read_text())
    done = call("index", "federate", stated, public, code=15)
    assert "is not the page that was signed" in done.err
    assert files(public) == before


@needs_ssh_keygen
@pytest.mark.contract_slow
@pytest.mark.network
def test_what_is_installed_from_a_signed_index(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was signed, and nothing else: changed, older, expired, of nobody, or of a stranger."""
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    key, other = make_key(tmp_path / "release"), make_key(tmp_path / "other")
    stated, public, venv = state_owners(tmp_path, world), world.folder / "public", tmp_path / "venv"
    index = f"{world.url}public/"
    packages = make_environment(venv).packages

    def install(torch: str = "torch", code: int = 0, signer: Path = key) -> Ended:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index)
        words = [torch, "--index", index, "--rocm-index", index, "--gfx", "gfx942", "--allow-cpu"]
        return call("install", *words, "--python", venv, "--released-by", f"{signer}.pub", code=code)

    def sign(*words: object, age: float = 0, code: int = 0) -> Ended:
        now = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=age)
        with monkeypatch.context() as patch:
            patch.setattr(evidence, "current_time", lambda: now)
            return call("index", "federate", stated, public, *words, code=code)

    sign()
    assert "has no signed manifest" in install(code=17).err
    assert ", signed" in sign("--sign-with", key, age=3).out
    assert ", signed" not in sign("--sign-with", key).out, "while more than half of its time is left"
    install(code=17, signer=other)
    assert not packages()
    install()
    assert {name.replace("_", "-"): version for name, version in packages().items()} == PACKAGES
    older = tmp_path / "older"
    shutil.copytree(public, older)

    update.add_wheels(world.folder / "ours", [wheel(tmp_path, version="2.9.5+rocm7.1.0")], now=NOW)
    assert "is signed" in sign(code=2).err, "a new one needs the key"
    sign("--sign-with", key)
    page = public / "torch" / "index.html"
    shown = page.read_text()
    for path in (page, page.with_suffix(".json")):
        path.write_text(path.read_text().replace("2.9.0", "2.9.6"))
    assert "is not the page that was signed" in install("torch==2.9.5", code=17).err
    assert "changed: torch" in sign("--sign-with", key).out and page.read_text() == shown
    install("torch==2.9.5")
    assert packages()["torch"] == "2.9.5+rocm7.1.0"

    public.rename(tmp_path / "newer")
    shutil.copytree(older, public)
    assert "an old state was put back" in install(code=17).err
    assert ", signed" in sign("--sign-with", key).out, "what was put back is refreshed"
    install()
    stated.write_text(stated.read_text() + "signed_for: 2h\n")
    (public / "public.manifest.json").unlink()
    shutil.rmtree(tmp_path / "STATE")
    sign("--sign-with", key, age=3)
    assert "it has expired" in install(code=17).err
    assert ", signed" in sign("--sign-with", key).out
    install()


@needs_ssh_keygen
@pytest.mark.contract
def test_only_what_was_signed_or_comes_from_a_source_is_signed(world: IndexServer, tmp_path: Path) -> None:
    """Who may write to the store can make a page pass for one that its source calls unchanged."""
    stated, public = tmp_path / "owners.yaml", world.folder / "public"
    stated.write_text(OWNERS.format(url="www/"))
    signer = make_signer(tmp_path)
    federate(stated, FolderStore(public))
    page, state = public / "numpy" / "index.json", public / federation.STATE_FILE
    genuine = page.read_bytes()

    def forge() -> None:
        page.write_bytes(genuine.replace(b"2.3.0", b"6.6.6"))
        document = json.loads(state.read_text())
        tags = {file.path: file.tag for file in FolderStore(public).listing("numpy")}
        document["names"]["numpy"]["tags"] = tags
        state.write_text(json.dumps(document))

    forge()
    assert federate(stated, FolderStore(public)).written == (), "it cannot be known without a manifest"
    for _first_and_later in range(2):
        forge()
        assert federate(stated, FolderStore(public), signer).signed
        assert page.read_bytes() == genuine
        assert not federate(stated, FolderStore(public), signer).signed
    content = (public / "public.manifest.json").read_bytes()
    (public / "public.manifest.json").write_bytes(content.replace(b"numpy", b"numpi"))
    assert federate(stated, FolderStore(public), signer).signed
    with pytest.raises(errors.UsageError, match="public is signed"):
        federate(stated, FolderStore(public))


@needs_ssh_keygen
@pytest.mark.contract
@pytest.mark.parametrize("place", ["stable", "with space", "s3"])
def test_a_signed_index_has_a_name_that_tells_it_from_others(
    place: str, world: IndexServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / place)
    if place == "s3":
        request.getfixturevalue("s3")
        target = f"s3://{a_bucket()}"
    stated, key = state_owners(tmp_path, world), make_key(tmp_path / "release")
    done = call("index", "federate", stated, target, "--sign-with", key, code=2)
    assert "cannot be signed" in done.err and "a folder with a name of its own" in done.err
    call("index", "federate", stated, target)


def test_a_folder_with_another_page_is_left_alone(world: IndexServer, tmp_path: Path) -> None:
    before = files(world.folder / "ours")
    done = call("index", "federate", state_owners(tmp_path, world), world.folder / "ours", code=2)
    assert "has torch/index.json already, and not of an index of several" in done.err
    assert files(world.folder / "ours") == before


def test_an_index_is_no_source_of_itself(world: IndexServer, tmp_path: Path) -> None:
    """What it has would stay for ever, whatever becomes of it at its first owner."""
    public = world.folder / "public"
    federate(state_owners(tmp_path, world), FolderStore(public))
    (tmp_path / "link").symlink_to(public)
    for place in (public, public / ".." / "public", tmp_path / "link", public.as_uri()):
        stated = state_owners(tmp_path, world, (f"ours: {world.url}ours/", f"ours: '{place}'"))
        done = call("index", "federate", stated, public, code=2)
        assert "source ours is the index that is to be made of it" in done.err


def test_an_index_that_does_not_know_itself_stays(world: IndexServer, tmp_path: Path) -> None:
    """What it had before is not known then: a name that is lost would go without a word."""
    stated, public = state_owners(tmp_path, world), tmp_path / "public"
    federate(stated, FolderStore(public))
    state = public / federation.STATE_FILE
    state.write_text(state.read_text()[:-40])
    before = files(public)
    done = call("index", "federate", stated, public, code=2)
    assert f"{state} is damaged" in done.err and files(public) == before


@pytest.mark.contract
def test_a_page_of_ours_that_is_damaged_is_not_one_without_files(world: IndexServer, tmp_path: Path) -> None:
    """Otherwise other bytes under a known name would be taken once, without a word."""
    stated, public = state_owners(tmp_path, world), tmp_path / "public"
    federate(stated, FolderStore(public))
    page = public / "triton" / "index.json"
    genuine = page.read_bytes()
    shutil.rmtree(world.folder / "ours" / "triton")
    update.add_wheels(
        world.folder / "ours", [wheel(tmp_path / "other", "triton", "3.5.0", text="other")], now=NOW
    )
    for content in (genuine[:-20], b"", b"{}", b"[]", b"\xff", genuine.replace(b'"hashes"', b'"ashes"')):
        page.write_bytes(content)
        before = files(public)
        done = call("index", "federate", stated, public, code=15)
        assert "triton/index.json of " in done.err and "is damaged" in done.err
        assert files(public) == before
    page.write_bytes(genuine)
    assert "had sha256" in call("index", "federate", stated, public, code=15).err
    page.unlink()  # as the message says, where the owner is right
    federate(stated, FolderStore(public))
    assert page.read_bytes() != genuine


@pytest.mark.contract
def test_an_index_for_each_target(world: IndexServer, tmp_path: Path) -> None:
    for target in ("gfx942", "gfx1100"):
        mine = wheel(tmp_path / target, version="2.9.9", text=target)
        update.add_wheels(world.folder / "views" / target / "stable", [mine], now=NOW)
    changes = [
        (f"ours: {world.url}ours/", f"ours: '{world.url}views/{{gfx}}/stable/'"),
        ("  triton: ours\n", "targets: [gfx942, gfx1100]\n"),
        ("  numpy: pypi\n", ""),
    ]
    text = state_owners(tmp_path, world, *changes)
    call("index", "federate", text, world.folder / "public")
    for target in ("gfx942", "gfx1100"):
        page = (world.folder / "public" / target / "torch" / "index.html").read_text()
        assert f"{world.url}views/{target}/stable/torch/torch-2.9.9" in page
        index = f"{world.url}public/{{family}}/"
        words = ["--index", index, "--gfx", target, "--python", "3.12", "--allow-cpu", "--json"]
        (chosen,) = call("choose", "torch", *words).json["choices"]
        assert chosen["index"] == f"{world.url}public/{target}/", "by the GPU that is there"


@needs_ssh_keygen
@pytest.mark.contract
def test_the_index_of_a_target_goes_with_it(
    world: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would refresh it. Others below the same folder are left alone, and are not of this file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key, public = make_key(tmp_path / "release"), world.folder / "public"
    for target in ("gfx942", "gfx1100", "gfx90a"):
        mine = wheel(tmp_path / target, version="2.9.9", text=target)
        update.add_wheels(world.folder / "views" / target, [mine], now=NOW)
    text = f"sources: {{ours: '{world.url}views/{{gfx}}/'}}\nowners: {{torch: ours}}\n"
    text += "targets: [gfx942, gfx1100]\n"
    stated, alone = tmp_path / "owners.yaml", tmp_path / "alone.yaml"
    stated.write_text(text)
    alone.write_text(text.replace("{gfx}", "gfx90a").partition("targets")[0])
    call("index", "federate", stated, public, "--sign-with", key)
    call("index", "federate", alone, public / "gfx90a")
    call("index", "federate", alone, public)
    ask = ["--gfx", "gfx942", "--python", "3.12", "--allow-cpu", "--released-by", f"{key}.pub"]
    call("choose", "torch", "--index", f"{world.url}public/{{family}}/", *ask)
    posing = world.folder / "posing" / "public" / "gfx942"  # where it must be of gfx942
    shutil.copytree(public / "gfx1100", posing)
    shutil.copy(public / "gfx1100.manifest.json", posing.with_suffix(".manifest.json"))
    index = f"{world.url}posing/public/gfx942/"
    assert "it is of gfx1100 of public" in call("choose", "torch", "--index", index, *ask, code=17).err
    (public / "gfx1100" / "notes.txt").write_text("of somebody else")
    stated.write_text(text.replace(", gfx1100", ""))
    before = files(public)
    left = None
    for write, killed in killed_at_writes(
        public, lambda store: federation.drop_other_targets(store, ["gfx942"]), exhaustive=True
    ):
        again = federation.drop_other_targets(FolderStore(killed), ["gfx942"])
        assert again == ([] if write == "remove gfx1100/federation.json" else ["gfx1100"])
        left = left or files(killed)
        assert files(killed) == left
    for words in (("--dry-run",), ()):
        done = call("index", "federate", stated, public, "--sign-with", key, *words)
        assert f"dropped with its target: {public}/gfx1100" in done.out
        assert words == () or files(public) == before
    assert "dropped" not in call("index", "federate", stated, public, "--sign-with", key).out
    gone = before.keys() - files(public).keys()
    assert all(name.startswith("gfx1100") for name in gone)
    assert [name for name in files(public) if name.startswith("gfx1100")] == ["gfx1100/notes.txt"]
    renamed = public.rename(public.with_name("renamed"))
    call("index", "federate", stated, renamed, "--sign-with", key)
    call("choose", "torch", "--index", f"{world.url}renamed/gfx942/", *ask)

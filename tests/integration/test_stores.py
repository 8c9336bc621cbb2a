"""Stores keep one promise wherever they are: a folder, an S3 server, on a bad line too."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import s3_servers

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.release.stores import Changed, Exists, Missing, Store, open_store, s3_parts
from rocm_wheels.release.stores.folder import FolderStore
from rocm_wheels.release.stores.others import OtherStore
from rocm_wheels.release.stores.probe import broken_promise, require_conditional
from rocm_wheels.release.stores.s3 import S3Store

_numbers = count(1)
KINDS: dict[str, Callable[[Path], Store]] = {
    "folder": lambda path: FolderStore(path / "store"),
    "s3": lambda _: s3_servers.a_store(),
    "memory": lambda _: OtherStore(f"memory://store-{next(_numbers)}"),
}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return KINDS[request.param](tmp_path)


def test_every_store_keeps_the_same_promises(store: Store, tmp_path: Path) -> None:
    first = store.create("v2/f/a+1.json", b"one")
    head = store.head("v2/f/a+1.json")
    assert (store.read("v2/f/a+1.json").content, store.read("v2/f/a+1.json").tag) == (b"one", first)
    assert head is not None and (head.size, head.tag) == (3, first)
    with pytest.raises(Exists):
        store.create("v2/f/a+1.json", b"one")
    second = store.replace("v2/f/a+1.json", b"two", first)
    for tag in (first, None):
        with pytest.raises(Changed):
            store.replace("v2/f/a+1.json", b"six", tag)
    with pytest.raises(Changed):
        store.replace("v2/f/other.json", b"six", second)
    assert store.replace("v2/f/new.json", b"new", None) == store.read("v2/f/new.json").tag
    for work in (store.read, store.digest, lambda path: store.copy(path, "c")):
        with pytest.raises(Missing):
            work("v2/f/missing")
    with pytest.raises(Missing):
        store.fetch("v2/f/missing", tmp_path / "none")
    store.copy("v2/f/a+1.json", "w/b")
    with pytest.raises(Exists):
        store.copy("v2/f/new.json", "w/b")
    assert store.read("w/b").content == b"two"
    assert store.digest("w/b") == hashlib.sha256(b"two").hexdigest()
    store.fetch("w/b", tmp_path / "fetched")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["fetched"]
    listed = {one.path: (one.size, one.tag) for one in store.listing("v2")}
    assert listed["v2/f/a+1.json"] == (3, second)
    assert list(listed) == ["v2/f/a+1.json", "v2/f/new.json"]
    assert [one.path for one in store.listing("")][-1] == "w/b"
    assert (store.folders(""), store.folders("v2"), store.folders("v3")) == (["v2", "w"], ["f"], [])
    store.remove("w/b")
    store.remove("w/b")
    assert store.head("w/b") is None


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_conditional_writes_are_probed(kind: str, tmp_path: Path) -> None:
    store = KINDS[kind](tmp_path)
    assert broken_promise(store) is None
    assert list(store.listing("")) == []


def test_a_store_without_conditions_is_refused_or_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, deaf = OtherStore("memory://deaf"), s3_servers.a_store()
    ask = deaf._client.call

    def no_conditions(operation: str, **asked: object) -> object:
        kept = {key: value for key, value in asked.items() if key not in ("IfMatch", "IfNoneMatch")}
        return ask(operation, **kept)

    monkeypatch.setattr(deaf._client, "call", no_conditions)
    for store, said in ((memory, "knows no conditional writes"), (deaf, "If-None-Match is ignored")):
        with pytest.raises(ReleaseError, match=said):
            require_conditional(store)
        require_conditional(store, unconditional=True)
        assert "see to it that nobody else writes" in capsys.readouterr().err
        tag = store.create("a", b"1")
        with pytest.raises(Exists):
            store.create("a", b"2")
        store.replace("a", b"2", tag)
        with pytest.raises(Changed):
            store.replace("a", b"3", tag)


def test_a_large_file_goes_in_parts_and_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send_and_copy_in_parts(s3_servers.a_store(), tmp_path, monkeypatch)


def send_and_copy_in_parts(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a file of 11 MiB go in parts of 5, as small as S3 takes them."""
    path = tmp_path / "big"
    monkeypatch.setattr(s3_parts, "PART", 5 << 20)
    monkeypatch.setattr(s3_parts, "_COPIED_PART", 5 << 20)
    path.write_bytes(bytes(range(256)) * (11 << 12))  # 11 MiB
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    store.create("big", path)
    store.copy("big", "copied")
    for name in ("big", "copied"):
        head = store.head(name)
        assert head is not None and (head.size, head.sha256, head.tag[-3:-1]) == (11 << 20, digest, "-3")
        assert store.digest(name) == digest
    with pytest.raises(Exists):
        store.create("big", path)
    store.fetch("copied", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def _first(number: int, fault: str, methods: tuple[str, ...]) -> Callable[[str, str], str]:
    """Have the first requests of some kinds fail."""
    left = [number]

    def faults(method: str, _path: str) -> str:
        if method not in methods or not left[0]:
            return ""
        left[0] -= 1
        return fault

    return faults


@pytest.mark.parametrize("fault", ["500", "503", "lost"])
@pytest.mark.parametrize("times", [1, 3])
def test_writes_on_a_bad_line_happen_once(fault: str, times: int) -> None:
    bucket = s3_servers.a_bucket()
    with s3_servers.bad_line(_first(times, fault, ("PUT",))) as line:
        store = s3_servers.a_store(line.url, bucket=bucket)
        tag = store.create("a", b"one")
        assert store.read("a").tag == tag
        line.faults = _first(times, fault, ("PUT",))
        store.copy("a", "copied")
        line.faults = _first(times, fault, ("PUT",))
        new = store.replace("a", b"two", tag)
        assert (store.read("a").tag, store.read("copied").content) == (new, b"one")


@pytest.mark.parametrize("fault", ["500", "lost", "half"])
def test_reads_on_a_bad_line_are_whole(fault: str, tmp_path: Path) -> None:
    bucket = s3_servers.a_bucket()
    content = bytes(range(256)) * 400
    s3_servers.a_store(bucket=bucket).create("a", content)
    with s3_servers.bad_line(_first(2, fault, ("GET",))) as line:
        store = s3_servers.a_store(line.url, bucket=bucket)
        assert store.read("a").content == content
        line.faults = _first(2, fault, ("GET",))
        store.fetch("a", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == content
        line.faults = _first(2, fault, ("GET", "HEAD"))
        assert [one.path for one in store.listing("")] == ["a"]


@pytest.mark.parametrize("same", [True, False])
def test_an_answer_that_was_lost_is_not_taken_for_somebody_elses_file(same: bool) -> None:
    """The connection breaks, and another has written meanwhile, the very same bytes even."""
    bucket, ours = s3_servers.a_bucket(), b"theirs" if same else b"ours"
    direct = s3_servers.a_store(bucket=bucket)
    tag = direct.create("pointer", b"old")

    def somebody_is_faster(method: str, _path: str) -> str:
        if method != "PUT":
            return ""
        line.faults = lambda *_: ""
        if direct.head("a") is None:
            direct.create("a", b"theirs")
        else:
            direct.replace("pointer", b"theirs", tag)
        return "lost"

    with s3_servers.bad_line(somebody_is_faster) as line:
        store = s3_servers.a_store(line.url, bucket=bucket)
        with pytest.raises(Exists):
            store.create("a", ours)
        line.faults = somebody_is_faster
        with pytest.raises(Changed):
            store.replace("pointer", ours, tag)
    assert (direct.read("a").content, direct.read("pointer").content) == (b"theirs", b"theirs")


def test_a_server_that_stays_away_is_named() -> None:
    bucket = s3_servers.a_bucket()
    with s3_servers.bad_line(lambda *_: "503") as line:
        store = s3_servers.a_store(line.url, bucket=bucket)
        with pytest.raises(ReleaseError, match=f"cannot write s3://{bucket}/some/where/a") as said:
            store.create("a", b"")
    assert "503" in str(said.value.__cause__)
    with pytest.raises(ReleaseError, match="there is no bucket nobody-has-it"):
        s3_servers.a_store(bucket="nobody-has-it").create("a", b"")


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_of_many_writers_one_is_told_that_it_won(kind: str, tmp_path: Path) -> None:
    store = KINDS[kind](tmp_path)
    tag = store.create("pointer", b"0")
    outcomes: list[str] = []

    def work(number: int) -> None:
        try:
            store.replace("pointer", str(number).encode(), tag)
            outcomes.append(str(number))
        except Changed:
            outcomes.append("")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert [one for one in outcomes if one] == [store.read("pointer").content.decode()]


def test_urls_of_stores() -> None:
    env = s3_servers.environment("http://host:1")
    assert open_store("s3://b/some/where/", env).url == "s3://b/some/where"
    assert open_store("s3://b/x", env).url_of("a+1/") == "http://host:1/b/x/a%2B1/"
    assert open_store("s3://b", {}).url_of("a") == "https://b.s3.amazonaws.com/a"
    assert open_store("memory://x", {}).conditional is False
    assert "secret" not in open_store("memory://user:secret@host/x", {}).url_of("a")
    for url, said in (("s3://", "names no bucket"), ("nothing://x", "is not a store")):
        with pytest.raises(UsageError, match=said):
            open_store(url, {})
    wrong = {**env, "AWS_ENDPOINT_URL": "host:1"}
    with pytest.raises(UsageError, match="is not the URL of a server"):
        open_store("s3://b", wrong).head("a")

"""Stores keep one promise wherever they are: a folder, an S3 server, on a bad line too."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import servers
from crash import FaultyStore
from stores import require_promises, send_in_parts

from rocm_wheels.core import environment_numbers, errors
from rocm_wheels.stores import folder
from rocm_wheels.stores import s3 as store_s3
from rocm_wheels.stores.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    DryRunStore,
    Store,
    find_broken_promise,
    open_store,
    put_file,
    require_conditional_writes,
)

Faults = Callable[[str, str], str]
KINDS: dict[str, Callable[[Path], Store]] = {
    "folder": lambda path: folder.FolderStore(path / "store"),
    "s3": lambda _: servers.a_store(),
}


@contextmanager
def on_bad_line(faults: Faults, bucket: str = "") -> Iterator[tuple[store_s3.S3Store, servers.Line]]:
    """Give a store behind a line that goes wrong."""
    with servers.bad_line(faults) as line:
        yield servers.a_store(line.url, bucket=bucket), line


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of 6 MiB, which goes in parts."""
    monkeypatch.setattr(store_s3, "PART_SIZE", 5 << 20)
    (tmp_path / "big").write_bytes(bytes(6 << 20))
    return tmp_path / "big"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return KINDS[request.param](tmp_path)


@pytest.mark.contract
def test_every_store_keeps_the_same_promises(store: Store, tmp_path: Path) -> None:
    require_promises(store, tmp_path)


@pytest.mark.contract
def test_a_store_of_a_dry_run_keeps_them_too_and_writes_nothing(tmp_path: Path) -> None:
    inner = folder.FolderStore(tmp_path / "store")
    rehearsal = DryRunStore(inner)
    require_promises(rehearsal, tmp_path)
    inner.create("u/kept", b"kept")
    tag = inner.create("u/changed", b"old")
    rehearsal.replace("u/changed", b"new", tag)
    with pytest.raises(ChangedInStoreError):
        rehearsal.replace("u/changed", b"newer", tag)
    rehearsal.remove("u/kept")
    assert rehearsal.head("u/kept") is None
    assert [(listed.path, listed.size) for listed in rehearsal.listing("u")] == [("u/changed", 3)]
    assert rehearsal.writes[-2:] == ["replace u/changed", "remove u/kept"]
    assert {listed.path: inner.read(listed.path).content for listed in inner.listing("")} == {
        "u/changed": b"old",
        "u/kept": b"kept",
    }


def test_conditional_writes_are_probed(store: Store) -> None:
    assert find_broken_promise(store) is None
    assert list(store.listing("")) == []


@pytest.mark.contract
def test_a_store_without_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = servers.a_store()
    ask = store._client.call

    def no_conditions(operation: str, **asked: object) -> object:
        kept = {key: value for key, value in asked.items() if key not in ("IfMatch", "IfNoneMatch")}
        return ask(operation, **kept)

    monkeypatch.setattr(store._client, "call", no_conditions)
    with pytest.raises(errors.ReleaseError, match="If-None-Match is ignored"):
        require_conditional_writes(store)
    assert list(store.listing("")) == []


@pytest.mark.contract
def test_a_large_file_goes_in_parts_and_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send_in_parts(servers.a_store(), tmp_path, monkeypatch)


def test_a_large_file_that_changes_while_it_is_sent_is_never_seen(
    big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = servers.a_store()
    ask, asked = store._client.call, list[str]()

    def changed_meanwhile(operation: str, **words: Any) -> Any:
        asked.append(operation)
        if operation == "create_multipart_upload":
            with big.open("rb+") as file:
                file.write(b"somebody")
        return ask(operation, **words)

    monkeypatch.setattr(store._client, "call", changed_meanwhile)
    with pytest.raises(errors.ReleaseError, match=r"big has other bytes than when it was looked at"):
        store.create("big", big)
    assert asked[-1] == "abort_multipart_upload"
    with pytest.raises(errors.ReleaseError, match=r"big has other bytes than when it was looked at"):
        store.create("big", big, sha256="0" * 64)
    assert list(store.listing("")) == []


@pytest.mark.contract
def test_listings_of_many_pages_hold_the_files_of_a_store_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = servers.a_store()
    paths = [f"f{number}/a+{number}.whl" for number in range(5)]
    for path in paths:
        store.create(path, b"")
    ask, pages = store._client.call, []
    for key in ("some/where/", "some/where/with space/x", "some/where/caf\u00e9", "some/where/.x"):
        ask(
            "put_object", Bucket=store._bucket, Key=key, Body=b""
        )  # as consoles make "folders", by other tools

    def small_pages(operation: str, **words: Any) -> Any:
        pages.append(operation)
        return ask(operation, **words, **({"MaxKeys": 2} if operation == "list_objects_v2" else {}))

    monkeypatch.setattr(store._client, "call", small_pages)
    assert [listed.path for listed in store.listing("")] == paths
    assert store.folders("") == [f"f{number}" for number in range(5)]
    assert len(pages) >= 7


def _first(number: int, fault: str, methods: tuple[str, ...]) -> Callable[[str, str], str]:
    """Have the first requests of some kinds fail."""
    left = [number]

    def faults(method: str, _path: str) -> str:
        if method not in methods or not left[0]:
            return ""
        left[0] -= 1
        return fault

    return faults


@pytest.mark.contract
@pytest.mark.parametrize("fault", ["500", "503", "409 ConditionalRequestConflict", "lost"])
@pytest.mark.parametrize("times", [1, 3])
def test_writes_on_a_bad_line_happen_once(fault: str, times: int) -> None:
    with on_bad_line(_first(times, fault, ("PUT",))) as (store, line):
        tag = store.create("a", b"one")
        assert store.read("a").tag == tag
        line.faults = _first(times, fault, ("PUT",))
        new = store.replace("a", b"two", tag)
        assert (store.read("a").tag, store.read("a").content) == (new, b"two")


@pytest.mark.parametrize("is_theirs", [False, True])
def test_parts_that_a_conflict_took_are_sent_again_where_nobody_else_was_faster(
    is_theirs: bool, big: Path
) -> None:
    """S3 answers 409 while another write of the file is under way, and forgets the upload."""
    direct, conflicts = servers.a_store(), list[str]()

    def take_parts(method: str, url: str) -> str:
        query = parse_qs(urlsplit(url).query)
        if method != "POST" or "uploadId" not in query or len(conflicts) == 2:
            return ""
        conflicts.append(query["uploadId"][0])
        direct._client.call("abort_multipart_upload", **direct._object_key("big"), UploadId=conflicts[-1])
        if is_theirs:
            direct.create("big", b"theirs")
        return "409 ConditionalRequestConflict"

    told = pytest.raises(AlreadyInStoreError) if is_theirs else nullcontext()
    with on_bad_line(take_parts, direct._bucket) as (store, _), told:
        store.create("big", big)
    assert len(set(conflicts)) == (1 if is_theirs else 2)
    assert [listed.size for listed in direct.listing("")] == [6 if is_theirs else 6 << 20]


def test_a_conflict_without_end_is_somebody_elses_write_where_it_is_there() -> None:
    direct = servers.a_store()
    conflicts = _first(1 << 30, "409 ConditionalRequestConflict", ("PUT",))
    with on_bad_line(conflicts, direct._bucket) as (store, _):
        with pytest.raises(errors.ReleaseError, match="cannot write") as stuck:
            store.create("a", b"ours")
        assert not isinstance(stuck.value, AlreadyInStoreError)
        tag = direct.create("a", b"theirs")
        with pytest.raises(AlreadyInStoreError):
            store.create("a", b"ours")
        with pytest.raises(errors.ReleaseError, match="cannot write") as stuck:
            store.replace("a", b"ours", tag)
        assert not isinstance(stuck.value, ChangedInStoreError)
        direct.replace("a", b"theirs, too", tag)
        with pytest.raises(ChangedInStoreError):
            store.replace("a", b"ours", tag)
    assert direct.read("a").content == b"theirs, too"


@pytest.mark.parametrize("refusal", ["412 PreconditionFailed", "404 NoSuchKey"])
def test_whose_write_it_was_is_not_guessed_where_the_server_says_no_more(refusal: str) -> None:
    with on_bad_line(lambda method, _path: refusal if method == "PUT" else "503") as (store, _):
        for tag in (None, '"of-somebody"'):
            with pytest.raises(store_s3.S3UnansweredError, match=r"cannot look at s3://.*/where/a"):
                store.replace("a", b"ours", tag)


@pytest.mark.parametrize("fault", ["409 OperationAborted", "500", "lost"])
def test_parts_become_one_file_once(fault: str, big: Path) -> None:
    """Whatever becomes of the answers to the requests that begin and end an upload."""
    with on_bad_line(_first(1, fault, ("POST",))) as (store, line):
        store.create("a", big)
        line.faults = lambda method, path: "lost" if method == "POST" and "uploadId" in path else ""
        store.create("b", big)  # none of the answers comes, and it is there
        line.faults = lambda *_: ""
        assert [listed.size for listed in store.listing("")] == [6 << 20, 6 << 20]
        line.faults = lambda method, path: "503" if method == "POST" and "uploadId" in path else ""
        with pytest.raises(errors.ReleaseError, match=r"cannot write s3://.*/where/c"):
            store.create("c", big)
        assert store.head("c") is None


@pytest.mark.contract
@pytest.mark.parametrize("fault", ["500", "lost", "half"])
def test_reads_on_a_bad_line_are_whole(fault: str, tmp_path: Path) -> None:
    bucket = servers.a_bucket()
    content = bytes(range(256)) * 400
    servers.a_store(bucket=bucket).create("a", content)
    with on_bad_line(_first(2, fault, ("GET",)), bucket) as (store, line):
        assert store.read("a").content == content
        line.faults = _first(2, fault, ("GET",))
        store.fetch("a", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == content
        line.faults = _first(2, fault, ("GET", "HEAD"))
        assert [listed.path for listed in store.listing("")] == ["a"]


def test_what_comes_short_is_asked_for_again() -> None:
    bucket = servers.a_bucket()
    servers.a_store(bucket=bucket).create("a", b"all of it")
    with on_bad_line(_first(2, "short", ("GET",)), bucket) as (store, line):
        assert store.read("a").content == b"all of it"
        line.faults = _first(2, "short", ("GET",))
        assert store.digest("a") == hashlib.sha256(b"all of it").hexdigest()
        line.faults = _first(2, "short", ("GET",))
        assert [listed.path for listed in store.listing("")] == ["a"]


def test_weak_tags_of_a_proxy_are_those_of_the_server() -> None:
    with on_bad_line(lambda *_: "weak") as (store, _):
        tag = store.create("a", b"one")
        assert store.digest("a") == hashlib.sha256(b"one").hexdigest()
        second = store.replace("a", b"two", tag)
        with pytest.raises(ChangedInStoreError):
            store.replace("a", b"six", tag)
        assert [listed.tag for listed in store.listing("")] == [second]


def test_a_server_that_knows_no_conditions_is_refused() -> None:
    with on_bad_line(lambda *_: "deaf") as (store, _):
        with pytest.raises(errors.ReleaseError, match=r"knows no conditional writes \(put_object .* 501"):
            require_conditional_writes(store)
        assert list(store.listing("")) == []


def test_a_server_that_knows_no_conditions_for_parts_alone_takes_them(big: Path) -> None:
    """They are sent after a look; of two at the same moment both may succeed there."""
    with on_bad_line(lambda method, _path: "deaf" if method == "POST" else "") as (store, _):
        require_conditional_writes(store)
        store.create("big", big)
        with pytest.raises(AlreadyInStoreError):
            store.create("big", big)
    assert [listed.size for listed in store.listing("")] == [6 << 20]


@pytest.mark.parametrize(
    ("answer", "tip"),
    [
        ("403 RequestTimeTooSkewed", "the clock of this machine is wrong"),
        ("403 AccessDenied", "the credentials must allow it"),
        ("400 ExpiredToken", "the credentials have expired"),
    ],
)
def test_what_a_server_refuses_for_good_is_said_once_with_what_helps(answer: str, tip: str) -> None:
    asked = list[str]()

    def refuse(method: str, _path: str) -> str:
        asked.append(method)
        return answer

    with servers.bad_line(refuse) as line:
        store = servers.a_store(line.url, bucket="any")
        with pytest.raises(errors.ReleaseError, match=answer) as said:
            store.create("a", b"")
    assert (said.value.tip or "").startswith(tip)
    assert asked == ["PUT"]


@pytest.mark.parametrize("same", [True, False])
def test_an_answer_that_was_lost_is_not_taken_for_somebody_elses_file(same: bool) -> None:
    """The connection breaks, and another has written meanwhile, the very same bytes even."""
    bucket, ours = servers.a_bucket(), b"theirs" if same else b"ours"
    direct = servers.a_store(bucket=bucket)
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

    with on_bad_line(somebody_is_faster, bucket) as (store, line):
        with pytest.raises(AlreadyInStoreError):
            store.create("a", ours)
        line.faults = somebody_is_faster
        with pytest.raises(ChangedInStoreError):
            store.replace("pointer", ours, tag)
    assert (direct.read("a").content, direct.read("pointer").content) == (b"theirs", b"theirs")


def test_a_server_that_stays_away_is_named() -> None:
    bucket = servers.a_bucket()
    refused = pytest.raises(errors.ReleaseError, match=f"cannot write s3://{bucket}/some/where/a")
    with on_bad_line(lambda *_: "503", bucket) as (store, _), refused as said:
        store.create("a", b"")
    assert "503" in str(said.value.__cause__)
    with pytest.raises(errors.ReleaseError, match="there is no bucket nobody-has-it"):
        servers.a_store(bucket="nobody-has-it").create("a", b"")


def test_variables_say_how_often_and_how_long_a_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, requests = servers.a_bucket(), list[str]()
    variables = {"ROCM_WHEELS_RETRIES": "1", "ROCM_WHEELS_TIMEOUT": "1"}
    monkeypatch.setattr(environment_numbers, "_process", variables)
    done = threading.Event()

    def refuse(method: str, _path: str) -> str:
        requests.append(method)
        return "503"

    def keep_silent(method: str, _path: str) -> str:
        requests.append(method)
        done.wait(30)
        return ""

    for fault, cause in ((refuse, "503"), (keep_silent, "Read timeout")):
        requests.clear()
        with servers.bad_line(fault) as line:
            store = store_s3.S3Store(bucket, "", servers.environment(line.url))
            with pytest.raises(errors.ReleaseError, match="cannot read") as failed:
                store.read("a")
        assert cause in str(failed.value.__cause__) and requests == ["GET", "GET"]
    done.set()


@pytest.mark.contract
def test_of_many_writers_one_is_told_that_it_won(store: Store) -> None:
    tag = store.create("pointer", b"0")
    outcomes: list[str] = []

    def work(number: int) -> None:
        try:
            store.replace("pointer", str(number).encode(), tag)
            outcomes.append(str(number))
        except ChangedInStoreError:
            outcomes.append("")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(1, 5)))
    assert len(outcomes) == 4
    assert [outcome for outcome in outcomes if outcome] == [store.read("pointer").content.decode()]


@pytest.mark.contract
def test_urls_of_stores() -> None:
    env = servers.environment("http://host:1")
    assert open_store("s3://b/some/where/", env).url == "s3://b/some/where"
    assert open_store("s3://b/x", env).url_of("a+1/") == "http://host:1/b/x/a%2B1/"
    assert open_store("s3://b", {}).url_of("a") == "https://b.s3.amazonaws.com/a"
    assert open_store("S3://b/x", env).url == "s3://b/x"
    region = {"AWS_REGION": "eu-central-1"}
    assert open_store("s3://b", region).url_of("a") == "https://b.s3.eu-central-1.amazonaws.com/a"
    for url, said in (
        ("s3://", "names no bucket"),
        ("gs://user:secret@b/x", "gs:// is not supported"),
        ("s3://key:secret@b/x", "credentials have no place in a URL"),
        ("s3://key:secret/b/x", "credentials have no place in a URL"),
        ("s3://key:sec/secret/b/x", "credentials have no place in a URL"),
        ("s3://key/secret@b", "credentials have no place in a URL"),
        ("S3:/key:secret/b", "credentials have no place in a URL"),
        ("s3://b?x=1", "cannot be one"),
        ("s3://b/x?y=1", "is no path in a store"),
        ("s3://b/../x", "is no path in a store"),
        ("https://wheels.example.org/x", "https:// is not supported"),
    ):
        with pytest.raises(errors.UsageError, match=said) as shown:
            open_store(url, {})
        assert "secret" not in errors.explain_error(shown.value)
    guarded = open_store("s3://b", {**env, "AWS_ENDPOINT_URL": "http://key:secret@host:1"})
    assert guarded.url_of("a") == "http://***@host:1/b/a"
    with pytest.raises(errors.UsageError, match="AWS_ENDPOINT_URL holds credentials"):
        guarded.head("a")
    wrong = {**env, "AWS_ENDPOINT_URL": "host:1"}
    with pytest.raises(errors.UsageError, match="is not the URL of a server"):
        open_store("s3://b", wrong).head("a")


def test_a_wrong_endpoint_is_told_in_plain_words() -> None:
    def ask(endpoint: str) -> errors.RocmWheelsError:
        store = store_s3.S3Store("b", "", servers.environment(endpoint), policy=servers.QUICK)
        with pytest.raises(errors.RocmWheelsError) as told:
            store.read("a")
        return told.value

    nobody = ask("http://127.0.0.1:1")
    assert str(nobody) == "cannot read s3://b/a"
    assert str(nobody.__cause__) == 'Could not connect to the endpoint URL: "http://127.0.0.1:1/b/a"'
    assert (nobody.tip or "").startswith("see that AWS_ENDPOINT_URL (http://127.0.0.1:1) is right")
    for endpoint in ("host:1", "http://", "http://host:port", "ftp://host"):
        told = ask(endpoint)
        assert isinstance(told, errors.UsageError), endpoint
        assert str(told) == f"AWS_ENDPOINT_URL='{endpoint}' is not the URL of a server"
    with servers.bad_line(lambda *_: "404") as line:  # a web server
        other = ask(line.url)
    assert str(other) == "cannot read s3://b/a"
    assert str(other.__cause__).startswith("get_object of s3://b/a: 404")
    assert (other.tip or "").startswith(f"see that AWS_ENDPOINT_URL ({line.url}) is right")


def test_a_profile_of_aws_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[us]\naws_access_key_id=testing\naws_secret_access_key=testing\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    env = {"AWS_ENDPOINT_URL": servers.moto(), "AWS_PROFILE": "us"}
    store = store_s3.S3Store(servers.a_bucket(), "", env)
    assert store.create("a", b"one") == store.read("a").tag
    with pytest.raises(errors.UsageError, match="the settings of AWS cannot be used"):
        store_s3.S3Store("bucket", "", {**env, "AWS_PROFILE": "nobody"}).read("a")


PAGE = "v2/torch/index.html"


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_file_is_written_once_whoever_else_writes_the_same(before: bytes | None, tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    if before is not None:
        store.create(PAGE, before)
    write = f"{'create' if before is None else 'replace'} {PAGE}"
    raced = FaultyStore(store, at=write, fault="raced")
    assert put_file(raced, PAGE, b"new") is False, "another run did it"
    assert raced.writes == [write]
    assert put_file(raced, PAGE, b"new") is False, "it is there"
    assert raced.writes == [write]
    assert put_file(store, PAGE, b"newer") is True
    assert store.read(PAGE).content == b"newer"


def test_a_file_that_others_write_is_left_to_them(tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    with pytest.raises(ChangedInStoreError) as refused:
        put_file(FaultyStore(store, at=f"create {PAGE}", fault="other"), PAGE, b"new")
    assert refused.value.tip
    assert store.read(PAGE).content == b"other bytes"

"""A store that is a folder: files appear once and whole, and are exchanged only under their tag."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rocm_wheels.core import errors, files
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import AlreadyInStoreError, ChangedInStoreError, open_store


@pytest.fixture
def store(tmp_path: Path) -> folder.FolderStore:
    return folder.FolderStore(tmp_path / "store")


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.store", ".a", "a\\b", "a b", "C:/a"]
)
def test_paths_lead_nowhere_else(store: folder.FolderStore, path: str) -> None:
    with pytest.raises(errors.UsageError, match="is no path in a store"):
        store.create(path, b"")


@pytest.mark.parametrize("links", [True, False])
def test_of_many_writers_one_wins(
    store: folder.FolderStore, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def no_links(*_: object, **__: object) -> None:
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    won: list[int] = []
    start = threading.Barrier(6)

    def write(number: int) -> None:
        start.wait()
        try:
            store.create("one", bytes([number]) * 1000)
        except AlreadyInStoreError:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("one").content == bytes([won[0]]) * 1000
    assert not list((store.folder / ".store" / "parts").iterdir())


@pytest.mark.parametrize("links", [True, False])
def test_what_was_created_is_exchanged_by_its_tag(
    store: folder.FolderStore, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On file systems with and without hard links."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    tag = store.create("one", b"first")
    assert tag == store.read("one").tag
    assert store.replace("one", b"second", tag) == store.read("one").tag
    assert store.read("one").content == b"second"


def test_parts_of_killed_writers_go_after_a_day(store: folder.FolderStore) -> None:
    store.create("one", b"")
    parts = store.folder / ".store" / "parts"
    for name, age in (("old", 25 * 3600), ("new", 60)):
        (parts / name).write_bytes(b"half")
        os.utime(parts / name, (time.time() - age,) * 2)
    folder.FolderStore(store.folder).create("two", b"")
    assert [listed.name for listed in parts.iterdir()] == ["new"]


def test_a_url_says_which_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert open_store(str(tmp_path), {}).folder == tmp_path
    assert open_store(tmp_path.as_uri(), {}).folder == tmp_path
    assert open_store(f"file://localhost{tmp_path}", {}).folder == tmp_path
    for wrong, said in (
        (str(tmp_path / "file"), "is not a folder"),
        (" ", "no name"),
        ("file://data/store", "is no folder of this machine"),
        ("file://", "is no folder of this machine"),
        ("file://[x/", "is no folder of this machine"),
        (f"{tmp_path.as_uri()}?a=b", "is no folder of this machine"),
        ("~nobody-has-this-name/store", "is in the home of nobody"),
    ):
        with pytest.raises(errors.UsageError, match=said):
            open_store(wrong, {})


@pytest.mark.parametrize(
    ("step", "number", "tip"),
    [
        ("link", errno.EACCES, "make it writable, or choose"),
        ("link", errno.ENOSPC, "free some space"),
        ("link", errno.EXDEV, "a store is on one file system"),
        ("replace", errno.ENOSPC, "free some space"),
        ("replace", errno.EROFS, "make it writable, or choose"),
        ("fsync", errno.EDQUOT, "free some space"),
    ],
)
def test_what_the_disk_refuses_is_said_with_what_may_help(
    store: folder.FolderStore, step: str, number: int, tip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = store.create("a", b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(errors.ReleaseError, match=r"cannot write .*store/(a|b/c)$") as said:
        store.replace("a", b"new", tag) if step == "replace" else store.create("b/c", b"new")
    assert (said.value.tip or "").startswith(tip)
    monkeypatch.undo()
    assert [listed.path for listed in store.listing("")] == ["a"]
    assert store.read("a").content == b"old"
    assert not list((store.folder / ".store" / "parts").iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no ulimit")
def test_a_limit_of_the_size_of_files_is_told(store: folder.FolderStore, tmp_path: Path) -> None:
    """In a process of its own: the limit (`ulimit -f`) is of all that a process writes."""
    (tmp_path / "wheel").write_bytes(bytes(2 << 20))
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom rocm_wheels.core import errors\n"
        "from rocm_wheels.stores.folder import FolderStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try: FolderStore(Path(sys.argv[1])).create('f/wheel', Path(sys.argv[2]))\n"
        "except errors.ReleaseError as failure: print(errors.explain_error(failure))"
    )
    words = [sys.executable, "-c", program, str(store.folder), str(tmp_path / "wheel")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=60).stdout
    assert told.startswith(f"cannot write {store.folder}/f/wheel\n  because [Errno {errno.EFBIG}] ")
    assert "\ntip: raise `ulimit -f` (FAT takes 4 GiB), or free some space, then run" in told
    assert list(store.listing("")) == []
    assert not list((store.folder / ".store" / "parts").iterdir())


def test_bytes_that_are_not_those_that_were_meant_are_never_seen(
    store: folder.FolderStore, tmp_path: Path
) -> None:
    wheel, digest = tmp_path / "w.whl", hashlib.sha256(b"wheel").hexdigest()
    wheel.write_bytes(b"wheel, and then somebody wrote to it")
    for content in (wheel, b"other"):
        with pytest.raises(errors.ReleaseError, match="has other bytes than when it was looked at"):
            store.create("f/w.whl", content, sha256=digest)
    assert list(store.listing("")) == []
    assert store.folders("") == []
    wheel.write_bytes(b"wheel")
    store.create("f/w.whl", wheel, sha256=digest)


def test_tags_differ_where_the_clock_stands_still(
    store: folder.FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems that keep whole seconds: the second of two writers must be told."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    first = store.create("pointer", b"one")
    store.replace("pointer", b"two", first)
    with pytest.raises(ChangedInStoreError):
        store.replace("pointer", b"six", first)


def test_a_tag_is_that_of_the_own_write_however_fast_another_is(
    store: folder.FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody replaces a new file before its writer knows that it has its place."""
    sync = folder._sync_folder

    def replace_meanwhile(path: Path) -> None:
        sync(path)
        monkeypatch.setattr(folder, "_sync_folder", sync)
        other = folder.FolderStore(store.folder)
        other.replace("pointer", b"theirs", other.read("pointer").tag)

    monkeypatch.setattr(folder, "_sync_folder", replace_meanwhile)
    tag = store.create("pointer", b"ours")
    with pytest.raises(ChangedInStoreError):
        store.replace("pointer", b"ours, too", tag)
    assert store.read("pointer").content == b"theirs"


def test_what_was_replaced_is_known_to_the_disk(
    store: folder.FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, settled, fsync = store.create("v2/pointer", b"one"), list[int](), os.fsync

    def settle(handle: int) -> None:
        settled.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", settle)
    store.replace("v2/pointer", b"two", tag)
    assert settled == [(store.folder / "v2/pointer").stat().st_ino, (store.folder / "v2").stat().st_ino]


def test_what_is_no_file_of_a_store_is_left_out(store: folder.FolderStore) -> None:
    store.create("v2/a", b"")
    for name in ("with space", "café", ".hidden", "back~up "):
        (store.folder / "v2" / name).mkdir()
        (store.folder / "v2" / name / "x").touch()
        (store.folder / f"{name}.txt").touch()
    assert [listed.path for listed in store.listing("")] == ["v2/a"]
    assert store.folders("v2") == []


def test_a_writer_that_holds_the_store_for_too_long_is_named(
    store: folder.FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = store.create("pointer", b"old")
    monkeypatch.setattr(folder, "_LOCK_PATIENCE", 0.1)
    with (
        files.lock_folder(store.folder / ".store", purpose="a test"),
        pytest.raises(errors.ReleaseError, match=rf"in use by process {os.getpid()} \(a test\)"),
    ):
        store.replace("pointer", b"new", tag)
    assert store.read("pointer").content == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_nobody_waits_for_what_is_no_file(store: folder.FolderStore, tmp_path: Path) -> None:
    store.create("a", b"")
    os.mkfifo(store.folder / "pipe")
    for read in (store.read, store.digest, lambda path: store.fetch(path, tmp_path / "copy")):
        with pytest.raises(errors.DataError, match="pipe is not a file"):
            read("pipe")
    assert not (tmp_path / "copy").exists()


def test_what_cannot_be_written_says_so(store: folder.FolderStore) -> None:
    store.create("a", b"")
    with pytest.raises(errors.ReleaseError, match=r"cannot write .*a/b"):
        store.create("a/b", b"")

"""A store that is a folder: files appear once and whole, and are exchanged only under their tag."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.release.stores import Changed, Exists, Missing, open_store
from rocm_wheels.release.stores.folder import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def test_a_file_is_created_once_and_replaced_under_its_tag(store: FolderStore) -> None:
    first = store.create("v2/a+1.json", b"one")
    assert store.read("v2/a+1.json").content == b"one"
    assert store.read("v2/a+1.json").tag == first
    with pytest.raises(Exists):
        store.create("v2/a+1.json", b"two")
    with pytest.raises(Changed):
        store.replace("v2/a+1.json", b"two", None)
    with pytest.raises(Changed):
        store.replace("v2/b.json", b"two", first)
    second = store.replace("v2/a+1.json", b"two", first)
    assert second != first
    with pytest.raises(Changed):
        store.replace("v2/a+1.json", b"six", first)  # as long as the other
    assert store.read("v2/a+1.json").content == b"two"
    store.remove("v2/a+1.json")
    store.remove("v2/a+1.json")
    assert store.head("v2/a+1.json") is None
    with pytest.raises(Missing):
        store.read("v2/a+1.json")
    with pytest.raises(Missing):
        store.read("v2")  # a folder


def test_files_are_copied_listed_and_found(store: FolderStore, tmp_path: Path) -> None:
    (tmp_path / "w.whl").write_bytes(b"wheel")
    store.create("staging/f/w.whl", tmp_path / "w.whl")
    store.copy("staging/f/w.whl", "v2/f/w.whl")
    with pytest.raises(Exists):
        store.copy("staging/f/w.whl", "v2/f/w.whl")
    with pytest.raises(Missing):
        store.copy("staging/f/x.whl", "v2/f/x.whl")
    for path in ("v2/f.txt", "v2/f/a.txt", "v2/f-1/b.txt"):
        store.create(path, b"")
    assert [one.path for one in store.listing("v2")] == [
        "v2/f-1/b.txt",
        "v2/f.txt",
        "v2/f/a.txt",
        "v2/f/w.whl",
    ]
    assert next(one.path for one in store.listing("")) == "staging/f/w.whl"
    assert list(store.listing("v3")) == []
    assert store.folders("v2") == ["f", "f-1"]
    assert store.folders("") == ["staging", "v2"]
    assert store.digest("v2/f/w.whl") == hashlib.sha256(b"wheel").hexdigest()
    assert store.url_of("v2/f/").endswith("/store/v2/f/")


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.store", ".a", "a\\b", "a b", "C:/a"]
)
def test_paths_lead_nowhere_else(store: FolderStore, path: str) -> None:
    with pytest.raises(UsageError, match="is no path in a store"):
        store.create(path, b"")


@pytest.mark.parametrize("links", [True, False])
def test_of_many_writers_one_wins(store: FolderStore, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:

        def no_links(*_: object) -> None:
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    won: list[int] = []
    start = threading.Barrier(6)

    def write(number: int) -> None:
        start.wait()
        try:
            store.create("one", bytes([number]) * 1000)
        except Exists:
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


def test_parts_of_killed_writers_go_after_a_day(store: FolderStore) -> None:
    store.create("one", b"")
    parts = store.folder / ".store" / "parts"
    for name, age in (("old", 25 * 3600), ("new", 60)):
        (parts / name).write_bytes(b"half")
        os.utime(parts / name, (time.time() - age,) * 2)
    FolderStore(store.folder).create("two", b"")
    assert [one.name for one in parts.iterdir()] == ["new"]


def test_a_url_says_which_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert open_store(str(tmp_path), {}).folder == tmp_path
    assert open_store(tmp_path.as_uri(), {}).folder == tmp_path
    for wrong, said in ((str(tmp_path / "file"), "is not a folder"), (" ", "no name")):
        with pytest.raises(UsageError, match=said):
            open_store(wrong, {})


def test_what_cannot_be_written_says_so(store: FolderStore) -> None:
    store.create("a", b"")
    with pytest.raises(ReleaseError, match=r"cannot write .*a/b"):
        store.create("a/b", b"")

"""The bytes of staged wheels: read once, read again when they may be others, whatever stands beside them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crash import FaultyStore
from servers import a_store
from stores import FAMILY, NOW, World

from rocm_wheels.release import stage, store_paths, stored_digests, verdict, wheel_set
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store, StoredFileInfo

PATHS = store_paths.FamilyPaths(FAMILY)
LATER, LONG_AGO = 1e12, 0.0  # seconds since the epoch: all was written before, or only just


class CountingStore(FaultyStore):
    """A store that lists which wheels were read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads: list[str] = []

    def digest(self, path: str) -> str:
        self.reads.append(path)
        return super().digest(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def looker(
    store: Store, document: wheel_set.SetDocument, clock: float = LATER
) -> Callable[[], list[verdict.Reason]]:
    """Return what looks at the wheels as one command does, several times."""
    digests = stored_digests.StoredDigests(lambda: clock)
    return lambda: digests.list_wheel_faults(store, PATHS, document)


def test_a_wheel_is_read_again_when_it_was_exchanged_however_alike_it_looks(world: World, tmp_path: Path):
    store = CountingStore(folder.FolderStore(tmp_path / "store"))
    document = stage.stage_set(store, world.plan(), now=NOW).document
    store.reads.clear()
    look = looker(store, document, LONG_AGO)
    assert [look(), look()] == [[], []]
    assert len(store.reads) == 6  # what was written just now is not remembered
    look = looker(store, document)
    assert [look(), look(), look()] == [[], [], []]
    assert len(store.reads) == 9
    file = document.files[0]
    path = tmp_path / "store" / PATHS.pool_file(file.sha256, file.name)
    times = path.stat()
    with path.open("r+b") as wheel:  # the same size, inode and time of writing
        wheel.seek(file.size // 2)
        wheel.write(b"!")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [(fault.code, fault.facts["file"]) for fault in look()] == [("other-bytes", file.name)]
    assert store.reads[9:] == [PATHS.pool_file(file.sha256, file.name)]
    path.unlink()
    assert look() == [verdict.reason("gone", file=file.name)]


def test_what_a_bucket_says_of_a_wheel_is_only_what_its_writer_said(world: World):
    """An object with other bytes, and beside it the sha256 and size of the right ones."""
    bucket = a_store()
    store = CountingStore(bucket)
    document = stage.stage_set(store, world.plan(), now=NOW).document
    look = looker(store, document)
    assert [look(), look()] == [[], []]
    assert len(store.reads) == len(document.files)
    file = document.files[0]
    path = PATHS.pool_file(file.sha256, file.name)
    right = bucket.read(path).content
    wrong = right[:-1] + bytes([right[-1] ^ 1])
    forged = {"Body": wrong, "Metadata": {"sha256": file.sha256}}
    bucket._client.call("put_object", **bucket._object_key(path), **forged)
    assert bucket.head(path).sha256 == file.sha256
    expected = hashlib.sha256(wrong).hexdigest()
    assert look() == [verdict.reason("other-bytes", file=file.name, sha256=expected)]
    bucket.remove(path)
    bucket.create(path, right)
    assert look() == []


def test_a_wheel_that_is_exchanged_while_it_is_read_is_not_taken_for_another(world: World):
    """The right bytes lie there for as long as somebody reads, and wrong ones before and after."""
    bucket = a_store()
    document = stage.stage_set(bucket, world.plan(), now=NOW).document
    file = document.files[0]
    path = PATHS.pool_file(file.sha256, file.name)
    right = bucket.read(path).content
    wrong = right[:-1] + bytes([right[-1] ^ 1])

    class Flickering(CountingStore):
        def digest(self, asked: str) -> str:
            if asked == path:
                bucket.replace(path, right, bucket.head(path).tag)
            return super().digest(asked)

    store = Flickering(bucket)
    bucket.replace(path, wrong, bucket.head(path).tag)
    (fault,) = stored_digests.StoredDigests().list_wheel_faults(store, PATHS, document)
    assert fault == verdict.reason("changing", file=file.name)


def test_a_wheel_of_a_bucket_that_is_written_while_it_is_read_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The server refuses the rest of what is no longer there."""
    bucket = a_store()
    document = stage.stage_set(bucket, world.plan(), now=NOW).document
    file = document.files[0]
    path = PATHS.pool_file(file.sha256, file.name)
    require_head = bucket._require_head

    def change_after(asked: str) -> StoredFileInfo:
        info = require_head(asked)
        if asked == path:
            bucket.replace(path, b"of somebody else", info.tag)
        return info

    monkeypatch.setattr(bucket, "head", require_head)
    monkeypatch.setattr(bucket, "_require_head", change_after)
    (fault,) = stored_digests.StoredDigests().list_wheel_faults(bucket, PATHS, document)
    assert fault == verdict.reason("changing", file=file.name)

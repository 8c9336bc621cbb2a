"""The engine that every index is published by: a file that others write, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash import FaultyStore

from rocm_wheels.stores import folder
from rocm_wheels.stores.store import ChangedInStoreError, put_file

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

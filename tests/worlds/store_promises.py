"""What every store promises, tried on one that a test brings."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.stores import s3 as store_s3
from rocm_wheels.stores.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    Store,
    read_files,
)


def require_promises(store: Store, tmp_path: Path) -> None:
    first = store.create("v2/f/a+1.json", b"one")
    head = store.head("v2/f/a+1.json")
    assert (store.read("v2/f/a+1.json").content, store.read("v2/f/a+1.json").tag) == (b"one", first)
    assert head is not None and (head.size, head.tag) == (3, first)
    with pytest.raises(AlreadyInStoreError):
        store.create("v2/f/a+1.json", b"one")
    second = store.replace("v2/f/a+1.json", b"two", first)
    for tag in (first, None):
        with pytest.raises(ChangedInStoreError):
            store.replace("v2/f/a+1.json", b"six", tag)
    with pytest.raises(ChangedInStoreError):
        store.replace("v2/f/other.json", b"six", second)
    assert store.replace("v2/f/new.json", b"new", None) == store.read("v2/f/new.json").tag
    several = read_files(store, ("v2/f/new.json", "v2/f/missing", "v2/f/a+1.json"))
    assert list(several.items()) == [
        ("v2/f/new.json", b"new"),
        ("v2/f/missing", None),
        ("v2/f/a+1.json", b"two"),
    ]
    for work in (store.read, store.digest):
        for path in ("v2/f/missing", "v2/f"):
            with pytest.raises(NotInStoreError):
                work(path)
    with pytest.raises(NotInStoreError):
        store.fetch("v2/f/missing", tmp_path / "none")
    store.create("w/b", b"two")
    assert store.read("w/b").content == b"two"
    assert store.digest("w/b") == hashlib.sha256(b"two").hexdigest()
    store.fetch("w/b", tmp_path / "new" / "fetched")
    assert [listed.name for listed in (tmp_path / "new").iterdir()] == ["fetched"]
    with pytest.raises(errors.ReleaseError, match="has other bytes than when it was looked at"):
        store.create("w/c", tmp_path / "new" / "fetched", sha256="0" * 64)
    assert store.head("w/c") is None
    by_path = {listed.path: (listed.size, listed.tag) for listed in store.listing("v2")}
    assert by_path["v2/f/a+1.json"] == (3, second)
    assert list(by_path) == ["v2/f/a+1.json", "v2/f/new.json"]
    assert [listed.path for listed in store.listing("")][-1] == "w/b"
    assert (store.folders(""), store.folders("v2"), store.folders("v3")) == (["v2", "w"], ["f"], [])
    store.remove("w/b")
    store.remove("w/b")
    assert store.head("w/b") is None
    for path in ("v2/f.txt", "v2/f/a.txt", "v2/f-1/b.txt"):
        store.create(path, b"")
    assert [listed.path for listed in store.listing("v2")] == [
        "v2/f-1/b.txt",
        "v2/f.txt",
        "v2/f/a+1.json",
        "v2/f/a.txt",
        "v2/f/new.json",
    ]
    assert list(store.listing("v3")) == [] and store.folders("v2") == ["f", "f-1"]
    assert store.url_of("v2/f/").endswith("/v2/f/")


def send_in_parts(store: store_s3.S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a file of 11 MiB go in parts of 5, as small as S3 takes them."""
    path = tmp_path / "big"
    monkeypatch.setattr(store_s3, "PART_SIZE", 5 << 20)
    path.write_bytes(bytes(range(256)) * (11 << 12))  # 11 MiB
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    store.create("big", path)
    head = store.head("big")
    assert head is not None and (head.size, head.sha256, head.tag[-3:-1]) == (11 << 20, digest, "-3")
    assert store.digest("big") == digest
    with pytest.raises(AlreadyInStoreError):
        store.create("big", path)
    store.fetch("big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()

"""Files appear complete or not at all, copies hold the same bytes, and one function digests."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import crash
import pytest

from rocm_wheels.core import files

CONTENT = os.urandom((3 << 20) + 7)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_what_a_kill_leaves_is_taken_away_by_who_writes_the_same(tmp_path: Path) -> None:
    """At each event of the disk; both a file that is there and one that is not are written."""
    folder = tmp_path / "state"
    old, new = folder / "old.json", folder / "new.json"

    def begin() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        files.write_atomically(old, "before")

    def write() -> None:
        files.write_atomically(old, "after")
        files.write_atomically(new, "after")

    for event in crash.killed_at_events(write, begin=begin, exhaustive=True, least=4):
        assert old.read_text() in ("before", "after"), event
        assert not new.exists() or new.read_text() == "after", event
        write()
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "old.json": "after",
            "new.json": "after",
        }, event


def test_of_many_who_write_one_file_the_last_one_has_it_whole(tmp_path: Path) -> None:
    contents = [bytes([number]) * 5000 for number in range(4)]

    def write(content: bytes) -> None:
        for _ in range(30):
            files.write_atomically(tmp_path / "file", content)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() in contents


def test_a_copy_that_fails_leaves_what_was_there(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = source.with_name("target")
    files.write_atomically(target, "before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as failure:
        files.copy_atomically(source, target)
    assert failure.value.filename == str(target)
    assert sorted(path.name for path in source.parent.iterdir()) == ["source", "target"]
    assert target.read_text(encoding="utf-8") == "before"


@pytest.mark.parametrize("how", ["inside", "refused", "breaks off", "unknown"])
def test_a_copy_has_all_bytes_however_it_is_made(
    how: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, "copy_file_range", None)
    calls: list[int] = []

    def copy_file_range(source_fd: int, target_fd: int, count: int) -> int:
        calls.append(count)
        if how == "refused" or real is None or len(calls) > 1:
            raise OSError(95, "Operation not supported")
        return int(real(source_fd, target_fd, 1000))

    if how == "unknown":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif how != "inside":
        monkeypatch.setattr(os, "copy_file_range", copy_file_range, raising=False)
    target = source.with_name("target")
    with source.open("rb") as original, target.open("wb") as copy:
        files.copy_content(original, copy)
    assert target.read_bytes() == CONTENT


def test_a_second_name_or_a_copy(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.link_or_copy(source, source.with_name("linked"))
    assert source.samefile(source.with_name("linked"))

    link = os.link

    def refuse(old: Path, new: Path, **options: Any) -> None:
        if old == source:
            raise OSError(18, "Invalid cross-device link")
        link(old, new, **options)

    monkeypatch.setattr(os, "link", refuse)
    files.link_or_copy(source, source.with_name("copied"))
    assert not source.samefile(source.with_name("copied"))
    assert source.with_name("copied").read_bytes() == CONTENT


def test_digests_of_files_and_pieces(source: Path) -> None:
    written = io.BytesIO()
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert files.hash_file(source) == digest
    assert files.hash_pieces([CONTENT[:5], CONTENT[5:]], written.write) == digest
    assert written.getvalue() == CONTENT


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is held to its end is not renamed there")
def test_what_a_killed_run_left_goes_and_what_is_being_written_stays(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "downloads" / "torch.whl"
    target.parent.mkdir()
    for name in (".torch.whl.abcd1234.part", ".torch.whl.9876.part"):
        (target.parent / name).write_bytes(b"the beginning of a download")
    os.mkfifo(target.parent / ".torch.whl.5432.part")  # nobody will ever write into it
    other = target.with_name(".vision.whl.abcd1234.part")
    other.write_bytes(b"of another file")
    with files.open_atomically(target) as written_meanwhile:
        files.copy_atomically(source, target)
        with files.open_hidden_file(target) as hidden:
            os.write(hidden.descriptor, b"hidden")
            hidden.commit(replace=True)
        written_meanwhile.write(b"the last")
    assert target.read_bytes() == b"the last"
    assert sorted(path.name for path in target.parent.iterdir()) == [other.name, target.name]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_without_locks_nothing_is_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    target = tmp_path / "torch.whl"
    with files.open_stage(tmp_path) as stage, files.open_hidden_file(target) as first:
        with files.open_stage(tmp_path), files.open_hidden_file(target) as second:
            os.write(second.descriptor, b"second")
            second.commit(replace=False)
        assert stage.is_dir()
        os.write(first.descriptor, b"first")
        first.commit(replace=True)
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_a_file_system_without_bytes_is_not_full(tmp_path: Path) -> None:
    assert files.measure_free_space(Path("/proc")) > 2**60
    assert 0 < files.measure_free_space(tmp_path) < 2**60


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_that_another_run_is_about_to_take_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been opened and locked there between its making and our lock, and is removed in a moment."""
    import fcntl

    make, tidied = tempfile.mkstemp, list[threading.Thread]()

    def make_and_lose(**options: Any) -> tuple[int, str]:
        descriptor, name = make(**options)
        if not tidied:
            other = os.open(name, os.O_RDONLY)
            fcntl.flock(other, fcntl.LOCK_EX)

            def remove() -> None:
                os.unlink(name)
                os.close(other)

            tidied.append(threading.Timer(0.1, remove))
            tidied[0].start()
        return descriptor, name

    def write_slowly(_descriptor: int) -> None:
        tidied[0].join()

    monkeypatch.setattr(tempfile, "mkstemp", make_and_lose)
    monkeypatch.setattr(os, "fsync", write_slowly)
    files.write_atomically(tmp_path / "wheel", b"whole")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("wheel", b"whole")]


def test_a_folder_that_another_made_and_took_away_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(RuntimeError), files.open_hidden_file(folder / "failed"):
        meanwhile = files.open_atomically(folder / "file")
        meanwhile.__enter__().write(b"whole")
        raise RuntimeError
    meanwhile.__exit__(None, None, None)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"file": b"whole"}


def test_two_files_of_one_size_and_time_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda number: os.utime(number, (0, 0)))
    for content in (b"A", b"B"):
        with files.open_hidden_file(tmp_path / "file") as hidden:
            os.write(hidden.descriptor, content)
            hidden.commit(replace=True)
        assert (tmp_path / "file").read_bytes() == content


def test_where_nothing_is_linked_a_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with files.open_hidden_file(tmp_path / "new") as hidden:
        os.write(hidden.descriptor, b"new")
        os.utime(hidden.path, ns=(5, 5))
        hidden.commit(replace=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("new", "new")]
    assert (tmp_path / "new").stat().st_mtime_ns == 5

"""Promotion on real stores, asked by real installers: the old release or the new one, at every write."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import servers
from crash import FaultyStore, Killed, Watched, killed_at_writes
from stores import FAMILY, PAGES, PATHS, Sets, abandon, channel_of, linked, promote, promoter, sets

from rocm_wheels.core import errors, parallel
from rocm_wheels.release.channel import ChannelChange
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

pytestmark = pytest.mark.contract
CHANNEL = PATHS.channel_document("nightly")

_ = sets  # a fixture


def staged_files(place: Path) -> dict[str, int]:
    """Return what no change of a channel may touch, with the times of the last writes."""
    found = [p for name in ("files", "sets", "evidence") for p in (place / FAMILY / name).rglob("*")]
    return {str(p): p.stat().st_mtime_ns for p in found if p.is_file()}


def writes_of(sets: Sets, tmp_path: Path, change: Callable[[FaultyStore], ChannelChange]) -> list[str]:
    store = sets.store(sets.copy(tmp_path / "clean"))
    change(store)
    assert len(store.writes) == len(set(store.writes))
    return store.writes


def killed_promote(sets: Sets, place: Path, write: str, fault: str) -> None:
    with pytest.raises((Killed, errors.ReleaseError)):
        promote(sets.store(place, write, fault), sets.documents[1])


def test_the_same_command_finishes_what_was_killed_and_people_never_see_a_mixture(
    sets: Sets, tmp_path: Path
) -> None:
    new = sets.documents[1]
    writes = writes_of(sets, tmp_path, lambda store: promote(store, new))
    assert writes[0] == f"replace {CHANNEL}" and len(writes) == 10  # nothing is copied
    seen = []
    for number, write in enumerate(writes):
        place = sets.copy(tmp_path / str(number))
        before = staged_files(place)
        if number % 4 == 2 and " again " not in write:
            killed_promote(sets, place, write, "error")
        killed_promote(sets, place, write, "after")
        seen.append(sets.get(place))
        if write.endswith("/torch/index.json"):
            assert sets.get(place, "pip") == seen[-1]
        assert sets.get(finished(sets, place)) == "new"
        assert staged_files(place) == before
    assert seen == sorted(seen, reverse=True) and set(seen) == {"old", "new"}


def finished(sets: Sets, place: Path) -> Path:
    """Run the command again, and once more: that writes nothing."""
    store = sets.store(place)
    assert promote(store, sets.documents[1]).channel.pending is None
    assert channel_of(store).current == sets.documents[1].id
    count = len(store.writes)
    assert promote(store, sets.documents[1]).action is None
    assert len(store.writes) == count
    return place


def test_what_was_killed_can_be_undone_and_that_may_be_killed_too(
    sets: Sets, tmp_path: Path, exhaustive: bool
) -> None:
    old, new = sets.documents
    writes = writes_of(sets, tmp_path, lambda store: promote(store, new))
    visible = [write for write in writes if PAGES in write or "channels/nightly.json" in write][:-1]
    for number, write in enumerate(visible if exhaustive else visible[::2]):
        place = sets.copy(tmp_path / str(number))
        killed_promote(sets, place, write, "after")
        undone = tmp_path / f"undone {number}"
        linked(place, undone)
        store = sets.store(undone)
        done = abandon(promoter(store))
        assert (done.channel.current, done.channel.pending) == (old.id, None)
        assert sets.get(undone) == "old"
        last = [one for one in store.writes if PAGES in one][-1:]
        for fault in last:
            with pytest.raises(Killed):
                abandon(promoter(sets.store(place, fault, "before")))
            assert sets.get(place) in {"old", "new"}
            with pytest.raises(errors.ReleaseError, match=r"is being changed: abandon of 2\.9\.2"):
                promote(sets.store(place), new)
            assert abandon(promoter(sets.store(place))).finished
            assert sets.get(place) == "old"


def test_a_set_is_taken_away_again_at_every_write(sets: Sets, tmp_path: Path) -> None:
    start, seen = sets.copy(tmp_path / "start"), []
    promote(sets.store(start), sets.new)
    files = [path for path in start.rglob("*") if path.name.endswith((".whl", "set.json"))]
    for _, place in killed_at_writes(
        start, lambda store: promoter(store).demote([sets.new.id]), exhaustive=True
    ):
        seen.append(sets.get(place))
        store = sets.store(place)
        assert promoter(store).demote([sets.new.id]).channel.shown == (sets.old.id,)
        assert sets.get(place) == "old"
        assert promoter(store).demote([sets.new.id]).action is None
        assert [path for path in files if not (place / path.relative_to(start)).exists()] == []
    assert seen == sorted(seen) and set(seen) == {"old", "new"}


def test_of_two_promoters_one_is_told_of_the_other(sets: Sets, tmp_path: Path, exhaustive: bool) -> None:
    """At every write of the one the other one comes, with the same set or with none of it."""
    old, new = sets.documents
    writes = writes_of(sets, tmp_path, lambda store: promote(store, new))
    for number, write in enumerate(writes if exhaustive else writes[::2]):
        place = sets.copy(tmp_path / f"same {number}")
        promote(sets.store(place, write, "raced"), new)
        assert sets.get(finished(sets, place)) == "new"
    place = sets.copy(tmp_path / "other")
    store = sets.store(place, f"replace {CHANNEL}", "after")
    with pytest.raises(Killed):
        promote(store, new, "ann@there")
    with pytest.raises(
        errors.ReleaseError, match=r"nightly of .* is being changed: promote of 2\.9\.2-.* by ann@there"
    ):
        promoter(sets.store(place)).demote([old.id])
    slow = promoter(sets.store(place))
    held = slow.read_channel_record()
    abandon(promoter(sets.store(place), "bob@here"))
    with pytest.raises(
        errors.ReleaseError,
        match=r"nightly was changed by another process in the meantime: abandon .*bob@here",
    ):
        slow._complete_pending(held)
    assert sets.get(place) == "old"


KILLED = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
import stores
from rocm_wheels.release.wheel_set import find_set
os.fsync = lambda _: None
for number, write in enumerate({writes!r}):
    child = os.fork()
    if not child:
        fault = "kill -9 after" if write.startswith("remove") else "kill -9 in"
        place = Path({place!r}) / str(number)
        store = stores.Sets.store(place, write, fault)
        stores.promote(store, find_set(store, {new!r}))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9, write
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_writes_of_each_kind_may_be_killed_by_the_system(sets: Sets, tmp_path: Path) -> None:
    """When all is written and has no name yet; a lock goes with its process."""
    new = sets.documents[1]
    every = writes_of(sets, tmp_path, lambda store: promote(store, new))
    folders = {f"{write.split()[0]} {'/'.join(write.split('/')[1:3])}": write for write in every}
    writes = [*folders.values(), every[-1]]
    assert {write.split()[0] for write in writes} == {"replace"}
    places = [sets.copy(tmp_path / str(number)) for number in range(len(writes))]
    program = KILLED.format(path=sys.path, writes=writes, place=str(tmp_path), new=new.id)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    for place in places:
        assert sets.get(place) in {"old", "new"}
        assert sets.get(finished(sets, place)) == "new"


class Full:
    """A disk on which there is no room any more after so many operations."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left, self.count = 1 << 30, 0
        for where, name in (
            (os, "link"),
            (os, "replace"),
            (tempfile, "mkstemp"),
            (os, "copy_file_range"),
            (Path, "symlink_to"),
            (Path, "mkdir"),
        ):
            patch.setattr(where, name, self.counted(getattr(where, name)))

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def tried(*given: Any, **more: Any) -> Any:
            self.count += 1
            if self.count > self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*given, **more)

        return tried


def test_a_full_disk_leaves_the_old_release_or_the_new_one(sets: Sets, tmp_path: Path) -> None:
    """A little is freed each time, and the next run gets a little further."""
    place = sets.copy(tmp_path / "store")
    before, seen, full = staged_files(place), [sets.get(place)], 0
    with pytest.MonkeyPatch.context() as patch:
        disk = Full(patch)
        while full < 100:
            disk.count, disk.left = 0, 5 + full
            try:
                promote(sets.store(place), sets.documents[1])
            except (errors.ReleaseError, OSError) as failure:
                causes = [failure, failure.__cause__, failure.__context__]
                assert any(getattr(one, "errno", 0) == errno.ENOSPC for one in causes), failure
                full += 1
            else:
                break
            finally:
                disk.left = 1 << 30
            seen.append(sets.get(place))
    seen.append(sets.get(place))
    assert full > 4
    assert seen == sorted(seen, reverse=True) and set(seen) == {"old", "new"}
    assert staged_files(place) == before
    assert not any((place / ".store/parts").iterdir())


# ---- S3


class Short(FaultyStore):
    """A store whose process ends after a write that people see, or after two that nobody sees."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.done: list[str] = []
        self._one = threading.Lock()

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        with self._one:
            tag = super()._write(what, work, path)
            self.done.append(what)
            if "/channels/" in path or PAGES in path or len(self.done) == 2:
                self._end()
            return tag


@dataclass
class Bucket:
    """A bucket that begins as a folder of ``sets``, and a folder that shows its pages to installers."""

    sets: Sets
    shown: Path
    name: str = field(default_factory=servers.a_bucket)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store, start = servers.a_store(bucket=self.name), folder.FolderStore(self.sets.place)
        paths = [one.path for one in start.listing(FAMILY)]
        parallel.run_in_parallel(lambda path: self.store.create(path, self.sets.place / path), paths)
        promote(self.sets.store(self.shown), self.sets.documents[1])  # its files are there

    def look(self, written: str = "") -> None:
        """Note what installers take from the pages as they are; ``written`` is the only one that changed."""
        paths = [written] if written else [one.path for one in self.store.listing(PAGES)]
        if not written:
            shutil.rmtree(self.shown / PAGES)
        for path in paths:
            (self.shown / path).parent.mkdir(parents=True, exist_ok=True)
            (self.shown / path).unlink(missing_ok=True)
            (self.shown / path).write_bytes(self.store.read(path).content)
        now = self.sets.get(self.shown)
        if self.seen[-1:] != [now]:
            self.seen.append(now)

    def killed_again_and_again(self, change: Callable[[Store], ChannelChange]) -> list[str]:
        """Do a change whose process ends again and again; return what was written."""
        writes: list[str] = []
        for _ in range(100):
            store = Short(self.store)
            try:
                change(store)
            except Killed:
                writes += store.done
                if PAGES in writes[-1]:
                    self.look(writes[-1].split()[1])
                continue
            return writes + store.done
        raise AssertionError(f"no end of writes: {writes}")


def test_every_write_to_s3_that_people_see_may_be_killed(sets: Sets, tmp_path: Path) -> None:
    old, new = sets.documents
    bucket = Bucket(sets, sets.copy(tmp_path / "shown"))
    bucket.look()
    pool = {one.path: one.tag for one in bucket.store.listing(PATHS.pool)}
    clean = writes_of(sets, tmp_path, lambda store: promote(store, new))
    writes = bucket.killed_again_and_again(lambda store: promote(store, new))
    assert sorted(writes) == sorted(write.partition(" again ")[0] for write in clean)
    assert (bucket.seen, channel_of(bucket.store).shown) == (["old", "new"], (old.id, new.id))
    writes = bucket.killed_again_and_again(lambda store: promoter(store).demote([new.id]))
    assert (len(writes), bucket.seen) == (10, ["old", "new", "old"])
    with pytest.raises(Killed):
        promote(Watched(bucket.store, at=f"replace {PAGES}/torchvision/index.html", fault="after"), new)
    bucket.look()
    assert abandon(promoter(bucket.store)).channel.shown == (old.id,)
    bucket.look()
    assert bucket.seen == ["old", "new", "old", "new", "old"]
    assert {one.path: one.tag for one in bucket.store.listing(PATHS.pool)} == pool


def test_promote_on_s3_over_a_bad_line_and_raced(sets: Sets, tmp_path: Path) -> None:
    bucket, seen, faults = Bucket(sets, sets.copy(tmp_path / "shown")), [0], ("503", "lost", "half")
    new = sets.documents[1]

    def fault(_method: str, _path: str) -> str:
        seen[0] += 1
        return faults[seen[0] // 4 % 3] if seen[0] % 4 == 0 else ""

    with servers.bad_line(fault) as line:
        store = servers.a_store(line.url, bucket=bucket.name)
        assert promote(store, new).channel.current == new.id
    bucket.look()
    assert bucket.seen == ["new"]
    assert promoter(bucket.store).demote([new.id]).channel.current == sets.documents[0].id
    before = {one.path: one.tag for one in bucket.store.listing(FAMILY)}
    raced = FaultyStore(bucket.store, at="*", fault="raced")  # somebody else does each write first
    done = promote(raced, new)
    assert done.channel.current == new.id
    changed = {one.path for one in bucket.store.listing(FAMILY) if before.get(one.path) != one.tag}
    assert {write.split()[1] for write in raced.writes} == changed

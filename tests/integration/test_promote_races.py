"""Two at a time on one channel, results that come late, and what promoting leaves alone."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from faulty_store import FaultyStore, Killed
from promoted_sets import PAGES, PASSED, RELEASE, Sets, channel_of, promote, promoter, sets, watched_point
from release_world import FAMILY, NOW, World
from staged import stage

from rocm_wheels.core import errors
from rocm_wheels.index import publish
from rocm_wheels.release import layout, policy, wheel_set
from rocm_wheels.release import promote as promoting
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import DryRunStore

_ = sets  # a fixture
HELD = policy.Verdict(
    "x",
    FAMILY,
    "nightly",
    datetime.now(timezone.utc),
    (policy.RuleResult("smoke", "fail", "2 tests failed"),),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(publish, "point_link", watched_point)
    monkeypatch.setattr(promoting, "_WAIT_SECONDS", (0.01,), raising=False)


class Meanwhile(FaultyStore):
    """A store in which somebody else acts just before a write, or just after it."""

    def __init__(self, inner: FaultyStore, at: str, act: Callable[[], object], *, after: bool) -> None:
        super().__init__(inner.inner)
        self.folder, self.wanted, self.act, self.after = inner.folder, at, act, after

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        acts = what == self.wanted and what not in self.writes
        if acts and not self.after:
            self.act()
        tag = super()._write(what, work, path)
        if acts and self.after:
            self.act()
        return tag


def pages(place: Path) -> dict[str, bytes]:
    found = place / PAGES
    return {str(path.relative_to(found)): path.read_bytes() for path in found.rglob("*") if path.is_file()}


def visible_writes(sets: Sets, mode: str, place: Path, change: Callable[[FaultyStore], object]) -> list[str]:
    store = sets.store(sets.copy(mode, place))
    change(store)
    return [write for write in store.writes if PAGES in write or "/channels/nightly.pages/" in write]


@pytest.mark.contract
@pytest.mark.parametrize("mode", ["rename", "pages"])
@pytest.mark.parametrize("after", [False, True])
def test_who_is_overtaken_leaves_the_channel_as_the_other_wanted_it(
    mode: str, after: bool, sets: Sets, tmp_path: Path
) -> None:
    """Somebody puts the old sets back while a promoter is at work: its last write may come late."""
    old, new = sets.documents
    writes = visible_writes(sets, mode, tmp_path / "w", lambda store: promote(store, new))
    for number, write in enumerate(writes if mode == "pages" else [writes[0], writes[-1]]):
        place = sets.copy(mode, tmp_path / f"{number}")
        before = pages(place)
        other = threading.Thread(target=lambda at=place: promoter(sets.store(at), "bob@here").abandon(new.id))

        def act(other: threading.Thread = other) -> None:
            other.start()
            other.join(0.05 if mode == "rename" else None)  # it waits for us where pages change at once

        store = Meanwhile(sets.store(place), write, act, after=after)
        try:
            promote(store, new)
        except errors.ReleaseError as told:
            assert "nightly was changed by another process in the meantime: abandon of" in str(told)
        else:
            raise AssertionError(f"nobody told us of the other: {write}")
        other.join()
        assert channel_of(store).shown == (old.id,), write
        assert pages(place) == before, write


def test_who_does_the_same_a_little_later_has_done_it(sets: Sets, tmp_path: Path) -> None:
    new = sets.documents[1]
    for number, write in enumerate(
        visible_writes(sets, "pages", tmp_path / "w", lambda s: promote(s, new))[::3]
    ):
        place = sets.copy("pages", tmp_path / f"{number}")
        store = Meanwhile(sets.store(place), write, lambda at=place: promote(sets.store(at), new), after=True)
        assert promote(store, new).channel.current == new.id
        assert (b"torch-2.9.2" in pages(place)["torch/index.json"], channel_of(store).revision) == (True, 4)


@pytest.mark.contract
def test_a_demotion_that_is_overtaken_takes_nothing_away(sets: Sets, tmp_path: Path) -> None:
    start = sets.copy("pages", tmp_path / "start")
    new = sets.documents[1]
    promote(sets.store(start), new)
    before = pages(start)
    store = sets.store(start)
    promoter(store).demote([new.id])
    writes = [write for write in store.writes if PAGES in write]
    promote(sets.store(start), new)
    for write in writes:
        store = sets.store(start)
        other = Meanwhile(
            store, write, lambda: promoter(sets.store(start), "bob@here").abandon(new.id), after=False
        )
        with pytest.raises(errors.ReleaseError, match="changed by another process in the meantime"):
            promoter(other).demote([new.id])
        assert pages(start) == before, write
        assert channel_of(store).current == new.id


# ---- the gate, later


def judged(*verdicts: policy.Verdict) -> Callable[[], policy.Verdict]:
    listed: Iterator[policy.Verdict] = iter(verdicts)
    return lambda: next(listed)


@pytest.mark.contract
def test_a_result_that_comes_while_wheels_are_copied_counts(sets: Sets, tmp_path: Path) -> None:
    old, new = sets.documents
    store = sets.store(sets.copy("rename", tmp_path / "store"))
    with pytest.raises(errors.ReleaseError, match="cannot go to nightly:\nsmoke: 2 tests failed"):
        promoter(store).promote(new, judged(PASSED, HELD))
    channel = channel_of(store)
    assert (channel.current, channel.pending, channel.revision) == (old.id, None, 2)
    assert not any("channels" in write for write in store.writes)


@pytest.mark.parametrize("mode", ["rename", "pages"])
def test_what_was_killed_passes_its_gate_again(mode: str, sets: Sets, tmp_path: Path) -> None:
    old, new = sets.documents
    place = sets.copy(mode, tmp_path / "store")
    before = pages(place)
    with pytest.raises(Killed):
        promote(sets.store(place, "replace v2/gfx94X-dcgpu/channels/nightly.json", "after"), new)
    with pytest.raises(
        errors.ReleaseError, match="an earlier run had passed and was killed: promote of 2"
    ) as found:
        promoter(sets.store(place)).promote(new, judged(HELD))
    assert f"undo what it did: rocm-wheels set promote STORE --channel nightly --family {FAMILY}" in str(
        found.value.tip
    )
    assert channel_of(sets.store(place)).pending is not None and pages(place) == before
    assert promoter(sets.store(place)).abandon(new.id).channel.shown == (old.id,)


@pytest.mark.contract
def test_a_set_that_comes_back_is_judged_again_and_nothing_is_lost_of_its_history(
    sets: Sets, tmp_path: Path
) -> None:
    old, new = sets.documents
    store = sets.store(sets.copy("rename", tmp_path / "store"))
    promote(store, new)
    shown = pages(store.folder)
    promoter(store).demote([new.id])
    with pytest.raises(errors.ReleaseError, match="2 tests failed"):
        promoter(store).promote(new, judged(HELD))
    assert channel_of(store).shown == (old.id,)
    assert promote(store, new).copied == 0
    assert channel_of(store).shown == (old.id, new.id) and pages(store.folder) == shown
    assert [(event.action, event.sets) for event in channel_of(store).history] == [
        ("promote", (old.id,)),
        ("promote", (new.id,)),
        ("demote", (new.id,)),
        ("promote", (new.id,)),
    ]
    assert channel_of(store).demoted == frozenset()


# ---- what promoting leaves alone


class Hashed(FaultyStore):
    """A store that says which files were read for their sums."""

    digests: tuple[str, ...] = ()

    def digest(self, path: str) -> str:
        self.digests += (path,)
        return super().digest(path)


def test_what_was_released_is_neither_copied_nor_read_again(sets: Sets, tmp_path: Path) -> None:
    place = sets.copy("rename", tmp_path / "store")
    store = Hashed(folder.FolderStore(place))
    promote(store, sets.documents[1])
    wheels = sorted(path.rpartition("/")[2].split("-")[0] for path in store.digests if path.endswith(".whl"))
    assert wheels == ["torch", "torch", "torchvision", "torchvision"]  # before and after; triton was there
    assert not any("triton" in write for write in store.writes if "/files/" in write)
    store = Hashed(folder.FolderStore(place))
    promoter(store).demote(None)
    (place / RELEASE.wheel_file(sets.documents[1].files[0].sha256, sets.documents[1].files[0].name)).unlink()
    assert promote(store, sets.documents[1]).copied == 1  # what is gone is put back


def test_pages_of_a_set_say_what_its_document_says_whatever_lies_in_staging(
    sets: Sets, tmp_path: Path
) -> None:
    store = sets.store(sets.copy("rename", tmp_path / "store"))
    new = sets.documents[1]
    staged = (
        store.folder / layout.FamilyPaths(layout.load_layout(), FAMILY).set_index(new.id) / "torch/index.json"
    )
    wanted = staged.read_bytes()
    staged.unlink()
    staged.write_bytes(wanted.replace(new.files[0].sha256.encode(), b"0" * 64))
    (staged.parent.parent / "evil").mkdir()
    (staged.parent.parent / "evil/index.html").write_text("<a href=https://evil.example/evil-1.whl>")
    promote(store, new)
    released = store.folder / RELEASE.set_index(new.id)
    assert (released / "torch/index.json").read_bytes() == wanted
    assert not (released / "evil").exists()


@pytest.mark.contract
def test_a_lock_that_is_another_is_not_released(sets: Sets, tmp_path: Path) -> None:
    store = sets.store(sets.copy("rename", tmp_path / "store"))
    new = sets.documents[1]
    staged = store.folder / layout.FamilyPaths(layout.load_layout(), FAMILY).set_lock(new.id)
    text = staged.read_text()
    staged.unlink()
    staged.write_text(text + "\n")
    with pytest.raises(errors.ReleaseError, match=r"sources\.lock\.json is not what was tested"):
        promote(store, new)
    assert channel_of(store).current == sets.documents[0].id


@pytest.mark.contract
@pytest.mark.parametrize("mode", ["rename", "pages"])
def test_a_dry_run_touches_nothing_at_all(mode: str, sets: Sets, tmp_path: Path) -> None:
    place = sets.copy(mode, tmp_path / "store")

    def everything() -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in (place, *place.rglob("*")))

    before = everything()
    rehearsal = DryRunStore(sets.store(place))
    promote(rehearsal, sets.documents[1])
    promoter(rehearsal).demote(None)
    assert len(rehearsal.writes) > 20
    assert everything() == before


@pytest.mark.contract
def test_two_channels_change_at_one_time_and_sets_are_staged_meanwhile(sets: Sets, tmp_path: Path) -> None:
    place = sets.copy("rename", tmp_path / "store")
    third = World(tmp_path / "third", "2.9.3")
    third.wheels[0] = sets.worlds[0].wheels[0]
    work = [
        lambda: promote(folder.FolderStore(place), sets.documents[1]),
        lambda: stable.promote(sets.documents[1], lambda: PASSED),
        lambda: stage(folder.FolderStore(place), third.plan()),
    ]
    stable = promoting.Promoter(
        folder.FolderStore(place),
        layout.FamilyPaths(layout.load_layout(), FAMILY),
        "stable",
        promoting.ChannelActor("bob@here", NOW),
    )
    failed: list[BaseException] = []

    def tried(one: Callable[[], object]) -> None:
        try:
            one()
        except BaseException as failure:
            failed.append(failure)

    threads = [threading.Thread(target=tried, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for channel in ("nightly", "stable"):
        page = json.loads((place / RELEASE.channel_pages(channel) / "torch/index.json").read_text())
        assert any("2.9.2" in file["filename"] for file in page["files"])
    staged = wheel_set.find_set(folder.FolderStore(place), third.plan().document.id)
    assert promote(folder.FolderStore(place), staged).channel.current == staged.id

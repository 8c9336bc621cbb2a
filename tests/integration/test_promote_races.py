"""Two at a time on one channel, results that come late, and what promoting leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path

import pytest
from crash import FaultyStore, Killed, sample
from stores import (
    FAMILY,
    PAGES,
    PASSED,
    PATHS,
    Sets,
    World,
    abandon,
    channel_of,
    linked,
    promote,
    promoter,
    sets,
    stage,
)

from rocm_wheels.core import errors
from rocm_wheels.release import channel as channels
from rocm_wheels.release import verdict, wheel_set
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import DryRunStore

pytestmark = pytest.mark.contract

_ = sets  # a fixture
HELD = verdict.Verdict(
    "x",
    FAMILY,
    "nightly",
    datetime.now(timezone.utc),
    (verdict.RuleResult("smoke", "fail", (verdict.reason("no-pass"),), "gfx1030"),),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_WAIT_SECONDS", (0.01,))


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


def visible_writes(sets: Sets, place: Path, change: Callable[[FaultyStore], object]) -> list[str]:
    store = sets.store(sets.copy(place))
    change(store)
    return [write for write in store.writes if PAGES in write]


@pytest.mark.parametrize("after", [False, True])
def test_who_is_overtaken_leaves_the_channel_as_the_other_wanted_it(
    after: bool, sets: Sets, tmp_path: Path
) -> None:
    """Somebody puts the old sets back while a promoter is at work: its last write may come late."""
    old, new = sets.documents
    writes = visible_writes(sets, tmp_path / "w", lambda store: promote(store, new))
    for number, write in enumerate(writes):
        place = sets.copy(tmp_path / f"{number}")
        before = pages(place)

        def act(place: Path = place) -> None:
            abandon(promoter(sets.store(place), "bob@here"))

        store = Meanwhile(sets.store(place), write, act, after=after)
        with pytest.raises(
            errors.ReleaseError, match="nightly was changed by another process in the meantime: abandon of"
        ):
            promote(store, new)
        assert channel_of(store).shown == (old.id,), write
        assert pages(place) == before, write


def test_who_does_the_same_a_little_later_has_done_it(sets: Sets, tmp_path: Path, exhaustive: bool) -> None:
    new = sets.documents[1]
    writes = visible_writes(sets, tmp_path / "w", lambda store: promote(store, new))
    for number, write in enumerate(writes if exhaustive else writes[::3]):
        place = sets.copy(tmp_path / f"{number}")
        store = Meanwhile(sets.store(place), write, lambda at=place: promote(sets.store(at), new), after=True)
        assert promote(store, new).channel.current == new.id
        assert (b"torch-2.9.2" in pages(place)["torch/index.json"], channel_of(store).revision) == (True, 4)


def test_a_demotion_that_is_overtaken_takes_nothing_away(sets: Sets, tmp_path: Path) -> None:
    start = sets.copy(tmp_path / "start")
    new = sets.documents[1]
    promote(sets.store(start), new)
    before = pages(start)
    store = sets.store(start)
    promoter(store).demote([new.id])
    writes = [write for write in store.writes if PAGES in write]
    promote(sets.store(start), new)
    for write in writes:
        store = sets.store(start)
        other = Meanwhile(store, write, lambda: abandon(promoter(sets.store(start), "bob@here")), after=False)
        with pytest.raises(errors.ReleaseError, match="changed by another process in the meantime"):
            promoter(other).demote([new.id])
        assert pages(start) == before, write
        assert channel_of(store).current == new.id


# ---- the gate, later


def judged(*verdicts: verdict.Verdict) -> Callable[[], verdict.Verdict]:
    listed: Iterator[verdict.Verdict] = iter(verdicts)
    return lambda: next(listed)


def test_a_result_that_comes_while_a_set_is_promoted_counts(sets: Sets, tmp_path: Path) -> None:
    old, new = sets.documents
    store = sets.store(sets.copy(tmp_path / "store"))
    with pytest.raises(errors.ReleaseError, match="cannot go to nightly:\nsmoke on gfx1030: "):
        promoter(store).promote(new, judged(PASSED, HELD))
    channel = channel_of(store)
    assert (channel.current, channel.pending, channel.revision) == (old.id, None, 2)
    assert not any("channels" in write for write in store.writes)


def test_what_was_killed_passes_its_gate_again(sets: Sets, tmp_path: Path) -> None:
    old, new = sets.documents
    place = sets.copy(tmp_path / "store")
    before = pages(place)
    with pytest.raises(Killed):
        promote(sets.store(place, "replace gfx94X-dcgpu/channels/nightly.json", "after"), new)
    with pytest.raises(
        errors.ReleaseError, match="an earlier run had passed and was killed: promote of 2"
    ) as found:
        promoter(sets.store(place)).promote(new, judged(HELD))
    change = channel_of(sets.store(place)).change_id
    assert f"undo what it did: rocm-wheels set promote {place} --abandon {change}" in str(found.value.tip)
    assert channel_of(sets.store(place)).pending is not None and pages(place) == before
    assert abandon(promoter(sets.store(place))).channel.shown == (old.id,)


def test_a_set_that_comes_back_is_judged_again_and_nothing_is_lost_of_its_history(
    sets: Sets, tmp_path: Path
) -> None:
    old, new = sets.documents
    store = sets.store(sets.copy(tmp_path / "store"))
    promote(store, new)
    shown = pages(store.folder)
    promoter(store).demote([new.id])
    with pytest.raises(errors.ReleaseError, match="smoke on gfx1030: "):
        promoter(store).promote(new, judged(HELD))
    assert channel_of(store).shown == (old.id,)
    promote(store, new)
    assert channel_of(store).shown == (old.id, new.id) and pages(store.folder) == shown
    history = [(event.action, event.sets) for event in channel_of(store).history]
    done = (("promote", old), ("promote", new), ("demote", new), ("promote", new))
    assert history == [(action, (document.id,)) for action, document in done]
    assert channel_of(store).demoted == frozenset()


# ---- what promoting leaves alone


def test_a_dry_run_touches_nothing_at_all(sets: Sets, tmp_path: Path) -> None:
    place = sets.copy(tmp_path / "store")

    def everything() -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in (place, *place.rglob("*")))

    before = everything()
    rehearsal = DryRunStore(sets.store(place))
    promote(rehearsal, sets.documents[1])
    assert len(rehearsal.writes) == 10
    promoter(rehearsal).demote([sets.documents[1].id])
    assert len(rehearsal.writes) == 20
    assert everything() == before


def promoter_to(place: Path, channel: str) -> channels.Promoter:
    return replace(promoter(folder.FolderStore(place), "bob@here"), channel=channel)


def at_one_time(*work: Callable[[], object]) -> list[BaseException]:
    """Do several things at a time; return what they raised."""
    with ThreadPoolExecutor(len(work)) as threads:
        begun = [threads.submit(one) for one in work]
        return [failure for one in begun if (failure := one.exception())]


def test_two_channels_change_at_one_time_and_sets_are_staged_meanwhile(sets: Sets, tmp_path: Path) -> None:
    place, new = sets.copy(tmp_path / "store"), sets.documents[1]
    third = sets.worlds[0].next(tmp_path / "third", "2.9.3")
    failed = at_one_time(
        lambda: promote(folder.FolderStore(place), new),
        lambda: promoter_to(place, "stable").promote(new, lambda: PASSED),
        lambda: stage(folder.FolderStore(place), third.plan()),
    )
    assert failed == []
    for channel in ("nightly", "stable"):
        page = json.loads((place / PATHS.channel_pages(channel) / "torch/index.json").read_text())
        assert any("2.9.2" in file["filename"] for file in page["files"])
    staged = wheel_set.find_set(folder.FolderStore(place), third.plan().document.id)
    assert promote(folder.FolderStore(place), staged).channel.current == staged.id


# ---- a name belongs to its bytes


@pytest.fixture
def twins(sets: Sets, tmp_path: Path) -> tuple[Path, wheel_set.SetDocument, wheel_set.SetDocument]:
    """A store with two sets whose wheels have the same names, and other bytes."""
    place, found = sets.copy(tmp_path / "store"), []
    for text in ("one", "two"):
        world = World(tmp_path / text, "2.9.4", text=text)
        world.wheels[0] = sets.worlds[0].wheels[0]
        found.append(stage(folder.FolderStore(place), world.plan()).document)
    return place, found[0], found[1]


def test_of_two_sets_with_one_name_that_come_to_two_channels_at_once_one_gets_in_at_most(
    twins: tuple[Path, wheel_set.SetDocument, wheel_set.SetDocument], exhaustive: bool
) -> None:
    """Whatever write of the one the other comes at, and whoever is killed: pages of one of them at most."""
    start, one, two = twins
    clean = FaultyStore(folder.FolderStore(linked(start, start.with_name("clean"))))
    promote(clean, one)
    for number, (write, after) in enumerate(product(sample(clean.writes, exhaustive), (False, True))):
        place = linked(start, start.with_name(f"raced {number}"))
        told: list[BaseException] = []

        def other(place: Path = place, told: list[BaseException] = told) -> None:
            told += at_one_time(lambda: promoter_to(place, "stable").promote(two, lambda: PASSED))

        told += at_one_time(
            lambda at=place, write=write, act=other, after=after: promote(
                Meanwhile(FaultyStore(folder.FolderStore(at)), write, act, after=after), one
            )
        )
        require_one_of(place, one, two, told)
        killed = linked(start, start.with_name(f"killed {number}"))
        with pytest.raises(Killed):
            promote(FaultyStore(folder.FolderStore(killed), at=write, fault="after"), one)
        told = at_one_time(lambda at=killed: promoter_to(at, "stable").promote(two, lambda: PASSED))
        assert len(told) == 1 and promote(folder.FolderStore(killed), one).channel.current == one.id
        require_one_of(killed, one, two, told)


def require_one_of(
    place: Path, one: wheel_set.SetDocument, two: wheel_set.SetDocument, told: list[BaseException]
) -> None:
    store, shown = folder.FolderStore(place), set()
    for name, document in (("nightly", one), ("stable", two)):
        channel = channels.read_channel(store, PATHS, name).channel
        assert channel.pending is None
        shown |= {document.id} & set(channel.shown)
        page = f"{PATHS.channel_pages(name)}/torch/index.json"
        is_on_page = store.head(page) is not None and b"torch-2.9.4" in store.read(page).content
        assert is_on_page == (document.id in channel.shown)
    assert len(shown) + len(told) == 2
    for failure in told:
        assert isinstance(failure, errors.ReleaseError)
        assert "torch-2.9.4" in str(failure) and "has other bytes in 2.9.4" in str(failure)


def test_of_many_such_pairs_that_come_at_once_one_gets_in_at_most(
    twins: tuple[Path, wheel_set.SetDocument, wheel_set.SetDocument],
) -> None:
    start, one, two = twins
    for number in range(10):
        place = linked(start, start.with_name(f"pair {number}"))
        told = at_one_time(
            lambda at=place: promote(folder.FolderStore(at), one),
            lambda at=place: promoter_to(at, "stable").promote(two, lambda: PASSED),
        )
        require_one_of(place, one, two, told)


def test_who_was_killed_between_claim_and_look_looks_again(
    twins: tuple[Path, wheel_set.SetDocument, wheel_set.SetDocument],
) -> None:
    """Both have claimed, neither has looked: the first that runs again is refused, and only one gets in."""
    place, one, two = twins
    claims = [f"replace {PATHS.channel_document(name)}" for name in ("nightly", "stable")]

    def first() -> None:
        promote(FaultyStore(folder.FolderStore(place), at=claims[0], fault="after"), one)

    killed = FaultyStore(folder.FolderStore(place), at=claims[1], fault="after")
    held = Meanwhile(killed, claims[1], lambda: at_one_time(first), after=False)
    held.at, held.fault = claims[1], "after"
    with pytest.raises(Killed):
        replace(promoter(held), channel="stable").promote(two, lambda: PASSED)
    # who runs again is told why, and has put back what that run had begun: then the other one gets in
    with pytest.raises(errors.ReleaseError, match="has other bytes in"):
        promoter_to(place, "nightly").promote(one, lambda: PASSED)
    channel = promoter_to(place, "nightly").read_channel_record().channel
    assert (channel.pending, one.id in channel.shown) == (None, False)
    assert promoter_to(place, "stable").promote(two, lambda: PASSED).finished
    for name, shown in (("nightly", False), ("stable", True)):
        page = place / PATHS.channel_pages(name) / "torch/index.html"
        assert (page.exists() and b"torch-2.9.4" in page.read_bytes()) == shown

"""What tests of staging share: the smallest set, and all that the command does in a store."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from faulty_store import FaultyStore, Killed
from release_world import FAMILY, NOW, World, a_lock, links_of

from rocm_wheels.release import wheel_set
from rocm_wheels.release.stage import StagedSet, StagePlan, plan_stage, stage_set
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

LATER = "2026-11-22T12:00:00Z"


def stage(store: Store, plan: StagePlan, now: str = NOW) -> StagedSet:
    """All that the command does in a store."""
    return stage_set(store, plan, now=now)


def small_plan(world: World) -> StagePlan:
    """Return a set of one wheel, which has every kind of write."""
    wheels = [path for path in world.wheels if path.name.startswith("triton-")]
    locks = [a_lock(["triton"])]
    return plan_stage(wheels, locks, paths=world.places, layout="per-family", version="3.5.0")


def visible(store: Store) -> list[str]:
    return wheel_set.list_set_ids(store, FAMILY)


def require_whole(store: Store, plan: StagePlan) -> wheel_set.SetDocument:
    """Require that a set is there to the last byte, its links included."""
    document = wheel_set.read_set(store, FAMILY, plan.document.id)
    for file in document.files:
        place = f"{plan.index}{file.project}/"
        links = links_of(store.read(f"{place}index.json").content)
        for suffix, digest in (("", file.sha256), (".metadata", file.metadata_sha256)):
            path = _joined(place, links[file.name] + suffix)
            assert hashlib.sha256(store.read(path).content).hexdigest() == digest
    for path, page in plan.make_pages(document.created).items():
        assert store.read(path).content == page
    for digest, text in plan.locks.items():
        assert store.read(plan.paths.lock_file(digest)).content == text
    return document


def _joined(page: str, link: str) -> str:
    parts = page.rstrip("/").split("/")
    while link.startswith("../"):
        link, parts = link[3:], parts[:-1]
    return "/".join([*parts, link.replace("%2B", "+")])


class KilledAtEach(FaultyStore):
    """A store whose process ends after its first write that is new."""

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        super()._write(what, work, path)
        self.done.append(path)
        self._end()

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.done: list[str] = []


def killed_again_and_again(store: Store, plan: StagePlan) -> Iterator[list[str]]:
    """Kill each run one write further on, and look after each; the last one is not killed.

    So each write is the last one of some run, and each run carries on from what the one before has left.
    """
    clean, done = folder.FolderStore(Path(mkdtemp())), list[str]()
    stage(clean, plan)
    expected = {one.path: one.size for one in clean.listing("")}
    shutil.rmtree(clean.folder)
    document = plan.paths.set_document(plan.document.id)
    while len(done) < len(expected):
        one = KilledAtEach(store)
        with pytest.raises(Killed):
            stage(one, plan, LATER if done else NOW)
        done += one.done
        assert visible(store) == [plan.document.id] * (document in done)
        yield done
    assert set(done) == set(expected)
    assert not stage(store, plan, LATER).new
    assert require_whole(store, plan).created == LATER
    assert {one.path: one.size for one in store.listing("")} == expected

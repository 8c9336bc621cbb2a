"""Two sets in a store, the first promoted to a channel, and what installers take from that."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

import pytest
from crash import FaultyStore, Killed, Watched
from index_server import serve_folder
from our_pip import PIP, UV
from release_world import FAMILY, NOW, ROCM, World, a_lock, links_of, rocm_wheel

from rocm_wheels.core import process
from rocm_wheels.index import update
from rocm_wheels.release import channel, store_paths, verdict, wheel_set
from rocm_wheels.release.channel import ChannelActor, ChannelChange, Promoter
from rocm_wheels.release.stage import StagedSet, StagePlan, plan_stage, stage_set
from rocm_wheels.stores import folder
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store

PATHS = store_paths.FamilyPaths(FAMILY)

PAGES = PATHS.channel_pages("nightly")

PASSED = verdict.Verdict(
    "x", FAMILY, "nightly", datetime.now(timezone.utc), (verdict.RuleResult("hashes", "pass"),)
)

OLD, NEW = (("torch", f"2.9.{n}+rocm{ROCM}", f"0.24.{n}+rocm{ROCM}") for n in (1, 2))


def promoter(store: Store, by: str = "ann@here") -> Promoter:
    return Promoter(store, PATHS, "nightly", ChannelActor(by, NOW))


def promote(store: Store, document: wheel_set.SetDocument, by: str = "ann@here") -> ChannelChange:
    return promoter(store, by).promote(document, lambda: PASSED)


def abandon(one: Promoter) -> ChannelChange:
    """Undo whatever change is pending."""
    return one.abandon(one.read_channel_record().channel.change_id)


def channel_of(store: Store) -> channel.Channel:
    return channel.read_channel(store, PATHS, "nightly").channel


class Sets:
    """A folder in which two sets are staged, and the first is promoted."""

    def __init__(self, folder: Path, root: Path, url: str) -> None:
        self.root, self.url = root, url
        self.worlds = [World(folder / "1"), World(folder / "2", "2.9.2")]
        self.worlds[1].wheels[0] = self.worlds[0].wheels[0]  # triton is the same
        self.place = folder / "store"
        store = FolderStore(self.place)
        self.fill(self.store(self.place))
        update.add_wheels(self.place / "rocm", [rocm_wheel(folder)], now=NOW)
        self.documents = [wheel_set.find_set(store, world.plan().document.id) for world in self.worlds]
        self.asked: dict[str, str] = {}
        self.home = folder

    def fill(self, store: Store) -> None:
        plans = [world.plan() for world in self.worlds]
        for plan in plans:
            stage(store, plan)
        promote(store, wheel_set.find_set(store, plans[0].document.id))

    @staticmethod
    def store(place: Path, at: str = "", fault: str = "") -> FaultyStore:
        """Return the store of a copy, which may go wrong."""
        return Watched(FolderStore(place), at=at, fault=fault)

    def copy(self, place: Path) -> Path:
        return linked(self.place, place)

    def get(self, place: Path, tool: str = "uv") -> str:
        """Return what real installers take from the channel: OLD or NEW; anything else is a mixture."""
        pages = sorted((place / PAGES).rglob("index.*"))
        seen = hashlib.sha256(b"".join(str(p.relative_to(place)).encode() + p.read_bytes() for p in pages))
        key = f"{tool} {seen.hexdigest()}"
        if key not in self.asked:
            self.asked[key] = self._ask(place, tool, ALL)
        return self.asked[key]

    def _ask(self, place: Path, tool: str, words: list[str]) -> str:
        options = ["--dry-run", "--target", str(self.home / "none")]
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        url = f"{self.url}{quote(place.relative_to(self.root).as_posix())}/"
        index = ["--index-url", f"{url}{PAGES}/", "--extra-index-url", f"{url}rocm/"]
        if tool == "pip":
            said = process.capture_output(
                [*PIP, "--quiet", "--report", "-", *options, *index, *words], env=env
            )
            listed = [one["metadata"] for one in json.loads(said)["install"]]
            found = {one["name"]: one["version"] for one in listed}
        else:
            command = [*UV, *options, *index, *words]
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr
            lines = [line.split()[1] for line in said.splitlines() if line.strip().startswith("+ ")]
            found = dict(line.split("==") for line in lines)
        assert set(found) == {"torch", "torchvision", "triton", "rocm"}
        return {OLD: "old", NEW: "new"}[("torch", found["torch"], found["torchvision"])]


ALL = ["triton", "torch", "torchvision"]


def linked(source: Path, target: Path) -> Path:
    """Copy a store by hard links: nothing in one is ever written in place."""
    return shutil.copytree(source, target, symlinks=True, copy_function=os.link)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    root = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch, serve_folder(root) as server:
        patch.setattr(os, "fsync", lambda _: None)
        yield Sets(tmp_path_factory.mktemp("sets"), root, server.url)


# ---- staging: the smallest set, and all that the command does in a store

LATER = "2026-11-22T12:00:00Z"


def stage(store: Store, plan: StagePlan, now: str = NOW) -> StagedSet:
    """All that the command does in a store."""
    return stage_set(store, plan, now=now)


def small_plan(world: World) -> StagePlan:
    """Return a set of one wheel, which has every kind of write."""
    wheels = [path for path in world.wheels if path.name.startswith("triton-")]
    locks = [a_lock(["triton"])]
    return plan_stage(wheels, locks, paths=world.places, layout="per-family")


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

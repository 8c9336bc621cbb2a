"""Sets of wheels in a store of releases: staged, promoted, shown, attacked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar
from urllib.parse import quote

import binaries
import pytest
from commands import call
from crash import FaultyStore, Killed, Watched
from documents import said
from packaging.utils import canonicalize_name
from pydantic import ValidationError
from pythons import plan_by_pip, plan_by_uv
from rocm import link_fat_library, link_stub
from servers import serve_folder
from wheels import Draft, embed_parts, library

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.index import update
from rocm_wheels.models import project_names
from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.release import channel, store_paths, verdict, wheel_set
from rocm_wheels.release.channel import ChannelActor, ChannelChange, Promoter
from rocm_wheels.release.evidence import store
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.stage import StagedSet, StagePlan, plan_stage, stage_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import format_lock, write_lock
from rocm_wheels.stores import folder
from rocm_wheels.stores import s3 as store_s3
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    Store,
    read_files,
)
from rocm_wheels.variants.document import SCHEMA
from rocm_wheels.wheels import sbom, statement

# ---- A small release: real wheels with device code, the lock that they were built from, and what they
# need.


FAMILY, TARGET, ROCM = "gfx94X-dcgpu", "gfx942", "7.1.0"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOW = "2026-11-21T12:00:00Z"
_ABI = f"cp{PYTHON.replace('.', '')}"
TAG = f"{_ABI}-{_ABI}-linux_x86_64"
_COMMITS = {"triton": "a" * 40, "pytorch": "b" * 40, "pytorch_vision": "c" * 40}


def a_lock(projects: Iterable[str] = _COMMITS, *, targets: Sequence[str] = (TARGET,)) -> Lock:
    """Return the lock of the release, or a part of it."""
    locked = {
        name: LockedProject(origin=f"https://h/{name}.git", ref="main", why="test", commit=_COMMITS[name])
        for name in projects
    }
    return Lock(rocm=ROCM, targets=tuple(targets), pythons=(PYTHON,), projects=locked)


def drafts(version: str = "2.9.1", *, text: str = "", targets: Sequence[str] = (TARGET,)) -> dict[str, Draft]:
    """Return the wheels of a release, by project; ``text`` is what makes their bytes differ."""
    torch, own = f"{version}+rocm{ROCM}", text.encode()
    code = library(*targets)
    found = {
        "triton": Draft("triton", f"3.5.0+rocm{ROCM}", TAG, members={"triton/__init__.py": own}),
        "torch": Draft(
            "torch",
            torch,
            TAG,
            members={"torch/__init__.py": own, "torch/lib/libtorch_hip.so": code},
            requires=[f"rocm[libraries]=={ROCM}", f"triton==3.5.0+rocm{ROCM}"],
        ),
        "torchvision": Draft(
            "torchvision",
            f"0.24.{version[-1]}+rocm{ROCM}",
            TAG,
            members={"torchvision/__init__.py": own, "torchvision/_C.so": code},
            requires=[f"torch=={torch}"],
        ),
    }
    parts = (["triton"], ["triton", "pytorch"], list(_COMMITS))
    for draft, part in zip(found.values(), parts, strict=True):
        lock = format_lock(a_lock(part, targets=targets)).encode()
        draft.members[f"{draft.folder}/sources.lock.json"] = lock
    return found


@dataclass
class World:
    """Wheels and a lock in a folder."""

    folder: Path
    version: str = "2.9.1"
    text: str = ""
    wheels: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.wheels = sorted(self.folder.glob("*.whl"))
        if not self.wheels:  # else another process has made them
            made = drafts(self.version, text=self.text)
            self.wheels = [draft.write(self.folder) for draft in made.values()]
            write_lock(self.lock, a_lock())

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.folder / "set.lock"

    @property
    def places(self) -> store_paths.FamilyPaths:
        """Where the family is in a store."""
        return store_paths.FamilyPaths(FAMILY)

    def next(self, folder: Path, version: str = "2.9.2") -> World:
        """Return the wheels of another version, with the same triton."""
        other = type(self)(folder, version)
        other.wheels[0] = self.wheels[0]
        return other

    def plan(self) -> StagePlan:
        """Return what is to be staged."""
        return plan_stage(self.wheels, [a_lock()], paths=self.places, layout="per-family")

    def words(self, store: str | Path, *more: str) -> list[str]:
        """Return the words of the command."""
        family = [] if "--family" in more else ["--family", FAMILY]
        options = ["--lock", str(self.lock), *family, *more]
        return ["set", "stage", str(store), *map(str, self.wheels), *options]


class SplitWorld(World):
    """The same with a host wheel of torch, its device wheels and selector, as our command writes them."""

    targets: ClassVar[Sequence[str]] = (TARGET,)

    def __post_init__(self) -> None:
        if not self.lock.exists():
            whole = self.folder / "whole"
            whole.mkdir(parents=True)
            made = drafts(self.version, text=self.text, targets=self.targets)
            torch = made.pop("torch")
            code = binaries.bundle(binaries.HOST, *map(binaries.hip, self.targets))
            linked_to = link_stub(whole)
            torch.members["torch/lib/libtorch_hip.so"] = link_fat_library(
                whole, "libtorch_hip.so", [code], linked_to
            )
            call("wheel", "split", torch.write(whole), "-o", self.folder)
            for draft in made.values():
                draft.write(self.folder)
            write_lock(self.lock, a_lock(targets=self.targets))
        super().__post_init__()
        self.wheels.sort(key=lambda wheel: not wheel.name.startswith("triton-"))


def add_statement(wheel: Path, project: str, commit: str, lock: bytes) -> None:
    """Give a wheel lock and bill of materials, and the statement of its build."""
    source = sbom.SourcePart(project, f"https://github.com/h/{project}", commit)
    embed_parts(wheel, lock, sbom.WheelParts("0.1.0", sources=(source,)))
    dependency = {"uri": sbom.make_repository_url(source), "digest": {"gitCommit": commit}}
    definition = {
        "buildType": statement.BUILD_TYPE,
        "externalParameters": {"lock": {"sha256": hashlib.sha256(lock).hexdigest()}},
        "resolvedDependencies": [dependency],
    }
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": "urn:test"}}}
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    statement.write_statement(wheel, statement.format_statement(wheel.name, digest, predicate))


def rocm_wheel(folder: Path) -> Path:
    """Write what stands for ROCm's own package."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(
        "rocm", ROCM, "py3-none-any", members={"rocm.py": b""}, fields=["Provides-Extra: libraries"]
    )
    return draft.write(folder)


def device_packages(folder: Path, targets: Sequence[str]) -> list[Path]:
    """Write what stands for ROCm's packages that host and device wheels require besides."""
    made = [Draft("rocm_bootstrap", "1.0", "py3-none-any", members={"rocm_bootstrap.py": b""})]
    for gfx in targets:
        members = {f"rocm_device_{gfx}.py": b""}
        made.append(Draft(f"rocm_sdk_device_{gfx}", ROCM, "py3-none-any", members=members))
    return [draft.write(folder) for draft in made]


def links_of(page: bytes) -> dict[str, str]:
    """Return the links of a JSON page by file name."""
    return {file["filename"]: file["url"] for file in json.loads(page)["files"]}


NEWER = a_lock(["triton", "pytorch"], targets=("gfx942", "gfx1100"))
OLDER = a_lock(["triton", "pytorch"]).model_copy(update={"rocm": "7.0.2"})


def several_drafts(
    *targets: str, version: str = "2.9.1", locks: tuple[Lock, Lock] = (NEWER, OLDER)
) -> dict[str, Draft]:
    """Return variants of one version that were built from two locks, and what pip takes of them.

    ``targets`` are those of the newer torch, whose lock has two.
    """
    newer, older = locks
    code = targets or newer.targets
    return {
        "triton": _variant("triton 3.5.0", "null", newer, ()),
        "newer": _variant(f"torch {version}", "rocm7.1", newer, code),
        "older": _variant(f"torch {version}", "rocm7.0", older, older.targets),
        "plain": _variant(f"torch {version}", "", newer, code),
        "plain triton": _variant("triton 3.5.0", "", newer, ()),
    }


def _variant(wheel: str, label: str, lock: Lock, code: Sequence[str]) -> Draft:
    """Return a wheel with a label, whose properties a list in it supports; "" for a plain one."""
    project, version = wheel.split()
    draft = Draft(project, version, TAG)
    draft.members[f"{project}/__init__.py"] = f"label = {label!r}\n".encode()
    built = lock if code else lock.model_copy(update={"projects": {"triton": lock.projects["triton"]}})
    draft.members[f"{draft.folder}/sources.lock.json"] = format_lock(built).encode()
    if code:
        draft.members["torch/lib/libtorch_hip.so"] = library(*code)
        draft.requires = [f"rocm[libraries]=={lock.rocm}", "triton==3.5.0"]
    if label:
        document = {
            "$schema": SCHEMA,
            "default-priorities": {"namespace": ["rocm"]},
            "providers": {"rocm": {"static-properties": {"version": ["7.1", "7.0"]}}},
            "variants": {label: {"rocm": {"version": [label[4:]]}} if code else {}},
        }
        draft.members[f"{draft.folder}/variant.json"] = json.dumps(document).encode()
        draft.file_name = f"{project}-{version}-{TAG}-{label}.whl"
    return draft


# ---- Nights: sets of several torch lines and platforms that come to one channel, staged as they are.


FAMILY_OF_NIGHTS, GPUS = "gfx110X-all", ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
TAGS = {"linux": f"{_ABI}-{_ABI}-linux_x86_64", "windows": f"{_ABI}-{_ABI}-win_amd64", "any": "py3-none-any"}
_COMMITS_OF_NIGHTS = {"pytorch": "b" * 40, "pytorch_vision": "c" * 40}


@dataclass(frozen=True)
class Night:
    """A set of torch and torchvision, made on a day of November; ``vision`` is the tag of the latter.

    ``line`` is what its lock says. ``pinned``: torchvision wants this very torch.
    """

    torch: str
    day: int
    platform: project_names.Platform = "linux"
    line: str | None = None
    targets: Sequence[str] = GPUS
    family: str = FAMILY_OF_NIGHTS
    layout: wheel_set.SetLayout = "per-family"
    vision: str = ""
    pinned: bool = True

    @property
    def created(self) -> str:
        """When it is staged."""
        return f"2026-11-{self.day:02}T00:00:00Z"

    @property
    def version(self) -> str:
        """The version of torch: each night's is its own."""
        return f"{self.torch}+night{self.day:02}.rocm{ROCM}"

    @property
    def lock(self) -> Lock:
        """What it was built from."""
        locked = {
            name: LockedProject(origin=f"https://h/{name}.git", ref="main", why="test", commit=commit)
            for name, commit in _COMMITS_OF_NIGHTS.items()
        }
        return Lock(
            platform=self.platform,
            line=self.line,
            rocm=ROCM,
            targets=tuple(self.targets),
            pythons=(PYTHON,),
            projects=locked,
        )

    def wheels(self, folder: Path) -> list[Path]:
        """Write its wheels."""
        folder.mkdir(parents=True, exist_ok=True)
        own, code = TAGS[self.platform], library(*self.targets)
        vision, tag = self.version.replace("2.", "0.", 1), self.vision or own
        torch = Draft("torch", self.version, own, members={"torch/lib/libtorch_hip.so": code})
        torch.requires = [f"rocm[libraries]=={ROCM}"]
        torch.members["torch/__init__.py"] = f"night = {self.day}\nfound = {self.torch!r}\n".encode()
        with_code = {} if tag.endswith("any") else {"torchvision/_C.so": code}
        other = Draft("torchvision", vision, tag, members=with_code)
        other.members["torchvision/__init__.py"] = b""
        other.requires = [f"torch=={self.version}" if self.pinned else "torch"]
        part = self.lock.model_copy(update={"projects": {"pytorch": self.lock.projects["pytorch"]}})
        for draft, lock in ((torch, part), (other, self.lock)):
            draft.members[f"{draft.folder}/sources.lock.json"] = format_lock(lock).encode()
        return [torch.write(folder), other.write(folder)]

    def stage(self, store: Store, folder: Path) -> wheel_set.SetDocument:
        """Stage it as the command does."""
        places = FamilyPaths(self.family)
        wheels = self.wheels(folder / f"{self.torch}-{self.day}-{self.platform}-{self.family}")
        plan = plan_stage(wheels, [self.lock], paths=places, layout=self.layout)
        stage_set(store, plan, now=self.created)
        return wheel_set.find_set(store, plan.document.id)


def know(store: Store, document: wheel_set.SetDocument, gfx: str, outcome: str, when: datetime) -> None:
    """Write down what smoke tests found on a GPU."""
    found = said("smoke", outcome, gfx=gfx, document=document, when=when, added=when)
    add_evidence(store, document, found.evidence)


def verified(store: Store, document: wheel_set.SetDocument, when: datetime) -> None:
    """Write down that its files are right."""
    found = said("audit", document=document, when=when, added=when)
    add_evidence(store, document, found.evidence)


def hours_ago(moment: datetime, hours: float) -> datetime:
    """Return a time before another."""
    return moment - timedelta(hours=hours)


# ---- What every store promises, tried on one that a test brings.


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


# ---- Two sets in a store, the first promoted to a channel, and what installers take from that.


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
    """A folder in which two sets are staged, and the first is promoted; installers are asked of ``pages``."""

    pages, world, parts = PAGES, World, frozenset[str]()

    def __init__(self, folder: Path, root: Path, url: str) -> None:
        self.root, self.url, self.home = root, url, folder
        own = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
        self.env = {**own, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        first = self.world(folder / "1")
        self.worlds = [first, first.next(folder / "2")]
        self.place = folder / "store"
        store = FolderStore(self.place)
        for number, world in enumerate(self.worlds):
            stage(store, world.plan(), now=f"2026-11-2{number}T12:00:00Z")
        self.documents = [wheel_set.find_set(store, world.plan().document.id) for world in self.worlds]
        self.old, self.new = self.documents
        self.fill(self.store(self.place))
        needed = [rocm_wheel(folder), *device_packages(folder, [TARGET])]
        update.add_wheels(self.place / "rocm", needed, now=NOW)
        self.asked: dict[str, str] = {}

    def fill(self, store: Store) -> None:
        """Release what is staged."""
        promote(store, self.old)

    @staticmethod
    def store(place: Path, at: str = "", fault: str = "") -> Watched:
        """Return the store of a copy, which may go wrong."""
        return Watched(FolderStore(place), at=at, fault=fault)

    def copy(self, place: Path) -> Path:
        return linked(self.place, place)

    def get(self, place: Path, tool: str = "uv") -> str:
        """Return what real installers take from the pages: "old", "new" or "none"; a mixture is an error."""
        folders = sorted({page.parent for page in (place / self.pages).rglob("index.*")})
        pages = [max(folder.glob("index.*")) for folder in folders]  # JSON is what both of them ask for
        seen = hashlib.sha256(b"".join(str(p.relative_to(place)).encode() + p.read_bytes() for p in pages))
        key = f"{tool} {seen.hexdigest()}"
        if key not in self.asked:
            self.asked[key] = self._ask(place, tool)
        return self.asked[key]

    def _ask(self, place: Path, tool: str) -> str:
        url = f"{self.url}{quote(place.relative_to(self.root).as_posix())}/"
        words = ["--index-url", f"{url}{self.pages}/", "--extra-index-url", f"{url}rocm/", *ALL]
        words += ["--target", str(self.home / "none")]
        found = plan_by_pip(words, self.env) if tool == "pip" else plan_by_uv(words, self.env)
        if not found:
            return "none"
        assert {*map(canonicalize_name, found)} == {"torch", "torchvision", "triton", "rocm", *self.parts}
        return {OLD: "old", NEW: "new"}[("torch", found["torch"], found["torchvision"])]


ALL = ["triton", "torch", "torchvision"]


def everything(place: Path) -> dict[str, bytes]:
    """Return what people see of a store in a folder, and the documents that it follows from."""
    found = {str(one.relative_to(place)): one for one in place.rglob("*") if one.is_file()}
    return {path: one.read_bytes() for path, one in found.items() if not path.startswith(".store/")}


def linked(source: Path, target: Path) -> Path:
    """Copy a store by hard links: nothing in one is ever written in place."""
    return shutil.copytree(source, target, symlinks=True, copy_function=os.link)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    root = tmp_path_factory.getbasetemp()
    with serve_folder(root) as server:
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


# ---- A staged set that has all that its promotion needs, and what changes a file of it by hand.


POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}}
"""


@dataclass(frozen=True)
class Attacked:
    """A store, and the set in it."""

    place: Path
    document: wheel_set.SetDocument
    policy: Path

    def copy(self, name: str) -> Attacked:
        return Attacked(linked(self.place, self.place.with_name(name)), self.document, self.policy)

    def files(self, folder: str) -> list[Path]:
        return sorted(path for path in (self.place / folder).rglob("*") if path.is_file())

    @property
    def results(self) -> list[Path]:
        return self.files(PATHS.evidence_folder(self.document.id))

    @property
    def set_file(self) -> Path:
        return self.place / PATHS.set_document(self.document.id)

    def know(self, kind: str, outcome: str, hours: float, key: Path | None = None, **fields: Any) -> str:
        when = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=hours)
        of = {"document": self.document, "when": when, "added": when, "gfx": TARGET}
        evidence = said(kind, outcome, **{"about": self.document.digest, **of, **fields}).evidence
        evidence = evidence if key is None else store.sign_evidence(evidence, key, dict(os.environ))
        store.add_evidence(FolderStore(self.place), self.document, evidence)
        return evidence.id

    def run(self, *words: str) -> int:
        """Run a command of the group `set`."""
        chosen = ["--set", self.document.id] if words[0] in {"gate", "promote"} else []
        more = [] if words[0] == "list" else ["--policy", str(self.policy)]
        return boundary.run_command(main.cli, ["set", words[0], str(self.place), *chosen, *words[1:], *more])

    def promote(self) -> bool:
        """Try to; tell whether people get anything of it."""
        code = self.run("promote", "--channel", "nightly")
        shown = (self.place / PATHS.channel_document("nightly")).exists()
        assert shown == (code == 0)
        return shown


def stage_attacked(folder: Path, *, passes: bool = True) -> Attacked:
    """Stage a set into ``folder / "good"``; with ``passes`` it is verified and tested on its GPU."""
    world, place, policy = World(folder / "world"), folder / "good", folder / "policy.yaml"
    policy.write_text(POLICY)
    assert boundary.run_command(main.cli, world.words(str(place))) == 0
    attacked = Attacked(place, wheel_set.find_set(FolderStore(place), world.plan().document.id), policy)
    if passes:
        attacked.know("audit", "pass", 5)
        attacked.know("smoke", "pass", 4)
    return attacked


def overwrite(path: Path, content: bytes) -> None:
    path.unlink()  # the copies share their files
    path.write_bytes(content)


def is_same_result(one: bytes, other: bytes) -> bool:
    """Tell whether both are results that say the same: a field with its usual value may be left out."""
    with contextlib.suppress(ValidationError):
        return Evidence.model_validate_json(one) == Evidence.model_validate_json(other)
    return False


def list_leaves(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where each value of a document is, lists and mappings that are empty too."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    if not children or not value:
        yield at
    for name, child in children:
        yield from list_leaves(child, (*at, name))

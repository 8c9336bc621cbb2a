"""A small release: real wheels with device code, the lock that they were built from, and what they need."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_wheels import Draft, library
from embedded_parts import embed_parts

from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.release import stage, store_paths
from rocm_wheels.sources.lock import format_lock, write_lock
from rocm_wheels.variants.document import SCHEMA
from rocm_wheels.wheels import sbom, statement

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

    def plan(self) -> stage.StagePlan:
        """Return what is to be staged."""
        return stage.plan_stage(self.wheels, [a_lock()], paths=self.places, layout="per-family")

    def words(self, store: str, *more: str) -> list[str]:
        """Return the words of the command."""
        family = [] if "--family" in more else ["--family", FAMILY]
        options = ["--lock", str(self.lock), *family, *more]
        return ["set", "stage", store, *map(str, self.wheels), *options]


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

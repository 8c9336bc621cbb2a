"""Which lock each wheel of a set is of. A set of variants may have several: one for each ROCm, say.

The lock inside a wheel says it; where there is none, what the wheel requires and holds must leave one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.errors import DataError, ReleaseError, UsageError, explain
from rocm_wheels.model.gfx import base_target, parse_targets
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.project import Project, build_order, load_project
from rocm_wheels.release.layout import LOCK
from rocm_wheels.release.sets import Kind, SetLock, joint_digest
from rocm_wheels.release.staging.wheel import ROCM_NAMES, StagedWheel, python_of
from rocm_wheels.sources.lock.file import lock_digest, lock_text, parse_lock


@dataclass(frozen=True)
class Source:
    """A lock of a set, with the digest of its file, and the ROCm that its wheels are for.

    That is the lock's, unless the wheels were rewritten for another name of the same ROCm.
    """

    lock: Lock
    digest: str
    rocm: str | None

    def __str__(self) -> str:
        """Return it as people tell it from others."""
        targets = f" for {', '.join(self.lock.targets)}" if self.lock.targets else ""
        return f"the lock {self.digest[:12]} with ROCm {self.rocm or 'of any version'}{targets}"


@dataclass(frozen=True)
class Sources:
    """The locks of a set, by their ROCm, and which of them each wheel is of, by file name."""

    all: tuple[Source, ...]
    own: Mapping[str, Source] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.all) > 1

    @cached_property
    def digest(self) -> str:
        """What stands for all of them in the id of a set."""
        return joint_digest(one.digest for one in self.all)

    def of(self, wheel: StagedWheel) -> Lock:
        """Return the lock of a wheel."""
        return self.own[wheel.file.name].lock

    def rocm_of(self, wheel: StagedWheel) -> str | None:
        """Return the ROCm that a wheel is for."""
        return self.own[wheel.file.name].rocm

    def wheels_of(self, source: Source, wheels: Sequence[StagedWheel]) -> list[StagedWheel]:
        """Return the wheels that are of a lock."""
        return [wheel for wheel in wheels if self.own[wheel.file.name] is source]

    def named(self) -> tuple[SetLock, ...]:
        """Return them as the document of a set has them."""
        if not self.several:
            return (SetLock(digest=self.all[0].digest, path=LOCK),)
        return tuple(
            SetLock(digest=one.digest, path=f"{one.digest[:12]}.{LOCK}", rocm=one.rocm) for one in self.all
        )

    def texts(self) -> Mapping[str, bytes]:
        """Return the files, by their paths beside the document."""
        pairs = zip(self.named(), self.all, strict=True)
        return {named.path: lock_text(source.lock).encode() for named, source in pairs}


def projects_of(lock: Lock) -> list[Project]:
    """Return the recipes of all that a lock builds on its platform, in the order of their builds."""
    known = build_order(load_project(name) for name in lock.projects)
    return [project for project in known if lock.platform in project.build.platforms]


def owner(wheel: StagedWheel, projects: Sequence[Project]) -> Project | None:
    """Return the recipe that a wheel is of."""
    return recipe_of(wheel.file.project, projects)


def recipe_of(name: str, projects: Sequence[Project]) -> Project | None:
    """Return the recipe of a name, or of what that is a part of (``torch-device-gfx942``)."""
    for project in projects:
        own = canonicalize_name(project.distribution)
        if name == own or name.startswith(f"{own}-device-"):
            return project
    return None


def find_sources(
    locks: Sequence[Lock], wheels: Sequence[StagedWheel], layout: Kind, renamed: Mapping[str, str]
) -> tuple[Sources, list[StagedWheel]]:
    """Return the locks of a set, and its wheels, each with the digest of its own where there are several.

    ``renamed`` maps the ROCm of a lock to what it is called since, where wheels were rewritten.
    Raises UsageError for locks that cannot be those of one set, and ReleaseError that lists each wheel of
    which it cannot be said which lock it is of.
    """
    by_digest = {lock_digest(lock): lock for lock in locks}
    found = [
        Source(lock, digest, renamed.get(lock.rocm or "", lock.rocm)) for digest, lock in by_digest.items()
    ]
    known = tuple(sorted(found, key=_in_order))
    if len(known) == 1:
        return Sources(known, {wheel.file.name: known[0] for wheel in wheels}), list(wheels)
    if layout != "variants":
        raise UsageError(
            f"{len(known)} locks were given, and wheels of {layout} are all of one",
            tip="variants are of several: --layout variants; else stage a set for each lock",
        )
    if len(platforms := sorted({one.lock.platform for one in known})) > 1:
        raise UsageError(f"the locks are for {' and '.join(platforms)}", tip="stage a set for each")
    own, faults = dict[str, Source](), list[str]()
    for wheel in wheels:
        try:
            own[wheel.file.name] = _source_of(wheel, known)
        except ReleaseError as fault:
            faults.append(str(fault))
    if faults:
        raise ReleaseError("\n".join(faults), tip="`build --lock` puts the lock of a wheel into it")
    if idle := [str(one) for one in known if one not in own.values()]:
        raise ReleaseError(f"no wheel is of {', nor of '.join(idle)}", tip="leave it out, or add its wheels")
    told = [
        replace(one, file=one.file.model_copy(update={"lock": own[one.file.name].digest})) for one in wheels
    ]
    return Sources(known, own), told


def _in_order(source: Source) -> tuple[Version, str]:
    return Version(source.rocm or "0"), source.digest


def _source_of(wheel: StagedWheel, known: Sequence[Source]) -> Source:
    name = wheel.file.name
    if wheel.lock is None:
        fitting = [one for one in known if _could_be(wheel, one)]
        if len(fitting) == 1:
            return fitting[0]
        which = " or ".join(map(str, fitting)) or "none of the locks"
        raise ReleaseError(f"{name}: it has no lock inside, and could be of {which}")
    faults = {one.digest: lock_faults(wheel, one.lock) for one in known}
    fitting = [one for one in known if not faults[one.digest]]
    if not fitting:
        told = "; ".join(f"not of {one}: {', '.join(faults[one.digest])}" for one in known)
        raise ReleaseError(f"{name}: it is of none of the locks: {told}")
    inside = parse_lock(wheel.lock, name="the lock in it")
    same = [one for one in fitting if (one.lock.rocm, one.lock.targets) == (inside.rocm, inside.targets)]
    return (same or fitting)[0]  # locks that say the same of all that it was built from


def _could_be(wheel: StagedWheel, source: Source) -> bool:
    """Tell whether a lock could be that of a wheel, by its project, Python, targets and ROCm packages."""
    lock = source.lock
    targets = {base_target(target) for target in parse_targets(",".join(lock.targets))}
    python = python_of(wheel.tags)
    return (
        owner(wheel, projects_of(lock)) is not None
        and (not lock.pythons or python is None or python in lock.pythons)
        and (not targets or targets.issuperset(wheel.file.targets))
        and all(
            source.rocm is None or one.specifier.contains(source.rocm, prereleases=True)
            for one in wheel.requires
            if ROCM_NAMES.fullmatch(canonicalize_name(one.name))
        )
    )


def lock_faults(wheel: StagedWheel, lock: Lock) -> list[str]:
    """Return in what the lock inside a wheel, which holds what it needed, is not a part of another."""
    if wheel.lock is None:
        return []
    try:
        inside = parse_lock(wheel.lock, name="the lock in it")
    except DataError as wrong:
        return [explain(wrong)]
    found = []
    if inside.platform != lock.platform:
        found.append(f"it was built for {inside.platform}, the lock is for {lock.platform}")
    if inside.rocm and lock.rocm and inside.rocm != lock.rocm:
        found.append(f"it was built with ROCm {inside.rocm}, the lock says {lock.rocm}")
    for name, project in inside.projects.items():
        locked = lock.projects.get(name)
        if locked is None:
            found.append(f"it was built against {name}, which the lock has not")
        elif (locked.commit, locked.patches) != (project.commit, project.patches):
            what = "other patches" if locked.commit == project.commit else f"commit {project.commit[:12]}"
            found.append(f"it was built from {what} of {name}, the lock says {locked.commit[:12]}")
    return found

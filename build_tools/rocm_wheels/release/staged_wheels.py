"""Read the wheels that are to be staged, in one pass each, and tell which lock each one is of.

A set of variants may have several locks: one for each ROCm, say. The lock inside a wheel says it; where
there is none, what the wheel requires and holds must leave one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.core import errors, parallel
from rocm_wheels.device_code import code_objects
from rocm_wheels.models import gfx
from rocm_wheels.models.lock import Lock
from rocm_wheels.models.project import Project, load_project, sort_projects
from rocm_wheels.package import provenance, version_edit
from rocm_wheels.release import wheel_set
from rocm_wheels.release.store_paths import LOCK_FILE
from rocm_wheels.sources.lock import digest_lock, format_lock, parse_lock
from rocm_wheels.variants import device_names
from rocm_wheels.variants.document import VARIANT_FILE_NAME, parse_wheel_document
from rocm_wheels.wheels import python_tags, statement
from rocm_wheels.wheels.scan import WheelScan, scan_wheel

_CARRIED_ROCM = re.compile(r"[^/]+/_rocm/")


@dataclass(frozen=True)
class StagedWheel:
    """A wheel of this machine, as it will be in a set; ``lock`` is the text of the one inside, if any.

    ``origin`` is the wheel with the statement that says how it was made, if it has one.
    """

    path: Path
    file: wheel_set.SetFile
    metadata: bytes
    requires: tuple[Requirement, ...]
    tags: frozenset[Tag]
    lock: str | None
    elsewhere: bool  # device code of its libraries is in archives of other wheels
    scan: WheelScan = field(repr=False)
    origin: statement.WheelOrigin | None = None

    def restrict_to_targets(self, targets: Collection[str]) -> StagedWheel:
        """Return it as the set of a family has it: what code it has for others is no matter of this set."""
        return self._with_file(targets=tuple(target for target in self.file.targets if target in targets))

    def with_origin(self, origin: statement.WheelOrigin) -> StagedWheel:
        """Return it with a statement that says how it was made."""
        digest = hashlib.sha256(origin.statement).hexdigest()
        return replace(self._with_file(statement=digest), origin=origin)

    def with_lock(self, digest: str) -> StagedWheel:
        """Return it as a set with several locks has it."""
        return self._with_file(lock=digest)

    def _with_file(self, **changes: object) -> StagedWheel:
        return replace(self, file=self.file.model_copy(update=changes))


def read_staged_wheels(paths: Sequence[Path]) -> list[StagedWheel]:
    """Read wheels, several at a time, with the statements beside them.

    Raises ReleaseError that lists everything that is wrong with them, also for a statement that is not about
    its wheel.
    """
    names: dict[str, Path] = {}
    for path in paths:
        if (other := names.setdefault(path.name, path)) != path:
            raise errors.ReleaseError(f"{other} and {path} have one name: a set holds a name once")
    scans = parallel.run_in_parallel(
        lambda path: scan_wheel(path, leaks=True, symbols=True), names.values(), jobs=os.cpu_count() or 1
    )
    wheels = []
    for wheel in make_staged_wheels(scans):
        if statement.has_statement(wheel.path):
            report = provenance.verify_provenance(wheel.path, sha256=wheel.file.sha256)
            if not report.passed:
                raise errors.ReleaseError(
                    "\n".join(errors.format_finding(finding) for finding in report.findings),
                    tip="a wheel may have no statement, and none that is wrong:"
                    " see `rocm-wheels provenance verify`",
                )
            origin = statement.read_origin(wheel.path, sha256=wheel.file.sha256)
            wheels.append(wheel.with_origin(origin) if origin is not None else wheel)
        else:
            wheels.append(wheel)
    return wheels


def make_staged_wheels(scans: Sequence[WheelScan]) -> list[StagedWheel]:
    """Return wheels that were scanned, without the statements beside them.

    Raises ReleaseError that lists everything that is wrong with them, and what is dangerous in any wheel:
    which startup files are, the recipe says.
    """
    faults = []
    for scan in scans:
        hazards = [hazard for hazard in scan.hazards if hazard.severity == "error"]
        faults += [*scan.faults, *scan.repairable]
        faults += [f"{scan.path}: {hazard.member}: {hazard.text}" for hazard in hazards]
    if faults:
        raise errors.ReleaseError(
            "\n".join(faults), tip="`rocm-wheels audit` and `rocm-wheels wheel retag` show and repair wheels"
        )
    return [_make_staged_wheel(scan) for scan in scans]


def _make_staged_wheel(scan: WheelScan) -> StagedWheel:
    name, metadata = scan.name, scan.metadata
    texts = {member.partition("/")[2]: text for member, text in scan.texts.items() if ".dist-info/" in member}
    assert name is not None and metadata is not None  # else there are faults
    targets = code_objects.list_code_targets(code for codes in scan.device_code.values() for code in codes)
    file = wheel_set.SetFile(
        name=scan.path.name,
        project=name.name,
        version=str(name.version),
        sha256=scan.sha256,
        size=scan.size,
        requires_python=str(metadata.requires_python),
        metadata_sha256=hashlib.sha256(texts["METADATA"]).hexdigest(),
        targets=tuple(sorted({gfx.strip_features(target) for target in targets})),
        label=name.label or "",
        variant=_read_variant(scan.path, texts.get(VARIANT_FILE_NAME), name.label) if name.label else "",
        carries_rocm=any(_CARRIED_ROCM.match(member.name) for member in scan.members),
    )
    requires = tuple(Requirement(requirement) for requirement in metadata.requires_dist)
    lock = texts[LOCK_FILE].decode("utf-8", "replace") if LOCK_FILE in texts else None
    moved = bool(scan.moved_code)
    return StagedWheel(scan.path, file, texts["METADATA"], requires, name.tags, lock, moved, scan)


def _read_variant(path: Path, content: bytes | None, label: str) -> str:
    where = f"{path}: {VARIANT_FILE_NAME}"
    if content is None:
        raise errors.ReleaseError(f"{where} is missing, and the file name has the label {label}")
    return parse_wheel_document(content, name=where, label=label).to_json().decode()


@dataclass(frozen=True)
class SetSource:
    """A lock of a set, with the digest of its file, and the ROCm that its wheels are for.

    That is the lock's, unless the wheels were rewritten for another name of the same ROCm.
    """

    lock: Lock
    digest: str
    rocm: str | None

    @cached_property
    def projects(self) -> Sequence[Project]:
        """The recipes of all that the lock builds on its platform, in the order of their builds."""
        projects = sort_projects(load_project(name) for name in self.lock.projects)
        return [project for project in projects if self.lock.platform in project.build.platforms]

    def __str__(self) -> str:
        """Return it as people tell it from others."""
        targets = f" for {', '.join(self.lock.targets)}" if self.lock.targets else ""
        return f"the lock {self.digest[:12]} with ROCm {self.rocm or 'of any version'}{targets}"


@dataclass(frozen=True)
class SetSources:
    """The locks of a set, by their ROCm, and which of them each wheel is of, by file name."""

    all: tuple[SetSource, ...]
    by_wheel: Mapping[str, SetSource] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether there is more than one."""
        return len(self.all) > 1

    @cached_property
    def digest(self) -> str:
        """What stands for all of them in the id of a set."""
        return wheel_set.join_lock_digests(source.digest for source in self.all)

    def source_of(self, wheel: StagedWheel) -> SetSource:
        """Return the lock of a wheel, with what belongs to it."""
        return self.by_wheel[wheel.file.name]

    def wheels_of(self, source: SetSource, wheels: Sequence[StagedWheel]) -> list[StagedWheel]:
        """Return the wheels that are of a lock."""
        return [wheel for wheel in wheels if self.by_wheel[wheel.file.name] is source]

    def list_set_locks(self) -> tuple[wheel_set.SetLock, ...]:
        """Return them as the document of a set has them."""
        return tuple(
            wheel_set.SetLock(digest=source.digest, rocm=source.rocm if self.has_several else None)
            for source in self.all
        )

    def list_lock_files(self) -> Mapping[str, bytes]:
        """Return the files by their sha256."""
        return {source.digest: format_lock(source.lock).encode() for source in self.all}


def find_recipe(project: str, recipes: Sequence[Project]) -> Project | None:
    """Return the recipe of a project, or of what that is a part of (``amd-torch-device-gfx942``)."""
    names = {project, device_names.find_host_project(project)}
    return next((recipe for recipe in recipes if canonicalize_name(recipe.distribution) in names), None)


def find_sources(
    locks: Sequence[Lock],
    wheels: Sequence[StagedWheel],
    layout: wheel_set.SetLayout,
) -> tuple[SetSources, list[StagedWheel]]:
    """Return the locks of a set, and its wheels, each with the digest of its own where there are several.

    Raises UsageError for locks that cannot be those of one set, and ReleaseError that lists each wheel of
    which it cannot be said which lock it is of.
    """
    by_digest = {digest_lock(lock): lock for lock in locks}
    unsorted = [SetSource(lock, digest, _find_rocm_name(lock, wheels)) for digest, lock in by_digest.items()]
    sources = tuple(sorted(unsorted, key=_source_sort_key))
    if len(sources) == 1:
        return SetSources(sources, {wheel.file.name: sources[0] for wheel in wheels}), list(wheels)
    if layout != "variants":
        raise errors.UsageError(
            f"{len(sources)} locks were given, and wheels of {layout} are all of one",
            tip="variants are of several: --layout variants; else stage a set for each lock",
        )
    if len(platforms := sorted({item.lock.platform for item in sources})) > 1:
        raise errors.UsageError(f"the locks are for {' and '.join(platforms)}", tip="stage a set for each")
    source_by_wheel, faults = dict[str, SetSource](), list[str]()
    for wheel in wheels:
        try:
            source_by_wheel[wheel.file.name] = _find_source(wheel, sources)
        except errors.ReleaseError as fault:
            faults.append(str(fault))
    if faults:
        raise errors.ReleaseError("\n".join(faults), tip="`build --lock` puts the lock of a wheel into it")
    if idle := [str(item) for item in sources if item not in source_by_wheel.values()]:
        raise errors.ReleaseError(
            f"no wheel is of {', nor of '.join(idle)}", tip="leave it out, or add its wheels"
        )
    with_locks = [wheel.with_lock(source_by_wheel[wheel.file.name].digest) for wheel in wheels]
    return SetSources(sources, source_by_wheel), with_locks


def _find_rocm_name(lock: Lock, wheels: Sequence[StagedWheel]) -> str | None:
    """Return what the ROCm of a lock is called: wheels with final versions pin 7.1.0 for its 7.1.0rc1."""
    if lock.rocm is None:
        return None
    built = Version(lock.rocm)
    pins = {
        specifier.version
        for wheel in wheels
        for requirement in wheel.requires
        if canonicalize_name(requirement.name) == "rocm"
        for specifier in requirement.specifier
        if specifier.operator == "==" and "*" not in specifier.version
    }
    renamed = [pin for pin in pins if Version(pin).release == built.release and built.is_prerelease]
    return renamed[0] if len(renamed) == 1 else lock.rocm


def _source_sort_key(source: SetSource) -> tuple[Version, str]:
    return Version(source.rocm or "0"), source.digest


def _find_source(wheel: StagedWheel, sources: Sequence[SetSource]) -> SetSource:
    name = wheel.file.name
    if wheel.lock is None:
        fitting = [source for source in sources if _is_possible_source(wheel, source)]
        if len(fitting) == 1:
            return fitting[0]
        which = " or ".join(map(str, fitting)) or "none of the locks"
        raise errors.ReleaseError(f"{name}: it has no lock inside, and could be of {which}")
    faults = {source.digest: find_lock_faults(wheel, source.lock) for source in sources}
    fitting = [source for source in sources if not faults[source.digest]]
    if not fitting:
        reasons = "; ".join(f"not of {source}: {', '.join(faults[source.digest])}" for source in sources)
        raise errors.ReleaseError(f"{name}: it is of none of the locks: {reasons}")
    wheel_lock = parse_lock(wheel.lock, name="the lock in it")
    same_target_sources = [
        source
        for source in fitting
        if (source.lock.rocm, source.lock.targets) == (wheel_lock.rocm, wheel_lock.targets)
    ]
    return (same_target_sources or fitting)[0]  # locks that say the same of all that it was built from


def _is_possible_source(wheel: StagedWheel, source: SetSource) -> bool:
    """Tell whether a lock could be that of a wheel, by its project, Python, targets and ROCm packages."""
    lock = source.lock
    targets = {gfx.strip_features(target) for target in gfx.parse_targets(",".join(lock.targets))}
    python = python_tags.find_single_python(wheel.tags)
    return (
        find_recipe(wheel.file.project, source.projects) is not None
        and (not lock.pythons or python is None or python in lock.pythons)
        and (not targets or targets.issuperset(wheel.file.targets))
        and all(
            source.rocm is None or requirement.specifier.contains(source.rocm, prereleases=True)
            for requirement in wheel.requires
            if version_edit.ROCM_PROJECT_NAMES.fullmatch(canonicalize_name(requirement.name))
        )
    )


def find_lock_faults(wheel: StagedWheel, lock: Lock) -> list[str]:
    """Return in what the lock inside a wheel, which holds what it needed, is not a part of another."""
    if wheel.lock is None:
        return []
    try:
        wheel_lock = parse_lock(wheel.lock, name="the lock in it")
    except errors.DataError as wrong:
        return [errors.explain_error(wrong)]
    faults = []
    if wheel_lock.platform != lock.platform:
        faults.append(f"it was built for {wheel_lock.platform}, the lock is for {lock.platform}")
    if wheel_lock.rocm and lock.rocm and wheel_lock.rocm != lock.rocm:
        faults.append(f"it was built with ROCm {wheel_lock.rocm}, the lock says {lock.rocm}")
    for name, project in wheel_lock.projects.items():
        locked = lock.projects.get(name)
        if locked is None:
            faults.append(f"it was built against {name}, which the lock has not")
        elif (locked.commit, locked.patches) != (project.commit, project.patches):
            difference = (
                "other patches" if locked.commit == project.commit else f"commit {project.commit[:12]}"
            )
            faults.append(f"it was built from {difference} of {name}, the lock says {locked.commit[:12]}")
    return faults

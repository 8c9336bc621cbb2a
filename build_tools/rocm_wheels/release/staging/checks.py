"""What must be right with the wheels of a set before anything is sent: each rule returns what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.model.gfx import gfx_families
from rocm_wheels.model.names import project_names
from rocm_wheels.model.project import load_project
from rocm_wheels.records import did_you_mean
from rocm_wheels.release.sets import Kind
from rocm_wheels.release.staging.belonging import Sources, lock_faults, owner, projects_of
from rocm_wheels.release.staging.cells import targets_for
from rocm_wheels.release.staging.wheel import ROCM_NAMES, StagedWheel, accepts, python_of

_MOST_SHOWN = 30


@dataclass(frozen=True)
class Subject:
    """All that the rules look at."""

    wheels: Sequence[StagedWheel]
    sources: Sources
    family: str
    layout: Kind


def check_family(family: str, layout: Kind) -> None:
    """Raise UsageError for the name of no GPU family, where the layout is by family."""
    known = gfx_families()
    if layout == "per-family" and family not in known:
        raise UsageError(
            f"--family {family} is no GPU family{did_you_mean(family, known)}",
            tip=f"families: {', '.join(known)}; or say what the wheels are: --layout multi-arch",
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", family):
        raise UsageError(f"--family {family!r} cannot be the name of a folder in a store")


def version_of(wheels: Sequence[StagedWheel], version: str | None) -> str:
    """Return the version of a set: torch's. Raises ReleaseError where wheels or ``version`` disagree."""
    found = sorted({wheel.file.version for wheel in wheels if wheel.file.project == "torch"})
    if len(found) > 1:
        raise ReleaseError(f"a set has one torch, these are {', '.join(found)}", tip="stage a set for each")
    if not found and version is None:
        raise UsageError(
            "there is no torch among the wheels", tip="say which version the set is of: --version"
        )
    if version is None:
        return found[0]
    try:
        asked = Version(version)
    except InvalidVersion as cause:
        raise UsageError(f"--version {version!r} is not a version") from cause
    if found and Version(found[0]) != asked:
        raise ReleaseError(f"the set is to be of {asked}, its torch is {found[0]}")
    return str(asked)


def check_set(subject: Subject) -> None:
    """Raise ReleaseError that lists everything that is wrong."""
    faults = [f"{wheel.file.name}: {fault}" for wheel in subject.wheels for fault in _faults(wheel, subject)]
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise ReleaseError("\n".join(faults[:_MOST_SHOWN]) + more, tip="nothing was sent")


def _faults(wheel: StagedWheel, subject: Subject) -> Iterator[str]:
    if owner(wheel, projects_of(subject.sources.of(wheel))) is None:
        yield f"nothing in the lock builds {wheel.file.project}"
        return
    yield from _targets(wheel, subject)
    yield from lock_faults(wheel, subject.sources.of(wheel))
    machine = _machine(wheel, subject)
    for requirement in wheel.requires:
        if requirement.marker is None or requirement.marker.evaluate(machine):
            yield from _requirement(requirement, wheel, subject)


def _targets(wheel: StagedWheel, subject: Subject) -> Iterator[str]:
    if subject.layout == "per-family":
        yield from _of_family(wheel, subject)
    if subject.layout == "variants" and not any(_is_known(wheel, one, subject) for one in subject.wheels):
        said = f"it has device code for {', '.join(wheel.file.targets)} and no variant label"
        yield f"{said}, and no variant here is the same for installers that know of variants"


def _of_family(wheel: StagedWheel, subject: Subject) -> Iterator[str]:
    """Tell which code is not the family's; where a wheel may serve all of them, which of the family's is not.

    One that was built for another family alone would have none for the GPUs of this one.
    """
    lock = subject.sources.of(wheel)
    own = targets_for(lock, subject.family, "per-family")
    others = [target for target in wheel.file.targets if target not in gfx_families()[subject.family]]
    if not others:
        return
    said = f"it has device code for {', '.join(others)}, which {subject.family} has not"
    project = owner(wheel, projects_of(lock))
    if project is None or not project.serves_every_family(lock.platform):
        yield f"{said} (wheels for several families: --layout multi-arch)"
    elif lacking := [target for target in own if target not in wheel.file.targets]:
        yield f"{said}, and none for {', '.join(lacking)}: built for all families, it would have both"


def _is_known(wheel: StagedWheel, one: StagedWheel, subject: Subject) -> bool:
    """Tell whether a wheel has a label, or needs none: no device code, or another is the same with one."""
    if wheel.file.label or not wheel.file.targets:
        return True
    plain, other = wheel.file, one.file
    return (
        bool(other.label)
        and (other.project, other.version, other.targets) == (plain.project, plain.version, plain.targets)
        and one.tags == wheel.tags
        and subject.sources.of(one) is subject.sources.of(wheel)
    )


def _machine(wheel: StagedWheel, subject: Subject) -> dict[str, str]:
    """Return what markers are asked about: the machine that a wheel is for; no extra is wanted."""
    pythons = [python for one in subject.wheels if (python := python_of(one.tags))]
    python = (python_of(wheel.tags) or max(pythons, key=_number, default="3.12")).rstrip("t")
    windows = subject.sources.of(wheel).platform == "windows"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "nt" if windows else "posix",
        "platform_machine": "AMD64" if windows else "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Windows" if windows else "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "win32" if windows else "linux",
    }


def _number(python: str) -> Version:
    return Version(python.rstrip("t"))


def _requirement(requirement: Requirement, wheel: StagedWheel, subject: Subject) -> Iterator[str]:
    """Tell why a requirement cannot be met inside the set, from ROCm's index or from PyPI."""
    name = canonicalize_name(requirement.name)
    inside = [one for one in subject.wheels if one.file.project == name]
    if requirement.url:
        yield f"it requires {requirement}: a place, which is not in the set"
    elif inside:
        python = python_of(wheel.tags)
        fitting = [one for one in inside if python is None or accepts(one.tags, python)]
        versions = sorted({one.file.version for one in fitting})
        if not fitting:
            yield f"it requires {requirement}, and the set has no {name} for Python {python}"
        elif not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"it requires {requirement}, the set has {name} {', '.join(versions)}"
    elif ROCM_NAMES.fullmatch(name):
        rocm = subject.sources.rocm_of(wheel)
        if rocm and not requirement.specifier.contains(rocm, prereleases=True):
            yield f"it requires {requirement}, the lock says ROCm {rocm}"
    elif name in _our_names():
        yield f"it requires {requirement}, which is not in the set"
    elif any("+" in one.version for one in requirement.specifier):
        yield f"it requires {requirement}: PyPI has no versions with a local part"


def _our_names() -> set[str]:
    return {str(canonicalize_name(load_project(name).distribution)) for name in project_names()}

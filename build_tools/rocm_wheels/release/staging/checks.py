"""What must be right with the wheels of a set before anything is sent: each rule returns what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.model.gfx import get_gfx_families
from rocm_wheels.model.names import list_project_names
from rocm_wheels.model.project import load_project
from rocm_wheels.records import suggest_name
from rocm_wheels.release.sets import SetLayout
from rocm_wheels.release.staging.belonging import (
    SetSources,
    find_lock_faults,
    find_wheel_recipe,
    list_lock_projects,
)
from rocm_wheels.release.staging.cells import list_lock_targets
from rocm_wheels.release.staging.wheel import (
    ROCM_PROJECT_NAMES,
    StagedWheel,
    accepts_python,
    find_single_python,
)

_MOST_FAULTS_SHOWN = 30


@dataclass(frozen=True)
class StageSubject:
    """All that the rules look at."""

    wheels: Sequence[StagedWheel]
    sources: SetSources
    family: str
    layout: SetLayout


def check_family(family: str, layout: SetLayout) -> None:
    """Raise UsageError for the name of no GPU family, where the layout is by family."""
    gpu_families = get_gfx_families()
    if layout == "per-family" and family not in gpu_families:
        raise UsageError(
            f"--family {family} is no GPU family{suggest_name(family, gpu_families)}",
            tip=f"families: {', '.join(gpu_families)}; or say what the wheels are: --layout multi-arch",
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", family):
        raise UsageError(f"--family {family!r} cannot be the name of a folder in a store")


def find_set_version(wheels: Sequence[StagedWheel], version: str | None) -> str:
    """Return the version of a set: torch's. Raises ReleaseError where wheels or ``version`` disagree."""
    versions = sorted({wheel.file.version for wheel in wheels if wheel.file.project == "torch"})
    if len(versions) > 1:
        raise ReleaseError(
            f"a set has one torch, these are {', '.join(versions)}", tip="stage a set for each"
        )
    if not versions and version is None:
        raise UsageError(
            "there is no torch among the wheels", tip="say which version the set is of: --version"
        )
    if version is None:
        return versions[0]
    try:
        requested = Version(version)
    except InvalidVersion as cause:
        raise UsageError(f"--version {version!r} is not a version") from cause
    if versions and Version(versions[0]) != requested:
        raise ReleaseError(f"the set is to be of {requested}, its torch is {versions[0]}")
    return str(requested)


def check_set(subject: StageSubject) -> None:
    """Raise ReleaseError that lists everything that is wrong."""
    faults = [
        f"{wheel.file.name}: {fault}" for wheel in subject.wheels for fault in _find_faults(wheel, subject)
    ]
    if faults:
        rest_note = (
            f"\n… and {len(faults) - _MOST_FAULTS_SHOWN} more" if len(faults) > _MOST_FAULTS_SHOWN else ""
        )
        raise ReleaseError("\n".join(faults[:_MOST_FAULTS_SHOWN]) + rest_note, tip="nothing was sent")


def _find_faults(wheel: StagedWheel, subject: StageSubject) -> Iterator[str]:
    if find_wheel_recipe(wheel, list_lock_projects(subject.sources.lock_of(wheel))) is None:
        yield f"nothing in the lock builds {wheel.file.project}"
        return
    yield from _check_targets(wheel, subject)
    yield from find_lock_faults(wheel, subject.sources.lock_of(wheel))
    machine = _make_marker_environment(wheel, subject)
    for requirement in wheel.requires:
        if requirement.marker is None or requirement.marker.evaluate(machine):
            yield from _check_requirement(requirement, wheel, subject)


def _check_targets(wheel: StagedWheel, subject: StageSubject) -> Iterator[str]:
    if subject.layout == "per-family":
        yield from _check_family_targets(wheel, subject)
    if subject.layout == "variants" and not any(
        _is_usable_variant(wheel, other, subject) for other in subject.wheels
    ):
        fault = f"it has device code for {', '.join(wheel.file.targets)} and no variant label"
        yield f"{fault}, and no variant here is the same for installers that know of variants"


def _check_family_targets(wheel: StagedWheel, subject: StageSubject) -> Iterator[str]:
    """Tell which code is not the family's; where a wheel may serve all of them, which of the family's is not.

    One that was built for another family alone would have none for the GPUs of this one.
    """
    lock = subject.sources.lock_of(wheel)
    lock_targets = list_lock_targets(lock, subject.family, "per-family")
    other_targets = [
        target for target in wheel.file.targets if target not in get_gfx_families()[subject.family]
    ]
    if not other_targets:
        return
    fault = f"it has device code for {', '.join(other_targets)}, which {subject.family} has not"
    project = find_wheel_recipe(wheel, list_lock_projects(lock))
    if project is None or not project.serves_every_family(lock.platform):
        yield f"{fault} (wheels for several families: --layout multi-arch)"
    elif missing_targets := [target for target in lock_targets if target not in wheel.file.targets]:
        yield f"{fault}, and none for {', '.join(missing_targets)}: built for all families, it would have both"


def _is_usable_variant(wheel: StagedWheel, counterpart: StagedWheel, subject: StageSubject) -> bool:
    """Tell whether a wheel has a label, or needs none: no device code, or another is the same with one."""
    if wheel.file.label or not wheel.file.targets:
        return True
    wheel_file, labelled = wheel.file, counterpart.file
    return (
        bool(labelled.label)
        and (labelled.project, labelled.version, labelled.targets)
        == (wheel_file.project, wheel_file.version, wheel_file.targets)
        and counterpart.tags == wheel.tags
        and subject.sources.lock_of(counterpart) is subject.sources.lock_of(wheel)
    )


def _make_marker_environment(wheel: StagedWheel, subject: StageSubject) -> dict[str, str]:
    """Return what markers are asked about: the machine that a wheel is for; no extra is wanted."""
    pythons = [python for set_wheel in subject.wheels if (python := find_single_python(set_wheel.tags))]
    python = (find_single_python(wheel.tags) or max(pythons, key=_python_number, default="3.12")).rstrip("t")
    windows = subject.sources.lock_of(wheel).platform == "windows"
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


def _python_number(python: str) -> Version:
    return Version(python.rstrip("t"))


def _check_requirement(requirement: Requirement, wheel: StagedWheel, subject: StageSubject) -> Iterator[str]:
    """Tell why a requirement cannot be met inside the set, from ROCm's index or from PyPI."""
    name = canonicalize_name(requirement.name)
    set_wheels = [item for item in subject.wheels if item.file.project == name]
    if requirement.url:
        yield f"it requires {requirement}: a place, which is not in the set"
    elif set_wheels:
        python = find_single_python(wheel.tags)
        fitting = [item for item in set_wheels if python is None or accepts_python(item.tags, python)]
        versions = sorted({item.file.version for item in fitting})
        if not fitting:
            yield f"it requires {requirement}, and the set has no {name} for Python {python}"
        elif not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
            yield f"it requires {requirement}, the set has {name} {', '.join(versions)}"
    elif ROCM_PROJECT_NAMES.fullmatch(name):
        rocm = subject.sources.rocm_of(wheel)
        if rocm and not requirement.specifier.contains(rocm, prereleases=True):
            yield f"it requires {requirement}, the lock says ROCm {rocm}"
    elif name in _list_our_projects():
        yield f"it requires {requirement}, which is not in the set"
    elif any("+" in item.version for item in requirement.specifier):
        yield f"it requires {requirement}: PyPI has no versions with a local part"


def _list_our_projects() -> set[str]:
    return {str(canonicalize_name(load_project(name).distribution)) for name in list_project_names()}

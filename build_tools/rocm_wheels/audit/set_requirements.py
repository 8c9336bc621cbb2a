"""Check that what the wheels of a set require is in the set: pins, extras, device wheels, ROCm's packages.

Only what the set has something of is judged: what else is required (numpy, filelock) comes from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.audit import audited_set, audited_wheel, definition, metadata, set_environments
from rocm_wheels.core import errors, tables
from rocm_wheels.index import folder
from rocm_wheels.models import gfx
from rocm_wheels.variants import device_names

_ROCM_PREFIX = "rocm-sdk-"
_DEVICE_WHEEL = re.compile(r"amd-(?P<host>.+)-device-(?P<key>gfx[\w-]+)")
_TARGET_PACKAGE = re.compile(r"(?:rocm-sdk-(?:device|libraries|devel)|amd-.+-device)-(?P<key>gfx[\w-]+)")


@definition.check(
    "RW062 set-pins (error)",
    why="Installers find nothing to install, or take another build from elsewhere: segmentation faults.",
    fix="Build or stamp both again, from one lock.",
    kind="set",
)
def check_set_pins(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """What a wheel requires of a project in the set is there, in that version and with those extras."""
    faults = _FaultsOfWheels()
    for required in set_environments.iterate_requirements(subject):
        name, requirement = required.wheel.scan.path.name, required.requirement
        if required.project not in subject.wheels_by_project:
            if _is_built_with(subject, required):
                faults.add(name, f"requires {_spell(required)}, and the set has no {required.project}")
            others = sorted(set_environments.TRITON_NAMES & set(subject.wheels_by_project))
            if required.project in set_environments.TRITON_NAMES and others:
                tip = "require it by the name that it is published under, or publish it under that name"
                faults.add(name, f"requires {requirement.name}, and the set has it as {others[0]}", tip)
            sdists = _list_sdist_versions(subject, required.project)
            if sdists and not any(requirement.specifier.contains(version, True) for version in sdists):
                versions = ", ".join(map(str, sdists))
                faults.add(name, f"requires {_spell(required)}, and the set has {versions}")
            continue
        candidates = set_environments.find_candidates(subject, required.project, required.environment)
        if not candidates:
            continue  # that there is none for a Python is told as incomplete
        fitting = [
            wheel
            for wheel in candidates
            if requirement.specifier.contains(set_environments.get_version(wheel), True)
        ]
        older = set_environments.list_older_versions(subject, required.project, required.environment)
        if not fitting and not any(requirement.specifier.contains(version, True) for version in older):
            versions = ", ".join(sorted({str(set_environments.get_version(wheel)) for wheel in candidates}))
            faults.add(name, f"requires {_spell(required)}, and the set has {versions}")
        for extra in sorted(map(canonicalize_name, requirement.extras)):
            if fitting and not any(extra in set_environments.list_extras(wheel) for wheel in fitting):
                message = f"requires {_spell(required)}, and {fitting[0].scan.path.name} has no extra {extra}"
                faults.add(name, message)
    return faults.list_findings()


def _is_built_with(subject: audited_set.AuditedSet, required: set_environments.SetRequirement) -> bool:
    """Tell whether what is required can only be a build of ours: a version with a local part, in no index.

    ROCm's packages and device wheels have checks of their own, and sets are published beside those.
    """
    version = metadata.get_exact_version(required.requirement)
    if version is None or "+" not in version or _OF_OTHER_CHECKS.match(required.project):
        return False
    listed = [*subject.files.absent, *(path.name for path in subject.files.sdists)]
    return not any(canonicalize_name(name.partition("-")[0]) == required.project for name in listed)


_OF_OTHER_CHECKS = re.compile(r"rocm(?:$|-sdk-|-profiler)|amd-.+-device-")


def _list_sdist_versions(subject: audited_set.AuditedSet, project: str) -> list[Version]:
    """Return the versions of a project's source distributions in a set."""
    versions = []
    for path in subject.files.sdists:
        with suppress(errors.DataError):
            sdist_project, version, _ = folder.parse_file_name(path.name)
            versions += [version] if sdist_project == project else []
    return sorted(versions)


@definition.check(
    "RW066 set-devices (error)",
    why="Installers find nothing to install for that GPU, or nobody ever gets the device wheel.",
    fix="Publish host and device wheels of one split, all together.",
    kind="set",
)
def check_set_devices(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """Of split wheels: each extra leads to a device wheel, and each device wheel has an extra."""
    device_wheels = {
        project: match["host"]
        for project in subject.wheels_by_project
        if (match := _DEVICE_WHEEL.fullmatch(project))
    }
    required = [
        item
        for item in set_environments.iterate_requirements(subject)
        if _DEVICE_WHEEL.fullmatch(item.project)
    ]
    if not device_wheels and not required:
        return definition.SkippedCheck("no wheel is split: there is no device wheel, and none is required")
    faults = _FaultsOfWheels()
    led_to: set[str] = set()
    ways: dict[tuple[str, str], set[str]] = {}  # by wheel and extra: the device wheels that it leads to
    for item in required:
        for extra in item.extras:
            ways.setdefault((item.wheel.scan.path.name, extra), set()).add(item.project)
        found = set_environments.find_candidates(subject, item.project, item.environment)
        led_to.update(wheel.scan.path.name for wheel in found if item.wheel is not wheel)
        if not found:
            extra = next((f"its extra {extra}" for extra in item.extras if extra), "it")
            message = (
                f"{extra} requires {item.requirement.name}, which the set has not for {item.environment}"
            )
            faults.add(
                item.wheel.scan.path.name, message, "add the device wheel: it comes out of the same split"
            )
    # an extra for all GPUs leads to each of them, and is no way to the code of one
    alone = {next(iter(projects)) for projects in ways.values() if len(projects) == 1}
    alone.update(project for (_, extra), projects in ways.items() if not extra for project in projects)
    for project, host in device_wheels.items():
        for wheel in subject.wheels_by_project[project]:
            if wheel.scan.path.name in led_to and project not in alone:
                message = f"no extra of {host} leads to it alone, only with the code of other GPUs"
                faults.add(
                    wheel.scan.path.name, message, "split the host wheel again: METADATA has an extra each"
                )
            elif wheel.scan.path.name not in led_to:
                message = f"no wheel of {host} in the set has an extra that leads to it"
                tip = "add its host wheel of the same version, or split that again with this target"
                faults.add(wheel.scan.path.name, message, tip)
    return faults.list_findings()


@definition.check(
    "RW067 metapackage (error)",
    why="Which ROCm is installed depends on the system, on which job uploaded last, or on the machine.",
    fix="Build it once, as a wheel, from what all platforms have.",
    kind="set",
)
def check_metapackage(subject: audited_set.AuditedSet) -> list[errors.Finding] | definition.SkippedCheck:
    """Rocm is one file for all systems, and what its extras bring is there."""
    wheels = subject.wheels_by_project.get(set_environments.ROCM_PROJECT, ())
    sdists = sorted(
        path.name
        for path in subject.files.sdists
        if path.name.startswith(f"{set_environments.ROCM_PROJECT}-")
    )
    parts = [project for project in subject.wheels_by_project if project.startswith(_ROCM_PREFIX)]
    if not wheels and not sdists:
        if not parts:
            return definition.SkippedCheck("the set has no packages of ROCm")
        message = (
            f"there is no {set_environments.ROCM_PROJECT}, and there are "
            f"{tables.format_count(len(parts), 'package')} of it"
        )
        return [errors.Finding("error", message, "torch requires them through it: add it")]
    findings = [*_find_other_owners(wheels)]
    if sdists and not wheels:
        message = "is built on the user's machine: what it requires is decided there"
        tip = "publish it as a wheel, so that everybody gets the same"
        findings += [errors.Finding("info", message, tip, subject=name) for name in sdists]
    for wheel in wheels:
        name = wheel.scan.path.name
        if not name.endswith("-any.whl"):
            message = "is for one system, and decides for all what they install"
            findings.append(
                errors.Finding("warning", message, "build it once, for any platform", subject=name)
            )
    faults = _FaultsOfWheels()
    for item in set_environments.iterate_requirements(subject) if parts else ():
        name = item.wheel.scan.path.name
        is_part = item.wheel in wheels and item.project.startswith(("rocm-sdk-", "rocm-profiler"))
        if not is_part or _TARGET_PACKAGE.fullmatch(item.project):
            continue
        if not set_environments.find_candidates(subject, item.project, item.environment):
            extra = next((f"its extra {extra}" for extra in item.extras if extra), "it")
            message = f"{extra} requires {item.project}, which the set has not for {item.environment.system}"
            faults.add(name, message, "add the package, or leave the extra out")
    return [*findings, *faults.list_findings()]


def _find_other_owners(wheels: Iterable[audited_wheel.AuditedWheel]) -> Iterator[errors.Finding]:
    """Yield the wheels of a version that others of the same version stand beside, with other bytes."""
    first: dict[str, audited_wheel.AuditedWheel] = {}
    for wheel in wheels:
        version = str(set_environments.get_version(wheel))
        owner = first.setdefault(version, wheel)
        if owner is not wheel and owner.scan.sha256 != wheel.scan.sha256:
            message = (
                f"is {set_environments.ROCM_PROJECT} {version}, as {owner.scan.path.name} "
                "is, with other bytes"
            )
            tip = "build it once, from what all platforms have, and publish that file alone"
            yield errors.Finding("error", message, tip, subject=wheel.scan.path.name)


@definition.check(
    "RW068 set-target-packages (error)",
    why="The libraries of another GPU are installed, or none: nothing runs.",
    fix="Make METADATA and code from one list of targets; add ROCm's packages for all of them.",
    kind="set",
)
def check_set_target_packages(
    subject: audited_set.AuditedSet,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Packages for a GPU that are required are for that GPU, and there."""
    required = [
        item
        for item in set_environments.iterate_requirements(subject)
        if _TARGET_PACKAGE.fullmatch(item.project)
    ]
    if not required:
        return definition.SkippedCheck("no wheel requires a package for one GPU")
    has_rocm = any(project.startswith(_ROCM_PREFIX) for project in subject.wheels_by_project)
    faults = _FaultsOfWheels()
    for item in required:
        name, key = item.wheel.scan.path.name, _get_target_key(item.project)
        is_rocm = item.project.startswith(_ROCM_PREFIX)
        for served, source in _list_served(item):
            if _list_covered_targets(key).isdisjoint(served):
                message = f"{source} requires {item.requirement.name}, which is for another GPU"
                faults.add(name, message, "write METADATA again, from the list of targets of the code")
        if (
            is_rocm
            and has_rocm
            and not set_environments.find_candidates(subject, item.project, item.environment)
        ):
            message = f"requires {item.requirement.name}, which the set has not for {item.environment.system}"
            faults.add(name, message, "add ROCm's package for that GPU, of the same version")
    return faults.list_findings()


def _list_served(item: set_environments.SetRequirement) -> Iterator[tuple[set[str], str]]:
    """Yield the targets that a requirement must be for, and what says so: an extra, or the wheel's own."""
    own = item.wheel.scan.name.name if item.wheel.scan.name else ""
    if _TARGET_PACKAGE.fullmatch(own):
        yield _list_covered_targets(_get_target_key(own)), "it"
        return
    targets = [extra.removeprefix("device-") for extra in item.extras if extra.startswith("device-gfx")]
    for target in targets:
        yield _list_covered_targets(target), f"its extra device-{target}"
    if "" in item.extras and item.wheel.targets:
        yield set(item.wheel.targets), "it"


def _get_target_key(project: str) -> str:
    match = _TARGET_PACKAGE.fullmatch(project)
    assert match is not None, project
    return match["key"]


def _list_covered_targets(key: str) -> set[str]:
    """Return the targets that a package is for, by the end of its name: a target, or a family."""
    families = {name.lower(): targets for name, targets in gfx.get_gfx_families().items()}
    if key in families:
        return set(families[key])
    spelled = key.replace("-", "_")
    return {
        key,
        *(target for target in gfx.get_gfx_targets() if spelled in device_names.get_package_chain(target)),
    }


@definition.check(
    "RW069 device-default (warning)",
    why="It installs, finds the GPU, and nothing runs.",
    fix="Say at import which extra brings kernels, require a default, or publish variants beside it.",
    kind="set",
)
def check_device_default(
    subject: audited_set.AuditedSet,
) -> list[errors.Finding] | definition.SkippedCheck:
    """A wheel without kernels of its own brings some, or says which extra does."""
    hosts = [
        wheel
        for project, wheels in subject.wheels_by_project.items()
        for wheel in wheels
        if project != set_environments.ROCM_PROJECT and not wheel.device_code
        if any(extra.startswith("device-") for extra in set_environments.list_extras(wheel))
    ]
    if not hosts:
        return definition.SkippedCheck("no wheel leaves its device code to extras")
    led_by_default = {
        item.wheel.scan.path
        for item in set_environments.iterate_requirements(subject)
        if "" in item.extras and _DEVICE_WHEEL.fullmatch(item.project)
    }
    tip = "say at import which extra brings kernels, require a default, or publish variants beside it"
    message = "installed without an extra it has no kernels, and says so nowhere: nothing runs on any GPU"
    return [
        errors.Finding("warning", message, tip, subject=host.scan.path.name)
        for host in hosts
        if host.scan.path not in led_by_default and not _is_variant(host) and not _tells_extras(host)
    ]


def _is_variant(wheel: audited_wheel.AuditedWheel) -> bool:
    """Tell whether a wheel is chosen for the machine."""
    return wheel.scan.name is not None and wheel.scan.name.label is not None


def _tells_extras(host: audited_wheel.AuditedWheel) -> bool:
    """Tell whether a module that import runs speaks of the extras: ``torch[device-gfx942]``."""
    return any(b"device-" in text for member, text in host.scan.texts.items() if member.endswith(".py"))


class _FaultsOfWheels:
    """Faults of wheels, each once: most hold for several Pythons."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str], errors.Finding] = {}

    def add(self, wheel: str, message: str, tip: str = "") -> None:
        self._findings.setdefault((wheel, message), errors.Finding("error", message, tip, subject=wheel))

    def list_findings(self) -> list[errors.Finding]:
        return [self._findings[key] for key in sorted(self._findings)]


def _spell(required: set_environments.SetRequirement) -> str:
    """Return a requirement without its marker."""
    requirement = required.requirement
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"

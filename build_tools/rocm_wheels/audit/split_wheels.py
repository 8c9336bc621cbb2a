"""Check a split wheel: its host part, its device wheels, and what leads from one to the other.

Device wheels of a host wheel are read with it. Source: ROCm/rocm-systems,
``shared/kpack/python/rocm_kpack/wheel_splitter.py``. The parts of ``torch`` are called
``amd-torch-device-gfx942``, have its version and tags, and require it; their archives lie where its
libraries look for them, ``torch/.kpack/torch_gfx942.kpack``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors
from rocm_wheels.device_code import fat_library, kpack
from rocm_wheels.wheels import dist_info, scan

_RUNTIME = re.compile(r"(?:lib)?rocm_kpack[^/]*\.(?:so|dll)(?:\.[0-9.]+)?$")
_CHIP = re.compile(r".*-device-(?P<chip>gfx[0-9]+[0-9a-f]{2})")


@definition.check(
    "RW049 moved-code (error)",
    why="The HIP runtime finds no kernel for a GPU that has a device wheel.",
    fix="Split the wheel again: host and device wheels come out of one split.",
)
def check_moved_code(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Of a split wheel: every kernel is there, no code is left over."""
    findings = [
        errors.Finding("error", "holds device code that archives have as well", subject=member)
        for member in wheel.device_code
        if not member.endswith(kpack.KPACK_SUFFIX) and wheel.has_moved_kernels(member)
    ]
    for member, library in wheel.scan.split_libraries.items():
        if library.fault:
            message = f"names archives, and its records cannot be read: {library.fault}"
            findings.append(errors.Finding("error", message, subject=member))
            continue
        if library.has_bundles:
            message = "its old section still holds device code, which nothing loads"
            findings.append(errors.Finding("error", message, subject=member))
        if not library.is_moved:
            message = "names archives, but its records do not tell the HIP runtime so"
            findings.append(errors.Finding("error", message, subject=member))
        findings += _find_missing_kernels(wheel, member, library)
    return findings


def _find_missing_kernels(
    wheel: audited_wheel.AuditedWheel, member: str, library: fat_library.SplitLibrary
) -> Iterator[errors.Finding]:
    """Yield the records that no archive has a kernel for, or only archives of other targets."""
    targets: dict[str, set[str]] = {}
    for code in wheel.list_moved_objects(member):
        targets.setdefault(code.section, set()).add(code.target.processor)
    if not targets:  # no device wheel was named: another check says so
        return
    every = set().union(*targets.values())
    for number in library.numbers:
        kernel = f"{library.name}#{number}"
        if kernel not in targets:
            message = f"no archive has {kernel}, which record {number} asks for"
            yield errors.Finding("error", message, subject=member)
        elif missing := sorted(every - targets[kernel]):
            message = (
                f"{kernel} is there for {' '.join(sorted(targets[kernel]))}, not for {' '.join(missing)}"
            )
            yield errors.Finding("warning", message, subject=member)


@definition.check(
    "RW050 device-extras (error)",
    why="Installers bring the host wheel alone, or find nothing to install.",
    fix="Split the wheel again: METADATA is written with the device wheels.",
)
def check_device_extras(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Of a split wheel: extras lead to device wheels."""
    metadata = wheel.scan.metadata
    if not wheel.moved_code or metadata is None:
        return []
    parts = {part.name.name for part in wheel.parts if part.name is not None}
    findings = []
    for extra in (name for name in metadata.provides_extra if name.startswith("device-")):
        requirements = [Requirement(text) for text in metadata.requires_dist]
        devices = [
            requirement
            for requirement in requirements
            if requirement.marker
            and requirement.marker.evaluate({"extra": extra})
            and not requirement.marker.evaluate({"extra": ""})
            and _DEVICE_NAME.fullmatch(canonicalize_name(requirement.name))
        ]
        if not devices:
            findings.append(errors.Finding("error", f"the extra {extra} leads to no device wheel"))
        for device in devices:
            if str(device.specifier) != f"=={metadata.version}":
                message = f"the extra {extra} requires {device.name}{device.specifier}, of another version"
                findings.append(errors.Finding("error", message))
            elif parts and canonicalize_name(device.name) not in parts:
                message = f"the extra {extra} requires {device.name}, which was not named"
                findings.append(errors.Finding("warning", message, "name all device wheels of the set"))
    return findings


@definition.check(
    "RW051 kpack-runtime (error)",
    why="An older HIP runtime loads the library without a word, and fails at the first launch.",
    fix="Carry a ROCm that has librocm_kpack.",
)
def check_kpack_runtime(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Of a split wheel with ROCm inside: it reads archives."""
    if not wheel.moved_code:
        return []
    if wheel.rocm_folder is None:
        return definition.SkippedCheck(
            "it carries no ROCm: whether the installed one reads archives, `doctor` tells"
        )
    if any(name.startswith(wheel.rocm_folder) and _RUNTIME.search(name) for name in wheel.members):
        return []
    message = "its libraries look for their device code in archives, and the ROCm that it carries reads none"
    return [errors.Finding("error", message, "carry a ROCm that has librocm_kpack, or join the wheel first")]


_DEVICE_NAME = re.compile(r"(?:amd-)?(?P<host>.+)-device-gfx[\w-]+")


def group_device_wheels(wheels: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return each wheel with its device wheels among them. UsageError for one without its host wheel."""
    names = {wheel: dist_info.parse_wheel_name(wheel.name) for wheel in wheels}
    groups: dict[Path, list[Path]] = {wheel: [] for wheel in wheels if _get_host_name(names[wheel]) is None}
    for part in (wheel for wheel in wheels if wheel not in groups):
        hosts = [host for host in groups if _belongs_to_host(names[part], names[host])]
        if not hosts:
            raise errors.UsageError(
                (
                    f"{part.name} holds device code for a wheel of {_get_host_name(names[part])} "
                    "that is not named"
                ),
                tip=f"name the wheel of {_get_host_name(names[part])} of the same version and tags beside it",
            )
        for host in hosts:
            groups[host].append(part)
    return {host: tuple(parts) for host, parts in groups.items()}


def select_device_wheels(wheel: Path, wheels: Sequence[Path]) -> tuple[Path, ...]:
    """Return the device wheels of one wheel among some; names that are no wheel's are passed over."""
    names: dict[Path, dist_info.WheelName] = {}
    for path in (wheel, *wheels):
        with suppress(errors.DataError):
            names[path] = dist_info.parse_wheel_name(path.name)
    if wheel not in names:
        return ()
    return tuple(path for path in wheels if path in names and _belongs_to_host(names[path], names[wheel]))


def find_device_wheels(wheel: Path) -> tuple[Path, ...]:
    """Return the device wheels of a wheel that lie in its folder, sorted."""
    near = sorted(wheel.parent.glob(f"*_device_gfx*-{wheel.name.split('-')[1]}-*.whl"))
    return select_device_wheels(wheel, near)


@definition.check(
    "RW020 device-wheels (error)",
    why="Host library and kernels of two builds are installed together.",
    fix="Split the wheel again: both come out of one split.",
)
def check_device_wheels(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Parts that were split off are whole and of this version."""
    findings = list(_compare_device_files(wheel))
    for part in wheel.parts:
        where = part.path.name
        findings += [
            errors.Finding("error", fault.removeprefix(f"{part.path}: "), subject=where)
            for fault in part.breaking_faults
        ]
        findings += _find_part_faults(part)
        name = wheel.scan.name
        host = wheel.project.distribution if wheel.has_recipe or name is None else name.distribution
        version = name and name.version
        requires = map(Requirement, part.metadata.requires_dist if part.metadata else ())
        pins = {
            str(requirement.specifier)
            for requirement in requires
            if audited_wheel.is_same_name(requirement.name, host)
        }
        if part.metadata is not None and pins != {f"=={version}"}:
            stated = ", ".join(sorted(pins)) or "nothing of it"
            message = f"must require {host}=={version}, whose device code it holds, and requires {stated}"
            findings.append(
                errors.Finding(
                    "error", message, "split the wheel again: both come out of one split", subject=where
                )
            )
    return findings


def _compare_device_files(wheel: audited_wheel.AuditedWheel) -> Iterator[errors.Finding]:
    """Yield each device wheel that holds other files than were split off, by the digests in the host wheel.

    Wheels of ROCm's own splitter state none.
    """
    where = f"{wheel.dist_info}/{dist_info.DEVICE_FILES}"
    if where not in wheel.scan.texts:
        return
    try:
        stated = json.loads(wheel.scan.texts[where])
    except (ValueError, RecursionError):
        stated = None
    if not isinstance(stated, dict):
        yield errors.Finding("error", "is no list of the files of device wheels", subject=where)
        return
    for part in wheel.parts:
        digests = {member.name: member.digest for member in part.members}
        if others := sorted(name for name in digests.keys() & stated if digests[name] != stated[name]):
            message = f"is of another build: {definition.join_names(others)} is not what was split off"
            yield errors.Finding("error", message, subject=part.path.name)


def _find_part_faults(part: scan.WheelScan) -> Iterator[errors.Finding]:
    """Yield what is wrong with a device wheel by itself, apart from damage."""
    spelled = [fault for fault in part.faults if fault not in part.breaking_faults]
    if spelled:
        message = f"RECORD has digests in hex ({len(spelled)} of them), not in URL-safe base64"
        yield errors.Finding("warning", message, subject=part.path.name)
    chip = _CHIP.fullmatch(part.name.name) if part.name is not None else None
    objects = [code for codes in part.device_code.values() for code in codes if code.kind == "kpack"]
    if chip and not any(code.target.processor == chip["chip"] for code in objects):
        message = f"is the device wheel of {chip['chip']}, and has no archive for it"
        yield errors.Finding("error", message, subject=part.path.name)


def _get_host_name(name: dist_info.WheelName) -> str | None:
    """Return the distribution that a device wheel is a part of, None for any other wheel."""
    match = _DEVICE_NAME.fullmatch(canonicalize_name(name.distribution))
    return match["host"] if match else None


def _belongs_to_host(part: dist_info.WheelName, host: dist_info.WheelName) -> bool:
    host_name = _get_host_name(part)
    matches = (part.version, part.tags) == (host.version, host.tags)
    return host_name is not None and audited_wheel.is_same_name(host_name, host.distribution) and matches

"""Check a split wheel: its host part, its device wheels, and what leads from one to the other.

Device wheels of a host wheel are read with it. Source: ROCm/rocm-systems,
``shared/kpack/python/rocm_kpack/wheel_splitter.py``. The parts of ``torch`` are called
``amd-torch-device-gfx942``, have its version and tags, and require it; their archives lie where its
libraries look for them, ``torch/.kpack/torch_gfx942.kpack``. Its selector, ``amd-torch-device``, is a part
without files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit.audited_wheel import AuditedWheel, is_same_name
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, warning
from rocm_wheels.core import errors
from rocm_wheels.device_code import fat_library, kpack
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, scan

_RUNTIME = re.compile(r"(?:lib)?rocm_kpack[^/]*\.(?:so|dll)(?:\.[0-9.]+)?$")
_CHIP = re.compile(r"gfx[0-9]+[0-9a-f]{2}")


@check("RW049 moved-code (error)")
def check_moved_code(wheel: AuditedWheel) -> Findings:
    """Of a split wheel: every kernel is there, no code is left over.

    Why: The HIP runtime finds no kernel for a GPU that has a device wheel.
    Fix: Split the wheel again: host and device wheels come out of one split.
    """
    for member in wheel.device_code:
        if not member.endswith(kpack.KPACK_SUFFIX) and wheel.has_moved_kernels(member):
            yield error("holds device code that archives have as well", member)
    for member, archives in wheel.moved_code.items():
        if wheel.parts and not wheel.find_archives(member):
            yield error(f"names {join_names(archives)}, and no device wheel has it", member)
    for member, library in wheel.scan.split_libraries.items():
        if library.fault:
            yield error(f"names archives, and its records cannot be read: {library.fault}", member)
            continue
        if library.has_bundles:
            yield error("its old section still holds device code, which nothing loads", member)
        if not library.is_moved:
            yield error("names archives, but its records do not tell the HIP runtime so", member)
        yield from _find_missing_kernels(wheel, member, library)


def _find_missing_kernels(wheel: AuditedWheel, member: str, library: fat_library.SplitLibrary) -> Findings:
    """Yield the records that no archive has a kernel for, or only archives of other targets."""
    targets: dict[str, set[str]] = {}
    for code in wheel.list_moved_objects(member):
        targets.setdefault(code.section, set()).add(code.target.processor)
    every = set().union(*targets.values())
    for number in library.numbers if targets else ():  # without a device wheel another check says so
        kernel = f"{library.name}#{number}"
        if kernel not in targets:
            yield error(f"no archive has {kernel}, which record {number} asks for", member)
        elif missing := sorted(every - targets[kernel]):
            held = " ".join(sorted(targets[kernel]))
            yield warning(f"{kernel} is there for {held}, not for {' '.join(missing)}", member)


@check("RW050 device-extras (error)")
def check_device_extras(wheel: AuditedWheel) -> Findings:
    """Of a split wheel: extras lead to device wheels, and its selector is of its version.

    Why: Installers bring the host wheel alone, or find nothing to install.
    Fix: Split the wheel again: METADATA is written with the device wheels.
    """
    metadata = wheel.scan.metadata
    if not wheel.moved_code or metadata is None:
        return
    parts = {part.name.name for part in wheel.parts if part.name is not None}
    for extra in (name for name in metadata.provides_extra if name.startswith("device-")):
        devices = [
            requirement
            for requirement in wheel.requirements
            if requirement.marker
            and requirement.marker.evaluate({"extra": extra})
            and not requirement.marker.evaluate({"extra": ""})
            and device_names.find_device_key(canonicalize_name(requirement.name))
        ]
        if not devices:
            yield error(f"the extra {extra} leads to no device wheel")
        for device in devices:
            if str(device.specifier) != f"=={metadata.version}":
                yield error(f"the extra {extra} requires {device.name}{device.specifier}, of another version")
            elif parts and canonicalize_name(device.name) not in parts:
                message = f"the extra {extra} requires {device.name}, which was not named"
                yield warning(message, tip="name all device wheels of the set")
    for selector in wheel.requirements:
        if not device_names.is_selector(canonicalize_name(selector.name)):
            continue
        if str(selector.specifier) != f"=={metadata.version}":
            yield error(f"requires {selector.name}{selector.specifier}, of another version")
        elif parts and canonicalize_name(selector.name) not in parts:
            yield warning(
                f"requires {selector.name}, which was not named", tip="name it with the device wheels"
            )


@check("RW051 kpack-runtime (error)")
def check_kpack_runtime(wheel: AuditedWheel) -> Findings:
    """Of a split wheel with ROCm inside: it reads archives.

    Why: An older HIP runtime loads the library without a word, and fails at the first launch.
    Fix: Carry a ROCm that has librocm_kpack, or join the wheel first.
    """
    folder = wheel.rocm_folder
    if not wheel.moved_code:
        return
    if folder is None:
        raise Skip("it carries no ROCm: whether the installed one reads archives, `doctor` tells")
    if not any(name.startswith(folder) and _RUNTIME.search(name) for name in wheel.members):
        yield error("its device code is in archives, and the ROCm that it carries reads none")


def group_device_wheels(wheels: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return each wheel with its device wheels among them. UsageError for one without its host wheel."""
    names = {wheel: dist_info.parse_wheel_name(wheel.name) for wheel in wheels}
    host_names = {wheel: device_names.find_host_project(name.name) for wheel, name in names.items()}
    groups: dict[Path, list[Path]] = {wheel: [] for wheel in wheels if host_names[wheel] is None}
    for part in (wheel for wheel in wheels if wheel not in groups):
        hosts = [host for host in groups if _belongs_to_host(names[part], names[host])]
        if not hosts:
            raise errors.UsageError(
                f"{part.name} holds device code for a wheel of {host_names[part]} that is not named",
                tip=f"name the wheel of {host_names[part]} of the same version and tags beside it",
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
    """Return the device wheels of a wheel, and its selectors, that lie in its folder, sorted."""
    near = sorted(wheel.parent.glob(f"*_device*-{wheel.name.split('-')[1]}-*.whl"))
    return select_device_wheels(wheel, near)


@check("RW020 device-wheels (error)")
def check_device_wheels(wheel: AuditedWheel) -> Findings:
    """Parts that were split off are whole and of this version.

    Why: Host library and kernels of two builds are installed together.
    Fix: Split the wheel again: both come out of one split.

    They hold the files that were split off, by the digests in the host wheel; wheels of ROCm's own splitter
    state none.
    """
    where = f"{wheel.dist_info}/{dist_info.DEVICE_FILES}"
    stated: Any = {}
    if where in wheel.scan.texts:
        try:
            stated = json.loads(wheel.scan.texts[where])
        except (ValueError, RecursionError):
            stated = None
    if not isinstance(stated, dict):
        yield error("is no list of the files of device wheels", where)
        stated = {}
    name = wheel.scan.name
    host, version = (name.distribution, name.version) if name is not None else ("", None)
    if wheel.has_recipe:
        host = wheel.project.distribution
    for part in wheel.parts:
        file_name = part.path.name
        digests = {member.name: member.digest for member in part.members}
        others = sorted(
            member
            for member in digests
            if digests[member] != stated.get(member) and stated and ".dist-info/" not in member
        )
        if others:
            yield error(f"is of another build: {join_names(others)} is not what was split off", file_name)
        yield from _judge_part(part)
        requires = list(map(Requirement, part.metadata.requires_dist if part.metadata else ()))
        pins = {str(each.specifier) for each in requires if is_same_name(each.name, host)}
        if part.metadata is not None and pins != {f"=={version}"}:
            pinned = ", ".join(sorted(pins)) or "nothing of it"
            message = f"must require {host}=={version}, whose device code it holds, and requires {pinned}"
            yield error(message, file_name)
    named = set(_list_device_requirements(wheel))
    held = {member.name for part in wheel.parts for member in part.members}
    lost = sorted(stated.keys() - held)
    if wheel.parts and lost and named <= {part.name.name for part in wheel.parts if part.name is not None}:
        yield error(f"no device wheel has {join_names(lost)}, which was split off")


def _list_device_requirements(wheel: AuditedWheel) -> list[str]:
    """Return the device wheels that its extras lead to (normalized)."""
    names = (canonicalize_name(requirement.name) for requirement in wheel.requirements)
    return [name for name in names if device_names.find_device_key(name)]


def _judge_part(part: scan.WheelScan) -> Findings:
    """Yield what is wrong with a device wheel by itself."""
    file_name = part.path.name
    for fault in part.breaking_faults:
        yield error(fault.removeprefix(f"{part.path}: "), file_name)
    if spelled := [fault for fault in part.faults if fault not in part.breaking_faults]:
        message = f"RECORD has digests in hex ({len(spelled)} of them), not in URL-safe base64"
        yield warning(message, file_name)
    key = device_names.find_device_key(part.name.name) if part.name is not None else None
    chip = key if key is not None and _CHIP.fullmatch(key) else ""
    objects = [code for codes in part.device_code.values() for code in codes if code.kind == "kpack"]
    if chip and not any(code.target.processor == chip for code in objects):
        yield error(f"is the device wheel of {chip}, and has no archive for it", file_name)


def _belongs_to_host(part: dist_info.WheelName, host: dist_info.WheelName) -> bool:
    matches = (part.version, part.tags) == (host.version, host.tags)
    return device_names.find_host_project(part.name) == host.name and matches

"""Device wheels of a split host wheel, and what they hold for its libraries.

Source: ROCm/rocm-systems, ``shared/kpack/python/rocm_kpack/wheel_splitter.py``. The parts of ``torch`` are
called ``amd-torch-device-gfx942``, have its version and tags, and require it; their archives lie where its
libraries look for them, ``torch/.kpack/torch_gfx942.kpack``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit.findings import AuditFinding
from rocm_wheels.audit.subject import AuditedWheel, is_same_name
from rocm_wheels.errors import UsageError
from rocm_wheels.wheels.names import WheelName, parse_wheel_name

_DEVICE_WHEEL_NAME = re.compile(r"(?:amd-)?(?P<host>.+)-device-gfx[\w-]+")


def group_device_wheels(wheels: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return each wheel with its device wheels among them. UsageError for one without its host wheel."""
    names = {wheel: parse_wheel_name(wheel.name) for wheel in wheels}
    groups: dict[Path, list[Path]] = {wheel: [] for wheel in wheels if _get_host_name(names[wheel]) is None}
    for part in (wheel for wheel in wheels if wheel not in groups):
        hosts = [host for host in groups if _belongs_to_host(names[part], names[host])]
        if not hosts:
            raise UsageError(
                f"{part.name} holds device code for a wheel of {_get_host_name(names[part])} that is not named",
                tip=f"name the wheel of {_get_host_name(names[part])} of the same version and tags beside it",
            )
        for host in hosts:
            groups[host].append(part)
    return {host: tuple(parts) for host, parts in groups.items()}


def find_device_wheels(wheel: Path) -> tuple[Path, ...]:
    """Return the device wheels of a wheel that lie in its folder, sorted."""
    name = parse_wheel_name(wheel.name)
    near = sorted(wheel.parent.glob(f"*_device_gfx*-{wheel.name.split('-')[1]}-*.whl"))
    return tuple(path for path in near if _belongs_to_host(parse_wheel_name(path.name), name))


def check_device_wheels(wheel: AuditedWheel) -> list[AuditFinding]:
    """The device wheels that were named with it are whole, and require it at its version."""
    findings = []
    for part in wheel.parts:
        where = part.path.name
        findings += [
            AuditFinding(fault.removeprefix(f"{part.path}: "), where) for fault in part.breaking_faults
        ]
        host, version = wheel.expected.project.distribution, wheel.scan.name and wheel.scan.name.version
        requires = map(Requirement, part.metadata.requires_dist if part.metadata else ())
        pins = {
            str(requirement.specifier) for requirement in requires if is_same_name(requirement.name, host)
        }
        if part.metadata is not None and pins != {f"=={version}"}:
            stated = ", ".join(sorted(pins)) or "nothing of it"
            message = f"must require {host}=={version}, whose device code it holds, and requires {stated}"
            findings.append(AuditFinding(message, where, "split the wheel again: both come out of one split"))
    return findings


def _get_host_name(name: WheelName) -> str | None:
    """Return the distribution that a device wheel is a part of, None for any other wheel."""
    match = _DEVICE_WHEEL_NAME.fullmatch(canonicalize_name(name.distribution))
    return match["host"] if match else None


def _belongs_to_host(part: WheelName, host: WheelName) -> bool:
    host_name = _get_host_name(part)
    matches = (part.version, part.tags) == (host.version, host.tags)
    return host_name is not None and is_same_name(host_name, host.distribution) and matches

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

from rocm_wheels.audit.findings import Finding
from rocm_wheels.audit.subject import Subject, same_name
from rocm_wheels.errors import UsageError
from rocm_wheels.wheels.names import WheelName, parse_wheel_name

_PART = re.compile(r"(?:amd-)?(?P<host>.+)-device-gfx[\w-]+")


def group_wheels(wheels: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return each wheel with its device wheels among them. UsageError for one without its host wheel."""
    names = {wheel: parse_wheel_name(wheel.name) for wheel in wheels}
    groups: dict[Path, list[Path]] = {wheel: [] for wheel in wheels if _host(names[wheel]) is None}
    for part in (wheel for wheel in wheels if wheel not in groups):
        hosts = [host for host in groups if _belongs(names[part], names[host])]
        if not hosts:
            raise UsageError(
                f"{part.name} holds device code for a wheel of {_host(names[part])} that is not named",
                tip=f"name the wheel of {_host(names[part])} of the same version and tags beside it",
            )
        for host in hosts:
            groups[host].append(part)
    return {host: tuple(parts) for host, parts in groups.items()}


def device_wheels_beside(wheel: Path) -> tuple[Path, ...]:
    """Return the device wheels of a wheel that lie in its folder, sorted."""
    name = parse_wheel_name(wheel.name)
    near = sorted(wheel.parent.glob(f"*_device_gfx*-{wheel.name.split('-')[1]}-*.whl"))
    return tuple(path for path in near if _belongs(parse_wheel_name(path.name), name))


def check_device_wheels(wheel: Subject) -> list[Finding]:
    """The device wheels that were named with it are whole, and require it at its version."""
    findings = []
    for part in wheel.parts:
        where = part.path.name
        findings += [Finding(fault.removeprefix(f"{part.path}: "), where) for fault in part.broken]
        host, version = wheel.expected.project.distribution, wheel.scan.name and wheel.scan.name.version
        requires = map(Requirement, part.metadata.requires_dist if part.metadata else ())
        pins = {str(asked.specifier) for asked in requires if same_name(asked.name, host)}
        if part.metadata is not None and pins != {f"=={version}"}:
            stated = ", ".join(sorted(pins)) or "nothing of it"
            said = f"must require {host}=={version}, whose device code it holds, and requires {stated}"
            findings.append(Finding(said, where, "split the wheel again: both come out of one split"))
    return findings


def _host(name: WheelName) -> str | None:
    """Return the distribution that a device wheel is a part of, None for any other wheel."""
    match = _PART.fullmatch(canonicalize_name(name.distribution))
    return match["host"] if match else None


def _belongs(part: WheelName, host: WheelName) -> bool:
    named = _host(part)
    same = (part.version, part.tags) == (host.version, host.tags)
    return named is not None and same_name(named, host.distribution) and same

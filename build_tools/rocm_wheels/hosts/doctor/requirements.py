"""Do the installed packages belong together: what each requires of the others, and torch's release line.

Source: "Dependency specifiers" of the PyPA specifications; what goes with
a torch, by the tables of ``model.compat``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import DataError
from rocm_wheels.hosts.doctor.issues import version_of
from rocm_wheels.hosts.doctor.subject import Finding, Subject
from rocm_wheels.hosts.installed.distributions import OF_INTEREST
from rocm_wheels.hosts.installed.environment import Environment
from rocm_wheels.hosts.installed.look import Package
from rocm_wheels.model.compat.builds import companions
from rocm_wheels.model.compat.versions import starts_with

_MACHINES = {
    "linux": ("linux", "Linux", "posix"),
    "win": ("win32", "Windows", "nt"),
    "mac": ("darwin", "Darwin", "posix"),
}
_COMPANIONS = ("torchvision", "torchaudio")  # of the others, torch's own requirements tell


def requirements(subject: Subject) -> Iterator[Finding]:
    """Evaluate what packages require of packages that belong to torch and ROCm."""
    markers = _markers(subject.installed.environment)
    for package in subject.installed.packages:
        if not package.shadowed:
            yield from _of_package(subject, package, markers, ())
    torch = subject.installed.torch
    for extras, name in _extras(torch, markers) if torch else ():
        if required := subject.installed.get(name):
            yield from _of_package(subject, required, markers, extras)


def line(subject: Subject) -> Iterator[Finding]:
    """Compare the versions of torchvision and torchaudio with those that go with torch."""
    torch = subject.installed.torch
    if torch is None:
        return
    try:
        belonging = companions(torch.version)
    except DataError as wrong:
        yield Finding("warning", wrong.message, subject.install("torch"))
        return
    for project in _COMPANIONS:
        one, right = subject.installed.get(project), belonging.get(project)
        version = version_of(one.version) if one else None
        if one and version and right and not starts_with(version, right):
            yield Finding(
                "warning",
                f"{project} {one.version} does not belong to torch {torch.version}: {right} does",
                subject.install("torch", project),
            )


def _of_package(
    subject: Subject, package: Package, markers: dict[str, str], extras: tuple[str, ...]
) -> Iterator[Finding]:
    for text in package.distribution.requires:
        try:
            required = Requirement(text)
        except InvalidRequirement:
            if "variant_" not in text:
                yield Finding(
                    "info", f"{package.name} requires {text!r}, which cannot be read", subject.pip("check")
                )
            continue
        name = canonicalize_name(required.name)
        if not OF_INTEREST.fullmatch(name) or not _applies(required, markers, extras):
            continue
        found = subject.installed.get(name)
        if found is None:
            yield Finding(
                "error",
                f"{package.name} {package.version} requires {_shown(required)}, which is not installed",
                _fix(subject, package, required),
            )
        elif not _satisfies(found.version, required):
            yield Finding(
                "error",
                f"{package.name} {package.version} requires {_shown(required)}, "
                f"and {found.version} is installed",
                _fix(subject, package, required),
            )


def _fix(subject: Subject, package: Package, required: Requirement) -> str:
    """Return the line that brings a package: those of ROCm by pip, torch's companions with torch."""
    name = canonicalize_name(required.name)
    if name.startswith(("rocm", "amd-torch")):
        return subject.rocm_pip(str(_bare(required)), str(required.specifier))
    names = dict.fromkeys([*(["torch"] if subject.installed.torch else []), package.name, name])
    known = [one for one in names if re.fullmatch(r"torch(vision|audio|ao)?", one)]
    return subject.install(*(known or ["torch"]))


def _applies(required: Requirement, markers: dict[str, str], extras: tuple[str, ...]) -> bool:
    if required.marker is None:
        return not extras
    without = required.marker.evaluate({**markers, "extra": ""})
    if not extras:
        return without
    return not without and any(required.marker.evaluate({**markers, "extra": one}) for one in extras)


def _extras(package: Package, markers: dict[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the extras that a package asks of another one (``rocm[libraries]``)."""
    for text in package.distribution.requires:
        try:
            required = Requirement(text)
        except InvalidRequirement:
            continue
        if required.extras and _applies(required, markers, ()):
            yield tuple(sorted(required.extras)), canonicalize_name(required.name)


def _markers(environment: Environment) -> dict[str, str]:
    system = next(
        (one for key, one in _MACHINES.items() if environment.platform.startswith(key)), _MACHINES["linux"]
    )
    machine = environment.platform.rsplit("-", 1)[-1]
    cpython = environment.implementation == "cpython"
    return {
        "implementation_name": environment.implementation,
        "implementation_version": environment.version,
        "os_name": system[2],
        "platform_machine": {"amd64": "AMD64"}.get(machine, machine),
        "platform_python_implementation": "CPython" if cpython else environment.implementation,
        "platform_release": "",
        "platform_system": system[1],
        "platform_version": "",
        "python_full_version": environment.version,
        "python_version": ".".join(environment.version.split(".")[:2]),
        "sys_platform": system[0],
    }


def _satisfies(version: str, required: Requirement) -> bool:
    try:
        return required.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return version in str(required.specifier)


def _bare(required: Requirement) -> Requirement:
    bare = Requirement(str(required))
    bare.marker = None
    return bare


def _shown(required: Requirement) -> str:
    return str(_bare(required))

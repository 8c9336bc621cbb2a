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
from rocm_wheels.hosts.doctor.issues import parse_optional_version
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject
from rocm_wheels.hosts.installed.distributions import RELEVANT_PROJECTS
from rocm_wheels.hosts.installed.environment import PythonEnvironment
from rocm_wheels.hosts.installed.look import InstalledPackage
from rocm_wheels.model.compat.builds import find_companions
from rocm_wheels.model.compat.versions import is_in_series

_SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "win": ("win32", "Windows", "nt"),
    "mac": ("darwin", "Darwin", "posix"),
}
_PINNED_COMPANIONS = ("torchvision", "torchaudio")  # of the others, torch's own requirements tell


def check_requirements(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Evaluate what packages require of packages that belong to torch and ROCm."""
    markers = _make_markers(subject.installed.environment)
    for package in subject.installed.packages:
        if not package.shadowed:
            yield from _check_package(subject, package, markers, ())
    torch = subject.installed.torch
    for extras, name in _list_extras(torch, markers) if torch else ():
        if required := subject.installed.get(name):
            yield from _check_package(subject, required, markers, extras)


def check_release_line(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Compare the versions of torchvision and torchaudio with those that go with torch."""
    torch = subject.installed.torch
    if torch is None:
        return
    try:
        belonging = find_companions(torch.version)
    except DataError as error:
        yield DoctorFinding("warning", error.message, subject.make_install_line("torch"))
        return
    for project in _PINNED_COMPANIONS:
        package, expected = subject.installed.get(project), belonging.get(project)
        version = parse_optional_version(package.version) if package else None
        if package and version and expected and not is_in_series(version, expected):
            yield DoctorFinding(
                "warning",
                f"{project} {package.version} does not belong to torch {torch.version}: {expected} does",
                subject.make_install_line("torch", project),
            )


def _check_package(
    subject: DoctorSubject, package: InstalledPackage, markers: dict[str, str], extras: tuple[str, ...]
) -> Iterator[DoctorFinding]:
    for text in package.distribution.requires:
        try:
            required = Requirement(text)
        except InvalidRequirement:
            if "variant_" not in text:
                yield DoctorFinding(
                    "info",
                    f"{package.name} requires {text!r}, which cannot be read",
                    subject.make_pip_line("check"),
                )
            continue
        name = canonicalize_name(required.name)
        if not RELEVANT_PROJECTS.fullmatch(name) or not _is_applicable(required, markers, extras):
            continue
        dependency = subject.installed.get(name)
        if dependency is None:
            yield DoctorFinding(
                "error",
                f"{package.name} {package.version} requires {_format_requirement(required)}, which is not installed",
                _suggest_fix(subject, package, required),
            )
        elif not _is_satisfied(dependency.version, required):
            yield DoctorFinding(
                "error",
                f"{package.name} {package.version} requires {_format_requirement(required)}, "
                f"and {dependency.version} is installed",
                _suggest_fix(subject, package, required),
            )


def _suggest_fix(subject: DoctorSubject, package: InstalledPackage, required: Requirement) -> str:
    """Return the line that brings a package: those of ROCm by pip, torch's companions with torch."""
    name = canonicalize_name(required.name)
    if name.startswith(("rocm", "amd-torch")):
        return subject.make_rocm_pip_line(str(_remove_marker(required)), str(required.specifier))
    names = dict.fromkeys([*(["torch"] if subject.installed.torch else []), package.name, name])
    torch_projects = [project for project in names if re.fullmatch(r"torch(vision|audio|ao)?", project)]
    return subject.make_install_line(*(torch_projects or ["torch"]))


def _is_applicable(required: Requirement, markers: dict[str, str], extras: tuple[str, ...]) -> bool:
    if required.marker is None:
        return not extras
    without = required.marker.evaluate({**markers, "extra": ""})
    if not extras:
        return without
    return not without and any(required.marker.evaluate({**markers, "extra": extra}) for extra in extras)


def _list_extras(package: InstalledPackage, markers: dict[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the extras that a package asks of another one (``rocm[libraries]``)."""
    for text in package.distribution.requires:
        try:
            required = Requirement(text)
        except InvalidRequirement:
            continue
        if required.extras and _is_applicable(required, markers, ()):
            yield tuple(sorted(required.extras)), canonicalize_name(required.name)


def _make_markers(environment: PythonEnvironment) -> dict[str, str]:
    system = next(
        (names for key, names in _SYSTEMS.items() if environment.platform.startswith(key)), _SYSTEMS["linux"]
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


def _is_satisfied(version: str, required: Requirement) -> bool:
    try:
        return required.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return version in str(required.specifier)


def _remove_marker(required: Requirement) -> Requirement:
    bare = Requirement(str(required))
    bare.marker = None
    return bare


def _format_requirement(required: Requirement) -> str:
    return str(_remove_marker(required))

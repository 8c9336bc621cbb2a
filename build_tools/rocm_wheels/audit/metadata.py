"""Check what a wheel says of itself: its file name, METADATA and WHEEL, against what was built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from packaging.metadata import ExceptionGroup, InvalidMetadata, Metadata, RawMetadata, parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.audit.audited_wheel import AuditedWheel, is_same_name
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, warning
from rocm_wheels.core.errors import Finding, Severity
from rocm_wheels.models.project import load_project
from rocm_wheels.wheels import python_tags, required_packages

_PLATFORM_TAGS = {"linux": re.compile(r"(many|musl)?linux"), "windows": re.compile(r"win")}
# what installers act on; a fault of another field, which indexes alone refuse, is grave in a wheel of ours,
# and that it is newer than the stated version is passed over
_INSTALLER_FIELDS = frozenset(
    ("metadata-version", "name", "version", "requires-dist", "requires-python", "provides-extra")
)
_NAMED_EXTRA = re.compile(r'extra == "([^"]*)"')
_ROCM, _LIBRARIES = "rocm", "libraries"
_ROCM_PACKAGE = re.compile("rocm$|rocm-sdk-")
_OTHERS_TIP = "its build states another version by itself: look into its setup.py or pyproject.toml"
_PIN_TIP = (
    "its build reads PYTORCH_EXTRA_INSTALL_REQUIREMENTS, as torch's does, or the finished wheel is given it"
)


@check("RW002 file-name (error)", needs_recipe=True)
def check_file_name(wheel: AuditedWheel) -> Findings:
    """The distribution and version that were to be built.

    Why: The wheel of another project or version is published under this build.
    Fix: Look which folder the front end ran in, and whether the version reached its setup.
    """
    name, project, expected = wheel.name, wheel.project, wheel.expected.version
    if not is_same_name(name.distribution, project.distribution):
        message = f"is a wheel of {name.name}; the recipe builds {project.distribution}"
        yield error(message, tip="the front end built another project: check the folder it ran in")
    if expected is not None and not is_same_version(str(name.version), expected):
        variables = project.version.variables or (project.version.suffix_variable or "its sources",)
        tip = f"the build did not take the version from {' '.join(variables)}"
        yield error(f"has version {name.version}; {expected} was to be built", tip=tip)


@check("RW003 platform (error)")
def check_platform(wheel: AuditedWheel) -> Findings:
    """The tags say the platform it is for.

    Why: Installers give it to machines that cannot run it, or to none.
    Fix: A wheel with native libraries must not be tagged `any`: its setup must tell that it is not pure.
    """
    platforms = sorted({tag.platform for tag in wheel.name.tags})
    expected = wheel.expected.platform
    other = [name for name in platforms if not _PLATFORM_TAGS[expected].match(name)]
    if platforms == ["any"]:
        if wheel.libraries:
            yield error(f"is tagged for any platform, but holds {wheel.libraries[0]}")
    elif wheel.has_recipe and other:
        yield error(f"is for {', '.join(other)}, not for {expected}")


@check("RW004 python (error)")
def check_python(wheel: AuditedWheel) -> Findings:
    """The interpreter it was built for accepts its tags.

    Why: No Python that it was built for installs it.
    Fix: Run the front end with the Python of the build environment.
    """
    interpreter = wheel.expected.python_tag
    if interpreter is None:
        raise Skip("the interpreter it is for was not stated")
    tags = wheel.name.tags
    if not python_tags.accepts_python(tags, interpreter):
        yield error(f"{' '.join(sorted(map(str, tags)))} does not fit the interpreter {interpreter}")


def is_same_version(version: str, other: str) -> bool:
    """Tell whether two spellings are one version (PEP 440); spellings that are none are compared as text."""
    try:
        return Version(version) == Version(other)
    except ValueError:  # no version, or a number of more digits than Python reads
        return version == other


@check("RW005 metadata (error)")
def check_metadata(wheel: AuditedWheel) -> Findings:
    """Every field of METADATA is valid.

    Why: Indexes refuse the upload, or installers pass over the field.
    Fix: Correct the field in pyproject.toml or setup.py (core metadata specification).
    """
    where = wheel.metadata_member
    if wheel.scan.metadata is None:
        prefix = f"{wheel.scan.path}: {where}: "
        faults = [fault.removeprefix(prefix) for fault in wheel.scan.faults if fault.startswith(prefix)]
        yield from (error(fault, where) for fault in faults)
        if not faults:
            raise Skip("METADATA could not be read")
        return
    raw, unknown = parse_email(wheel.scan.texts[where])
    for name in unknown:
        if name == "project-url":  # as often as one likes, and read as a table
            yield warning("two fields Project-URL have the same label", where)
        elif name.replace("-", "_") in RawMetadata.__annotations__:
            message = f"the field {name} is given twice, or not as it must be"
            yield Finding(_judge_field(wheel, name), message, subject=where)
        else:
            yield warning(f"the field {name} is unknown", where)
    try:
        Metadata.from_raw(raw)
    except ExceptionGroup as group:
        for fault in filter(_rejects_wheel, group.exceptions):
            message = f"{fault.field}: {str(fault).splitlines()[0]}"
            yield Finding(_judge_field(wheel, fault.field), message, subject=where)
    if raw.get("license_expression") and (
        old := [c for c in raw.get("classifiers", []) if "License ::" in c]
    ):
        yield Finding(
            wheel.severity, f"states License-Expression, and its licence as {old[0]}", subject=where
        )
    yield from _judge_extras(wheel)


def _judge_field(wheel: AuditedWheel, name: str) -> Severity:
    """Return how grave a fault of a field is; installers pass over the most."""
    return "error" if name in _INSTALLER_FIELDS else wheel.severity


def _rejects_wheel(fault: Exception) -> TypeGuard[InvalidMetadata]:
    """Tell whether indexes refuse a wheel for a fault; setuptools wrote newer fields for years, and may."""
    is_early = "introduced in metadata version" in str(fault)
    return isinstance(fault, InvalidMetadata) and (not is_early or fault.field in _INSTALLER_FIELDS)


def _judge_extras(wheel: AuditedWheel) -> Findings:
    """Yield the extras that are provided twice, or that a requirement alone names."""
    provided = list(map(canonicalize_name, wheel.metadata.provides_extra))
    for extra in sorted({extra for extra in provided if provided.count(extra) > 1}):
        yield Finding(wheel.severity, f"provides the extra {extra} twice", subject=wheel.metadata_member)
    named = {str(name) for r in wheel.requirements for name in _NAMED_EXTRA.findall(str(r.marker or ""))}
    if undeclared := sorted({canonicalize_name(name) for name in named}.difference(provided)):
        message = f"has requirements for the extra {join_names(undeclared)}, and does not provide it"
        yield Finding(wheel.severity, message, subject=wheel.metadata_member)


@check("RW006 requires-python (error)")
def check_requires_python(wheel: AuditedWheel) -> Findings:
    """Requires-Python admits that interpreter.

    Why: Installers pass over the wheel, or take it for Pythons that it does not work in.
    Fix: State requires-python in pyproject.toml.

    Of tags for later Pythons as well (``py3``, ``abi3``) it need not admit the first.
    """
    admitted = wheel.metadata.requires_python
    if not str(admitted):
        yield warning("states no Requires-Python", wheel.metadata_member)
        return
    refused: dict[str, str] = {}
    if wheel.expected.python_tag is not None:
        version = python_tags.get_python_version(wheel.expected.python_tag)
        if not admits_python(admitted, int(version.removeprefix("3."))):
            refused[version] = "which it was built for"
    later: list[tuple[Tag, int]] = []
    for tag in sorted(wheel.scan.name.tags if wheel.scan.name else (), key=str):
        match = _PYTHON_TAG.fullmatch(tag.interpreter)
        if match is None:
            continue
        minor = int(match["minor"] or 0)
        if match["minor"] is None or tag.abi in ("abi3", "none"):
            later.append((tag, minor))
        elif not admits_python(admitted, minor):
            refused.setdefault(f"3.{minor}", f"which its tag {tag} is for")
    if later and not any(admits_python(admitted, m) for _, first in later for m in range(first, _NO_PYTHON)):
        refused[f"3.{min(first for _, first in later)}"] = f"and all later ones, which {later[0][0]} is for"
    for version, reason in refused.items():
        message = f"Requires-Python {admitted} shuts out {version}, {reason}"
        yield error(message, wheel.metadata_member)


_PYTHON_TAG = re.compile(r"(?:cp|py)3(?P<minor>[0-9]+)?")
_NO_PYTHON = 40  # there is no 3.40: an end for what is for all Pythons from one on


def admits_python(admitted: SpecifierSet, minor: int) -> bool:
    """Tell whether any patch release of a Python is admitted."""
    return any(admitted.contains(f"3.{minor}.{patch}") for patch in range(100))


@check("RW007 requirements (error)")
def check_requirements(wheel: AuditedWheel) -> Findings:
    """No requirement points at a place.

    Why: PyPI refuses direct references, and the place exists on the builder's machine alone.
    Fix: Require a version instead.
    """
    for requirement in map(Requirement, wheel.metadata.requires_dist):
        if requirement.url:
            message = f"requires {requirement.name} from {requirement.url}"
            yield error(message, wheel.metadata_member)


@check("RW008 rocm-requirement (error)", needs_recipe=True)
def check_rocm_requirement(wheel: AuditedWheel) -> Findings:
    """Rocm[libraries] is pinned where it must be.

    Why: Another ROCm than the one it was built with is installed beside it, or none.
    Fix: The pin reaches setup through PYTORCH_EXTRA_INSTALL_REQUIREMENTS.

    A wheel that carries its ROCm requires none, and so does one that was built on an installed ROCm, which it
    names in Requires-External.
    """
    installed, version = wheel.metadata.installed_rocm, wheel.expected.rocm_version
    requirements, where = list_rocm_requirements(wheel), wheel.metadata_member
    reason = ""
    if wheel.rocm_folder is not None:
        reason = f"carries its ROCm in {wheel.rocm_folder}, and installers would add another"
    elif not wheel.project.checks.requires_rocm:
        reason = "by the recipe this project requires no ROCm of its own"
    elif installed:
        reason = "it was built on an installed ROCm"
        if version is not None and not is_same_version(installed, version):
            yield error(f"Requires-External is ROCm {installed}, and it was built on {version}", where)
    if reason:
        packages = [r for r in list_requirements(wheel) if _ROCM_PACKAGE.match(canonicalize_name(r.name))]
        yield from (error(f"requires {package}; {reason}", where) for package in packages)
    elif version is not None:
        yield from _check_pin(wheel, Requirement(f"{_ROCM}[{_LIBRARIES}]=={version}"))
    elif not any(_LIBRARIES in r.extras and get_exact_version(r) for r in requirements):
        instead = _describe_instead(requirements)
        yield error(f"does not require {_ROCM}[{_LIBRARIES}]==<version>{instead}", where, _PIN_TIP)


@check("RW009 pins (error)", needs_recipe=True)
def check_pins(wheel: AuditedWheel) -> Findings:
    """What was built with it is required at that version.

    Why: Beside another torch or triton it may not even be imported.
    Fix: Pin the version that it was built against, and take upstream's own pin out.

    A project that the recipe pins, and the wheel takes in other versions too, is a warning.
    """
    if wheel.scan.metadata is None:
        raise Skip("METADATA could not be read")
    stated = [Requirement(line) for line in wheel.expected.requirements]
    if not stated and not wheel.project.build.pins:
        raise Skip("no pin of another built wheel was stated")
    for pin in stated:
        yield from _check_pin(wheel, pin)
    for name in (load_project(pin.project).distribution for pin in wheel.project.build.pins):
        requirements = [r for r in list_requirements(wheel) if is_same_name(r.name, name)]
        is_stated = any(is_same_name(pin.name, name) for pin in stated)
        if not is_stated and not any(map(get_exact_version, requirements)):
            message = f"{name} is not required in one exact version{_describe_instead(requirements)}"
            yield warning(message, wheel.metadata_member)


def _check_pin(wheel: AuditedWheel, pin: Requirement) -> Iterator[Finding]:
    where = wheel.metadata_member
    requirements = [r for r in list_requirements(wheel) if is_same_name(r.name, pin.name)]
    version = get_exact_version(pin)
    assert version is not None, f"{pin} is an exact pin"
    exact = [r for r in requirements if is_same_version(get_exact_version(r) or "", version)]
    if not any(pin.extras <= requirement.extras for requirement in exact):
        tip = _PIN_TIP if wheel.project.checks.requires_rocm else _OTHERS_TIP
        yield error(f"does not require {pin}{_describe_instead(requirements)}", where, tip)
        return
    for requirement in requirements:
        if not requirement.specifier.contains(version, prereleases=True):
            yield error(f"requires {pin} and {requirement}: nothing can satisfy both", where)


def list_requirements(wheel: AuditedWheel) -> list[Requirement]:
    """Return the requirements that hold on the wheel's platform without an extra."""
    platform = wheel.wheel_platform
    environment = {**required_packages.SYSTEM_MARKERS[wheel.expected.platform], "extra": ""}
    if platform is not None and platform.system == wheel.expected.platform:
        environment |= platform.markers
    if wheel.expected.python_tag is not None:
        version = python_tags.get_python_version(wheel.expected.python_tag)
        environment |= {"python_version": version, "python_full_version": f"{version}.0"}
    return [r for r in wheel.requirements if r.marker is None or r.marker.evaluate(environment)]


def list_rocm_requirements(wheel: AuditedWheel) -> list[Requirement]:
    """Return what it requires of ROCm's own project."""
    return [r for r in list_requirements(wheel) if is_same_name(r.name, _ROCM)]


def get_exact_version(requirement: Requirement) -> str | None:
    """Return the version of a requirement that admits one only."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version:
        return specifiers[0].version
    return None


def _describe_instead(requirements: Iterable[Requirement]) -> str:
    listed = ", ".join(str(requirement) for requirement in requirements)
    return f", but {listed}" if listed else ""

"""Check what a wheel says of itself: its file name, METADATA and WHEEL, against what was built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors
from rocm_wheels.models.project import load_project

_PLATFORM_TAGS = {"linux": re.compile(r"(many|musl)?linux"), "windows": re.compile(r"win")}
_FILE_NAME_UNREAD = definition.SkippedCheck("the file name is not a wheel's")


@definition.check(
    "RW002 file-name (error)",
    why="The wheel of another project or version is published under this build.",
    fix="Look which folder the front end ran in, and whether the version reached its setup.",
    needs_recipe=True,
)
def check_file_name(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """The distribution and version that were to be built."""
    name = wheel.scan.name
    if name is None:
        return _FILE_NAME_UNREAD
    findings = []
    project = wheel.project
    if not audited_wheel.is_same_name(name.distribution, project.distribution):
        tip = "the front end built another project: check the folder it ran in"
        findings.append(
            errors.Finding(
                "error", f"is a wheel of {name.name}; the recipe builds {project.distribution}", tip
            )
        )
    expected_version = wheel.expected.version
    if expected_version is not None and not is_same_version(str(name.version), expected_version):
        variables = project.version.variables or (project.version.suffix_variable or "its sources",)
        tip = f"the build did not take the version from {' '.join(variables)}"
        findings.append(
            errors.Finding("error", f"has version {name.version}; {expected_version} was to be built", tip)
        )
    return findings


@definition.check(
    "RW003 platform (error)",
    why="Installers give it to machines that cannot run it, or to none.",
    fix="A wheel with native libraries must not be tagged `any`: its setup must tell that it is not pure.",
)
def check_platform(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """The tags say the platform it is for."""
    if wheel.scan.name is None:
        return _FILE_NAME_UNREAD
    platforms = sorted({tag.platform for tag in wheel.scan.name.tags})
    if platforms == ["any"]:
        if not wheel.libraries:
            return []
        return [errors.Finding("error", f"is tagged for any platform, but holds {wheel.libraries[0]}")]
    if not wheel.has_recipe:
        return []
    expected_platform = wheel.expected.platform
    other = [name for name in platforms if not _PLATFORM_TAGS[expected_platform].match(name)]
    return (
        [errors.Finding("error", f"is for {', '.join(other)}, not for {expected_platform}")] if other else []
    )


@definition.check(
    "RW004 python (error)",
    why="No Python that it was built for installs it.",
    fix="Run the front end with the Python of the build environment.",
)
def check_python(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """The interpreter it was built for accepts its tags."""
    interpreter = wheel.expected.python_tag
    if interpreter is None:
        return definition.SkippedCheck("the interpreter it is for was not stated")
    if wheel.scan.name is None:
        return _FILE_NAME_UNREAD
    tags = wheel.scan.name.tags
    if tags & audited_wheel.list_accepted_tags(interpreter, sorted({tag.platform for tag in tags})):
        return []
    return [errors.Finding("error", f"{_join_tags(tags)} does not fit the interpreter {interpreter}")]


def is_same_version(version: str, other: str) -> bool:
    """Tell whether two spellings are one version (PEP 440); spellings that are none are compared as text."""
    try:
        return Version(version) == Version(other)
    except InvalidVersion:
        return version == other


def _join_tags(tags: Iterable[Tag]) -> str:
    return " ".join(sorted(map(str, tags)))


# what installers act on; a fault in any other field is shown and does not reject the wheel
_INSTALLER_FIELDS = (
    "metadata-version",
    "name",
    "version",
    "requires-dist",
    "requires-python",
    "provides-extra",
)
_REQUIRED_FIELDS = ("metadata_version", "name", "version")
_METADATA_UNREAD = definition.SkippedCheck("METADATA could not be read")
_ROCM, _LIBRARIES = "rocm", "libraries"
_OTHERS_TIP = "its build states another version by itself: look into its setup.py or pyproject.toml"
_PIN_TIP = (
    "its build reads PYTORCH_EXTRA_INSTALL_REQUIREMENTS, as torch's does, or the finished wheel is given it"
)


@definition.check(
    "RW005 metadata (error)",
    why="Indexes refuse the upload, or installers pass over the field.",
    fix="Correct the field in pyproject.toml or setup.py (core metadata specification).",
)
def check_metadata(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """Every field of METADATA is valid."""
    where = f"{wheel.dist_info}/METADATA"
    if wheel.scan.metadata is None:
        prefix = f"{wheel.scan.path}: {where}: "
        faults = [fault.removeprefix(prefix) for fault in wheel.scan.faults if fault.startswith(prefix)]
        return [errors.Finding("error", fault, subject=where) for fault in faults] or _METADATA_UNREAD
    raw, unknown = parse_email(wheel.scan.texts[where])
    lazy = Metadata.from_raw(raw, validate=False)  # each attribute is checked when it is read
    findings = [
        errors.Finding(_get_severity(name), f"the field {name} is unknown, or given twice", subject=where)
        for name in unknown
    ]
    for name in sorted({*_REQUIRED_FIELDS, *raw}):
        try:
            getattr(lazy, name)
        except InvalidMetadata as fault:
            message = f"{fault.field}: {str(fault).splitlines()[0]}"
            findings.append(errors.Finding(_get_severity(fault.field), message, subject=where))
    return findings


@definition.check(
    "RW006 requires-python (error)",
    why="Installers pass over the wheel, or take it for Pythons that it does not work in.",
    fix="State requires-python in pyproject.toml.",
)
def check_requires_python(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Requires-Python admits that interpreter.

    Of tags for later Pythons as well (``py3``, ``abi3``) it need not admit the first.
    """
    if wheel.scan.metadata is None:
        return _METADATA_UNREAD
    where = f"{wheel.dist_info}/METADATA"
    admitted = wheel.scan.metadata.requires_python
    if not str(admitted):
        return [errors.Finding("warning", "states no Requires-Python", subject=where)]
    refused: dict[str, str] = {}
    if wheel.expected.python_tag is not None:
        version = audited_wheel.get_python_version(wheel.expected.python_tag)
        if not _admits(admitted, int(version.removeprefix("3."))):
            refused[version] = "which it was built for"
    later: list[tuple[Tag, int]] = []
    for tag in sorted(wheel.scan.name.tags if wheel.scan.name else (), key=str):
        match = _PYTHON_TAG.fullmatch(tag.interpreter)
        if match is None:
            continue
        minor = int(match["minor"] or 0)
        if match["minor"] is None or tag.abi in ("abi3", "none"):
            later.append((tag, minor))
        elif not _admits(admitted, minor):
            refused.setdefault(f"3.{minor}", f"which its tag {tag} is for")
    if later and not any(
        _admits(admitted, minor) for _, first in later for minor in range(first, _NO_PYTHON)
    ):
        refused[f"3.{min(first for _, first in later)}"] = f"and all later ones, which {later[0][0]} is for"
    return [
        errors.Finding("error", f"Requires-Python {admitted} shuts out {version}, {reason}", subject=where)
        for version, reason in refused.items()
    ]


_PYTHON_TAG = re.compile(r"(?:cp|py)3(?P<minor>[0-9]+)?")
_NO_PYTHON = 40  # there is no 3.40: an end for what is for all Pythons from one on


def _admits(admitted: SpecifierSet, minor: int) -> bool:
    """Tell whether any patch release of a Python is admitted."""
    return any(admitted.contains(f"3.{minor}.{patch}") for patch in range(100))


@definition.check(
    "RW007 requirements (error)",
    why="PyPI refuses direct references, and the place exists on the builder's machine alone.",
    fix="Require a version instead.",
)
def check_requirements(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """No requirement points at a place."""
    if wheel.scan.metadata is None:
        return _METADATA_UNREAD
    return [
        errors.Finding(
            "error",
            f"requires {requirement.name} from {requirement.url}",
            subject=f"{wheel.dist_info}/METADATA",
        )
        for requirement in map(Requirement, wheel.scan.metadata.requires_dist)
        if requirement.url
    ]


@definition.check(
    "RW008 rocm-requirement (error)",
    why="Another ROCm than the one it was built with is installed beside it, or none.",
    fix="The pin reaches setup through PYTORCH_EXTRA_INSTALL_REQUIREMENTS.",
    needs_recipe=True,
)
def check_rocm_requirement(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Rocm[libraries] is pinned where it must be.

    A wheel that carries its ROCm requires none, and so does one that was built on an installed ROCm.
    """
    if wheel.scan.metadata is None:
        return _METADATA_UNREAD
    where = f"{wheel.dist_info}/METADATA"
    requirements = list_rocm_requirements(wheel)
    if wheel.rocm_folder is not None:
        message = f"carries its ROCm in {wheel.rocm_folder}, and installers would add another"
        return [
            errors.Finding("error", f"requires {requirement}; {message}", subject=where)
            for requirement in requirements
        ]
    if not wheel.project.checks.requires_rocm:
        message = "by the recipe this project requires no ROCm of its own"
        return [
            errors.Finding("error", f"requires {requirement}; {message}", subject=where)
            for requirement in requirements
        ]
    version = wheel.expected.rocm_version
    if installed := wheel.scan.metadata.installed_rocm:
        return _judge_installed_rocm(wheel, installed, requirements)
    if version is not None:
        return _check_pin(wheel, Requirement(f"{_ROCM}[{_LIBRARIES}]=={version}"))
    if any(_LIBRARIES in r.extras and get_exact_version(r) for r in requirements):
        return []
    return [
        errors.Finding(
            "error",
            f"does not require {_ROCM}[{_LIBRARIES}]==<version>{_describe_instead(requirements)}",
            _PIN_TIP,
            subject=where,
        )
    ]


def _judge_installed_rocm(
    wheel: audited_wheel.AuditedWheel, installed: str, requirements: Sequence[Requirement]
) -> list[errors.Finding]:
    """A wheel built on an installed ROCm names it in Requires-External, and requires no package of it."""
    where, version = f"{wheel.dist_info}/METADATA", wheel.expected.rocm_version
    findings = [
        errors.Finding("error", f"requires {r}, although it was built on an installed ROCm", subject=where)
        for r in requirements
    ]
    if version is not None and not is_same_version(installed, version):
        message = f"Requires-External is ROCm {installed}, and it was built on {version}"
        findings.append(errors.Finding("error", message, subject=where))
    return findings


@definition.check(
    "RW009 pins (error)",
    why="Beside another torch or triton it may not even be imported.",
    fix="Pin the version that it was built against.",
    needs_recipe=True,
)
def check_pins(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """What was built with it is required at that version."""
    if wheel.scan.metadata is None:
        return _METADATA_UNREAD
    stated = [Requirement(line) for line in wheel.expected.requirements]
    if not stated and not wheel.project.build.pins:
        return definition.SkippedCheck("no pin of another built wheel was stated")
    return [*(fault for pin in stated for fault in _check_pin(wheel, pin)), *_find_loose_pins(wheel, stated)]


def _find_loose_pins(
    wheel: audited_wheel.AuditedWheel, stated: Iterable[Requirement]
) -> Iterable[errors.Finding]:
    """Yield a warning for each project that the recipe pins, and the wheel takes in other versions too."""
    for pin in wheel.project.build.pins:
        name = load_project(pin.project).distribution
        requirements = [r for r in list_requirements(wheel) if audited_wheel.is_same_name(r.name, name)]
        if not any(audited_wheel.is_same_name(r.name, name) for r in stated) and not any(
            map(get_exact_version, requirements)
        ):
            message = f"{name} is not required in one exact version{_describe_instead(requirements)}"
            tip = f"it was built against one {name}: beside another one it may not even be imported"
            yield errors.Finding("warning", message, tip, subject=f"{wheel.dist_info}/METADATA")


def _check_pin(wheel: audited_wheel.AuditedWheel, pin: Requirement) -> list[errors.Finding]:
    member = f"{wheel.dist_info}/METADATA"
    requirements = [r for r in list_requirements(wheel) if audited_wheel.is_same_name(r.name, pin.name)]
    version = get_exact_version(pin)
    assert version is not None, f"{pin} is an exact pin"
    if not any(
        is_same_version(get_exact_version(r) or "", version) and pin.extras <= r.extras for r in requirements
    ):
        tip = _PIN_TIP if wheel.project.checks.requires_rocm else _OTHERS_TIP
        return [
            errors.Finding(
                "error", f"does not require {pin}{_describe_instead(requirements)}", tip, subject=member
            )
        ]
    contradicting = [r for r in requirements if not r.specifier.contains(version, prereleases=True)]
    tip = "upstream's own pin must be taken out when ours is added"
    return [
        errors.Finding("error", f"requires {pin} and {r}: nothing can satisfy both", tip, subject=member)
        for r in contradicting
    ]


def list_requirements(wheel: audited_wheel.AuditedWheel) -> Iterable[Requirement]:
    """Yield the requirements that hold on the wheel's platform without an extra."""
    windows = wheel.expected.platform == "windows"
    marker_environment = {
        "platform_system": "Windows" if windows else "Linux",
        "sys_platform": "win32" if windows else "linux",
        "os_name": "nt" if windows else "posix",
        "extra": "",
    }
    if wheel.expected.python_tag is not None:
        version = audited_wheel.get_python_version(wheel.expected.python_tag)
        marker_environment |= {"python_version": version, "python_full_version": f"{version}.0"}
    for requirement in map(Requirement, wheel.scan.metadata.requires_dist if wheel.scan.metadata else ()):
        if requirement.marker is None or requirement.marker.evaluate(marker_environment):
            yield requirement


def list_rocm_requirements(wheel: audited_wheel.AuditedWheel) -> list[Requirement]:
    """Return what it requires of ROCm's own project."""
    return [r for r in list_requirements(wheel) if audited_wheel.is_same_name(r.name, _ROCM)]


def get_exact_version(requirement: Requirement) -> str | None:
    """Return the version of a requirement that admits one only."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version:
        return specifiers[0].version
    return None


def _get_severity(field: str) -> errors.Severity:
    return "error" if field in _INSTALLER_FIELDS else "warning"


def _describe_instead(requirements: Iterable[Requirement]) -> str:
    listed = ", ".join(str(requirement) for requirement in requirements)
    return f", but {listed}" if listed else ""

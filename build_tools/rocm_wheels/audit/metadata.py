"""Checks of METADATA: is it valid, which Pythons it admits, and what it requires."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.requirements import Requirement

from rocm_wheels.audit.findings import Finding, Severity, Skipped
from rocm_wheels.audit.names import same_version
from rocm_wheels.audit.subject import Subject, python_version, same_name
from rocm_wheels.model.project import load_project

# what installers act on; a fault in any other field is shown and does not reject the wheel
_ACTED_ON = ("metadata-version", "name", "version", "requires-dist", "requires-python", "provides-extra")
_REQUIRED = ("metadata_version", "name", "version")
_UNREAD = Skipped("METADATA could not be read")
_ROCM, _LIBRARIES = "rocm", "libraries"
_OTHERS_TIP = "its build states another version by itself: look into its setup.py or pyproject.toml"
_PIN_TIP = (
    "the pin reaches setup through PYTORCH_EXTRA_INSTALL_REQUIREMENTS: is it in the step's environment?"
)


def check_metadata(wheel: Subject) -> list[Finding] | Skipped:
    """Every field of METADATA is valid (core metadata specification)."""
    where = f"{wheel.dist_info}/METADATA"
    if wheel.scan.metadata is None:
        return _UNREAD
    raw, unknown = parse_email(wheel.scan.texts[where])
    lazy = Metadata.from_raw(raw, validate=False)  # each attribute is checked when it is read
    found = [
        Finding(f"the field {name} is not known, or is given twice", where, severity=_severity(name))
        for name in unknown
    ]
    for name in sorted({*_REQUIRED, *raw}):
        try:
            getattr(lazy, name)
        except InvalidMetadata as fault:
            said = f"{fault.field}: {str(fault).splitlines()[0]}"
            found.append(Finding(said, where, severity=_severity(fault.field)))
    return found


def check_requires_python(wheel: Subject) -> list[Finding] | Skipped:
    """Requires-Python is stated, and admits the interpreter that the wheel is for."""
    if wheel.scan.metadata is None:
        return _UNREAD
    where = f"{wheel.dist_info}/METADATA"
    admitted = wheel.scan.metadata.requires_python
    if not str(admitted):
        return [Finding("states no Requires-Python", where, severity="warning")]
    if wheel.expected.python_tag is None:
        return []
    version = python_version(wheel.expected.python_tag)
    # X.Y stands for all its patch releases: the first or a late one must be admitted
    if admitted.contains(f"{version}.0") or admitted.contains(f"{version}.99"):
        return []
    return [Finding(f"Requires-Python {admitted} shuts out {version}, which it was built for", where)]


def check_requirements(wheel: Subject) -> list[Finding] | Skipped:
    """No requirement points at a place instead of a version."""
    if wheel.scan.metadata is None:
        return _UNREAD
    tip = "indexes refuse direct references: require a version instead"
    return [
        Finding(f"requires {asked.name} from {asked.url}", f"{wheel.dist_info}/METADATA", tip)
        for asked in map(Requirement, wheel.scan.metadata.requires_dist)
        if asked.url
    ]


def check_rocm_requirement(wheel: Subject) -> list[Finding] | Skipped:
    """``rocm[libraries]==<the SDK's version>`` is required exactly when the recipe says so."""
    if wheel.scan.metadata is None:
        return _UNREAD
    where = f"{wheel.dist_info}/METADATA"
    asked = [r for r in _requirements(wheel) if same_name(r.name, _ROCM)]
    if not wheel.expected.project.checks.requires_rocm:
        said = "by the recipe this project requires no ROCm of its own"
        return [Finding(f"requires {requirement}; {said}", where) for requirement in asked]
    version = wheel.expected.rocm_version
    if version is not None:
        return _pinned(wheel, Requirement(f"{_ROCM}[{_LIBRARIES}]=={version}"))
    if any(_LIBRARIES in r.extras and _exact(r) for r in asked):
        return []
    return [Finding(f"does not require {_ROCM}[{_LIBRARIES}]==<version>{_instead(asked)}", where, _PIN_TIP)]


def check_pins(wheel: Subject) -> list[Finding] | Skipped:
    """The exact versions of what was built together with it are required."""
    if wheel.scan.metadata is None:
        return _UNREAD
    stated = [Requirement(line) for line in wheel.expected.requirements]
    if not stated and not wheel.expected.project.build.pins:
        return Skipped("no pin of another built wheel was stated")
    return [*(fault for one in stated for fault in _pinned(wheel, one)), *_loose(wheel, stated)]


def _loose(wheel: Subject, stated: Iterable[Requirement]) -> Iterable[Finding]:
    """Yield a warning for each project that the recipe pins, and the wheel takes in other versions too."""
    for pin in wheel.expected.project.build.pins:
        name = load_project(pin.project).distribution
        asked = [r for r in _requirements(wheel) if same_name(r.name, name)]
        if not any(same_name(r.name, name) for r in stated) and not any(map(_exact, asked)):
            said = f"{name} is not required in one exact version{_instead(asked)}"
            tip = f"it was built against one {name}: beside another one it may not even be imported"
            yield Finding(said, f"{wheel.dist_info}/METADATA", tip, severity="warning")


def _pinned(wheel: Subject, wanted: Requirement) -> list[Finding]:
    where = f"{wheel.dist_info}/METADATA"
    asked = [r for r in _requirements(wheel) if same_name(r.name, wanted.name)]
    version = _exact(wanted)
    assert version is not None, f"{wanted} is an exact pin"
    if not any(same_version(_exact(r) or "", version) and wanted.extras <= r.extras for r in asked):
        tip = _PIN_TIP if wheel.expected.project.checks.requires_rocm else _OTHERS_TIP
        return [Finding(f"does not require {wanted}{_instead(asked)}", where, tip)]
    against = [r for r in asked if not r.specifier.contains(version, prereleases=True)]
    tip = "upstream's own pin must be taken out when ours is added"
    return [Finding(f"requires {wanted} and {r}: nothing can satisfy both", where, tip) for r in against]


def _requirements(wheel: Subject) -> Iterable[Requirement]:
    """Yield the requirements that hold on the wheel's platform without an extra."""
    windows = wheel.expected.platform == "windows"
    place = {
        "platform_system": "Windows" if windows else "Linux",
        "sys_platform": "win32" if windows else "linux",
        "os_name": "nt" if windows else "posix",
        "extra": "",
    }
    if wheel.expected.python_tag is not None:
        version = python_version(wheel.expected.python_tag)
        place |= {"python_version": version, "python_full_version": f"{version}.0"}
    for requirement in map(Requirement, wheel.scan.metadata.requires_dist if wheel.scan.metadata else ()):
        if requirement.marker is None or requirement.marker.evaluate(place):
            yield requirement


def _exact(requirement: Requirement) -> str | None:
    """Return the version of a requirement that admits one only."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version:
        return specifiers[0].version
    return None


def _severity(field: str) -> Severity:
    return "error" if field in _ACTED_ON else "warning"


def _instead(asked: Iterable[Requirement]) -> str:
    listed = ", ".join(str(requirement) for requirement in asked)
    return f", but {listed}" if listed else ""

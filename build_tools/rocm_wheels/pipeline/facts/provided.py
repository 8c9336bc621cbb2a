"""Wheels that others are built against and that a run does not build: given as files, or installed already.

A given one is read without being installed. What was found is remembered in the work directory, by the
file's size and date: a wheel of torch has gigabytes, and each step of a run asks again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels import __version__
from rocm_wheels.errors import DataError, UsageError, explain_error
from rocm_wheels.model.names import list_shared_projects, get_option_name
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.pipeline.provenance import LOCK_MEMBER, digest_content
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files
from rocm_wheels.wheels.names import parse_wheel_name
from rocm_wheels.workspace import Workspace, write_json_file

if TYPE_CHECKING:
    from rocm_wheels.audit.subject import AuditedWheel

_PROVIDED_FORMAT = "2"  # raise it when the same wheel would be described otherwise
_MAX_SHOWN_FAULTS = 8
# of the checks of finished wheels, those that decide whether others can be built against one
_CHECKS_OF_DAMAGED = ("archive", "file-name", "platform", "python")  # also of a damaged one
_DECIDING_CHECKS = (
    *_CHECKS_OF_DAMAGED,
    "requires-python",
    "rocm-requirement",
    "files",
    "rocm-init",
    "rocm-build",
    "device-libraries",
    "device-code",
    "device-wheels",
)


@dataclass(frozen=True)
class ProvidedWheel:
    """A wheel that this run has, and does not build.

    ``wheel``: the file that was given; ``None``: it is installed in ``place``. ``digest_content``: a digest of what
    it holds, the same as that of the wheel when we built it. ``rocm``: the version of ROCm that it requires.
    ``libraries``: the targets of those that must hold all. ``requires``: what else it requires, of no
    project of ours. ``cxx11_abi``: ``None`` while it is not installed, or when it does not say. ``lock``: the
    SHA-256 of the lock inside ("": none). ``faults``: what is wrong with it, whatever is built against it.
    ``outside``: where the device code of such libraries is that nobody could read, because it was moved out.
    """

    project: str
    place: str
    version: str
    content: str
    wheel: Path | None = None
    rocm: str | None = None
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    cxx11_abi: bool | None = None
    lock: str = ""
    faults: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Say in a word or two where it comes from."""
        return "installed" if self.wheel is None else f"--{get_option_name(self.project)}-wheel"

    def describe(self) -> str:
        """Say what it is and where it comes from."""
        distribution = load_project(self.project).distribution
        return f"{distribution} {self.version} ({self.source}: {self.wheel or self.place})"


def select_given_wheel(project: str, wheels: Sequence[Path], tag: str) -> Path:
    """Return the wheel for a Python; the only one, also where it does not fit: what is wrong is told then.

    Raises UsageError when none of several fits, or more than one.
    """
    fitting = wheels if len(wheels) == 1 else [wheel for wheel in wheels if _fits_python(wheel, tag)]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{', '.join(map(str, fitting))} are all" if fitting else "none of those given is"
    raise UsageError(
        f"--{get_option_name(project)}-wheel: {problem} for {tag}", tip="give one for each Python"
    )


def refuse_unused_wheels(given_wheels: Mapping[str, Sequence[Path]], tags: Sequence[str]) -> None:
    """Raise UsageError for wheels among several that are for none of the Pythons."""
    for project, wheels in given_wheels.items():
        unused = [str(wheel) for wheel in wheels if not any(_fits_python(wheel, tag) for tag in tags)]
        if unused and len(wheels) > 1:
            raise UsageError(
                f"--{get_option_name(project)}-wheel: {', '.join(unused)} is for none of {', '.join(tags)}",
                tip="leave it out, or choose its Python with --python",
            )


def _fits_python(wheel: Path, tag: str) -> bool:
    from rocm_wheels.audit.subject import list_accepted_tags

    tags = parse_wheel_name(wheel.name).tags
    return bool(tags & list_accepted_tags(tag, sorted({wheel_tag.platform for wheel_tag in tags})))


def inspect_given_wheel(
    project: str, wheel: Path, platform: Platform, tag: str, workspace: Workspace
) -> ProvidedWheel:
    """Return what a given wheel is, or what was found in the very same file before.

    It is read together with the device wheels of the same version that lie beside it.
    """
    from rocm_wheels.audit.parts import find_device_wheels

    if not wheel.is_file():
        raise UsageError(f"--{get_option_name(project)}-wheel: there is no file {wheel}")
    key: list[object] = [platform, tag]
    for path in (wheel, *find_device_wheels(wheel)):
        state = path.stat()
        key += [str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return remember_provided(
        workspace, key, lambda: read_given_wheel(load_project(project), wheel, platform, tag)
    )


def remember_provided(
    workspace: Workspace, key: Sequence[object], read_wheel: Callable[[], ProvidedWheel]
) -> ProvidedWheel:
    """Return what was found under a key before, else what ``read_wheel`` finds; faults are not remembered."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(ProvidedWheel)
    text = json.dumps([_PROVIDED_FORMAT, __version__, *key])
    path = workspace.root / "provided" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        return adapter.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        provided = read_wheel()
    if not provided.faults:
        write_json_file(path, adapter.dump_python(provided, mode="json"))
    return provided


def read_given_wheel(project: Project, wheel: Path, platform: Platform, tag: str) -> ProvidedWheel:
    """Read a wheel whole, digests of its files included; what is wrong with it is in ``faults``."""
    from rocm_wheels.audit.parts import find_device_wheels
    from rocm_wheels.audit.subject import WheelExpectation, AuditedWheel
    from rocm_wheels.wheels.scan import scan_wheel

    checks, named = project.checks, parse_wheel_name(wheel.name)
    bare = ProvidedWheel(project.name, str(wheel.parent), str(named.version), "", wheel)
    modules = (f"{checks.import_name}/version.py", checks.rocm_init or "")
    try:
        scan = scan_wheel(wheel, keep=tuple(name for name in modules if name))
        parts = tuple(map(scan_wheel, find_device_wheels(wheel)))
    except DataError as damage:
        return replace(bare, faults=(explain_error(damage),))
    requires = scan.metadata.requires_dist if scan.metadata is not None else ()
    rocm = find_rocm_pin(requires)
    subject = AuditedWheel(
        scan, WheelExpectation(project, platform, python_tag=tag, rocm_version=rocm), parts
    )
    faults = _find_faults(subject)
    if scan.breaking_faults:
        return replace(bare, faults=faults)
    inside = read_dist_info_files(wheel).get(LOCK_MEMBER)
    names = list_required_libraries(project, platform, subject.libraries)
    return replace(
        bare,
        content=digest_content(wheel),
        rocm=rocm,
        libraries={
            name: subject.list_member_targets(name) for name in names if subject.list_member_targets(name)
        },
        outside=tuple(
            sorted(
                {
                    archive
                    for name in names
                    if not subject.find_archives(name)
                    for archive in scan.moved_code.get(name, ())
                }
            )
        ),
        requires=list_other_requirements(requires),
        lock="" if inside is None else hashlib.sha256(inside).hexdigest(),
        faults=faults,
    )


def _find_faults(subject: AuditedWheel) -> tuple[str, ...]:
    """Return what the deciding checks find."""
    from rocm_wheels.audit.findings import SkippedCheck
    from rocm_wheels.audit.table import CHECKS

    project, faults = subject.expected.project, []
    names = _CHECKS_OF_DAMAGED if subject.scan.breaking_faults else _DECIDING_CHECKS
    for check in CHECKS:
        if check.name not in names or (check.name == "rocm-requirement" and not project.checks.requires_rocm):
            continue
        outcome = check.run_check(subject)
        findings = (
            ()
            if isinstance(outcome, SkippedCheck)
            else [finding for finding in outcome if finding.severity == "error"]
        )
        faults += [
            f"{finding.where}: {finding.message}" if finding.where else finding.message
            for finding in findings
        ]
    more = [f"and {len(faults) - _MAX_SHOWN_FAULTS} more faults"] if len(faults) > _MAX_SHOWN_FAULTS else []
    return (*faults[:_MAX_SHOWN_FAULTS], *more)


def list_required_libraries(project: Project, platform: Platform, members: Iterable[str]) -> tuple[str, ...]:
    """Return the members that must hold code for all targets, by the recipe: the first rule decides."""
    libraries = []
    for member in members:
        rules = (rule for rule in project.list_device_code_rules(platform) if fnmatchcase(member, rule.files))
        if (rule := next(rules, None)) is not None and rule.expect == "all":
            libraries.append(member)
    return tuple(libraries)


def find_rocm_pin(requires: Iterable[str]) -> str | None:
    """Return the one version of ROCm's libraries that a distribution requires."""
    for requirement in map(Requirement, requires):
        exact = [
            specifier
            for specifier in requirement.specifier
            if specifier.operator in ("==", "===") and "*" not in specifier.version
        ]
        if canonicalize_name(requirement.name) == "rocm" and "libraries" in requirement.extras and exact:
            return exact[0].version
    return None


def list_other_requirements(requires: Iterable[str]) -> tuple[str, ...]:
    """Return what is required besides ROCm, projects of ours and extras: an import may need it."""
    ours = {
        "rocm",
        *(canonicalize_name(load_project(entry).distribution) for entry in list_shared_projects()),
    }
    requirements = [(line, Requirement(line)) for line in requires]
    return tuple(
        line
        for line, entry in requirements
        if canonicalize_name(entry.name) not in ours and "extra" not in str(entry.marker or "")
    )

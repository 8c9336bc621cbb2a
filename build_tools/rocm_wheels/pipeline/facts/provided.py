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
from rocm_wheels.errors import DataError, UsageError, explain
from rocm_wheels.model.names import installed_for_others, option_name
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.pipeline.provenance import FILE, content
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files
from rocm_wheels.wheels.names import parse_wheel_name
from rocm_wheels.workspace import Workspace, write_json

if TYPE_CHECKING:
    from rocm_wheels.audit.subject import Subject

_FORMAT = "2"  # raise it when the same wheel would be described otherwise
_MOST_SHOWN = 8
# of the checks of finished wheels, those that decide whether others can be built against one
_OF_ANY = ("archive", "file-name", "platform", "python")  # also of a damaged one
_DECIDING = (
    *_OF_ANY,
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
class Provided:
    """A wheel that this run has, and does not build.

    ``wheel``: the file that was given; ``None``: it is installed in ``place``. ``content``: a digest of what
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
        return "installed" if self.wheel is None else f"--{option_name(self.project)}-wheel"

    def said(self) -> str:
        """Say what it is and where it comes from."""
        distribution = load_project(self.project).distribution
        return f"{distribution} {self.version} ({self.source}: {self.wheel or self.place})"


def given_for(project: str, wheels: Sequence[Path], tag: str) -> Path:
    """Return the wheel for a Python; the only one, also where it does not fit: what is wrong is told then.

    Raises UsageError when none of several fits, or more than one.
    """
    fitting = wheels if len(wheels) == 1 else [wheel for wheel in wheels if _fits(wheel, tag)]
    if len(fitting) == 1:
        return fitting[0]
    said = f"{', '.join(map(str, fitting))} are all" if fitting else "none of those given is"
    raise UsageError(f"--{option_name(project)}-wheel: {said} for {tag}", tip="give one for each Python")


def refuse_unused(given: Mapping[str, Sequence[Path]], tags: Sequence[str]) -> None:
    """Raise UsageError for wheels among several that are for none of the Pythons."""
    for project, wheels in given.items():
        idle = [str(wheel) for wheel in wheels if not any(_fits(wheel, tag) for tag in tags)]
        if idle and len(wheels) > 1:
            raise UsageError(
                f"--{option_name(project)}-wheel: {', '.join(idle)} is for none of {', '.join(tags)}",
                tip="leave it out, or choose its Python with --python",
            )


def _fits(wheel: Path, tag: str) -> bool:
    from rocm_wheels.audit.subject import accepted_tags

    tags = parse_wheel_name(wheel.name).tags
    return bool(tags & accepted_tags(tag, sorted({one.platform for one in tags})))


def look_at_given(project: str, wheel: Path, platform: Platform, tag: str, workspace: Workspace) -> Provided:
    """Return what a given wheel is, or what was found in the very same file before.

    It is read together with the device wheels of the same version that lie beside it.
    """
    from rocm_wheels.audit.parts import device_wheels_beside

    if not wheel.is_file():
        raise UsageError(f"--{option_name(project)}-wheel: there is no file {wheel}")
    key: list[object] = [platform, tag]
    for path in (wheel, *device_wheels_beside(wheel)):
        state = path.stat()
        key += [str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return remembered(workspace, key, lambda: read_given(load_project(project), wheel, platform, tag))


def remembered(workspace: Workspace, key: Sequence[object], look: Callable[[], Provided]) -> Provided:
    """Return what was found under a key before, else what ``look`` finds; faults are not remembered."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(Provided)
    text = json.dumps([_FORMAT, __version__, *key])
    place = workspace.root / "provided" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        return adapter.validate_json(place.read_bytes())
    except (FileNotFoundError, ValidationError):
        found = look()
    if not found.faults:
        write_json(place, adapter.dump_python(found, mode="json"))
    return found


def read_given(project: Project, wheel: Path, platform: Platform, tag: str) -> Provided:
    """Read a wheel whole, digests of its files included; what is wrong with it is in ``faults``."""
    from rocm_wheels.audit.parts import device_wheels_beside
    from rocm_wheels.audit.subject import Expectation, Subject
    from rocm_wheels.wheels.scan import scan_wheel

    checks, named = project.checks, parse_wheel_name(wheel.name)
    bare = Provided(project.name, str(wheel.parent), str(named.version), "", wheel)
    modules = (f"{checks.import_name}/version.py", checks.rocm_init or "")
    try:
        scan = scan_wheel(wheel, keep=tuple(name for name in modules if name))
        parts = tuple(map(scan_wheel, device_wheels_beside(wheel)))
    except DataError as damage:
        return replace(bare, faults=(explain(damage),))
    requires = scan.metadata.requires_dist if scan.metadata is not None else ()
    rocm = rocm_pin(requires)
    subject = Subject(scan, Expectation(project, platform, python_tag=tag, rocm_version=rocm), parts)
    faults = _faults(subject)
    if scan.broken:
        return replace(bare, faults=faults)
    inside = read_dist_info_files(wheel).get(FILE)
    names = required_libraries(project, platform, subject.libraries)
    return replace(
        bare,
        content=content(wheel),
        rocm=rocm,
        libraries={name: subject.held_by(name) for name in names if subject.held_by(name)},
        outside=tuple(
            sorted(
                {
                    archive
                    for name in names
                    if not subject.archives(name)
                    for archive in scan.elsewhere.get(name, ())
                }
            )
        ),
        requires=other_requirements(requires),
        lock="" if inside is None else hashlib.sha256(inside).hexdigest(),
        faults=faults,
    )


def _faults(subject: Subject) -> tuple[str, ...]:
    """Return what the deciding checks find."""
    from rocm_wheels.audit.findings import Skipped
    from rocm_wheels.audit.table import CHECKS

    project, found = subject.expected.project, []
    names = _OF_ANY if subject.scan.broken else _DECIDING
    for check in CHECKS:
        if check.name not in names or (check.name == "rocm-requirement" and not project.checks.requires_rocm):
            continue
        outcome = check.look(subject)
        findings = () if isinstance(outcome, Skipped) else [one for one in outcome if one.severity == "error"]
        found += [f"{one.where}: {one.what}" if one.where else one.what for one in findings]
    more = [f"and {len(found) - _MOST_SHOWN} more faults"] if len(found) > _MOST_SHOWN else []
    return (*found[:_MOST_SHOWN], *more)


def required_libraries(project: Project, platform: Platform, members: Iterable[str]) -> tuple[str, ...]:
    """Return the members that must hold code for all targets, by the recipe: the first rule decides."""
    found = []
    for member in members:
        rules = (rule for rule in project.device_code(platform) if fnmatchcase(member, rule.files))
        if (rule := next(rules, None)) is not None and rule.expect == "all":
            found.append(member)
    return tuple(found)


def rocm_pin(requires: Iterable[str]) -> str | None:
    """Return the one version of ROCm's libraries that a distribution requires."""
    for asked in map(Requirement, requires):
        exact = [one for one in asked.specifier if one.operator in ("==", "===") and "*" not in one.version]
        if canonicalize_name(asked.name) == "rocm" and "libraries" in asked.extras and exact:
            return exact[0].version
    return None


def other_requirements(requires: Iterable[str]) -> tuple[str, ...]:
    """Return what is required besides ROCm, projects of ours and extras: an import may need it."""
    ours = {"rocm", *(canonicalize_name(load_project(one).distribution) for one in installed_for_others())}
    asked = [(line, Requirement(line)) for line in requires]
    return tuple(
        line
        for line, one in asked
        if canonicalize_name(one.name) not in ours and "extra" not in str(one.marker or "")
    )

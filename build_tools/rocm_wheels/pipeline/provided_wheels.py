"""Wheels that others are built against and that a run does not build: given as files, or installed already.

A given one is read without being installed; an installed one is imported once, in one process. What they
are is remembered in the work directory for as long as they stay the same (a file's size and date): a
wheel of torch has gigabytes, and each step of a run asks again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels import __version__
from rocm_wheels.core import errors, process, tables
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.models.project_names import Platform, get_option_name, list_shared_projects
from rocm_wheels.pipeline import build_environment
from rocm_wheels.pipeline.outputs import read_cached, write_cached
from rocm_wheels.pipeline.request import WheelsRequest

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel

_PROVIDED_FORMAT = "3"  # raise it when the same wheel would be described otherwise
_MAX_SHOWN_FAULTS = 8
_IMPORT_SECONDS = 600.0
_LIBRARY_NAME = re.compile(r"\.(so|dll|pyd)$|\.so\.[\d.]+$", re.IGNORECASE)
# of the checks of finished wheels, those that a damaged one passes or fails, too; then all that decide
# whether others can be built against one
_CHECKS_OF_DAMAGED = ["archive", "wheel-tags", "purelib", "record-digests", "file-name", "platform", "python"]
_DECIDING_CHECKS = [
    *_CHECKS_OF_DAMAGED,
    *[
        "requires-python",
        "rocm-requirement",
        "files",
        "rocm-init",
        "rocm-build",
        "device-libraries",
        "device-code",
    ],
    *[
        "device-wheels",
        "startup-files",
        "environment-files",
        "file-types",
        "colliding-names",
        "metadata-text",
    ],
]


@dataclass(frozen=True)
class ProvidedWheel:
    """A wheel that this run has, and does not build.

    ``wheel``: the file that was given; ``None``: it is installed in ``place``. ``content``: a digest
    of what it holds, the same as that of the wheel when we built it. ``rocm``: the version of ROCm that it
    requires. ``libraries``: the targets of those that must hold all. ``requires``: what else it requires, of
    no project of ours. ``lock``: the SHA-256 of the lock inside ("": none). ``faults``: what is wrong with
    it, whatever is built against it. ``outside``: where the device code of such libraries is that nobody
    could read, because it was moved out.
    """

    project: str
    place: str
    version: str
    content: str
    wheel: Path | None = None
    rocm: str | None = None
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    lock: str = ""
    faults: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Say in a word or two where it comes from."""
        return "installed" if self.wheel is None else _name_option(self.project)

    def describe(self) -> str:
        """Say what it is and where it comes from."""
        distribution = load_project(self.project).distribution
        return f"{distribution} {self.version} ({self.source}: {self.wheel or self.place})"


def _name_option(project: str) -> str:
    return f"--{get_option_name(project)}-wheel"


# -- which wheels -------------------------------------------------------------------------------------------


def find_provided_wheels(
    request: WheelsRequest,
    projects: Sequence[Project],
    ready: build_environment.ReadyEnvironment | None,
    tag: str,
    env: Mapping[str, str],
) -> dict[str, ProvidedWheel]:
    """Return the wheels that projects are built against and that nobody builds: given, or installed."""
    workspace, platform = Workspace(request.work), request.platform
    found: dict[str, ProvidedWheel | None] = {}
    for name in sorted(_list_other_projects(projects)):
        if given := request.given_wheels.get(name):
            wheel = select_given_wheel(name, given, tag)
            found[name] = inspect_given_wheel(name, wheel, platform, tag, workspace)
        elif ready is not None:
            found[name] = inspect_installed_wheel(load_project(name), ready, platform, workspace, env)
    return {name: provided for name, provided in found.items() if provided is not None}


def _list_other_projects(projects: Sequence[Project]) -> set[str]:
    return {name for project in projects for name in project.build.after} - {p.name for p in projects}


def refuse_stray_wheels(request: WheelsRequest, projects: Sequence[Project]) -> None:
    """Raise UsageError for given wheels of another project, or that nothing of this run is built against."""
    from rocm_wheels.wheels.dist_info import parse_wheel_name

    for name, wheels in request.given_wheels.items():
        option, distribution = _name_option(name), load_project(name).distribution
        for wheel in wheels:
            wheel_name = parse_wheel_name(wheel.name)
            if wheel_name.name != canonicalize_name(distribution):
                raise errors.UsageError(
                    f"{option} {wheel}: it is a wheel of {wheel_name.name}, not of {distribution}"
                )
            if wheel_name.label is not None:
                raise errors.UsageError(
                    f"{option} {wheel}: it is a variant, which installers take for machines that it is for",
                    tip="give the wheel that it was stamped from",
                )
        if name not in _list_other_projects(projects):
            built = ", ".join(project.name for project in projects)
            raise errors.UsageError(
                f"{option}: nothing of this run ({built}) is built against {name}",
                tip="leave it out, or build a project that is",
            )


def refuse_unused_wheels(given_wheels: Mapping[str, Sequence[Path]], tags: Sequence[str]) -> None:
    """Raise UsageError for wheels among several that are for none of the Pythons."""
    for project, wheels in given_wheels.items():
        unused = [str(wheel) for wheel in wheels if not any(_fits_python(wheel, tag) for tag in tags)]
        if unused and len(wheels) > 1:
            raise errors.UsageError(
                f"{_name_option(project)}: {', '.join(unused)} is for none of {', '.join(tags)}",
                tip="leave it out, or choose its Python with --python",
            )


def select_given_wheel(project: str, wheels: Sequence[Path], tag: str) -> Path:
    """Return the wheel for a Python; the only one, also where it does not fit: what is wrong is told then.

    Raises UsageError when none of several fits, or more than one.
    """
    fitting = wheels if len(wheels) == 1 else [wheel for wheel in wheels if _fits_python(wheel, tag)]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{', '.join(map(str, fitting))} are all" if fitting else "none of those given is"
    raise errors.UsageError(f"{_name_option(project)}: {problem} for {tag}", tip="give one for each Python")


def _fits_python(wheel: Path, tag: str) -> bool:
    from rocm_wheels.wheels import dist_info, python_tags

    return python_tags.accepts_python(dist_info.parse_wheel_name(wheel.name).tags, tag)


def remember_provided(
    workspace: Workspace, key: Sequence[object], read_wheel: Callable[[], ProvidedWheel]
) -> ProvidedWheel:
    """Return what was found under a key before, else what ``read_wheel`` finds; faults are not remembered."""
    text = json.dumps([_PROVIDED_FORMAT, __version__, *map(str, key)])
    path = workspace.root / "provided" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if (remembered := read_cached(path, ProvidedWheel)) is not None:
        return remembered
    provided = read_wheel()
    if not provided.faults:
        write_cached(path, provided)
    return provided


# -- given as a file ----------------------------------------------------------------------------------------


def inspect_given_wheel(
    project: str, wheel: Path, platform: Platform, tag: str, workspace: Workspace
) -> ProvidedWheel:
    """Return what a given wheel is, or what was found in the very same file before.

    It is read together with the device wheels of the same version that lie beside it.
    """
    from rocm_wheels.audit import split_wheels

    if not wheel.is_file():
        raise errors.UsageError(f"{_name_option(project)}: there is no file {wheel}")
    key: list[object] = [platform, tag]
    for path in (wheel, *split_wheels.find_device_wheels(wheel)):
        state = path.stat()
        key += [path, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    return remember_provided(
        workspace, key, lambda: read_given_wheel(load_project(project), wheel, platform, tag)
    )


def read_given_wheel(project: Project, wheel: Path, platform: Platform, tag: str) -> ProvidedWheel:
    """Read a wheel whole, digests of its files included; what is wrong with it is in ``faults``."""
    from rocm_wheels.audit import audited_wheel, split_wheels
    from rocm_wheels.package import sbom
    from rocm_wheels.wheels import rewrite
    from rocm_wheels.wheels.dist_info import parse_wheel_name
    from rocm_wheels.wheels.scan import scan_wheel

    version = str(parse_wheel_name(wheel.name).version)
    provided = ProvidedWheel(project.name, str(wheel.parent), version, "", wheel)
    modules = (f"{project.checks.import_name}/version.py", project.checks.rocm_init or "")
    try:
        scan = scan_wheel(wheel, keep=tuple(name for name in modules if name))
        parts = tuple(map(scan_wheel, split_wheels.find_device_wheels(wheel)))
    except errors.DataError as damage:
        return replace(provided, faults=(errors.explain_error(damage),))
    requires = scan.metadata.requires_dist if scan.metadata is not None else ()
    rocm = (scan.metadata.installed_rocm if scan.metadata is not None else "") or find_rocm_pin(requires)
    expected = audited_wheel.WheelExpectation(project, platform, python_tag=tag, rocm_version=rocm)
    subject = audited_wheel.AuditedWheel(scan, expected, parts)
    provided = replace(provided, faults=_find_faults(subject))
    if scan.breaking_faults:
        return provided
    names = list_required_libraries(project, platform, subject.libraries)
    unread = [name for name in names if not subject.find_archives(name)]
    inside = rewrite.read_dist_info_files(wheel).get(sbom.LOCK_MEMBER)
    return replace(
        provided,
        content=sbom.digest_content(wheel),
        rocm=rocm,
        libraries={name: held for name in names if (held := subject.list_member_targets(name))},
        outside=tuple(sorted({place for name in unread for place in scan.moved_code.get(name, ())})),
        requires=list_other_requirements(requires),
        lock="" if inside is None else hashlib.sha256(inside).hexdigest(),
    )


def _find_faults(subject: audited_wheel.AuditedWheel) -> tuple[str, ...]:
    """Return what the deciding checks find."""
    from rocm_wheels.audit.checks import CHECKS
    from rocm_wheels.audit.definition import SkippedCheck

    names, faults = _CHECKS_OF_DAMAGED if subject.scan.breaking_faults else _DECIDING_CHECKS, list[str]()
    for check in CHECKS:
        if check.name not in names:
            continue
        if check.name == "rocm-requirement" and not subject.project.checks.requires_rocm:
            continue
        outcome = check.run(subject)
        if not isinstance(outcome, SkippedCheck):
            found = errors.find_errors(outcome)
            faults += [f"{each.subject}: {each.message}" if each.subject else each.message for each in found]
    if (more := len(faults) - _MAX_SHOWN_FAULTS) > 0:
        faults[_MAX_SHOWN_FAULTS:] = [f"and {tables.format_count(more, 'more fault')}"]
    return tuple(faults)


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
        if canonicalize_name(requirement.name) == "rocm" and "libraries" in requirement.extras:
            for specifier in requirement.specifier:
                if specifier.operator in ("==", "===") and "*" not in specifier.version:
                    return specifier.version
    return None


def list_other_requirements(requires: Iterable[str]) -> tuple[str, ...]:
    """Return what is required besides ROCm, ours with their parts, and extras: an import may need it."""
    from rocm_wheels.variants import device_names  # planning reads no wheels

    ours = {canonicalize_name(load_project(name).distribution) for name in list_shared_projects()} | {"rocm"}
    others = []
    for line in requires:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        is_ours = name in ours or device_names.find_host_project(name) in ours  # a selector holds nothing
        if not is_ours and "extra" not in str(requirement.marker or ""):
            others.append(line)
    return tuple(others)


# -- installed ----------------------------------------------------------------------------------------------


def inspect_installed_wheel(
    project: Project,
    ready: build_environment.ReadyEnvironment,
    platform: Platform,
    workspace: Workspace,
    env: Mapping[str, str],
) -> ProvidedWheel | None:
    """Return what an environment has of a project; ``None`` when it has nothing of it."""
    from rocm_wheels.device_code import kpack

    digest = build_environment.digest_installed_wheel(ready, project.distribution)
    folders = sorted(ready.site_packages.glob(f"{project.distribution.replace('-', '_')}-*.dist-info"))
    if digest is None or len(folders) != 1:
        return None
    python = build_environment.find_importing_python(project.name, ready, workspace)
    package = ready.site_packages / project.checks.import_name
    archives = sorted(package.glob(f".kpack/*{kpack.KPACK_SUFFIX}"))  # of device wheels
    key: list[object] = [python, folders[0], digest, platform, *archives]
    key += [path.stat().st_mtime_ns for path in (folders[0], *archives)]
    bare = ProvidedWheel(project.name, str(ready.site_packages), "", digest)
    return remember_provided(
        workspace,
        key,
        lambda: _read_installed_wheel(
            project, bare, folders[0], ready, python=python, platform=platform, env=env
        ),
    )


def _read_installed_wheel(
    project: Project,
    provided: ProvidedWheel,
    folder: Path,
    ready: build_environment.ReadyEnvironment,
    *,
    python: Path,
    platform: Platform,
    env: Mapping[str, str],
) -> ProvidedWheel:
    """Read metadata and libraries of what is installed with the ``dist-info`` of a ``folder``; import it."""
    from rocm_wheels.package import sbom
    from rocm_wheels.wheels import python_tags
    from rocm_wheels.wheels.dist_info import parse_metadata, parse_wheel_file

    site, faults = ready.site_packages, list[str]()
    version = folder.name.removesuffix(".dist-info").partition("-")[2]
    try:
        metadata = parse_metadata((folder / "METADATA").read_bytes(), name=str(folder / "METADATA"))
        tags = parse_wheel_file((folder / "WHEEL").read_bytes(), name=str(folder / "WHEEL")).tags
        record = (folder / "RECORD").read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, errors.DataError) as cause:
        return replace(provided, version=version, faults=(f"its metadata cannot be read: {cause}",))
    if not python_tags.accepts_python(tags, ready.python_tag):
        abis = ", ".join(sorted({tag.abi for tag in tags}))
        faults.append(f"it is for {abis}, and the environment is {ready.python_tag}")
    lock = folder / sbom.LOCK_MEMBER
    provided = replace(
        provided,
        version=str(metadata.version),
        rocm=metadata.installed_rocm or find_rocm_pin(metadata.requires_dist),
        requires=list_other_requirements(metadata.requires_dist),
        lock=hash_file(lock) if lock.is_file() else "",
    )
    if project.checks.requires_rocm and provided.rocm is None:
        faults.append(
            "it does not require one version of rocm[libraries], as a build for these ROCm packages does"
        )
    if project.checks.rocm == "torch.version.hip":
        faults += _import_torch(project, provided, site, python, env)
    files = (line.rsplit(",", 2)[0].strip('"') for line in record.splitlines())
    members = [name for name in files if _LIBRARY_NAME.search(name)]
    libraries: dict[str, tuple[str, ...]] = {}
    moved: dict[str, tuple[str, ...]] = {}  # out of a library, and not there
    try:
        for name in list_required_libraries(project, platform, members):
            libraries[name], moved[name] = read_library_targets(site, name)
    except (OSError, errors.DataError) as cause:
        faults.append(f"a library cannot be read: {cause}")
    for rule in project.list_device_code_rules(platform):
        has_any = any(fnmatchcase(name, rule.files) for name in libraries)
        if rule.expect == "all" and rule.required and not has_any:
            faults.append(f"it has no {rule.files} with device code")
    return replace(
        provided,
        libraries={name: targets for name, targets in libraries.items() if not moved[name]},
        outside=tuple(sorted({archive for archives in moved.values() for archive in archives})),
        faults=tuple(faults),
    )


def read_library_targets(site_packages: Path, library: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets of an installed library, and the archives that it names and nobody has installed.

    Where its device code was moved out (device wheels), that in the archives beside it counts. OSError or
    DataError for files that cannot be read.
    """
    from rocm_wheels.device_code import code_objects, kpack
    from rocm_wheels.wheels import wheel_code

    inside = wheel_code.read_device_code(site_packages / library)
    names = inside.moved_code.get("", ())
    if not names:
        return tuple(code_objects.list_code_targets(inside.code.get("", ()))), ()
    top = site_packages / library.partition("/")[0]
    files = [path.relative_to(site_packages).as_posix() for path in top.rglob(f"*{kpack.KPACK_SUFFIX}")]
    archives = kpack.find_kpack_archives(library, names, files)
    objects = [
        code for archive in archives for code in wheel_code.read_device_code(site_packages / archive).code[""]
    ]
    kernels = [code for code in objects if kpack.is_kernel_of(code.section, library)]
    targets = tuple(code_objects.list_code_targets(kernels))
    return targets, () if targets else names


_IMPORT_SCRIPT = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
text = lambda value: None if value is None else str(value)
print(json.dumps({
    "file": module.__file__,
    "version": text(getattr(module, "__version__", None)),
    "hip": text(getattr(getattr(module, "version", None), "hip", None)),
}))
"""


def _import_torch(
    project: Project, provided: ProvidedWheel, site_packages: Path, python: Path, env: Mapping[str, str]
) -> list[str]:
    """Import it; return where what it says is not what its metadata say."""
    name = project.checks.import_name
    try:
        output = process.capture_output(
            [python, "-c", _IMPORT_SCRIPT, name],
            env=env,
            cwd=python.parent,  # the user's could hold something of that name
            timeout=_IMPORT_SECONDS,
            check=errors.SdkError,
            description=f"`import {name}`",
        )
        answer = json.loads(output.splitlines()[-1])
    except (errors.RocmWheelsError, ValueError, IndexError) as cause:
        return [f"it cannot be imported: {cause}"]
    faults = []
    if not Path(answer["file"]).resolve().is_relative_to(site_packages.resolve()):
        faults.append(f"`import {name}` takes {answer['file']}, not the one installed in {provided.place}")
    if not answer["hip"]:
        faults.append(f"`{name}.version.hip` is {answer['hip']}: a CPU-only or CUDA build")
    try:
        is_same = answer["version"] is None or Version(answer["version"]) == Version(provided.version)
    except InvalidVersion:
        is_same = canonicalize_name(answer["version"]) == canonicalize_name(provided.version)
    if not is_same:
        faults.append(f"`{name}.__version__` is {answer['version']}, its metadata say {provided.version}")
    return faults

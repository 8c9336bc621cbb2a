"""The lock file: read with line and column of every mistake, written whole and always alike, and followed by
a checkout.

It holds names of recipes, origins and refs that git can use, and no credentials. The rules hold for a lock
of our own and for the manifest of TheRock's scripts (``schema_version`` 1), which is read as a lock and made
from one. Projects of a manifest stand at the top beside ``therock``; each has ``repo`` and ``commit``, and
may have ``branch`` and ``version`` (base and suffix). As ROCm/TheRock has it at
89553ce3746eda74ade42557470d25e37c91b6f0: external-builds/pytorch/checkout_from_manifest.py, and
generate_pytorch_source_manifest.py of its workflows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from packaging import utils
from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from rocm_wheels.core import errors, files, log, records, shell, tables
from rocm_wheels.models import gfx, project_names, versions
from rocm_wheels.models.lock import GitObjectId, Lock, LockedPackage, LockedProject
from rocm_wheels.models.project import load_project, sort_projects
from rocm_wheels.sources import checkout_state, git, network, patches, pins

if TYPE_CHECKING:
    from rocm_wheels.sources import checkout

_PYTHON = re.compile(r"3\.(0|[1-9]\d*)t?")
_LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*\Z")
_KINDS = re.compile(r"(dev)?rocm|cpu|cu(da)?[0-9]|xpu|torch[0-9]")  # what other parts of a version say


def describe_local_fault(text: str) -> str:
    """Return what is wrong with a part of local versions (PEP 440), "" for nothing."""
    if not _LOCAL.match(text):
        return "it must be small letters and digits, in parts with dots between"
    if strange := next((part for part in text.split(".") if _KINDS.match(part)), ""):
        return f"{strange} would say what the wheels are built for"
    return ""


def is_python_version(text: str) -> bool:
    """Tell whether a text names a Python, such as 3.13 or 3.14t (without a GIL)."""
    return bool(_PYTHON.fullmatch(text))


_Place = tuple[str | int, ...]
_Check = tuple[_Place, Callable[[Any], object], Any]  # what looks at a value: it raises, or returns a fault


def _require(checks: Iterable[_Check], faults: Mapping[_Place, str]) -> None:
    """Raise pydantic's ValidationError for ``faults``, and values that do not pass; absent ones pass."""
    found = {place: fault for place, fault in faults.items() if fault}
    for place, check, value in checks:
        try:
            fault = "" if value is None else check(value)
        except InvalidVersion:
            fault = "it is not a version (PEP 440)"
        except errors.RocmWheelsError as refused:
            fault = refused.message
        if isinstance(fault, str) and fault:
            # no message repeats an origin: there may be a password in it
            shown = isinstance(value, str) and check is not _find_origin_fault and value not in fault
            found[place] = f"{fault} (found {value!r})" if shown else fault
    if found:
        details = [
            InitErrorDetails(type=records.make_record_error(fault), loc=place, input=None)
            for place, fault in found.items()
        ]
        raise ValidationError.from_exception_data("Lock", details)


def _find_name_fault(name: str) -> str:
    recipes = project_names.list_project_names()
    return "" if name in recipes else f"there is no project {name}{tables.suggest_name(name, recipes)}"


def _find_origin_fault(origin: str) -> str:
    if network.strip_credentials(origin) != origin:
        return "it carries credentials, and a lock is for everybody; git has credential helpers"
    resolved, local = network.parse_origin(origin, Path("/"))
    relative = local and resolved != origin and not Path(origin).is_absolute()
    return f"it is neither a URL nor a path from the root (found {origin!r})" if relative else ""


def _check_targets(targets: tuple[str, ...]) -> None:
    gfx.parse_targets(" ".join(targets), input_name="targets")


def _find_base_fault(text: str) -> str:
    local = Version(text).local
    return f"a base version has no local part (+{local})" if local else ""


def _find_python_fault(text: str) -> str:
    return "" if is_python_version(text) else "it must be a Python, such as 3.13 or 3.14t"


def _find_package_fault(named: tuple[str, LockedPackage]) -> str:
    """Refuse what an installer could take for something else: a line with an option of its own, say."""
    (name, package), version = named, Version(named[1].version)
    if not utils.is_normalized_name(name):
        return f"{name} is not named as PEP 503 normalizes names"
    for file in package.files:
        try:
            wheel = file.endswith(".whl")
            parts = utils.parse_wheel_filename(file)[:2] if wheel else utils.parse_sdist_filename(file)
        except (utils.InvalidWheelFilename, utils.InvalidSdistFilename, InvalidVersion):
            parts = None
        if parts != (name, version):
            return f"{file} is not the name of a file of {name} {package.version}"
    return "" if package.files else "there is no file in it"


class _CheckedLock(Lock):
    """A lock as a file may hold it."""

    @model_validator(mode="after")
    def _can_be_used(self) -> _CheckedLock:
        faults: dict[_Place, str] = {} if self.projects else {("projects",): "there is no project in it"}
        if (self.lock_version == "2") != bool(self.tools):
            faults["lock_version",] = "a lock with tools is of version 2, one without of version 1"
        checks: list[_Check] = [
            (("rocm",), Version, self.rocm),
            (("targets",), _check_targets, self.targets or None),
            (("local_version",), describe_local_fault, self.local_version),
            (("named_torch",), _find_base_fault, self.named_torch),
            *((("pythons", n), _find_python_fault, python) for n, python in enumerate(self.pythons)),
        ]
        for name, project in self.projects.items():
            at = ("projects", name)
            checks += [
                (at, _find_name_fault, name),
                ((*at, "origin"), _find_origin_fault, project.origin),
                ((*at, "ref"), network.check_ref, project.ref),
                ((*at, "version"), _find_base_fault, project.version),
                ((*at, "patches", "name"), patches.check_set_name, project.patches and project.patches.name),
            ]
            for path, module in (project.submodules or {}).items():
                place = (*at, "submodules", path)
                checks.append(((*place, "origin"), _find_origin_fault, module.origin))
                if not git.is_inside_tree(path):
                    faults[place] = f"the path of a submodule does not stay in the tree (found {path!r})"
        for python, tools in self.tools.items():
            checks.append((("tools", python), _find_python_fault, python))
            groups: list[tuple[_Place, Mapping[str, LockedPackage]]]
            groups = [(("rocm",), tools.rocm), (("backends",), tools.backends)]
            for name, packages in tools.projects.items():
                checks.append((("tools", python, "projects", name), _find_name_fault, name))
                groups.append((("projects", name), packages))
            checks += [
                (("tools", python, *group, name), _find_package_fault, (name, package))
                for group, packages in groups
                for name, package in packages.items()
            ]
        _require(checks, faults)
        return self


_VERSION_KEY, _TOOL = "schema_version", "therock"
_ROCM_SUFFIX = re.compile(r"(?:.*\.)?(?:dev)?rocm(?P<version>\d[\w.-]*)\Z")


class ManifestEntry(records.Record):
    """A repository in a manifest. ``version`` is that of the wheel; of ``therock``, that of ROCm."""

    repo: str
    commit: GitObjectId
    branch: str | None = None
    version: str | None = None


class Manifest(records.Record):
    """A manifest; projects are the keys that no field has."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ManifestEntry]

    schema_version: Literal["1"] = "1"
    therock: ManifestEntry | None = None

    @model_validator(mode="after")
    def _can_be_used(self) -> Manifest:
        checks: list[_Check] = [((name,), _find_name_fault, name) for name in self.entries]
        for name, entry in {**self.entries, _TOOL: self.therock}.items():
            if entry is not None:
                checks += [
                    ((name, "repo"), _find_origin_fault, entry.repo),
                    ((name, "branch"), network.check_ref, entry.branch),
                    ((name, "version"), Version, entry.version),
                ]
        _require(checks, {} if self.entries else {(): "there is no project in it"})
        return self

    @property
    def entries(self) -> Mapping[str, ManifestEntry]:
        """The projects by name."""
        return self.__pydantic_extra__


def looks_like_manifest(data: Mapping[str, Any]) -> bool:
    """Tell by its keys whether a file is a manifest; ``schema_version`` may be left out there."""
    return _VERSION_KEY in data or any(isinstance(value, dict) and "repo" in value for value in data.values())


def parse_manifest(text: str, *, name: str) -> Lock:
    """Read a manifest as a lock: refs are its branches, or commits where it names none.

    The platform is in its file's name; ROCm is the version of ``therock``, else in the versions' suffix.
    Raises DataError with ``file:line:column``.
    """
    manifest = records.parse_record(text, Manifest, name=name)
    file, therock = PurePath(name).name, manifest.therock
    rocm = therock.version if therock is not None and therock.version else None
    projects = {}
    for project, entry in manifest.entries.items():
        base, _, suffix = (entry.version or "").partition("+")
        if rocm is None and (match := _ROCM_SUFFIX.match(suffix)):  # see ``make_version_suffix``
            rocm = match["version"].replace("-", "+", 1)
        projects[project] = LockedProject(
            origin=entry.repo,
            ref=entry.branch or entry.commit,
            why=f"manifest {file}",
            commit=entry.commit,
            version=base or None,
        )
    return Lock(platform="windows" if "windows" in file else "linux", rocm=rocm, projects=projects)


def format_manifest(lock: Lock, therock: ManifestEntry | None = None, *, suffix: str | None = None) -> str:
    """Return a lock as a manifest. ``suffix`` is that of versions, where it is not that of the ROCm version.

    Raises UsageError without a version of ROCm: versions carry it.
    """
    if lock.rocm is None:
        raise errors.UsageError(
            "a manifest says which ROCm its wheels carry, and the lock names none",
            tip="make the lock with --rocm",
        )
    suffix = versions.make_version_suffix(lock.rocm, suffix)
    data: dict[str, Any] = {_VERSION_KEY: 1}
    for project in sort_projects(load_project(name) for name in lock.projects):
        locked = lock.projects[project.name]
        entry = {"repo": locked.origin, "commit": locked.commit}
        if locked.ref != locked.commit:
            entry["branch"] = locked.ref
        if locked.version is not None:
            entry["version"] = locked.version + versions.add_version_parts(
                suffix, *lock.get_local_parts(project.name)
            )
        data[project.name] = entry
    if therock is not None:
        repo = network.strip_credentials(therock.repo)
        data[_TOOL] = {**therock.model_dump(exclude_none=True), "repo": repo, "version": lock.rocm}
    return json.dumps(data, indent=2) + "\n"


# letters that JSON may hold as they are and YAML may not (YAML 1.1, c-printable and line breaks)
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_MAKE_COMMAND = "`rocm-wheels lock make -o FILE`"


class _LockKeys(records.Record):
    """Whatever has keys: to see whose file it is."""

    model_config = ConfigDict(extra="allow")


def read_lock(path: Path) -> Lock:
    """Read a lock, or the manifest of TheRock's scripts (``schema_version: 1``) as one.

    Of a manifest, trees and submodules are not known (``None``). Raises DataError with
    ``file:line:column`` for what is wrong in it; no project without a recipe is accepted.
    """
    missing_tip = f"create it with {_MAKE_COMMAND}, or name another file"
    try:
        text = records.read_text_file(path, tip="name another file", missing_tip=missing_tip)
        return parse_lock(text, name=str(path))
    except errors.DataError as error:
        error.tip = error.tip or f"correct it, or make another one with {_MAKE_COMMAND}"
        raise


def parse_lock(text: str, *, name: str) -> Lock:
    """Read the text of a lock or a manifest; ``name`` stands for the file in messages (see ``read_lock``)."""
    keys = records.parse_record(text, _LockKeys, name=name).model_extra or {}
    if not keys:
        raise errors.DataError(f"{name} is empty", tip=f"make a lock with {_MAKE_COMMAND}")
    if not keys.keys() & {"lock_version", "projects"} and looks_like_manifest(keys):
        return parse_manifest(text, name=name)
    return Lock.model_validate(records.parse_record(text, _CheckedLock, name=name).model_dump())


def format_lock(lock: Lock) -> str:
    """Return the file's content: JSON, projects in the order of their builds, nothing without a value."""
    data: dict[str, Any] = {"lock_version": lock.lock_version, "platform": lock.platform}
    data |= lock.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    order = [p.name for p in sort_projects(load_project(name) for name in lock.projects)]
    data["projects"] = {name: data["projects"][name] for name in order}
    for project in data["projects"].values():
        if "submodules" in project:
            project["submodules"] = dict(sorted(project["submodules"].items()))

    def sort_packages(packages: Mapping[str, Any]) -> dict[str, Any]:
        return {name: {**package, "files": dict(sorted(package["files"].items()))}
                for name, package in sorted(packages.items())}  # fmt: skip

    tools: dict[str, Any] = data.pop("tools", {})
    for python in sorted(tools, key=lambda word: (int(re.sub(r"\A3\.|t\Z", "", word)), word.endswith("t"))):
        groups = tools[python]
        if "rocm_extras" in groups:
            groups["rocm_extras"].sort()
        if projects := groups.get("projects"):
            names = [*order, *sorted(projects.keys() - {*order})]
            groups["projects"] = {name: sort_packages(projects[name]) for name in names if name in projects}
        for group in groups.keys() & {"rocm", "backends"}:
            groups[group] = sort_packages(groups[group])
        data.setdefault("tools", {})[python] = groups
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return _NO_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock, whole or not at all; tell whether the file is other than before.

    Credentials in an origin are left out, which is said. Raises DataError for a lock that could not be read
    again.
    """
    projects: dict[str, LockedProject] = {}
    for name, project in lock.projects.items():
        submodules = project.submodules and {
            path: module.model_copy(update={"origin": network.strip_credentials(module.origin)})
            for path, module in project.submodules.items()
        }
        update = {"origin": network.strip_credentials(project.origin), "submodules": submodules}
        projects[name] = project.model_copy(update=update)
        if projects[name] != project:
            log.log_warning(f"{name}: the credentials in its origin are not written to the lock")
    text = format_lock(lock.model_copy(update={"projects": projects}))
    parse_lock(text, name=f"the new {path.name}")
    return write_if_changed(path, text)


def write_if_changed(path: Path, text: str) -> bool:
    """Write a file whole when its content is other than ``text``; tell whether it was."""
    if path.is_dir():
        raise errors.DataError(f"{path} is a folder", tip="name a file")
    if path.is_file() and path.read_bytes() == text.encode("utf-8"):
        log.log_note(f"{path} is up to date")
        return False
    files.write_atomically(path, text)
    log.log_note(f"wrote {path}")
    return True


def digest_lock(lock: Lock) -> str:
    """Return the SHA-256 of the file that ``write_lock`` makes of a lock."""
    return hashlib.sha256(format_lock(lock).encode("utf-8")).hexdigest()


_MOST_SHOWN = 3


@dataclass(frozen=True)
class LockFile:
    """A lock and the file that it was read from."""

    path: Path
    lock: Lock

    def project(self, name: str) -> LockedProject:
        """Return what the lock says of a project. Raises UsageError where it says nothing."""
        if name not in self.lock.projects:
            raise errors.UsageError(
                f"{self.path} has no {name}; it has {', '.join(self.lock.projects)}",
                tip="make the lock with it (`rocm-wheels lock`), or leave the project out",
            )
        return self.lock.projects[name]

    def update_command(self, name: str) -> str:
        """Return the command that brings the lock up to date with a project."""
        return f"`{shell.format_command(['rocm-wheels', 'lock', 'update', self.path, name])}`"


def open_lock(path: Path, platform: project_names.Platform) -> LockFile:
    """Read a lock for use on ``platform``. Raises DataError, and UsageError for a lock of another one."""
    lock = read_lock(path)
    if lock.platform != platform:
        raise errors.UsageError(
            f"{path} is a lock for {lock.platform}, and this is {platform}",
            tip=f"make one for {platform} with `rocm-wheels lock`",
        )
    return LockFile(path, lock)


def read_locked_pin(file: LockFile, name: str, *, origin: str | None = None) -> pins.Pin:
    """Return the locked commit; ``origin``, the option's, is another place for it."""
    locked = file.project(name)
    why = f"lock {file.path}"
    if origin is not None:
        why += "; origin: --origin"
    return pins.Pin(origin or locked.origin, locked.ref, why, locked.commit)


def read_locked_patches(file: LockFile, name: str, folder: Path) -> patches.PatchSet | None:
    """Return the patch set that the lock names, ``None`` where it names none.

    ``folder`` holds a folder a project. Raises SourceError when the set is not the locked one.
    """
    locked = file.project(name)
    if locked.patches is None:
        if line := patches.match_line(
            locked.ref if file.lock.line is None else file.lock.line, patches.list_lines(name, folder)
        ):
            log.log_note(f"no patches: {file.path} says so; {folder / name / line} is left out")
        return None
    patch_set = patches.read_patch_set(folder / name / locked.patches.name)
    if patch_set.digest != locked.patches.digest:
        fault = f"has the digest {patch_set.digest}" if patch_set.digest else "has no patches"
        raise errors.SourceError(
            f"the patch set {patch_set.folder} {fault}, and {file.path} says {locked.patches.digest}",
            tip=f"bring the set back, or take it as it is now with {file.update_command(name)}",
        )
    return patch_set


def check_checkout(
    file: LockFile,
    request: checkout.CheckoutRequest,
    result: checkout.CheckoutResult,
    *,
    env: Mapping[str, str],
) -> None:
    """Compare a tree that was just checked out with what the lock says of it.

    Raises SourceError: the commit is the locked one, so that it is the lock that is wrong.
    """
    locked, faults = file.project(request.project.name), []
    tree = git.Git(result.directory, env).text("rev-parse", f"{locked.commit}^{{tree}}")
    if locked.tree not in (None, tree):
        faults.append(f"the files of {locked.commit[:12]} are the tree {tree}, not {locked.tree}")
    if request.submodules:
        faults += _compare_submodules(locked, result.state)
    elif locked.submodules:
        log.log_note(f"--no-submodules: the {len(locked.submodules)} in {file.path} are left out")
    if faults:
        raise errors.SourceError(
            f"{result.directory} is at the locked commit, but {file.path} says something else of it:"
            + "".join(f"\n  {line}" for line in faults),
            tip=(
                f"somebody changed the lock by hand; {file.update_command(request.project.name)} "
                "makes it right"
            ),
        )


def compare_with_lock(locked: LockedProject, state: checkout_state.CheckoutState | None) -> list[str]:
    """Say in what a tree is not what the lock says; ``state`` is its checkout's, if it is one of ours."""
    if state is None:
        return ["it was not checked out by rocm-wheels, and may be anything"]
    if state.operation is not None:
        return [f"its {state.operation} was interrupted"]
    if state.upstream != locked.commit:
        return [f"it is at {state.upstream}, not {locked.commit} ({locked.ref})"]
    faults = []
    if state.patches != (locked.patches.digest if locked.patches is not None else ""):
        sets = [(state.patch_set, state.patches), ("", "")]
        if locked.patches is not None:
            sets[1] = (locked.patches.name, locked.patches.digest)
        actual, expected = (f"{name} ({digest[:12]})" if digest else "none" for name, digest in sets)
        faults.append(f"its patches are {actual}, not {expected}")
    if not state.submodules and locked.submodules:
        return [*faults, "it was checked out without its submodules"]
    return faults + _compare_submodules(locked, state)


def _compare_submodules(locked: LockedProject, state: checkout_state.CheckoutState) -> list[str]:
    """Say which submodules are at other commits; nothing where the lock does not name them."""
    if locked.submodules is None:
        return []
    actual = {path: recorded.upstream for path, recorded in state.left.items() if path}
    expected = {path: submodule.commit for path, submodule in locked.submodules.items()}
    lines = [
        f"submodule {path} is {actual.get(path, 'not there')}, not {expected.get(path, 'there')}"
        for path in sorted({*actual, *expected})
        if actual.get(path) != expected.get(path)
    ]
    more = len(lines) - _MOST_SHOWN
    return [
        *lines[:_MOST_SHOWN],
        *([f"and {tables.format_count(more, 'more submodule')}"] if more > 0 else []),
    ]

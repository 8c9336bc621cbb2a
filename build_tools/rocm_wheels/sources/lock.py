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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    is_normalized_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from rocm_wheels.core import errors, files, log, records, shell, tables
from rocm_wheels.models import gfx, project_names, versions
from rocm_wheels.models.lock import GitObjectId, Lock, LockedPackage, LockedProject, LockedSubmodule
from rocm_wheels.models.project import load_project, sort_projects
from rocm_wheels.sources import checkout_state, git, network, patches, pins

if TYPE_CHECKING:
    from rocm_wheels.sources import checkout

# what is wrong: where (keys from the outermost), the sentence, and the text that was found
LockFault = tuple[tuple[str | int, ...], str, object]

_PYTHON = re.compile(r"3\.(0|[1-9]\d*)t?\Z")
_LOCAL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*\Z")
_KINDS = re.compile(r"(dev)?rocm|cpu|cu(da)?[0-9]|xpu|torch[0-9]")  # what other parts of a version say
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")


def find_name_faults(names: Sequence[str]) -> Iterator[LockFault]:
    """Yield the projects that have no recipe."""
    recipes = project_names.list_project_names()
    for name in names:
        if name not in recipes:
            yield (name,), f"there is no project {name}{tables.suggest_name(name, recipes)}", {}


def find_project_faults(project: LockedProject) -> Iterator[LockFault]:
    """Yield what git, a version or a patch set could not be; keys are those of the record."""
    yield from _find_origin_faults(project.origin, ("origin",))
    try:
        network.check_ref(project.ref)
    except errors.UsageError as refused:
        yield ("ref",), refused.message, {}
    if project.version is not None:
        yield from _find_version_faults(project.version, ("version",), local=False)
    if project.patches is not None and not _SET_NAME.match(project.patches.name):
        yield ("patches", "name"), "it is not the name of a patch set", project.patches.name
    for path, submodule in (project.submodules or {}).items():
        if not git.is_inside_tree(path):
            yield ("submodules", path), "the path of a submodule does not stay in the tree", path
        yield from _find_origin_faults(submodule.origin, ("submodules", path, "origin"))


def find_request_faults(lock: Lock) -> Iterator[LockFault]:
    """Yield what is no version of ROCm, no part of versions, no GPU target or no Python."""
    if lock.rocm is not None:
        yield from _find_version_faults(lock.rocm, ("rocm",), local=True)
    if lock.targets:
        try:
            gfx.parse_targets(" ".join(lock.targets), input_name="targets")
        except errors.UsageError as refused:
            yield ("targets",), refused.message, {}
    if lock.local_version is not None and (fault := describe_local_fault(lock.local_version)):
        yield ("local_version",), fault, lock.local_version
    if lock.named_torch is not None:
        yield from _find_version_faults(lock.named_torch, ("named_torch",), local=False)
    for number, python in enumerate(lock.pythons):
        if not is_python_version(python):
            yield ("pythons", number), "it is not a Python, such as 3.13 or 3.14t", python


def find_tools_faults(lock: Lock) -> Iterator[LockFault]:
    """Yield Pythons that are none, and packages whose names, versions or files are none."""
    if (lock.lock_version == "2") != bool(lock.tools):
        message = "a lock with tools is of version 2, one without of version 1"
        yield ("lock_version",), message, lock.lock_version
    for python, tools in lock.tools.items():
        if not is_python_version(python):
            yield ("tools", python), "it is not a Python, such as 3.13 or 3.14t", python
        yield from move_faults(find_name_faults(list(tools.projects)), "tools", python, "projects")
        groups: list[tuple[tuple[str, ...], Mapping[str, LockedPackage]]] = [
            (("rocm",), tools.rocm),
            *((("projects", name), packages) for name, packages in tools.projects.items()),
            (("backends",), tools.backends),
        ]
        for keys, packages in groups:
            for name, package in packages.items():
                yield from move_faults(_find_package_faults(name, package), "tools", python, *keys, name)


def _find_package_faults(name: str, package: LockedPackage) -> Iterator[LockFault]:
    """Yield what an installer could take for something else: a line with an option of its own, say."""
    if not is_normalized_name(name):
        yield ("version",), "its package is not named as PEP 503 normalizes names", name
    try:
        version = Version(package.version)
    except InvalidVersion:
        yield ("version",), "it is not a version (PEP 440)", package.version
        return
    if not package.files:
        yield ("files",), "there is no file in it", {}
    for file in package.files:
        if _read_file_name(file) != (name, version):
            yield ("files", file), f"it is not the name of a file of {name} {package.version}", file


def _read_file_name(file: str) -> tuple[str, Version] | None:
    """Return the package and the version that a wheel or a source distribution is of, by its name."""
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[:2]
        return parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def describe_local_fault(text: str) -> str:
    """Return what is wrong with a part of local versions (PEP 440), "" for nothing."""
    if not _LOCAL.match(text):
        return "it must be small letters and digits, in parts with dots between"
    if strange := next((part for part in text.split(".") if _KINDS.match(part)), ""):
        return f"{strange} would say what the wheels are built for"
    return ""


def is_python_version(text: str) -> bool:
    """Tell whether a text names a Python, such as 3.13 or 3.14t (without a GIL)."""
    return bool(_PYTHON.match(text))


def raise_faults(title: str, faults: Sequence[LockFault]) -> None:
    """Raise pydantic's ValidationError when there are faults: ``records`` adds the places."""
    if faults:
        _raise_validation_error(title, faults)


def _raise_validation_error(title: str, faults: Sequence[LockFault]) -> NoReturn:
    details = [
        InitErrorDetails(
            type=PydanticCustomError("lock", "{message}", {"message": message}), loc=keys, input=value
        )
        for keys, message, value in faults
    ]
    raise ValidationError.from_exception_data(title, details)


def _find_origin_faults(origin: str, keys: tuple[str, ...]) -> Iterator[LockFault]:
    if network.strip_credentials(origin) != origin:
        yield keys, "it carries credentials, and a lock is for everybody; git has credential helpers", {}
        return
    try:
        resolved, local = network.parse_origin(origin, Path("/"))
    except errors.UsageError as refused:
        yield keys, refused.message, {}
        return
    if local and resolved != origin and not Path(origin).is_absolute():
        yield keys, "it is neither a URL nor a path from the root", origin


def _find_version_faults(text: str, keys: tuple[str, ...], *, local: bool) -> Iterator[LockFault]:
    try:
        version = Version(text)
    except InvalidVersion:
        yield keys, "it is not a version (PEP 440)", text
        return
    if version.local and not local:
        yield keys, f"a base version has no local part (+{version.local})", text


def move_faults(
    faults: Iterator[LockFault], *above: str, names: Mapping[str, str] | None = None
) -> Iterator[LockFault]:
    """Yield faults with the keys ``above`` them; ``names``: what a first key is called in another format."""
    for keys, message, value in faults:
        first = keys[0]
        key = (names or {}).get(str(first), first)
        yield (*above, key, *keys[1:]), message, value


_VERSION_KEY, _TOOL = "schema_version", "therock"
_THEIR_NAMES = {"origin": "repo", "ref": "branch", "rocm": "version"}
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
        faults: list[LockFault] = list(find_name_faults(list(self.entries)))
        for name, entry in self.entries.items():
            faults += move_faults(_find_entry_faults(entry), name)
        if self.therock is not None:
            faults += move_faults(
                find_request_faults(Lock(rocm=self.therock.version, projects={})), _TOOL, names=_THEIR_NAMES
            )
        if not self.entries:
            faults.append(((), "there is no project in it", {}))
        raise_faults("Manifest", faults)
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
    file = PurePath(name).name
    suffixes = [rocm for entry in manifest.entries.values() if (rocm := _read_rocm_version(entry.version))]
    stated = manifest.therock.version if manifest.therock is not None and manifest.therock.version else None
    return Lock(
        platform="windows" if "windows" in file else "linux",
        rocm=stated or next(iter(suffixes), None),
        projects={key: _lock_entry(entry, file) for key, entry in manifest.entries.items()},
    )


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
        data[_TOOL] = {**therock.model_dump(exclude_none=True), "version": lock.rocm}
    return json.dumps(data, indent=2) + "\n"


def _lock_entry(entry: ManifestEntry, file: str) -> LockedProject:
    return LockedProject(
        origin=entry.repo,
        ref=entry.branch or entry.commit,
        why=f"manifest {file}",
        commit=entry.commit,
        version=entry.version and entry.version.partition("+")[0],
    )


def _find_entry_faults(entry: ManifestEntry) -> Iterator[LockFault]:
    yield from move_faults(find_project_faults(_lock_entry(entry, "")), names=_THEIR_NAMES)
    if entry.version is not None and "+" in entry.version:
        try:
            Version(entry.version)
        except InvalidVersion:
            yield ("version",), "it is not a version (PEP 440)", entry.version


def _read_rocm_version(version: str | None) -> str | None:
    """Return the version of ROCm that a suffix carries (see ``make_version_suffix``)."""
    match = _ROCM_SUFFIX.match((version or "").partition("+")[2])
    return match["version"].replace("-", "+", 1) if match else None


# letters that JSON may hold as they are and YAML may not (YAML 1.1, c-printable and line breaks)
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LOCK_TIP = "name another file"
_MISSING_LOCK_TIP = "create it with `rocm-wheels lock make -o FILE`, or name another file"
_OWN_KEYS = {"lock_version", "projects"}


class _LockKeys(records.Record):
    """Whatever has keys: to see whose file it is."""

    model_config = ConfigDict(extra="allow")


class _CheckedLock(Lock):
    """A lock as a file may hold it."""

    @model_validator(mode="after")
    def _can_be_used(self) -> _CheckedLock:
        faults = [*find_request_faults(self), *find_tools_faults(self)]
        faults += move_faults(find_name_faults(list(self.projects)), "projects")
        for name, project in self.projects.items():
            faults += move_faults(find_project_faults(project), "projects", name)
        if not self.projects:
            faults.append((("projects",), "there is no project in it", {}))
        raise_faults("Lock", faults)
        return self


def read_lock(path: Path) -> Lock:
    """Read a lock, or the manifest of TheRock's scripts (``schema_version: 1``) as one.

    Of a manifest, trees and submodules are not known (``None``). Raises DataError with
    ``file:line:column`` for what is wrong in it; no project without a recipe is accepted.
    """
    try:
        return parse_lock(
            records.read_text_file(path, tip=_LOCK_TIP, missing_tip=_MISSING_LOCK_TIP), name=str(path)
        )
    except errors.DataError as error:
        error.tip = error.tip or "correct it, or make another one with `rocm-wheels lock make -o FILE`"
        raise


def parse_lock(text: str, *, name: str) -> Lock:
    """Read the text of a lock or a manifest; ``name`` stands for the file in messages (see ``read_lock``)."""
    keys = records.parse_record(text, _LockKeys, name=name).model_extra or {}
    if not keys:
        raise errors.DataError(f"{name} is empty", tip="make a lock with `rocm-wheels lock make -o FILE`")
    if not keys.keys() & _OWN_KEYS and looks_like_manifest(keys):
        return parse_manifest(text, name=name)
    return Lock.model_validate(dict(records.parse_record(text, _CheckedLock, name=name)))


def format_lock(lock: Lock) -> str:
    """Return the file's content: JSON, projects in the order of their builds, nothing without a value."""
    data: dict[str, Any] = lock.model_dump(mode="json", exclude_none=True)
    for empty in ("targets", "pythons", "tools"):
        if not data[empty]:
            del data[empty]
    order = [p.name for p in sort_projects(load_project(name) for name in lock.projects)]
    data["projects"] = {name: data["projects"][name] for name in order}
    for project in data["projects"].values():
        if not project["pinned"]:
            del project["pinned"]
        if "submodules" in project:
            project["submodules"] = dict(sorted(project["submodules"].items()))
    if "tools" in data:
        data["tools"] = {
            python: _sort_tools(data["tools"][python], order)
            for python in sorted(lock.tools, key=_make_python_key)
        }
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return _NO_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _make_python_key(python: str) -> tuple[int, bool]:
    return int(python.removesuffix("t").partition(".")[2]), python.endswith("t")


def _sort_tools(tools: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Return tools as they are written: projects in their order, packages and files by name."""
    names = [name for name in order if name in tools["projects"]]
    names += sorted(tools["projects"].keys() - set(order))
    groups = {
        "rocm_extras": sorted(tools["rocm_extras"]),
        "rocm": _sort_packages(tools["rocm"]),
        "projects": {name: _sort_packages(tools["projects"][name]) for name in names},
        "backends": _sort_packages(tools["backends"]),
    }
    return {name: value for name, value in groups.items() if value}


def _sort_packages(packages: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"version": package["version"], "files": dict(sorted(package["files"].items()))}
        for name, package in sorted(packages.items())
    }


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock, whole or not at all; tell whether the file is other than before.

    Credentials in an origin are left out, which is said. Raises DataError for a lock that could not be read
    again.
    """
    text = format_lock(_strip_lock_credentials(lock))
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


def _strip_lock_credentials(lock: Lock) -> Lock:
    projects: dict[str, LockedProject] = {}
    for name, project in lock.projects.items():
        origin = network.strip_credentials(project.origin)
        submodules = project.submodules and {
            path: _strip_submodule_credentials(submodule) for path, submodule in project.submodules.items()
        }
        if (origin, submodules) != (project.origin, project.submodules):
            log.log_warning(f"{name}: the credentials in its origin are not written to the lock")
        projects[name] = project.model_copy(update={"origin": origin, "submodules": submodules})
    return lock.model_copy(update={"projects": projects})


def _strip_submodule_credentials(submodule: LockedSubmodule) -> LockedSubmodule:
    return submodule.model_copy(update={"origin": network.strip_credentials(submodule.origin)})


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
    locked, tree, faults = file.project(request.project.name), result.tree, []
    if locked.tree is not None and tree is None:
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
    digest = "" if locked.patches is None else locked.patches.digest
    if state.patches != digest:
        faults.append(f"its patches are {_describe_patches(state)}, not {_describe_locked_patches(locked)}")
    if not state.submodules and locked.submodules:
        faults.append("it was checked out without its submodules")
    else:
        faults += _compare_submodules(locked, state)
    return faults


def _describe_patches(state: checkout_state.CheckoutState) -> str:
    return f"{state.patch_set} ({state.patches[:12]})" if state.patches else "none"


def _describe_locked_patches(locked: LockedProject) -> str:
    return "none" if locked.patches is None else f"{locked.patches.name} ({locked.patches.digest[:12]})"


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
    return (
        lines if more <= 0 else [*lines[:_MOST_SHOWN], f"and {tables.format_count(more, 'more submodule')}"]
    )

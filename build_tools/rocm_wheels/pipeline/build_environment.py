"""A build environment: ROCm in it, the layers of build tools over it, and our wheels installed in it.

What its ROCm says is asked once, then remembered beside it. One project needs ``cmake==4.0.0`` where
another needs ``cmake<4``: what each requires is resolved for it alone, in a layer of its own. Below its
own packages a project sees those that torch and triton need to be imported, ROCm, and the wheels that it
is built against.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.compile.sdk_tree import SdkTree, inspect_sdk
from rocm_wheels.core import errors, files, records, toml_reader
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline.outputs import read_cached, write_cached
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.sdk import build_environment, rocm_sdk

PYPROJECT = "pyproject.toml"
# as pip and uv read them: -r FILE, -rFILE, --requirement=FILE
_INCLUDE_LINE = re.compile(
    r"(?:(?P<requirements>-r|--requirement)|-c|--constraint)(?:\s*=\s*|\s*)(?P<file>\S.*)"
)
_INDEX_LINE = re.compile(
    r"(?P<option>-i|--index-url|--extra-index-url|-f|--find-links)(?:\s*=\s*|\s+)(?P<place>\S+)"
)
# but for rocm-bootstrap, which a split torch requires: it names targets, and nothing is built with it
_ROCM_PACKAGES = "rocm[-_][!b]*.dist-info"
_INSTALL_WAIT_SECONDS = 24 * 3600.0  # another step installs something, or imports a wheel


# -- what is installed --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentPackage:
    """An installed distribution: canonical name, version, its RECORD, canonical names that it requires.

    ``extras`` are those that it has.
    """

    name: str
    version: str
    record: Path
    requires: tuple[str, ...]
    extras: tuple[str, ...] = ()

    def identity(self) -> str:
        """Return version and a digest of the installed files."""
        return f"{self.version} {self.hash_files()[:12]}"

    def hash_files(self) -> str:
        """Return a digest (SHA-256, hex) of the installed files, as RECORD lists them."""
        return hashlib.sha256(read_record_lines(self.record)).hexdigest()


def read_record_lines(record: Path) -> bytes:
    """Return the lines of a RECORD, sorted, that tell what a package holds: each with the hash of a file.

    What the installer itself wrote is left out: metadata, and scripts, which hold the environment's path.
    """
    text = record.read_text(encoding="utf-8", errors="surrogateescape")
    lines = (line for line in text.splitlines() if not line.startswith("../") and ".dist-info/" not in line)
    return "\n".join(sorted(lines)).encode("utf-8", "surrogateescape")


def list_installed_packages(site_packages: Path, names: str = "*") -> Mapping[str, EnvironmentPackage]:
    """Return what is installed in a folder, by canonical name; ``names`` is a pattern for their folders."""
    packages: dict[str, EnvironmentPackage] = {}
    for folder in sorted(site_packages.glob(f"{names}.dist-info")):
        metadata, record = folder / "METADATA", folder / "RECORD"
        if metadata.is_file() and record.is_file():
            text = metadata.read_text(encoding="utf-8", errors="replace")
            headers = HeaderParser().parsestr(text, headersonly=True)
            name = canonicalize_name(headers.get("Name", ""))
            lines = (str(line) for line in headers.get_all("Requires-Dist", []))
            requires = list_required_names(line for line in lines if "extra ==" not in line)
            extras = tuple(map(str, headers.get_all("Provides-Extra", [])))
            packages[name] = EnvironmentPackage(name, headers.get("Version", ""), record, requires, extras)
    return packages


def digest_records(site_packages: Path, pattern: str, *, without: str = "") -> str:
    """Digest the RECORD files of installed packages: they hold the hash of every file.

    ``pattern`` is of their folders; those that begin with ``without``, if anything, do not count.
    """
    digest = hashlib.sha256()
    for record in sorted(site_packages.glob(f"{pattern}/RECORD")):
        if not without or not record.parent.name.replace("-", "_").startswith(without):
            digest.update(b"%s\n%s\n" % (os.fsencode(record.parent.name), read_record_lines(record)))
    return digest.hexdigest()[:16]


def find_requirement_closure(
    names: Iterable[str], packages: Mapping[str, EnvironmentPackage]
) -> Mapping[str, EnvironmentPackage]:
    """Return those of ``names`` that are installed, with all installed ones that they require."""
    required: dict[str, EnvironmentPackage] = {}
    pending: list[str] = [canonicalize_name(name) for name in names]
    while pending:
        name = pending.pop()
        if name in packages and name not in required:
            required[name] = packages[name]
            pending += packages[name].requires
    return dict(sorted(required.items()))


# -- what is required ---------------------------------------------------------------------------------------


@dataclass
class RequirementFiles:
    """What requirements files say, with those that they include: lines that are requirements, constraints.

    ``index_options``: lines that say where packages come from, folders as absolute paths. ``files``: all
    that were read. Paths, URLs without a name and other options are the installer's matter.
    """

    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    index_options: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """A digest of all the files: 12 hexadecimal digits."""
        return hashlib.sha256(b"".join(path.read_bytes() for path in self.files)).hexdigest()[:12]


def read_requirement_files(paths: Iterable[Path]) -> RequirementFiles:
    """Read requirements files and ``pyproject.toml``. Raises DataError as ``read_build_requirements``."""
    found = RequirementFiles()
    pending = [(path, found.requirements) for path in paths]
    for path, lines in pending:  # which grows meanwhile
        file = Path(os.path.normpath(path))
        if file in found.files or not file.is_file():
            continue
        found.files.append(file)
        if file.name == PYPROJECT:
            lines.extend(read_build_requirements(file))
            continue
        for raw in file.read_text(encoding="utf-8", errors="replace").splitlines():
            line = raw.split(" #", 1)[0].strip()
            if include := _INCLUDE_LINE.fullmatch(line):
                included = lines if include["requirements"] else found.constraints
                pending.append((file.parent / include["file"], included))
            elif (index := _INDEX_LINE.fullmatch(line)) and lines is found.requirements:
                is_folder = index["option"] in ("-f", "--find-links") and "://" not in index["place"]
                place = file.parent.absolute() / index["place"] if is_folder else index["place"]
                found.index_options.append(f"{index['option']} {place}")
            elif line and not line.startswith(("#", "-")):
                lines.append(line)
    return found


def read_build_requirements(file: Path) -> tuple[str, ...]:
    """Return ``build-system.requires`` of a ``pyproject.toml`` (PEP 518).

    Raises DataError for a file that is no TOML or says something else there.
    """
    try:
        table = toml_reader.parse_toml(records.read_text_file(file), name=str(file))
        requires = table.get("build-system", {}).get("requires", [])
    except AttributeError as cause:
        raise errors.DataError(f"{file}: build-system.requires cannot be read: {cause}") from cause
    if not isinstance(requires, list) or not all(isinstance(line, str) for line in requires):
        raise errors.DataError(f"{file}: build-system.requires is not a list of requirements")
    return tuple(requires)


def list_included_files(text: str) -> list[str]:
    """Return the files that a requirements file includes, constraints as well, as they are written there."""
    lines = (raw.split(" #", 1)[0].strip() for raw in text.splitlines())
    return [match["file"] for line in lines if (match := _INCLUDE_LINE.fullmatch(line)) is not None]


def parse_requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements among lines; a path or URL without a name is the installer's matter."""
    for line in lines:
        with suppress(InvalidRequirement):
            yield Requirement(line)


def list_required_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the canonical names in requirements, each once."""
    return tuple(dict.fromkeys(canonicalize_name(each.name) for each in parse_requirements(lines)))


# -- ROCm in it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadyEnvironment:
    """An environment with ROCm in it: ``python_tag`` is its ABI (``cp312``, ``cp313t``).

    ``content`` is a digest over the files of the installed ROCm packages: the version alone
    does not tell two builds of it apart. Of an installed ROCm it says version and folder, too.
    """

    environment: build_environment.BuildEnvironment
    sdk: rocm_sdk.RocmSdk
    python_tag: str
    site_packages: Path
    content: str

    @cached_property
    def sdk_tree(self) -> SdkTree:
        """The parts of the SDK."""
        sdk, prefix = self.sdk, self.sdk.prefix
        return inspect_sdk(
            version=sdk.version,
            root=sdk.root,
            cmake=sdk.cmake,
            bin=sdk.bin,
            compiler=None if prefix is None else prefix.compiler,
            bitcode=None if prefix is None else prefix.device_libraries,
            content="" if prefix is None else prefix.content,
        )


@dataclass(frozen=True)
class _Answers:
    """What an environment said, for as long as its ROCm packages (``_list_rocm_packages``) are these."""

    packages: tuple[tuple[str, int, int], ...]
    family: str | None
    sdk: rocm_sdk.RocmSdk
    python_tag: str
    site_packages: Path
    content: str
    format: Literal[4] = 4


def inspect_environment(
    environment: build_environment.BuildEnvironment,
    request: SdkRequest,
    workspace: Workspace,
    env: Mapping[str, str],
) -> ReadyEnvironment:
    """Ask what an environment has, or take what it said before of the very same packages. Raises SdkError.

    ROCm is reached by a path that all environments with the same packages share, whatever GPUs they are for.
    """
    if request.rocm_path is not None:
        return _ask_environment(environment, env, rocm_sdk.read_installed_sdk(request.rocm_path, env))
    if request.current_env:  # somebody else's: nothing is written there
        return _ask_environment(environment, env)
    path, family = environment.prefix / "rocm-wheels-answers.json", build_environment.read_target_family(env)
    said = read_cached(path, _Answers)
    if said is not None:
        same = (said.family, said.packages) == (family, _list_rocm_packages(said.site_packages))
        if same and all(folder.is_dir() for folder in (said.sdk.root, said.sdk.cmake, said.sdk.bin)):
            return ReadyEnvironment(environment, said.sdk, said.python_tag, said.site_packages, said.content)
    ready = _ask_environment(environment, env)
    content, site = _digest_compiled_rocm(ready.site_packages), ready.site_packages
    folder = workspace.root / rocm_sdk.SHARED_FOLDER
    ready = replace(ready, sdk=rocm_sdk.share_sdk(ready.sdk, content, folder, _digest_compiled_rocm))
    answers = _Answers(_list_rocm_packages(site), family, ready.sdk, ready.python_tag, site, ready.content)
    write_cached(path, answers)
    return ready


def _ask_environment(
    environment: build_environment.BuildEnvironment,
    env: Mapping[str, str],
    sdk: rocm_sdk.RocmSdk | None = None,
) -> ReadyEnvironment:
    asked = environment.asked or rocm_sdk.ask_python(environment.python, env)
    if asked.implementation != "cpython":
        raise errors.SdkError(
            f"{environment.python} is {asked.implementation}; wheels of torch are built for CPython"
        )
    sdk = sdk or rocm_sdk.query_sdk(environment.python, env, asked)
    if sdk.prefix is None:
        content = digest_records(asked.site_packages, _ROCM_PACKAGES)
    else:
        content = f"{sdk.version} in {sdk.root} {sdk.prefix.content}"
    return ReadyEnvironment(environment, sdk, asked.tag, asked.site_packages, content)


def _digest_compiled_rocm(site_packages: Path) -> str:
    """Digest the ROCm packages without those of single GPUs: kernels of libraries, which no compile reads."""
    return digest_records(site_packages, _ROCM_PACKAGES, without="rocm_sdk_device_")


def _list_rocm_packages(site_packages: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the ROCm packages as they lie there: name, size and time of each RECORD."""
    listed = [(r.parent.name, r.stat()) for r in sorted(site_packages.glob(f"{_ROCM_PACKAGES}/RECORD"))]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in listed)


# -- layers over it -----------------------------------------------------------------------------------------


def layers_folder(ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return where the layers over an environment are: in it, unless it is somebody's own."""
    prefix = ready.environment.prefix
    if prefix.is_relative_to(workspace.environments):
        return prefix / "tools"
    return workspace.environments / ".tools" / hashlib.sha256(str(prefix).encode()).hexdigest()[:12]


def find_project_layer(
    project: str, ready: ReadyEnvironment, workspace: Workspace
) -> build_environment.BuildEnvironment:
    """Return the environment that a project is built in, whether it is there yet or not."""
    return build_environment.locate_environment(layers_folder(ready, workspace) / project)


def layer_packages_folder(project: str, ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return the folder of packages of a project's layer."""
    return build_environment.locate_layer_packages(
        layers_folder(ready, workspace) / project, ready.python_tag
    )


def list_packages_below(project: Project, ready: ReadyEnvironment, workspace: Workspace) -> list[Path]:
    """Return what a project's layer lies over: layers of what it is built against, then the environment."""
    others = [name for name in project.build.after if load_project(name).build.installed_for_others]
    folders = [*(layer_packages_folder(name, ready, workspace) for name in others), ready.site_packages]
    return [folder.resolve() for folder in folders]  # the same by whatever link a work directory is reached


def find_importing_python(project: str, ready: ReadyEnvironment, workspace: Workspace) -> Path:
    """Return the Python that can import a project's installed wheel: that of its layer, where it has one."""
    layer = find_project_layer(project, ready, workspace).python
    return layer if layer.exists() else ready.environment.python


# -- our wheels in it ---------------------------------------------------------------------------------------


@dataclass
class _InstalledWheels:
    """What of ours was installed in an environment: its content, and when its metadata were written (ns)."""

    wheels: dict[str, tuple[str, int]] = field(default_factory=dict)


def _read_installed_wheels(ready: ReadyEnvironment) -> tuple[Path, _InstalledWheels]:
    """Return the note and what it says; a missing or torn one says nothing: what is there goes in again."""
    note = ready.environment.prefix / "rocm-wheels-installed.json"
    return note, read_cached(note, _InstalledWheels) or _InstalledWheels()


def _read_install_time(ready: ReadyEnvironment, distribution: str) -> int:
    """Return when the metadata of an installed distribution were written (ns); 0 when it is not there."""
    folders = list(ready.site_packages.glob(f"{distribution.replace('-', '_')}-*.dist-info"))
    return folders[0].stat().st_mtime_ns if len(folders) == 1 else 0


def digest_installed_wheel(ready: ReadyEnvironment, distribution: str) -> str | None:
    """Say which wheel of a distribution is installed; ``None`` when there is none.

    It is the wheel's content when it is ours, else a digest of what its RECORD lists.
    """
    _, installed = _read_installed_wheels(ready)
    if not (install_time := _read_install_time(ready, distribution)):
        return None
    content, noted_time = installed.wheels.get(distribution, ("", 0))
    if noted_time == install_time:
        return content
    return digest_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


@contextmanager
def hold_environment(ready: ReadyEnvironment, workspace: Workspace, *, purpose: str) -> Iterator[bool]:
    """Hold an environment to change what is installed in it; other steps wait.

    Yields whether the last change has no end: an installer that was killed takes packages for installed
    that are there by half.
    """
    locked_folder = workspace.environments / ".locks" / f"{ready.environment.prefix.name}.packages"
    unfinished = locked_folder / "unfinished"
    with files.lock_folder(locked_folder, purpose=purpose, patience=_INSTALL_WAIT_SECONDS):
        was_interrupted = unfinished.exists()
        unfinished.touch()
        yield was_interrupted
        unfinished.unlink()


def install_built_wheel(
    ready: ReadyEnvironment, wheel: Path, content: str, *, distribution: str, env: Mapping[str, str]
) -> None:
    """Bring a wheel that we built into the environment, unless that very ``content`` is there already."""
    note, installed = _read_installed_wheels(ready)
    noted, install_time = installed.wheels.pop(distribution, None), _read_install_time(ready, distribution)
    if install_time and noted == (content, install_time):
        return
    write_cached(note, installed)  # half installed must not count as installed
    build_environment.install_wheel(ready.environment, wheel, env=env)
    if not (install_time := _read_install_time(ready, distribution)):
        raise errors.BuildError(
            f"{wheel.name} was installed, but {ready.site_packages} has no {distribution}"
        )
    installed.wheels[distribution] = (content, install_time)
    write_cached(note, installed)


def uninstall_built_wheel(ready: ReadyEnvironment, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    note, installed = _read_installed_wheels(ready)
    installed.wheels.pop(distribution, None)
    write_cached(note, installed)
    build_environment.uninstall_distribution(ready.environment, distribution, env=env)

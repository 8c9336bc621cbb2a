"""A build environment: ROCm in it, the layers of build tools over it, and our wheels installed in it.

What its ROCm says is asked once, then remembered beside it. One project needs ``cmake==4.0.0`` where
another needs ``cmake<4``: what each requires is resolved for it alone, in a layer of its own. Below its
own packages a project sees those that torch and triton need to be imported, ROCm, and the wheels that it
is built against.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.compile.sdk_tree import SdkTree, inspect_sdk
from rocm_wheels.core import errors, toml_reader
from rocm_wheels.core.files import lock_folder, write_json_file
from rocm_wheels.core.records import read_text_file
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.project import Project, load_project
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
    files = (line for line in text.splitlines() if not line.startswith("../") and ".dist-info/" not in line)
    return "\n".join(sorted(files)).encode("utf-8", "surrogateescape")


def list_installed_packages(site_packages: Path, names: str = "*") -> Mapping[str, EnvironmentPackage]:
    """Return what is installed in a folder, by canonical name; ``names`` is a pattern for their folders."""
    packages: dict[str, EnvironmentPackage] = {}
    for folder in sorted(site_packages.glob(f"{names}.dist-info")):
        metadata = folder / "METADATA"
        if not metadata.is_file() or not (folder / "RECORD").is_file():
            continue
        headers = HeaderParser().parsestr(
            metadata.read_text(encoding="utf-8", errors="replace"), headersonly=True
        )
        name = canonicalize_name(headers.get("Name", ""))
        lines = (str(line) for line in headers.get_all("Requires-Dist", []))
        requires = tuple(dict.fromkeys(_parse_names(line for line in lines if "extra ==" not in line)))
        extras = tuple(str(extra) for extra in headers.get_all("Provides-Extra", []))
        version = headers.get("Version", "")
        packages[name] = EnvironmentPackage(name, version, folder / "RECORD", requires, extras)
    return packages


def find_half_installed(site_packages: Path) -> tuple[str, ...]:
    """Return the canonical names of packages of whose files some are missing; byte code does not count.

    Without ROCm's: they come with their environment, which is there as a whole or made anew.
    """
    return tuple(
        canonicalize_name(folder.name.split("-")[0])
        for folder in sorted(site_packages.glob("*.dist-info"))
        if not folder.name.startswith("rocm") and not _is_whole(folder)
    )


def _is_whole(folder: Path) -> bool:
    try:
        with (folder / "RECORD").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            names = [row[0] for row in csv.reader(file) if row and not row[0].endswith(".pyc")]
    except FileNotFoundError:
        return False
    return (folder / "METADATA").is_file() and all((folder.parent / name).exists() for name in names)


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


def read_requirements(files: Iterable[Path], *, constraints: bool = False) -> tuple[Requirement, ...]:
    """Return the requirements in files and those that they include; ``constraints``: those, too.

    Paths, URLs without a name and options are left out: they are the installer's matter.
    """
    requirements = []
    for file in files:
        for line in _read_requirement_lines(file, {}, constraints=constraints):
            with suppress(InvalidRequirement):
                requirements.append(Requirement(line))
    return tuple(requirements)


def read_index_options(files: Iterable[Path]) -> tuple[str, ...]:
    """Return the lines of requirements files that say where packages come from; folders as absolute paths."""
    included: dict[Path, None] = {}
    for file in files:
        for _ in _read_requirement_lines(file, included):
            pass
    options: dict[str, None] = {}
    for path in included:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if (match := _INDEX_LINE.fullmatch(line.strip())) is not None:
                place = match["place"]
                if match["option"] in ("-f", "--find-links") and "://" not in place:
                    place = str(path.parent.absolute() / place)
                options[f"{match['option']} {place}"] = None
    return tuple(options)


def read_required_names(tools: Iterable[str], files: Iterable[Path]) -> tuple[str, ...]:
    """Return the names in requirements and requirements files, those that the files include as well."""
    lines = [*tools, *(line for file in files for line in _read_requirement_lines(file, {}))]
    return tuple(dict.fromkeys(_parse_names(lines)))


def _parse_names(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            yield canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue  # a path, a URL or an option: the installer's matter


def digest_requirements_file(file: Path) -> str:
    """Digest a requirements file and those that it includes, constraints as well: 12 hexadecimal digits."""
    included: dict[Path, None] = {}
    for _ in _read_requirement_lines(file, included, constraints=True):
        pass
    return hashlib.sha256(b"".join(path.read_bytes() for path in included)).hexdigest()[:12]


def expand_requirements(files: Iterable[Path]) -> list[str | Path]:
    """Return what an installer takes: requirements files as they are, the lines of a ``pyproject.toml``."""
    words: list[str | Path] = []
    for file in files:
        words += read_build_requirements(file) if file.name == PYPROJECT else [file]
    return words


def read_build_requirements(file: Path) -> tuple[str, ...]:
    """Return ``build-system.requires`` of a ``pyproject.toml`` (PEP 518).

    Raises DataError for a file that is no TOML or says something else there.
    """
    try:
        table = toml_reader.parse_toml(read_text_file(file), name=str(file))
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


def _read_requirement_lines(
    file: Path, included: dict[Path, None], *, constraints: bool = False
) -> Iterator[str]:
    """Yield the requirements of a file and of those that it includes; these are added to ``included``."""
    file = Path(os.path.normpath(file))
    if file in included or not file.is_file():
        return
    included[file] = None
    if file.name == PYPROJECT:
        yield from read_build_requirements(file)
        return
    for raw in file.read_text(encoding="utf-8", errors="replace").splitlines():
        line = raw.split(" #", 1)[0].strip()
        match = _INCLUDE_LINE.fullmatch(line)
        if match is not None and (constraints or match["requirements"]):
            yield from _read_requirement_lines(file.parent / match["file"], included, constraints=constraints)
        elif line and not line.startswith(("#", "-")):
            yield line


_ANSWERS_NAME = "rocm-wheels-answers.json"
_ANSWERS_FORMAT = 3


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
        sdk = self.sdk
        if (prefix := sdk.prefix) is None:
            return inspect_sdk(version=sdk.version, root=sdk.root, cmake=sdk.cmake, bin=sdk.bin)
        return inspect_sdk(
            version=sdk.version,
            root=sdk.root,
            cmake=sdk.cmake,
            bin=sdk.bin,
            compiler=prefix.compiler,
            bitcode=prefix.device_libraries,
            content=prefix.content,
        )


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
    answers_path = environment.prefix / _ANSWERS_NAME
    if (cached := _read_answers(answers_path, environment, env)) is not None:
        return cached
    ready = _ask_environment(environment, env)
    content = _digest_compiled_rocm(ready.site_packages)
    shared = rocm_sdk.share_sdk(
        ready.sdk, content, workspace.root / rocm_sdk.SHARED_FOLDER, _digest_compiled_rocm
    )
    ready = replace(ready, sdk=shared)
    write_json_file(
        answers_path,
        {
            "format": _ANSWERS_FORMAT,
            "packages": _list_rocm_packages(ready.site_packages),
            "family": build_environment.read_target_family(env),
            "sdk": {name: str(v) if isinstance(v, Path) else v for name, v in asdict(ready.sdk).items()},
            "python_tag": ready.python_tag,
            "site_packages": str(ready.site_packages),
            "content": ready.content,
        },
    )
    return ready


def digest_records(site_packages: Path, pattern: str, *, without: str = "") -> str:
    """Digest the RECORD files of installed packages: they hold the hash of every file.

    ``pattern`` is of their folders; those that begin with ``without``, if anything, do not count.
    """
    digest = hashlib.sha256()
    for record in sorted(site_packages.glob(f"{pattern}/RECORD")):
        if without and record.parent.name.replace("-", "_").startswith(without):
            continue
        digest.update(b"%s\n%s\n" % (os.fsencode(record.parent.name), read_record_lines(record)))
    return digest.hexdigest()[:16]


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


# but for rocm-bootstrap, which a split torch requires: it names targets, and nothing is built with it
_ROCM_PACKAGES = "rocm[-_][!b]*.dist-info"


def _digest_compiled_rocm(site_packages: Path) -> str:
    """Digest the ROCm packages without those of single GPUs: kernels of libraries, which no compile reads."""
    return digest_records(site_packages, _ROCM_PACKAGES, without="rocm_sdk_device_")


def _read_answers(
    answers_path: Path, environment: build_environment.BuildEnvironment, env: Mapping[str, str]
) -> ReadyEnvironment | None:
    """Return what an environment said, unless its ROCm packages were touched since."""
    try:
        answers = json.loads(answers_path.read_text(encoding="utf-8"))
        sdk_answers = answers["sdk"]
        sdk = rocm_sdk.RocmSdk(
            version=sdk_answers["version"],
            root=Path(sdk_answers["root"]),
            cmake=Path(sdk_answers["cmake"]),
            bin=Path(sdk_answers["bin"]),
            targets=tuple(sdk_answers["targets"]),
            installed=sdk_answers["installed"],
        )
        site_packages = Path(answers["site_packages"])
        same = (answers["format"], answers["family"]) == (
            _ANSWERS_FORMAT,
            build_environment.read_target_family(env),
        )
        same = same and answers["packages"] == _list_rocm_packages(site_packages)
        same = same and all(folder.is_dir() for folder in (sdk.root, sdk.cmake, sdk.bin))
        return (
            ReadyEnvironment(environment, sdk, answers["python_tag"], site_packages, answers["content"])
            if same
            else None
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _list_rocm_packages(site_packages: Path) -> list[list[object]]:
    """Return the ROCm packages as they lie there: name, size and time of each RECORD."""
    records = [(r.parent.name, r.stat()) for r in sorted(site_packages.glob(f"{_ROCM_PACKAGES}/RECORD"))]
    return [[name, state.st_size, state.st_mtime_ns] for name, state in records]


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


_NOTE_NAME = "rocm-wheels-installed.json"


def installed_note_path(ready: ReadyEnvironment) -> Path:
    """Return the file that says what of ours was installed: distribution → content, and when."""
    return ready.environment.prefix / _NOTE_NAME


def digest_installed_wheel(ready: ReadyEnvironment, distribution: str) -> str | None:
    """Say which wheel of a distribution is installed; ``None`` when there is none.

    It is the wheel's content when it is ours, else a digest of what its RECORD lists.
    """
    entry = read_installed_note(installed_note_path(ready)).get(distribution)
    install_time = read_install_time(ready, distribution)
    if not install_time:
        return None
    if entry and entry[1] == install_time:
        return str(entry[0])
    return digest_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


def read_install_time(ready: ReadyEnvironment, distribution: str) -> int:
    """Return when the metadata of an installed distribution were written (ns); 0 when it is not there."""
    pattern = distribution.replace("-", "_")
    folders = sorted(ready.site_packages.glob(f"{pattern}-*.dist-info"))
    return folders[0].stat().st_mtime_ns if len(folders) == 1 else 0


def read_installed_note(note: Path) -> dict[str, list[object]]:
    """Read what was noted; a missing or torn note says nothing (what is there is installed again)."""
    try:
        entries = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


_INSTALL_WAIT_SECONDS = 24 * 3600.0  # another step installs something, or imports a wheel


@contextmanager
def hold_environment(ready: ReadyEnvironment, workspace: Workspace, *, purpose: str) -> Iterator[bool]:
    """Hold an environment to change what is installed in it; other steps wait.

    Yields whether the last change has no end: an installer that was killed takes packages for installed
    that are there by half.
    """
    locked_folder = workspace.environments / ".locks" / f"{ready.environment.prefix.name}.packages"
    unfinished = locked_folder / "unfinished"
    with lock_folder(locked_folder, purpose=purpose, patience=_INSTALL_WAIT_SECONDS):
        was_interrupted = unfinished.exists()
        unfinished.touch()
        yield was_interrupted
        unfinished.unlink()


def install_built_wheel(
    ready: ReadyEnvironment, wheel: Path, content: str, *, distribution: str, env: Mapping[str, str]
) -> None:
    """Bring a wheel that we built into the environment, unless that very ``content`` is there already."""
    note = installed_note_path(ready)
    entries = read_installed_note(note)
    mark = [content, read_install_time(ready, distribution)]
    if entries.get(distribution) == mark and mark[1]:
        return
    if entries.pop(distribution, None) is not None:
        write_json_file(note, entries)  # half installed must not count as installed
    build_environment.install_wheel(ready.environment, wheel, env=env)
    install_time = read_install_time(ready, distribution)
    if not install_time:
        raise errors.BuildError(
            f"{wheel.name} was installed, but {ready.site_packages} has no {distribution}"
        )
    write_json_file(note, {**entries, distribution: [content, install_time]})


def uninstall_built_wheel(ready: ReadyEnvironment, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    note = installed_note_path(ready)
    entries = read_installed_note(note)
    entries.pop(distribution, None)
    write_json_file(note, entries)
    build_environment.uninstall_distribution(ready.environment, distribution, env=env)

"""Read what is installed for a Python: its folders, the packages of torch and ROCm, what they were built for.

Everything is read from files, nothing is imported: a torch that cannot start is the one that people ask
about. Another Python than the running one is started once, to print its folders. Sources: "Recording
installed projects" and "direct_url.json" of the PyPA specifications. torch writes ``torch/version.py``
(``hip``, ``cuda``, ``xpu``; PyTorch's tools/generate_torch_version.py); of the others, what their
libraries are linked to tells the build, then the local part of the version.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, process, workspace
from rocm_wheels.device_code import code_objects
from rocm_wheels.models import project_names
from rocm_wheels.user import python_facts

_QUERY_SECONDS = 60.0
_PYTHON_TIP = "name a Python or a virtual environment: .venv/bin/python, or .venv"


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python and the folders it imports from, in order.

    ``site_packages`` is where installers put things, ``platform_packages`` where those with compiled code;
    ``user_site`` the folder of this user's packages, None when this Python does not look there. ``markers``
    are those of PEP 508. ``is_managed``: it belongs to the system, which forbids installing into it (PEP
    668).
    """

    python: Path
    version: str
    implementation: str
    free_threaded: bool
    prefix: Path
    base_prefix: Path
    path: tuple[Path, ...]
    site_packages: Path
    user_site: Path | None
    markers: Mapping[str, str] = field(default_factory=dict, hash=False)
    platform_packages: Path | None = None
    is_managed: bool = False

    @property
    def minor(self) -> str:
        """Return the version as people name it: ``3.12``, ``3.13t``."""
        return ".".join(self.version.split(".")[:2]) + ("t" if self.free_threaded else "")

    @property
    def is_virtual(self) -> bool:
        """Tell whether it is a virtual environment."""
        return self.prefix != self.base_prefix


def find_active_python(python: Path | None, env: Mapping[str, str]) -> Path | None:
    """Return the Python that is meant: given, else of the active environment; None for the running one.

    UsageError where a variable names an environment that is gone.
    """
    if python is not None:
        return python
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if active := env.get(name):
            if not Path(active).exists():
                tip = f"unset {name}; or name a Python or an environment: --python DIR"
                raise errors.UsageError(f"{name}={active}: there is no such environment", tip=tip)
            return Path(active)
    return None


_TOOL_FILES = ("uv-receipt.toml", "pipx_metadata.json")  # of `uv tool install` and pipx, in an environment
_CLONE_ENVIRONMENTS = (".venv", ".venv.rocm-wheels")  # as quickstart.py makes them


def is_own_environment(active: Path | None) -> bool:
    """Tell whether the environment that is meant, where none is named, is this program's own.

    That is the one that runs it, where no other is active. An active one was meant, unless it is there for
    this program alone: a clone's, and those of `uv tool` and pipx.
    """
    prefix = Path(sys.prefix).resolve()
    if sys.prefix == sys.base_prefix or (active is not None and active.resolve() != prefix):
        return False
    if active is None or any((prefix / name).is_file() for name in _TOOL_FILES):
        return True
    return prefix.name in _CLONE_ENVIRONMENTS and prefix.parent == workspace.get_project_home().resolve()


def read_environment(python: Path | None, env: Mapping[str, str]) -> PythonEnvironment:
    """Return where ``python`` looks, the running one for None.

    ``python`` may also be the folder of a virtual environment. UsageError when it is no Python that runs.
    """
    if python is None:
        return _make_environment(python_facts.describe_python())
    program = find_interpreter(python)
    if not os.access(program, os.X_OK):
        raise errors.UsageError(f"{program} is no program that can be started", tip=_PYTHON_TIP)
    output = process.capture_output(
        [program, "-c", Path(python_facts.__file__).read_text(encoding="utf-8")],
        env=env,
        cwd=program.parent,
        timeout=_QUERY_SECONDS,
        check=errors.UsageError,
        description=f"asking {program} where its packages are",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        return _make_environment(json.loads(output))
    except (ValueError, TypeError, KeyError) as cause:
        raise errors.UsageError(f"{program}, asked where its packages are, said {output[:200]!r}") from cause


def find_interpreter(python: Path) -> Path:
    """Return the interpreter that a path names: itself, or that of a virtual environment's folder."""
    path = python.expanduser()
    if path.is_dir():
        programs = [path / name for name in ("bin/python", "Scripts/python.exe") if (path / name).exists()]
        if not programs:
            text = f"{python} is a folder, and no virtual environment (no bin/python in it)"
            raise errors.UsageError(text, tip=_PYTHON_TIP)
        path = programs[0]
    if not path.is_file():
        raise errors.UsageError(f"there is no Python {python}", tip=_PYTHON_TIP)
    return path.absolute()  # not resolved: the link of a virtual environment is what makes it one


def _make_environment(answer: Mapping[str, Any]) -> PythonEnvironment:
    folders = dict.fromkeys(Path(os.path.normpath(folder)) for folder in answer["path"])
    return PythonEnvironment(
        python=Path(answer["executable"] or "python"),
        version=str(answer["version"]),
        implementation=str(answer["implementation"]),
        free_threaded=bool(answer["free_threaded"]),
        prefix=Path(answer["prefix"]),
        base_prefix=Path(answer["base_prefix"]),
        path=tuple(folder for folder in folders if folder.is_dir()),
        site_packages=Path(answer["purelib"]),
        user_site=Path(answer["user_site"]) if answer["user_site"] else None,
        markers=answer["markers"],
        platform_packages=Path(answer["platlib"]),
        is_managed=bool(answer["is_managed"]),
    )


BuildKind = Literal["rocm", "cuda", "xpu", "cpu", "unknown"]
# without a recipe: what belongs to torch, and every package of ROCm
_OTHER_PROJECTS = (
    r"torchao|torchdata|torchtune|torchrl|tensordict"
    r"|triton-rocm|triton-xpu|triton-windows|pytorch-triton(-rocm|-xpu)?|amd-torch.*"
    r"|rocm|rocm-.*|amd-smi|amdsmi|aotriton|xformers|vllm|jax-rocm.*|nvidia-c.*"
)
_INFO_SUFFIXES = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class PackageBuild:
    """What a package was built for.

    ``version`` is that of ROCm (of HIP, where nothing says it) or CUDA as it was written down, "" where
    nothing says any; ``source`` is what says it, ``version_values`` are the values of its version.py.
    """

    kind: BuildKind
    version: str = ""
    source: str = ""
    version_values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InstalledDistribution:
    """One installed distribution.

    ``name`` is normalised, ``version`` as it is written. ``info`` is its ``.dist-info`` folder,
    ``site_folder`` the folder on the path that it is in. ``installer`` is ``pip``, ``uv``, … ("" when
    nothing says). ``editable`` is the source tree that is imported instead of a copy. ``tags`` are those of
    its wheel; ``external`` is what it requires of the system. ``shadowed`` says that a folder further in
    front on the path has the same distribution: that one is imported.
    """

    name: str
    version: str
    info: Path
    site_folder: Path
    installer: str = ""
    requires: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    editable: Path | None = None
    shadowed: bool = False

    @property
    def label(self) -> str:
        """Return the local part of the version: ``rocm7.1`` of ``2.9.1+rocm7.1``."""
        return self.version.partition("+")[2]

    @cached_property
    def folder(self) -> Path | None:
        """Return the folder that is imported, None when it is not there."""
        module = "triton" if "triton" in self.name else self.name.replace("-", "_")
        if self.name not in _OWN_MODULES and (recipe := project_names.find_wheel_projects().get(self.name)):
            from rocm_wheels.models.project import load_project  # slow to import

            module = load_project(recipe).checks.import_name
        tree = self.editable
        roots = [tree, tree / "src", tree / "python"] if tree else [self.site_folder]
        return next((root / module for root in roots if (root / module).is_dir()), None)

    @cached_property
    def build(self) -> PackageBuild:
        """Return what it was built for, as far as that is looked up: of what is compiled against torch."""
        from rocm_wheels.models.project import find_project_of  # slow to import

        recipe = None if _BUILT_PROJECTS.fullmatch(self.name) else find_project_of(self.name)
        is_built = recipe.is_built_against_torch if recipe else _BUILT_PROJECTS.fullmatch(self.name)
        return detect_build(self) if is_built else PackageBuild("unknown")

    @property
    def kind(self) -> BuildKind:
        """Return for which GPUs it was built."""
        return self.build.kind

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def match_relevant_projects() -> re.Pattern[str]:
    """Return the pattern of what is looked at: wheels of recipes, and others of torch and ROCm."""
    wheels = map(re.escape, project_names.find_wheel_projects())
    return re.compile("|".join([*wheels, _OTHER_PROJECTS]))


def read_distributions(
    path: Iterable[Path], only: re.Pattern[str] | None = None
) -> tuple[tuple[InstalledDistribution, ...], tuple[str, ...]]:
    """Return what is installed in the folders, in their order, and what could not be read.

    A distribution that two folders have is there twice: the first is the one that is imported. ``only``:
    their names; None: those that belong to torch and ROCm.
    """
    only = only or match_relevant_projects()
    distributions: list[InstalledDistribution] = []
    faults: list[str] = []
    names: set[str] = set()
    for folder in path:
        for info in _list_info_folders(folder, only, faults):
            try:
                entry = _read_distribution(info, folder)
            except (OSError, UnicodeDecodeError, ValueError) as cause:
                faults.append(f"{info} cannot be read: {cause}")
            else:
                distributions.append(replace(entry, shadowed=entry.name in names))
                names.add(entry.name)
    return tuple(distributions), tuple(faults)


def _list_info_folders(folder: Path, only: re.Pattern[str], faults: list[str]) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(_INFO_SUFFIXES))
    except OSError as cause:
        faults.append(f"{folder} cannot be read: {cause.strerror}")
        return
    for name in names:
        project = name.rsplit(".", 1)[0].split("-", 1)[0]
        # of an uninstall or an upgrade that was broken off, pip leaves folders that begin with ~
        if project.startswith("~"):
            full_names = [canonicalize_name(letter + project[1:]) for letter in ("", *ascii_lowercase)]
            if any(only.fullmatch(entry) for entry in full_names):
                faults.append(f"{folder / name} is left of an installation that was broken off; delete it")
        elif only.fullmatch(canonicalize_name(project)):
            yield folder / name


def _read_distribution(info: Path, site_folder: Path) -> InstalledDistribution:
    def read(name: str) -> str:
        path = info / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    metadata_file = info
    if info.is_dir():
        metadata_file = info / ("METADATA" if info.suffix == ".dist-info" else "PKG-INFO")
    message = HeaderParser().parsestr(metadata_file.read_text(encoding="utf-8"))
    name, version = message.get("Name", ""), message.get("Version", "")
    if not name or not version:
        raise ValueError(f"{metadata_file.name} has no name or no version")
    return InstalledDistribution(
        name=canonicalize_name(name),
        version=version.strip(),
        info=info,
        site_folder=site_folder,
        installer=read("INSTALLER").strip(),
        requires=tuple(message.get_all("Requires-Dist", [])),
        external=tuple(message.get_all("Requires-External", [])),
        tags=tuple(HeaderParser().parsestr(read("WHEEL")).get_all("Tag", [])),
        editable=_find_source_tree(read("direct_url.json")),
    )


def _find_source_tree(direct_url: str) -> Path | None:
    """Return the tree that a distribution is imported from, by its ``direct_url.json``; None for a copy."""
    record = json.loads(direct_url) if direct_url else {"url": ""}
    if not isinstance(record, dict) or not isinstance(record.get("url"), str):
        raise ValueError("direct_url.json has no url")
    folder = record.get("dir_info")
    if isinstance(folder, dict) and folder.get("editable") and record["url"].startswith("file:"):
        from urllib.request import url2pathname  # it brings http, ssl and email along

        return Path(url2pathname(urlsplit(record["url"]).path))
    return None


_OWN_MODULES = ("torch", "torchvision", "torchaudio")  # as their names: no recipe is read
_BUILT_PROJECTS = re.compile(r"torch|torchvision|torchaudio|torchao|xformers|.*triton.*")
_LIBRARY_FILE = re.compile(r"\.so(\.[0-9.]+)?$|\.(dll|pyd)$")
# kind: its key in torch/version.py, which is also in the name of the library that only such a torch has; what
# packages for it are linked to; its local versions
_KINDS: tuple[tuple[BuildKind, str, str, str], ...] = (
    ("rocm", "hip", r"(lib)?(torch_hip|c10_hip|amdhip64)\b", r"rocm|hip|gfx"),
    ("cuda", "cuda", r"(lib)?(torch_cuda|c10_cuda|cudart)\b", r"cu(da)?[0-9]"),
    ("xpu", "xpu", r"(lib)?(torch_xpu|c10_xpu|sycl)\b", r"xpu"),
)
_LABEL_VERSION = re.compile(r"[._]?(?:sdk)?[._]?([0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.dev)[0-9]+)?)")
_MAX_LIBRARIES = 200


def detect_build(distribution: InstalledDistribution) -> PackageBuild:
    """Return what a distribution was built for: by its version.py, its libraries, its name, its label."""
    name, package = distribution.name, distribution.folder
    values = read_version_file(package / "version.py") if package else {}
    label_kind, label_version = parse_label(distribution.label)
    source = f"version {distribution.version}" if label_kind != "unknown" else ""
    labelled = PackageBuild(label_kind, label_version, source, values)
    written, key = next(((kind, key) for kind, key, *_ in _KINDS if values.get(key)), ("unknown", ""))
    if name == "torch":
        kind = detect_torch_kind(values, lambda file: (package / file).exists()) if package else "unknown"
        number = values.get(key, "")
        if kind == "rocm" and number:  # HIP counts on its own: torch 2.13.0+rocm10.0.0 has HIP 7.15
            number = values.get("rocm") or label_version or number
        return labelled if kind == "unknown" else PackageBuild(kind, number, str(package), values)
    if "triton" in name:
        for kind in ("rocm", "xpu"):
            if name.endswith(f"-{kind}"):
                return PackageBuild(kind, "", f"name {name}")
        return labelled
    if key:
        return PackageBuild(written, values[key], f"{package}/version.py", values)
    linked = [library for library in read_libraries(package) if library.needed] if package else []
    for kind, _, pattern, _ in _KINDS:
        for library in linked:
            if any(re.match(pattern, needed) for needed in library.needed):
                return PackageBuild(kind, label_version, str(library.path), values)
    if label_kind == "unknown":
        for library in linked:
            if any(re.match(r"lib(torch|c10)", needed) for needed in library.needed):
                return PackageBuild("cpu", "", str(library.path), values)
    return labelled


def read_version_file(path: Path) -> dict[str, str]:
    """Return the texts that a version.py assigns to names. {} when it cannot be read."""
    try:
        return parse_version_values(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def parse_version_values(text: str) -> dict[str, str]:
    """Return the texts that the code of a version.py assigns to names: nothing is run. {} for no code."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    values: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            values |= dict.fromkeys(names, node.value.value)
    return {name: value for name, value in values.items() if isinstance(value, str)}


def read_libraries(package: Path) -> Iterator[code_objects.LibraryTargets]:
    """Read the tables of the libraries at the top of a package and in its ``lib`` folder."""
    files = [file for folder in (package, package / "lib") if folder.is_dir() for file in folder.iterdir()]
    for path in sorted(files)[:_MAX_LIBRARIES]:
        if _LIBRARY_FILE.search(path.name) and path.is_file():
            try:
                yield code_objects.read_library_targets(path)
            except errors.DataError:
                continue  # what is wrong with it is ``gpu_support``'s to say


def detect_torch_kind(version_values: Mapping[str, str], has_file: Callable[[str], bool]) -> BuildKind:
    """Return what a torch was built for, by its version.py, else by which libraries it has.

    ``has_file`` tells of paths below its folder (``lib/libtorch_hip.so``).
    """
    named = (kind for kind, key, *_ in _KINDS if version_values.get(key))
    linked = (
        kind
        for kind, key, *_ in _KINDS
        if has_file(f"lib/libtorch_{key}.so") or has_file(f"lib/torch_{key}.dll")
    )
    return next(named, None) or next(linked, None) or ("cpu" if version_values else "unknown")


def parse_label(label: str) -> tuple[BuildKind, str]:
    """Return what the local part of a version says: ``rocm7.1`` → ROCm 7.1, ``cu128`` → CUDA 12.8."""
    for kind, _, _, pattern in _KINDS:
        if match := re.search(pattern, label):
            if kind == "cuda" and (digits := re.search(r"cu([0-9]+)([0-9])\b", label)):
                return kind, f"{digits[1]}.{digits[2]}"
            version = _LABEL_VERSION.match(label, match.end())
            return kind, version[1] if version and kind == "rocm" else ""
    return ("cpu" if "cpu" in label else "unknown"), ""


@dataclass(frozen=True)
class InstalledSet:
    """What an environment holds of torch and ROCm, in the order of the path; ``faults``: what could not be
    read."""

    environment: PythonEnvironment
    packages: tuple[InstalledDistribution, ...]
    faults: tuple[str, ...] = ()

    def get(self, name: str) -> InstalledDistribution | None:
        """Return the distribution that is imported under a normalised name, ``None`` when there is none."""
        return next((package for package in self.packages if package.name == name), None)

    @property
    def torch(self) -> InstalledDistribution | None:
        """Return torch."""
        return self.get("torch")

    @property
    def tritons(self) -> tuple[InstalledDistribution, ...]:
        """Return every distribution that has a module ``triton``: one is right, two overwrite each other."""
        return tuple(
            package for package in self.packages if "triton" in package.name and not package.shadowed
        )

    @property
    def rocm_version(self) -> str | None:
        """Return the version of the ROCm packages in the environment, ``None`` without."""
        package = self.get("rocm-sdk-core") or self.get("rocm")
        return package.version if package else None


def parse_optional_version(text: str) -> Version | None:
    """Return a version, None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def read_installed_packages(python: Path | None, env: Mapping[str, str]) -> InstalledSet:
    """Read what is installed for ``python``: a Python or a virtual environment, ``None`` for the running one.

    Nothing is imported. UsageError when ``python`` is no Python that runs.
    """
    return read_environment_packages(read_environment(python, env))


def read_environment_packages(environment: PythonEnvironment) -> InstalledSet:
    """Read what is installed in the folders of an environment."""
    return InstalledSet(environment, *read_distributions(environment.path))

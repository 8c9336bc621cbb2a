"""A wheel that is installed and that a run does not build: what it says of itself when it is imported.

It is asked once, in one process; the answer is remembered for as long as what is installed stays the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import DataError, RocmWheelsError, SdkError
from rocm_wheels.model.project import Platform, Project
from rocm_wheels.pipeline.facts.installed import digest_installed_wheel
from rocm_wheels.pipeline.facts.layers import find_importing_python
from rocm_wheels.pipeline.facts.provided import (
    ProvidedWheel,
    list_other_requirements,
    remember_provided,
    list_required_libraries,
    find_rocm_pin,
)
from rocm_wheels.pipeline.facts.ready import ReadyEnvironment
from rocm_wheels.pipeline.provenance import LOCK_MEMBER
from rocm_wheels.process import capture_output
from rocm_wheels.wheels.device_code.kpack import KPACK_SUFFIX, find_kpack_archives, is_kernel_of
from rocm_wheels.wheels.device_code.objects import read_device_code, read_file_code, list_code_targets
from rocm_wheels.wheels.metadata import WheelMetadata, parse_metadata, parse_wheel_file
from rocm_wheels.workspace import Workspace

_IMPORT_SCRIPT = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
text = lambda value: None if value is None else str(value)
print(json.dumps({
    "file": module.__file__,
    "version": text(getattr(module, "__version__", None)),
    "hip": text(getattr(getattr(module, "version", None), "hip", None)),
    "cxx11": getattr(getattr(module, "_C", None), "_GLIBCXX_USE_CXX11_ABI", None),
}))
"""
_IMPORT_SECONDS = 600.0
_LIBRARY_NAME = re.compile(r"\.(so|dll|pyd)$|\.so\.[\d.]+$", re.IGNORECASE)


@dataclass(frozen=True)
class _InstalledDistribution:
    """The metadata of an installed distribution."""

    folder: Path
    metadata: WheelMetadata

    @property
    def libraries(self) -> list[str]:
        """The native libraries that RECORD lists, relative to site-packages."""
        text = (self.folder / "RECORD").read_text(encoding="utf-8", errors="surrogateescape")
        names = [line.rsplit(",", 2)[0].strip('"') for line in text.splitlines()]
        return [name for name in names if _LIBRARY_NAME.search(name)]


def inspect_installed_wheel(
    project: Project,
    ready: ReadyEnvironment,
    platform: Platform,
    workspace: Workspace,
    env: Mapping[str, str],
) -> ProvidedWheel | None:
    """Return what an environment has of a project; ``None`` when it has nothing of it."""
    digest = digest_installed_wheel(ready, project.distribution)
    folders = sorted(ready.site_packages.glob(f"{project.distribution.replace('-', '_')}-*.dist-info"))
    if digest is None or len(folders) != 1:
        return None
    archives = sorted((ready.site_packages / project.checks.import_name).glob(f".kpack/*{KPACK_SUFFIX}"))
    split = [f"{path.name} {path.stat().st_mtime_ns}" for path in archives]
    python = find_importing_python(project.name, ready, workspace)
    key = [str(python), str(folders[0]), folders[0].stat().st_mtime_ns, digest, platform]
    key += split
    dist_info = folders[0]
    return remember_provided(
        workspace,
        key,
        lambda: _read_installed_wheel(
            project, dist_info, ready, python, digest=digest, platform=platform, env=env
        ),
    )


def _read_installed_wheel(
    project: Project,
    folder: Path,
    ready: ReadyEnvironment,
    python: Path,
    *,
    digest: str,
    platform: Platform,
    env: Mapping[str, str],
) -> ProvidedWheel:
    version = folder.name.removesuffix(".dist-info").partition("-")[2]
    provided = ProvidedWheel(project.name, str(ready.site_packages), version, digest)
    try:
        installed = _InstalledDistribution(
            folder, parse_metadata((folder / "METADATA").read_bytes(), name=str(folder / "METADATA"))
        )
        faults = _find_tag_faults(folder, ready.python_tag)
    except (OSError, DataError) as cause:
        return replace(provided, faults=(f"its metadata cannot be read: {cause}",))
    requires, lock = installed.metadata.requires_dist, folder / LOCK_MEMBER
    provided = replace(
        provided,
        version=str(installed.metadata.version),
        rocm=find_rocm_pin(requires),
        requires=list_other_requirements(requires),
        lock=hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else "",
    )
    if project.checks.requires_rocm and provided.rocm is None:
        faults.append(
            "it does not require one version of rocm[libraries], as a build for these ROCm packages does"
        )
    if project.checks.rocm == "torch.version.hip":
        provided, more = _check_import(project, provided, ready, python, env)
        faults += more
    try:
        names = list_required_libraries(project, platform, installed.libraries)
        code = {name: read_library_targets(ready.site_packages, name) for name in names}
    except (OSError, DataError) as cause:
        code = {}
        faults.append(f"a library cannot be read: {cause}")
    for rule in project.list_device_code_rules(platform):
        if rule.expect == "all" and rule.required and not any(fnmatchcase(name, rule.files) for name in code):
            faults.append(f"it has no {rule.files} with device code")
    libraries = {name: targets for name, (targets, outside) in code.items() if targets or not outside}
    outside = tuple(sorted({archive for _, missing in code.values() for archive in missing}))
    return replace(provided, libraries=libraries, outside=outside, faults=tuple(faults))


def read_library_targets(site_packages: Path, library: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets of an installed library, and the archives that it names and nobody has installed.

    Where its device code was moved out (device wheels), that in the archives beside it counts. OSError or
    DataError for files that cannot be read.
    """
    inside = read_device_code(site_packages / library)
    names = inside.moved_code.get("", ())
    if not names:
        return tuple(list_code_targets(inside.code.get("", ()))), ()
    top = site_packages / library.partition("/")[0]
    files = [path.relative_to(site_packages).as_posix() for path in top.rglob(f"*{KPACK_SUFFIX}")]
    archives = find_kpack_archives(library, names, files)
    objects = [code for archive in archives for code in read_file_code(site_packages / archive)]
    targets = tuple(list_code_targets(code for code in objects if is_kernel_of(code.section, library)))
    return targets, () if targets else names


def _find_tag_faults(folder: Path, tag: str) -> list[str]:
    """Say when what is installed was built for another Python."""
    from rocm_wheels.audit.subject import list_accepted_tags

    tags = parse_wheel_file((folder / "WHEEL").read_bytes(), name=str(folder / "WHEEL")).tags
    if tags & list_accepted_tags(tag, sorted({wheel_tag.platform for wheel_tag in tags})):
        return []
    return [
        f"it is for {', '.join(sorted({wheel_tag.abi for wheel_tag in tags}))}, and the environment is {tag}"
    ]


def _check_import(
    project: Project, provided: ProvidedWheel, ready: ReadyEnvironment, python: Path, env: Mapping[str, str]
) -> tuple[ProvidedWheel, list[str]]:
    """Import it, and compare what it says with its metadata."""
    name = project.checks.import_name
    try:
        output = capture_output(
            [python, "-c", _IMPORT_SCRIPT, name],
            env=env,
            cwd=python.parent,  # the user's could hold something of that name
            timeout=_IMPORT_SECONDS,
            check=SdkError,
            description=f"`import {name}`",
        )
        answer = json.loads(output.splitlines()[-1])
    except (RocmWheelsError, ValueError, IndexError) as cause:
        return provided, [f"it cannot be imported: {cause}"]
    faults = []
    if not Path(answer["file"]).resolve().is_relative_to(ready.site_packages.resolve()):
        faults.append(f"`import {name}` takes {answer['file']}, not the one installed in {provided.place}")
    if not answer["hip"]:
        faults.append(f"`{name}.version.hip` is {answer['hip']}: a CPU-only or CUDA build")
    if answer["version"] is not None and not _is_same_version(answer["version"], provided.version):
        faults.append(f"`{name}.__version__` is {answer['version']}, its metadata say {provided.version}")
    abi = answer["cxx11"]
    return replace(provided, cxx11_abi=None if abi is None else bool(abi)), faults


def _is_same_version(first: str, second: str) -> bool:
    try:
        return Version(first) == Version(second)
    except InvalidVersion:
        return canonicalize_name(first) == canonicalize_name(second)


def ask_compiler_cxx11_abi(env: Mapping[str, str]) -> bool | None:
    """Return whether the C++ compiler of a build makes libstdc++'s new ABI; ``None``: another library.

    Of a compiler that does not run nothing is said here: the build does.
    """
    words = [*shlex.split(env.get("CXX") or "c++"), *shlex.split(env.get("CXXFLAGS", ""))]
    try:
        macros = capture_output(
            [*words, "-x", "c++", "-E", "-dM", "-"], env=env, stdin=b"#include <string>\n", timeout=60.0
        )
    except RocmWheelsError:
        return None
    match = re.search(r"^#define _GLIBCXX_USE_CXX11_ABI (\d)$", macros, re.MULTILINE)
    return None if match is None else match.group(1) == "1"

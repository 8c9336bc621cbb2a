"""The ROCm of a build as a tree: what of it compilers use, and which libraries a wheel preloads.

The probe compiles a small kernel for each target before hours of compiling: does this ROCm know it at
all? The kernel uses what torch's do: shared memory, barriers, exchange of values within a wave, atomics,
half and bfloat16 arithmetic, maths of the device libraries. It is compiled and its device code linked,
the host's object is not; nothing stays on the disk.

torch imports it when it is there and calls ``initialize()``. The rocm_sdk package raises for a library
name that it does not know or does not find, on every user's machine. So the names of
``data/preload_libraries.yaml`` are put to the rocm_sdk of the build environment one by one; what it has
not is left out, stands as a comment in the module, and is reported to the caller.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from pydantic import model_validator

from rocm_wheels.compile import generated_files
from rocm_wheels.compile.failure import find_first_failure
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.core import errors, files, parallel, process, records
from rocm_wheels.models import project_names


@dataclass(frozen=True)
class SdkTree:
    """An installed SDK: its version, three folders, and optional parts (``None`` when missing).

    ``content`` tells an installed ROCm apart, which stays at one place when it is upgraded; "" for packages.
    """

    version: str
    root: Path
    cmake: Path
    bin: Path
    bundles: bool = True  # made by ROCm's own build, which brings its dependencies in lib/rocm_sysdeps
    sysdeps: Path | None = None  # lib/rocm_sysdeps: liblzma, libdrm and others that ROCm brings
    clang: Path | None = None  # lib/llvm/bin
    bitcode: Path | None = None  # lib/llvm/amdgcn/bitcode: device libraries
    host_math: Path | None = None  # lib/host-math: OpenBLAS
    roctracer: Path | None = None  # include/roctracer: headers for Kineto
    content: str = ""

    @property
    def is_installed(self) -> bool:
        """Tell whether it is an installed ROCm, and not made of packages that a wheel can require."""
        return bool(self.content)

    @property
    def identity(self) -> str:
        """Version and content, as far as the folder does not tell them."""
        return f"{self.version} {self.content}".strip()


def inspect_sdk(
    *,
    version: str,
    root: Path,
    cmake: Path,
    bin: Path,
    compiler: Path | None = None,
    bitcode: Path | None = None,
    content: str = "",
) -> SdkTree:
    """Look which parts an SDK has; of an installed ROCm some are known. SdkError when a folder is missing."""
    folders = {"root": root, "cmake": cmake, "bin": bin}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise errors.SdkError(
                f"the ROCm SDK {version} says that its {name} folder is {folder}, which does not exist",
                tip="install it again: build_prod_wheels.py install-rocm",
            )
    root = root.absolute()

    def find_part(path: str) -> Path | None:
        return root / path if (root / path).is_dir() else None

    return SdkTree(
        version=version,
        root=root,
        cmake=cmake.absolute(),
        bin=bin.absolute(),
        bundles=(root / "share/therock/therock_manifest.json").is_file(),
        sysdeps=find_part("lib/rocm_sysdeps"),
        clang=compiler or find_part("lib/llvm/bin"),
        bitcode=bitcode or find_part("lib/llvm/amdgcn/bitcode"),
        host_math=find_part("lib/host-math"),
        roctracer=find_part("include/roctracer"),
        content=content,
    )


def list_sdk_warnings(sdk: SdkTree) -> tuple[str, ...]:
    """Say what a build goes without, one line a missing part."""
    parts = {
        "lib/rocm_sysdeps": (
            sdk.sysdeps or sdk.bundles,
            "it is, or was made from, an installed ROCm; libdrm, liblzma and others are the system's",
        ),
        "lib/llvm/amdgcn/bitcode": (sdk.bitcode, "the compiler looks for its device libraries by itself"),
        "lib/host-math": (sdk.host_math, "torch is built without OpenBLAS"),
        "include/roctracer": (sdk.roctracer, "the profiler (Kineto) may not find roctracer.h"),
    }
    return tuple(
        f"the ROCm SDK has no {path}: {consequence}"
        for path, (part, consequence) in parts.items()
        if not part
    )


def find_hipcc(sdk: SdkTree, platform: project_names.Platform) -> Path:
    """Return the driver's place. Raises SdkError when the SDK has none."""
    program = sdk.bin / ("hipcc.exe" if platform == "windows" else "hipcc")
    if not program.is_file():
        raise errors.SdkError(
            f"the ROCm SDK {sdk.version} has no {program.name} in {sdk.bin}",
            tip="install its development files: rocm[libraries,devel]",
        )
    return program


def make_hipcc_environment(
    sdk: SdkTree, env: Mapping[str, str], platform: project_names.Platform
) -> dict[str, str]:
    """Return the user's environment with what ``build_environment`` tells hipcc; no compiler cache."""
    variables = {name: value for name, value in env.items() if name != "HIP_CLANG_LAUNCHER"}
    variables["ROCM_HOME"] = variables["ROCM_PATH"] = os.fspath(sdk.root)
    prepend_path(variables, "PATH", sdk.bin, platform)
    if sdk.bitcode is not None:
        variables["HIP_DEVICE_LIB_PATH"] = os.fspath(sdk.bitcode)
    if sdk.clang is not None:
        variables["HIP_CLANG_PATH"] = sdk.clang.as_posix()
    return variables


PROBE_VERSION = "1"  # raise it when the kernel, or how it is compiled, changes
_PROBE_SECONDS = 300.0  # seconds a target: about 3 are usual

# The compiler's own types and builtins, so that it stands on no header's promise; and ROCm's types of
# half precision where it brings their headers, as every real one does.
_PROBE_KERNEL = """\
#include <hip/hip_runtime.h>
#if __has_include(<hip/hip_fp16.h>) && __has_include(<hip/hip_bf16.h>)
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#define WITH_HEADERS 1
#endif

template <typename T>
__device__ T fused(T a, T b, T c) {
    return a * b + c;
}

template <typename T>
__global__ void reduce(const T* in, float* out, int count) {
    __shared__ float partial[256];
    const int lane = threadIdx.x;
    const int index = blockIdx.x * blockDim.x + lane;
    float value = index < count ? static_cast<float>(fused(in[index], in[index], static_cast<T>(1))) : 0.0f;
    value = __builtin_sqrtf(value) + __builtin_fmaf(value, 2.0f, 1.0f);
    partial[lane & 255] = value;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    const int other = __builtin_amdgcn_ds_bpermute(((lane ^ 1) & 63) << 2, __builtin_bit_cast(int, value));
    value += __builtin_bit_cast(float, other) + partial[(lane + 1) & 255];
    value = __builtin_bit_cast(float, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, value)));
    float* sum = out + blockIdx.x;
    if (lane == 0) __hip_atomic_fetch_add(sum, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template __global__ void reduce<float>(const float*, float*, int);
template __global__ void reduce<_Float16>(const _Float16*, float*, int);
template __global__ void reduce<__bf16>(const __bf16*, float*, int);

#ifdef WITH_HEADERS
__global__ void with_headers(const __half* half, const __hip_bfloat16* brain, float* out) {
    const int lane = threadIdx.x;
    float value = __half2float(__hadd(half[lane], half[lane + 1])) + __bfloat162float(brain[lane]);
    value = expf(value) + erff(value) + rsqrtf(value) + tanhf(value);
    for (int step = warpSize / 2; step > 0; step /= 2) value += __shfl_down(value, step);
    __syncthreads();
    if (lane == 0) atomicAdd(out, value);
}
#endif
"""


def probe_targets(
    sdk: SdkTree,
    targets: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    *,
    platform: project_names.Platform,
    jobs: int,
) -> dict[str, str | None]:
    """Compile the kernel for each target alone, ``jobs`` at a time: the first error, or ``None``, of each.

    ``env`` is the user's. One target that fails, or takes longer than 5 minutes, hides no other. Raises
    SdkError when there is no compiler.
    """
    program = find_hipcc(sdk, platform)
    built = make_hipcc_environment(sdk, env, platform)
    folder.mkdir(parents=True, exist_ok=True)

    def probe_target(target: str) -> str | None:
        lines: list[str] = []
        with tempfile.TemporaryDirectory(prefix="probe-", dir=folder) as name:
            Path(name, "probe.hip").write_text(_PROBE_KERNEL, encoding="utf-8")
            try:
                done = process.run_command(
                    [program, f"--offload-arch={target}", "-O2", "-c", "probe.hip", "-o", "probe.o"],
                    env={**built, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), name)},  # crashes leave files
                    cwd=Path(name),
                    on_line=lines.append,
                    timeout=_PROBE_SECONDS,
                    check=None,
                    description=f"the probe for {target}",
                )
            except errors.BuildError as failure:
                return failure.message
            if done.returncode:
                last_line = next(
                    (line.strip() for line in reversed(lines) if line.strip()), "it said nothing"
                )
                failed = find_first_failure(lines)
                return str(failed or f"hipcc failed with exit code {done.returncode}: {last_line}")
            if not Path(name, "probe.o").is_file():
                return f"{os.fspath(program)} ended without an error and without an object"
        return None

    return dict(zip(targets, parallel.run_in_parallel(probe_target, targets, jobs=jobs), strict=True))


_PROBE_SCRIPT = """\
import json, sys
import rocm_sdk
answers = {}
for name in sys.argv[1:]:
    try:
        rocm_sdk.find_libraries(name)
    except Exception as fault:
        answers[name] = str(fault) or type(fault).__name__
json.dump(answers, sys.stdout)
"""


class _PreloadTable(records.Record):
    required: tuple[str, ...]
    linux: tuple[str, ...]
    windows: tuple[str, ...]

    @model_validator(mode="after")
    def _required_are_listed(self) -> _PreloadTable:
        for name in self.required:
            if name not in self.linux or name not in self.windows:
                raise records.make_record_error(
                    f"{name} is required, but a platform does not list it", "required"
                )
        return self


@dataclass(frozen=True)
class Preloads:
    """Libraries to load first, in order, and those left out with the SDK's reason.

    ``places``: where each is in an installed ROCm.
    """

    libraries: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def warning(self) -> str | None:
        """Say what was left out, or ``None``."""
        if not self.left_out:
            return None
        return f"the ROCm SDK has not got, so torch will not preload: {', '.join(self.left_out)}"


@lru_cache
def _load_preload_table() -> _PreloadTable:
    return records.load_record(project_names.get_data_folder() / "preload_libraries.yaml", _PreloadTable)


def list_preload_names(platform: project_names.Platform) -> tuple[str, ...]:
    """Return the libraries of a platform, in loading order."""
    return _load_preload_table().linux if platform == "linux" else _load_preload_table().windows


def ask_preloads(python: Path, platform: project_names.Platform, env: Mapping[str, str]) -> Preloads:
    """Ask the rocm_sdk that ``python`` imports for every library of the platform.

    Raises SdkError when it cannot be asked, or lacks one without which torch cannot work.
    """
    answer = process.capture_output(
        [python, "-c", _PROBE_SCRIPT, *list_preload_names(platform)],
        env=env,
        check=errors.SdkError,
        description="asking rocm_sdk for its libraries",
        tip="install the libraries: rocm[libraries]",
    )
    try:
        left_out = dict(json.loads(answer))
    except ValueError as cause:
        raise errors.SdkError(f"rocm_sdk gave no list of libraries: {answer[:200]!r}") from cause
    return select_preloads(platform, left_out)


def find_preloads(platform: project_names.Platform, find_library: Callable[[str], str | None]) -> Preloads:
    """Return the libraries that a platform loads first, as far as an installed ROCm has them.

    ``find_library`` says where one is, by its short name. Raises SdkError where torch cannot do without it.
    """
    found = {name: find_library(name) for name in list_preload_names(platform)}
    places = {name: place for name, place in found.items() if place is not None}
    missing = dict.fromkeys(found.keys() - places.keys(), "it is not in the tree")
    return replace(select_preloads(platform, missing), places=places)


def select_preloads(platform: project_names.Platform, left_out: Mapping[str, str]) -> Preloads:
    """Split the names; SdkError when a required one is among those left out."""
    for name in _load_preload_table().required:
        if name in left_out:
            raise errors.SdkError(
                f"the ROCm SDK has no {name}: {left_out[name]}", tip="install the libraries: rocm[libraries]"
            )
    names = list_preload_names(platform)
    libraries = tuple(name for name in names if name not in left_out)
    return Preloads(libraries, {name: left_out[name] for name in names if name in left_out})


def render_rocm_init(rocm_version: str, preloads: Preloads) -> str:
    """Write the module. The same input gives the same text."""
    names = "".join(f'            "{name}",\n' for name in preloads.libraries)
    missing = "".join(
        f"# not preloaded, the SDK of the build has not got it: {name}\n" for name in preloads.left_out
    )
    return f'''"""Start the ROCm packages that this torch was built with. Generated; edits are lost."""

{missing}
def initialize():
    """Load the ROCm libraries before torch's own, and warn when another ROCm is installed."""
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames=[
{names}        ],
        check_version="{rocm_version}",
    )
'''


def render_installed_init(rocm_version: str, root: Path, preloads: Preloads) -> str:
    """Write the module of a torch that was built on an installed ROCm. The same input gives the same text.

    The libraries are looked for in the folder that ``ROCM_PATH`` names, in that of the build, in ROCm's
    Python packages of that very version, and by the loader: the first that has the HIP runtime is taken.
    """
    names = "".join(f'    "{name}": "{preloads.places[name]}",\n' for name in preloads.libraries)
    return f'''"""Load the installed ROCm that this torch was built on. Generated; edits are lost."""

import ctypes
import os

ROCM_VERSION = "{rocm_version}"
ROCM_PATH = "{root.as_posix()}"  # of the build; the variable of this name goes before it
LIBRARIES = {{  # where each is below that folder
{names}}}


def initialize():
    """Load ROCm's libraries, so that torch's own find them loaded; ImportError where there is no ROCm."""
    runtime = LIBRARIES["amdhip64"]
    roots = [root for root in (os.environ.get("ROCM_PATH"), ROCM_PATH) if root]
    for root in roots:
        if os.path.exists(os.path.join(root, runtime)):
            _check_version(root)
            _load_libraries(root)
            return
    if _initialize_packages():
        return
    try:
        ctypes.CDLL(os.path.basename(runtime), mode=ctypes.RTLD_GLOBAL)
    except OSError as cause:
        raise ImportError(
            f"this torch was built on ROCm {{ROCM_VERSION}}, and {{' or '.join(roots)}} has no {{runtime}}: "
            f"install that ROCm, let ROCM_PATH name its folder, or install rocm[libraries]=={{ROCM_VERSION}}"
        ) from cause


def _load_libraries(root):
    for name, place in LIBRARIES.items():
        path = os.path.join(root, place)
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as cause:  # which of the others torch needs, the loader says
            if name == "amdhip64":
                raise ImportError(f"{{path}} of ROCm cannot be loaded: {{cause}}") from cause


def _initialize_packages():
    """Tell whether ROCm's Python packages of that very version are installed; load their libraries then."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        if version("rocm") != ROCM_VERSION:
            return False
        import rocm_sdk
    except (PackageNotFoundError, ImportError):
        return False
    rocm_sdk.initialize_process(preload_shortnames=list(LIBRARIES), check_version=ROCM_VERSION)
    return True


def _check_version(root):
    import warnings

    try:
        with open(os.path.join(root, ".info", "version"), encoding="utf-8") as file:
            version = file.read().strip()
    except OSError:
        return
    if version.split(".")[:2] != ROCM_VERSION.split(".")[:2]:
        warnings.warn(f"torch was built on ROCm {{ROCM_VERSION}}, and {{root}} is {{version}}", stacklevel=3)
'''


def write_generated_file(source: Path, name: str, text: str, *, env: Mapping[str, str]) -> bool:
    """Write a generated file into a source tree if its content changes; tell whether it did.

    A change of its date alone would rebuild what depends on it. Git is told not to see the file.
    """
    path = source / name
    changed = not path.is_file() or path.read_bytes() != text.encode("utf-8")
    if changed:
        files.write_atomically(path, text)
    generated_files.exclude_from_git(source, [name], env)
    return changed

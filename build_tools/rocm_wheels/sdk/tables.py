"""Which artifact goes into which package, and which programs get a console script.

Source of the tables: the packages that ROCm publishes (ROCm/TheRock,
``build_tools/build_python_packages.py`` and ``docs/packaging/python_packaging.md``, 2026-08).
An artifact of an unknown name is in ``rocm-sdk-devel`` only, and the build says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.sdk.artifacts import Artifact

CORE = frozenset({
    "amd-dbgapi", "amd-llvm", "aqlprofile", "base", "core-amdsmi", "core-hip", "core-hipinfo",
    "core-kpack", "core-ocl", "core-runtime", "hipfile", "hipify", "host-blas", "host-suite-sparse",
    "rocdecode", "rocgdb", "rocjpeg", "rocprofiler-sdk", "rocr-debug-agent", "sysdeps",
    "sysdeps-amd-mesa", "sysdeps-expat", "sysdeps-gmp", "sysdeps-mpfr", "sysdeps-ncurses",
    "sysdeps-util-linux", "wsl-rocdxg",
})  # fmt: skip
CORE_LIBRARIES_ONLY = frozenset({"rocjitsu-hotswap"})
CORE_WITH_HEADERS = frozenset({"core-hip", "core-ocl"})
"""hiprtc looks for the HIP headers in its own tree."""

LIBRARIES = frozenset({
    "blas", "fft", "hipblasltprovider", "hipdnn", "hipkernelprovider", "miopen", "miopenprovider",
    "rand", "rccl", "rpp",
})  # fmt: skip
DEVEL_ONLY = frozenset({
    "flatbuffers", "hipthreads", "libhipcxx", "mirage", "nlohmann-json", "prim", "rocjitsu",
    "rocshmem", "rocwmma",
})  # fmt: skip
PROFILER = frozenset({"rocprofiler-compute", "rocprofiler-systems"})
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


@dataclass(frozen=True)
class Tool:
    """A program of the core package; ``devel`` when it wants headers and libraries beside it."""

    path: str
    devel: bool = True


TOOLS: dict[str, Tool] = {
    "amdclang": Tool("lib/llvm/bin/amdclang"),
    "amdclang++": Tool("lib/llvm/bin/amdclang++"),
    "amdclang-cl": Tool("lib/llvm/bin/amdclang-cl"),
    "amdclang-cpp": Tool("lib/llvm/bin/amdclang-cpp"),
    "amdflang": Tool("lib/llvm/bin/amdflang"),
    "amdlld": Tool("lib/llvm/bin/amdlld"),
    "amd-smi": Tool("bin/amd-smi", devel=False),
    "hipInfo": Tool("bin/hipInfo", devel=False),
    "hipcc": Tool("bin/hipcc"),
    "hipconfig": Tool("bin/hipconfig"),
    "hipify-clang": Tool("bin/hipify-clang"),
    "hipify-perl": Tool("bin/hipify-perl"),
    "offload-arch": Tool("lib/llvm/bin/offload-arch"),
    "roc-obj": Tool("bin/roc-obj"),
    "roc-obj-extract": Tool("bin/roc-obj-extract"),
    "roc-obj-ls": Tool("bin/roc-obj-ls"),
    "roccoremerge": Tool("bin/roccoremerge"),
    "rocgdb": Tool("bin/rocgdb"),
    "rocm-smi": Tool("bin/rocm-smi", devel=False),
    "rocm_agent_enumerator": Tool("bin/rocm_agent_enumerator", devel=False),
    "rocminfo": Tool("bin/rocminfo", devel=False),
    "rocpd": Tool("bin/rocpd"),
    "rocpd2csv": Tool("bin/rocpd2csv"),
    "rocpd2otf2": Tool("bin/rocpd2otf2"),
    "rocpd2pftrace": Tool("bin/rocpd2pftrace"),
    "rocpd2summary": Tool("bin/rocpd2summary"),
    "rocprofv3": Tool("bin/rocprofv3"),
    "rocprofv3-attach": Tool("bin/rocprofv3-attach"),
    "rocprofv3-avail": Tool("bin/rocprofv3-avail"),
}


def in_core(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-core``."""
    name, component = artifact.name, artifact.component
    return artifact.generic and (
        (name in CORE and component in ("lib", "run"))
        or (name in CORE_LIBRARIES_ONLY and component == "lib")
        or (name in CORE_WITH_HEADERS and component == "dev")
    )


def in_libraries(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-libraries``."""
    return artifact.generic and artifact.name in LIBRARIES and artifact.component == "lib"


def in_device(artifact: Artifact, target: str) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-device-<target>``; xnack variants share one."""
    return artifact.target == target and artifact.name in LIBRARIES and artifact.component == "lib"


def in_profiler(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-profiler``."""
    return artifact.generic and artifact.name in PROFILER and artifact.component in ("lib", "run")


def in_devel(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-devel``."""
    return artifact.generic and artifact.name not in PROFILER and artifact.component not in NOT_IN_DEVEL


def is_known(artifact: Artifact) -> bool:
    """Tell whether a table above names the artifact."""
    return artifact.name in CORE | CORE_LIBRARIES_ONLY | LIBRARIES | DEVEL_ONLY | PROFILER


def python_name(tool: str) -> str:
    """Return the function name of a console script: ``amdclang++`` → ``amdclang_plus_plus``."""
    return tool.replace("++", "_plus_plus").replace("-", "_")

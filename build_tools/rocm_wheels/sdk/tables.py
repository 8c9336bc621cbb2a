"""Which artifact goes into which package, and which programs get a console script.

Source of the tables: the packages that ROCm publishes (ROCm/TheRock,
``build_tools/build_python_packages.py`` and ``docs/packaging/python_packaging.md``, 2026-08).
An artifact of an unknown name is in ``rocm-sdk-devel`` only, and the build says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.sdk.artifacts import Artifact

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


@dataclass(frozen=True)
class ConsoleTool:
    """A program of the core package; ``devel`` when it wants headers and libraries beside it."""

    path: str
    devel: bool = True


CONSOLE_TOOLS: dict[str, ConsoleTool] = {
    "amdclang": ConsoleTool("lib/llvm/bin/amdclang"),
    "amdclang++": ConsoleTool("lib/llvm/bin/amdclang++"),
    "amdclang-cl": ConsoleTool("lib/llvm/bin/amdclang-cl"),
    "amdclang-cpp": ConsoleTool("lib/llvm/bin/amdclang-cpp"),
    "amdflang": ConsoleTool("lib/llvm/bin/amdflang"),
    "amdlld": ConsoleTool("lib/llvm/bin/amdlld"),
    "amd-smi": ConsoleTool("bin/amd-smi", devel=False),
    "hipInfo": ConsoleTool("bin/hipInfo", devel=False),
    "hipcc": ConsoleTool("bin/hipcc"),
    "hipconfig": ConsoleTool("bin/hipconfig"),
    "hipify-clang": ConsoleTool("bin/hipify-clang"),
    "hipify-perl": ConsoleTool("bin/hipify-perl"),
    "offload-arch": ConsoleTool("lib/llvm/bin/offload-arch"),
    "roc-obj": ConsoleTool("bin/roc-obj"),
    "roc-obj-extract": ConsoleTool("bin/roc-obj-extract"),
    "roc-obj-ls": ConsoleTool("bin/roc-obj-ls"),
    "roccoremerge": ConsoleTool("bin/roccoremerge"),
    "rocgdb": ConsoleTool("bin/rocgdb"),
    "rocm-smi": ConsoleTool("bin/rocm-smi", devel=False),
    "rocm_agent_enumerator": ConsoleTool("bin/rocm_agent_enumerator", devel=False),
    "rocminfo": ConsoleTool("bin/rocminfo", devel=False),
    "rocpd": ConsoleTool("bin/rocpd"),
    "rocpd2csv": ConsoleTool("bin/rocpd2csv"),
    "rocpd2otf2": ConsoleTool("bin/rocpd2otf2"),
    "rocpd2pftrace": ConsoleTool("bin/rocpd2pftrace"),
    "rocpd2summary": ConsoleTool("bin/rocpd2summary"),
    "rocprofv3": ConsoleTool("bin/rocprofv3"),
    "rocprofv3-attach": ConsoleTool("bin/rocprofv3-attach"),
    "rocprofv3-avail": ConsoleTool("bin/rocprofv3-avail"),
}


def in_core(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-core``."""
    name, component = artifact.name, artifact.component
    return artifact.generic and (
        (name in CORE_ARTIFACTS and component in ("lib", "run"))
        or (name in CORE_LIBRARIES_ONLY and component == "lib")
        or (name in CORE_WITH_HEADERS and component == "dev")
    )


def in_libraries(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-libraries``."""
    return artifact.generic and artifact.name in LIBRARY_ARTIFACTS and artifact.component == "lib"


def in_device(artifact: Artifact, target: str) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-device-<target>``; xnack variants share one."""
    return artifact.target == target and artifact.name in LIBRARY_ARTIFACTS and artifact.component == "lib"


def in_profiler(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-profiler``."""
    return artifact.generic and artifact.name in PROFILER_ARTIFACTS and artifact.component in ("lib", "run")


def in_devel(artifact: Artifact) -> bool:
    """Tell whether an artifact goes into ``rocm-sdk-devel``."""
    return (
        artifact.generic
        and artifact.name not in PROFILER_ARTIFACTS
        and artifact.component not in NOT_IN_DEVEL
    )


def is_known_artifact(artifact: Artifact) -> bool:
    """Tell whether a table above names the artifact."""
    return (
        artifact.name
        in CORE_ARTIFACTS | CORE_LIBRARIES_ONLY | LIBRARY_ARTIFACTS | DEVEL_ONLY | PROFILER_ARTIFACTS
    )


def name_console_function(tool: str) -> str:
    """Return the function name of a console script: ``amdclang++`` → ``amdclang_plus_plus``."""
    return tool.replace("++", "_plus_plus").replace("-", "_")

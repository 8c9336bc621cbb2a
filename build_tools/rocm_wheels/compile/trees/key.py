"""What a build tree was configured for: two builds with one key go on in each other's tree."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.shell import redact_for_comparison

# Variables that a first configure writes down for good, or that change what is compiled. The names of
# torch's and triton's are listed closely: TORCH_LOGS or TRITON_CACHE_DIR must not cost a new tree.
_CONFIGURE_VARIABLES = re.compile(
    r"(?:CC|CXX|CPP|LD|AR|HIPCC|BLAS|CPATH|LIBRARY_PATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|PKG_CONFIG_PATH"
    r"|LDSHARED|LDCXXSHARED|ARFLAGS|COMPILER_PATH|GCC_EXEC_PREFIX|CCC_OVERRIDE_OPTIONS"
    r"|(?:C|CXX|CPP|LD|HIP|HIPCC)FLAGS|DISTUTILS_USE_SDK|FORCE_CUDA|DEBUG|REL_WITH_DEB_INFO|BUILD_TYPE"
    r"|HIPCC_(?:COMPILE|LINK)_FLAGS_APPEND"
    r"|PYTORCH_ROCM_ARCH|TORCH_CUDA_ARCH_LIST|ROCM_(?:HOME|PATH)|MKL_ROOT"
    r"|HIP_(?:PATH|PLATFORM|CLANG_PATH|DEVICE_LIB_PATH)"
    r"|TRITON_(?:BUILD|APPEND|OFFLINE|CODEGEN|PLUGIN|WHEEL_NAME)\w*"
    r"|(?:JSON|PYBIND11)_SYSPATH"
    r"|WERROR|ONNX_(?:ML|NAMESPACE)|MKL_THREADING|MAGMA_HOME|ATEN_(?:THREADING|AVX\w*)|_?GLIBCXX_USE_CXX11_ABI"
    # what torch hands on to CMake besides USE_…, BUILD_… and CMAKE_… (its tools/setup_helpers/cmake.py)
    r"|UBSAN_FLAGS|WITH_BLAS|INSTALL_TEST|INTEL_(?:MKL|OMP)_DIR|(?:MKLDNN|ONEDNN)_(?:CPU_RUNTIME|THREADING)"
    r"|MSVC_Z7_OVERRIDE|EXPERIMENTAL_SINGLE_THREAD_POOL|OPENSSL_ROOT_DIR|STATIC_DISPATCH_BACKEND"
    r"|SELECTED_OP_LIST|TRACING_BASED|PYTHON_LIB_REL_PATH|EXTRA_CAFFE2_CMAKE_FLAGS|FFMPEG_ROOT"
    r"|(?:USE|CMAKE|SKBUILD|CAFFE2|TORCHVISION|APEX|LLVM|OpenBLAS|OPENBLAS|AOTRITON|Numa|libuv|LIBUV)_\w+)"
)
# the versions of Visual Studio and of Windows' SDK are in the first two
_MSVC_VARIABLES = re.compile(r"INCLUDE|LIB|_?CL_?|_?LINK_?")
_SPEED_ONLY = ("CMAKE_BUILD_PARALLEL_LEVEL",)
# BUILD_TEST=0 is torch's, BUILD_ID and BUILD_URL are a CI server's and differ each time
_SWITCH_VALUE = re.compile(r"0|1|ON|OFF|TRUE|FALSE|YES|NO|Y|N", re.IGNORECASE)
_NO_SWITCH_NAME = re.compile(r"BUILD_(?:NUMBER|ID|VERSION)")
_PYTHON_PARTS = ("python", "python tag")


@dataclass(frozen=True)
class TreeKey:
    """What a build tree is configured for, in parts that can be read and compared.

    ``shared``: all Pythons of a configuration have one tree, which belongs to one of them at a time.
    """

    parts: Mapping[str, str]
    shared: bool = False

    @property
    def tree(self) -> Mapping[str, str]:
        """The parts that tell one tree from another."""
        return {
            name: value for name, value in self.parts.items() if not (self.shared and name in _PYTHON_PARTS)
        }

    @property
    def python(self) -> Mapping[str, str]:
        """The parts that say whose a shared tree is now; empty for a tree of one Python alone."""
        return {name: value for name, value in self.parts.items() if self.shared and name in _PYTHON_PARTS}

    @property
    def name(self) -> str:
        """The tree's parts as 12 hexadecimal digits."""
        text = json.dumps(dict(self.tree), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]

    def list_differences(self, other: TreeKey) -> tuple[str, ...]:
        """Return the names of the parts in which the trees of two keys differ."""
        names = {*self.tree, *other.tree}
        return tuple(sorted(name for name in names if self.tree.get(name) != other.tree.get(name)))


def make_tree_key(request: BuildRequest, env: Mapping[str, str], *, python: Path, python_tag: str) -> TreeKey:
    """Make the key of a build from what a configure step writes down.

    Source, Python, ROCm, variables, and which programs the names of the host's compilers stand for. Of what
    is set for this project alone, by recipe or user, it is not known what it changes: all of it counts.
    """
    alone = {*request.recipe_variables, *request.set_env} - {*_SPEED_ONLY}
    parts = {
        n: redact_for_comparison(n, value)
        for n, value in env.items()
        if n in alone or _is_configuration(n, value)
    }
    if request.platform == "windows":
        parts |= {
            n: redact_for_comparison(n, value) for n, value in env.items() if _MSVC_VARIABLES.fullmatch(n)
        }
    parts |= {
        "compilers": _describe_compilers(env),
        "platform": request.platform,
        "python": str(python),
        "python tag": python_tag,
        "ROCm": request.sdk.version,
        "source": str(request.source),  # objects of another checkout look newer than this one's files
    }
    return TreeKey(parts, shared=request.project.build.across_pythons is not None)


def _describe_compilers(env: Mapping[str, str]) -> str:
    """Return the files behind CC and CXX (``ccache gcc`` names two), and the names that builds try without.

    An update of the system puts another compiler in the same place: size and time tell.
    """
    named_programs = [word for name in ("CC", "CXX") for word in env.get(name, "").split() if word[0] != "-"]
    return _describe_programs(
        tuple(dict.fromkeys([*named_programs, "cc", "c++", "gcc", "g++"])), env.get("PATH", "")
    )


@lru_cache(maxsize=64)  # a plan of hundreds of builds asks the same for each; a step asks in its own process
def _describe_programs(names: tuple[str, ...], path: str) -> str:
    programs = {
        name: os.path.realpath(location) for name in names if (location := shutil.which(name, path=path))
    }
    states = {location: Path(location).stat() for location in programs.values()}
    descriptions = {
        location: f"{state.st_size} bytes, {int(state.st_mtime)}" for location, state in states.items()
    }
    return " ".join(f"{name}={location} ({descriptions[location]})" for name, location in programs.items())


def _is_configuration(name: str, value: str) -> bool:
    if name.startswith("BUILD_") and name != "BUILD_TYPE":
        return bool(_SWITCH_VALUE.fullmatch(value)) and not _NO_SWITCH_NAME.fullmatch(name)
    return bool(_CONFIGURE_VARIABLES.fullmatch(name)) and name not in _SPEED_ONLY

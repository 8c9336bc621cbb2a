"""Environment variables of a build: how they are extended, and those of Visual Studio's developer prompt.

The prompt says where link.exe, the Windows SDK and MSVC's libraries are (written, never run on Windows).
A shell that knows nothing of it builds with whatever ``link.exe`` is first on PATH, and in Git's bash
that is the one of coreutils (ROCm/TheRock#827).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.core import errors, log, process

if TYPE_CHECKING:
    from rocm_wheels.models import project_names


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
# What a user may have set that reaches a wheel, or the programs that make it, without a configure step
USER_VARIABLES = (
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "SOURCE_DATE_EPOCH",
    "PYTORCH_VERSION",
    "TORCH_PACKAGE_NAME",
)
# the second is set by Snakemake for each of its jobs
SPEED_ONLY_VARIABLES = ("CMAKE_BUILD_PARALLEL_LEVEL", "OPENBLAS_NUM_THREADS")
# BUILD_TEST=0 is torch's, BUILD_ID and BUILD_URL are a CI server's and differ each time
_SWITCH_VALUE = re.compile(r"0|1|ON|OFF|TRUE|FALSE|YES|NO|Y|N", re.IGNORECASE)
_NO_SWITCH_NAME = re.compile(r"BUILD_(?:NUMBER|ID|VERSION)")


def is_configuration_variable(name: str, value: str) -> bool:
    """Tell whether a variable is one that configures builds, and no server's (``BUILD_ID``)."""
    if name.startswith("BUILD_") and name != "BUILD_TYPE":
        return bool(_SWITCH_VALUE.fullmatch(value)) and not _NO_SWITCH_NAME.fullmatch(name)
    return bool(_CONFIGURE_VARIABLES.fullmatch(name)) and name not in SPEED_ONLY_VARIABLES


def look_up_variable(env: Mapping[str, str], name: str) -> str | None:
    """Return a variable that a Windows program set: Python gives all names there in capitals."""
    return env.get(name) or env.get(name.upper()) or None


def add_flags(env: dict[str, str], name: str, flags: str) -> None:
    """Put compiler flags before the user's own, which then have the last word."""
    env[name] = f"{flags} {env.get(name, '')}".strip()


def prepend_path(env: dict[str, str], name: str, folder: Path, platform: project_names.Platform) -> None:
    """Put a folder before what a search path holds already; the separator is the platform's."""
    separator = ";" if platform == "windows" else ":"
    rest = [part for part in env.get(name, "").split(separator) if part and part != os.fspath(folder)]
    env[name] = separator.join([os.fspath(folder), *rest])


_VSWHERE_PATH = Path("Microsoft Visual Studio", "Installer", "vswhere.exe")
_VSWHERE_ARGUMENTS = (
    *("-latest", "-products", "*", "-property", "installationPath"),
    *("-requires", "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"),
)
_PROMPT_SECONDS = 300.0


def add_visual_studio(env: Mapping[str, str], platform: str) -> dict[str, str]:
    """Return the environment that a build on a platform begins in (``sys.platform``).

    On Windows outside of a developer prompt it is that of the newest Visual Studio with C++ for x64. Without
    any it is as it was: what misses a compiler says so. Raises BuildError for a prompt that fails.
    """
    if (
        platform != "win32"
        or look_up_variable(env, "VCToolsInstallDir")
        or look_up_variable(env, "VSCMD_VER")
    ):
        return dict(env)
    installer = Path(look_up_variable(env, "ProgramFiles(x86)") or r"C:\Program Files (x86)") / _VSWHERE_PATH
    if not installer.is_file():
        return dict(env)
    installations = process.capture_output(
        [str(installer), *_VSWHERE_ARGUMENTS], env=env, timeout=_PROMPT_SECONDS, check=errors.BuildError
    ).strip()
    if not installations:
        return dict(env)
    script = Path(installations.splitlines()[0]) / "VC" / "Auxiliary" / "Build" / "vcvars64.bat"
    log.log_note(f"compilers are those of {script}")
    return {**env, **_read_prompt_variables(script, env)}


def _read_prompt_variables(script: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables after a batch file, with names in capitals, as Python has them there.

    A file of ours calls it: of a command with quotes inside, cmd.exe and Python make two different things.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        ours = Path(folder) / "prompt.bat"
        lines = ("@chcp 65001 >nul", f'@call "{script}" >nul', "@if errorlevel 1 exit /b 1", "@set")
        ours.write_text("".join(f"{line}\r\n" for line in lines), encoding="utf-8", newline="")
        words = [look_up_variable(env, "ComSpec") or "cmd.exe", "/d", "/c", str(ours)]
        tip = "start from a developer prompt of Visual Studio, or repair its installation"
        output = process.capture_output(
            words, env=env, timeout=_PROMPT_SECONDS, check=errors.BuildError, description=str(script), tip=tip
        )
    pairs = (line.partition("=") for line in output.splitlines())
    variables = {name.upper(): value for name, equal, value in pairs if name and equal}
    if not look_up_variable(variables, "VCToolsInstallDir"):
        raise errors.BuildError(f"{script} ends well, and says nothing of compilers", tip=tip)
    return variables

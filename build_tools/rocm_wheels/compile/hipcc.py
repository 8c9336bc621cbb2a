"""The SDK's compiler driver for HIP, started outside a build as a build starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.errors import SdkError
from rocm_wheels.model.project import Platform


def find_hipcc(sdk: SdkTree, platform: Platform) -> Path:
    """Return the driver's place. Raises SdkError when the SDK has none."""
    program = sdk.bin / ("hipcc.exe" if platform == "windows" else "hipcc")
    if not program.is_file():
        raise SdkError(
            f"the ROCm SDK {sdk.version} has no {program.name} in {sdk.bin}",
            tip="install its development files: rocm[libraries,devel]",
        )
    return program


def make_hipcc_environment(sdk: SdkTree, env: Mapping[str, str], platform: Platform) -> dict[str, str]:
    """Return the user's environment with what ``build_environment`` tells hipcc; no compiler cache."""
    variables = {name: value for name, value in env.items() if name != "HIP_CLANG_LAUNCHER"}
    variables["ROCM_HOME"] = variables["ROCM_PATH"] = os.fspath(sdk.root)
    prepend_path(variables, "PATH", sdk.bin, platform)
    if sdk.bitcode is not None:
        variables["HIP_DEVICE_LIB_PATH"] = os.fspath(sdk.bitcode)
    if sdk.clang is not None:
        variables["HIP_CLANG_PATH"] = sdk.clang.as_posix()
    return variables

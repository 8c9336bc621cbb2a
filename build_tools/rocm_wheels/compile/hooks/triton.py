"""triton: variables its checkout left, a CMake search that must not find ROCm's LLVM, LLVM on Windows."""

from __future__ import annotations

import os
from pathlib import Path

from rocm_wheels.compile import build_request, hooks, variables
from rocm_wheels.core import errors

_SUFFIX_VARIABLE = "TRITON_WHEEL_VERSION_SUFFIX"
_NAME_VARIABLE = "TRITON_WHEEL_NAME"


def read_triton_environment(source: Path) -> dict[str, str]:
    """Read ``build_env.json``, which the checkout of triton writes; no file, no variables.

    Raises DataError unless it is one object of strings.
    """
    import json

    path = source / "build_env.json"
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise errors.DataError(f"cannot read {path}", tip="check triton out again") from cause
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise errors.DataError(f"{path} must be one object of strings", tip="check triton out again")
    return value


def _complete_environment(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Complete the variables. The suffix follows the one of the checkout; triton joins it to its version."""
    env.update(
        {name: value for name, value in request.triton_environment.items() if name != _SUFFIX_VARIABLE}
    )
    distribution = request.project.distribution
    if _normalize_name(env.get(_NAME_VARIABLE) or distribution) != _normalize_name(distribution):
        raise errors.UsageError(
            (
                f"{_NAME_VARIABLE} is {env[_NAME_VARIABLE]}, but the recipe builds {distribution}, which "
                "torch requires"
            ),
            tip=(
                f"unset {_NAME_VARIABLE}, or give `distribution` that name in "
                f"repos/{request.project.name}.yaml"
            ),
        )
    env[_SUFFIX_VARIABLE] = request.triton_environment.get(_SUFFIX_VARIABLE, "") + request.suffix
    # CMAKE_PREFIX_PATH would give MLIR the LLVM of ROCm instead of triton's own: ROCm/TheRock#1999
    variables.add_flags(env, "TRITON_APPEND_CMAKE_ARGS", "-DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=FALSE")
    if request.platform == "windows":
        _set_windows_llvm(request, env)


def _normalize_name(name: str) -> str:
    """Return the one spelling of a distribution's name (PEP 503)."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def _set_windows_llvm(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Point at an unpacked LLVM. It is not downloaded here: its archive comes without a checksum."""
    llvm_folder = env.get("LLVM_SYSPATH")
    if not llvm_folder:
        raise errors.UsageError(
            "triton on Windows needs an LLVM build, and LLVM_SYSPATH is not set",
            tip="unpack the llvm-…-windows-x64 archive for the hash in triton's cmake/llvm-hash.txt,"
            " and set LLVM_SYSPATH to its folder",
        )
    root = Path(llvm_folder)
    env["LLVM_BUILD_DIR"] = llvm_folder
    env["LLVM_INCLUDE_DIRS"] = os.fspath(root / "include")
    env["LLVM_LIBRARY_DIR"] = os.fspath(root / "lib")


HOOKS = hooks.Hooks(environment=_complete_environment)

"""The environment of a build: a pure function from a request and a base environment.

What a user has set for compilers and search paths stays and comes first where the program takes the
first, or last where it takes the last; only what a build cannot do without is replaced: what names ROCm and
its compilers, the targets, versions, and what the recipe sets (``set_env`` goes before that). Nothing set for
one project is seen by another. Rules and figures: ROCm/TheRock
external-builds/pytorch/build_prod_wheels.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile import build_request, hooks
from rocm_wheels.compile.variables import add_flags, prepend_path
from rocm_wheels.models import project, versions

# GCC 12 and newer warn wrongly about code that these projects compile with -Werror
_GCC_FLAGS = "-Wno-error=maybe-uninitialized -Wno-error=uninitialized -Wno-error=restrict"


def compose_environment(request: build_request.BuildRequest, base: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a build; ``base`` is not changed.

    Raises SdkError or UsageError when the SDK or the request lacks what the project needs.
    """
    env = dict(base)
    env.update(_list_general_variables(request, base))
    env.update(_list_rocm_variables(request))
    prepend_path(env, "CMAKE_PREFIX_PATH", request.sdk.cmake, request.platform)
    prepend_path(env, "PATH", request.sdk.bin, request.platform)
    env.update(_list_optional_parts(request, base))
    if request.platform == "linux":
        add_flags(env, "CXXFLAGS", _GCC_FLAGS)
        add_flags(env, "CPPFLAGS", _GCC_FLAGS)
    else:
        env.update(_list_windows_compilers(request))
    if request.cache is None:
        env.update(_list_launcher_variables(request, base))
    else:
        env.update(request.cache.launcher_variables(request.platform))
    env.update(_list_recipe_variables(request))
    env.update(_list_version_variables(request))
    hooks.find_hooks(request.project).environment(request, env)
    env.update(request.set_env)
    return env


def list_exact_pins(request: build_request.BuildRequest, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the finished wheel requires at one version (``torch==2.9.0+rocm7.1.0``), by its recipe.

    ``env`` is the environment of the build: a version that ``set_env`` names goes before the one that it is
    built against, and an empty one is no pin. Raises UsageError for what is no version.
    """
    pins = []
    for pin in request.project.build.pins:
        version = env.get(pin.variable or "", request.against[pin.project])
        if version:
            pins.append(
                versions.check_exact_requirement(
                    f"{project.load_project(pin.project).distribution}=={version}"
                )
            )
    return tuple(pins)


def _list_general_variables(request: build_request.BuildRequest, base: Mapping[str, str]) -> dict[str, str]:
    """Return variables about the build itself; what a user has set of the first ones is left as it is."""
    defaults = {
        "PYTHONHASHSEED": "0",  # the order of sets reaches generated code
        "USE_KINETO": "ON" if request.platform == "linux" else "OFF",
        "USE_GLOO": "ON",
    }
    if request.commit_epoch is not None:
        defaults["SOURCE_DATE_EPOCH"] = str(request.commit_epoch)
    return {
        **{name: base.get(name, value) for name, value in defaults.items()},
        "PYTHONUTF8": "1",  # build files hold UTF-8, whatever the locale
        "PYTORCH_ROCM_ARCH": ";".join(request.targets),  # CMake reads it as a list
    }


def _list_launcher_variables(request: build_request.BuildRequest, base: Mapping[str, str]) -> dict[str, str]:
    """Return what has hipcc compile the same bytes in every folder (``hip_launcher.sh``).

    ROCm 7.13's hipcc and newer look at HIP_CLANG_LAUNCHER, which a compiler cache or the user may need
    himself. Shells split it at spaces.
    """
    launcher = Path(__file__).with_name("hip_launcher.sh")
    if request.platform != "linux" or "HIP_CLANG_LAUNCHER" in base or " " in os.fspath(launcher):
        return {}
    return {"HIP_CLANG_LAUNCHER": f"sh {launcher}", "ROCM_WHEELS_SOURCE": os.fspath(request.source)}


def _list_recipe_variables(request: build_request.BuildRequest) -> dict[str, str]:
    targets, root = ";".join(request.targets), os.fspath(request.sdk.root)
    variables = request.recipe_variables
    return {
        name: text.replace("{targets}", targets).replace("{rocm}", root) for name, text in variables.items()
    }


def _list_rocm_variables(request: build_request.BuildRequest) -> dict[str, str]:
    root = os.fspath(request.sdk.root)
    return {"ROCM_HOME": root, "ROCM_PATH": root}


def _list_optional_parts(request: build_request.BuildRequest, base: Mapping[str, str]) -> dict[str, str]:
    """Return what points at optional parts of the SDK; ``list_sdk_warnings`` tells about missing ones.

    With ROCM_PATH set, clang looks for its device libraries in the wrong place of this layout:
    HIP_DEVICE_LIB_PATH says where they are. hipcc and the FindHIP.cmake beside it look for clang in two
    places (lib/llvm-21/bin and llvm/bin in Debian's ROCm 6.4): HIP_CLANG_PATH says it to both. A user's own
    BLAS is left as it is.
    """
    variables: dict[str, str] = {}
    if request.sdk.clang is not None:
        variables["HIP_CLANG_PATH"] = request.sdk.clang.as_posix()
    if request.sdk.bitcode is not None:
        variables["HIP_DEVICE_LIB_PATH"] = os.fspath(request.sdk.bitcode)
    if request.sdk.host_math is not None and base.keys().isdisjoint(("BLAS", "OpenBLAS_HOME")):
        variables["BLAS"] = "OpenBLAS"
        variables["OpenBLAS_HOME"] = os.fspath(request.sdk.host_math)
        variables["OpenBLAS_LIB_NAME"] = "rocm-openblas"
    return variables


def _list_windows_compilers(request: build_request.BuildRequest) -> dict[str, str]:
    llvm = request.sdk.root / "lib" / "llvm" / "bin"
    compiler = os.fspath(llvm / "clang-cl.exe")
    return {"HIP_CLANG_PATH": llvm.as_posix(), "CC": compiler, "CXX": compiler}


def _list_version_variables(request: build_request.BuildRequest) -> dict[str, str]:
    rules = request.project.version
    variables: dict[str, str] = {}
    if request.version is not None:
        variables.update(dict.fromkeys(rules.variables, request.version))
    if rules.build_number is not None:
        variables[rules.build_number] = request.build_number
    if rules.suffix_variable is not None:
        variables[rules.suffix_variable] = request.suffix
    for pin in request.project.build.pins:
        if pin.variable is not None:
            variables[pin.variable] = request.against[pin.project]
    return variables

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

# what reads which flags: CMake and setuptools; CMake for HIP, hipcc
_HOST_FLAGS, _DEVICE_FLAGS = ("CFLAGS", "CXXFLAGS"), ("HIPFLAGS", "HIPCC_COMPILE_FLAGS_APPEND")
# GCC 12 and newer warn wrongly about code that these projects compile with -Werror
_GCC_FLAGS = "-Wno-error=maybe-uninitialized -Wno-error=uninitialized -Wno-error=restrict"


def compose_environment(request: build_request.BuildRequest, base: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a build; ``base`` is not changed.

    Raises SdkError or UsageError when the SDK or the request lacks what the project needs.
    """
    env, sdk, root = dict(base), request.sdk, os.fspath(request.sdk.root)
    # the build itself: what a user has set of the first ones is left as it is
    env.setdefault("PYTHONHASHSEED", "0")  # the order of sets reaches generated code
    env.setdefault("USE_KINETO", "ON" if request.platform == "linux" else "OFF")
    env.setdefault("USE_GLOO", "ON")
    if request.commit_epoch is not None:
        env.setdefault("SOURCE_DATE_EPOCH", str(request.commit_epoch))
    env["PYTHONUTF8"] = "1"  # build files hold UTF-8, whatever the locale
    env["PYTORCH_ROCM_ARCH"] = ";".join(request.targets)  # CMake reads it as a list

    # ROCm and the parts that it may have; ``list_sdk_warnings`` tells about missing ones. With ROCM_PATH set,
    # clang looks for its device libraries in the wrong place of this layout: HIP_DEVICE_LIB_PATH says where
    # they are. hipcc and the FindHIP.cmake beside it look for clang in two places (lib/llvm-21/bin and
    # llvm/bin in Debian's ROCm 6.4): HIP_CLANG_PATH says it to both. A user's own BLAS is left as it is.
    env["ROCM_HOME"] = env["ROCM_PATH"] = root
    prepend_path(env, "CMAKE_PREFIX_PATH", sdk.cmake, request.platform)
    prepend_path(env, "PATH", sdk.bin, request.platform)
    if sdk.clang is not None:
        env["HIP_CLANG_PATH"] = sdk.clang.as_posix()
    if sdk.bitcode is not None:
        env["HIP_DEVICE_LIB_PATH"] = os.fspath(sdk.bitcode)
    if sdk.host_math is not None and base.keys().isdisjoint(("BLAS", "OpenBLAS_HOME")):
        env["BLAS"], env["OpenBLAS_HOME"] = "OpenBLAS", os.fspath(sdk.host_math)
        env["OpenBLAS_LIB_NAME"] = "rocm-openblas"

    # compilers, and what goes before them. ``hip_launcher.sh`` has hipcc compile the same bytes in every
    # folder: ROCm 7.13's and newer look at HIP_CLANG_LAUNCHER, which a compiler cache or the user may need
    # himself, and shells split it at spaces.
    if request.platform == "linux":
        add_flags(env, "CXXFLAGS", _GCC_FLAGS)
        add_flags(env, "CPPFLAGS", _GCC_FLAGS)
    else:
        llvm = sdk.root / "lib" / "llvm" / "bin"
        env["HIP_CLANG_PATH"] = llvm.as_posix()
        env["CC"] = env["CXX"] = os.fspath(llvm / "clang-cl.exe")
    # `__FILE__` and debug information name a file by its place in the tree, not by where that lies: wheels of
    # one commit are the same in every folder. What is compiled to be edited keeps the places for debuggers,
    # and flags are split at spaces.
    own_hooks = hooks.find_hooks(request.project)
    if request.platform == "linux" and not request.editable and " " not in os.fspath(request.source):
        for name in (*(() if own_hooks.shows_flags else _HOST_FLAGS), *_DEVICE_FLAGS):
            add_flags(env, name, f"-ffile-prefix-map={request.source}=.")
    launcher = Path(__file__).with_name("hip_launcher.sh")
    if request.cache is not None:
        env |= request.cache.launcher_variables(request.platform)
    elif request.platform == "linux":
        env["ROCM_WHEELS_SOURCE"] = os.fspath(request.source)
        if "HIP_CLANG_LAUNCHER" not in base and " " not in str(launcher):
            env["HIP_CLANG_LAUNCHER"] = f"sh {launcher}"
            env.setdefault("CMAKE_HIP_COMPILER_LAUNCHER", f"sh;{launcher}")  # where CMake calls clang itself
        # CMake reads these itself. CMAKE_PROJECT_INCLUDE, which torch's build would have to hand on, newer
        # ones do after `project()` (cmake/EnvVarForwarding.cmake): too late. A cache goes without:
        # sccache would compile all of it again in every folder.
        if own_hooks.shows_flags and not request.editable:
            for language in ("C", "CXX"):
                host_launcher = launcher.with_name("host_launcher.sh")
                env.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", f"sh;{host_launcher}")

    # the recipe, versions, and what somebody set for this build alone
    for name, text in request.recipe_variables.items():
        env[name] = text.replace("{targets}", ";".join(request.targets)).replace("{rocm}", root)
    rules = request.project.version
    if request.version is not None:
        env |= dict.fromkeys(rules.variables, request.version)
    if rules.build_number is not None:
        env[rules.build_number] = request.build_number
    if rules.suffix_variable is not None:
        env[rules.suffix_variable] = request.suffix
    for pin in request.project.build.pins:
        if pin.variable is not None:
            env[pin.variable] = request.against[pin.project]
    own_hooks.environment(request, env)
    return {**env, **request.set_env}


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

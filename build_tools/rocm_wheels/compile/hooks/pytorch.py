"""torch: what it requires, flash attention, ROCm's bundled libraries, ``_rocm_init.py``, DLLs on Windows."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.hooks.hook import Hooks, Preparation
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.rocm_init import render, write_generated
from rocm_wheels.compile.variables import add_flags, look_up, prepend_path
from rocm_wheels.errors import BuildError, SdkError, UsageError
from rocm_wheels.model.versions import rocm_requirement

_INIT = "torch/_rocm_init.py"
_OPENMP = "libomp140.x86_64.dll"


def _environment(request: BuildRequest, env: dict[str, str]) -> None:
    if request.flash_attention is None:
        raise UsageError("torch: flash attention must be decided before the environment is made")
    attention = "ON" if request.flash_attention else "OFF"
    env["USE_FLASH_ATTENTION"] = env["USE_MEM_EFF_ATTENTION"] = attention
    required = [rocm_requirement(request.sdk.version), request.triton_requirement]
    env["PYTORCH_EXTRA_INSTALL_REQUIREMENTS"] = "|".join(text for text in required if text)
    if request.platform == "linux":
        _bundled_libraries(request, env)


def _bundled_libraries(request: BuildRequest, env: dict[str, str]) -> None:
    """Point compiler, linker and pkg-config at what ROCm bundles: libdrm's headers, liblzma for aotriton.

    Packages made from an installed ROCm bundle nothing: there these libraries are the system's.
    """
    place = request.sdk.sysdeps
    if place is None and request.sdk.bundles:
        raise SdkError(
            f"the ROCm SDK has no {request.sdk.root / 'lib' / 'rocm_sysdeps'}, which torch needs on Linux",
            tip="install the development files: rocm[libraries,devel]",
        )
    includes = [folder for folder in (place and place / "include", request.sdk.roctracer) if folder]
    # A folder may have a space in its name: CMake and setuptools split these as a shell does. The quotes
    # begin after the option, because CMake's cache drops those around a whole value.
    add_flags(env, "CXXFLAGS", " ".join(f"-I{shlex.quote(str(folder))}" for folder in includes))
    if place is None:
        return
    add_flags(env, "LDFLAGS", f"-L{shlex.quote(str(place / 'lib'))}")
    prepend_path(env, "PKG_CONFIG_PATH", place / "lib" / "pkgconfig", request.platform)
    prepend_path(env, "LD_LIBRARY_PATH", place / "lib", request.platform)


def _prepare(request: BuildRequest, given: Preparation) -> None:
    if given.preloads is None:
        raise BuildError("torch: the SDK was not asked what it can preload")
    write_generated(request.source, _INIT, render(request.sdk.version, given.preloads), env=given.env)
    if request.platform == "windows":
        for source in windows_libraries(given.env):
            target = request.source / "torch" / "lib" / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def windows_libraries(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the DLLs that torch needs beside its own: MSVC's OpenMP, and libuv when libuv_ROOT is set.

    Raises BuildError when one that is asked for cannot be found.
    """
    redist = look_up(env, "VCToolsRedistDir")
    if redist is None:
        raise BuildError(
            f"VCToolsRedistDir is not set, so {_OPENMP} cannot be found",
            tip="start from a developer prompt of Visual Studio (vcvars64.bat)",
        )
    found = sorted(Path(redist).rglob(_OPENMP))
    if not found:
        raise BuildError(
            f"there is no {_OPENMP} below {redist}", tip="add the C++ redistributables to Visual Studio"
        )
    libraries = [found[0]]
    if root := look_up(env, "libuv_ROOT"):
        uv = Path(root) / "bin" / "uv.dll"
        if not uv.is_file():
            raise BuildError(f"libuv_ROOT is {root}, but there is no {uv}", tip="build libuv, or unset it")
        libraries.append(uv)
    return tuple(libraries)


def _settings(request: BuildRequest, folder: Path) -> tuple[str, ...]:
    """Name generated files that scikit-build-core would leave out, because git ignores them.

    To be deleted when pytorch/pytorch#191625 and #191629 are in every release that is built.
    """
    if not uses_scikit_build_core(folder):
        return ()
    files = [_INIT]
    if request.platform == "windows":
        files.append(f"torch/lib/{_OPENMP}")
        files += [name for name in ("torch/lib/uv.dll",) if (request.source / name).is_file()]
        if request.flash_attention:
            files += ["torch/lib/aotriton_v2.dll", "torch/lib/liblzma.dll"]
    return tuple(f"wheel.force-include.{name}={name}" for name in files)


def uses_scikit_build_core(folder: Path) -> bool:
    """Tell whether a tree's back end is scikit-build-core, also behind a wrapper of the tree's own."""
    path = folder / "pyproject.toml"
    if not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8").splitlines()
    return any(re.search(r"\bscikit_build_core\.build\b", line.split("#", 1)[0]) for line in lines)


HOOKS = Hooks(environment=_environment, prepare=_prepare, settings=_settings)

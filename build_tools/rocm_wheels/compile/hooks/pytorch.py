"""torch: what it requires, flash attention, ROCm's bundled libraries, ``_rocm_init.py``, DLLs on Windows."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile import build_request, hooks, sdk_tree, variables
from rocm_wheels.core import errors

_INIT_MODULE = "torch/_rocm_init.py"
_OPENMP_LIBRARY = "libomp140.x86_64.dll"


def _complete_environment(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    if request.flash_attention is None:
        raise errors.UsageError("torch: flash attention must be decided before the environment is made")
    attention = "ON" if request.flash_attention else "OFF"
    env["USE_FLASH_ATTENTION"] = env["USE_MEM_EFF_ATTENTION"] = attention
    required = [request.rocm_requirement, request.triton_requirement]
    env["PYTORCH_EXTRA_INSTALL_REQUIREMENTS"] = "|".join(text for text in required if text)
    if request.platform == "linux":
        _add_bundled_libraries(request, env)


def _add_bundled_libraries(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Point compiler, linker and pkg-config at what ROCm bundles: libdrm's headers, liblzma for aotriton.

    Packages made from an installed ROCm bundle nothing: there these libraries are the system's.
    """
    sysdeps = request.sdk.sysdeps
    if sysdeps is None and request.sdk.bundles and not request.sdk.is_installed:
        raise errors.SdkError(
            f"the ROCm SDK has no {request.sdk.root / 'lib' / 'rocm_sysdeps'}, which torch needs on Linux",
            tip="install the development files: rocm[libraries,devel]",
        )
    # not as -I of CXXFLAGS: torch.__config__.show() would say where ROCm was
    for folder in (request.sdk.roctracer, sysdeps and sysdeps / "include"):
        if folder is not None:
            variables.prepend_path(env, "CPATH", folder, request.platform)
    if sysdeps is None:
        return
    # A folder may have a space in its name: CMake splits these as a shell does. The quotes begin after the
    # option, because CMake's cache drops those around a whole value.
    variables.add_flags(env, "LDFLAGS", f"-L{shlex.quote(str(sysdeps / 'lib'))}")
    variables.prepend_path(env, "PKG_CONFIG_PATH", sysdeps / "lib" / "pkgconfig", request.platform)
    variables.prepend_path(env, "LD_LIBRARY_PATH", sysdeps / "lib", request.platform)


def _prepare_tree(request: build_request.BuildRequest, preparation: hooks.Preparation) -> None:
    if preparation.preloads is None:
        raise errors.BuildError("torch: the SDK was not asked what it can preload")
    if request.sdk.is_installed:
        text = sdk_tree.render_installed_init(request.sdk.version, request.sdk.root, preparation.preloads)
    else:
        text = sdk_tree.render_rocm_init(request.sdk.version, preparation.preloads)
    sdk_tree.write_generated_file(request.source, _INIT_MODULE, text, env=preparation.env)
    if request.platform == "windows":
        for source in find_windows_libraries(preparation.env):
            target = request.source / "torch" / "lib" / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def find_windows_libraries(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the DLLs that torch needs beside its own: MSVC's OpenMP, and libuv when libuv_ROOT is set.

    Raises BuildError when one that is asked for cannot be found.
    """
    redist = variables.look_up_variable(env, "VCToolsRedistDir")
    if redist is None:
        raise errors.BuildError(
            f"VCToolsRedistDir is not set, so {_OPENMP_LIBRARY} cannot be found",
            tip="start from a developer prompt of Visual Studio (vcvars64.bat)",
        )
    openmp_files = sorted(Path(redist).rglob(_OPENMP_LIBRARY))
    if not openmp_files:
        raise errors.BuildError(
            f"there is no {_OPENMP_LIBRARY} below {redist}",
            tip="add the C++ redistributables to Visual Studio",
        )
    libraries = [openmp_files[0]]
    if root := variables.look_up_variable(env, "libuv_ROOT"):
        uv = Path(root) / "bin" / "uv.dll"
        if not uv.is_file():
            raise errors.BuildError(
                f"libuv_ROOT is {root}, but there is no {uv}", tip="build libuv, or unset it"
            )
        libraries.append(uv)
    return tuple(libraries)


def _list_config_settings(request: build_request.BuildRequest, folder: Path) -> tuple[str, ...]:
    """Name generated files that scikit-build-core would leave out, because git ignores them.

    To be deleted when pytorch/pytorch#191625 and #191629 are in every release that is built.
    """
    if not build_request.uses_scikit_build_core(folder):
        return ()
    files = [_INIT_MODULE]
    if request.platform == "windows":
        files.append(f"torch/lib/{_OPENMP_LIBRARY}")
        files += [name for name in ("torch/lib/uv.dll",) if (request.source / name).is_file()]
        if request.flash_attention:
            files += ["torch/lib/aotriton_v2.dll", "torch/lib/liblzma.dll"]
    return tuple(f"wheel.force-include.{name}={name}" for name in files)


# CMAKE_CXX_FLAGS is what `torch.__config__.show()` prints (caffe2/core/macros.h.in)
HOOKS = hooks.Hooks(
    environment=_complete_environment,
    prepare=_prepare_tree,
    settings=_list_config_settings,
    shows_flags=True,
)

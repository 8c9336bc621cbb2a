"""ROCm as Python packages: where its libraries are, and loading them before others need them."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from ._dist_info import __version__
from ._libraries import LIBRARIES
from ._packages import package_root

__all__ = ["__version__", "find_libraries", "initialize_process", "preload_libraries"]

_loaded: dict[str, ctypes.CDLL] = {}


def find_libraries(*shortnames: str) -> list[Path]:
    """Return the files of shared libraries, in the order asked for.

    A library that does not exist on this platform, or is optional and not there, is left
    out. ModuleNotFoundError: a name that no ROCm package has, or a package that is not
    installed (all missing ones are named). FileNotFoundError: the package lacks the library.
    """
    libraries: list[Path] = []
    missing: set[str] = set()
    for name in shortnames:
        library = LIBRARIES.get(name)
        if library is None:
            raise ModuleNotFoundError(f"no ROCm package has a library {name!r}")
        folder, pattern = library.place(sys.platform)
        if not pattern:
            continue
        try:
            root = package_root(library.package)
        except ModuleNotFoundError:
            missing.add(library.package)
            continue
        files = sorted((root / folder).glob(pattern))
        if files:
            libraries.append(files[0])
        elif not library.optional:
            raise FileNotFoundError(f"the ROCm library {name!r} is missing: no {pattern} in {root / folder}")
    if missing:
        raise ModuleNotFoundError(
            f"ROCm packages are missing; pip install 'rocm[{','.join(sorted(missing))}]=={__version__}'"
        )
    return libraries


def preload_libraries(*shortnames: str, rtld_global: bool = True) -> None:
    """Load shared libraries for as long as the process lives, each once.

    Libraries loaded later find them by name. Raises as ``find_libraries`` does, and OSError
    when a library does not load.
    """
    mode = ctypes.RTLD_GLOBAL if rtld_global else ctypes.RTLD_LOCAL
    for name in shortnames:
        if name not in _loaded:
            for path in find_libraries(name):
                _loaded[name] = ctypes.CDLL(str(path), mode=mode)


def initialize_process(
    *,
    preload_shortnames: list[str] | None = None,
    rtld_global: bool = True,
    env_override: bool = True,
    check_version: str | re.Pattern[str] | None = None,
    fail_on_version_mismatch: bool = False,
    **_later: Any,
) -> None:
    """Prepare the process for a package that was built against ROCm.

    Loads ``preload_shortnames`` and then, unless ``env_override`` is false, what
    ``ROCM_SDK_PRELOAD_LIBRARIES`` names (split at ``,`` or ``;``). ``check_version`` is a
    version in which ``*`` stands for anything, or a pattern; another ROCm warns, or is a
    RuntimeError with ``fail_on_version_mismatch``. Arguments of later versions are accepted.
    """
    if check_version is not None:
        _check_version(check_version, fail=fail_on_version_mismatch)
    preload_libraries(*(preload_shortnames or ()), rtld_global=rtld_global)
    if not env_override:
        return
    stated = os.environ.get("ROCM_SDK_PRELOAD_LIBRARIES", "")
    names = [name.strip() for name in re.split("[,;]", stated) if name.strip()]
    try:
        preload_libraries(*names, rtld_global=rtld_global)
    except (OSError, ImportError) as cause:
        raise RuntimeError(
            f"the libraries of ROCM_SDK_PRELOAD_LIBRARIES={stated!r} cannot be loaded; correct or unset it"
        ) from cause


def _check_version(expected: str | re.Pattern[str], *, fail: bool) -> None:
    if isinstance(expected, re.Pattern):
        text, fits = expected.pattern, expected.match(__version__) is not None
    else:
        text = expected
        fits = re.fullmatch(re.escape(expected).replace(r"\*", ".*"), __version__) is not None
    if fits:
        return
    message = f"this program was built against ROCm {text}, but ROCm {__version__} is installed"
    if fail:
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=3)

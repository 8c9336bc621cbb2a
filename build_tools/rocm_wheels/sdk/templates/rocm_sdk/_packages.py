"""Find the folders that the packages of this distribution are installed in."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ._dist_info import __version__


def package_root(package: str) -> Path:
    """Return the root of a package's ROCm tree (``core``, ``libraries``).

    ModuleNotFoundError, with what to install, when it is not there.
    """
    return module_folder(f"_rocm_sdk_{package}", package)


def module_folder(module: str, package: str) -> Path:
    """Return the folder of an installed Python package without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        requirement = "rocm" if package == "core" else f"rocm[{package}]"
        raise ModuleNotFoundError(
            f"rocm-sdk-{package} is not installed; pip install '{requirement}=={__version__}'", name=module
        )
    return Path(spec.origin).parent

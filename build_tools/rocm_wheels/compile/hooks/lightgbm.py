"""LightGBM: its Python package is built in a folder of the tree, with the CMake files of the tree.

Upstream's build-python.sh copies all of it into one folder first, as in an sdist. That would be compiled anew
each time, from other paths than the checkout's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rocm_wheels.compile import build_request, hooks

_PACKAGE = "python-package"


def _copy_package_files(request: build_request.BuildRequest, preparation: hooks.Preparation) -> None:
    """Put into the package what build-python.sh puts there; its .gitignore names both."""
    package = request.source / _PACKAGE
    if package.is_dir():
        shutil.copyfile(request.source / "LICENSE", package / "LICENSE")
        shutil.copyfile(request.source / "VERSION.txt", package / "lightgbm/VERSION.txt")


def _point_to_cmake_files(request: build_request.BuildRequest, folder: Path) -> tuple[str, ...]:
    return ("cmake.source-dir=..",) if folder.name == _PACKAGE else ()


HOOKS = hooks.Hooks(prepare=_copy_package_files, settings=_point_to_cmake_files)

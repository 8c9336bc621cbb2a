"""Start pytest under the Python that is tested, which may have none: then it is lent one.

    python start_pytest.py ARGUMENT...

ROCM_SMOKE_PYTEST names the folders that hold pytest and what pytest needs. From there come these modules and
nothing else, and only those that this Python lacks: the environment that is tested stays what it is.
Standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from typing import Any

LENT_MODULES = (
    "pytest",
    "_pytest",
    "py",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "exceptiongroup",
    "colorama",
)
FOLDERS_VARIABLE = "ROCM_SMOKE_PYTEST"


class LentModules(DistributionFinder):
    """Finds the lent modules, and their versions, where no other finder did."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Return where a lent module is."""
        return PathFinder.find_spec(name, self._folders) if name in LENT_MODULES else None

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """Return the metadata of a lent module that is asked for by name; in lists it is not."""
        if context.name not in LENT_MODULES:
            return ()
        return MetadataPathFinder.find_distributions(
            DistributionFinder.Context(name=context.name, path=self._folders)
        )


def main() -> None:
    """Run pytest with this command's arguments."""
    folders = os.environ.get(FOLDERS_VARIABLE, "")
    if folders:
        sys.meta_path.append(LentModules(folders.split(os.pathsep)))
    from pytest import main as run_pytest

    sys.exit(run_pytest())


if __name__ == "__main__":
    main()

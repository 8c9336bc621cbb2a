"""pip of the environment that tests run in: no Python is sure to bring one."""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from pathlib import Path


def copy_pip(site: Path) -> None:
    """Put a copy of it into a folder of packages."""
    for file in distribution("pip").files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), site / file)

"""pip and uv of the environment that tests run in: no Python is sure to bring one."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

from uv import find_uv_bin

QUICK = ["--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--ignore-installed"]
PIP = [sys.executable, "-m", "pip", "install", *QUICK]
UV = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", sys.executable]


def copy_pip(site: Path) -> None:
    """Put a copy of pip into a folder of packages."""
    for file in distribution("pip").files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), site / file)

"""pip and uv of the environment that tests run in: no Python is sure to bring one. And older pips."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
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


# the first that we promise; that of Debian 12 and of Python 3.10; that of Python 3.11.5 to 3.11.7
OLD_PIPS = ("22.3.1", "23.0.1", "23.2.1")
# of the old pips the oldest that runs here each time: those between resolve, and read names, as it does
OLDEST = OLD_PIPS[2 if sys.version_info >= (3, 12) else 0]
INSTALLERS = [
    *(pytest.param(v, marks=[] if v == OLDEST else pytest.mark.exhaustive) for v in OLD_PIPS),
    *("newest", "uv"),
]


def get_pip(version: str, folder: Path) -> list[str]:
    """Get a pip of another version from the package index; return the words that start it."""
    if sys.version_info >= (3, 12) and version < "23.1":
        pytest.skip(f"pip {version} runs on no Python from 3.12 on")
    quiet = ["--quiet", "--no-config", "--python", sys.executable]
    subprocess.run([UV[0], "pip", "install", *quiet, "--target", str(folder), f"pip=={version}"], check=True)
    return [sys.executable, str(folder / "pip")]

"""Where a Python looks for packages: the running one knows, another one is asked."""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import UsageError
from rocm_wheels.process import capture

_SECONDS = 60.0
_A_PYTHON = "name a Python or a virtual environment: .venv/bin/python, or .venv"
# -c puts "" (the current folder) in front: it says nothing of the environment
_QUESTION = """
import json, site, sys, sysconfig
print(json.dumps({
    "executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3],
    "implementation": sys.implementation.name, "platform": sysconfig.get_platform(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "prefix": sys.prefix, "base_prefix": sys.base_prefix, "path": [p for p in sys.path if p],
    "site": sysconfig.get_path("purelib"), "user_site": site.getusersitepackages(),
    "user_site_used": bool(site.ENABLE_USER_SITE),
}))
"""


@dataclass(frozen=True)
class Environment:
    """A Python and the folders it imports from, in order.

    ``site_packages`` is where installers put things; ``user_site`` the folder of this user's packages,
    None when this Python does not look there.
    """

    python: Path
    version: str
    implementation: str
    platform: str
    free_threaded: bool
    prefix: Path
    base_prefix: Path
    path: tuple[Path, ...]
    site_packages: Path
    user_site: Path | None

    @property
    def minor(self) -> str:
        """Return the version as people name it: ``3.12``, ``3.13t``."""
        return ".".join(self.version.split(".")[:2]) + ("t" if self.free_threaded else "")

    @property
    def is_virtual(self) -> bool:
        """Tell whether it is a virtual environment."""
        return self.prefix != self.base_prefix


def meant_python(given: Path | None, env: Mapping[str, str]) -> Path | None:
    """Return the Python that is meant: given, else of the active environment; None for the running one."""
    if given is not None:
        return given
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")
    return Path(active) if active else None


def read_environment(python: Path | None, env: Mapping[str, str]) -> Environment:
    """Return where ``python`` looks, the running one for None.

    ``python`` may also be the folder of a virtual environment. UsageError when it is no Python that runs.
    """
    if python is None:
        return _as_environment(_own())
    program = program_of(python)
    if not os.access(program, os.X_OK):
        raise UsageError(f"{program} is no program that can be started", tip=_A_PYTHON)
    said = capture(
        [program, "-c", _QUESTION],
        env=env,
        cwd=program.parent,
        timeout=_SECONDS,
        check=UsageError,
        what=f"asking {program} where its packages are",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        return _as_environment(json.loads(said))
    except (ValueError, TypeError, KeyError) as cause:
        raise UsageError(f"{program}, asked where its packages are, said {said[:200]!r}") from cause


def program_of(python: Path) -> Path:
    """Return the interpreter that a path names: itself, or that of a virtual environment's folder."""
    path = python.expanduser()
    if path.is_dir():
        found = next(
            (path / one for one in ("bin/python", "Scripts/python.exe") if (path / one).exists()), None
        )
        if found is None:
            raise UsageError(
                f"{python} is a folder, and no virtual environment (no bin/python in it)",
                tip=_A_PYTHON,
            )
        path = found
    if not path.is_file():
        raise UsageError(f"there is no Python {python}", tip=_A_PYTHON)
    return path.absolute()  # not resolved: the link of a virtual environment is what makes it one


def _own() -> dict[str, Any]:
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "platform": sysconfig.get_platform(),
        "free_threaded": sysconfig.get_config_var("Py_GIL_DISABLED"),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": [one for one in sys.path if one],
        "site": sysconfig.get_path("purelib"),
        "user_site": site.getusersitepackages(),
        "user_site_used": site.ENABLE_USER_SITE,
    }


def _as_environment(said: Mapping[str, Any]) -> Environment:
    folders = dict.fromkeys(Path(os.path.normpath(one)) for one in said["path"])
    return Environment(
        python=Path(said["executable"] or "python"),
        version=str(said["version"]),
        implementation=str(said["implementation"]),
        platform=str(said["platform"]),
        free_threaded=bool(said["free_threaded"]),
        prefix=Path(said["prefix"]),
        base_prefix=Path(said["base_prefix"]),
        path=tuple(one for one in folders if one.is_dir()),
        site_packages=Path(said["site"]),
        user_site=Path(said["user_site"]) if said["user_site_used"] else None,
    )

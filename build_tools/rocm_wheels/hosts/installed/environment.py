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
from rocm_wheels.process import capture_output

_QUERY_SECONDS = 60.0
_PYTHON_TIP = "name a Python or a virtual environment: .venv/bin/python, or .venv"
# -c puts "" (the current folder) in front: it says nothing of the environment
_ENVIRONMENT_QUERY = """
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
class PythonEnvironment:
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


def find_active_python(python: Path | None, env: Mapping[str, str]) -> Path | None:
    """Return the Python that is meant: given, else of the active environment; None for the running one."""
    if python is not None:
        return python
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")
    return Path(active) if active else None


def read_environment(python: Path | None, env: Mapping[str, str]) -> PythonEnvironment:
    """Return where ``python`` looks, the running one for None.

    ``python`` may also be the folder of a virtual environment. UsageError when it is no Python that runs.
    """
    if python is None:
        return _make_environment(_describe_running_python())
    program = find_interpreter(python)
    if not os.access(program, os.X_OK):
        raise UsageError(f"{program} is no program that can be started", tip=_PYTHON_TIP)
    output = capture_output(
        [program, "-c", _ENVIRONMENT_QUERY],
        env=env,
        cwd=program.parent,
        timeout=_QUERY_SECONDS,
        check=UsageError,
        description=f"asking {program} where its packages are",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        return _make_environment(json.loads(output))
    except (ValueError, TypeError, KeyError) as cause:
        raise UsageError(f"{program}, asked where its packages are, said {output[:200]!r}") from cause


def find_interpreter(python: Path) -> Path:
    """Return the interpreter that a path names: itself, or that of a virtual environment's folder."""
    path = python.expanduser()
    if path.is_dir():
        interpreter = next(
            (path / name for name in ("bin/python", "Scripts/python.exe") if (path / name).exists()), None
        )
        if interpreter is None:
            raise UsageError(
                f"{python} is a folder, and no virtual environment (no bin/python in it)",
                tip=_PYTHON_TIP,
            )
        path = interpreter
    if not path.is_file():
        raise UsageError(f"there is no Python {python}", tip=_PYTHON_TIP)
    return path.absolute()  # not resolved: the link of a virtual environment is what makes it one


def _describe_running_python() -> dict[str, Any]:
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "platform": sysconfig.get_platform(),
        "free_threaded": sysconfig.get_config_var("Py_GIL_DISABLED"),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": [entry for entry in sys.path if entry],
        "site": sysconfig.get_path("purelib"),
        "user_site": site.getusersitepackages(),
        "user_site_used": site.ENABLE_USER_SITE,
    }


def _make_environment(answer: Mapping[str, Any]) -> PythonEnvironment:
    folders = dict.fromkeys(Path(os.path.normpath(folder)) for folder in answer["path"])
    return PythonEnvironment(
        python=Path(answer["executable"] or "python"),
        version=str(answer["version"]),
        implementation=str(answer["implementation"]),
        platform=str(answer["platform"]),
        free_threaded=bool(answer["free_threaded"]),
        prefix=Path(answer["prefix"]),
        base_prefix=Path(answer["base_prefix"]),
        path=tuple(folder for folder in folders if folder.is_dir()),
        site_packages=Path(answer["site"]),
        user_site=Path(answer["user_site"]) if answer["user_site_used"] else None,
    )

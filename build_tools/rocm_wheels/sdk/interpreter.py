"""One Python interpreter: asked what it is, never told.

A wheel is built for what an interpreter says of itself, whatever its file is called. That of a virtual
environment stands for the one below it, which wheels are built for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import UsageError
from rocm_wheels.process import capture

_SECONDS = 60.0
# Py_GIL_DISABLED and the letter t: PEP 703. On POSIX before 3.11 _base_executable is the environment's own.
_QUESTION = """
import json, os, struct, sys, sysconfig
ask = sysconfig.get_config_var
include = sysconfig.get_path("include")
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": "%d.%d.%d" % sys.version_info[:3]
    + ("" if sys.version_info[3] == "final" else {"alpha": "a", "beta": "b"}.get(sys.version_info[3], "rc")
       + str(sys.version_info[4])),
    "free_threaded": bool(ask("Py_GIL_DISABLED")),
    "debug": bool(ask("Py_DEBUG")) or hasattr(sys, "gettotalrefcount"),
    "bits": struct.calcsize("P") * 8,
    "platform": sysconfig.get_platform(),
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", None) or sys.executable,
    "headers": include if os.path.isfile(os.path.join(include, "Python.h")) else None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says of itself. ``path`` is its file, whatever links lead there.

    ``tag`` is that of its wheels (``cp312``, ``cp313t``), ``platform`` sysconfig's
    (``linux-x86_64``), ``headers`` the folder with Python.h, ``None`` where there is none.
    """

    path: Path
    version: str
    tag: str
    implementation: str
    platform: str = ""
    headers: Path | None = None

    @property
    def free_threaded(self) -> bool:
        """Tell whether it runs without the GIL."""
        return self.tag.endswith("t")

    @property
    def said(self) -> str:
        """The version with a ``t`` where it is free-threaded, as its users write it."""
        return f"{self.version}{'t' if self.free_threaded else ''}"

    def __str__(self) -> str:
        return f"{self.path} (Python {self.said})"


def python_in(prefix: Path) -> Path:
    """Return where the interpreter of a virtual environment is."""
    return prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def ask_interpreter(program: Path, env: Mapping[str, str]) -> Interpreter:
    """Ask a program what it is, and the one below it when it belongs to a virtual environment.

    Raises UsageError for what does not run, and for what torch cannot be built for: another
    implementation, a debug build, 32 bits.
    """
    said = _answer(program, env)
    if said["prefix"] != said["base_prefix"]:
        below = _below(said)
        if below is None:
            raise UsageError(
                f"{program} is of the virtual environment {said['prefix']}, but the Python below it is not"
                f" in {said['base_prefix']}",
                tip="name the Python itself, and not the environment",
            )
        said = {**_answer(below, env), "executable": str(below), "base_executable": str(below)}
    if fault := _fault(said):
        raise UsageError(f"{program} is {fault}")
    major, minor = str(said["version"]).split(".")[:2]
    return Interpreter(
        path=Path(os.path.realpath(said["base_executable"])),
        version=said["version"],
        tag=f"cp{major}{minor}{'t' if said['free_threaded'] else ''}",
        implementation=said["implementation"],
        platform=said["platform"],
        headers=Path(said["headers"]) if said["headers"] else None,
    )


def _answer(program: Path, env: Mapping[str, str]) -> dict[str, Any]:
    said = capture(
        [program, "-I", "-c", _QUESTION],
        env=env,
        timeout=_SECONDS,
        check=UsageError,
        what=f"asking {program} which Python it is",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        answer = json.loads(said)
        return {**answer, "version": str(answer["version"])}
    except (ValueError, TypeError, KeyError) as cause:
        raise UsageError(f"{program}, asked which Python it is, said {said[:200]!r}") from cause


def _below(said: Mapping[str, Any]) -> Path | None:
    """Return the interpreter that a virtual environment was made of."""
    prefix, base = Path(said["prefix"]), Path(said["base_prefix"])
    told = Path(said["base_executable"])
    if not told.is_relative_to(prefix) and told.exists():
        return told
    minor = ".".join(str(said["version"]).split(".")[:2])
    free = "t" if said["free_threaded"] else ""
    places = [base / "bin" / f"python{minor}{free}", base / "bin" / "python3", base / "python.exe"]
    linked = Path(os.path.realpath(said["executable"]))
    return next(
        (path for path in (*places, linked) if path.exists() and not path.is_relative_to(prefix)), None
    )


def _fault(said: Mapping[str, Any]) -> str | None:
    """Say why no wheel of torch can be built for an interpreter; ``None`` when one can."""
    version = said["version"]
    if said["implementation"] != "cpython":
        return f"{said['implementation']} {version}; wheels of torch are built for CPython"
    if said["debug"]:
        return f"a debug build of Python {version}; its extension modules load nowhere else"
    if said["bits"] != 64:
        return f"a Python {version} of {said['bits']} bits ({said['platform']}); ROCm has 64"
    return None

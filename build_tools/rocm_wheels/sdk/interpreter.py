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
from rocm_wheels.process import capture_output

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
    def full_version(self) -> str:
        """The version with a ``t`` where it is free-threaded, as its users write it."""
        return f"{self.version}{'t' if self.free_threaded else ''}"

    def __str__(self) -> str:
        return f"{self.path} (Python {self.full_version})"


def locate_python(prefix: Path) -> Path:
    """Return where the interpreter of a virtual environment is."""
    return prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def query_interpreter(program: Path, env: Mapping[str, str]) -> Interpreter:
    """Ask a program what it is, and the one below it when it belongs to a virtual environment.

    Raises UsageError for what does not run, and for what torch cannot be built for: another
    implementation, a debug build, 32 bits.
    """
    answer = _read_answer(program, env)
    if answer["prefix"] != answer["base_prefix"]:
        below = _find_base_interpreter(answer)
        if below is None:
            raise UsageError(
                f"{program} is of the virtual environment {answer['prefix']}, but the Python below it is not"
                f" in {answer['base_prefix']}",
                tip="name the Python itself, and not the environment",
            )
        answer = {**_read_answer(below, env), "executable": str(below), "base_executable": str(below)}
    if fault := _describe_fault(answer):
        raise UsageError(f"{program} is {fault}")
    major, minor = str(answer["version"]).split(".")[:2]
    return Interpreter(
        path=Path(os.path.realpath(answer["base_executable"])),
        version=answer["version"],
        tag=f"cp{major}{minor}{'t' if answer['free_threaded'] else ''}",
        implementation=answer["implementation"],
        platform=answer["platform"],
        headers=Path(answer["headers"]) if answer["headers"] else None,
    )


def _read_answer(program: Path, env: Mapping[str, str]) -> dict[str, Any]:
    output = capture_output(
        [program, "-I", "-c", _QUESTION],
        env=env,
        timeout=_SECONDS,
        check=UsageError,
        description=f"asking {program} which Python it is",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        answer = json.loads(output)
        return {**answer, "version": str(answer["version"])}
    except (ValueError, TypeError, KeyError) as cause:
        raise UsageError(f"{program}, asked which Python it is, said {output[:200]!r}") from cause


def _find_base_interpreter(answer: Mapping[str, Any]) -> Path | None:
    """Return the interpreter that a virtual environment was made of."""
    prefix, base = Path(answer["prefix"]), Path(answer["base_prefix"])
    stated = Path(answer["base_executable"])
    if not stated.is_relative_to(prefix) and stated.exists():
        return stated
    minor = ".".join(str(answer["version"]).split(".")[:2])
    free = "t" if answer["free_threaded"] else ""
    candidates = [base / "bin" / f"python{minor}{free}", base / "bin" / "python3", base / "python.exe"]
    linked = Path(os.path.realpath(answer["executable"]))
    return next(
        (path for path in (*candidates, linked) if path.exists() and not path.is_relative_to(prefix)), None
    )


def _describe_fault(answer: Mapping[str, Any]) -> str | None:
    """Say why no wheel of torch can be built for an interpreter; ``None`` when one can."""
    version = answer["version"]
    if answer["implementation"] != "cpython":
        return f"{answer['implementation']} {version}; wheels of torch are built for CPython"
    if answer["debug"]:
        return f"a debug build of Python {version}; its extension modules load nowhere else"
    if answer["bits"] != 64:
        return f"a Python {version} of {answer['bits']} bits ({answer['platform']}); ROCm has 64"
    return None

"""Where Pythons lie on a machine: a list of places, each with what may be there.

Names only choose what is asked: what an interpreter is, it says itself.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import RocmWheelsError, SdkError
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.uv import compose_uv_environment, find_uv

OPT_PYTHON = Path("/opt/python")
_RELEASE = r"(?P<version>3\.\d+(?:\.\d+)?)(?:(?:a|b|rc)\d+)?"
_PYENV = re.compile(rf"{_RELEASE}(?P<free>t?)(?:-dev)?")
_UV = re.compile(rf"cpython-{_RELEASE}(?P<free>\+freethreaded)?-.+")
# py -0p, then and now: " -3.12-64 * C:\…\python.exe", " -V:3.13t * C:\…\python3.13t.exe"
_PY = re.compile(
    r"\s*-(?:V:)?(?P<version>3\.\d+)(?P<free>t?)(?:-\d+)?\s+(?:\*\s+)?(?P<path>\S.*?\.exe)\s*\*?\s*"
)


@dataclass(frozen=True)
class RequestedPython:
    """A version that was asked for: ``3.12``, ``3.12.4``, ``3.13t``."""

    minor: str
    patch: str | None = None
    free_threaded: bool = False

    @property
    def tag(self) -> str:
        """The tag of its wheels: ``cp312``, ``cp313t``."""
        return f"cp{self.minor.replace('.', '')}{'t' if self.free_threaded else ''}"

    def __str__(self) -> str:
        return f"{self.minor}{f'.{self.patch}' if self.patch else ''}{'t' if self.free_threaded else ''}"

    def matches(self, version: str, *, free_threaded: bool) -> bool:
        """Tell whether a folder whose name says this can hold what is wanted."""
        numbers = version.split(".")
        fits = ".".join(numbers[:2]) == self.minor and free_threaded == self.free_threaded
        return fits and (self.patch is None or len(numbers) < 3 or numbers[2] == self.patch)


@dataclass(frozen=True)
class PythonLocation:
    """Somewhere to look, and the programs that are worth asking there, the best first.

    ``named``: its name says which Python it is, and it may be nothing else.
    """

    name: str
    programs: tuple[Path, ...]
    named: bool = True


def list_locations(
    requested: RequestedPython, env: Mapping[str, str], opt_python: Path
) -> Iterator[PythonLocation]:
    """Yield the places of a version in the order in which they count."""
    yield from _locate_opt_python(requested, opt_python)
    if sys.platform != "win32":
        pyenv = Path(env.get("PYENV_ROOT") or Path(env.get("HOME") or "~").expanduser() / ".pyenv")
        yield _search_folders(requested, pyenv / "versions", _PYENV)
    yield _search_uv(requested, env)
    yield from _search_path(requested, env)
    if sys.platform == "win32":
        yield _ask_launcher(requested, env)


def find_program(folder: Path) -> Path | None:
    """Return the interpreter of an environment or installation; ``None`` when there is none."""
    names = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
    return next((folder / name for name in names if (folder / name).exists()), None)


def _locate_opt_python(requested: RequestedPython, root: Path) -> Iterator[PythonLocation]:
    """The Pythons of a manylinux image: a folder a (Python, ABI)."""
    if sys.platform != "win32":
        folder = root / f"{requested.tag.removesuffix('t')}-{requested.tag}"
        program = folder / "bin" / "python"
        yield PythonLocation(str(folder), (program,) if program.exists() else ())


def _search_folders(requested: RequestedPython, root: Path, name: re.Pattern[str]) -> PythonLocation:
    """Folders called by their version, the newest first."""
    programs: list[tuple[tuple[int, ...], Path]] = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        match = name.fullmatch(folder.name)
        if match is None or not requested.matches(match["version"], free_threaded=bool(match["free"])):
            continue
        if program := find_program(folder):
            programs.append((tuple(int(number) for number in match["version"].split(".")), program))
    programs.sort(key=lambda item: item[0], reverse=True)
    return PythonLocation(str(root), tuple(program for _, program in programs))


def _search_uv(requested: RequestedPython, env: Mapping[str, str]) -> PythonLocation:
    if folder := env.get("UV_PYTHON_INSTALL_DIR"):
        return _search_folders(requested, Path(folder).absolute(), _UV)
    try:
        output = capture_output(
            [find_uv(), "python", "dir"], env=compose_uv_environment(env), check=SdkError, timeout=60
        )
    except RocmWheelsError as fault:
        return PythonLocation(f"uv's Pythons (`uv python dir` failed: {str(fault).splitlines()[0]})", ())
    return _search_folders(requested, Path(output.strip()), _UV)


def _search_path(requested: RequestedPython, env: Mapping[str, str]) -> Iterator[PythonLocation]:
    free = "t" if requested.free_threaded else ""
    names = [(f"python{requested.minor}{free}", True), ("python3", False), ("python", False)]
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for name, named in names:
        matches = [shutil.which(name, path=folder) for folder in folders]
        programs = dict.fromkeys(Path(path).absolute() for path in matches if path)
        yield PythonLocation(f"{name} on PATH", tuple(programs), named)


def _ask_launcher(requested: RequestedPython, env: Mapping[str, str]) -> PythonLocation:
    """Ask the launcher of Windows, which knows what the registry says (written, never run)."""
    program = shutil.which("py", path=env.get("PATH", ""))
    if program is None:
        return PythonLocation("py -0p (there is no py on PATH)", ())
    try:
        output = capture_output([program, "-0p"], env=env, check=SdkError, timeout=60)
    except RocmWheelsError as fault:
        return PythonLocation(f"py -0p (failed: {str(fault).splitlines()[0]})", ())
    return PythonLocation("py -0p", parse_launcher_output(requested, output))


def parse_launcher_output(requested: RequestedPython, output: str) -> tuple[Path, ...]:
    """Return the programs of a version that ``py -0p`` printed."""
    lines = [match for line in output.splitlines() if (match := _PY.fullmatch(line))]
    fitting = [line for line in lines if requested.matches(line["version"], free_threaded=bool(line["free"]))]
    return tuple(Path(line["path"]) for line in fitting)

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
from rocm_wheels.process import capture
from rocm_wheels.sdk.uv import uv_environment, uv_program

OPT_PYTHON = Path("/opt/python")
_RELEASE = r"(?P<version>3\.\d+(?:\.\d+)?)(?:(?:a|b|rc)\d+)?"
_PYENV = re.compile(rf"{_RELEASE}(?P<free>t?)(?:-dev)?")
_UV = re.compile(rf"cpython-{_RELEASE}(?P<free>\+freethreaded)?-.+")
# py -0p, then and now: " -3.12-64 * C:\…\python.exe", " -V:3.13t * C:\…\python3.13t.exe"
_PY = re.compile(
    r"\s*-(?:V:)?(?P<version>3\.\d+)(?P<free>t?)(?:-\d+)?\s+(?:\*\s+)?(?P<path>\S.*?\.exe)\s*\*?\s*"
)


@dataclass(frozen=True)
class Wanted:
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

    def may_be(self, version: str, *, free_threaded: bool) -> bool:
        """Tell whether a folder whose name says this can hold what is wanted."""
        numbers = version.split(".")
        fits = ".".join(numbers[:2]) == self.minor and free_threaded == self.free_threaded
        return fits and (self.patch is None or len(numbers) < 3 or numbers[2] == self.patch)


@dataclass(frozen=True)
class Place:
    """Somewhere to look, and the programs that are worth asking there, the best first.

    ``named``: its name says which Python it is, and it may be nothing else.
    """

    name: str
    programs: tuple[Path, ...]
    named: bool = True


def places(wanted: Wanted, env: Mapping[str, str], opt_python: Path) -> Iterator[Place]:
    """Yield the places of a version in the order in which they count."""
    yield from _opt_python(wanted, opt_python)
    if sys.platform != "win32":
        pyenv = Path(env.get("PYENV_ROOT") or Path(env.get("HOME") or "~").expanduser() / ".pyenv")
        yield _folders(wanted, pyenv / "versions", _PYENV)
    yield _uv_managed(wanted, env)
    yield from _on_path(wanted, env)
    if sys.platform == "win32":
        yield _launcher(wanted, env)


def program_in(folder: Path) -> Path | None:
    """Return the interpreter of an environment or installation; ``None`` when there is none."""
    names = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
    return next((folder / name for name in names if (folder / name).exists()), None)


def _opt_python(wanted: Wanted, root: Path) -> Iterator[Place]:
    """The Pythons of a manylinux image: a folder a (Python, ABI)."""
    if sys.platform != "win32":
        folder = root / f"{wanted.tag.removesuffix('t')}-{wanted.tag}"
        program = folder / "bin" / "python"
        yield Place(str(folder), (program,) if program.exists() else ())


def _folders(wanted: Wanted, root: Path, name: re.Pattern[str]) -> Place:
    """Folders called by their version, the newest first."""
    found: list[tuple[tuple[int, ...], Path]] = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        said = name.fullmatch(folder.name)
        if said is None or not wanted.may_be(said["version"], free_threaded=bool(said["free"])):
            continue
        if program := program_in(folder):
            found.append((tuple(int(number) for number in said["version"].split(".")), program))
    found.sort(key=lambda one: one[0], reverse=True)
    return Place(str(root), tuple(program for _, program in found))


def _uv_managed(wanted: Wanted, env: Mapping[str, str]) -> Place:
    if given := env.get("UV_PYTHON_INSTALL_DIR"):
        return _folders(wanted, Path(given).absolute(), _UV)
    try:
        said = capture([uv_program(), "python", "dir"], env=uv_environment(env), check=SdkError, timeout=60)
    except RocmWheelsError as fault:
        return Place(f"uv's Pythons (`uv python dir` failed: {str(fault).splitlines()[0]})", ())
    return _folders(wanted, Path(said.strip()), _UV)


def _on_path(wanted: Wanted, env: Mapping[str, str]) -> Iterator[Place]:
    free = "t" if wanted.free_threaded else ""
    names = [(f"python{wanted.minor}{free}", True), ("python3", False), ("python", False)]
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for name, named in names:
        found = [shutil.which(name, path=folder) for folder in folders]
        programs = dict.fromkeys(Path(path).absolute() for path in found if path)
        yield Place(f"{name} on PATH", tuple(programs), named)


def _launcher(wanted: Wanted, env: Mapping[str, str]) -> Place:
    """Ask the launcher of Windows, which knows what the registry says (written, never run)."""
    program = shutil.which("py", path=env.get("PATH", ""))
    if program is None:
        return Place("py -0p (there is no py on PATH)", ())
    try:
        said = capture([program, "-0p"], env=env, check=SdkError, timeout=60)
    except RocmWheelsError as fault:
        return Place(f"py -0p (failed: {str(fault).splitlines()[0]})", ())
    return Place("py -0p", launched(wanted, said))


def launched(wanted: Wanted, said: str) -> tuple[Path, ...]:
    """Return the programs of a version that ``py -0p`` printed."""
    lines = [match for line in said.splitlines() if (match := _PY.fullmatch(line))]
    fitting = [line for line in lines if wanted.may_be(line["version"], free_threaded=bool(line["free"]))]
    return tuple(Path(line["path"]) for line in fitting)

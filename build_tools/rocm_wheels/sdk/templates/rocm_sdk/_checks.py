"""Check an installation: packages present, every library loads on its own, programs are there."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from ._devel import devel_root
from ._dist_info import __version__
from ._packages import package_root

_FOLDERS = ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib")
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"

Findings = Iterator[tuple[str, str]]
"""(what was checked, what is wrong with it or ``""``)"""


def report() -> tuple[str, int]:
    """Check all that is installed; a line a check and a summary, and the exit code."""
    lines: list[str] = []
    failed = 0
    for check in _checks():
        for what, wrong in check():
            failed += bool(wrong)
            lines.append(f"{'FAIL' if wrong else 'ok  '} {what}{': ' + wrong if wrong else ''}")
    lines.append(f"ROCm {__version__}: {len(lines)} checks, {failed} failed: {'FAILED' if failed else 'OK'}")
    return "\n".join(lines), 1 if failed else 0


def _checks() -> Iterator[Callable[[], Findings]]:
    yield _core
    if importlib.util.find_spec("rocm_sdk_libraries") is not None:
        yield lambda: _libraries("libraries")
    if importlib.util.find_spec("rocm_sdk_devel") is not None:
        yield _devel


def _core() -> Findings:
    from .__main__ import targets

    try:
        listed = targets()
        yield f"targets {listed}", "" if listed else "none"
    except (OSError, KeyError, ValueError, ImportError) as error:
        yield "targets", str(error)
    yield from _libraries("core")
    yield from _programs()


def _libraries(package: str) -> Findings:
    try:
        root = package_root(package)
    except ModuleNotFoundError as error:
        yield f"package {package}", str(error)
        return
    yield f"package {package}", ""
    if sys.platform == "win32":
        return
    for folder in _FOLDERS:
        for path in sorted((root / folder).glob("lib*.so*")):
            yield f"{package} {path.relative_to(root)}", _loads(path)


def _loads(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _LOAD, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"killed by signal {-done.returncode}"


def _programs() -> Findings:
    if importlib.util.find_spec("rocm_sdk_core") is None:
        yield "rocm_sdk_core", "not installed"
        return
    from importlib import import_module

    scripts = sysconfig.get_path("scripts")
    for name in import_module("rocm_sdk_core._tools").TOOLS:
        yield f"program {name}", "" if shutil.which(name, path=scripts) else f"not in {scripts}"


def _devel() -> Findings:
    try:
        root = devel_root()
    except (ImportError, OSError) as error:
        yield "development tree", str(error)
        return
    for folder in ("bin", "lib", "lib/cmake", "include/hip"):
        yield f"devel {folder}", "" if (root / folder).is_dir() else "no such folder"

"""End processes, whatever they do to avoid it, and keep small what they leave behind.

Standard library alone: it is also used where pytest is not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PATIENCE = 5.0  # seconds for killed processes to be gone: one that waits for its GPU in the kernel cannot die
_SHOWN_BYTES = 1 << 18  # of what was printed: the end of it
_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_WINDOWS_CODES = {
    0xC0000005: "an access violation",
    0xC000001D: "an illegal instruction",
    0xC0000409: "an abort",
}


def adopt_orphans() -> None:
    """Become the parent of whatever a child leaves behind, so that it is found (Linux)."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(sign: int = signal.SIGTERM) -> None:
    """Get a signal when the process that started this one is killed (Linux)."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sign)


def leave_no_cores() -> None:
    """Let crashes leave no image of memory: neither the kernel's nor that of a GPU, which ROCm writes."""
    if os.name != "nt":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def end_session(leader: int) -> None:
    """Kill a process and all that is in its session or group, and wait a while until it is gone."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(leader)], capture_output=True, check=False)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    _kill_until_gone(lambda: [pid for pid, fields in _processes() if int(fields[3]) == leader])


def children() -> set[int]:
    """Return the children of this process that are not buried yet (Linux)."""
    own = os.getpid()
    return {pid for pid, fields in _processes(dead=True) if int(fields[1]) == own}


def end_strays(known: Iterable[int]) -> None:
    """Kill what left its session and became our child by that, and bury it: all but the ``known``."""
    kept = set(known)

    def strays() -> list[int]:
        found = sorted(children() - kept)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return found

    _kill_until_gone(strays)


def is_over(poll: Callable[[], int | None]) -> bool:
    """Wait a while for the end of a process that was killed; tell whether it came."""
    deadline = time.monotonic() + PATIENCE
    while poll() is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def describe(code: int) -> str:
    """Say how a process ended."""
    if code < 0:
        try:
            return f"crashed with {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed with signal {-code}"
    windows = _WINDOWS_CODES.get(code & 0xFFFFFFFF)
    return f"crashed with {windows}" if windows else f"ended in the middle of it, with exit code {code}"


def end_of(printed: Path) -> str:
    """Return the end of what was printed, however much it was."""
    with printed.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _SHOWN_BYTES, 0))
        return file.read(_SHOWN_BYTES).decode("utf-8", "replace")


def _kill_until_gone(those: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while (left := those()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _processes(*, dead: bool = False) -> list[tuple[int, list[Any]]]:
    """Return the processes with what /proc/<pid>/stat says behind their names (Linux, proc(5))."""
    found: list[tuple[int, list[Any]]] = []
    for entry in Path("/proc").glob("[0-9]*") if _LINUX else ():
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if dead or fields[0] not in "ZX":
            found.append((int(entry.name), fields))
    return found

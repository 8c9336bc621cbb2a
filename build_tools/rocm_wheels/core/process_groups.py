"""Trees of processes that are ended as a whole, and interruptions that wait for a moment that suits.

``kill -9`` takes us, not the compilers that we started: they would go on writing into a build
tree that the next run is using. While a folder is held, each group is noted in a file there; the
next holder ends what is still alive. A group is noted by its leader's number and by when that
began, in ticks since a boot that is named: after a restart, or in another container, the same number
is somebody else's and is left alone. A number is not given out again while its session has members.

Not by psutil: it knows no sessions, which hold also what a program has left to init, and when a process
began it counts from the clock of the day, which may be set between two runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from rocm_wheels.core.errors import RocmWheelsError

_PATIENCE_SECONDS = 10.0


# where groups are noted at the moment: by each folder that is held; each thread of work has its own
_ledgers: ContextVar[tuple[Path, ...]] = ContextVar("ledgers", default=())


@contextmanager
def note_groups_in(path: Path) -> Iterator[None]:
    """Note every group that is started inside in ``path``; the file is gone afterwards."""
    outer = _ledgers.set((*_ledgers.get(), path))
    try:
        yield
    finally:
        _ledgers.reset(outer)
        path.unlink(missing_ok=True)


def note_started_group(leader: int) -> None:
    """Note a group, named by its leader (Linux; elsewhere none could be found again)."""
    if _ledgers.get() and (start := get_process_start(leader)):
        _write_to_ledgers(f"+{leader} {start}\n")


def note_ended_group(leader: int) -> None:
    """Note that a group is over; where the disk is full, its number tells as well."""
    with suppress(OSError):
        _write_to_ledgers(f"-{leader}\n")


def end_leftover_groups(path: Path) -> list[int]:
    """End the groups noted in ``path`` that are still alive; return their processes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    noted: dict[int, str] = {}
    for line in lines:
        number, _, start = line[1:].partition(" ")
        if number.isdecimal() and line.startswith("+"):
            noted[int(number)] = start
        elif number.isdecimal():
            noted.pop(int(number), None)
    leaders = {leader for leader, start in noted.items() if _is_noted_group(leader, start)}
    processes = list_group_members(leaders)
    for pid in processes:
        _kill_process(pid)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while list_group_members(leaders) and time.monotonic() < deadline:
        time.sleep(0.02)
    path.unlink(missing_ok=True)
    return processes


def list_group_members(leaders: set[int]) -> list[int]:
    """Return the live processes in the sessions of ``leaders`` (Linux; elsewhere none are found)."""
    if sys.platform != "linux" or not leaders:
        return []
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _read_stat_fields(int(entry.name))):
            state, session = fields[0], int(fields[3])
            if session in leaders and state not in "ZX":
                processes.append(int(entry.name))
    return processes


def get_process_start(pid: int) -> str:
    """Return when a process began: the boot and ticks since then; nothing where that cannot be known."""
    fields = _read_stat_fields(pid) if sys.platform == "linux" else []
    return f"{_read_boot_id()} {fields[19]}" if fields else ""


def is_process_alive(pid: int, start: str) -> bool:
    """Tell whether the process of this number that began then (``get_process_start``) is still alive.

    Where nobody knew when it began, its number alone tells.
    """
    if sys.platform == "linux":
        fields = _read_stat_fields(pid)
        return bool(fields) and fields[0] not in "ZX" and start in ("", get_process_start(pid))
    import psutil

    return psutil.pid_exists(pid)


def _read_stat_fields(pid: int) -> list[str]:
    """Return what stands behind the name in /proc/<pid>/stat (proc(5)), nothing when it has ended."""
    try:
        text = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


@cache
def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _is_noted_group(leader: int, noted: str) -> bool:
    """Tell whether a noted group is the one that has this number now; its leader may be gone."""
    if current_start := get_process_start(leader):
        return current_start == noted
    return sys.platform == "linux" and noted.startswith(f"{_read_boot_id()} ")


def _kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def _write_to_ledgers(line: str) -> None:
    for path in _ledgers.get():
        try:
            with path.open("a", encoding="ascii") as file:
                file.write(line)
        except OSError as failure:
            failure.filename = failure.filename or str(path)  # writing does not say
            raise


_interrupted = threading.Event()


@contextmanager
def block_new_work() -> Iterator[None]:
    """Let nothing begin inside, in whatever thread: no program is started, and ``wait_or_stop`` is cut."""
    _interrupted.set()
    try:
        yield
    finally:
        _interrupted.clear()


def is_interrupted() -> bool:
    """Tell whether everything is being ended."""
    return _interrupted.is_set()


def wait_or_stop(seconds: float) -> None:
    """Wait. Raises RocmWheelsError when everything is being ended meanwhile."""
    if _interrupted.wait(seconds):
        raise RocmWheelsError("interrupted")

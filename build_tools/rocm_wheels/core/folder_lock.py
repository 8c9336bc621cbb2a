"""Hold a folder for one run at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rocm_wheels.core.errors import RocmWheelsError, UsageError, name_failed_file
from rocm_wheels.core.interruption import wait_or_stop
from rocm_wheels.core.log import log_note, log_warning
from rocm_wheels.core.process_groups import end_leftover_groups, note_groups_in
from rocm_wheels.core.wording import format_count

WAIT_TIP = "wait for it to end, then run this again"


def _acquire_lock(path: Path, seconds: float) -> Callable[[], None] | None:
    """Take the lock of a file within so many seconds; return how it is given back, ``None`` if it is taken.

    An interruption, in whatever thread, ends the wait.
    """
    end = time.monotonic() + seconds
    while (release := _take_lock(path)) is None and time.monotonic() < end:
        wait_or_stop(0.1)
    return release


def _take_lock(path: Path) -> Callable[[], None] | None:
    """Take the lock of a file, if nobody has it. The system gives it back when this process ends."""
    if sys.platform == "win32":
        from filelock import FileLock, Timeout

        lock = FileLock(str(path))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock.release
    import fcntl  # so does filelock, which imports asyncio and ssl first: a tenth of a second of every step

    file, taken = os.open(path, os.O_RDWR | os.O_CREAT, 0o644), False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = os.fstat(file).st_nlink > 0  # else it was deleted meanwhile, and others would lock another
    except BlockingIOError:
        return None
    finally:
        if not taken:
            os.close(file)

    def release() -> None:
        # closing alone is not enough: a program that another thread starts just now has the file open, too
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    return release if taken else None


@contextlib.contextmanager
def lock_folder(
    folder: Path,
    *,
    purpose: str,
    tip: str = WAIT_TIP,
    patience: float = 0,
    error: type[RocmWheelsError] = UsageError,
) -> Iterator[None]:
    """Hold a folder for this run alone; another run gets an ``error`` that names the holder.

    ``tip`` is for that other run, which waits for ``patience`` seconds and says so. The lock belongs
    to the process: it ends with it, also by ``kill -9``. Programs that a killed holder had started and
    that are still at work are ended first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    owner, lock = folder / ".owner", folder / ".lock"
    release = _acquire_lock(lock, 0)
    if release is None:
        holder = ""
        with contextlib.suppress(OSError):
            holder = owner.read_text(encoding="utf-8").strip()
        message = f"{folder} is in use by {holder or 'another run'}"
        if patience:
            log_note(f"{message}; waiting")
            release = _acquire_lock(lock, patience)
        if release is None:
            raise error(message, tip=tip)
    try:
        if leftovers := end_leftover_groups(folder / ".groups"):
            log_warning(
                f"ended {format_count(len(leftovers), 'process', 'processes')} of a run that was killed: "
                f"{', '.join(map(str, leftovers))}"
            )
        try:
            owner.write_text(f"process {os.getpid()} ({purpose})\n", encoding="utf-8")
        except OSError as failure:
            name_failed_file(failure, owner)
            raise
        with note_groups_in(folder / ".groups"):
            yield
    finally:
        with contextlib.suppress(OSError):
            owner.unlink()
        release()

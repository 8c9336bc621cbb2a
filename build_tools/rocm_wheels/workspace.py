"""Where things lie: the project's own files, and the folder that we work in.

``get_project_home`` finds recipes, patches and the miniature, in a clone and in an installed
wheel alike. ``Workspace`` names every place below a work directory. Files appear
whole or not at all (``write_atomically``); a directory is worked on by one run at a time
(``lock_folder``).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import ending, groups, log
from rocm_wheels.errors import DataError, RocmWheelsError, UsageError, name_failed_file

_PACKAGE = Path(__file__).resolve().parent


def get_project_home() -> Path:
    """Return the folder that holds ``repos/``, ``patches/``, ``smoke-tests/`` and ``tests/miniature/``.

    In a clone that is the clone; in an installed wheel the same files are under the
    package (the build back end puts them there).
    """
    clone = _PACKAGE.parent.parent
    if (clone / "pyproject.toml").is_file() and (clone / "repos").is_dir():
        return clone
    shipped = _PACKAGE / "_shipped"
    if (shipped / "repos").is_dir():
        return shipped
    raise DataError(
        f"the recipes are neither in a clone around {_PACKAGE} nor in {shipped}",
        tip="install rocm-wheels again; this copy is incomplete",
    )


def is_clone() -> bool:
    """Tell whether we run from a clone of the repository."""
    return get_project_home() == _PACKAGE.parent.parent


def get_own_command() -> list[str]:
    """Return how this very program is started: the script beside the running Python, else its module.

    A clone's doors also run where another rocm-wheels is installed, whose script is not meant.
    """
    script = Path(sys.executable).parent / ("rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels")
    if not _is_installed():
        place = f"import sys; sys.path.insert(0, {str(_PACKAGE.parent)!r})"
        return [sys.executable, "-c", f"{place}; from rocm_wheels.cli.main import main; main()"]
    return [str(script)] if script.exists() else [sys.executable, "-m", "rocm_wheels"]


def _is_installed() -> bool:
    """Tell whether we are the rocm-wheels that is installed for the running Python (PEP 610 says of what)."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    if not (_PACKAGE.parent.parent / "pyproject.toml").is_file():
        return True  # no clone
    try:
        origin_text = distribution("rocm-wheels").read_text("direct_url.json")
    except PackageNotFoundError:
        return False
    place = urlsplit(str(json.loads(origin_text).get("url", ""))) if origin_text else None
    return place is not None and Path(url2pathname(place.path)).resolve() == _PACKAGE.parent.parent


@dataclass(frozen=True)
class Workspace:
    """The places below one work directory. Nothing is created before it is used."""

    root: Path

    @property
    def environments(self) -> Path:
        """Build environments, one a (Python, ROCm version)."""
        return self.root / "environments"

    @property
    def runs(self) -> Path:
        """One folder a run: its plan, its record, and the log of each step."""
        return self.root / "runs"

    @property
    def steps(self) -> Path:
        """What each step last did: its inputs and the hashes of its outputs."""
        return self.root / "steps"

    @property
    def rejected_wheels(self) -> Path:
        """Wheels that failed their checks, with the reason."""
        return self.root / "rejected"

    @property
    def fresh_wheels(self) -> Path:
        """Where front ends put wheels before they are checked."""
        return self.root / "fresh"


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that it is there complete or, whatever happens, as it was before.

    Written beside, fsynced, renamed; the folder is made when missing.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as failure:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(failure, OSError):
            name_failed_file(failure, path)
        raise


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file (reflink where the system has it) so that it appears complete or not at all."""
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    try:
        shutil.copyfile(source, name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException as failure:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(failure, OSError) and failure.filename2 in (None, name):
            failure.filename2 = str(target)
        raise


def write_json_file(path: Path, value: object) -> None:
    """Write ``value`` as sorted, indented JSON in ASCII, whole or not at all.

    Names of files that are not UTF-8 come as lone surrogates, which only an escape can hold.
    """
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


WAIT_TIP = "wait for it to end, then run this again"


def _acquire_lock(path: Path, seconds: float) -> Callable[[], None] | None:
    """Take the lock of a file within so many seconds; return how it is given back, ``None`` if it is taken.

    An interruption, in whatever thread, ends the wait.
    """
    end = time.monotonic() + seconds
    while (release := _take_lock(path)) is None and time.monotonic() < end:
        ending.wait_or_stop(0.1)
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
            log.log_note(f"{message}; waiting")
            release = _acquire_lock(lock, patience)
        if release is None:
            raise error(message, tip=tip)
    try:
        if leftovers := groups.end_leftover_groups(folder / ".groups"):
            log.log_warning(
                f"ended {len(leftovers)} processes of a run that was killed: {', '.join(map(str, leftovers))}"
            )
        try:
            owner.write_text(f"process {os.getpid()} ({purpose})\n", encoding="utf-8")
        except OSError as failure:
            name_failed_file(failure, owner)
            raise
        with groups.note_groups_in(folder / ".groups"):
            yield
    finally:
        with contextlib.suppress(OSError):
            owner.unlink()
        release()

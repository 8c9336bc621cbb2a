"""Files that appear whole or not at all, copies, digests, and locks of folders.

A file is a ``HiddenFile`` until it is complete. What a run that is killed leaves of one is removed by whoever
writes the same file next.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.core import errors, log, process, tables

_PIECE_SIZE = 1 << 20
_MOST_BYTES_AT_ONCE = 1 << 30
NO_LINK_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""How file systems without hard links refuse one."""
# where copy_file_range is refused; ENOTSUP is the same on Linux, which alone has it
_NO_COPY_ERRNOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EBADF)


def _claim(descriptor: int, *, waits: bool = False) -> bool:
    """Lock a hidden file or folder; tell whether it is known that nobody else has it.

    It never is without such locks: on Windows and some network drives. ``waits``: for who has it now.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_stale(hidden: Path) -> None:
    """Remove a hidden file or folder that a killed run left, if it is known that nobody has it open."""
    with contextlib.suppress(OSError):
        descriptor = _open_at_once(str(hidden), os.O_RDONLY)  # it may be somebody's pipe
        try:
            if not _claim(descriptor) or not os.path.samestat(os.fstat(descriptor), hidden.stat()):
                return  # somebody writes it, or may; or it is another one by now
            if hidden.is_dir():
                shutil.rmtree(hidden, ignore_errors=True)
            else:
                hidden.unlink()
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _make_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it; what was made is taken away where nothing came into it."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # something came, or others have put something there
            for path in made:
                path.rmdir()


class HiddenFile:
    """A file that is written through ``descriptor``, its descriptor, and is not yet there for others.

    It lies beside its target, hidden and locked, so that what killed runs left can be told from it: that is
    removed by whoever writes the same file next. ``path`` is where it lies until it has its name.
    """

    def __init__(self, target: Path) -> None:
        self._target, self._is_placed = target, False
        # short, for the name of the target may be as long as names can be
        prefix = f".{target.name[:40]}."
        with os.scandir(target.parent) as listed:
            names = [item.name for item in listed if item.name.startswith(prefix)]
        for name in names:
            if name.endswith(".part"):
                remove_stale(target.with_name(name))
        while True:
            self.descriptor, hidden = tempfile.mkstemp(prefix=prefix, suffix=".part", dir=target.parent)
            self.path, self._open = Path(hidden), True
            _claim(self.descriptor, waits=True)  # who takes it for a leftover has it for a moment
            if os.name == "nt" or os.fstat(self.descriptor).st_nlink:
                break
            os.close(self.descriptor)  # taken for a leftover before it was ours

    def finish(self) -> None:
        """Have what was written safe on disk, and to be read by all; nothing more is written."""
        os.fsync(self.descriptor)
        if os.name == "nt":
            self._close_descriptor()  # Windows renames no open file
        os.chmod(self.path, 0o644)

    def commit(self, *, replace: bool, name: str | None = None) -> None:
        """Give the file its name when it is safe on disk, unless one of the same bytes has it.

        ``name`` is another one in the same folder. DataError when a file of other bytes has it and is not to
        be replaced.
        """
        self._target = self._target.with_name(name or self._target.name)
        self.finish()
        if self._has_same_bytes():
            return
        if not replace:
            try:
                self.link(self._target)
                return
            except OSError:  # also where the file system has no hard links
                if self._has_same_bytes():
                    return  # another run has just made the same
                if os.path.lexists(self._target):
                    tip = "name another folder, or remove it first"
                    raise errors.DataError(f"{self._target} exists with other bytes", tip=tip) from None
        self.rename(self._target)

    def link(self, target: Path) -> None:
        """Give the file a name that nothing has: unlike a rename, this takes none that another got first."""
        os.link(self.path, target)

    def rename(self, target: Path) -> None:
        """Give the file a name, whatever has it."""
        os.replace(self.path, target)
        self._is_placed = True

    def discard(self) -> None:
        """Take away what is left of it."""
        if os.name == "nt":
            self._close_descriptor()  # Windows removes no open file
        if not self._is_placed:
            self.path.unlink(missing_ok=True)
        self._close_descriptor()

    def _has_same_bytes(self) -> bool:
        """Tell whether the target has these bytes; files of other sizes are told apart without reading."""
        return self._target.exists() and filecmp.cmp(self.path, self._target, shallow=False)

    def _close_descriptor(self) -> None:
        if self._open:
            self._open = False
            os.close(self.descriptor)


@contextlib.contextmanager
def open_hidden_file(target: Path) -> Iterator[HiddenFile]:
    """Give a file that can appear as ``target``; folders are made, and taken away when nothing came."""
    with _make_folder(target.parent):
        hidden = HiddenFile(target)
        try:
            yield hidden
        finally:
            hidden.discard()


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to, which is at ``path``, complete, when the block has ended well.

    Written out of sight, fsynced, renamed; the folder is made when missing. After a failure all is as it was.
    """
    with errors.name_failed_file(path), open_hidden_file(path) as hidden:
        with os.fdopen(hidden.descriptor, "wb", closefd=False) as file:
            yield file
        hidden.finish()
        hidden.rename(path)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that it is there complete or, whatever happens, as it was before."""
    with open_atomically(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that it appears complete or not at all."""
    with source.open("rb") as original, open_atomically(target) as copy:
        copy_content(original, copy)


def copy_content(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a file into an empty one, inside the system where that is known.

    Btrfs and XFS only note that two files share their bytes; an NFS server copies for itself.
    """
    copy_inside = getattr(os, "copy_file_range", None)
    try:
        while copy_inside is not None and copy_inside(source.fileno(), target.fileno(), _MOST_BYTES_AT_ONCE):
            pass
    except OSError as failure:
        if failure.errno not in _NO_COPY_ERRNOS:
            raise
    position = os.lseek(target.fileno(), 0, os.SEEK_CUR)
    source.seek(position)
    target.seek(position)
    for piece in read_pieces(source):  # what is left: nothing, as a rule
        target.write(piece)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; a copy where the file system has no hard links, or is another one."""
    try:
        os.link(source, target)
    except OSError:
        copy_atomically(source, target)


def write_json_file(path: Path, value: object) -> None:
    """Write ``value`` as sorted, indented JSON in ASCII, whole or not at all.

    Names of files that are not UTF-8 come as lone surrogates, which only an escape can hold.
    """
    write_atomically(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def replace_folder(fresh: Path, target: Path, aside: Path | None = None) -> None:
    """Put a finished folder in place of another one, which is deleted, by renaming both.

    The old one is ``aside`` for a moment (``.NAME.old`` beside the target) and goes back when the new one
    cannot be renamed. Killed between the renames it stays there until the next call.
    """
    old = aside or target.with_name(f".{target.name}.old")
    if old.exists():
        shutil.rmtree(old)
    if target.exists():
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


_STAGE_PREFIX = ".rocm-wheels-"


@contextlib.contextmanager
def open_stage(folder: Path) -> Iterator[Path]:
    """Give a hidden folder inside ``folder`` to write to; it is gone at the end, with all that is left in it.

    What killed runs left is removed first (not where nobody can tell: ``_claim``). Folders that were made are
    taken away when nothing came.
    """
    with _make_folder(folder), contextlib.ExitStack() as stack:
        for left in folder.glob(f"{_STAGE_PREFIX}*.part"):
            remove_stale(left)
        stage = Path(tempfile.mkdtemp(prefix=_STAGE_PREFIX, suffix=".part", dir=folder))
        stack.callback(shutil.rmtree, stage, ignore_errors=True)
        while sys.platform != "win32":
            descriptor = os.open(stage, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            _claim(descriptor)
            if stage.exists():
                break  # else it was taken for a leftover before it was ours
            stage.mkdir(mode=0o700)
        yield stage


def release_mapped_pages(data: memoryview) -> None:
    """Give back the memory of the mapped file that ``data`` is of: what is read again is mapped again."""
    mapped = data.obj
    if isinstance(mapped, mmap.mmap) and data.readonly and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def read_pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield what is left of a file."""
    while piece := file.read(_PIECE_SIZE):
        yield piece


def hash_pieces(pieces: Iterable[bytes], write: Callable[[bytes], object] | None = None) -> str:
    """Return the SHA-256 of bytes that come in pieces, as hexadecimal digits; ``write`` gets each of them."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        if write is not None:
            write(piece)
    return digest.hexdigest()


def measure_free_space(folder: Path) -> int:
    """Return the free bytes where a folder is; more than any need where a file system has none, as /proc."""
    usage = shutil.disk_usage(folder)
    return usage.free if usage.total else sys.maxsize


def require_room(
    folder: Path, size: int, work: str, *, error: type[errors.RocmWheelsError], instead: str
) -> None:
    """Raise ``error`` where the disk of a folder has no room for bytes; it need not be there yet.

    ``work`` is what is done with them (``fetched``), ``instead`` what people can do but freeing space.
    """
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    if size > (free := measure_free_space(place)):
        needed, room = tables.format_size(size), tables.format_size(free)
        raise error(
            f"{needed} are to be {work}, and {folder} has room for {room}",
            tip=f"free some space, or {instead}",
        )


def open_regular_file(path: Path) -> BinaryIO:
    """Open a file to read it. DataError for what is none: a pipe waits for somebody who writes into it."""
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise errors.DataError(f"{path} is not a file", tip="name another file")
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits. DataError for a pipe or a device."""
    with open_regular_file(path) as file:
        return hash_pieces(read_pieces(file))


_ENDED_HOLDER_PATIENCE = 10.0  # seconds for what a killed holder was about to start
WAIT_TIP = "wait for it to end, then run this again"


def _acquire_lock(path: Path, seconds: float) -> Callable[[], None] | None:
    """Take the lock of a file within so many seconds; return how it is given back, ``None`` if it is taken.

    An interruption, in whatever thread, ends the wait.
    """
    end = time.monotonic() + seconds
    while (release := _take_lock(path)) is None and time.monotonic() < end:
        process.wait_or_stop(0.1)
    return release


def _open_lock(path: Path) -> int:
    """Open the file of a lock for all who may write into its folder, whatever our umask is."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:  # another user made it, before the folder was shared: reading is enough
        return os.open(path, os.O_RDONLY)
    status, mode = os.fstat(file), path.parent.stat().st_mode & 0o666
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(file, mode)
    return file


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

    file, taken = _open_lock(path), False
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


def _is_ended(holder: str) -> bool:
    """Tell whether the process that a lock's note names is none of this machine any more."""
    named = re.match(r"process (\d+) ", holder)
    return named is not None and not process.is_process_alive(int(named[1]), "")


GROUPS_FILE = ".groups"  # in a held folder: the processes that the holder started, to be ended after a kill


@contextlib.contextmanager
def lock_folder(
    folder: Path,
    *,
    purpose: str,
    tip: str = WAIT_TIP,
    patience: float = 0,
    error: type[errors.RocmWheelsError] = errors.UsageError,
) -> Iterator[None]:
    """Hold a folder for this run alone; another run gets an ``error`` that names the holder.

    ``tip`` is for that other run, which waits for ``patience`` seconds and says so. The lock belongs
    to the process: it ends with it, also by ``kill -9``. Programs that a killed holder had started and
    that are still at work are ended first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    owner, lock = folder / ".owner", folder / ".lock"
    if (release := _take_lock(lock)) is None:
        holder = ""
        with contextlib.suppress(OSError):
            holder = owner.read_text(encoding="utf-8").strip()
        message = f"{folder} is in use by {holder or 'another run'}"
        if _is_ended(holder):  # a program that it has just started may still have the file open
            patience = max(patience, _ENDED_HOLDER_PATIENCE)
        elif patience:
            log.log_note(f"{message}; waiting")
        if (release := _acquire_lock(lock, patience)) is None:
            raise error(message, tip=tip)
    try:
        if leftovers := process.end_leftover_groups(folder / GROUPS_FILE):
            ended = tables.format_count(len(leftovers), "process", "processes")
            log.log_warning(f"ended {ended} of a run that was killed: {', '.join(map(str, leftovers))}")
        with errors.name_failed_file(owner):
            owner.unlink(missing_ok=True)  # of a killed run, perhaps of another user
            owner.write_text(f"process {os.getpid()} ({purpose})\n", encoding="utf-8")
        with process.note_groups_in(folder / GROUPS_FILE):
            yield
    finally:
        with contextlib.suppress(OSError):
            owner.unlink()
        release()

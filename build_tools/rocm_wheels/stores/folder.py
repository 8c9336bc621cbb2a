"""A store that is a folder of this machine, or of one whose disks it shares.

A file is written beside the others, out of sight (``.store/``), and linked to its place: a link fails where
there is a file, so of two writers one is told. Where a file system has no hard links, and where a
file is replaced, a lock on ``.store`` makes look and rename one step. The tag of a file is when it was
written, its size and its inode: some file systems keep times of whole seconds only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.errors import ReleaseError, named
from rocm_wheels.stores.content import content_digest, copied, require_digest
from rocm_wheels.stores.store import (
    AGAIN,
    Changed,
    Exists,
    Found,
    Head,
    Listed,
    Missing,
    below,
    checked,
    is_path,
)
from rocm_wheels.workspace import exclusive

_STATE = ".store"
_PATIENCE = 60.0  # seconds; a lock is held for a rename
_RETRIES = 10
_OLD = 24 * 3600  # seconds; parts of writers that were killed
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
_NO_COPIES = {*_NO_LINKS, errno.EXDEV, errno.EINVAL, errno.EBADF}
_MOST_AT_ONCE = 1 << 30
_FULL = f"free some space, then {AGAIN}"
_CLOSED = f"the store must be writable for you; then {AGAIN}"
_TIPS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _CLOSED),
    errno.EXDEV: "a store lies on one file system: name the folder that is mounted, or move what lies apart",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class FolderStore:
    """A folder. It is made when the first file is written."""

    conditional = True
    looks_first = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._swept = False

    @property
    def url(self) -> str:
        """The path of the folder."""
        return str(self.folder)

    def read(self, path: str) -> Found:
        """Return a whole file. Raises Missing."""
        try:
            with open(self._place(path), "rb") as file:
                return Found(file.read(), _tag(os.fstat(file.fileno())))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Missing(f"there is no {path} in {self.url}") from None

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file out of the store, whole or not at all. Raises Missing."""
        from rocm_wheels.workspace import copy_whole

        if not self._place(path).is_file():
            raise Missing(f"there is no {path} in {self.url}")
        copy_whole(self._place(path), target)

    def head(self, path: str) -> Head | None:
        """Return size and tag, ``None`` when there is no such file."""
        try:
            found = self._place(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if self._place(path).is_dir() else Head(found.st_size, _tag(found))

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of a file as it is on the disk. Raises Missing."""
        from rocm_wheels.wheels.members import digest_of_file

        if self.head(path) is None:
            raise Missing(f"there is no {path} in {self.url}")
        return digest_of_file(self._place(path))

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file; of several writers one succeeds. Raises Exists."""
        place = self._place(path)
        if place.exists():
            raise Exists(f"{path} is in {self.url} already")
        with self._part(place, lambda file: _send(content, file, sha256)) as part:
            return self._appear(part, path)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises Changed."""
        if tag is None:
            try:
                return self.create(path, content)
            except Exists as cause:
                raise Changed(f"{path} was made by somebody else meanwhile") from cause
        place, changed = self._place(path), Changed(f"{path} was changed by somebody else meanwhile")
        if (found := self.head(path)) is None or found.tag != tag:
            raise changed
        with self._part(place, lambda file: _send(content, file, None)) as part, self._alone():
            if (found := self.head(path)) is None or found.tag != tag:
                raise changed
            os.replace(part, place)
            _settle(place.parent)
            return _tag(place.stat())

    def copy(self, source: str, target: str) -> str:
        """Copy a file inside the folder, by the system itself where it can. Raises Missing and Exists.

        Btrfs and XFS only note that two files share their bytes; an NFS server copies for itself.
        """
        if self.head(source) is None:
            raise Missing(f"there is no {source} in {self.url}")
        place = self._place(target)
        if place.exists():
            raise Exists(f"{target} is in {self.url} already")
        with self._part(place, lambda file: _copy(self._place(source), file)) as part:
            return self._appear(part, target)

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        start = below(prefix)
        yield from self._below(self.folder / start, start)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        try:
            with os.scandir(self.folder / below(prefix)) as found:
                return sorted(one.name for one in found if is_path(one.name) and one.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: str) -> None:
        """Delete a file, if it is there, and the folders that it leaves empty: only files make folders."""
        place = self._place(path)
        with _said(place, "remove"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            place.unlink()
        with contextlib.suppress(OSError):  # there is something else in it
            while (place := place.parent) != self.folder:
                place.rmdir()

    def url_of(self, path: str) -> str:
        """Return the ``file:`` URL of a file or folder."""
        return self._place(path.rstrip("/")).as_uri() + ("/" if path.endswith("/") else "")

    def _place(self, path: str) -> Path:
        return self.folder / checked(path)

    def _below(self, folder: Path, start: str) -> Iterator[Listed]:
        try:
            with os.scandir(folder) as found:
                items = sorted((one for one in found if is_path(one.name)), key=_sorted_as_path)
        except (FileNotFoundError, NotADirectoryError):
            return
        for item in items:
            if item.is_dir():
                yield from self._below(folder / item.name, f"{start}{item.name}/")
            else:
                with contextlib.suppress(FileNotFoundError):  # removed since
                    state = item.stat()
                    yield Listed(start + item.name, state.st_size, _tag(state))

    @contextlib.contextmanager
    def _part(self, place: Path, write: Callable[[BinaryIO], None]) -> Iterator[Path]:
        """Write what is to appear at ``place``, out of sight; what is left of it goes in the end."""
        parts, part = self.folder / _STATE / "parts", None
        try:
            with _said(place, "write"):
                parts.mkdir(parents=True, exist_ok=True)
                self._sweep(parts)
                handle, name = tempfile.mkstemp(dir=parts)
                part = Path(name)
                with os.fdopen(handle, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                now = time.time_ns()  # the system's own clock of files is coarser than two writes are apart
                os.utime(part, ns=(now, now))
                os.chmod(part, 0o644)
                yield part
        finally:
            if part is not None:
                part.unlink(missing_ok=True)

    def _appear(self, part: Path, path: str) -> str:
        """Give a part its place, where nothing is. Raises Exists."""
        place = self._place(path)
        try:
            try:
                _named(lambda: os.link(part, place), place)
            except OSError as failure:
                if failure.errno not in _NO_LINKS:
                    raise
                with self._alone():
                    if place.exists():
                        raise FileExistsError from None
                    _named(lambda: os.replace(part, place), place)
        except FileExistsError:
            raise Exists(f"{path} is in {self.url} already") from None
        _settle(place.parent)
        return _tag(place.stat())

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return exclusive(self.folder / _STATE, what="a write to the store", patience=_PATIENCE)

    def _sweep(self, parts: Path) -> None:
        """Delete, once, what writers left behind that were killed long ago."""
        if self._swept:
            return
        self._swept = True
        before = time.time() - _OLD
        with os.scandir(parts) as found:
            for item in found:
                with contextlib.suppress(OSError):  # gone since, or of somebody else
                    if item.stat().st_mtime < before:
                        os.unlink(item.path)


def _send(content: bytes | Path, file: BinaryIO, sha256: str | None) -> None:
    """Write what is to be sent, and see that it is what was meant."""
    if isinstance(content, bytes):
        file.write(content)
        found = content_digest(content) if sha256 else ""
    else:
        with content.open("rb") as source:
            found = copied(source, file)
    require_digest(found, sha256, content)


def _copy(source: Path, file: BinaryIO) -> None:
    """Copy inside the system where that is known, else piece by piece."""
    with source.open("rb") as original:
        ask = getattr(os, "copy_file_range", None)
        try:
            while ask is not None and ask(original.fileno(), file.fileno(), _MOST_AT_ONCE):
                pass
        except OSError as failure:
            if failure.errno not in _NO_COPIES:
                raise
        there = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        original.seek(there)
        file.seek(there)
        copied(original, file)  # what is left: nothing, as a rule


def _named(work: Callable[[], None], place: Path) -> None:
    """Give a part its place, whose folder may go at any moment when another file in it is removed."""
    for attempt in range(_RETRIES):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(place.parent)) from None
        try:
            work()
        except FileNotFoundError:
            if attempt + 1 == _RETRIES:
                raise
        else:
            return


def _settle(folder: Path) -> None:
    """Have the disk know of a new name, where the system can be asked for that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _said(place: Path, what: str) -> Iterator[None]:
    """Have a failure of the disk say what was to be done, and what may help. Raises ReleaseError."""
    try:
        yield
    except OSError as failure:
        named(failure, place)
        said = ReleaseError(f"cannot {what} {place}")
        said.tip = _TIPS.get(failure.errno or 0, AGAIN)
        raise said from failure


def _tag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns:x}-{state.st_size:x}-{state.st_ino:x}"


def _sorted_as_path(item: os.DirEntry[str]) -> str:
    return item.name + "/" if item.is_dir() else item.name

"""A store that is a folder of this machine, or of one whose disks it shares.

A file is written beside the others, out of sight (``.store/``), and linked to its place: a link fails where
there is a file, so of two writers one is told. Where a file system has no hard links, and where a
file is replaced, a lock on ``.store`` makes look and rename one step.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.errors import ReleaseError, named
from rocm_wheels.release.stores.store import (
    AGAIN,
    Changed,
    Exists,
    Found,
    Head,
    Listed,
    Missing,
    below,
    checked,
)
from rocm_wheels.workspace import exclusive

_STATE = ".store"
_PATIENCE = 60.0  # seconds; a lock is held for a rename
_RETRIES = 10
_OLD = 24 * 3600  # seconds; parts of writers that were killed
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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

    def create(self, path: str, content: bytes | Path) -> str:
        """Write a new file; of several writers one succeeds. Raises Exists."""
        place = self._place(path)
        if place.exists():
            raise Exists(f"{path} is in {self.url} already")
        with self._part(place, content) as part:
            return self._appear(part, path)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises Changed."""
        if tag is None:
            try:
                return self.create(path, content)
            except Exists as cause:
                raise Changed(f"{path} was made by somebody else meanwhile") from cause
        with self._part(self._place(path), content) as part, self._alone():
            found = self.head(path)
            if found is None or found.tag != tag:
                raise Changed(f"{path} was changed by somebody else meanwhile")
            os.replace(part, self._place(path))
            return _tag(self._place(path).stat())

    def copy(self, source: str, target: str) -> str:
        """Copy a file inside the folder (a reflink where the system has it). Raises Missing and Exists."""
        if self.head(source) is None:
            raise Missing(f"there is no {source} in {self.url}")
        return self.create(target, self._place(source))

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        start = below(prefix)
        yield from self._below(self.folder / start, start)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        try:
            with os.scandir(self.folder / below(prefix)) as found:
                return sorted(one.name for one in found if one.is_dir() and not one.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: str) -> None:
        """Delete a file, if it is there, and the folders that it leaves empty: only files make folders."""
        place = self._place(path)
        with contextlib.suppress(FileNotFoundError):
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
                items = sorted((one for one in found if not one.name.startswith(".")), key=_sorted_as_path)
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
    def _part(self, place: Path, content: bytes | Path) -> Iterator[Path]:
        """Write what is to appear at ``place``, out of sight; what is left of it goes in the end."""
        parts = self.folder / _STATE / "parts"
        try:
            parts.mkdir(parents=True, exist_ok=True)
            self._sweep(parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=parts)
            part = Path(name)
        except OSError as failure:
            raise _said(failure, place) from failure
        try:
            try:
                _write(handle, part, content)
            except OSError as failure:
                named(failure, place)
                raise _said(failure, place) from failure
            yield part
        finally:
            part.unlink(missing_ok=True)

    def _appear(self, part: Path, path: str) -> str:
        """Give a part its place, where nothing is. Raises Exists."""
        place = self._place(path)
        try:
            try:
                _link(part, place)
            except OSError as failure:
                if failure.errno not in _NO_LINKS:
                    raise
                with self._alone():
                    if place.exists():
                        raise FileExistsError from None
                    os.replace(part, place)
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
                with contextlib.suppress(FileNotFoundError):
                    if item.stat().st_mtime < before:
                        os.unlink(item.path)


def _write(handle: int, part: Path, content: bytes | Path) -> None:
    if isinstance(content, Path):
        os.close(handle)
        shutil.copyfile(content, part)
        handle = os.open(part, os.O_RDWR)
    with os.fdopen(handle, "wb" if isinstance(content, bytes) else "rb+") as file:
        if isinstance(content, bytes):
            file.write(content)
            file.flush()
        os.fsync(file.fileno())
    now = time.time_ns()  # the system's own clock of files is coarser than two writes are apart
    os.utime(part, ns=(now, now))
    os.chmod(part, 0o644)


def _link(part: Path, place: Path) -> None:
    """Link a part to its place, whose folder may go at any moment when another file in it is removed."""
    for _ in range(_RETRIES):
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.link(part, place)
            return
    os.link(part, place)


def _settle(folder: Path) -> None:
    """Have the disk know of a new name, where the system can be asked for that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _said(failure: OSError, place: Path) -> ReleaseError:
    said = ReleaseError(f"cannot write {place}")
    said.tip = f"free some space, then {AGAIN}" if failure.errno in _FULL else AGAIN
    return said


def _tag(state: os.stat_result) -> str:
    return f"{state.st_mtime_ns:x}-{state.st_size:x}"


def _sorted_as_path(item: os.DirEntry[str]) -> str:
    return item.name + "/" if item.is_dir() else item.name

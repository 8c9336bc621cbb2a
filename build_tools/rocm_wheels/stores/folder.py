"""Keep a store in a folder of this machine, or of one whose disks it shares.

A file is written beside the others, out of sight (``.store/``), and linked to its place: a link fails
where there is a file, so of two writers one is told. Where a file system has no hard links, and where a
file is replaced, a lock on ``.store`` makes look and rename one step. The tag of a file is when it was
written, its size and its inode: some file systems keep times of whole seconds only.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.core import errors, files
from rocm_wheels.stores import store

_LOCK_PATIENCE = 60.0  # seconds; a lock is held for a rename
_RETRIES = 10
_STALE_PART_SECONDS = 24 * 3600  # of writers that were killed
_OTHER_DISK_TIP = "a store is on one file system: name the folder that is mounted, or move what is elsewhere"


class FolderStore:
    """A folder. It is made when the first file is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = str(self.folder)
        self._state = self.folder / ".store"

    def read(self, path: str) -> store.StoredFile:
        """Return a whole file. Raises NotInStoreError."""
        with self._open_file(path) as file:
            return store.StoredFile(file.read(), _tag_of_stat(os.fstat(file.fileno())))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file out of the store, whole or not at all. Raises NotInStoreError."""
        with self._open_file(path) as source, files.open_atomically(target) as copy:
            files.copy_content(source, copy)

    def head(self, path: str) -> store.StoredFileInfo | None:
        """Return size and tag, ``None`` when there is no such file."""
        try:
            status = self._path_of(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        # the time of the inode: that of the content can be set by whoever may write
        return store.StoredFileInfo(status.st_size, _tag_of_stat(status), changed=status.st_ctime_ns / 1e9)

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of a file as it is on the disk. Raises NotInStoreError."""
        with self._open_file(path) as file:
            return files.hash_pieces(files.read_pieces(file))

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file; of several writers one succeeds. Raises AlreadyInStoreError."""
        place = self._path_of(path)
        exists = store.AlreadyInStoreError(f"{path} is in {self.url} already")
        if place.exists():
            raise exists
        with self._write_part(place, content, sha256) as part:
            for attempt in range(_RETRIES):  # the folder goes with the last other file in it
                _make_folders_like(place.parent, self.folder)
                try:
                    tag = self._link_part(part, place)
                    break
                except FileExistsError:
                    raise exists from None
                except FileNotFoundError:
                    if attempt + 1 == _RETRIES:
                        raise
            _sync_folder(place.parent)
            return tag

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag. Raises ChangedInStoreError."""
        if tag is None:
            return self.create(path, content)
        self._require_tag(path, tag)  # before anything is written
        place = self._path_of(path)
        with self._write_part(place, content) as part, self._lock_state():
            self._require_tag(path, tag)
            part.rename(place)
            _sync_folder(place.parent)
            return _tag_of_stat(place.stat())

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        """Yield the files below a folder, sorted by path."""
        start = store.prefix_of_folder(prefix)
        for item in sorted(self._scan_folder(start), key=lambda item: item.name + "/" * item.is_dir()):
            path = start + item.name
            if item.is_dir():
                yield from self.listing(path)
            elif (info := self.head(path)) is not None:  # else it was removed since
                yield store.ListedFile(path, info.size, info.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        return sorted(item.name for item in self._scan_folder(prefix) if item.is_dir())

    def remove(self, path: str) -> None:
        """Delete a file, if it is there, and the folders that it leaves empty: only files make folders."""
        place = self._path_of(path)
        with _explain_os_errors(place, "remove"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            place.unlink()
        with contextlib.suppress(OSError):  # there is something else in it
            while (place := place.parent) != self.folder:
                place.rmdir()

    def url_of(self, path: str) -> str:
        """Return the ``file:`` URL of a file or folder."""
        return self._path_of(path.rstrip("/")).as_uri() + ("/" if path.endswith("/") else "")

    def _path_of(self, path: str) -> Path:
        return self.folder / store.check_store_path(path)

    def _scan_folder(self, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.folder / store.prefix_of_folder(prefix)) as items:
                return [item for item in items if store.is_store_path(item.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _open_file(self, path: str) -> BinaryIO:
        try:
            return files.open_regular_file(self._path_of(path))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise store.NotInStoreError(f"there is no {path} in {self.url}") from None

    def _require_tag(self, path: str, tag: str) -> None:
        if (info := self.head(path)) is None or info.tag != tag:
            raise store.make_changed_error(path)

    @contextlib.contextmanager
    def _write_part(
        self, place: Path, content: bytes | Path, sha256: str | None = None
    ) -> Iterator[files.HiddenFile]:
        """Write what is to appear at ``place``, out of sight; what is left of it goes in the end.

        Not ``open_atomically``: its rename would replace what another writer has put there meanwhile.
        """
        parts = self._state / "parts"
        with _explain_os_errors(place, "write"), contextlib.ExitStack() as stack:
            _make_folders_like(parts, self.folder)
            for stale in parts.iterdir():
                with contextlib.suppress(OSError):  # gone since, or of somebody else
                    if time.time() - stale.stat().st_mtime > _STALE_PART_SECONDS:
                        stale.unlink()
            part = files.HiddenFile(parts / place.name)
            stack.callback(part.discard)
            source = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
            with source, os.fdopen(part.descriptor, "wb", closefd=False) as file:
                digest = files.hash_pieces(files.read_pieces(source), file.write)
            store.require_digest(digest, sha256, content)
            part.finish()
            now = time.time_ns()  # the system's own clock of files is coarser than two writes are apart
            os.utime(part.path, ns=(now, now))
            yield part

    def _link_part(self, part: files.HiddenFile, place: Path) -> str:
        """Give a part its place, where there is no file, and return its tag. Raises FileExistsError."""
        try:
            part.link(place)
            return _tag_of_stat(part.path.stat())  # not of the place: another may have replaced it by now
        except OSError as failure:
            if failure.errno not in files.NO_LINK_ERRNOS:
                raise
            with self._lock_state():
                if place.exists():
                    raise FileExistsError from None
                part.rename(place)
                return _tag_of_stat(place.stat())

    def _lock_state(self) -> contextlib.AbstractContextManager[None]:
        _make_folders_like(self._state, self.folder)
        purpose, kind = "a write to the store", errors.ReleaseError
        return files.lock_folder(self._state, purpose=purpose, patience=_LOCK_PATIENCE, error=kind)


def _make_folders_like(folder: Path, model: Path) -> None:
    """Make a folder below ``model``, and those above it, for the people that ``model`` is for.

    They have its permissions, set-group-ID included, whatever our umask is, and its group where we may give
    it away: several users may write there. ``model`` is made when it is not there yet.
    """
    model.mkdir(parents=True, exist_ok=True)
    status = model.stat()
    missing = [path for path in (folder, *folder.parents) if path.is_relative_to(model) and not path.exists()]
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError:  # another run has just made it
            if not path.is_dir():
                raise
            continue
        if sys.platform != "win32":
            if path.stat().st_gid != status.st_gid:
                with contextlib.suppress(PermissionError):
                    os.chown(path, -1, status.st_gid)
            path.chmod(stat.S_IMODE(status.st_mode))
    folder.mkdir(exist_ok=True)


def find_private_mode(folder: Path) -> str:
    """Return the permissions of a store's folder that nobody but its owner can read; empty for another."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    return "" if os.name == "nt" or mode & 0o055 else f"{mode:04o}"


def _sync_folder(folder: Path) -> None:
    """Have the disk know of a new name, where the system can be asked for that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _explain_os_errors(place: Path, action: str) -> Iterator[None]:
    """Have a failure of the disk say what was to be done, and what may help. Raises ReleaseError."""
    try:
        with errors.name_failed_file(place):
            yield
    except OSError as failure:
        tips = {**errors.DISK_TIPS, errno.EXDEV: _OTHER_DISK_TIP}
        tip = tips.get(failure.errno or 0, store.RUN_AGAIN_TIP)
        raise errors.ReleaseError(f"cannot {action} {place}", tip=tip) from failure


def _tag_of_stat(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"

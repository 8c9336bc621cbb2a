"""Keep a store at any other URL that fsspec knows: read as a rule, written only where nobody else does.

fsspec has no conditions for writes that hold everywhere, so none are promised. Where renaming is one step
(sftp, ftp, smb, webdav) a file is written beside and renamed; elsewhere one write is one step (buckets),
or whoever reads meanwhile may see half of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from rocm_wheels.core.errors import ReleaseError, RocmWheelsError, UsageError
from rocm_wheels.core.files import hash_pieces, open_atomically, read_pieces
from rocm_wheels.core.shell import hide_credentials
from rocm_wheels.core.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    ListedFile,
    NotInStoreError,
    StoredFile,
    StoredFileInfo,
    check_store_path,
    digest_of_content,
    is_store_path,
    prefix_of_folder,
    require_digest,
    require_tag,
)

FsspecResult = TypeVar("FsspecResult")
_LARGEST_READ_FOR_TAG = 1 << 20  # bytes; the tag of a larger file is its size
_MISSING_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class FsspecStore:
    """What fsspec makes of a URL. Conditions are looked at before a write, which another may overtake."""

    conditional = False
    folder: Path | None = None

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        self.url = hide_credentials(url).rstrip("/")
        try:
            filesystem, root = url_to_fs(url)
        except ImportError as cause:
            raise UsageError(f"{self.url} needs a package that is not installed", tip=str(cause)) from cause
        except (ValueError, TypeError) as cause:
            raise UsageError(
                f"{self.url} is not a store",
                tip="name a folder, s3://bucket/prefix or a URL that fsspec knows",
            ) from cause
        except Exception as cause:  # some look for their server, or open their file, at once
            raise ReleaseError(f"{self.url} cannot be reached") from cause
        self._fs: Any = filesystem
        self._root = str(root).rstrip("/")
        self.looks_first = True

    def read(self, path: str) -> StoredFile:
        """Return a whole file. Raises NotInStoreError."""
        content = self._call("read", path, self._fs.cat_file)
        return StoredFile(content, _tag_of_content(content))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises NotInStoreError."""
        info = self.head(path)
        if info is None:
            raise NotInStoreError(f"there is no {path} in {self.url}")
        with open_atomically(target, tidy=True) as part:

            def copy(place: str) -> int:
                with self._fs.open(place, "rb") as file:
                    hash_pieces(read_pieces(file), part.write)
                return part.tell()

            size = self._call("read", path, copy)
            if size != info.size:
                raise ReleaseError(f"{size} of {info.size} bytes of {path} came from {self.url}")

    def head(self, path: str) -> StoredFileInfo | None:
        """Return size and tag; of a small file the tag is a sum of its bytes, which are read for it."""
        try:
            return self._call("look at", path, self._head)
        except NotInStoreError:
            return None

    def _head(self, place: str) -> StoredFileInfo | None:
        details = self._fs.info(place)
        if details.get("type") == "directory":
            return None
        size = details.get("size")
        if size is None or size < _LARGEST_READ_FOR_TAG:
            content = self._fs.cat_file(place)
            return StoredFileInfo(len(content), _tag_of_content(content))
        return StoredFileInfo(int(size), str(size))

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that come. Raises NotInStoreError."""

        def hashed(place: str) -> str:
            with self._fs.open(place, "rb") as file:
                return hash_pieces(read_pieces(file))

        return self._call("read", path, hashed)

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, if there is none at a look before. Raises AlreadyInStoreError."""
        if self.head(path) is not None:
            raise AlreadyInStoreError(f"{path} is in {self.url} already")
        if sha256 is not None:
            require_digest(digest_of_content(content), sha256, content)
        return self._put_content(path, content)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag at a look before. Raises ChangedInStoreError."""
        info = self.head(path)
        if (info.tag if info else None) != tag:
            raise ChangedInStoreError(f"{path} was changed by another process in the meantime")
        return self._put_content(path, content)

    def copy(self, source: str, target: str, *, tag: str | None = None) -> str:
        """Copy a file where it is, if the store can. Raises NotInStoreError and AlreadyInStoreError."""
        require_tag(self, source, tag)
        if self.head(target) is not None:
            raise AlreadyInStoreError(f"{target} is in {self.url} already")
        return self._write_and_tag(target, lambda place: self._fs.cp_file(self._path_of(source), place))

    def listing(self, prefix: str) -> Iterator[ListedFile]:
        """Yield the files below a folder, sorted by path."""
        start = prefix_of_folder(prefix)
        self._fs.invalidate_cache()
        for path in sorted(self._walk(start)):
            if (info := self.head(path)) is not None:  # else removed since
                yield ListedFile(path, info.size, info.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        self._fs.invalidate_cache()
        return sorted(name for name, is_folder in self._list_folder(prefix_of_folder(prefix)) if is_folder)

    def remove(self, path: str) -> None:
        """Delete a file, if it is there, and the folders that it leaves empty: only files make folders."""
        if self.head(path) is None:
            return
        self._call("remove", path, self._fs.rm_file)
        folder = path.rpartition("/")[0]
        while folder and not self._list_folder(f"{folder}/"):
            with contextlib.suppress(OSError, NotImplementedError):  # a bucket, or no longer empty
                self._fs.rmdir(self._path_of(folder))
            folder = folder.rpartition("/")[0]
        self._fs.invalidate_cache()

    def url_of(self, path: str) -> str:
        """Return where a file or folder is."""
        end = "/" if path.endswith("/") else ""
        return f"{self.url}/{quote(check_store_path(path.rstrip('/')))}{end}"

    def _walk(self, start: str) -> Iterator[str]:
        for name, is_folder in self._list_folder(start):
            if is_folder:
                yield from self._walk(f"{start}{name}/")
            else:
                yield start + name

    def _list_folder(self, start: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, and which are folders. fsspec's own walk passes failures over."""

        def ask(place: str) -> list[tuple[str, bool]]:
            items = self._fs.ls(place, detail=True)
            names = [(str(item["name"]).rstrip("/").rpartition("/")[2], item["type"]) for item in items]
            return [(name, kind == "directory") for name, kind in names if is_store_path(name)]

        try:
            return self._call("list", start.rstrip("/"), ask)
        except NotInStoreError:
            return []

    def _put_content(self, path: str, content: bytes | Path) -> str:
        def write(place: str) -> None:
            if isinstance(content, Path):
                self._fs.put_file(str(content), place)
            else:
                self._fs.pipe_file(place, content)

        return self._write_and_tag(path, write)

    def _write_and_tag(self, path: str, write: Callable[[str], object]) -> str:
        """Have a file written, beside and renamed where that is one step, and return its tag."""

        def beside(place: str) -> None:
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            if not _has_own_rename(self._fs):
                write(place)
                return
            part = f"{self._root}/.part-{secrets.token_hex(8)}"
            try:
                write(part)
                self._fs.mv(part, place)
            except BaseException:
                if self._fs.exists(part):
                    self._fs.rm_file(part)
                raise

        try:
            self._call("write", path, beside)
        except NotInStoreError as cause:
            raise ReleaseError(f"cannot write {path} to {self.url}") from cause
        self._fs.invalidate_cache()
        info = self.head(path)
        if info is None:
            raise ReleaseError(f"{path} was written to {self.url}, and is not there")
        return info.tag

    def _call(self, action: str, path: str, ask: Callable[[str], FsspecResult]) -> FsspecResult:
        """Return what a file system answers.

        Raises NotInStoreError, UsageError for what it cannot do, and ReleaseError.
        """
        try:
            return ask(self._path_of(path))
        except _MISSING_ERRORS as cause:
            behind = cause.__cause__  # a server that does not answer is not an empty one
            if not isinstance(behind, (LookupError, type(None))) and getattr(behind, "status", None) != 404:
                raise self._make_error(action, path) from behind
            raise NotInStoreError(f"there is no {path} in {self.url}") from None
        except NotImplementedError as cause:
            raise UsageError(f"{self.url} is of a kind that cannot {action} files") from cause
        except RocmWheelsError:
            raise
        except Exception as cause:  # whatever the libraries behind fsspec raise
            raise self._make_error(action, path) from cause

    def _make_error(self, action: str, path: str) -> ReleaseError:
        return ReleaseError(f"cannot {action} {path or 'files'} in {self.url}")

    def _path_of(self, path: str) -> str:
        if not path:
            return self._root
        return f"{self._root}/{check_store_path(path)}" if self._root else check_store_path(path)


def _has_own_rename(filesystem: Any) -> bool:
    """Tell whether a file system has a rename of its own; that of fsspec itself copies and deletes."""
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

    return type(filesystem).mv is not AbstractFileSystem.mv


def _tag_of_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if len(content) < _LARGEST_READ_FOR_TAG else str(len(content))

"""A store at any other URL that fsspec knows: read as a rule, written only where nobody else does.

fsspec has no conditions for writes that hold everywhere, so none are promised. Where renaming is one step
(sftp, ftp, smb, webdav) a file is written beside and renamed; elsewhere one write is one step (buckets), or
whoever reads meanwhile may see half of it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from rocm_wheels.errors import ReleaseError, RocmWheelsError, UsageError
from rocm_wheels.shell import hide_credentials
from rocm_wheels.stores.content import arriving, content_digest, copied, require_digest
from rocm_wheels.stores.store import (
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

T = TypeVar("T")
_READ_FOR_TAG = 1 << 20  # bytes; the tag of a larger file is its size
_NONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class OtherStore:
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

    def read(self, path: str) -> Found:
        """Return a whole file. Raises Missing."""
        content = self._asked("read", path, self._fs.cat_file)
        return Found(content, _tag_of(content))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises Missing."""
        found = self.head(path)
        if found is None:
            raise Missing(f"there is no {path} in {self.url}")
        with arriving(target) as part:

            def copy(place: str) -> int:
                with self._fs.open(place, "rb") as file:
                    copied(file, part)
                return part.tell()

            size = self._asked("read", path, copy)
            if size != found.size:
                raise ReleaseError(f"{size} of {found.size} bytes of {path} came from {self.url}")

    def head(self, path: str) -> Head | None:
        """Return size and tag; of a small file the tag is a sum of its bytes, which are read for it."""
        try:
            return self._asked("look at", path, self._head)
        except Missing:
            return None

    def _head(self, place: str) -> Head | None:
        found = self._fs.info(place)
        if found.get("type") == "directory":
            return None
        size = found.get("size")
        if size is None or size < _READ_FOR_TAG:
            content = self._fs.cat_file(place)
            return Head(len(content), _tag_of(content))
        return Head(int(size), str(size))

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that come. Raises Missing."""

        def hashed(place: str) -> str:
            hasher = hashlib.sha256()
            with self._fs.open(place, "rb") as file:
                while piece := file.read(1 << 20):
                    hasher.update(piece)
            return hasher.hexdigest()

        return self._asked("read", path, hashed)

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Write a new file, if there is none at a look before. Raises Exists."""
        if self.head(path) is not None:
            raise Exists(f"{path} is in {self.url} already")
        if sha256 is not None:
            require_digest(content_digest(content), sha256, content)
        return self._put(path, content)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag at a look before. Raises Changed."""
        found = self.head(path)
        if (found.tag if found else None) != tag:
            raise Changed(f"{path} was changed by somebody else meanwhile")
        return self._put(path, content)

    def copy(self, source: str, target: str) -> str:
        """Copy a file where it is, if the store can. Raises Missing and Exists."""
        if self.head(source) is None:
            raise Missing(f"there is no {source} in {self.url}")
        if self.head(target) is not None:
            raise Exists(f"{target} is in {self.url} already")
        return self._written(target, lambda place: self._fs.cp_file(self._place(source), place))

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        start = below(prefix)
        self._fs.invalidate_cache()
        for path in sorted(self._below(start)):
            if (found := self.head(path)) is not None:  # else removed since
                yield Listed(path, found.size, found.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        self._fs.invalidate_cache()
        return sorted(name for name, is_folder in self._inside(below(prefix)) if is_folder)

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        if self.head(path) is not None:
            self._asked("remove", path, self._fs.rm_file)

    def url_of(self, path: str) -> str:
        """Return where a file or folder is."""
        end = "/" if path.endswith("/") else ""
        return f"{self.url}/{quote(checked(path.rstrip('/')))}{end}"

    def _below(self, start: str) -> Iterator[str]:
        for name, is_folder in self._inside(start):
            if is_folder:
                yield from self._below(f"{start}{name}/")
            else:
                yield start + name

    def _inside(self, start: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, and which are folders. fsspec's own walk passes failures over."""

        def ask(place: str) -> list[tuple[str, bool]]:
            found = self._fs.ls(place, detail=True)
            names = [(str(one["name"]).rstrip("/").rpartition("/")[2], one["type"]) for one in found]
            return [(name, kind == "directory") for name, kind in names if is_path(name)]

        try:
            return self._asked("list", start.rstrip("/"), ask)
        except Missing:
            return []

    def _put(self, path: str, content: bytes | Path) -> str:
        def write(place: str) -> None:
            if isinstance(content, Path):
                self._fs.put_file(str(content), place)
            else:
                self._fs.pipe_file(place, content)

        return self._written(path, write)

    def _written(self, path: str, write: Callable[[str], object]) -> str:
        """Have a file written, beside and renamed where that is one step, and return its tag."""

        def beside(place: str) -> None:
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            if not _renames(self._fs):
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
            self._asked("write", path, beside)
        except Missing as cause:
            raise ReleaseError(f"cannot write {path} to {self.url}") from cause
        self._fs.invalidate_cache()
        found = self.head(path)
        if found is None:
            raise ReleaseError(f"{path} was written to {self.url}, and is not there")
        return found.tag

    def _asked(self, what: str, path: str, ask: Callable[[str], T]) -> T:
        """Return what a file system answers. Raises Missing, UsageError for what it cannot, ReleaseError."""
        try:
            return ask(self._place(path))
        except _NONE as cause:
            behind = cause.__cause__  # a server that does not answer is not an empty one
            if not isinstance(behind, (LookupError, type(None))) and getattr(behind, "status", None) != 404:
                raise self._failed(what, path) from behind
            raise Missing(f"there is no {path} in {self.url}") from None
        except NotImplementedError as cause:
            raise UsageError(f"{self.url} is of a kind that cannot {what} files") from cause
        except RocmWheelsError:
            raise
        except Exception as cause:  # whatever the libraries behind fsspec raise
            raise self._failed(what, path) from cause

    def _failed(self, what: str, path: str) -> ReleaseError:
        return ReleaseError(f"cannot {what} {path or 'files'} in {self.url}")

    def _place(self, path: str) -> str:
        if not path:
            return self._root
        return f"{self._root}/{checked(path)}" if self._root else checked(path)


def _renames(filesystem: Any) -> bool:
    """Tell whether a file system has a rename of its own; that of fsspec itself copies and deletes."""
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

    return type(filesystem).mv is not AbstractFileSystem.mv


def _tag_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if len(content) < _READ_FOR_TAG else str(len(content))

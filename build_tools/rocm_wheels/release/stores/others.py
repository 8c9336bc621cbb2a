"""A store at any other URL that fsspec knows: read as a rule, written only where nobody else does.

fsspec has no conditions for writes that hold everywhere, so none are promised. A file may be seen half by
who reads while it is written, where the file system behind it is one of that kind (sftp, webdav).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.release.stores.store import (
    Changed,
    Exists,
    Found,
    Head,
    Listed,
    Missing,
    below,
    checked,
)
from rocm_wheels.shell import hide_credentials


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
        except ValueError as cause:
            raise UsageError(
                f"{self.url} is not a store",
                tip="name a folder, s3://bucket/prefix or a URL that fsspec knows",
            ) from cause
        self._fs: Any = filesystem
        self._root = str(root).rstrip("/")
        self.looks_first = True

    def read(self, path: str) -> Found:
        """Return a whole file. Raises Missing."""
        content = self._asked(path, self._fs.cat_file)
        return Found(content, _tag_of(content))

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, whole or not at all. Raises Missing."""
        part = target.with_name(f".{target.name}.part")
        try:
            self._asked(path, lambda place: self._fs.get_file(place, str(part)))
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def head(self, path: str) -> Head | None:
        """Return size and tag; of a small file the tag is a sum of its bytes, which are read for it."""
        try:
            found = self._asked(path, self._fs.info)
        except Missing:
            return None
        if found.get("type") == "directory":
            return None
        return Head(int(found["size"] or 0), self._tag(found))

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of the bytes that come. Raises Missing."""

        def hashed(place: str) -> str:
            hasher = hashlib.sha256()
            with self._fs.open(place, "rb") as file:
                while piece := file.read(1 << 20):
                    hasher.update(piece)
            return hasher.hexdigest()

        return str(self._asked(path, hashed))

    def create(self, path: str, content: bytes | Path) -> str:
        """Write a new file, if there is none at a look before. Raises Exists."""
        if self.head(path) is not None:
            raise Exists(f"{path} is in {self.url} already")
        return self._put(path, content)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Exchange the file that has this tag at a look before. Raises Changed."""
        found = self.head(path)
        if (found.tag if found else None) != tag:
            raise Changed(f"{path} was changed by somebody else meanwhile")
        return self._put(path, content)

    def copy(self, source: str, target: str) -> str:
        """Copy a file where it is, if the store can. Raises Missing and Exists."""
        if self.head(target) is not None:
            raise Exists(f"{target} is in {self.url} already")
        self._fs.makedirs(self._place(target).rpartition("/")[0], exist_ok=True)
        self._asked(source, lambda place: self._fs.cp_file(place, self._place(target)))
        return self._tag(self._fs.info(self._place(target)))

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        start = f"{self._root}/{below(prefix)}".rstrip("/")
        self._fs.invalidate_cache()
        for place, found in sorted(self._fs.find(start, detail=True).items()):
            path = str(place)[len(self._root) :].lstrip("/")
            yield Listed(path, int(found["size"] or 0), self._tag(found))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(f"{self._root}/{below(prefix)}".rstrip("/"), detail=True)
        except FileNotFoundError:
            return []
        names = (
            str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"
        )
        return sorted(names)

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        if self.head(path) is not None:
            self._fs.rm_file(self._place(path))

    def url_of(self, path: str) -> str:
        """Return where a file or folder is."""
        end = "/" if path.endswith("/") else ""
        return f"{self.url}/{quote(checked(path.rstrip('/')))}{end}"

    def _put(self, path: str, content: bytes | Path) -> str:
        place = self._place(path)
        try:
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            if isinstance(content, Path):
                self._fs.put_file(str(content), place)
            else:
                self._fs.pipe_file(place, content)
        except NotImplementedError as cause:
            raise UsageError(f"nothing can be written to {self.url}") from cause
        except OSError as cause:
            raise ReleaseError(f"cannot write {path} to {self.url}") from cause
        self._fs.invalidate_cache()
        return self._tag(self._fs.info(place))

    def _asked(self, path: str, ask: Any) -> Any:
        try:
            return ask(self._place(path))
        except (FileNotFoundError, IsADirectoryError):
            raise Missing(f"there is no {path} in {self.url}") from None
        except OSError as cause:
            raise ReleaseError(f"cannot read {path} of {self.url}") from cause

    def _place(self, path: str) -> str:
        return f"{self._root}/{checked(path)}"

    def _tag(self, found: Any) -> str:
        return (
            _tag_of(self._fs.cat_file(found["name"]))
            if (found["size"] or 0) < 1 << 20
            else str(found["size"])
        )


def _tag_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if len(content) < 1 << 20 else str(len(content))

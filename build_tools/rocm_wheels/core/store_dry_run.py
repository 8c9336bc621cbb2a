"""Stand in for a store in a dry run: record what would be written, and read it as if it had been."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.core.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    ListedFile,
    NotInStoreError,
    Store,
    StoredFile,
    StoredFileInfo,
    prefix_of_folder,
    require_digest,
)


class DryRunStore:
    """A store as it would be after all that was asked of this one. ``writes`` says what that was."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self._pretended: dict[
            str, bytes | str | None
        ] = {}  # content, or the path that was copied; None: gone
        self.url, self.folder, self.conditional = inner.url, inner.folder, inner.conditional
        self.looks_first = inner.looks_first

    def record_write(self, description: str) -> None:
        """Note a write."""
        self.writes.append(description)

    def read(self, path: str) -> StoredFile:
        """Return a whole file. Raises NotInStoreError."""
        content = self._pretended.get(path, path)
        if content is None:
            raise NotInStoreError(f"there is no {path} in {self.url}")
        if isinstance(content, bytes):
            return StoredFile(content, hashlib.sha256(content).hexdigest())
        return self._inner.read(content)

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine. Raises NotInStoreError."""
        target.write_bytes(self.read(path).content)

    def head(self, path: str) -> StoredFileInfo | None:
        """Return what is known of a file."""
        content = self._pretended.get(path, path)
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
            return StoredFileInfo(len(content), digest, digest)
        return None if content is None else self._inner.head(content)

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of a file. Raises NotInStoreError."""
        content = self._pretended.get(path, path)
        return self._inner.digest(content) if isinstance(content, str) else str(self.read(path).tag)

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Say that a file would be created. Raises AlreadyInStoreError."""
        payload = content if isinstance(content, bytes) else content.read_bytes()
        require_digest(hashlib.sha256(payload).hexdigest(), sha256, content)
        return self._pretend_write("create", path, payload)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Say that a file would be replaced. Raises ChangedInStoreError."""
        info = self.head(path)
        if (info.tag if info else None) != tag:
            raise ChangedInStoreError(f"{path} was changed by another process in the meantime")
        self._pretended[path] = content
        self.record_write(f"{'create' if tag is None else 'replace'} {path}")
        return hashlib.sha256(content).hexdigest()

    def copy(self, source: str, target: str) -> str:
        """Say that a file would be copied. Raises NotInStoreError and AlreadyInStoreError."""
        if self.head(source) is None:
            raise NotInStoreError(f"there is no {source} in {self.url}")
        original = self._pretended.get(source, source)
        assert original is not None
        return self._pretend_write("copy", target, original)

    def listing(self, prefix: str) -> Iterator[ListedFile]:
        """Yield the files below a folder, sorted by path."""
        start = prefix_of_folder(prefix)
        existing = {listed.path: listed for listed in self._inner.listing(prefix)}
        for path in sorted({*existing, *(path for path in self._pretended if path.startswith(start))}):
            if path not in self._pretended:
                yield existing[path]
            elif (info := self.head(path)) is not None:
                yield ListedFile(path, info.size, info.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = prefix_of_folder(prefix)
        new = {path[len(start) :].split("/")[0] for path in self._pretended if path.startswith(start)}
        return sorted({*self._inner.folders(prefix), *new})

    def remove(self, path: str) -> None:
        """Say that a file would be deleted."""
        self._pretended[path] = None
        self.record_write(f"remove {path}")

    def url_of(self, path: str) -> str:
        """Return where a file is."""
        return self._inner.url_of(path)

    def _pretend_write(self, action: str, path: str, content: bytes | str) -> str:
        if self.head(path) is not None:
            raise AlreadyInStoreError(f"{path} is in {self.url} already")
        self._pretended[path] = content
        self.record_write(f"{action} {path}")
        info = self.head(path)
        return info.tag if info else ""

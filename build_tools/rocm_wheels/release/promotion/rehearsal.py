"""A store that does nothing: what would be written is said, and read as if it had been."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.stores.content import require_digest
from rocm_wheels.stores.store import Changed, Exists, Found, Head, Listed, Missing, Store, below


class Rehearsal:
    """A store as it would be after all that was asked of this one. ``writes`` says what that was."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self._made: dict[str, bytes | str | None] = {}  # content, or the path that was copied; None: gone
        self.url, self.folder, self.conditional = inner.url, inner.folder, inner.conditional
        self.looks_first = inner.looks_first

    def would(self, what: str) -> None:
        """Note a write."""
        self.writes.append(what)

    def read(self, path: str) -> Found:
        """Return a whole file. Raises Missing."""
        made = self._made.get(path, path)
        if made is None:
            raise Missing(f"there is no {path} in {self.url}")
        if isinstance(made, bytes):
            return Found(made, hashlib.sha256(made).hexdigest())
        return self._inner.read(made)

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine. Raises Missing."""
        target.write_bytes(self.read(path).content)

    def head(self, path: str) -> Head | None:
        """Return what is known of a file."""
        made = self._made.get(path, path)
        if isinstance(made, bytes):
            digest = hashlib.sha256(made).hexdigest()
            return Head(len(made), digest, digest)
        return None if made is None else self._inner.head(made)

    def digest(self, path: str) -> str:
        """Return the sha256 (hex) of a file. Raises Missing."""
        made = self._made.get(path, path)
        return self._inner.digest(made) if isinstance(made, str) else str(self.read(path).tag)

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        """Say that a file would be created. Raises Exists."""
        found = content if isinstance(content, bytes) else content.read_bytes()
        require_digest(hashlib.sha256(found).hexdigest(), sha256, content)
        return self._write("create", path, found)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        """Say that a file would be replaced. Raises Changed."""
        found = self.head(path)
        if (found.tag if found else None) != tag:
            raise Changed(f"{path} was changed by somebody else meanwhile")
        self._made[path] = content
        self.would(f"{'create' if tag is None else 'replace'} {path}")
        return hashlib.sha256(content).hexdigest()

    def copy(self, source: str, target: str) -> str:
        """Say that a file would be copied. Raises Missing and Exists."""
        if self.head(source) is None:
            raise Missing(f"there is no {source} in {self.url}")
        made = self._made.get(source, source)
        assert made is not None
        return self._write("copy", target, made)

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Yield the files below a folder, sorted by path."""
        start = below(prefix)
        there = {one.path: one for one in self._inner.listing(prefix)}
        for path in sorted({*there, *(path for path in self._made if path.startswith(start))}):
            if path not in self._made:
                yield there[path]
            elif (found := self.head(path)) is not None:
                yield Listed(path, found.size, found.tag)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders that lie directly in a folder."""
        start = below(prefix)
        new = {path[len(start) :].split("/")[0] for path in self._made if path.startswith(start)}
        return sorted({*self._inner.folders(prefix), *new})

    def remove(self, path: str) -> None:
        """Say that a file would be deleted."""
        self._made[path] = None
        self.would(f"remove {path}")

    def url_of(self, path: str) -> str:
        """Return where a file is."""
        return self._inner.url_of(path)

    def _write(self, what: str, path: str, made: bytes | str) -> str:
        if self.head(path) is not None:
            raise Exists(f"{path} is in {self.url} already")
        self._made[path] = made
        self.would(f"{what} {path}")
        found = self.head(path)
        return found.tag if found else ""

"""A store in which a chosen write goes wrong, and which can list the writes of an operation.

``writes`` are the writes so far, such as ``create x/set.json``. The one that is ``at`` (``*``: each one)
fails by ``fault``:

| fault | what happens |
|---|---|
| ``before`` ``after`` | the process ends before or after it (``Killed``); this store does nothing more |
| ``kill -9 in`` ``kill -9 after`` | it really does (a folder; in a process of its own) |
| ``raced`` | somebody else does the very same write just before |
| ``other`` | somebody else writes other bytes there just before |
| ``error`` | the server is in trouble for good |
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from rocm_wheels.core import errors
from rocm_wheels.stores import store


class Killed(BaseException):
    """The process would be gone now."""


class FaultyStore:
    """A store that does as ``inner`` does, but for the write that is ``at``."""

    def __init__(self, inner: store.Store, *, at: str = "", fault: str = "") -> None:
        self.inner, self.at, self.fault = inner, at, fault
        self.writes: list[str] = []
        self.dead = False
        self._lock = threading.Lock()
        self.url, self.folder = inner.url, inner.folder

    def create(self, path: str, content: bytes | Path, *, sha256: str | None = None) -> str:
        return self._write(f"create {path}", lambda: self.inner.create(path, content, sha256=sha256), path)

    def replace(self, path: str, content: bytes, tag: str | None) -> str:
        return self._write(f"replace {path}", lambda: self.inner.replace(path, content, tag), path)

    def remove(self, path: str) -> None:
        self._write(f"remove {path}", lambda: self.inner.remove(path) or "", path)

    def read(self, path: str) -> store.StoredFile:
        self._alive()
        return self.inner.read(path)

    def fetch(self, path: str, target: Path) -> None:
        self._alive()
        self.inner.fetch(path, target)

    def head(self, path: str) -> store.StoredFileInfo | None:
        self._alive()
        return self.inner.head(path)

    def digest(self, path: str) -> str:
        self._alive()
        return self.inner.digest(path)

    def listing(self, prefix: str) -> Iterator[store.ListedFile]:
        self._alive()
        return self.inner.listing(prefix)

    def folders(self, prefix: str) -> list[str]:
        self._alive()
        return self.inner.folders(prefix)

    def url_of(self, path: str) -> str:
        return self.inner.url_of(path)

    def _alive(self) -> None:
        if self.dead:
            raise Killed

    def _end(self) -> NoReturn:
        self.dead = True
        if self.fault.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        with self._lock:
            self._alive()
            self.writes.append(what)
        if self.at not in (what, "*"):
            return work()
        if self.fault == "before":
            self._end()
        if self.fault == "kill -9 in":
            os.link = os.replace = lambda *_, **__: self._end()  # all is written, and has no name yet
        if self.fault == "raced":
            work()
        if self.fault == "other":
            self.inner.create(path, b"other bytes")
        if self.fault == "error":
            raise errors.ReleaseError(f"cannot write {path}")
        tag = work()
        if self.fault in ("after", "kill -9 after"):
            self._end()
        return tag


class KilledAfter(FaultyStore):
    """A store whose process ends after so many writes."""

    def __init__(self, inner: store.Store, count: int) -> None:
        super().__init__(inner)
        self.count = count

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        tag = super()._write(what, work, path)
        if len(self.writes) == self.count:
            self._end()
        return tag


class Watched(FaultyStore):
    """A store that tells the second write of a file from the first; a guest comes before the one ``at``."""

    guest: Callable[[], object] | None = None

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        again = sum(one.split(" again")[0] == what for one in self.writes)
        named = f"{what} again {again}" if again else what
        if self.guest is not None and named == self.at:
            guest, self.guest = self.guest, None
            guest()
        return super()._write(named, work, path)

"""Bound the memory of work in several threads: a budget, and a file without a name for what they make."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Condition, Lock


class SpoolFile:
    """A file without a name that grows by whole pieces; ``stack`` closes it."""

    def __init__(self, stack: ExitStack) -> None:
        self._file = stack.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self._lock = Lock()
        self._size = 0

    def append(self, content: bytes) -> int:
        """Write bytes; return where they begin."""
        with self._lock:
            at = self._size
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
            self._size += len(content)
            return at

    def view(self) -> memoryview:
        """Return all that was written so far, mapped."""
        if not self._size:  # nothing cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ))


class ByteBudget:
    """Lets work in threads begin while all that it holds together stays below a limit of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._changed = Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Wait until ``size`` bytes are free, and hold them in the block; what is larger runs alone."""
        held = min(size, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= held)
            self._free -= held
        try:
            yield
        finally:
            with self._changed:
                self._free += held
                self._changed.notify_all()


# of bundles that are open at a time, in all threads; one may be larger. Inflating a stream with long matches
# takes as much memory as it has content, 128 MB at most
OPEN_BUNDLES = ByteBudget(160 << 20)

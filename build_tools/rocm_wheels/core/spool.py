"""Keep what several threads make in one file without a name, so that it is not all in memory."""

from __future__ import annotations

import mmap
import tempfile
from contextlib import ExitStack
from threading import Lock


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

"""A range of one file into another, by the kernel where it can.

``copy_file_range`` copies inside the kernel, and shares the blocks instead where the file system
has reflinks and the range is aligned (btrfs, xfs). Where it cannot, ``sendfile`` does, and where that cannot
either, or the system has neither, the bytes are read and written. Holes of a sparse file stay holes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Thread
from types import TracebackType

_MOST_AT_ONCE = 64 << 20  # so that a copy that is no longer wanted ends soon
_READ_PIECE = 1 << 20
# what a kernel or file system answers that does not do it this way: another way can
_UNSUPPORTED_ERRORS = {
    errno.EXDEV,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOTSOCK,  # macOS: sendfile is for sockets only
    errno.ENOSYS,
    errno.EINVAL,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
    errno.EOVERFLOW,
}


class CutShortError(OSError):
    """The source ended before the range did: it became shorter while it was read."""


class RangeCopier:
    """Copies ranges from a file to the place where another stands; remembers which way works.

    ``target`` is written through its descriptor only: flush what a buffer holds before.
    """

    def __init__(self, source: int, target: int, name: Path) -> None:
        self.stopped = False
        self._source = source
        self._target = target
        self._name = name
        ways = [("copy_file_range", self._copy_file_range), ("sendfile", self._send_file)]
        status = os.fstat(source)
        blocks = getattr(status, "st_blocks", None)  # of 512 bytes, whatever the file system's own are
        self._sparse = blocks is not None and hasattr(os, "SEEK_DATA") and blocks * 512 < status.st_size
        self._ways = [way for name, way in ways if hasattr(os, name)] + [self._read_and_write]

    def copy_range(self, begin: int, end: int) -> None:
        """Copy bytes ``begin`` to ``end`` of the source; OSError with the name of the target."""
        while self._sparse and begin < end:
            data = self._seek_next(begin, os.SEEK_DATA, end)
            os.lseek(self._target, data - begin, os.SEEK_CUR)
            begin = self._seek_next(data, os.SEEK_HOLE, end) if data < end else end
            self._copy_bytes(data, begin)
        self._copy_bytes(begin, end)

    def _seek_next(self, begin: int, whence: int, end: int) -> int:
        """Return where the next data or hole begins; ``end`` when there is none before."""
        try:
            return min(os.lseek(self._source, begin, whence), end)
        except OSError as failure:
            if failure.errno != errno.ENXIO:
                raise self._name_target(failure) from None
            return end  # behind the last data

    def _copy_bytes(self, begin: int, end: int) -> None:
        while begin < end and not self.stopped:
            try:
                copied = self._ways[0](begin, min(end - begin, _MOST_AT_ONCE))
            except OSError as failure:
                if len(self._ways) > 1 and failure.errno in _UNSUPPORTED_ERRORS:
                    del self._ways[0]
                    continue
                raise self._name_target(failure) from None
            if not copied:
                if len(self._ways) > 1:  # some file systems answer 0 instead of an error
                    del self._ways[0]
                    continue
                raise CutShortError(errno.EIO, "the wheel became shorter while it was read", str(self._name))
            begin += copied

    def write(self, content: bytes | bytearray) -> None:
        """Write all bytes, in as many calls as it takes; OSError with the name of the target."""
        remaining = memoryview(content)
        try:
            while remaining:
                remaining = remaining[os.write(self._target, remaining) :]
        except OSError as failure:
            raise self._name_target(failure) from None

    def _name_target(self, failure: OSError) -> OSError:
        return OSError(failure.errno, os.strerror(failure.errno or 0), str(self._name))

    def _copy_file_range(self, begin: int, size: int) -> int:
        return os.copy_file_range(self._source, self._target, size, offset_src=begin)

    def _send_file(self, begin: int, size: int) -> int:
        return os.sendfile(self._target, self._source, begin, size)

    def _read_and_write(self, begin: int, size: int) -> int:
        os.lseek(self._source, begin, os.SEEK_SET)
        piece = os.read(self._source, min(size, _READ_PIECE))
        self.write(piece)
        return len(piece)


class ArchiveWriter:
    """A file that is written front to back from bytes and from ranges of another file.

    Ranges that follow each other there are joined to one copy, and so are bytes to one write.
    ``position`` is where the next byte goes. A context: at its end nothing is written any more.
    """

    def __init__(self, source: int, target: int, name: Path) -> None:
        self.position = 0
        self._copier = RangeCopier(source, target, name)
        self._target = target
        self._begin = self._end = 0
        self._bytes = bytearray()
        self._ahead: Thread | None = None
        self._copied = 0  # bytes of the source that the target already begins with
        self._failure: OSError | None = None

    def __enter__(self) -> ArchiveWriter:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what is still copied ahead."""
        self._copier.stopped = True
        self._join_copy_ahead()

    def copy_ahead(self, end: int) -> None:
        """Copy the source up to ``end`` meanwhile: the file will most likely begin with that."""
        if not hasattr(os, "pread"):
            return  # what reads the source meanwhile moves the place where we read

        def copy_in_thread() -> None:
            try:
                self._copier.copy_range(0, end)
            except OSError as failure:
                self._failure = failure

        self._copied = end
        self._ahead = Thread(target=copy_in_thread)
        self._ahead.start()

    def _join_copy_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def copy_range(self, begin: int, end: int) -> None:
        """Take over a range of the source."""
        if end == begin:
            return
        if self._bytes or (self._end and begin != self._end):
            self.flush()
        if not self._end:
            self._begin = begin
        self._end = end
        self.position += end - begin

    def write(self, content: bytes) -> None:
        """Write bytes."""
        if self._end:
            self.flush()
        self._bytes += content
        self.position += len(content)

    def flush(self) -> None:
        """Hand on what is waiting; OSError with the name of the target."""
        if self._ahead is not None:
            self._join_copy_ahead()
            if self._failure:
                raise self._failure
            if self._begin == 0 and self._copied <= self._end:
                self._begin = self._copied
            else:  # it does not begin with that
                os.lseek(self._target, 0, os.SEEK_SET)
                os.ftruncate(self._target, 0)
        if self._end:
            self._copier.copy_range(self._begin, self._end)
        self._copier.write(self._bytes)
        self._begin = self._end = 0
        self._bytes = bytearray()

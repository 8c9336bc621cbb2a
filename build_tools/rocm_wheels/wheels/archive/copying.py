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
_PIECE = 1 << 20
# what a kernel or file system answers that does not do it this way: another way can
_NOT_THIS_WAY = {
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


class Copier:
    """Copies ranges from a file to the place where another stands; remembers which way works.

    ``target`` is written through its descriptor only: flush what a buffer holds before.
    """

    def __init__(self, source: int, target: int, name: Path) -> None:
        self.stopped = False
        self._source = source
        self._target = target
        self._name = name
        ways = [("copy_file_range", self._copy_file_range), ("sendfile", self._sendfile)]
        about = os.fstat(source)
        blocks = getattr(about, "st_blocks", None)  # of 512 bytes, whatever the file system's own are
        self._sparse = blocks is not None and hasattr(os, "SEEK_DATA") and blocks * 512 < about.st_size
        self._ways = [way for name, way in ways if hasattr(os, name)] + [self._read_and_write]

    def copy(self, begin: int, end: int) -> None:
        """Copy bytes ``begin`` to ``end`` of the source; OSError with the name of the target."""
        while self._sparse and begin < end:
            data = self._seek(begin, os.SEEK_DATA, end)
            os.lseek(self._target, data - begin, os.SEEK_CUR)
            begin = self._seek(data, os.SEEK_HOLE, end) if data < end else end
            self._copy(data, begin)
        self._copy(begin, end)

    def _seek(self, begin: int, what: int, end: int) -> int:
        """Return where the next data or hole begins; ``end`` when there is none before."""
        try:
            return min(os.lseek(self._source, begin, what), end)
        except OSError as failure:
            if failure.errno != errno.ENXIO:
                raise self._named(failure) from None
            return end  # behind the last data

    def _copy(self, begin: int, end: int) -> None:
        while begin < end and not self.stopped:
            try:
                copied = self._ways[0](begin, min(end - begin, _MOST_AT_ONCE))
            except OSError as failure:
                if len(self._ways) > 1 and failure.errno in _NOT_THIS_WAY:
                    del self._ways[0]
                    continue
                raise self._named(failure) from None
            if not copied:
                if len(self._ways) > 1:  # some file systems answer 0 instead of an error
                    del self._ways[0]
                    continue
                raise CutShortError(errno.EIO, "the wheel became shorter while it was read", str(self._name))
            begin += copied

    def write(self, content: bytes | bytearray) -> None:
        """Write all bytes, in as many calls as it takes; OSError with the name of the target."""
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._target, left) :]
        except OSError as failure:
            raise self._named(failure) from None

    def _named(self, failure: OSError) -> OSError:
        return OSError(failure.errno, os.strerror(failure.errno or 0), str(self._name))

    def _copy_file_range(self, begin: int, size: int) -> int:
        return os.copy_file_range(self._source, self._target, size, offset_src=begin)

    def _sendfile(self, begin: int, size: int) -> int:
        return os.sendfile(self._target, self._source, begin, size)

    def _read_and_write(self, begin: int, size: int) -> int:
        os.lseek(self._source, begin, os.SEEK_SET)
        piece = os.read(self._source, min(size, _PIECE))
        self.write(piece)
        return len(piece)


class Sink:
    """A file that is written front to back from bytes and from ranges of another file.

    Ranges that follow each other there are joined to one copy, and so are bytes to one write.
    ``place`` is where the next byte goes. A context: at its end nothing is written any more.
    """

    def __init__(self, source: int, target: int, name: Path) -> None:
        self.place = 0
        self._copier = Copier(source, target, name)
        self._target = target
        self._begin = self._end = 0
        self._bytes = bytearray()
        self._ahead: Thread | None = None
        self._copied = 0  # bytes of the source that the target already begins with
        self._failure: OSError | None = None

    def __enter__(self) -> Sink:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what is still copied ahead."""
        self._copier.stopped = True
        self._end_ahead()

    def copy_ahead(self, end: int) -> None:
        """Copy the source up to ``end`` meanwhile: the file will most likely begin with that."""
        if not hasattr(os, "pread"):
            return  # what reads the source meanwhile moves the place where we read

        def copy() -> None:
            try:
                self._copier.copy(0, end)
            except OSError as failure:
                self._failure = failure

        self._copied = end
        self._ahead = Thread(target=copy)
        self._ahead.start()

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def copy(self, begin: int, end: int) -> None:
        """Take over a range of the source."""
        if end == begin:
            return
        if self._bytes or (self._end and begin != self._end):
            self.finish()
        if not self._end:
            self._begin = begin
        self._end = end
        self.place += end - begin

    def write(self, content: bytes) -> None:
        """Write bytes."""
        if self._end:
            self.finish()
        self._bytes += content
        self.place += len(content)

    def finish(self) -> None:
        """Hand on what is waiting; OSError with the name of the target."""
        if self._ahead is not None:
            self._end_ahead()
            if self._failure:
                raise self._failure
            if self._begin == 0 and self._copied <= self._end:
                self._begin = self._copied
            else:  # it does not begin with that
                os.lseek(self._target, 0, os.SEEK_SET)
                os.ftruncate(self._target, 0)
        if self._end:
            self._copier.copy(self._begin, self._end)
        self._copier.write(self._bytes)
        self._begin = self._end = 0
        self._bytes = bytearray()

"""The members of a wheel: each inflated at most once, in threads, with every damage named.

The central directory is read by ``zipfile``; contents are inflated here, so that members can be
read in threads, a fault is told by its name and nothing is inflated that nobody
wants. Source: PKWARE APPNOTE 6.3.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO, Generic, TypeVar

from rocm_wheels.errors import DataError

HEAD_SIZE = 4096
_PIECE = 1 << 18
_INPUT = 1 << 16
_IN_MEMORY = 64 << 20  # larger members go through a temporary file
_MOST_THREADS = 4
_WORTH_A_THREAD = 1 << 20
_DEFLATE_LIMIT = 1032  # no deflate stream is shorter than its content by more than this factor
_LOCAL_HEADER = struct.Struct("<4s2xH18xHH")
_BROKEN_DIRECTORY = (
    zipfile.BadZipFile,
    ValueError,
    struct.error,
    NotImplementedError,
    OverflowError,
    MemoryError,
)
_ENCRYPTED, _UTF8 = 0x1, 0x800

T = TypeVar("T")
Choose = Callable[[str, bytes], "Callable[[memoryview], T] | None"]


@dataclass(frozen=True)
class Content(Generic[T]):
    """What was read of a member.

    ``result`` is what the chosen reader returned, None when none was chosen; ``sha256`` (raw
    digest) is there when digests were asked for; ``fault`` says why neither is.
    """

    name: str
    size: int
    result: T | None = None
    sha256: bytes | None = None
    fault: str | None = None


class WheelArchive:
    """An open wheel. ``members`` are its files in the order of the archive, folders left out."""

    def __init__(self, path: Path, file: BinaryIO, members: list[zipfile.ZipInfo], size: int) -> None:
        self.path = path
        self.members = members
        self.size = size
        self._file = file
        self._lock = Lock()
        begins = sorted(info.header_offset for info in members)
        # where the next one begins; two at one place: there
        self._next = dict(zip(reversed(begins[:-1]), reversed(begins[1:]), strict=True))

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[WheelArchive]:
        """Open a wheel; DataError when it is not there or its directory cannot be read."""
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed below, apart from the faults of the directory
        except OSError as cause:
            raise DataError(f"cannot read {path}: {cause.strerror}") from None
        with file:
            try:
                members = [info for info in zipfile.ZipFile(file).infolist() if not info.is_dir()]
                size = file.seek(0, os.SEEK_END)
            except (OSError, *_BROKEN_DIRECTORY) as cause:
                raise DataError(f"{path} is not a readable wheel: cut short or damaged") from cause
            yield cls(path, file, members, size)

    def unsound(self) -> dict[str, str]:
        """Return the members whose name or place is wrong, with what is wrong, before any is read."""
        names = Counter(info.filename for info in self.members)
        found = {name: f"{count} members of this name" for name, count in names.items() if count > 1}
        leading_out = [name for name in names if _leads_out(name)]
        return {**found, **dict.fromkeys(leading_out, "this name leads out of the folder it is unpacked to")}

    def require_sound(self) -> None:
        """Raise DataError when ``unsound`` finds something."""
        found = [f"{self.path}: {name}: {fault}" for name, fault in self.unsound().items()]
        if found:
            raise DataError("\n".join(found))

    def sha256(self) -> str:
        """Return the digest (hex) of the whole file."""
        hasher = hashlib.sha256()
        for at in range(0, self.size, _PIECE):
            hasher.update(self._bytes_at(at, min(_PIECE, self.size - at)))
        return hasher.hexdigest()

    def read_all(self, choose: Choose[T], *, digest: bool) -> list[Content[T]]:
        """Read every member once, in the order of ``members``.

        ``choose`` gets the name and the first 4096 bytes, and returns a function that reads
        the whole content, or None. With ``digest`` every member is inflated and hashed, else
        only as far as it is wanted. Large members are read in threads (inflating and hashing
        release the interpreter), so the chosen function runs in one; what it raises is raised here.
        """
        large = sorted(
            (i for i, info in enumerate(self.members) if info.compress_size >= _WORTH_A_THREAD),
            key=lambda i: -self.members[i].compress_size,
        )
        results: dict[int, Content[T]] = {}
        pool = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
        try:
            running = {i: pool.submit(self._read, self.members[i], choose, digest) for i in large}
            for i, info in enumerate(self.members):
                if i not in running:
                    results[i] = self._read(info, choose, digest)
            results |= {i: future.result() for i, future in running.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        return [results[i] for i in range(len(self.members))]

    def _read(self, info: zipfile.ZipInfo, choose: Choose[T], digest: bool) -> Content[T]:
        store, hasher = None, hashlib.sha256() if digest else None
        try:
            pieces = self._inflate(info)
            head = b""
            while len(head) < HEAD_SIZE and (piece := next(pieces, None)) is not None:
                head += piece
            reader = choose(info.filename, head[:HEAD_SIZE])
            if reader:
                store = _Store(info.file_size)
            for piece in chain([head], pieces) if reader or hasher else ():
                if hasher:
                    hasher.update(piece)
                if store:
                    store.add(piece)
        except _MemberFault as fault:
            return Content(info.filename, info.file_size, fault=f"{self.path}: {info.filename}: {fault}")
        result = reader(store.view()) if reader and store else None
        return Content(info.filename, info.file_size, result, hasher.digest() if hasher else None)

    def _inflate(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield a member piece by piece; raises _MemberFault. All checks are done when it ends."""
        data = self._compressed(info)
        size = checksum = 0
        for piece in _inflated(data) if info.compress_type == zipfile.ZIP_DEFLATED else data:
            size += len(piece)
            if size > info.file_size:
                raise _MemberFault(f"inflates to more than the {info.file_size} bytes it declares")
            checksum = zlib.crc32(piece, checksum)
            yield piece
        if size != info.file_size:
            raise _MemberFault(f"inflates to {size} bytes instead of {info.file_size}")
        if checksum != info.CRC:
            raise _MemberFault("its content does not have the CRC that the archive states")

    def _compressed(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield what the archive holds of a member, once its two headers agree."""
        if info.flag_bits & _ENCRYPTED:
            raise _MemberFault("encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _MemberFault(f"compression method {info.compress_type}; wheels are stored or deflated")
        if info.file_size > _DEFLATE_LIMIT * (info.compress_size + 64):
            raise _MemberFault(f"{info.compress_size} bytes cannot inflate to {info.file_size}")
        at = info.header_offset
        header = self._bytes_at(at, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise _MemberFault(f"no member begins at {at}, where the directory says")
        _, flags, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        name = self._bytes_at(at + _LOCAL_HEADER.size, name_size)
        if name.decode("utf-8" if flags & _UTF8 else "cp437", "replace") != info.orig_filename:
            raise _MemberFault(f"the member at {at} calls itself {name!r}")
        start = at + _LOCAL_HEADER.size + name_size + extra_size
        end = start + info.compress_size
        if end > self.size:
            raise _MemberFault("reaches past the end of the archive: cut short")
        # members on top of each other inflate the same bytes again and again: a small file, hours of work
        if end > self._next.get(at, end):
            raise _MemberFault("reaches into another member")
        for place in range(start, end, _INPUT):
            yield self._bytes_at(place, min(_INPUT, end - place))

    def _bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; fewer, or none, where it ends."""
        if not 0 <= offset < self.size:
            return b""
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)


class _MemberFault(Exception):
    """What is wrong with one member; turned into a fault or an error by who reads it."""


class _Store:
    """Keeps a member: in memory when it is small, in an unnamed temporary file when not."""

    def __init__(self, size: int) -> None:
        self._bytes = bytearray(size if size <= _IN_MEMORY else 0)
        self._file = tempfile.TemporaryFile() if size > _IN_MEMORY else None  # noqa: SIM115
        self._at = 0

    def add(self, piece: bytes) -> None:
        if self._file:
            self._file.write(piece)
        else:
            self._bytes[self._at : self._at + len(piece)] = piece
            self._at += len(piece)

    def view(self) -> memoryview:
        if not self._file:
            return memoryview(self._bytes).toreadonly()
        with self._file:
            self._file.flush()
            return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))


def _inflated(data: Iterator[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for more in data:
            left = more
            while left and not stream.eof:
                yield stream.decompress(left, _PIECE)
                left = stream.unconsumed_tail
        if not stream.eof:
            yield stream.flush()
    except zlib.error as cause:
        raise _MemberFault(f"bad deflate stream ({cause})") from cause
    if not stream.eof:
        raise _MemberFault("its deflate stream is cut short")


def _leads_out(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or (len(name) > 1 and name[1] == ":")

"""The members of a wheel: each inflated at most once, in threads, with every damage named.

Where the members lie, and whether an archive can be relied on at all, is ``archive.layout``'s to say.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.archive.contents import ContentError, link_fault, pieces, read_text
from rocm_wheels.wheels.archive.ending import ReadAt, UnreadableError
from rocm_wheels.wheels.archive.layout import Layout, read_layout, reader_of
from rocm_wheels.wheels.archive.records import Entry
from rocm_wheels.wheels.names import split_wheel_name

HEAD_SIZE = 4096
_PIECE = 1 << 20
_IN_MEMORY = 64 << 20  # larger members go through a temporary file
_MOST_THREADS = 4
_WORTH_A_THREAD = 1 << 20
_MOST_SHOWN = 20

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
    """An open wheel.

    ``entries`` are all that its directory has, in that order, ``members`` the files among them; ``faults`` is
    what is wrong with its layout, ``descriptor`` the open file.
    """

    def __init__(self, path: Path, file: BinaryIO, layout: Layout, size: int) -> None:
        self.path = path
        self.size = size
        self.entries = layout.entries
        self.members = [entry for entry in layout.entries if not entry.is_folder]
        self.faults = layout.faults
        self.descriptor = file.fileno()
        self._read_at = reader_of(file)
        self._state = _state(file)
        self._file = file
        # of several faults, the first is the one that the others come from
        self._broken = {f.member: f.text for f in reversed(layout.faults) if f.member and not f.readable}

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
                size = file.seek(0, os.SEEK_END)
                layout = read_layout(reader_of(file), size, folding=_folds_names(path.name))
            except (OSError, UnreadableError) as cause:
                raise DataError(f"{path} is not a readable wheel: cut short or damaged") from cause
            yield cls(path, file, layout, size)

    def unsound(self) -> dict[str, str]:
        """Return the members whose name is wrong, with what is wrong; under "" faults of the whole archive.

        What is wrong with their place or header is told by ``read_all``.
        """
        found: dict[str, str] = {}
        for fault in self.faults:
            if not fault.repaired and (fault.readable or not fault.member):
                found.setdefault(fault.member, fault.text)
        return found

    def require_sound(self) -> None:
        """Raise DataError for an archive that could be read in two ways, leads out or is damaged."""
        found = list(dict.fromkeys(f"{self.path}: {fault}" for fault in self.faults if not fault.repaired))
        if len(found) > _MOST_SHOWN:
            found[_MOST_SHOWN:] = [f"{self.path}: {len(found) - _MOST_SHOWN} more faults"]
        if found:
            raise DataError("\n".join(found))

    def require_links_inside(self) -> None:
        """Raise DataError for a symbolic link that leads out of the folder it is unpacked to."""
        for entry in self.members:
            if stat.S_ISLNK(entry.mode) and (fault := link_fault(entry, self.read(entry))):
                raise DataError(f"{self.path}: {fault}")

    def require_unchanged(self) -> None:
        """Raise DataError when the file was written to since it was opened."""
        if _state(self._file) != self._state:
            raise DataError(f"{self.path} changed while it was read")

    def sha256(self) -> str:
        """Return the digest (hex) of the whole file."""
        return _digest(self._read_at)

    def read(self, entry: Entry) -> bytes:
        """Return the content of a small member; DataError when it is damaged or large."""
        return read_text(self._read_at, entry, self.path)

    def read_all(self, choose: Choose[T], *, digest: bool) -> list[Content[T]]:
        """Read every member once, in the order of ``members``.

        ``choose`` gets the name and the first 4096 bytes, and returns a function that reads
        the whole content, or None. With ``digest`` every member is inflated and hashed, else
        only as far as it is wanted. Large members are read in threads (inflating and hashing
        release the interpreter), so the chosen function runs in one; what it raises is raised here.
        """
        from concurrent.futures import ThreadPoolExecutor

        large = sorted(
            (i for i, entry in enumerate(self.members) if entry.compressed >= _WORTH_A_THREAD),
            key=lambda i: -self.members[i].compressed,
        )
        results: dict[int, Content[T]] = {}
        pool = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
        try:
            running = {i: pool.submit(self._read, self.members[i], choose, digest) for i in large}
            for i, entry in enumerate(self.members):
                if i not in running:
                    results[i] = self._read(entry, choose, digest)
            results |= {i: future.result() for i, future in running.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        return [results[i] for i in range(len(self.members))]

    def _read(self, entry: Entry, choose: Choose[T], digest: bool) -> Content[T]:
        if fault := self._broken.get(entry.name):
            return self._faulty(entry, fault)
        store, hasher = None, hashlib.sha256() if digest else None
        try:
            left = pieces(self._read_at, entry)
            head = b""
            while len(head) < HEAD_SIZE and (piece := next(left, None)) is not None:
                head += piece
            if stat.S_ISLNK(entry.mode) and (leads := link_fault(entry, head)):
                return self._faulty(entry, leads.text)
            reader = choose(entry.name, head[:HEAD_SIZE])
            if reader:
                store = _Store(entry.size)
            for piece in chain([head], left) if reader or hasher else ():
                if hasher:
                    hasher.update(piece)
                if store:
                    store.add(piece)
        except ContentError as wrong:
            return self._faulty(entry, str(wrong))
        result = reader(store.view()) if reader and store else None
        return Content(entry.name, entry.size, result, hasher.digest() if hasher else None)

    def _faulty(self, entry: Entry, fault: str) -> Content[T]:
        return Content(entry.name, entry.size, fault=f"{self.path}: {entry.name}: {fault}")


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


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 digest (hex) of a file."""
    with open(path, "rb") as file:
        return _digest(reader_of(file))


def _digest(read_at: ReadAt) -> str:
    hasher, at = hashlib.sha256(), 0
    while piece := read_at(at, _PIECE):
        hasher.update(piece)
        at += len(piece)
    return hasher.hexdigest()


def _state(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _folds_names(file_name: str) -> bool:
    """Tell whether a wheel may be unpacked where names are compared without case: not on Linux alone."""
    try:
        platforms = split_wheel_name(file_name).platform.split(".")
    except DataError:
        return True
    return not all("linux" in platform for platform in platforms)

"""Open a wheel and read its members: each inflated at most once, in threads, with every damage named.

Contents are inflated piece by piece, and nothing is kept that nobody wants. Where the members lie, and
whether an archive can be relied on at all, is ``zip_format``'s to say.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from rocm_wheels.core import deflate, errors, files, tables
from rocm_wheels.wheels import dist_info, zip_format
from rocm_wheels.wheels.hazards import find_archive_hazards

MEMBER_HEAD_SIZE = 4096
_INFLATED_PIECE = 1 << 18
_INPUT_PIECE = 1 << 16
_LARGEST_TEXT = 64 << 20  # RECORD of a million files, a list of licences
# of what is parsed, which takes up to a hundred times as much memory; usual: below 100 KB
_PARSED_TEXTS = {
    ".dist-info/METADATA": 4 << 20,
    ".dist-info/WHEEL": 1 << 20,
    ".dist-info/entry_points.txt": 1 << 20,
    ".json": 8 << 20,
    ".pth": 1 << 20,
    ".py": 1 << 20,
}


class ContentError(Exception):
    """A member's content is not what the directory says; holds the fault."""

    def __init__(self, kind: str, entry: zip_format.ZipEntry, text: str) -> None:
        super().__init__(text)
        self.fault = zip_format.ArchiveFault(kind, entry.name, text)


def read_pieces(read: zip_format.ReadAt, entry: zip_format.ZipEntry) -> Iterator[bytes]:
    """Yield a member piece by piece; ContentError. All checks are done when it ends."""
    size = checksum = 0
    data = _read_stored(read, entry)
    for piece in _read_inflated(data, entry) if entry.method == zip_format.METHOD_DEFLATED else data:
        size += len(piece)
        if size > entry.size:
            raise ContentError("size", entry, f"inflates to more than the {entry.size} bytes it declares")
        checksum = deflate.load_codec().crc32(piece, checksum)
        yield piece
    if size != entry.size:
        raise ContentError("size", entry, f"inflates to {size} bytes instead of {entry.size}")
    if checksum != entry.crc:
        raise ContentError("crc", entry, "its content does not have the CRC that the archive states")


def _read_stored(read: zip_format.ReadAt, entry: zip_format.ZipEntry) -> Iterator[bytes]:
    """Yield the bytes of a member as they are in the archive; few at first: often no more are asked for."""
    place, end, size = entry.data, entry.data + entry.compressed, MEMBER_HEAD_SIZE
    while place < end:
        piece = read(place, min(size, end - place))
        if not piece:
            raise ContentError("size", entry, "the archive ends before it")
        yield piece
        place, size = place + size, _INPUT_PIECE


def _read_inflated(data: Iterator[bytes], entry: zip_format.ZipEntry) -> Iterator[bytes]:
    stream = deflate.load_codec().decompressobj(wbits=-deflate.load_codec().MAX_WBITS)
    behind, size = 0, MEMBER_HEAD_SIZE
    try:
        for more in data:
            if stream.eof:
                behind += len(more)
            remaining = more
            while remaining and not stream.eof:
                yield stream.decompress(remaining, size)
                remaining, size = stream.unconsumed_tail, _INFLATED_PIECE
        if not stream.eof:
            yield stream.flush()
    except deflate.get_damage_errors() as cause:
        raise ContentError("deflate", entry, f"bad deflate stream ({cause})") from cause
    if not stream.eof:
        raise ContentError("deflate", entry, "its deflate stream is cut short")
    if behind := behind + len(stream.unused_data):
        raise ContentError("deflate-rest", entry, f"{behind} bytes behind the end of its deflate stream")


def get_text_limit(name: str) -> int:
    """Return how many bytes a text file of a wheel may have: reading some costs far more than these."""
    return next((limit for end, limit in _PARSED_TEXTS.items() if name.endswith(end)), _LARGEST_TEXT)


_DIGEST_PIECE = 1 << 20
_IN_MEMORY = 32 << 20  # larger members go through a temporary file
_MOST_THREADS = 4
_WORTH_A_THREAD = 1 << 20
_WORTH_MAPPING = 1 << 20
_MOST_SHOWN = 20

ResultT = TypeVar("ResultT")
ReaderChooser = Callable[[str, bytes], "Callable[[memoryview], ResultT] | None"]


@dataclass(frozen=True)
class MemberContent(Generic[ResultT]):
    """What was read of a member.

    ``result`` is what the chosen reader returned, None when none was chosen; ``sha256`` (raw
    digest) is there when digests were asked for; ``fault`` says why neither is.
    """

    name: str
    size: int
    result: ResultT | None = None
    sha256: bytes | None = None
    fault: str | None = None


class WheelArchive:
    """An open wheel.

    ``entries`` are all that its directory has, in that order, ``members`` the files among them, which are in
    ``member_by_name``, too; ``faults`` is what is wrong with its layout, ``descriptor`` the open file.
    """

    def __init__(self, path: Path, file: BinaryIO, layout: zip_format.ArchiveLayout, size: int) -> None:
        self.path = path
        self.size = size
        self.entries = layout.entries
        self.members = [entry for entry in layout.entries if not entry.is_folder]
        self.member_by_name = {entry.name: entry for entry in self.members}
        self.faults = layout.faults

        self.descriptor = file.fileno()
        self._read_at = zip_format.make_reader(file)
        self._state = _get_file_state(file)
        self._file = file
        self.hashed: list[MemberContent[Any]] | None = None
        """What ``read_all`` read of all members, without its results, once it made digests."""
        # of several faults, the first is the one that the others come from
        self._broken = {f.member: f.text for f in reversed(layout.faults) if f.member and not f.is_readable}

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, as_it_is: bool = False) -> Iterator[WheelArchive]:
        """Open a wheel; DataError when it is not there, its directory cannot be read, or it is not sound.

        Not sound is what could be read in two ways, leads out, is damaged, or holds a link or two names that
        are one: no command takes it. ``as_it_is`` is for who reports that. No content is read.
        """
        try:
            opened = files.open_regular_file(path)
        except OSError as cause:
            raise errors.DataError(f"cannot read {path}: {cause.strerror}", tip="name another file") from None
        with opened as file:
            try:
                size = file.seek(0, os.SEEK_END)
                layout = zip_format.read_archive_layout(zip_format.make_reader(file), size)
            except (OSError, zip_format.UnreadableError) as cause:
                fault, tip = "cut short or damaged", "build it, or fetch it, again"
                if path.suffix != ".whl":
                    fault, tip = "it is another kind of file", "name wheels: *.whl"
                raise errors.DataError(f"{path} is not a readable wheel: {fault}", tip=tip) from cause
            archive = cls(path, file, layout, size)
            if not as_it_is:
                archive._require_sound()
            yield archive

    def list_unsound_members(self) -> dict[str, str]:
        """Return the members whose name is wrong, with what is wrong; under "" faults of the whole archive.

        What is wrong with their place or header is told by ``read_all``.
        """
        unsound: dict[str, str] = {}
        for fault in self.faults:
            if not fault.is_repairable and (fault.is_readable or not fault.member):
                unsound.setdefault(fault.member, fault.text)
        return unsound

    def _require_sound(self) -> None:
        texts = [str(fault) for fault in self.faults if not fault.is_repairable]
        texts += [f"{hazard.member}: {hazard.text}" for hazard in find_archive_hazards(self.entries)]
        faults = list(dict.fromkeys(texts))
        if len(faults) > _MOST_SHOWN:
            faults[_MOST_SHOWN:] = [tables.format_count(len(faults) - _MOST_SHOWN, "more fault")]
        if faults:
            raise errors.DataError("\n".join(f"{self.path}: {fault}" for fault in faults))

    def require_unchanged(self) -> None:
        """Raise DataError when the file was written to since it was opened."""
        if _get_file_state(self._file) != self._state:
            raise errors.DataError(f"{self.path} changed while it was read")

    def compute_sha256(self) -> str:
        """Return the digest (hex) of the whole file."""
        places = range(0, self.size, _DIGEST_PIECE)
        return files.hash_pieces(self._read_at(at, _DIGEST_PIECE) for at in places)

    def read(self, entry: zip_format.ZipEntry) -> bytes:
        """Return the content of a small member; DataError with its name when it is damaged or large."""
        if entry.size > get_text_limit(entry.name):
            raise errors.DataError(
                f"{self.path}: {entry.name}: {entry.size} bytes are too many for such a file"
            )
        try:
            return b"".join(read_pieces(self._read_at, entry))
        except ContentError as fault:
            raise errors.DataError(f"{self.path}: {entry.name}: {fault}") from fault.__cause__

    @cached_property
    def info_folder(self) -> str:
        """The name of the ``.dist-info`` folder; DataError when there is not exactly one."""
        folders = dist_info.list_dist_info_folders(entry.name for entry in self.members)
        if len(folders) != 1:
            raise errors.DataError(f"{self.path}: {len(folders)} .dist-info folders: a wheel has exactly one")
        return folders[0]

    def read_info(self, name: str) -> bytes:
        """Return a file of the ``.dist-info`` folder; DataError when it is not there, or as ``read``."""
        entry = self.member_by_name.get(f"{self.info_folder}/{name}")
        if entry is None:
            raise errors.DataError(f"{self.path} has no {name}", tip="build it, or fetch it, again")
        return self.read(entry)

    def extract(self, entry: zip_format.ZipEntry, target: Path) -> None:
        """Write the content of a member of any size into a file; DataError when it is damaged."""
        try:
            with target.open("wb") as file:
                for piece in read_pieces(self._read_at, entry):
                    file.write(piece)
        except ContentError as fault:
            raise errors.DataError(f"{self.path}: {entry.name}: {fault}") from fault.__cause__

    def read_all(self, choose: ReaderChooser[ResultT], *, digest: bool) -> list[MemberContent[ResultT]]:
        """Read every member once, in the order of ``members``.

        ``choose`` gets the name and the first 4096 bytes, and returns a function that reads
        the whole content, or None. With ``digest`` every member is inflated and hashed, else
        only as far as it is wanted. Large members are read in threads (inflating and hashing
        release the interpreter), so the chosen function runs in one; what it raises is raised here.
        """
        from concurrent.futures import ThreadPoolExecutor

        sizes = [entry.compressed for entry in self.members]
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        large = [i for i in order if sizes[i] >= _WORTH_A_THREAD]
        small = [i for i, size in enumerate(sizes) if size < _WORTH_A_THREAD]
        pool = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
        try:
            running = {i: pool.submit(self._read_member, self.members[i], choose, digest) for i in large}
            results = {i: self._read_member(self.members[i], choose, digest) for i in small}
            results |= {i: future.result() for i, future in running.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        contents = [results[i] for i in range(len(self.members))]
        if digest:
            self.hashed = [replace(content, result=None) for content in contents]
        return contents

    def read_chosen(self, choose: ReaderChooser[ResultT], *, digest: bool = True) -> dict[str, ResultT]:
        """Return what the chosen functions returned, by member. DataError for a damaged member.

        With ``digest`` all are hashed in the same pass, and ``scan.require_whole`` need not read them again.
        """
        contents = self.read_all(choose, digest=digest and self.hashed is None)
        if fault := next((content.fault for content in contents if content.fault), None):
            raise errors.DataError(fault, tip="build it, or fetch it, again")
        return {content.name: content.result for content in contents if content.result is not None}

    def _read_member(
        self, entry: zip_format.ZipEntry, choose: ReaderChooser[ResultT], digest: bool
    ) -> MemberContent[ResultT]:
        if fault := self._broken.get(entry.name):
            return self._make_faulty(entry, fault)
        hasher, content = hashlib.sha256() if digest else None, None
        try:
            remaining = read_pieces(self._read_at, entry)
            head = b""
            while len(head) < MEMBER_HEAD_SIZE and (piece := next(remaining, None)) is not None:
                head += piece
            reader = choose(entry.name, head[:MEMBER_HEAD_SIZE])
            pieces: Iterable[bytes] = chain([head], remaining)
            if hasher:
                pieces = _pass_on(pieces, hasher.update)
            if reader:
                content = _keep_content(pieces, entry.size)
            elif hasher:
                deque(pieces, maxlen=0)
        except ContentError as wrong:
            return self._make_faulty(entry, str(wrong))
        result = reader(content) if reader and content is not None else None
        return MemberContent(entry.name, entry.size, result, hasher.digest() if hasher else None)

    def _make_faulty(self, entry: zip_format.ZipEntry, fault: str) -> MemberContent[ResultT]:
        return MemberContent(entry.name, entry.size, fault=f"{self.path}: {entry.name}: {fault}")


def _pass_on(pieces: Iterable[bytes], update: Callable[[bytes], object]) -> Iterator[bytes]:
    for piece in pieces:
        update(piece)
        yield piece


def _keep_content(pieces: Iterable[bytes], size: int) -> memoryview:
    """Return a member of ``size`` bytes: in memory, or in an unnamed temporary file when it is large.

    Memory of some size is mapped: it is given back at once, where what is allocated stays with the process.
    """
    if size > _IN_MEMORY:
        with tempfile.TemporaryFile() as file:
            file.writelines(pieces)
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if size < _WORTH_MAPPING:
        return memoryview(b"".join(pieces))
    mapped = mmap.mmap(-1, size)
    for piece in pieces:
        mapped.write(piece)
    return memoryview(mapped).toreadonly()


def _get_file_state(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns

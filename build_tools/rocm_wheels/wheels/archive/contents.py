"""The contents of members: inflated piece by piece, every damage named, nothing kept that nobody wants."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.archive.ending import ReadAt
from rocm_wheels.wheels.archive.faults import ArchiveFault
from rocm_wheels.wheels.archive.records import METHOD_DEFLATED, ZipEntry

_INFLATED_PIECE = 1 << 18
_INPUT_PIECE = 1 << 16
_LARGEST_TEXT = 64 << 20  # RECORD of a million files, a list of licences
_PARSED_WHOLE = {"METADATA": 4 << 20, "WHEEL": 1 << 20, "variant.json": 4 << 20}  # usual: below 100 KB


class ContentError(Exception):
    """A member's content is not what the directory says; holds the fault."""

    def __init__(self, kind: str, entry: ZipEntry, text: str) -> None:
        super().__init__(text)
        self.fault = ArchiveFault(kind, entry.name, text)


def read_pieces(read: ReadAt, entry: ZipEntry) -> Iterator[bytes]:
    """Yield a member piece by piece; ContentError. All checks are done when it ends."""
    size = checksum = 0
    data = _read_stored(read, entry)
    for piece in _read_inflated(data, entry) if entry.method == METHOD_DEFLATED else data:
        size += len(piece)
        if size > entry.size:
            raise ContentError("size", entry, f"inflates to more than the {entry.size} bytes it declares")
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if size != entry.size:
        raise ContentError("size", entry, f"inflates to {size} bytes instead of {entry.size}")
    if checksum != entry.crc:
        raise ContentError("crc", entry, "its content does not have the CRC that the archive states")


def _read_stored(read: ReadAt, entry: ZipEntry) -> Iterator[bytes]:
    end = entry.data + entry.compressed
    for place in range(entry.data, end, _INPUT_PIECE):
        yield read(place, min(_INPUT_PIECE, end - place))


def _read_inflated(data: Iterator[bytes], entry: ZipEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    behind = 0
    try:
        for more in data:
            if stream.eof:
                behind += len(more)
            remaining = more
            while remaining and not stream.eof:
                yield stream.decompress(remaining, _INFLATED_PIECE)
                remaining = stream.unconsumed_tail
        if not stream.eof:
            yield stream.flush()
    except zlib.error as cause:
        raise ContentError("deflate", entry, f"bad deflate stream ({cause})") from cause
    if not stream.eof:
        raise ContentError("deflate", entry, "its deflate stream is cut short")
    if behind := behind + len(stream.unused_data):
        raise ContentError("deflate-rest", entry, f"{behind} bytes behind the end of its deflate stream")


def get_text_limit(name: str) -> int:
    """Return how many bytes a text file of a wheel may have: reading some costs far more than these."""
    folder, _, file = name.partition("/")
    return _PARSED_WHOLE.get(file, _LARGEST_TEXT) if folder.endswith(".dist-info") else _LARGEST_TEXT


def read_small_member(read: ReadAt, entry: ZipEntry, path: Path) -> bytes:
    """Return the content of a small member; DataError with its name when it is damaged or large."""
    if entry.size > get_text_limit(entry.name):
        raise DataError(f"{path}: {entry.name}: {entry.size} bytes are too many for such a file")
    try:
        return b"".join(read_pieces(read, entry))
    except ContentError as fault:
        raise DataError(f"{path}: {entry.name}: {fault}") from fault.__cause__


def find_link_fault(entry: ZipEntry, target: bytes) -> ArchiveFault | None:
    """Return what is wrong with the target of a symbolic link; None when it stays inside.

    ``..`` may only begin it: behind a name that is a link itself, it does not lead back.
    """
    text = target.decode("utf-8", "surrogateescape")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    out = up > len(PurePosixPath(entry.name).parent.parts) or ".." in parts[up:]
    if text.startswith("/") or "\\" in text or "\0" in text or not text or out:
        message = f"a symbolic link to {text!r}, which leads or can lead out of the folder it is unpacked to"
        return ArchiveFault("link-out", entry.name, message)
    return None

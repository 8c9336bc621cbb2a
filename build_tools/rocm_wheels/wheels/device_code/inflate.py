"""The plain bytes of a bundle, read forward: from the file, or from a zlib or zstd stream.

A bundle of a large library is hundreds of megabytes plain, and only its tables are
looked at: a stream is inflated piece by piece, its hash computed on the way, and
memory stays at about one piece (zstd: plus its window, 128 MiB at most).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from rocm_wheels.wheels.device_code.span import BinarySpan

_INFLATED_PIECE = 1 << 18
_INPUT_PIECE = 1 << 16
_ZSTD_BLOCK_HEADER = 3
_ZSTD_RLE = 1


class PlainBundle(Protocol):
    """Bytes that are read in order of their offset."""

    @property
    def size(self) -> int:
        """Length in bytes; what lies behind it is not there."""

    def take_bytes(self, offset: int, size: int, label: str) -> bytes:
        """Return bytes; ``offset`` never lies before the end of what was taken earlier."""

    def check_rest(self) -> None:
        """Read what is left; DataError when it is not what was promised."""


class StoredBundle:
    """A plain bundle: its bytes are in the file."""

    def __init__(self, span: BinarySpan) -> None:
        self._span = span
        self.size = len(span)

    def take_bytes(self, offset: int, size: int, label: str) -> bytes:
        """Return bytes of the file."""
        return bytes(self._span.get_part(offset, size, label))

    def check_rest(self) -> None:
        """Nothing is left to check."""


class InflatedBundle:
    """A compressed bundle. Never makes more than ``size`` bytes, whatever the stream says."""

    def __init__(self, read: Callable[[int], bytes], *, size: int, hash8: bytes, place: BinarySpan) -> None:
        self._read = read
        self._place = place
        self._hash8 = hash8
        self._digest = hashlib.md5(usedforsecurity=False)
        self._at = 0
        self.size = size

    def take_bytes(self, offset: int, size: int, label: str) -> bytes:
        """Return inflated bytes; DataError when ``label`` lies before what was read, or past the end."""
        if offset < self._at:
            raise self._place.make_fault(f"{label} at {offset} overlaps what stands before it")
        if offset + size > self.size:
            raise self._place.make_fault(
                f"{label} at {offset} with {size} bytes reaches past the end ({self.size} bytes)"
            )
        while self._at < offset:
            self._inflate_next(min(_INFLATED_PIECE, offset - self._at))
        taken = b""
        while len(taken) < size:
            taken += self._inflate_next(size - len(taken))
        return taken

    def check_rest(self) -> None:
        """Inflate the rest; check the length and the hash (first 8 bytes of the MD5, as clang writes it)."""
        while self._at < self.size:
            self._inflate_next(min(_INFLATED_PIECE, self.size - self._at))
        if self._read(1):
            raise self._place.make_fault(f"inflates to more than the {self.size} bytes it declares")
        if self._digest.digest()[:8] != self._hash8:
            raise self._place.make_fault("the inflated bytes do not have the hash that the header states")

    def _inflate_next(self, size: int) -> bytes:
        piece = self._read(size)
        if not piece:
            raise self._place.make_fault(
                f"the compressed stream ends after {self._at} of {self.size} bytes: cut short"
            )
        self._digest.update(piece)
        self._at += len(piece)
        return piece


def make_zlib_reader(data: memoryview, place: BinarySpan) -> Callable[[int], bytes]:
    """Return a function that gives the next bytes (at most as many as asked) of a zlib stream."""
    stream = zlib.decompressobj()
    feed = _split_input(data)

    def read(size: int) -> bytes:
        try:
            while not stream.eof:
                more = stream.unconsumed_tail or next(feed, b"")
                out = stream.decompress(more, size)
                if out or not more:
                    return out
        except zlib.error as cause:
            raise place.make_fault("bad zlib stream") from cause
        return b""

    return read


def measure_zlib_stream(data: memoryview, place: BinarySpan, limit: int) -> int:
    """Return how many bytes of ``data`` a zlib stream takes; its plain size is at most ``limit``."""
    stream = zlib.decompressobj()
    used = inflated = 0
    try:
        for piece in _split_input(data):
            used += len(piece)
            more: bytes = piece
            while more and not stream.eof and inflated <= limit:
                inflated += len(stream.decompress(more, _INFLATED_PIECE))
                more = stream.unconsumed_tail
            if stream.eof:
                return used - len(stream.unused_data)
            if inflated > limit:
                break
    except zlib.error as cause:
        raise place.make_fault("bad zlib stream") from cause
    return len(data)


def make_zstd_reader(data: memoryview, place: BinarySpan) -> Callable[[int], bytes]:
    """Return a function that gives the next bytes (at most as many as asked) of a zstd frame."""
    import zstandard

    stream = zstandard.ZstdDecompressor().stream_reader(data, read_size=_INPUT_PIECE)

    def read(size: int) -> bytes:
        try:
            return stream.read(size)
        except (zstandard.ZstdError, MemoryError) as cause:
            raise place.make_fault("bad zstd stream") from cause

    return read


def measure_zstd_frame(data: memoryview, place: BinarySpan) -> int:
    """Return how many bytes of ``data`` a zstd frame takes: its blocks state their lengths (RFC 8878)."""
    import zstandard

    try:
        at = zstandard.frame_header_size(data[:32])
        checksum = 4 * zstandard.get_frame_parameters(data[:32]).has_checksum
    except zstandard.ZstdError as cause:
        raise place.make_fault("bad zstd stream") from cause
    while at + _ZSTD_BLOCK_HEADER <= len(data):
        block = int.from_bytes(data[at : at + _ZSTD_BLOCK_HEADER], "little")
        at += _ZSTD_BLOCK_HEADER + (1 if (block >> 1) & 3 == _ZSTD_RLE else block >> 3)
        if block & 1:
            break
    return min(at + checksum, len(data))


def _split_input(data: memoryview) -> Iterator[bytes]:
    for at in range(0, len(data), _INPUT_PIECE):
        yield bytes(data[at : at + _INPUT_PIECE])

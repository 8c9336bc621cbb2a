"""Read offload bundles: what clang puts into ``.hip_fatbin``, plain or compressed.

A section holds one bundle a translation unit, one after another, each aligned to 4096
bytes with zeros between. Sources: LLVM, "Clang Offload Bundler" (layout, CCOB version 2)
and, for versions 1 and 3, files that clang and hipcc wrote:

| CCOB version | after ``CCOB``, version, method (2 bytes each) | written by |
|---|---|---|
| 1 | plain size (4), hash (8) | LLVM 17, 18 |
| 2 | whole size (4), plain size (4), hash (8) | LLVM 19, 20; ROCm 6.2 to 7.0 |
| 3 | whole size (8), plain size (8), hash (8) | LLVM 22; ROCm 7.1 and newer |

A bundle of a large library is hundreds of megabytes plain, and only its tables are
looked at: a stream is inflated piece by piece, its hash computed on the way, and
memory stays at about one piece (zstd: plus its window, 128 MiB at most).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from rocm_wheels.binaries import elf, limits
from rocm_wheels.core import errors, files

_INFLATED_PIECE = 1 << 18
_INPUT_PIECE = 1 << 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SHORTEST_HEADER = 6  # magic, descriptor, and the window or the size
_ZSTD_BLOCK_HEADER = 3
_ZSTD_RLE = 1


class StoredBundle:
    """A plain bundle: its bytes are in the file. Both kinds are read in order of their offset."""

    def __init__(self, span: elf.BinarySpan) -> None:
        self._span = span
        self.size = len(span)

    def take_bytes(self, offset: int, size: int, label: str) -> bytes:
        """Return bytes of the file."""
        return bytes(self._span.get_part(offset, size, label))

    def check_rest(self) -> None:
        """Nothing is left to check."""


class InflatedBundle:
    """A compressed bundle. Never makes more than ``size`` bytes, whatever the stream says."""

    def __init__(
        self, read: Callable[[int], bytes], *, size: int, hash8: bytes, place: elf.BinarySpan
    ) -> None:
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
        pieces = []
        while size:
            pieces.append(self._inflate_next(size))
            size -= len(pieces[-1])
        return b"".join(pieces)

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


PlainBundle: TypeAlias = StoredBundle | InflatedBundle


def make_stream_reader(method: str, data: memoryview, place: elf.BinarySpan) -> Callable[[int], bytes]:
    """Return a function that gives the next bytes (at most as many as asked) of a zlib or zstd stream."""
    from rocm_wheels.core import zstd

    stream: Any = zlib.decompressobj() if method == "zlib" else zstd.ZstdDecompressor()
    feed = _split_input(data)

    def read(size: int) -> bytes:
        try:
            while not stream.eof:
                more = stream.unconsumed_tail if method == "zlib" else b""
                needs_input = not more if method == "zlib" else stream.needs_input
                if needs_input:
                    more = next(feed, b"")
                out: bytes = stream.decompress(more, size)
                if out or (needs_input and not more):
                    return out
        except (zlib.error, zstd.ZstdError, MemoryError) as cause:
            raise place.make_fault(f"bad {method} stream") from cause
        return b""

    return read


def measure_zlib_stream(data: memoryview, place: elf.BinarySpan, limit: int) -> int:
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


def measure_zstd_frame(data: memoryview, place: elf.BinarySpan) -> int:
    """Return how many bytes of ``data`` a zstd frame takes: its blocks state their lengths (RFC 8878)."""
    if data[:4] != _ZSTD_MAGIC or len(data) < _ZSTD_SHORTEST_HEADER:
        raise place.make_fault("bad zstd stream")
    descriptor = data[4]
    single_segment = (descriptor >> 5) & 1
    at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + (single_segment, 2, 4, 8)[descriptor >> 6]
    checksum = descriptor & 4
    while at + _ZSTD_BLOCK_HEADER <= len(data):
        block = int.from_bytes(data[at : at + _ZSTD_BLOCK_HEADER], "little")
        at += _ZSTD_BLOCK_HEADER + (1 if (block >> 1) & 3 == _ZSTD_RLE else block >> 3)
        if block & 1:
            break
    return min(at + checksum, len(data))


def _split_input(data: memoryview) -> Iterator[bytes]:
    for at in range(0, len(data), _INPUT_PIECE):
        yield bytes(data[at : at + _INPUT_PIECE])


PLAIN_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_BUNDLE_MAGIC = b"CCOB"
ENTRY_HEAD_SIZE = 64  # bytes of each entry that are kept: enough for an ELF header

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_LEAD = struct.Struct("<4sHH")
_SIZES = {1: struct.Struct("<I8s"), 2: struct.Struct("<II8s"), 3: struct.Struct("<QQ8s")}
_METHODS = {0: "zlib", 1: "zstd"}  # llvm::compression::Format

# what they begin with: of compressed ones eight bytes, which no other content has by chance
_BUNDLE_STARTS = (
    PLAIN_BUNDLE_MAGIC,
    *(_LEAD.pack(COMPRESSED_BUNDLE_MAGIC, version, method) for version in _SIZES for method in _METHODS),
)

_MOST_ENTRIES = 4096
_LONGEST_ID = 256
_LARGEST_BUNDLE = 16 << 30  # no host library can place more: its references are 32 bits, signed
_TABLE_WINDOW = 256 << 10  # bytes of a bundle that its table is in, compressed too (zstd: a block is 128 KiB)


@dataclass(frozen=True)
class BundleEntry:
    """One entry of a bundle: ``offset`` counts in the plain bundle, ``head`` is its first 64 bytes.

    ``head`` is None where only the table was read.
    """

    bundle: int
    packing: str
    name: str
    offset: int
    size: int
    head: bytes | None


@dataclass(frozen=True)
class CompressedBundle:
    """A compressed bundle as its header tells: ``data`` is the stream, ``end`` its end in the bundle."""

    method: str
    version: int
    data: memoryview
    end: int
    size: int
    hash8: bytes


@dataclass(frozen=True)
class BundlePlace:
    """A bundle that begins at ``begin`` of a section or file; ``packed`` is its header when it has one."""

    begin: int
    bundle: elf.BinarySpan
    packed: CompressedBundle | None

    def open_plain(self) -> PlainBundle:
        """Return what reads the plain bundle, from its begin."""
        if self.packed is None:
            return StoredBundle(self.bundle)
        read = make_stream_reader(self.packed.method, self.packed.data, self.bundle)
        return InflatedBundle(read, size=self.packed.size, hash8=self.packed.hash8, place=self.bundle)

    def read_contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield ID and content of the entries that have one, as they lie; one of them is in memory."""
        plain = self.open_plain()
        rows, _ = read_table(plain, self.bundle)
        for row in sorted(rows):
            if row.size:
                yield row.name, plain.take_bytes(row.offset, row.size, row.label)
        plain.check_rest()
        files.release_mapped_pages(self.bundle.data)


def locate_bundles(span: elf.BinarySpan) -> Iterator[BundlePlace]:
    """Yield the bundles of a section or file one after another; DataError names a bundle and its fault."""
    number, at, inflated = 0, _skip_zeros(span, 0), 0
    while at < len(span):
        bundle = elf.BinarySpan(span.data[at:], f"{span.place}: bundle {number} at {at}")
        packed: CompressedBundle | None = None
        if bundle.starts_with(PLAIN_BUNDLE_MAGIC):
            _, end = read_table(StoredBundle(bundle), bundle)
        elif bundle.starts_with(COMPRESSED_BUNDLE_MAGIC):
            packed = _read_lead(bundle)
            end = packed.end
            inflated += packed.size
            span.require_limit(inflated, limits.get_plain_limit(len(span)), "bytes in its compressed bundles")
        else:
            first_bytes = bytes(span.data[at : at + 16]).hex(" ")
            raise span.make_fault(
                f"after {number} bundles, neither a bundle nor padding at {at}: {first_bytes}"
            )
        yield BundlePlace(at, elf.BinarySpan(bundle.data[:end], bundle.place), packed)
        number, at = number + 1, _skip_zeros(span, at + end)


def read_bundles(span: elf.BinarySpan, *, whole: bool = True) -> Iterator[BundleEntry]:
    """Yield the entries (host ones too) of all bundles in a section or file.

    ``packing`` is ``plain`` or like ``zstd v3``. Without ``whole`` compressed bundles are inflated as far as
    their tables: what lies behind is not looked at, and no hash is checked. DataError names the bundle and
    its fault.
    """
    for number, place in enumerate(locate_bundles(span)):
        plain, packed = place.open_plain(), place.packed
        rows, _ = read_table(plain, place.bundle)
        heads = {}
        for row in sorted(rows) if whole or packed is None else ():
            if row.size:
                heads[row] = plain.take_bytes(row.offset, min(row.size, ENTRY_HEAD_SIZE), row.label)
        if whole and packed is not None:
            plain.check_rest()
            files.release_mapped_pages(span.data)
        packing = "plain" if packed is None else f"{packed.method} v{packed.version}"
        for row in rows:
            yield BundleEntry(number, packing, row.name, row.offset, row.size, heads.get(row))


def scan_bundle_tables(pieces: Iterable[bytes], name: str) -> Iterator[list[str]]:
    """Yield the IDs of the entries of each bundle in a library that comes piece by piece.

    Nothing but what comes is looked at: the table of sections, which stands at a library's end, is not
    needed. Who has seen enough leaves the rest unread. What begins like a bundle and is none is passed over:
    compressed ones can hold the beginning of a plain one.
    """
    window, begin, is_whole = bytearray(), 0, False
    stream = iter(pieces)
    while not is_whole:
        while len(window) < 2 * _TABLE_WINDOW and not is_whole:
            piece = next(stream, None)
            is_whole = piece is None
            window += piece or b""
        end = len(window) if is_whole else _TABLE_WINDOW
        for at in _find_bundle_starts(window, end):
            content = memoryview(bytes(window[at : at + _TABLE_WINDOW]))
            try:
                entry_ids = _read_cut_table(elf.BinarySpan(content, f"{name}: bundle at {begin + at}"))
            except errors.DataError:
                continue
            yield entry_ids
        del window[:end]
        begin += end


def _find_bundle_starts(window: bytearray, end: int) -> list[int]:
    """Return where bundles begin in a window, before ``end``."""
    starts = []
    for start in _BUNDLE_STARTS:
        at = window.find(start, 0, end + len(start))
        while 0 <= at < end:
            starts.append(at)
            at = window.find(start, at + 1, end + len(start))
    return sorted(starts)


def _read_cut_table(bundle: elf.BinarySpan) -> list[str]:
    """Return the IDs in the table of a bundle, whose rest may not be there; entries without code are none."""
    is_packed = bundle.starts_with(COMPRESSED_BUNDLE_MAGIC)
    place = BundlePlace(0, bundle, _read_lead(bundle, is_cut=True) if is_packed else None)
    rows, _ = _read_rows(place.open_plain(), bundle)
    return [row.name for row in rows if row.size]


def _read_lead(bundle: elf.BinarySpan, *, is_cut: bool = False) -> CompressedBundle:
    """Read the header of the compressed bundle that ``bundle`` begins with; DataError when it is broken.

    ``is_cut``: only the beginning of the bundle is there.
    """
    _, version, method_number = bundle.unpack_numbers(_LEAD, 0, "the header of a compressed bundle")
    form, method = _SIZES.get(version), _METHODS.get(method_number)
    if form is None:
        raise bundle.make_fault(f"compressed bundle of version {version}; known are 1, 2 and 3")
    if method is None:
        raise bundle.make_fault(f"compressed with method {method_number}; known are 0 (zlib) and 1 (zstd)")
    *sizes, hash8 = bundle.unpack_numbers(form, _LEAD.size, "the header of a compressed bundle")
    start, plain_size = _LEAD.size + form.size, sizes[-1]
    if plain_size > _LARGEST_BUNDLE:
        raise bundle.make_fault(
            f"declares {plain_size} bytes of plain content, more than any library can hold"
        )
    if is_cut:
        return CompressedBundle(method, version, bundle.data[start:], len(bundle), plain_size, hash8)
    bundle.require_limit(plain_size, limits.get_plain_limit(len(bundle)), "bytes of plain content")
    if version == 1:  # its end is where its stream ends
        rest = bundle.data[start:]
        used = (
            measure_zlib_stream(rest, bundle, plain_size)
            if method == "zlib"
            else measure_zstd_frame(rest, bundle)
        )
        end = start + used
    else:
        end = sizes[0]
        if not start <= end <= len(bundle):
            raise bundle.make_fault(f"cut short: declares {end} bytes, {len(bundle)} are there")
    return CompressedBundle(method, version, bundle.data[start:end], end, plain_size, hash8)


class BundleRow(NamedTuple):
    """An entry as the table has it; sorted, they are in the order of their contents."""

    offset: int
    number: int
    size: int
    name: str

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"entry {self.number} ({self.name})"


def _read_rows(plain: PlainBundle, bundle: elf.BinarySpan) -> tuple[list[BundleRow], int]:
    """Return the rows of a bundle's table, and where that ends; nothing behind it is looked at."""
    if plain.take_bytes(0, len(PLAIN_BUNDLE_MAGIC), "the magic") != PLAIN_BUNDLE_MAGIC:
        raise bundle.make_fault("the inflated bytes are not an offload bundle")
    (count,) = _COUNT.unpack(plain.take_bytes(len(PLAIN_BUNDLE_MAGIC), _COUNT.size, "the number of entries"))
    if count > _MOST_ENTRIES:
        raise bundle.make_fault(f"{count} entries are more than a bundle can have")
    at, rows = len(PLAIN_BUNDLE_MAGIC) + _COUNT.size, []
    for number in range(count):
        offset, size, length = _ENTRY.unpack(plain.take_bytes(at, _ENTRY.size, f"entry {number}"))
        if length > _LONGEST_ID:
            raise bundle.make_fault(f"entry {number} has an ID of {length} bytes")
        raw = plain.take_bytes(at + _ENTRY.size, length, f"the ID of entry {number}")
        at += _ENTRY.size + length
        rows.append(BundleRow(offset, number, size, raw.decode("utf-8", "backslashreplace")))
    return rows, at


def read_table(plain: PlainBundle, bundle: elf.BinarySpan) -> tuple[list[BundleRow], int]:
    """Return the rows of a bundle's table in their order, and where the last content ends.

    DataError for contents that lie on top of each other, or reach past the end.
    """
    rows, end = _read_rows(plain, bundle)
    for row in sorted(rows):
        if row.size and row.offset < end:
            raise bundle.make_fault(f"{row.label} at {row.offset} overlaps what stands before it")
        if row.size and row.offset + row.size > plain.size:
            raise bundle.make_fault(
                f"{row.label} at {row.offset} with {row.size} bytes reaches past the end ({plain.size} bytes)"
            )
        end = max(end, row.offset + row.size if row.size else 0)
    return rows, end


def _skip_zeros(span: elf.BinarySpan, at: int) -> int:
    """Return where the next byte that is not zero stands, at most the end."""
    step = 1 << 12
    while at < len(span):
        piece = bytes(span.data[at : at + step])
        rest = len(piece.lstrip(b"\0"))
        if rest:
            return at + len(piece) - rest
        at += len(piece)
        step = min(step * 2, 1 << 20)
    return at


def lay_out_bundle(entries: Sequence[tuple[str, int]], alignment: int) -> tuple[bytes, list[int]]:
    """Return the table of a plain bundle, and where the content of its entries (ID, size) goes, in order."""
    table_size = len(PLAIN_BUNDLE_MAGIC) + _COUNT.size
    table_size += sum(_ENTRY.size + len(name.encode()) for name, _ in entries)
    at = -(-table_size // alignment) * alignment
    table, places = [PLAIN_BUNDLE_MAGIC, _COUNT.pack(len(entries))], []
    for name, size in entries:
        if size:
            at = -(-at // alignment) * alignment
        raw = name.encode()
        table += [_ENTRY.pack(at, size, len(raw)), raw]
        places.append(at)
        at += size
    return b"".join(table), places


def pack_compressed_bundle(stream: bytes, old: CompressedBundle, *, size: int, hash8: bytes) -> bytes:
    """Return a compressed bundle around ``stream``, in the version and by the method of an old one."""
    form = _SIZES[old.version]
    method = next(number for number, name in _METHODS.items() if name == old.method)
    whole = _LEAD.size + form.size + len(stream)
    sizes = (size,) if old.version == 1 else (whole, size)
    lead = _LEAD.pack(COMPRESSED_BUNDLE_MAGIC, old.version, method)
    return lead + form.pack(*sizes, hash8) + stream

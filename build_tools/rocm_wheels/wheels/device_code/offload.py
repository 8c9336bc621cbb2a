"""Offload bundles: what clang puts into ``.hip_fatbin``, plain or compressed.

A section holds one bundle a translation unit, one after another, each aligned to 4096
bytes with zeros between. Sources: LLVM, "Clang Offload Bundler" (layout, CCOB version 2)
and, for versions 1 and 3, files that clang and hipcc wrote:

| CCOB version | after ``CCOB``, version, method (2 bytes each) | written by |
|---|---|---|
| 1 | plain size (4), hash (8) | LLVM 17, 18 |
| 2 | whole size (4), plain size (4), hash (8) | LLVM 19, 20; ROCm 6.2 to 7.0 |
| 3 | whole size (8), plain size (8), hash (8) | LLVM 22; ROCm 7.1 and newer |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.device_code.inflate import (
    Inflated,
    Plain,
    Stored,
    zlib_length,
    zlib_reader,
    zstd_length,
    zstd_reader,
)
from rocm_wheels.wheels.device_code.span import Span

PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
HEAD_SIZE = 64  # bytes of each entry that are kept: enough for an ELF header

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_LEAD = struct.Struct("<4sHH")
_SIZES = {1: struct.Struct("<I8s"), 2: struct.Struct("<II8s"), 3: struct.Struct("<QQ8s")}
_METHODS = {0: "zlib", 1: "zstd"}  # llvm::compression::Format

_MOST_ENTRIES = 4096
_LONGEST_ID = 1024
_LARGEST_BUNDLE = 16 << 30  # no host library can place more: its references are 32 bits, signed


@dataclass(frozen=True)
class Entry:
    """One entry of a bundle: ``offset`` counts in the plain bundle, ``head`` is its first 64 bytes."""

    bundle: int
    packing: str
    name: str
    offset: int
    size: int
    head: bytes


@dataclass(frozen=True)
class _Compressed:
    method: str
    version: int
    data: memoryview
    end: int
    size: int
    hash8: bytes


def read_bundles(span: Span) -> Iterator[Entry]:
    """Yield the entries (host ones too) of all bundles in a section or file.

    ``packing`` is ``plain`` or like ``zstd v3``. DataError names the bundle and its fault.
    """
    number, at = 0, _skip_zeros(span, 0)
    while at < len(span):
        here = Span(span.data[at:], f"{span.place}: bundle {number} at {at}")
        if here.starts(PLAIN_MAGIC):
            entries, end = _read_plain(Stored(here), here)
            packing = "plain"
        elif here.starts(COMPRESSED_MAGIC):
            packed = _read_lead(here)
            packing, end = f"{packed.method} v{packed.version}", packed.end
            reader = zlib_reader if packed.method == "zlib" else zstd_reader
            plain = Inflated(reader(packed.data, here), size=packed.size, hash8=packed.hash8, place=here)
            entries, _ = _read_plain(plain, here)
            plain.finish()
        else:
            raise _neither(span, number, at)
        for name, offset, size, head in entries:
            yield Entry(number, packing, name, offset, size, head)
        number, at = number + 1, _skip_zeros(span, at + end)


def read_tables(span: Span) -> Iterator[tuple[str, int]]:
    """Yield ID and size of the entries of all bundles; what is compressed is inflated up to its table only.

    So no content is looked at, and no hash is checked.
    """
    number, at = 0, _skip_zeros(span, 0)
    while at < len(span):
        here = Span(span.data[at:], f"{span.place}: bundle {number} at {at}")
        if here.starts(PLAIN_MAGIC):
            rows, end = _read_table(Stored(here), here)
            end = max([end, *(offset + size for _, _, offset, size in rows if size)])
            if end > len(here):
                raise here.fault(f"cut short: declares {end} bytes, {len(here)} are there")
        elif here.starts(COMPRESSED_MAGIC):
            packed = _read_lead(here)
            reader = zlib_reader if packed.method == "zlib" else zstd_reader
            plain = Inflated(reader(packed.data, here), size=packed.size, hash8=packed.hash8, place=here)
            (rows, _), end = _read_table(plain, here), packed.end
        else:
            raise _neither(span, number, at)
        yield from ((name, size) for _, name, _, size in rows)
        number, at = number + 1, _skip_zeros(span, at + end)


def _neither(span: Span, number: int, at: int) -> DataError:
    seen = bytes(span.data[at : at + 16]).hex(" ")
    return span.fault(f"after {number} bundles, neither a bundle nor padding at {at}: {seen}")


def _read_lead(here: Span) -> _Compressed:
    _, version, method_number = here.numbers(_LEAD, 0, "the header of a compressed bundle")
    form, method = _SIZES.get(version), _METHODS.get(method_number)
    if form is None:
        raise here.fault(f"compressed bundle of version {version}; known are 1, 2 and 3")
    if method is None:
        raise here.fault(f"compressed with method {method_number}; known are 0 (zlib) and 1 (zstd)")
    *sizes, hash8 = here.numbers(form, _LEAD.size, "the header of a compressed bundle")
    start, plain_size = _LEAD.size + form.size, sizes[-1]
    if plain_size > _LARGEST_BUNDLE:
        raise here.fault(f"declares {plain_size} bytes of plain content, more than any library can hold")
    if version == 1:  # its end is where its stream ends
        rest = here.data[start:]
        used = zlib_length(rest, here, plain_size) if method == "zlib" else zstd_length(rest, here)
        end = start + used
    else:
        end = sizes[0]
        if not start <= end <= len(here):
            raise here.fault(f"cut short: declares {end} bytes, {len(here)} are there")
    return _Compressed(method, version, here.data[start:end], end, plain_size, hash8)


def _read_table(plain: Plain, here: Span) -> tuple[list[tuple[int, str, int, int]], int]:
    """Return (number, ID, offset, size) of each entry of a bundle, and where its table ends."""
    if plain.take(0, len(PLAIN_MAGIC), "the magic") != PLAIN_MAGIC:
        raise here.fault("the inflated bytes are not an offload bundle")
    (count,) = _COUNT.unpack(plain.take(len(PLAIN_MAGIC), _COUNT.size, "the number of entries"))
    if count > _MOST_ENTRIES:
        raise here.fault(f"{count} entries are more than a bundle can have")
    at, rows = len(PLAIN_MAGIC) + _COUNT.size, []
    for number in range(count):
        offset, size, length = _ENTRY.unpack(plain.take(at, _ENTRY.size, f"entry {number}"))
        if length > _LONGEST_ID:
            raise here.fault(f"entry {number} has an ID of {length} bytes")
        raw = plain.take(at + _ENTRY.size, length, f"the ID of entry {number}")
        at += _ENTRY.size + length
        rows.append((number, raw.decode("utf-8", "backslashreplace"), offset, size))
    return rows, at


def _read_plain(plain: Plain, here: Span) -> tuple[list[tuple[str, int, int, bytes]], int]:
    """Return (ID, offset, size, head) of each entry in the order of the table, and the bundle's end."""
    rows, end = _read_table(plain, here)
    heads: dict[int, bytes] = {}
    for number, name, offset, size in sorted(rows, key=lambda row: (row[2], row[0])):
        if not size:
            heads[number] = b""
            continue
        what = f"entry {number} ({name})"
        if offset < end:
            raise here.fault(f"{what} at {offset} overlaps what stands before it")
        if offset + size > plain.size:
            raise here.fault(
                f"{what} at {offset} with {size} bytes reaches past the end ({plain.size} bytes)"
            )
        heads[number] = plain.take(offset, min(size, HEAD_SIZE), what)
        end = offset + size
    return [(name, offset, size, heads[number]) for number, name, offset, size in rows], end


def _skip_zeros(span: Span, at: int) -> int:
    """Return where the next byte that is not zero stands, at most the end."""
    step = 1 << 12
    while at < len(span):
        piece = bytes(span.data[at : at + step])
        left = len(piece.lstrip(b"\0"))
        if left:
            return at + len(piece) - left
        at += len(piece)
        step = min(step * 2, 1 << 20)
    return at

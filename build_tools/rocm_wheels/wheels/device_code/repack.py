"""Write offload bundles again with fewer entries, each at the place where it was.

What refers to a bundle is an address, so a bundle may become shorter and not move. A compressed bundle is
compressed again in its own version and by its own method; host entries, and the order of the table, stay. Its
hash is that of the new content: the first 8 bytes of the MD5, as clang writes it. Layout: ``bundles``.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rocm_wheels.core import CompressionParameter, ZstdDecompressor, ZstdError, compress_zstd, run_in_parallel
from rocm_wheels.wheels.device_code.bundles import (
    COMPRESSED_BUNDLE_MAGIC,
    PLAIN_BUNDLE_MAGIC,
    CompressedBundle,
    StoredBundle,
    lay_out_bundle,
    make_no_bundle_error,
    pack_compressed_bundle,
    read_entries,
    read_lead,
    skip_zeros,
)
from rocm_wheels.wheels.elf import BinarySpan
from rocm_wheels.wheels.elf_pages import FilePiece, fill_gaps

# clang: level 3 with long matches (clang/lib/Driver/OffloadBundler.cpp); ours must not be longer than its own
_ZSTD_LEVELS = (3, 9, 19)
_ZLIB_LEVELS = (6, 9)
_LARGEST_ALIGNMENT = 4096

ChooseEntries = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class RepackedBundle:
    """A bundle where it was: ``chunks`` are its bytes by their offset in the section; zeros are between them.

    ``kept`` and ``dropped`` are the IDs of its entries that have content, those of the host left out.
    """

    chunks: tuple[tuple[int, FilePiece], ...]
    is_changed: bool
    kept: tuple[str, ...]
    dropped: tuple[str, ...]


def repack_bundles(
    span: BinarySpan, choose: ChooseEntries, *, jobs: int | None = None
) -> list[RepackedBundle]:
    """Return all bundles of a section or file with the entries that ``choose`` returns.

    ``choose`` gets the IDs of a bundle's entries; the host's are not asked about, and stay. DataError names
    bundle and fault.
    """
    places = list(_locate_bundles(span))
    work = partial(_repack_bundle, choose=choose)
    return run_in_parallel(work, places, jobs=jobs or os.cpu_count() or 1)


@dataclass(frozen=True)
class _Place:
    begin: int
    bundle: BinarySpan
    packed: CompressedBundle | None


def _locate_bundles(span: BinarySpan) -> Iterator[_Place]:
    number, at = 0, skip_zeros(span, 0)
    while at < len(span):
        bundle = BinarySpan(span.data[at:], f"{span.place}: bundle {number} at {at}")
        if bundle.starts_with(PLAIN_BUNDLE_MAGIC):
            _, end = read_entries(StoredBundle(bundle), bundle)
            packed = None
        elif bundle.starts_with(COMPRESSED_BUNDLE_MAGIC):
            packed = read_lead(bundle)
            end = packed.end
        else:
            raise make_no_bundle_error(span, number, at)
        yield _Place(at, BinarySpan(bundle.data[:end], bundle.place), packed)
        number, at = number + 1, skip_zeros(span, at + end)


def _repack_bundle(place: _Place, *, choose: ChooseEntries) -> RepackedBundle:
    bundle, packed = place.bundle, place.packed
    plain = bundle if packed is None else BinarySpan(inflate_bundle(packed, bundle), bundle.place)
    rows, _ = read_entries(StoredBundle(plain), bundle)
    chosen = choose([name for name, *_ in rows if not _is_host(name)])
    staying = [(name, offset, size) for name, offset, size, _ in rows if _is_host(name) or name in chosen]
    kept = tuple(name for name, _, size in staying if size and not _is_host(name))
    names = {name for name, _, _ in staying}
    dropped = tuple(name for name, _, size, _ in rows if size and name not in names)
    if len(staying) == len(rows):
        return RepackedBundle(((place.begin, bundle.data),), False, kept, dropped)
    alignment = _find_alignment([offset for _, offset, size, _ in rows if size])
    table, places = lay_out_bundle([(name, size) for name, _, size in staying], alignment)
    chunks: list[tuple[int, FilePiece]] = [(0, table)]
    for at, (_, offset, size) in zip(places, staying, strict=True):
        if size:
            chunks.append((at, plain.data[offset : offset + size]))
    if packed is not None:
        chunks = [(0, _compress_bundle(b"".join(fill_gaps(chunks)), packed, bundle))]
    return RepackedBundle(tuple((place.begin + at, chunk) for at, chunk in chunks), True, kept, dropped)


def inflate_bundle(packed: CompressedBundle, bundle: BinarySpan) -> memoryview:
    """Return the plain content of a compressed bundle; DataError when it is not what its header says."""
    try:
        if packed.method == "zlib":
            plain = zlib.decompressobj().decompress(packed.data, packed.size + 1)
        else:
            plain = ZstdDecompressor().decompress(packed.data, packed.size + 1)
    except (zlib.error, ZstdError, MemoryError) as cause:
        raise bundle.make_fault(f"bad {packed.method} stream") from cause
    if len(plain) != packed.size:
        raise bundle.make_fault(f"does not inflate to the {packed.size} bytes that it declares")
    if hashlib.md5(plain, usedforsecurity=False).digest()[:8] != packed.hash8:
        raise bundle.make_fault("the inflated bytes do not have the hash that the header states")
    return memoryview(plain)


def _compress_bundle(plain: bytes, old: CompressedBundle, bundle: BinarySpan) -> bytes:
    """Return a compressed bundle in the version and by the method of an old one, and no longer than that."""
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    for level in _ZLIB_LEVELS if old.method == "zlib" else _ZSTD_LEVELS:
        if old.method == "zlib":
            stream = zlib.compress(plain, level)
        else:
            options: dict[int, int] = {
                CompressionParameter.compression_level: level,
                CompressionParameter.enable_long_distance_matching: 1,
            }
            stream = compress_zstd(plain, options=options)
        content = pack_compressed_bundle(stream, old, size=len(plain), hash8=digest)
        if len(content) <= len(bundle):
            return content
    raise bundle.make_fault("becomes longer than it was, although entries leave it")


def _is_host(name: str) -> bool:
    return name.startswith("host-")


def _find_alignment(offsets: Sequence[int]) -> int:
    """Return what all code of a bundle is aligned to: a power of two."""
    joined = _LARGEST_ALIGNMENT
    for offset in offsets:
        joined |= offset
    return joined & -joined

"""Write offload bundles again with fewer entries, each at the place where it was.

What refers to a bundle is an address, so a bundle may become shorter and not move. A compressed bundle is
compressed again in its own version and by its own method; host entries, and the order of the table, stay. Its
hash is that of the new content: the first 8 bytes of the MD5, as clang writes it. Layout: ``bundles``.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rocm_wheels.binaries import elf, elf_pages
from rocm_wheels.core import files, parallel, zstd
from rocm_wheels.device_code import bundles
from rocm_wheels.device_code.spool import OPEN_BUNDLES, SpoolFile

# (level, long matches). clang: level 3 with long matches (clang/lib/Driver/OffloadBundler.cpp), which take
# half as long again for less than 1 % of a real library; ours must not be longer than its own
_ZSTD_LEVELS = ((3, False), (3, True), (9, True), (19, True))
_ZLIB_LEVELS = (6, 9)
_LARGEST_ALIGNMENT = 4096
_BUILT_VERSION = 2

ChooseEntries = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class RepackedBundle:
    """A bundle where it was: ``chunks`` are its bytes by their offset in the section; zeros are between them.

    ``spooled`` are the bytes of one that was compressed anew: its begin, and their offset and size in the
    spool. ``kept`` and ``dropped`` are the IDs of its entries that have content, those of the host left out.
    """

    chunks: tuple[tuple[int, elf_pages.FilePiece], ...]
    is_changed: bool
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    spooled: tuple[int, int, int] | None = None

    def take_spooled(self, content: memoryview) -> RepackedBundle:
        """Return it with its bytes in the spool as a chunk."""
        if self.spooled is None:
            return self
        begin, at, size = self.spooled
        return replace(self, chunks=((begin, content[at : at + size]),), spooled=None)


def repack_bundles(span: elf.BinarySpan, choose: ChooseEntries, stack: ExitStack) -> list[RepackedBundle]:
    """Return all bundles of a section or file with the entries that ``choose`` returns.

    ``choose`` gets the IDs of a bundle's entries; the host's are not asked about, and stay. What is
    compressed anew is in a file without a name, which ``stack`` closes. DataError names bundle and fault.
    """
    spool = SpoolFile(stack)

    def repack(place: bundles.BundlePlace) -> RepackedBundle:
        with OPEN_BUNDLES.hold(place.packed.size if place.packed is not None else 0):
            return _repack_bundle(place, choose, spool)

    repacked = parallel.run_in_parallel(repack, bundles.locate_bundles(span), jobs=os.cpu_count() or 1)
    content = spool.view()
    return [bundle.take_spooled(content) for bundle in repacked]


def _repack_bundle(place: bundles.BundlePlace, choose: ChooseEntries, spool: SpoolFile) -> RepackedBundle:
    bundle, packed = place.bundle, place.packed
    plain = place.open_plain()
    rows, _ = bundles.read_table(plain, bundle)
    chosen = choose([row.name for row in rows if not _is_host(row.name)])
    staying = [row for row in rows if _is_host(row.name) or row.name in chosen]
    kept = tuple(row.name for row in staying if row.size and not _is_host(row.name))
    names = {row.name for row in staying}
    dropped = tuple(row.name for row in rows if row.size and row.name not in names)
    if len(staying) == len(rows):
        plain.check_rest()
        return RepackedBundle(((place.begin, bundle.data),), False, kept, dropped)
    alignment = _find_alignment([row.offset for row in rows if row.size])
    table, places = bundles.lay_out_bundle([(row.name, row.size) for row in staying], alignment)
    moves = [(row.offset, row.size, at) for at, row in zip(places, staying, strict=True) if row.size]
    if packed is None:
        parts = [(place.begin + at, bundle.data[offset : offset + size]) for offset, size, at in moves]
        return RepackedBundle(((place.begin, table), *parts), True, kept, dropped)
    content = bytearray(max([len(table), *(at + size for _, size, at in moves)]))
    content[: len(table)] = table
    for offset, size, at in sorted(moves):
        content[at : at + size] = plain.take_bytes(offset, size, "an entry")
    plain.check_rest()
    files.release_mapped_pages(bundle.data)
    stream = _compress_bundle(content, packed, bundle)
    return RepackedBundle((), True, kept, dropped, (place.begin, spool.append(stream), len(stream)))


def _compress_bundle(plain: bytearray, old: bundles.CompressedBundle, bundle: elf.BinarySpan) -> bytes:
    """Return a compressed bundle in the version and by the method of an old one, and no longer than that."""
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    if old.method == "zlib":
        streams = (zlib.compress(plain, level) for level in _ZLIB_LEVELS)
    else:
        streams = (_compress_zstd(plain, *level) for level in _ZSTD_LEVELS)
    for stream in streams:
        content = bundles.pack_compressed_bundle(stream, old, size=len(plain), hash8=digest)
        if len(content) <= len(bundle):
            return content
    raise bundle.make_fault("becomes longer than it was, although entries leave it")


def build_bundle(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a compressed bundle of entries (ID, content) in the form that clang of ROCm 6.2 to 7.0 writes.

    Without long matches, which clang looks for: see ``_ZSTD_LEVELS``.
    """
    table, places = bundles.lay_out_bundle(
        [(name, len(content)) for name, content in entries], _LARGEST_ALIGNMENT
    )
    chunks: list[tuple[int, elf_pages.FilePiece]] = [(0, table)]
    for at, (_, content) in zip(places, entries, strict=True):
        if content:
            chunks.append((at, content))
    plain = b"".join(elf_pages.fill_gaps(chunks))
    form = bundles.CompressedBundle("zstd", _BUILT_VERSION, memoryview(b""), 0, 0, b"")
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    stream = _compress_zstd(plain, *_ZSTD_LEVELS[0])
    return bundles.pack_compressed_bundle(stream, form, size=len(plain), hash8=digest)


def _compress_zstd(plain: bytes | bytearray, level: int, long_matches: bool) -> bytes:
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: level,
        zstd.CompressionParameter.enable_long_distance_matching: int(long_matches),
    }
    return zstd.compress_zstd(plain, options=options)


def _is_host(name: str) -> bool:
    return name.startswith("host-")


def _find_alignment(offsets: Sequence[int]) -> int:
    """Return what all code of a bundle is aligned to: a power of two."""
    joined = _LARGEST_ALIGNMENT
    for offset in offsets:
        joined |= offset
    return joined & -joined

"""Members for a wheel that is yet to be written: packed on all cores, into files without a name."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from rocm_wheels.core import deflate, files
from rocm_wheels.wheels import dist_info, zip_format

_BLOCK = 4 << 20
_ISAL_LEVEL = 3
_SAMPLE = 32 << 10
_WORTH_PACKING = 0.98


@dataclass(frozen=True)
class StoredMember:
    """A member whose packed bytes are in a file: of another wheel, or written for this one.

    ``entry`` has its sizes, CRC, method, mode and date; its packed bytes are ``pieces`` where there are any,
    else those of the open file ``descriptor`` from ``offset`` on. ``digest`` is spelled as in RECORD.
    """

    entry: zip_format.ZipEntry
    digest: str
    descriptor: int = -1
    offset: int = 0
    pieces: Sequence[bytes | memoryview] = ()


def store_member(entry: zip_format.ZipEntry, pieces: Iterable[bytes | memoryview]) -> StoredMember:
    """Return a new content of a member that is compressed already: stored, and read where it is."""
    digest, checksum, kept = hashlib.sha256(), 0, tuple(pieces)
    for piece in kept:
        digest.update(piece)
        checksum = deflate.load_codec().crc32(piece, checksum)
        files.release_mapped_pages(memoryview(piece))
    size = sum(map(len, kept))
    packed = entry.as_deflated(crc=checksum, compressed=size, size=size)
    stored = packed._replace(method=zip_format.METHOD_STORED)
    return StoredMember(stored, dist_info.encode_record_digest(digest.digest()), pieces=kept)


def pack_member(
    entry: zip_format.ZipEntry, pieces: Iterable[bytes | memoryview], stack: ExitStack
) -> StoredMember:
    """Deflate a new content of a member into a file without a name, which ``stack`` closes.

    Blocks of 4 MB are deflated each on its own, on all cores, and joined: the bytes do not depend on the
    number of cores.
    """
    from isal import isal_zlib

    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    digest, checksum, size = hashlib.sha256(), 0, 0
    jobs = os.cpu_count() or 1
    running: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(jobs, thread_name_prefix="rocm-wheels") as pool:
        for block in _join_blocks(pieces):
            running.append(pool.submit(_deflate_block, block))
            for piece in block:
                digest.update(piece)
                checksum = deflate.load_codec().crc32(piece, checksum)
                size += len(piece)
            if len(running) > jobs:
                file.write(running.popleft().result())
        while running:
            file.write(running.popleft().result())
    file.write(isal_zlib.compressobj(_ISAL_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS).flush())
    file.flush()
    packed = entry.as_deflated(crc=checksum, compressed=file.tell(), size=size)
    return StoredMember(packed, dist_info.encode_record_digest(digest.digest()), file.fileno())


def _join_blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """Yield bytes in blocks of one size, but for the last, each as the pieces that it consists of."""
    block: list[memoryview] = []
    free = _BLOCK
    for whole in pieces:
        rest = memoryview(whole)
        while rest:
            part = rest[:free]
            block.append(part)
            free -= len(part)
            rest = rest[len(part) :]
            if not free:
                yield block
                block, free = [], _BLOCK
    if block:
        yield block


def _deflate_block(block: Sequence[memoryview]) -> bytes:
    """Return a part of a deflate stream that ends at a whole byte and refers to nothing before it.

    What does not become smaller, as compressed bundles, is stored: by samples at its begin, middle and end.
    """
    from isal import isal_zlib

    first, middle, last = block[0], block[len(block) // 2], block[-1]
    sample = b"".join((first[:_SAMPLE], middle[len(middle) // 2 :][:_SAMPLE], last[-_SAMPLE:]))
    packs = len(isal_zlib.compress(sample, _ISAL_LEVEL)) < _WORTH_PACKING * len(sample)
    codec, level = (isal_zlib, _ISAL_LEVEL) if packs else (zlib, 0)
    packer = codec.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed: bytes = b"".join(packer.compress(piece) for piece in block) + packer.flush(zlib.Z_FULL_FLUSH)
    for piece in {id(piece.obj): piece for piece in block}.values():
        files.release_mapped_pages(piece)
    return packed

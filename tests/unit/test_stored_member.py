"""Members that are packed in blocks: what inflates is what was given, and nothing becomes longer."""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import ExitStack

import pytest

from rocm_wheels.wheels import dist_info, stored_member, zip_format

NOISE = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(1 << 18))  # 8 MB
CONTENTS = {
    "nothing": b"",
    "a byte": b"a",
    "text": b"int x;\n" * 2_000_000,
    "noise": NOISE,
    "both in a block": NOISE[: 1 << 20] + bytes(2 << 20) + NOISE[: 1 << 20],
    "one after the other": bytes(5 << 20) + NOISE,
}


def pack(content: bytes, piece: int) -> tuple[zip_format.ZipEntry, str, bytes]:
    entry, _ = zip_format.make_zip_entry("x", b"", date=0, time=0)
    pieces = [memoryview(content)[at : at + piece] for at in range(0, len(content), piece)]
    with ExitStack() as stack:
        member = stored_member.pack_member(entry, pieces, stack)
        packed = os.pread(member.descriptor, member.entry.compressed, member.offset)
        return member.entry, member.digest, packed


@pytest.mark.parametrize("name", CONTENTS)
def test_blocks_are_joined_to_one_stream(name: str) -> None:
    content = CONTENTS[name]
    entry, digest, packed = pack(content, 1 << 30)
    assert zlib.decompress(packed, -zlib.MAX_WBITS) == content
    assert (entry.size, entry.crc) == (len(content), zlib.crc32(content))
    assert digest == dist_info.encode_record_digest(hashlib.sha256(content).digest())
    assert len(packed) <= len(content) * 1.001 + 16


def test_what_can_be_packed_is_packed_beside_what_cannot() -> None:
    assert len(pack(CONTENTS["text"], 1 << 30)[2]) < 1 << 20
    assert len(pack(CONTENTS["one after the other"], 1 << 30)[2]) < len(NOISE) + (1 << 20)


def test_the_same_bytes_whatever_the_pieces() -> None:
    content = CONTENTS["one after the other"]
    assert pack(content, 1 << 30) == pack(content, 4 << 20)

"""What an archive holds, as zipfile reads it."""

from __future__ import annotations

import zipfile
from pathlib import Path


def read_members(path: Path) -> dict[str, bytes]:
    """Return the members, each of which has the CRC that the archive states."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def read_packed(path: Path, name: str) -> bytes:
    """Return the compressed bytes of a member as they lie in the archive."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    data, at = path.read_bytes(), info.header_offset
    lengths = data[at + 26 : at + 30]
    start = at + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return data[start : start + info.compress_size]

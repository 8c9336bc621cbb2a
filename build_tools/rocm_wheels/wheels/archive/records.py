"""The records of the zip format, as bytes and as values.

Source: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16, 4.4 and 4.5.3. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

LOCAL_HEADER = Struct("<4sHHHHHLLLHH")
CENTRAL_ENTRY = Struct("<4sBBHHHHHLLLHHHHHLL")
END_RECORD = Struct("<4sHHHHLLH")
ZIP64_END_RECORD = Struct("<4sQHHLLQQQQ")
ZIP64_LOCATOR = Struct("<4sLQL")

LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
ZIP64_END_MARK, ZIP64_LOCATOR_MARK, DESCRIPTOR_MARK = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"

METHOD_STORED, METHOD_DEFLATED = 0, 8
FLAG_ENCRYPTED, FLAG_DESCRIPTOR, FLAG_PATCHED, FLAG_STRONG_ENCRYPTION, FLAG_UTF8, FLAG_MASKED = (
    0x1,
    0x8,
    0x20,
    0x40,
    0x800,
    0x2000,
)
EXTRA_ZIP64, EXTRA_UNICODE_PATH = 0x0001, 0x7075
SYSTEM_UNIX = 3
MAX_UINT16, MAX_UINT32 = 0xFFFF, 0xFFFFFFFF
_PLAIN_VERSION, _ZIP64_VERSION = 20, 45


class ZipEntry(NamedTuple):
    """A member as directory and local header have it together.

    ``name`` is decoded, ``raw`` as stored; ``header`` is where the local header begins, ``data``
    the compressed bytes, and ``end`` is behind the last byte that belongs to it (its
    data descriptor included). ``extra`` is the directory's without ZIP64, ``local_extra`` the other.
    """

    name: str
    raw: bytes
    made_by: int
    system: int
    needed: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    compressed: int
    size: int
    internal: int
    external: int
    extra: bytes
    header: int
    local_extra: bytes = b""
    data: int = 0
    end: int = 0

    @property
    def is_folder(self) -> bool:
        """Tell whether this names a folder and is no file."""
        return self.name.endswith("/")

    @property
    def mode(self) -> int:
        """The Unix mode with the type of the file; 0 when the archive was made elsewhere."""
        return self.external >> 16 if self.system == SYSTEM_UNIX else 0

    @property
    def keeps_header(self) -> bool:
        """Tell whether its local header can stay: sizes in front of the content, ZIP64 only where needed."""
        if self.flags & FLAG_DESCRIPTOR:
            return False
        large = max(self.size, self.compressed) >= MAX_UINT32
        return large or not any(number == EXTRA_ZIP64 for number, _ in read_extra_fields(self.local_extra))

    def with_name(self, name: str) -> ZipEntry:
        """Return the member under another name; its local header has to be written anew."""
        extras = [remove_extra_field(extra, EXTRA_UNICODE_PATH) for extra in (self.extra, self.local_extra)]
        flags = self.flags | (0 if name.isascii() else FLAG_UTF8)
        return self._replace(
            name=name, raw=name.encode(), flags=flags, extra=extras[0], local_extra=extras[1]
        )


def read_extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of an extra area; ValueError when it is cut short."""
    at = 0
    while at < len(extra):
        if at + 4 > len(extra):
            raise ValueError(f"{len(extra) - at} bytes behind the last field")
        number, size = (
            int.from_bytes(extra[at : at + 2], "little"),
            int.from_bytes(extra[at + 2 : at + 4], "little"),
        )
        if at + 4 + size > len(extra):
            raise ValueError(f"field 0x{number:04x} of {size} bytes reaches past its end")
        yield number, extra[at + 4 : at + 4 + size]
        at += 4 + size


def remove_extra_field(extra: bytes, number: int) -> bytes:
    """Return an extra area without the fields of one number."""
    return b"".join(
        pack_extra_field(field_number, content)
        for field_number, content in read_extra_fields(extra)
        if field_number != number
    )


def pack_extra_field(number: int, content: bytes) -> bytes:
    """Return one field of an extra area."""
    return number.to_bytes(2, "little") + len(content).to_bytes(2, "little") + content


def pack_local_header(entry: ZipEntry) -> bytes:
    """Return the local header of a member that is written anew: sizes in front, ZIP64 where needed."""
    large = max(entry.size, entry.compressed) >= MAX_UINT32
    extra = remove_extra_field(entry.local_extra, EXTRA_ZIP64)
    if large:
        extra = pack_extra_field(EXTRA_ZIP64, _pack_quads(entry.size, entry.compressed)) + extra
    sizes = (MAX_UINT32, MAX_UINT32) if large else (entry.compressed, entry.size)
    return (
        LOCAL_HEADER.pack(
            LOCAL_MARK,
            max(entry.needed, _ZIP64_VERSION) if large else entry.needed,
            entry.flags & ~FLAG_DESCRIPTOR,
            entry.method,
            entry.time,
            entry.date,
            entry.crc,
            *sizes,
            len(entry.raw),
            len(extra),
        )
        + entry.raw
        + extra
    )


def pack_central_entry(entry: ZipEntry, header: int) -> bytes:
    """Return the directory entry of a member whose local header begins at ``header``."""
    values = (entry.size, entry.compressed, header)
    large = [value for value in values if value >= MAX_UINT32]
    extra = pack_extra_field(EXTRA_ZIP64, _pack_quads(*large)) + entry.extra if large else entry.extra
    size, compressed, place = (min(value, MAX_UINT32) for value in values)
    return (
        CENTRAL_ENTRY.pack(
            CENTRAL_MARK,
            entry.made_by,
            entry.system,
            max(entry.needed, _ZIP64_VERSION) if large else entry.needed,
            entry.flags & ~FLAG_DESCRIPTOR,
            entry.method,
            entry.time,
            entry.date,
            entry.crc,
            compressed,
            size,
            len(entry.raw),
            len(extra),
            0,
            0,
            entry.internal,
            entry.external,
            place,
        )
        + entry.raw
        + extra
    )


def pack_end_records(count: int, size: int, offset: int) -> bytes:
    """Return what ends an archive whose directory (``count`` entries, ``size`` bytes) is at ``offset``."""
    front = b""
    if count >= MAX_UINT16 or size >= MAX_UINT32 or offset >= MAX_UINT32:
        version = _ZIP64_VERSION
        front = ZIP64_END_RECORD.pack(
            ZIP64_END_MARK, ZIP64_END_RECORD.size - 12, version, version, 0, 0, count, count, size, offset
        )
        front += ZIP64_LOCATOR.pack(ZIP64_LOCATOR_MARK, 0, offset + size, 1)
    few = min(count, MAX_UINT16)
    return front + END_RECORD.pack(
        END_MARK, 0, 0, few, few, min(size, MAX_UINT32), min(offset, MAX_UINT32), 0
    )


def make_zip_entry(name: str, content: bytes, *, date: int, time: int) -> tuple[ZipEntry, bytes]:
    """Return a new member of mode 0644 and its bytes: deflated when that is shorter. Not for large ones."""
    import zlib

    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    method, data = (METHOD_DEFLATED, packed) if len(packed) < len(content) else (METHOD_STORED, content)
    entry = ZipEntry(
        name=name,
        raw=name.encode(),
        made_by=_PLAIN_VERSION,
        system=SYSTEM_UNIX,
        needed=_PLAIN_VERSION,
        flags=0 if name.isascii() else FLAG_UTF8,
        method=method,
        time=time,
        date=date,
        crc=zlib.crc32(content),
        compressed=len(data),
        size=len(content),
        internal=0,
        external=0o100644 << 16,
        extra=b"",
        header=0,
    )
    return entry, data


def _pack_quads(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)

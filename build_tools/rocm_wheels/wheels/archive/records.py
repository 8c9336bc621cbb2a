"""The records of the zip format, as bytes and as values.

Source: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16, 4.4 and 4.5.3. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

LOCAL = Struct("<4sHHHHHLLLHH")
CENTRAL = Struct("<4sBBHHHHHLLLHHHHHLL")
END = Struct("<4sHHHHLLH")
END64 = Struct("<4sQHHLLQQQQ")
LOCATOR = Struct("<4sLQL")

LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END64_MARK, LOCATOR_MARK, DESCRIPTOR_MARK = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"

STORED, DEFLATED = 0, 8
ENCRYPTED, DESCRIPTOR, PATCHED, STRONG, UTF8, MASKED = 0x1, 0x8, 0x20, 0x40, 0x800, 0x2000
ZIP64, UNICODE_PATH = 0x0001, 0x7075
UNIX = 3
MOST16, MOST32 = 0xFFFF, 0xFFFFFFFF
_PLAIN, _ZIP64_VERSION = 20, 45


class Entry(NamedTuple):
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
        return self.external >> 16 if self.system == UNIX else 0

    @property
    def as_is(self) -> bool:
        """Tell whether its local header can stay: sizes in front of the content, ZIP64 only where needed."""
        if self.flags & DESCRIPTOR:
            return False
        large = max(self.size, self.compressed) >= MOST32
        return large or not any(number == ZIP64 for number, _ in extra_fields(self.local_extra))

    def renamed(self, name: str) -> Entry:
        """Return the member under another name; its local header has to be written anew."""
        extras = [without_field(extra, UNICODE_PATH) for extra in (self.extra, self.local_extra)]
        flags = self.flags | (0 if name.isascii() else UTF8)
        return self._replace(
            name=name, raw=name.encode(), flags=flags, extra=extras[0], local_extra=extras[1]
        )


def extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
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


def without_field(extra: bytes, number: int) -> bytes:
    """Return an extra area without the fields of one number."""
    return b"".join(field_bytes(found, content) for found, content in extra_fields(extra) if found != number)


def field_bytes(number: int, content: bytes) -> bytes:
    """Return one field of an extra area."""
    return number.to_bytes(2, "little") + len(content).to_bytes(2, "little") + content


def local_header(entry: Entry) -> bytes:
    """Return the local header of a member that is written anew: sizes in front, ZIP64 where needed."""
    large = max(entry.size, entry.compressed) >= MOST32
    extra = without_field(entry.local_extra, ZIP64)
    if large:
        extra = field_bytes(ZIP64, _quads(entry.size, entry.compressed)) + extra
    sizes = (MOST32, MOST32) if large else (entry.compressed, entry.size)
    return (
        LOCAL.pack(
            LOCAL_MARK,
            max(entry.needed, _ZIP64_VERSION) if large else entry.needed,
            entry.flags & ~DESCRIPTOR,
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


def central_entry(entry: Entry, header: int) -> bytes:
    """Return the directory entry of a member whose local header begins at ``header``."""
    values = (entry.size, entry.compressed, header)
    large = [value for value in values if value >= MOST32]
    extra = field_bytes(ZIP64, _quads(*large)) + entry.extra if large else entry.extra
    size, compressed, place = (min(value, MOST32) for value in values)
    return (
        CENTRAL.pack(
            CENTRAL_MARK,
            entry.made_by,
            entry.system,
            max(entry.needed, _ZIP64_VERSION) if large else entry.needed,
            entry.flags & ~DESCRIPTOR,
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


def end_records(count: int, size: int, offset: int) -> bytes:
    """Return what ends an archive whose directory (``count`` entries, ``size`` bytes) is at ``offset``."""
    front = b""
    if count >= MOST16 or size >= MOST32 or offset >= MOST32:
        version = _ZIP64_VERSION
        front = END64.pack(END64_MARK, END64.size - 12, version, version, 0, 0, count, count, size, offset)
        front += LOCATOR.pack(LOCATOR_MARK, 0, offset + size, 1)
    few = min(count, MOST16)
    return front + END.pack(END_MARK, 0, 0, few, few, min(size, MOST32), min(offset, MOST32), 0)


def new_entry(name: str, content: bytes, *, date: int, time: int) -> tuple[Entry, bytes]:
    """Return a new member of mode 0644 and its bytes: deflated when that is shorter. Not for large ones."""
    import zlib

    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    method, data = (DEFLATED, packed) if len(packed) < len(content) else (STORED, content)
    entry = Entry(
        name=name,
        raw=name.encode(),
        made_by=_PLAIN,
        system=UNIX,
        needed=_PLAIN,
        flags=0 if name.isascii() else UTF8,
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


def _quads(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)

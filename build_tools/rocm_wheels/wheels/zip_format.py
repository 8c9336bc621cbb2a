"""Define the zip format: its records as bytes and values, its names, and every fault of an archive by
name.

Sources: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16, 4.4 and 4.5.3 (all numbers are little-endian);
what PyPI refuses since 2025-08 (warehouse, ``utils/zipfiles.py``) and uv since 0.8.6 and 0.9.6
(CVE-2025-54368, GHSA-pqhf-p39g-3x64): archives that two readers read in two ways. We refuse all of
those, and what leads out of the folder it is unpacked to: names that lead out, that collide, or that
two readers read in two ways.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
FIXED_DATE = (40 << 9 | 2 << 5 | 2, 0)
"""2020-02-02, 0:00, as the format has date and time: of members that are new."""

MAX_UINT16, MAX_UINT32 = 0xFFFF, 0xFFFFFFFF
_PLAIN_VERSION, _ZIP64_VERSION = 20, 45


FIRST_DAY = 1 << 5 | 1
"""1980-01-01 as archives write it: there is no earlier one, and 0 is no day."""


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

    def as_deflated(self, *, crc: int, compressed: int, size: int) -> ZipEntry:
        """Return the member with another content, deflated; its local header has to be written anew."""
        return self._replace(
            method=METHOD_DEFLATED,
            needed=_PLAIN_VERSION,
            flags=self.flags & FLAG_UTF8,
            crc=crc,
            compressed=compressed,
            size=size,
            extra=b"",
            local_extra=b"",
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


ARCHIVE_FAULTS = {
    # the archive: nothing behind these can be relied on
    "no-end": "no end record where an archive ends: cut short, or no archive",
    "two-ends": "a second end record behind the first: readers disagree about which counts",
    "trailing-bytes": "bytes behind the end of the archive",
    "prefix": "bytes in front of the first member",
    "several-disks": "a part of an archive on several disks",
    "directory-place": "the directory does not lie where the end record says",
    "directory-damaged": "the directory holds something that is no entry",
    "directory-size": "a directory larger than any wheel has",
    "entry-count": "more or fewer entries than the end record says",
    "zip64-end": "the ZIP64 end record is missing, misplaced or of another form",
    "zip64-end-disagrees": "the ZIP64 end record contradicts the end record",
    "hidden-bytes": "bytes between members that belong to none: readers from the front find members there",
    "ratio": "over 64 MB of content that is more than 50 times the archive (the limits of PyPI)",
    # names
    "name-empty": "an empty name",
    "name-long": "a name longer than every system has names of files",
    "name-control": "NUL or another control character in a name: readers cut it there or skip it",
    "name-encoding": "a name that is neither ASCII nor marked, valid UTF-8: readers decode it in two ways",
    "name-unicode-extra": "an extra field gives the member another name",
    "name-absolute": "an absolute name",
    "name-upward": "a name with ..",
    "name-backslash": "a backslash in a name: a separator to some readers",
    "name-drive": "a name with a drive",
    "name-dots": "a name with . or an empty part: readers drop those",
    "name-twice": "several members of one name",
    "name-collides": "names that are one on a file system that folds case or Unicode forms",
    "file-and-folder": "a file that is a folder to other members",
    # entries
    "encrypted": "an encrypted member",
    "method": "a compression method other than stored and deflated",
    "version": "a member that asks for a reader of a version that does not exist",
    "flags": "patched data or a masked header",
    "file-type": "a device, pipe or socket",
    "folder-content": "a folder with content",
    "extra-damaged": "an extra field that is cut short, or one that may come once comes twice",
    "zip64-extra": "ZIP64 values that are missing, superfluous or of another form",
    "stored-size": "a stored member of two sizes",
    "bomb": "more content than its bytes can inflate to",
    "past-end": "a member that reaches past the end of the members: cut short",
    "overlap": "members on top of each other",
    "local-missing": "no member where the directory says",
    "local-name": "its own header gives another name",
    "local-flags": "its own header gives other flags",
    "local-method": "its own header gives another compression method",
    "local-crc": "its own header gives another CRC",
    "local-size": "its own header gives other sizes",
    "descriptor": "the data descriptor behind the member is missing or gives other values",
    # contents, seen when they are inflated
    "crc": "content that does not have the CRC of the directory",
    "size": "content of another size than the directory says",
    "deflate": "a deflate stream that is damaged or cut short",
    "deflate-rest": "bytes behind the end of the deflate stream",
    # harmless to us, refused by PyPI: rewriting leaves them out
    "data-descriptor": "sizes behind the content instead of before it (PyPI refuses this)",
    "comment": "a comment of the archive or a member (PyPI refuses those of members)",
}

REPAIRED_FAULTS = frozenset({"data-descriptor", "comment"})
"""Faults that a rewritten wheel no longer has, and that do not keep anybody from reading this one."""

_NAME_FAULTS = frozenset(
    {"name-upward", "name-absolute", "name-backslash", "name-drive", "name-twice", "name-dots", "name-empty"}
    | {"name-long", "name-control", "name-encoding", "name-unicode-extra", "name-collides", "file-and-folder"}
)


@dataclass(frozen=True)
class ArchiveFault:
    """A fault: its name in ``ARCHIVE_FAULTS``, the member ("" for the archive), and what is the matter."""

    kind: str
    member: str
    text: str

    def __str__(self) -> str:
        return f"{self.member}: {self.text}" if self.member else self.text

    @property
    def is_repairable(self) -> bool:
        """Tell whether rewriting the wheel is all it needs."""
        return self.kind in REPAIRED_FAULTS

    @property
    def is_readable(self) -> bool:
        """Tell whether the member's content can be read all the same: only its name is wrong."""
        return self.kind in _NAME_FAULTS or self.is_repairable


_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_NAME = re.compile(r"[\w+@~-][\w.+@~, -]*(?:/[\w+@~-][\w.+@~, -]*)*/?", re.ASCII)  # nearly all names
_LONGEST_NAME, _LONGEST_PART = 1024, 255  # bytes: PATH_MAX of macOS, NAME_MAX of nearly all file systems
_DRIVE = re.compile(r"[A-Za-z]:")


def find_name_fault(entry: ZipEntry) -> ArchiveFault | None:
    """Return what is wrong with one name; None when nothing."""
    name = entry.name
    if (size := len(entry.raw)) > _LONGEST_PART:
        longest = max(map(len, entry.raw.split(b"/")))
        if size > _LONGEST_NAME or longest > _LONGEST_PART:
            return ArchiveFault("name-long", name, f"a name of {size} bytes, its longest part of {longest}")
    if _PLAIN_NAME.fullmatch(name):
        return None
    parts = name.split("/")
    if not name:
        return ArchiveFault("name-empty", name, "a member has no name")
    if _CONTROL_CHARACTER.search(name):
        return ArchiveFault("name-control", name, f"a control character in the name {name!r}")
    if "\\" in name:
        return ArchiveFault(
            "name-backslash", name, "a backslash: this name leads out of the folder it is unpacked to"
        )
    if name.startswith("/"):
        return ArchiveFault(
            "name-absolute", name, "this name leads out of the folder it is unpacked to: absolute"
        )
    if _DRIVE.match(name):
        return ArchiveFault(
            "name-drive", name, "this name leads out of the folder it is unpacked to: a drive"
        )
    if ".." in parts:
        return ArchiveFault("name-upward", name, "this name leads out of the folder it is unpacked to")
    if "." in parts or "" in parts[:-1]:
        return ArchiveFault("name-dots", name, "a part of the name is empty or '.': readers drop it")
    return None


def find_collisions(entries: Sequence[ZipEntry], *, folding: bool) -> Iterator[ArchiveFault]:
    """Yield names that several members have, or that one has as file and others as folder.

    With ``folding`` also those that are one on file systems of Windows and macOS.
    """
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
    for name, count in counts.items():
        if count > 1:
            yield ArchiveFault("name-twice", name, f"{count} members of this name")
    keys: dict[str, str] = {}
    for name in counts:
        key = _normalize_name(name, folding)
        if keys.setdefault(key, name) != name:
            yield ArchiveFault("name-collides", name, f"unpacked, this is the same file as {keys[key]}")
    ordered = sorted(keys)  # the folders of all names would be gigabytes where names have thousands of parts
    for key, name in keys.items():
        inside = key + "/"
        at = bisect_left(ordered, inside)
        if at < len(ordered) and ordered[at].startswith(inside) and not name.endswith("/"):
            yield ArchiveFault("file-and-folder", name, "a file that is a folder to other members")


def _normalize_name(name: str, folding: bool) -> str:
    """Return the one spelling of all names that are unpacked to the same place."""
    if "." in name or "//" in name or name.endswith("/"):
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    return fold_name(name) if folding else name


def fold_name(name: str) -> str:
    """Return the one spelling of all names that are the same where case and Unicode forms do not count."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

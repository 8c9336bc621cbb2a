"""The zip format, strictly: its records as bytes and values, its names, every fault of an archive by name.

Every byte of an archive belongs to a member, the directory or its end, and directory and local headers say
the same: so there is nothing that another reader could find in another way. The records at the end must fill
it without a gap: directory, ZIP64 end record and its locator where there are some, end record. Nothing is
inflated here.

Sources: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16, 4.4 and 4.5 (all numbers are little-endian);
what PyPI refuses since 2025-08 (warehouse, ``utils/zipfiles.py``) and uv since 0.8.6 and 0.9.6
(CVE-2025-54368, GHSA-pqhf-p39g-3x64): archives that two readers read in two ways. We refuse all of
those, and what leads out of the folder it is unpacked to: names that lead out, that collide, or that
two readers read in two ways.
"""

from __future__ import annotations

import os
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from time import gmtime
from typing import BinaryIO, NamedTuple

ReadAt = Callable[[int, int], bytes]

LOCAL_HEADER = Struct("<4sHHHHHLLLHH")
CENTRAL_ENTRY = Struct("<4sBBHHHHHLLLHHHHHLL")
END_RECORD = Struct("<4sHHHHLLH")
ZIP64_END_RECORD = Struct("<4sQHHLLQQQQ")
ZIP64_LOCATOR = Struct("<4sLQL")
_EXTRA_HEAD = Struct("<HH")

LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
ZIP64_END_MARK, ZIP64_LOCATOR_MARK, DESCRIPTOR_MARK = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"

METHOD_STORED, METHOD_DEFLATED = 0, 8
FLAG_ENCRYPTED, FLAG_DESCRIPTOR, FLAG_PATCHED = 0x1, 0x8, 0x20
FLAG_STRONG_ENCRYPTION, FLAG_UTF8, FLAG_MASKED = 0x40, 0x800, 0x2000
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
    flags: int
    method: int
    time: int
    date: int
    crc: int
    compressed: int
    size: int
    external: int
    made_by: int = _PLAIN_VERSION
    system: int = SYSTEM_UNIX
    needed: int = _PLAIN_VERSION
    internal: int = 0
    extra: bytes = b""
    header: int = 0
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
    def is_large(self) -> bool:
        """Tell whether its sizes need ZIP64."""
        return max(self.size, self.compressed) >= MAX_UINT32

    @property
    def keeps_header(self) -> bool:
        """Tell whether its local header can stay: sizes in front of the content, ZIP64 only where needed."""
        if self.flags & FLAG_DESCRIPTOR:
            return False
        return self.is_large or all(number != EXTRA_ZIP64 for number, _ in _iterate_extra(self.local_extra))

    def with_name(self, name: str) -> ZipEntry:
        """Return the member under another name; its local header has to be written anew."""
        return self._replace(
            name=name,
            raw=name.encode(),
            flags=self.flags | (0 if name.isascii() else FLAG_UTF8),
            extra=_remove_extra(self.extra, EXTRA_UNICODE_PATH),
            local_extra=_remove_extra(self.local_extra, EXTRA_UNICODE_PATH),
        )

    def as_deflated(self, *, crc: int, compressed: int, size: int) -> ZipEntry:
        """Return the member with another content, deflated; its local header has to be written anew."""
        entry = self._replace(method=METHOD_DEFLATED, needed=_PLAIN_VERSION, flags=self.flags & FLAG_UTF8)
        return entry._replace(crc=crc, compressed=compressed, size=size, extra=b"", local_extra=b"")

    @property
    def _front(self) -> tuple[int, ...]:
        """What local header and directory have alike, from the version that it needs to the CRC."""
        needed = max(self.needed, _ZIP64_VERSION) if self.is_large else self.needed
        return needed, self.flags & ~FLAG_DESCRIPTOR, self.method, self.time, self.date, self.crc


def _iterate_extra(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of an extra area; ValueError when it is cut short."""
    at = 0
    while at < len(extra):
        if at + 4 > len(extra):
            raise ValueError(f"{len(extra) - at} bytes behind the last field")
        number, size = _EXTRA_HEAD.unpack_from(extra, at)
        if at + 4 + size > len(extra):
            raise ValueError(f"field 0x{number:04x} of {size} bytes reaches past its end")
        yield number, extra[at + 4 : at + 4 + size]
        at += 4 + size


def _remove_extra(extra: bytes, removed: int) -> bytes:
    """Return an extra area without the fields of one number."""
    fields = (_pack_extra(number, content) for number, content in _iterate_extra(extra) if number != removed)
    return b"".join(fields)


def _pack_extra(number: int, content: bytes) -> bytes:
    return _EXTRA_HEAD.pack(number, len(content)) + content


def _pack_zip64(*values: int) -> bytes:
    return _pack_extra(EXTRA_ZIP64, b"".join(value.to_bytes(8, "little") for value in values))


def pack_local_header(entry: ZipEntry) -> bytes:
    """Return the local header of a member that is written anew: sizes in front, ZIP64 where needed."""
    extra, sizes = _remove_extra(entry.local_extra, EXTRA_ZIP64), (entry.compressed, entry.size)
    if entry.is_large:
        extra, sizes = _pack_zip64(entry.size, entry.compressed) + extra, (MAX_UINT32, MAX_UINT32)
    lengths = len(entry.raw), len(extra)
    return LOCAL_HEADER.pack(LOCAL_MARK, *entry._front, *sizes, *lengths) + entry.raw + extra


def pack_central_entry(entry: ZipEntry, header: int) -> bytes:
    """Return the directory entry of a member whose local header begins at ``header``."""
    values = (entry.size, entry.compressed, header)
    size, compressed, place = (min(value, MAX_UINT32) for value in values)
    needed, *front = entry._front
    extra = entry.extra
    if large := [value for value in values if value >= MAX_UINT32]:
        extra, needed = _pack_zip64(*large) + extra, max(needed, _ZIP64_VERSION)
    made = (entry.made_by, entry.system, needed)
    behind = (len(entry.raw), len(extra), 0, 0, entry.internal, entry.external, place)
    packed = CENTRAL_ENTRY.pack(CENTRAL_MARK, *made, *front, compressed, size, *behind)
    return packed + entry.raw + extra


def pack_end_records(count: int, size: int, offset: int) -> bytes:
    """Return what ends an archive whose directory (``count`` entries, ``size`` bytes) is at ``offset``."""
    front = b""
    if count >= MAX_UINT16 or size >= MAX_UINT32 or offset >= MAX_UINT32:
        versions, length = (_ZIP64_VERSION, _ZIP64_VERSION), ZIP64_END_RECORD.size - 12
        front = ZIP64_END_RECORD.pack(ZIP64_END_MARK, length, *versions, 0, 0, count, count, size, offset)
        front += ZIP64_LOCATOR.pack(ZIP64_LOCATOR_MARK, 0, offset + size, 1)
    few = min(count, MAX_UINT16)
    place = (min(size, MAX_UINT32), min(offset, MAX_UINT32))
    return front + END_RECORD.pack(END_MARK, 0, 0, few, few, *place, 0)


def encode_date(epoch: int) -> tuple[int, int]:
    """Return seconds of 1980 or later (UTC) as the format has date and time: to two seconds."""
    year, month, day, hour, minute, second, *_ = gmtime(epoch)
    return (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2


def make_zip_entry(name: str, content: bytes, *, date: int, time: int) -> tuple[ZipEntry, bytes]:
    """Return a new member of mode 0644 and its bytes: deflated when that is shorter. Not for large ones."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    method, data = (METHOD_DEFLATED, packed) if len(packed) < len(content) else (METHOD_STORED, content)
    flags = 0 if name.isascii() else FLAG_UTF8
    sizes = zlib.crc32(content), len(data), len(content)
    return ZipEntry(name, name.encode(), flags, method, time, date, *sizes, 0o100644 << 16), data


# kinds of faults. Behind those of the archive nothing can be relied on; those of contents are seen when they
# are inflated; those that are repaired PyPI refuses, and rewriting leaves them out
_ARCHIVE_KINDS = frozenset(
    {"no-end", "two-ends", "trailing-bytes", "prefix", "several-disks", "directory-place", "entry-count"}
    | {"directory-damaged", "directory-size", "zip64-end", "zip64-end-disagrees", "hidden-bytes", "ratio"}
)
_NAME_KINDS = frozenset(
    {"name-upward", "name-absolute", "name-backslash", "name-drive", "name-twice", "name-dots", "name-empty"}
    | {"name-long", "name-control", "name-encoding", "name-unicode-extra", "name-collides", "file-and-folder"}
)
_ENTRY_KINDS = frozenset(
    {"encrypted", "method", "version", "flags", "file-type", "folder-content", "extra-damaged", "zip64-extra"}
    | {"stored-size", "bomb", "past-end", "overlap", "local-missing", "local-name", "local-flags"}
    | {"local-method", "local-crc", "local-size", "descriptor"}
)
_CONTENT_KINDS = frozenset({"crc", "size", "deflate", "deflate-rest"})
_PAST_END = "reaches past the end of the members: cut short"
REPAIRED_FAULTS = frozenset({"data-descriptor", "comment"})
"""Faults that a rewritten wheel no longer has, and that do not keep anybody from reading this one."""

FAULT_KINDS = _ARCHIVE_KINDS | _NAME_KINDS | _ENTRY_KINDS | _CONTENT_KINDS | REPAIRED_FAULTS


@dataclass(frozen=True)
class ArchiveFault:
    """A fault: its name in ``FAULT_KINDS``, the member ("" for the archive), and what is the matter."""

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
        return self.kind in _NAME_KINDS or self.is_repairable


_LONGEST_NAME, _LONGEST_PART = 1024, 255  # bytes: PATH_MAX of macOS, NAME_MAX of nearly all file systems
_PLAIN_NAME = re.compile(r"[\w+@~-][\w.+@~, -]*(?:/[\w+@~-][\w.+@~, -]*)*/?", re.ASCII)  # nearly all names
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:")


def _find_name_fault(entry: ZipEntry) -> ArchiveFault | None:
    """Return what is wrong with one name; None when nothing."""
    name, size = entry.name, len(entry.raw)
    if size > _LONGEST_PART:
        longest = max(map(len, entry.raw.split(b"/")))
        if size > _LONGEST_NAME or longest > _LONGEST_PART:
            return ArchiveFault("name-long", name, f"a name of {size} bytes, its longest part of {longest}")
    if _PLAIN_NAME.fullmatch(name):
        return None
    parts, leads_out = name.split("/"), "this name leads out of the folder it is unpacked to"
    tests = {
        "name-empty": "" if name else "a member has no name",
        "name-control": _CONTROL_CHARACTER.search(name) and f"a control character in the name {name!r}",
        "name-backslash": "\\" in name and f"a backslash: {leads_out}",
        "name-absolute": name.startswith("/") and f"{leads_out}: absolute",
        "name-drive": _DRIVE.match(name) and f"{leads_out}: a drive",
        "name-upward": ".." in parts and leads_out,
        "name-dots": ("." in parts or "" in parts[:-1])
        and "a part of the name is empty or '.': readers drop it",
    }
    return _make_first_fault(name, tests)


def _make_first_fault(name: str, tests: Mapping[str, object]) -> ArchiveFault | None:
    """Return the first fault of a member whose text says something; the others are not true of it."""
    return next((ArchiveFault(kind, name, str(text)) for kind, text in tests.items() if text), None)


def _find_collisions(entries: Sequence[ZipEntry]) -> Iterator[ArchiveFault]:
    """Yield names that several members have, or that one has as file and others as folder."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.name] = counts.get(entry.name, 0) + 1
    for name, count in counts.items():
        if count > 1:
            yield ArchiveFault("name-twice", name, f"{count} members of this name")
    keys: dict[str, str] = {}
    for name in counts:
        # the one spelling of all names that are unpacked to the same place
        key = "/".join(part for part in name.split("/") if part not in ("", "."))
        if keys.setdefault(key, name) != name:
            yield ArchiveFault("name-collides", name, f"unpacked, this is the same file as {keys[key]}")
    ordered = sorted(keys)  # the folders of all names would be gigabytes where names have thousands of parts
    for key, name in keys.items():
        inside = key + "/"
        at = bisect_left(ordered, inside)
        if at < len(ordered) and ordered[at].startswith(inside) and not name.endswith("/"):
            yield ArchiveFault("file-and-folder", name, "a file that is a folder to other members")


_LONGEST_COMMENT = 0xFFFF
# what claims more is no wheel: the largest have some 40,000 members, and each takes 1 KB of memory here
_LARGEST_DIRECTORY, _MOST_MEMBERS = 64 << 20, 250_000
_MOST_PARTS = 1 << 20  # folders in all names: ten a member of a wheel of 100,000
_HARMLESS_CONTENT, _MOST_RATIO = 64 << 20, 50  # what PyPI takes for a bomb
_END_LIMITS = (*[MAX_UINT16] * 4, *[MAX_UINT32] * 2)


class UnreadableError(Exception):
    """The archive cannot be read at all; holds the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = ArchiveFault(kind, "", text)


class _MemberError(Exception):
    """An extra field is damaged or contradicts; holds the kind of the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def exceeds_ratio(content: int, length: int) -> bool:
    """Tell whether PyPI takes an archive of ``length`` bytes with so many bytes of content for a bomb."""
    return content > max(_MOST_RATIO * length, _HARMLESS_CONTENT)


@dataclass(frozen=True)
class ArchiveLayout:
    """An archive: its members in the order of the directory, and every fault."""

    entries: tuple[ZipEntry, ...]
    faults: tuple[ArchiveFault, ...]


def make_reader(file: BinaryIO) -> ReadAt:
    """Return a function that reads ``size`` bytes at ``offset``: fewer at the end; for several threads."""
    if hasattr(os, "pread"):
        number = file.fileno()
        return lambda offset, size: os.pread(number, size, offset) if offset >= 0 else b""
    lock = Lock()

    def read(offset: int, size: int) -> bytes:
        with lock:
            file.seek(offset)
            return file.read(size)

    return read


def read_archive_layout(read: ReadAt, length: int) -> ArchiveLayout:
    """Read an archive of ``length`` bytes; UnreadableError when it has no directory to rely on."""
    faults: list[ArchiveFault] = []
    place, size, count = _read_end(read, length, faults)
    directory = read(place, size)
    if len(directory) != size:
        raise UnreadableError("directory-damaged", "its directory cannot be read whole")
    if directory.count(b"/") > _MOST_PARTS:
        raise UnreadableError(
            "directory-size", f"more than {_MOST_PARTS} folders in the names of its members"
        )
    entries: list[ZipEntry] = []
    at = 0
    while at < size:
        if directory[at : at + 4] != CENTRAL_MARK or at + CENTRAL_ENTRY.size > size:
            raise UnreadableError("directory-damaged", f"no entry at byte {at} of its directory")
        if len(entries) == count:
            raise UnreadableError("entry-count", f"more entries than the {count} of its end record")
        fields = CENTRAL_ENTRY.unpack_from(directory, at)
        name_size, extra_size, comment_size = fields[11:14]
        start = at + CENTRAL_ENTRY.size
        name_end, extra_end = start + name_size, start + name_size + extra_size
        if extra_end + comment_size > size:
            raise UnreadableError("directory-damaged", "the last entry of its directory is cut short")
        entry, entry_faults = _read_entry(fields, directory[start:name_end], directory[name_end:extra_end])
        # flags, method, date, CRC, sizes and the length of the name: its own header repeats them
        entry, fault = _check_local_header(read, entry, directory[at + 8 : at + 30], place)
        faults += [*entry_faults, fault] if fault else entry_faults
        entries.append(entry)
        at = extra_end + comment_size
    if len(entries) != count:
        raise UnreadableError("entry-count", f"{len(entries)} entries, its end record says {count}")
    faults += _check_extents(read, entries, place, _list_broken(faults))
    broken = _list_broken(faults)
    content = sum(entry.size for entry in entries if entry.name not in broken)
    if exceeds_ratio(content, length):  # nobody shall inflate it to look for more
        raise UnreadableError("ratio", f"{content} bytes of content in {length} bytes")
    faults += _find_collisions(entries)
    return ArchiveLayout(tuple(entries), tuple(faults))


def _list_broken(faults: list[ArchiveFault]) -> set[str]:
    """Return the members whose content cannot be read."""
    return {fault.member for fault in faults if fault.member and not fault.is_readable}


def _read_end(read: ReadAt, length: int, faults: list[ArchiveFault]) -> tuple[int, int, int]:
    """Return where the directory is, its size, and how many entries are said to be there."""
    start = max(0, length - END_RECORD.size - _LONGEST_COMMENT)
    tail = read(start, length - start)
    # a record that an earlier one holds in its comment or that follows it: which of them counts?
    marks = [match.start() for match in re.finditer(re.escape(END_MARK), tail)]
    behind = {at: at + END_RECORD.size for at in marks if at + END_RECORD.size <= len(tail)}
    if not behind:
        raise UnreadableError("no-end", "it has no end record: cut short, or no archive")
    comments = {at: int.from_bytes(tail[end - 2 : end], "little") for at, end in behind.items()}
    reaching = [at for at, size in comments.items() if behind[at] + size == len(tail)]
    if len(reaching) > 1:
        raise UnreadableError("two-ends", f"end records at {start + reaching[0]} and {start + reaching[-1]}")
    last, comment = list(comments.items())[-1]
    rest, end = len(tail) - behind[last], start + last
    if comment > rest:
        raise UnreadableError("no-end", f"its end record has a comment of {comment} bytes, {rest} are there")
    if comment < rest:
        text = f"{rest - comment} bytes behind its end record"
        faults.append(ArchiveFault("trailing-bytes", "", text))
    elif comment:
        faults.append(ArchiveFault("comment", "", f"a comment of {comment} bytes"))
    _, *stated, _ = END_RECORD.unpack_from(tail, last)
    directory_end = end  # where the directory must end
    locator = read(end - ZIP64_LOCATOR.size, ZIP64_LOCATOR.size) if end >= ZIP64_LOCATOR.size else b""
    if locator.startswith(ZIP64_LOCATOR_MARK):
        directory_end, wide = _read_zip64_end(read, end, locator)
        rows = zip(stated, wide, _END_LIMITS, strict=True)
        if any(narrow not in (value, most) for narrow, value, most in rows):
            text = f"the end record says {tuple(stated[3:])}, the one of ZIP64 {tuple(wide[3:])}"
            raise UnreadableError("zip64-end-disagrees", text)
        stated = wide
    disk, first_disk, entries_here, count, size, offset = stated
    if disk or first_disk or entries_here != count:
        raise UnreadableError("several-disks", "a part of an archive on several disks")
    if size > _LARGEST_DIRECTORY or count > _MOST_MEMBERS:
        raise UnreadableError("directory-size", f"a directory of {size} bytes for {count} members")
    if gap := directory_end - offset - size:
        text = f"its directory is said to lie at {offset} to {offset + size}, the end record follows "
        text += f"{directory_end}: "
        text += (
            f"{gap} bytes are in front of the archive or between" if gap > 0 else f"cut short by {-gap} bytes"
        )
        raise UnreadableError("directory-place", text)
    return offset, size, count


def _read_zip64_end(read: ReadAt, end: int, locator: bytes) -> tuple[int, list[int]]:
    _, disk, place, disks = ZIP64_LOCATOR.unpack(locator)
    if disk or disks > 1:
        raise UnreadableError("several-disks", f"its ZIP64 end record is on disk {disk} of {disks}")
    expected = end - ZIP64_LOCATOR.size - ZIP64_END_RECORD.size
    if place != expected or expected < 0:
        raise UnreadableError(
            "zip64-end", f"its ZIP64 end record is said to lie at {place}, and must at {expected}"
        )
    mark, size, _, _, *wide = ZIP64_END_RECORD.unpack(read(place, ZIP64_END_RECORD.size))
    if mark != ZIP64_END_MARK or size != ZIP64_END_RECORD.size - 12:
        raise UnreadableError("zip64-end", f"no ZIP64 end record of {ZIP64_END_RECORD.size} bytes at {place}")
    return place, wide


_DEFLATE_LIMIT = 1032  # no deflate stream is shorter than its content by more than this factor
_LATEST_VERSION = 63  # version 6.3 of the format
_FILE_TYPES = {0, 0o100000, 0o040000, 0o120000}  # none, file, folder, symbolic link
_ENCRYPTED_FLAGS, _CHANGED_FLAGS = FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION, FLAG_PATCHED | FLAG_MASKED
_UNUSUAL_FLAGS = _ENCRYPTED_FLAGS | _CHANGED_FLAGS
_COMPARED_FLAGS = _UNUSUAL_FLAGS | FLAG_DESCRIPTOR | FLAG_UTF8
_SINGLE_FIELDS = {EXTRA_ZIP64, EXTRA_UNICODE_PATH}
_READ_AHEAD = 96  # bytes read with a local header: mostly all of its name and extra field
_LOCAL_SIZES, _LOCAL_SIZES_AT = Struct("<HH"), 26  # of name and extra field, in a local header
_DESCRIPTORS = [
    (mark, Struct(f"<{'4s' if mark else ''}L{size}")) for size in ("LL", "QQ") for mark in (True, False)
]


def _read_entry(fields: tuple[int, ...], raw: bytes, extra: bytes) -> tuple[ZipEntry, list[ArchiveFault]]:
    """Return an entry of the directory; its places hold if its own header has no extra field."""
    (_, made_by, system, needed, flags, method, time, date, crc, compressed, size) = fields[:11]
    comment, disk, internal, external, header = fields[13:]
    faults: list[ArchiveFault] = []
    try:
        name = raw.decode("utf-8" if flags & FLAG_UTF8 else "ascii")
    except UnicodeDecodeError:
        name = raw.decode("cp437")
        text = f"the name {raw!r} is neither ASCII nor marked, valid UTF-8"
        faults.append(ArchiveFault("name-encoding", name, text))
    if extra or MAX_UINT32 in (size, compressed, header):
        try:
            size, compressed, header, extra = _apply_zip64(extra, size, compressed, header, name)
        except _MemberError as fault:
            faults.append(ArchiveFault(fault.kind, name, str(fault)))
            extra = b""
    if disk:
        faults.append(ArchiveFault("zip64-extra", name, f"said to begin on disk {disk}"))
    data = header + LOCAL_HEADER.size + len(raw)
    front = (name, raw, flags, method, time, date, crc, compressed, size, external)
    made = (made_by, system, needed, internal)
    entry = ZipEntry(*front, *made, extra, header, b"", data, data + compressed)
    faults += [fault for fault in (_find_name_fault(entry), _find_unsupported(entry)) if fault]
    if comment:
        faults.append(ArchiveFault("comment", name, f"a comment of {comment} bytes"))
    return entry, faults


def _apply_zip64(
    extra: bytes, size: int, compressed: int, header: int, name: str
) -> tuple[int, int, int, bytes]:
    """Return sizes and place with the values of ZIP64, and the extra area without them."""
    wide = _read_extra(extra, name).get(EXTRA_ZIP64)
    values = [size, compressed, header]
    widened = [number for number, value in enumerate(values) if value == MAX_UINT32]
    if wide is None:
        if widened:
            raise _MemberError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed, header, extra
    if len(wide) != 8 * len(widened):
        raise _MemberError("zip64-extra", f"{len(wide)} bytes of ZIP64 values for {len(widened)} of them")
    for place, number in enumerate(widened):
        values[number] = int.from_bytes(wide[8 * place : 8 * place + 8], "little")
    return values[0], values[1], values[2], _remove_extra(extra, EXTRA_ZIP64)


def _read_extra(extra: bytes, name: str) -> dict[int, bytes]:
    """Return the fields of an extra area; raises for damage, or for another name."""
    fields: dict[int, bytes] = {}
    try:
        for number, content in _iterate_extra(extra):
            if number in fields and number in _SINGLE_FIELDS:
                raise _MemberError("extra-damaged", f"the extra field 0x{number:04x} comes twice")
            fields[number] = content
    except ValueError as fault:
        raise _MemberError("extra-damaged", f"its extra field is damaged: {fault}") from None
    other = fields.get(EXTRA_UNICODE_PATH)
    if other is not None and other[5:] != name.encode("utf-8", "surrogateescape"):
        raise _MemberError("name-unicode-extra", "an extra field gives it another name")
    return fields


def _find_unsupported(entry: ZipEntry) -> ArchiveFault | None:
    """Return why an entry cannot be what a wheel holds."""
    name, kind, flags, method = entry.name, entry.mode & 0o170000, entry.flags, entry.method
    is_bomb = entry.size > _DEFLATE_LIMIT * (entry.compressed + 64)
    is_usual = method == METHOD_DEFLATED and kind in _FILE_TYPES and not flags & _UNUSUAL_FLAGS
    if is_usual and not is_bomb and name[-1:] != "/" and entry.needed <= _LATEST_VERSION:
        return None
    compressed, size, is_stored = entry.compressed, entry.size, method == METHOD_STORED
    is_late = entry.needed > _LATEST_VERSION
    tests = {
        "version": is_late and f"asks for a reader of version {entry.needed / 10:.1f}",
        "encrypted": flags & _ENCRYPTED_FLAGS and "encrypted",
        "flags": flags & _CHANGED_FLAGS and f"flags 0x{flags:04x}: patched data or a masked header",
        "method": not is_stored
        and method != METHOD_DEFLATED
        and f"compression method {method}; wheels are stored or deflated",
        "file-type": kind not in _FILE_TYPES and f"neither file, folder nor link (mode {entry.mode:o})",
        "folder-content": entry.is_folder and size and f"a folder with {size} bytes of content",
        "stored-size": is_stored
        and compressed != size
        and f"stored, {size} bytes and {compressed} bytes long",
        "bomb": is_bomb and f"{compressed} bytes cannot inflate to {size}",
    }
    return _make_first_fault(name, tests)


def _check_local_header(
    read: ReadAt, entry: ZipEntry, repeated: bytes, directory: int
) -> tuple[ZipEntry, ArchiveFault | None]:
    """Return an entry with what its local header adds, and what that disagrees about.

    ``repeated`` is what the header repeats of the directory: where that are the same bytes, nothing needs to
    be compared one by one.
    """
    at, name = entry.header, entry.name
    header = read(at, LOCAL_HEADER.size + _READ_AHEAD) if at < directory else b""
    if len(header) < LOCAL_HEADER.size or not header.startswith(LOCAL_MARK):
        text = f"no member begins at {at}, where the directory says"
        return entry._replace(data=0, end=0), ArchiveFault("local-missing", name, text)
    name_size, extra_size = _LOCAL_SIZES.unpack_from(header, _LOCAL_SIZES_AT)
    name_end = LOCAL_HEADER.size + name_size
    is_plain = not entry.flags & FLAG_DESCRIPTOR and entry.size < MAX_UINT32 > entry.compressed
    fits = not extra_size and name_size <= _READ_AHEAD and entry.end <= directory
    if is_plain and fits and header[6:28] == repeated and header[LOCAL_HEADER.size : name_end] == entry.raw:
        return entry, None

    data = at + name_end + extra_size
    if data > at + len(header):
        header = read(at, data - at)
    raw, extra = header[LOCAL_HEADER.size : name_end], header[name_end : name_end + extra_size]
    _, _, flags, method, _, _, crc, compressed, size, _, _ = LOCAL_HEADER.unpack_from(header)
    entry = entry._replace(local_extra=extra, data=data, end=data + entry.compressed)
    is_other = raw != entry.raw or (flags ^ entry.flags) & _COMPARED_FLAGS or method != entry.method
    try:
        if not is_other:
            size, compressed = _read_local_sizes(_read_extra(extra, name).get(EXTRA_ZIP64), size, compressed)
    except _MemberError as fault:
        if entry.end > directory:
            return entry, ArchiveFault("past-end", name, _PAST_END)
        return entry, ArchiveFault(fault.kind, name, f"in its header: {fault}")
    # with a descriptor behind the content its values may be zeros here
    has_descriptor = bool(flags & FLAG_DESCRIPTOR)
    is_other_crc = crc != entry.crc and not (has_descriptor and crc == 0)
    is_other_size = (compressed, size) != (entry.compressed, entry.size) and not (
        has_descriptor and compressed == size == 0
    )
    is_other_flags = (flags ^ entry.flags) & _COMPARED_FLAGS
    tests = {
        "local-name": raw != entry.raw and f"the member at {at} calls itself {raw!r}",
        "local-flags": is_other_flags and f"its header has the flags 0x{flags:04x}, not 0x{entry.flags:04x}",
        "local-method": method != entry.method and f"its header has the method {method}, not {entry.method}",
        "local-crc": is_other_crc and f"its header has the CRC {crc:08x}, the directory {entry.crc:08x}",
        "local-size": is_other_size
        and f"its header says {compressed} and {size} bytes, the directory {entry.compressed} and"
        f" {entry.size}",
        "past-end": entry.end > directory and _PAST_END,
    }
    return entry, _make_first_fault(name, tests)


def _read_local_sizes(wide: bytes | None, size: int, compressed: int) -> tuple[int, int]:
    if wide is None:
        if MAX_UINT32 in (size, compressed):
            raise _MemberError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed
    if len(wide) != 16:
        raise _MemberError("zip64-extra", f"{len(wide)} bytes of ZIP64 values instead of two sizes")
    sizes = int.from_bytes(wide[:8], "little"), int.from_bytes(wide[8:], "little")
    if size not in (MAX_UINT32, sizes[0]) or compressed not in (MAX_UINT32, sizes[1]):
        raise _MemberError(
            "zip64-extra", f"sizes {size} and {compressed}, and {sizes[0]} and {sizes[1]} in ZIP64"
        )
    return sizes


def _check_extents(
    read: ReadAt, entries: list[ZipEntry], directory: int, broken: set[str]
) -> list[ArchiveFault]:
    """Add the descriptors to the entries; return where these lie on top of each other or leave bytes over."""
    faults: list[ArchiveFault] = []
    numbers = [number for number, entry in enumerate(entries) if entry.data]
    order = sorted(numbers, key=lambda number: entries[number].header)
    follow = [*(entries[number].header for number in order[1:]), directory][: len(order)]
    end = 0  # of the members so far
    for number, follows in zip(order, follow, strict=True):
        entry = entries[number]
        if entry.flags & FLAG_DESCRIPTOR and entry.name not in broken:
            size = _find_descriptor_size(read, entry, follows)
            kind, text = "data-descriptor", "its sizes are behind its content (PyPI refuses this)"
            if not size:
                kind, text = "descriptor", "its data descriptor is missing or contradicts the directory"
            faults.append(ArchiveFault(kind, entry.name, text))
            entry = entries[number] = entry._replace(end=entry.end + size)
        if entry.header < end or follows < entry.end <= directory:
            faults.append(ArchiveFault("overlap", entry.name, "reaches into another member"))
        elif entry.header > end and not broken:
            text = f"{entry.header - end} bytes in front of it belong to no member"
            faults.append(ArchiveFault("hidden-bytes" if end else "prefix", entry.name, text))
        end = max(end, entry.end)
    if end < directory and not broken:
        text = f"{directory - end} bytes in front of its directory belong to no member"
        faults.append(ArchiveFault("hidden-bytes", "", text))
    return faults


def _find_descriptor_size(read: ReadAt, entry: ZipEntry, follows: int) -> int:
    """Return the size of a data descriptor that gives the right values; 0 when there is none."""
    following = read(entry.end, 24) if entry.end < follows else b""
    values = (entry.crc, entry.compressed, entry.size)
    for marked, form in _DESCRIPTORS:
        if len(following) >= form.size and entry.end + form.size <= follows:
            stated = form.unpack_from(following)
            if stated == ((DESCRIPTOR_MARK, *values) if marked else values):
                return form.size
    return 0

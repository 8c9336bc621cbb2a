"""Read the layout of a zip archive strictly: directory and local headers compared, as extents that fill
it.

Every byte of an archive belongs to a member, the directory or its end: so there is nothing that another
reader could find in another way. The records at the end must fill it without a gap: directory, ZIP64
end record and its locator where there are some, end record. What is wrong is told by the names in
``ARCHIVE_FAULTS``; nothing is inflated. Source: PKWARE APPNOTE 6.3.10, sections 4.3.12, 4.4 and 4.5.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from typing import BinaryIO, NamedTuple

from rocm_wheels.wheels import zip_format

ReadAt = Callable[[int, int], bytes]
_LONGEST_COMMENT = 0xFFFF
# what claims more is no wheel: the largest have some 40,000 members, and each takes 1 KB of memory here
_LARGEST_DIRECTORY, _MOST_MEMBERS = 64 << 20, 250_000
_MOST_PARTS = 1 << 20  # folders in all names: ten a member of a wheel of 100,000


@dataclass(frozen=True)
class ArchiveEnd:
    """Where the directory lies and how many entries it is said to have, and what is wrong with the end."""

    directory: int
    size: int
    count: int
    faults: tuple[zip_format.ArchiveFault, ...]


class UnreadableError(Exception):
    """The archive cannot be read at all; holds the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = zip_format.ArchiveFault(kind, "", text)


def read_archive_end(read: ReadAt, length: int) -> ArchiveEnd:
    """Find the directory of an archive of ``length`` bytes; UnreadableError when there is none to rely on."""
    end, faults = _find_end(read, length)
    _, disk, first_disk, entries_here, count, size, offset, _ = zip_format.END_RECORD.unpack(
        read(end, zip_format.END_RECORD.size)
    )
    directory_end = end  # where the directory must end
    locator = (
        read(end - zip_format.ZIP64_LOCATOR.size, zip_format.ZIP64_LOCATOR.size)
        if end >= zip_format.ZIP64_LOCATOR.size
        else b""
    )
    if locator.startswith(zip_format.ZIP64_LOCATOR_MARK):
        directory_end, zip64_fields = _read_zip64(read, end, locator)
        stated = (disk, first_disk, entries_here, count, size, offset)
        limits = (
            zip_format.MAX_UINT16,
            zip_format.MAX_UINT16,
            zip_format.MAX_UINT16,
            zip_format.MAX_UINT16,
            zip_format.MAX_UINT32,
            zip_format.MAX_UINT32,
        )
        if any(a not in (b, most) for a, b, most in zip(stated, zip64_fields, limits, strict=True)):
            raise UnreadableError(
                "zip64-end-disagrees",
                f"the end record says {stated[3:]}, the one of ZIP64 {zip64_fields[3:]}",
            )
        disk, first_disk, entries_here, count, size, offset = zip64_fields
    if disk or first_disk or entries_here != count:
        raise UnreadableError("several-disks", "a part of an archive on several disks")
    if size > _LARGEST_DIRECTORY or count > _MOST_MEMBERS:
        raise UnreadableError("directory-size", f"a directory of {size} bytes for {count} members")
    if offset + size != directory_end:
        raise UnreadableError("directory-place", _describe_misplaced(offset, size, directory_end))
    return ArchiveEnd(offset, size, count, tuple(faults))


def _find_end(read: ReadAt, length: int) -> tuple[int, list[zip_format.ArchiveFault]]:
    start = max(0, length - zip_format.END_RECORD.size - _LONGEST_COMMENT)
    tail = read(start, length - start)
    marks = [at for at in _find_end_marks(tail) if at + zip_format.END_RECORD.size <= len(tail)]
    if not marks:
        raise UnreadableError("no-end", "it has no end record: cut short, or no archive")
    last = marks[-1]
    # a record that an earlier one holds in its comment or that follows it: which of them counts?
    reaching = [
        at for at in marks if at + zip_format.END_RECORD.size + _read_comment_size(tail, at) == len(tail)
    ]
    if len(reaching) > 1:
        raise UnreadableError("two-ends", f"end records at {start + reaching[0]} and {start + reaching[-1]}")
    comment = _read_comment_size(tail, last)
    rest = len(tail) - last - zip_format.END_RECORD.size
    if comment > rest:
        raise UnreadableError("no-end", f"its end record has a comment of {comment} bytes, {rest} are there")
    if comment < rest:
        return start + last, [
            zip_format.ArchiveFault("trailing-bytes", "", f"{rest - comment} bytes behind its end record")
        ]
    faults = [zip_format.ArchiveFault("comment", "", f"a comment of {comment} bytes")] if comment else []
    return start + last, faults


def _find_end_marks(tail: bytes) -> list[int]:
    places, at = [], tail.find(zip_format.END_MARK)
    while at >= 0:
        places.append(at)
        at = tail.find(zip_format.END_MARK, at + 1)
    return places


def _read_comment_size(tail: bytes, at: int) -> int:
    return int.from_bytes(
        tail[at + zip_format.END_RECORD.size - 2 : at + zip_format.END_RECORD.size], "little"
    )


def _read_zip64(read: ReadAt, end: int, locator: bytes) -> tuple[int, tuple[int, ...]]:
    _, disk, place, disks = zip_format.ZIP64_LOCATOR.unpack(locator)
    if disk or disks > 1:
        raise UnreadableError("several-disks", f"its ZIP64 end record is on disk {disk} of {disks}")
    expected = end - zip_format.ZIP64_LOCATOR.size - zip_format.ZIP64_END_RECORD.size
    if place != expected or expected < 0:
        raise UnreadableError(
            "zip64-end", f"its ZIP64 end record is said to lie at {place}, and must at {expected}"
        )
    mark, size, _, _, *wide = zip_format.ZIP64_END_RECORD.unpack(
        read(place, zip_format.ZIP64_END_RECORD.size)
    )
    if mark != zip_format.ZIP64_END_MARK or size != zip_format.ZIP64_END_RECORD.size - 12:
        raise UnreadableError(
            "zip64-end", f"no ZIP64 end record of {zip_format.ZIP64_END_RECORD.size} bytes at {place}"
        )
    return place, tuple(wide)


def _describe_misplaced(offset: int, size: int, behind: int) -> str:
    gap = behind - offset - size
    where = f"its directory is said to lie at {offset} to {offset + size}, the end record follows {behind}"
    if gap > 0:
        return f"{where}: {gap} bytes are in front of the archive or between"
    return f"{where}: cut short by {-gap} bytes"


_DEFLATE_LIMIT = 1032  # no deflate stream is shorter than its content by more than this factor
_LATEST_VERSION = 63  # version 6.3 of the format
_REGULAR_FILE = 0o100000
_FILE_TYPES = {0, _REGULAR_FILE, 0o040000, 0o120000}  # none, file, folder, symbolic link
_UNUSUAL_FLAGS = (
    zip_format.FLAG_ENCRYPTED
    | zip_format.FLAG_STRONG_ENCRYPTION
    | zip_format.FLAG_PATCHED
    | zip_format.FLAG_MASKED
)
_SINGLE_FIELDS = {zip_format.EXTRA_ZIP64, zip_format.EXTRA_UNICODE_PATH}


class DirectoryEntry(NamedTuple):
    """An entry of the directory, what is wrong with it, and the part of it that its own header repeats.

    That are flags, method, date, CRC, sizes and the length of the name: where they are the same bytes,
    nothing needs to be compared one by one. The places in the entry hold if its header has no extra field.
    """

    entry: zip_format.ZipEntry
    faults: list[zip_format.ArchiveFault]
    repeated: bytes


def read_zip_directory(directory: bytes) -> Iterator[DirectoryEntry]:
    """Yield the entries of a directory; UnreadableError where it holds none."""
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != zip_format.CENTRAL_MARK or at + zip_format.CENTRAL_ENTRY.size > len(
            directory
        ):
            raise UnreadableError("directory-damaged", f"no entry at byte {at} of its directory")
        fields = zip_format.CENTRAL_ENTRY.unpack_from(directory, at)
        name, extra, comment = fields[11:14]
        start = at + zip_format.CENTRAL_ENTRY.size
        end = start + name + extra + comment
        if end > len(directory):
            raise UnreadableError("directory-damaged", "the last entry of its directory is cut short")
        raw, area = directory[start : start + name], directory[start + name : start + name + extra]
        yield DirectoryEntry(*_read_entry(fields, raw, area), directory[at + 8 : at + 30])
        at = end


def _read_entry(
    fields: tuple[int, ...], raw: bytes, extra: bytes
) -> tuple[zip_format.ZipEntry, list[zip_format.ArchiveFault]]:
    (_, made_by, system, needed, flags, method, time, date, crc, compressed, size) = fields[:11]
    comment, disk, internal, external, header = fields[13:]
    faults: list[zip_format.ArchiveFault] = []
    name, coded = (raw.decode("ascii"), True) if raw.isascii() else _decode_name(raw, flags)
    if not coded:
        text = f"the name {raw!r} is neither ASCII nor marked, valid UTF-8"
        faults.append(zip_format.ArchiveFault("name-encoding", name, text))
    if extra or zip_format.MAX_UINT32 in (size, compressed, header):
        try:
            size, compressed, header, extra = _apply_zip64(extra, size, compressed, header, name)
        except ExtraFieldError as fault:
            faults.append(zip_format.ArchiveFault(fault.kind, name, str(fault)))
            extra = b""
    if disk:
        faults.append(zip_format.ArchiveFault("zip64-extra", name, f"said to begin on disk {disk}"))
    data = header + zip_format.LOCAL_HEADER.size + len(raw)
    place = (internal, external, extra, header, b"", data, data + compressed)
    entry = zip_format.ZipEntry(
        name, raw, made_by, system, needed, flags, method, time, date, crc, compressed, size, *place
    )
    faults += [
        entry_fault
        for entry_fault in (zip_format.find_name_fault(entry), _find_unsupported(entry))
        if entry_fault
    ]
    if comment:
        faults.append(zip_format.ArchiveFault("comment", name, f"a comment of {comment} bytes"))
    return entry, faults


def _decode_name(raw: bytes, flags: int) -> tuple[str, bool]:
    try:
        if flags & zip_format.FLAG_UTF8:
            return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("cp437"), False
    return raw.decode("cp437"), False


class ExtraFieldError(Exception):
    """An extra field is damaged or contradicts; holds the kind of the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _apply_zip64(
    extra: bytes, size: int, compressed: int, header: int, name: str
) -> tuple[int, int, int, bytes]:
    """Return sizes and place with the values of ZIP64, and the extra area without them."""
    wide = read_extra_area(extra, name).get(zip_format.EXTRA_ZIP64)
    values = [size, compressed, header]
    widened = [number for number, value in enumerate(values) if value == zip_format.MAX_UINT32]
    if wide is None:
        if widened:
            raise ExtraFieldError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed, header, extra
    if len(wide) != 8 * len(widened):
        raise ExtraFieldError("zip64-extra", f"{len(wide)} bytes of ZIP64 values for {len(widened)} of them")
    for place, number in enumerate(widened):
        values[number] = int.from_bytes(wide[8 * place : 8 * place + 8], "little")
    return values[0], values[1], values[2], zip_format.remove_extra_field(extra, zip_format.EXTRA_ZIP64)


def read_extra_area(extra: bytes, name: str) -> dict[int, bytes]:
    """Return the fields of an extra area. Raises ExtraFieldError for damage, or for another name."""
    if not extra:
        return {}
    fields: dict[int, bytes] = {}
    try:
        for number, content in zip_format.read_extra_fields(extra):
            if number in fields and number in _SINGLE_FIELDS:
                raise ExtraFieldError("extra-damaged", f"the extra field 0x{number:04x} comes twice")
            fields[number] = content
    except ValueError as fault:
        raise ExtraFieldError("extra-damaged", f"its extra field is damaged: {fault}") from None
    if zip_format.EXTRA_UNICODE_PATH in fields and fields[zip_format.EXTRA_UNICODE_PATH][5:] != name.encode(
        "utf-8", "surrogateescape"
    ):
        raise ExtraFieldError("name-unicode-extra", "an extra field gives it another name")
    return fields


def _find_unsupported(entry: zip_format.ZipEntry) -> zip_format.ArchiveFault | None:
    """Return why an entry cannot be what a wheel holds."""
    name, kind = entry.name, entry.mode & 0o170000
    if entry.needed > _LATEST_VERSION:
        return zip_format.ArchiveFault(
            "version", name, f"asks for a reader of version {entry.needed / 10:.1f}"
        )
    usual = (
        kind == _REGULAR_FILE
        and entry.method == zip_format.METHOD_DEFLATED
        and not entry.flags & _UNUSUAL_FLAGS
    )
    if usual and entry.size <= _DEFLATE_LIMIT * (entry.compressed + 64) and not entry.is_folder:
        return None
    if entry.flags & (zip_format.FLAG_ENCRYPTED | zip_format.FLAG_STRONG_ENCRYPTION):
        return zip_format.ArchiveFault("encrypted", name, "encrypted")
    if entry.flags & (zip_format.FLAG_PATCHED | zip_format.FLAG_MASKED):
        return zip_format.ArchiveFault(
            "flags", name, f"flags 0x{entry.flags:04x}: patched data or a masked header"
        )
    if entry.method not in (zip_format.METHOD_STORED, zip_format.METHOD_DEFLATED):
        return zip_format.ArchiveFault(
            "method", name, f"compression method {entry.method}; wheels are stored or deflated"
        )
    if kind not in _FILE_TYPES:
        return zip_format.ArchiveFault(
            "file-type", name, f"neither file, folder nor link (mode {entry.mode:o})"
        )
    if entry.is_folder and entry.size:
        return zip_format.ArchiveFault("folder-content", name, f"a folder with {entry.size} bytes of content")
    if entry.method == zip_format.METHOD_STORED and entry.size != entry.compressed:
        return zip_format.ArchiveFault(
            "stored-size", name, f"stored, {entry.size} bytes and {entry.compressed} bytes long"
        )
    if entry.size > _DEFLATE_LIMIT * (entry.compressed + 64):
        return zip_format.ArchiveFault(
            "bomb", name, f"{entry.compressed} bytes cannot inflate to {entry.size}"
        )
    return None


_COMPARED_FLAGS = (
    zip_format.FLAG_ENCRYPTED
    | zip_format.FLAG_DESCRIPTOR
    | zip_format.FLAG_PATCHED
    | zip_format.FLAG_STRONG_ENCRYPTION
    | zip_format.FLAG_UTF8
    | zip_format.FLAG_MASKED
)
_LOCAL_SIZES, _LOCAL_SIZES_AT = Struct("<HH"), 26  # of name and extra field, in a local header
_HARMLESS_CONTENT, _MOST_RATIO = 64 << 20, 50  # what PyPI takes for a bomb
_READ_AHEAD = 96  # bytes read with a local header: mostly all of its name and extra field
_DESCRIPTORS = [
    (mark, Struct(f"<{'4s' if mark else ''}L{size}")) for size in ("LL", "QQ") for mark in (True, False)
]


def exceeds_ratio(content: int, length: int) -> bool:
    """Tell whether PyPI takes an archive of ``length`` bytes with so many bytes of content for a bomb."""
    return content > max(_MOST_RATIO * length, _HARMLESS_CONTENT)


@dataclass(frozen=True)
class ArchiveLayout:
    """An archive: its members in the order of the directory, where that begins, and every fault."""

    entries: tuple[zip_format.ZipEntry, ...]
    directory: int
    faults: tuple[zip_format.ArchiveFault, ...]


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


def read_archive_layout(read: ReadAt, length: int, *, folding: bool = True) -> ArchiveLayout:
    """Read an archive of ``length`` bytes; UnreadableError when it has no directory to rely on.

    With ``folding``, names are compared as file systems of Windows and macOS do.
    """
    ending = read_archive_end(read, length)
    directory = read(ending.directory, ending.size)
    if len(directory) != ending.size:
        raise UnreadableError("directory-damaged", "its directory cannot be read whole")
    if directory.count(b"/") > _MOST_PARTS:
        raise UnreadableError(
            "directory-size", f"more than {_MOST_PARTS} folders in the names of its members"
        )
    faults = list(ending.faults)
    entries = []
    for number, listed in enumerate(read_zip_directory(directory)):
        faults += listed.faults
        if number == ending.count:
            raise UnreadableError("entry-count", f"more entries than the {number} of its end record")
        entry, fault = _check_local_header(read, listed, ending.directory)
        faults += [fault] if fault else []
        entries.append(entry)
    if len(entries) != ending.count:
        raise UnreadableError("entry-count", f"{len(entries)} entries, its end record says {ending.count}")
    faults += _check_extents(read, entries, ending.directory, _list_broken_members(faults))
    broken = _list_broken_members(faults)
    content = sum(entry.size for entry in entries if entry.name not in broken)
    if exceeds_ratio(content, length):  # nobody shall inflate it to look for more
        raise UnreadableError("ratio", f"{content} bytes of content in {length} bytes")
    faults += zip_format.find_collisions(entries, folding=folding)
    return ArchiveLayout(tuple(entries), ending.directory, tuple(faults))


def _list_broken_members(faults: list[zip_format.ArchiveFault]) -> set[str]:
    """Return the members whose content cannot be read."""
    return {fault.member for fault in faults if fault.member and not fault.is_readable}


def _check_local_header(
    read: ReadAt, listed: DirectoryEntry, directory: int
) -> tuple[zip_format.ZipEntry, zip_format.ArchiveFault | None]:
    """Return an entry with what its local header adds, and what that disagrees about."""
    entry = listed.entry
    at, name = entry.header, entry.name
    header = read(at, zip_format.LOCAL_HEADER.size + _READ_AHEAD) if at < directory else b""
    if len(header) < zip_format.LOCAL_HEADER.size or not header.startswith(zip_format.LOCAL_MARK):
        return entry._replace(data=0, end=0), zip_format.ArchiveFault(
            "local-missing", name, f"no member begins at {at}, where the directory says"
        )
    name_size, extra_size = _LOCAL_SIZES.unpack_from(header, _LOCAL_SIZES_AT)
    plain = (
        not entry.flags & zip_format.FLAG_DESCRIPTOR
        and entry.size < zip_format.MAX_UINT32
        and entry.compressed < zip_format.MAX_UINT32
    )
    fits = not extra_size and name_size <= _READ_AHEAD and entry.end <= directory
    is_same = (
        header[6:28] == listed.repeated
        and header[zip_format.LOCAL_HEADER.size : zip_format.LOCAL_HEADER.size + name_size] == entry.raw
    )
    if plain and fits and is_same:
        return entry, None
    return _compare_local_header(read, entry, header, directory)


def _compare_local_header(
    read: ReadAt, entry: zip_format.ZipEntry, header: bytes, directory: int
) -> tuple[zip_format.ZipEntry, zip_format.ArchiveFault | None]:
    """Compare an entry with its local header, value by value."""
    at, name = entry.header, entry.name
    _, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = (
        zip_format.LOCAL_HEADER.unpack_from(header)
    )
    data = at + zip_format.LOCAL_HEADER.size + name_size + extra_size
    if data > at + len(header):
        header = read(at, data - at)
    raw, extra = (
        header[zip_format.LOCAL_HEADER.size : zip_format.LOCAL_HEADER.size + name_size],
        header[zip_format.LOCAL_HEADER.size + name_size : data - at],
    )
    end = data + entry.compressed
    entry = entry._replace(local_extra=extra, data=data, end=end)
    if raw != entry.raw:
        return entry, zip_format.ArchiveFault("local-name", name, f"the member at {at} calls itself {raw!r}")
    if (flags ^ entry.flags) & _COMPARED_FLAGS:
        return entry, zip_format.ArchiveFault(
            "local-flags", name, f"its header has the flags 0x{flags:04x}, not 0x{entry.flags:04x}"
        )
    if method != entry.method:
        return entry, zip_format.ArchiveFault(
            "local-method", name, f"its header has the method {method}, not {entry.method}"
        )
    try:
        wide = read_extra_area(extra, name).get(zip_format.EXTRA_ZIP64)
        size, compressed = _read_local_sizes(wide, size, compressed)
    except ExtraFieldError as fault:
        return entry, zip_format.ArchiveFault(fault.kind, name, f"in its header: {fault}")
    has_descriptor = bool(flags & zip_format.FLAG_DESCRIPTOR)
    if crc != entry.crc and not (has_descriptor and crc == 0):
        return entry, zip_format.ArchiveFault(
            "local-crc", name, f"its header has the CRC {crc:08x}, the directory {entry.crc:08x}"
        )
    if (compressed, size) != (entry.compressed, entry.size) and not (
        has_descriptor and compressed == size == 0
    ):
        message = f"its header says {compressed} and {size} bytes, "
        message += f"the directory {entry.compressed} and {entry.size}"
        return entry, zip_format.ArchiveFault("local-size", name, message)
    if end > directory:
        return entry, zip_format.ArchiveFault(
            "past-end", name, "reaches past the end of the members: cut short"
        )
    return entry, None


def _read_local_sizes(wide: bytes | None, size: int, compressed: int) -> tuple[int, int]:
    if wide is None:
        if zip_format.MAX_UINT32 in (size, compressed):
            raise ExtraFieldError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed
    if len(wide) != 16:
        raise ExtraFieldError("zip64-extra", f"{len(wide)} bytes of ZIP64 values instead of two sizes")
    sizes = int.from_bytes(wide[:8], "little"), int.from_bytes(wide[8:], "little")
    if any(
        narrow not in (zip_format.MAX_UINT32, value)
        for narrow, value in zip((size, compressed), sizes, strict=True)
    ):
        raise ExtraFieldError(
            "zip64-extra", f"sizes {size} and {compressed}, and {sizes[0]} and {sizes[1]} in ZIP64"
        )
    return sizes


def _check_extents(
    read: ReadAt, entries: list[zip_format.ZipEntry], directory: int, broken: set[str]
) -> list[zip_format.ArchiveFault]:
    """Add the descriptors to the entries; return where these lie on top of each other or leave bytes over."""
    faults: list[zip_format.ArchiveFault] = []
    numbers = [number for number, entry in enumerate(entries) if entry.data]
    order = sorted(numbers, key=lambda number: entries[number].header)
    follow = [*(entries[number].header for number in order[1:]), directory][: len(order)]
    end = 0  # of the members so far
    for number, follows in zip(order, follow, strict=True):
        entry = entries[number]
        if entry.flags & zip_format.FLAG_DESCRIPTOR and entry.name not in broken:
            size = _find_descriptor_size(read, entry, follows)
            faults.append(_make_descriptor_fault(entry, size))
            entry = entries[number] = entry._replace(end=entry.end + size)
        if entry.header < end or follows < entry.end <= directory:
            faults.append(zip_format.ArchiveFault("overlap", entry.name, "reaches into another member"))
        elif entry.header > end and not broken:
            text = f"{entry.header - end} bytes in front of it belong to no member"
            faults.append(zip_format.ArchiveFault("hidden-bytes" if end else "prefix", entry.name, text))
        end = max(end, entry.end)
    if end < directory and not broken:
        text = f"{directory - end} bytes in front of its directory belong to no member"
        faults.append(zip_format.ArchiveFault("hidden-bytes", "", text))
    return faults


def _find_descriptor_size(read: ReadAt, entry: zip_format.ZipEntry, follows: int) -> int:
    """Return the size of a data descriptor that gives the right values; 0 when there is none."""
    following = read(entry.end, 24)
    values = (entry.crc, entry.compressed, entry.size)
    for marked, form in _DESCRIPTORS:
        if len(following) >= form.size and (entry.end + form.size <= follows):
            stated = form.unpack_from(following)
            if stated == ((zip_format.DESCRIPTOR_MARK, *values) if marked else values):
                return form.size
    return 0


def _make_descriptor_fault(entry: zip_format.ZipEntry, size: int) -> zip_format.ArchiveFault:
    if size:
        return zip_format.ArchiveFault(
            "data-descriptor", entry.name, "its sizes are behind its content (PyPI refuses this)"
        )
    return zip_format.ArchiveFault(
        "descriptor", entry.name, "its data descriptor is missing or contradicts the directory"
    )

"""The strict reading of a zip archive: directory and local headers compared, as extents that fill the file.

Every byte of an archive belongs to a member, the directory or its end: so there is nothing that another
reader could find in another way. What is wrong is told by the names in ``faults``; nothing is inflated.
Source: PKWARE APPNOTE 6.3.10.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from typing import BinaryIO

from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.directory import (
    ExtraFieldError,
    DirectoryEntry,
    read_extra_area,
    read_zip_directory,
)
from rocm_wheels.wheels.archive.ending import ReadAt, UnreadableError, read_archive_end
from rocm_wheels.wheels.archive.entry_names import find_collisions
from rocm_wheels.wheels.archive.faults import ArchiveFault
from rocm_wheels.wheels.archive.records import LOCAL_HEADER, MAX_UINT32, ZipEntry

_COMPARED_FLAGS = (
    records.FLAG_ENCRYPTED
    | records.FLAG_DESCRIPTOR
    | records.FLAG_PATCHED
    | records.FLAG_STRONG_ENCRYPTION
    | records.FLAG_UTF8
    | records.FLAG_MASKED
)
_LOCAL_SIZES, _LOCAL_SIZES_AT = Struct("<HH"), 26  # of name and extra field, in a local header
_HARMLESS_CONTENT, _MOST_RATIO = 64 << 20, 50  # what PyPI takes for a bomb
_READ_AHEAD = 96  # bytes read with a local header: mostly all of its name and extra field
_DESCRIPTORS = [
    (mark, Struct(f"<{'4s' if mark else ''}L{size}")) for size in ("LL", "QQ") for mark in (True, False)
]


@dataclass(frozen=True)
class ArchiveLayout:
    """An archive: its members in the order of the directory, where that begins, and every fault."""

    entries: tuple[ZipEntry, ...]
    directory: int
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


def read_archive_layout(read: ReadAt, length: int, *, folding: bool = True) -> ArchiveLayout:
    """Read an archive of ``length`` bytes; UnreadableError when it has no directory to rely on.

    With ``folding``, names are compared as file systems of Windows and macOS do.
    """
    ending = read_archive_end(read, length)
    directory = read(ending.directory, ending.size)
    if len(directory) != ending.size:
        raise UnreadableError("directory-damaged", "its directory cannot be read whole")
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
    if content > max(_MOST_RATIO * length, _HARMLESS_CONTENT):  # nobody shall inflate it to look for more
        raise UnreadableError("ratio", f"{content} bytes of content in {length} bytes")
    faults += find_collisions(entries, folding=folding)
    return ArchiveLayout(tuple(entries), ending.directory, tuple(faults))


def _list_broken_members(faults: list[ArchiveFault]) -> set[str]:
    """Return the members whose content cannot be read."""
    return {fault.member for fault in faults if fault.member and not fault.is_readable}


def _check_local_header(
    read: ReadAt, listed: DirectoryEntry, directory: int
) -> tuple[ZipEntry, ArchiveFault | None]:
    """Return an entry with what its local header adds, and what that disagrees about."""
    entry = listed.entry
    at, name = entry.header, entry.name
    header = read(at, LOCAL_HEADER.size + _READ_AHEAD) if at < directory else b""
    if len(header) < LOCAL_HEADER.size or not header.startswith(records.LOCAL_MARK):
        return entry._replace(data=0, end=0), ArchiveFault(
            "local-missing", name, f"no member begins at {at}, where the directory says"
        )
    name_size, extra_size = _LOCAL_SIZES.unpack_from(header, _LOCAL_SIZES_AT)
    plain = (
        not entry.flags & records.FLAG_DESCRIPTOR
        and entry.size < MAX_UINT32
        and entry.compressed < MAX_UINT32
    )
    fits = not extra_size and name_size <= _READ_AHEAD and entry.end <= directory
    is_same = (
        header[6:28] == listed.repeated
        and header[LOCAL_HEADER.size : LOCAL_HEADER.size + name_size] == entry.raw
    )
    if plain and fits and is_same:
        return entry, None
    return _compare_local_header(read, entry, header, directory)


def _compare_local_header(
    read: ReadAt, entry: ZipEntry, header: bytes, directory: int
) -> tuple[ZipEntry, ArchiveFault | None]:
    """Compare an entry with its local header, value by value."""
    at, name = entry.header, entry.name
    _, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = LOCAL_HEADER.unpack_from(header)
    data = at + LOCAL_HEADER.size + name_size + extra_size
    if data > at + len(header):
        header = read(at, data - at)
    raw, extra = (
        header[LOCAL_HEADER.size : LOCAL_HEADER.size + name_size],
        header[LOCAL_HEADER.size + name_size : data - at],
    )
    end = data + entry.compressed
    entry = entry._replace(local_extra=extra, data=data, end=end)
    if raw != entry.raw:
        return entry, ArchiveFault("local-name", name, f"the member at {at} calls itself {raw!r}")
    if (flags ^ entry.flags) & _COMPARED_FLAGS:
        return entry, ArchiveFault(
            "local-flags", name, f"its header has the flags 0x{flags:04x}, not 0x{entry.flags:04x}"
        )
    if method != entry.method:
        return entry, ArchiveFault(
            "local-method", name, f"its header has the method {method}, not {entry.method}"
        )
    try:
        wide = read_extra_area(extra, name).get(records.EXTRA_ZIP64)
        size, compressed = _read_local_sizes(wide, size, compressed)
    except ExtraFieldError as fault:
        return entry, ArchiveFault(fault.kind, name, f"in its header: {fault}")
    has_descriptor = bool(flags & records.FLAG_DESCRIPTOR)
    if crc != entry.crc and not (has_descriptor and crc == 0):
        return entry, ArchiveFault(
            "local-crc", name, f"its header has the CRC {crc:08x}, the directory {entry.crc:08x}"
        )
    if (compressed, size) != (entry.compressed, entry.size) and not (
        has_descriptor and compressed == size == 0
    ):
        message = f"its header says {compressed} and {size} bytes, "
        message += f"the directory {entry.compressed} and {entry.size}"
        return entry, ArchiveFault("local-size", name, message)
    if end > directory:
        return entry, ArchiveFault("past-end", name, "reaches past the end of the members: cut short")
    return entry, None


def _read_local_sizes(wide: bytes | None, size: int, compressed: int) -> tuple[int, int]:
    if wide is None:
        if MAX_UINT32 in (size, compressed):
            raise ExtraFieldError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed
    if len(wide) != 16:
        raise ExtraFieldError("zip64-extra", f"{len(wide)} bytes of ZIP64 values instead of two sizes")
    sizes = int.from_bytes(wide[:8], "little"), int.from_bytes(wide[8:], "little")
    if any(
        narrow not in (MAX_UINT32, value) for narrow, value in zip((size, compressed), sizes, strict=True)
    ):
        raise ExtraFieldError(
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
        if entry.flags & records.FLAG_DESCRIPTOR and entry.name not in broken:
            size = _find_descriptor_size(read, entry, follows)
            faults.append(_make_descriptor_fault(entry, size))
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
    following = read(entry.end, 24)
    values = (entry.crc, entry.compressed, entry.size)
    for marked, form in _DESCRIPTORS:
        if len(following) >= form.size and (entry.end + form.size <= follows):
            stated = form.unpack_from(following)
            if stated == ((records.DESCRIPTOR_MARK, *values) if marked else values):
                return form.size
    return 0


def _make_descriptor_fault(entry: ZipEntry, size: int) -> ArchiveFault:
    if size:
        return ArchiveFault(
            "data-descriptor", entry.name, "its sizes are behind its content (PyPI refuses this)"
        )
    return ArchiveFault(
        "descriptor", entry.name, "its data descriptor is missing or contradicts the directory"
    )

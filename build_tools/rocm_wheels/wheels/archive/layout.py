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
from rocm_wheels.wheels.archive.directory import ExtraError, Listed, checked_extra, read_directory
from rocm_wheels.wheels.archive.ending import ReadAt, UnreadableError, read_ending
from rocm_wheels.wheels.archive.entry_names import colliding
from rocm_wheels.wheels.archive.faults import Fault
from rocm_wheels.wheels.archive.records import LOCAL, MOST32, Entry

_TOLD_APART = (
    records.ENCRYPTED | records.DESCRIPTOR | records.PATCHED | records.STRONG | records.UTF8 | records.MASKED
)
_SIZES, _SIZES_AT = Struct("<HH"), 26  # of name and extra field, in a local header
_SMALL, _MOST_TIMES = 64 << 20, 50  # what PyPI takes for a bomb
_AHEAD = 96  # bytes read with a local header: mostly all of its name and extra field
_DESCRIPTORS = [
    (mark, Struct(f"<{'4s' if mark else ''}L{size}")) for size in ("LL", "QQ") for mark in (True, False)
]


@dataclass(frozen=True)
class Layout:
    """An archive: its members in the order of the directory, where that begins, and every fault."""

    entries: tuple[Entry, ...]
    directory: int
    faults: tuple[Fault, ...]


def reader_of(file: BinaryIO) -> ReadAt:
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


def read_layout(read: ReadAt, length: int, *, folding: bool = True) -> Layout:
    """Read an archive of ``length`` bytes; UnreadableError when it has no directory to rely on.

    With ``folding``, names are compared as file systems of Windows and macOS do.
    """
    ending = read_ending(read, length)
    directory = read(ending.directory, ending.size)
    if len(directory) != ending.size:
        raise UnreadableError("directory-damaged", "its directory cannot be read whole")
    faults = list(ending.faults)
    entries = []
    for number, listed in enumerate(read_directory(directory)):
        faults += listed.faults
        if number == ending.count:
            raise UnreadableError("entry-count", f"more entries than the {number} of its end record")
        entry, fault = _with_local(read, listed, ending.directory)
        faults += [fault] if fault else []
        entries.append(entry)
    if len(entries) != ending.count:
        raise UnreadableError("entry-count", f"{len(entries)} entries, its end record says {ending.count}")
    faults += _extents(read, entries, ending.directory, _broken(faults))
    broken = _broken(faults)
    content = sum(entry.size for entry in entries if entry.name not in broken)
    if content > max(_MOST_TIMES * length, _SMALL):  # nobody shall inflate it to look for more
        raise UnreadableError("ratio", f"{content} bytes of content in {length} bytes")
    faults += colliding(entries, folding=folding)
    return Layout(tuple(entries), ending.directory, tuple(faults))


def _broken(faults: list[Fault]) -> set[str]:
    """Return the members whose content cannot be read."""
    return {fault.member for fault in faults if fault.member and not fault.readable}


def _with_local(read: ReadAt, listed: Listed, directory: int) -> tuple[Entry, Fault | None]:
    """Return an entry with what its local header adds, and what that disagrees about."""
    entry = listed.entry
    at, name = entry.header, entry.name
    header = read(at, LOCAL.size + _AHEAD) if at < directory else b""
    if len(header) < LOCAL.size or not header.startswith(records.LOCAL_MARK):
        return entry._replace(data=0, end=0), Fault(
            "local-missing", name, f"no member begins at {at}, where the directory says"
        )
    name_size, extra_size = _SIZES.unpack_from(header, _SIZES_AT)
    plain = not entry.flags & records.DESCRIPTOR and entry.size < MOST32 and entry.compressed < MOST32
    whole = not extra_size and name_size <= _AHEAD and entry.end <= directory
    same = header[6:28] == listed.repeated and header[LOCAL.size : LOCAL.size + name_size] == entry.raw
    if plain and whole and same:
        return entry, None
    return _compared(read, entry, header, directory)


def _compared(read: ReadAt, entry: Entry, header: bytes, directory: int) -> tuple[Entry, Fault | None]:
    """Compare an entry with its local header, value by value."""
    at, name = entry.header, entry.name
    _, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = LOCAL.unpack_from(header)
    data = at + LOCAL.size + name_size + extra_size
    if data > at + len(header):
        header = read(at, data - at)
    raw, extra = header[LOCAL.size : LOCAL.size + name_size], header[LOCAL.size + name_size : data - at]
    end = data + entry.compressed
    entry = entry._replace(local_extra=extra, data=data, end=end)
    if raw != entry.raw:
        return entry, Fault("local-name", name, f"the member at {at} calls itself {raw!r}")
    if (flags ^ entry.flags) & _TOLD_APART:
        return entry, Fault(
            "local-flags", name, f"its header has the flags 0x{flags:04x}, not 0x{entry.flags:04x}"
        )
    if method != entry.method:
        return entry, Fault("local-method", name, f"its header has the method {method}, not {entry.method}")
    try:
        wide = checked_extra(extra, name).get(records.ZIP64)
        size, compressed = _local_sizes(wide, size, compressed)
    except ExtraError as fault:
        return entry, Fault(fault.kind, name, f"in its header: {fault}")
    later = bool(flags & records.DESCRIPTOR)
    if crc != entry.crc and not (later and crc == 0):
        return entry, Fault(
            "local-crc", name, f"its header has the CRC {crc:08x}, the directory {entry.crc:08x}"
        )
    if (compressed, size) != (entry.compressed, entry.size) and not (later and compressed == size == 0):
        said = f"its header says {compressed} and {size} bytes, "
        said += f"the directory {entry.compressed} and {entry.size}"
        return entry, Fault("local-size", name, said)
    if end > directory:
        return entry, Fault("past-end", name, "reaches past the end of the members: cut short")
    return entry, None


def _local_sizes(wide: bytes | None, size: int, compressed: int) -> tuple[int, int]:
    if wide is None:
        if MOST32 in (size, compressed):
            raise ExtraError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed
    if len(wide) != 16:
        raise ExtraError("zip64-extra", f"{len(wide)} bytes of ZIP64 values instead of two sizes")
    both = int.from_bytes(wide[:8], "little"), int.from_bytes(wide[8:], "little")
    if any(narrow not in (MOST32, value) for narrow, value in zip((size, compressed), both, strict=True)):
        raise ExtraError(
            "zip64-extra", f"sizes {size} and {compressed}, and {both[0]} and {both[1]} in ZIP64"
        )
    return both


def _extents(read: ReadAt, entries: list[Entry], directory: int, broken: set[str]) -> list[Fault]:
    """Add the descriptors to the entries; return where these lie on top of each other or leave bytes over."""
    faults: list[Fault] = []
    found = [number for number, entry in enumerate(entries) if entry.data]
    order = sorted(found, key=lambda number: entries[number].header)
    follow = [*(entries[number].header for number in order[1:]), directory][: len(order)]
    end = 0  # of the members so far
    for number, follows in zip(order, follow, strict=True):
        entry = entries[number]
        if entry.flags & records.DESCRIPTOR and entry.name not in broken:
            size = _descriptor_size(read, entry, follows)
            faults.append(_descriptor_fault(entry, size))
            entry = entries[number] = entry._replace(end=entry.end + size)
        if entry.header < end or follows < entry.end <= directory:
            faults.append(Fault("overlap", entry.name, "reaches into another member"))
        elif entry.header > end and not broken:
            text = f"{entry.header - end} bytes in front of it belong to no member"
            faults.append(Fault("hidden-bytes" if end else "prefix", entry.name, text))
        end = max(end, entry.end)
    if end < directory and not broken:
        text = f"{directory - end} bytes in front of its directory belong to no member"
        faults.append(Fault("hidden-bytes", "", text))
    return faults


def _descriptor_size(read: ReadAt, entry: Entry, follows: int) -> int:
    """Return the size of a data descriptor that gives the right values; 0 when there is none."""
    behind = read(entry.end, 24)
    values = (entry.crc, entry.compressed, entry.size)
    for marked, form in _DESCRIPTORS:
        if len(behind) >= form.size and (entry.end + form.size <= follows):
            found = form.unpack_from(behind)
            if found == ((records.DESCRIPTOR_MARK, *values) if marked else values):
                return form.size
    return 0


def _descriptor_fault(entry: Entry, size: int) -> Fault:
    if size:
        return Fault("data-descriptor", entry.name, "its sizes are behind its content (PyPI refuses this)")
    return Fault("descriptor", entry.name, "its data descriptor is missing or contradicts the directory")

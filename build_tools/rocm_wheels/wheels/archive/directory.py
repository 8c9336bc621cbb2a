"""The directory of an archive: an entry a member, with everything that can be wrong with it alone.

Source: PKWARE APPNOTE 6.3.10, sections 4.3.12, 4.4 and 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.ending import UnreadableError
from rocm_wheels.wheels.archive.entry_names import name_fault
from rocm_wheels.wheels.archive.faults import Fault
from rocm_wheels.wheels.archive.records import CENTRAL, LOCAL, MOST32, Entry

_DEFLATE_LIMIT = 1032  # no deflate stream is shorter than its content by more than this factor
_LATEST = 63  # version 6.3 of the format
_FILE = 0o100000
_FILE_TYPES = {0, _FILE, 0o040000, 0o120000}  # none, file, folder, symbolic link
_UNUSUAL = records.ENCRYPTED | records.STRONG | records.PATCHED | records.MASKED
_ONCE = {records.ZIP64, records.UNICODE_PATH}


class Listed(NamedTuple):
    """An entry of the directory, what is wrong with it, and the part of it that its own header repeats.

    That are flags, method, date, CRC, sizes and the length of the name: where they are the same bytes,
    nothing needs to be compared one by one. The places in the entry hold if its header has no extra field.
    """

    entry: Entry
    faults: list[Fault]
    repeated: bytes


def read_directory(directory: bytes) -> Iterator[Listed]:
    """Yield the entries of a directory; UnreadableError where it holds none."""
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != records.CENTRAL_MARK or at + CENTRAL.size > len(directory):
            raise UnreadableError("directory-damaged", f"no entry at byte {at} of its directory")
        fields = CENTRAL.unpack_from(directory, at)
        name, extra, comment = fields[11:14]
        start = at + CENTRAL.size
        end = start + name + extra + comment
        if end > len(directory):
            raise UnreadableError("directory-damaged", "the last entry of its directory is cut short")
        raw, area = directory[start : start + name], directory[start + name : start + name + extra]
        yield Listed(*_entry(fields, raw, area), directory[at + 8 : at + 30])
        at = end


def _entry(fields: tuple[int, ...], raw: bytes, extra: bytes) -> tuple[Entry, list[Fault]]:
    (_, made_by, system, needed, flags, method, time, date, crc, compressed, size) = fields[:11]
    comment, disk, internal, external, header = fields[13:]
    faults: list[Fault] = []
    name, coded = (raw.decode("ascii"), True) if raw.isascii() else _decode(raw, flags)
    if not coded:
        text = f"the name {raw!r} is neither ASCII nor marked, valid UTF-8"
        faults.append(Fault("name-encoding", name, text))
    if extra or MOST32 in (size, compressed, header):
        try:
            size, compressed, header, extra = _widened(extra, size, compressed, header, name)
        except ExtraError as fault:
            faults.append(Fault(fault.kind, name, str(fault)))
            extra = b""
    if disk:
        faults.append(Fault("zip64-extra", name, f"said to begin on disk {disk}"))
    data = header + LOCAL.size + len(raw)
    place = (internal, external, extra, header, b"", data, data + compressed)
    entry = Entry(
        name, raw, made_by, system, needed, flags, method, time, date, crc, compressed, size, *place
    )
    faults += [found for found in (name_fault(entry), _unsupported(entry)) if found]
    if comment:
        faults.append(Fault("comment", name, f"a comment of {comment} bytes"))
    return entry, faults


def _decode(raw: bytes, flags: int) -> tuple[str, bool]:
    try:
        if flags & records.UTF8:
            return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("cp437"), False
    return raw.decode("cp437"), False


class ExtraError(Exception):
    """An extra field is damaged or contradicts; holds the kind of the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _widened(extra: bytes, size: int, compressed: int, header: int, name: str) -> tuple[int, int, int, bytes]:
    """Return sizes and place with the values of ZIP64, and the extra area without them."""
    wide = checked_extra(extra, name).get(records.ZIP64)
    values = [size, compressed, header]
    wanted = [number for number, value in enumerate(values) if value == MOST32]
    if wide is None:
        if wanted:
            raise ExtraError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed, header, extra
    if len(wide) != 8 * len(wanted):
        raise ExtraError("zip64-extra", f"{len(wide)} bytes of ZIP64 values for {len(wanted)} of them")
    for place, number in enumerate(wanted):
        values[number] = int.from_bytes(wide[8 * place : 8 * place + 8], "little")
    return values[0], values[1], values[2], records.without_field(extra, records.ZIP64)


def checked_extra(extra: bytes, name: str) -> dict[int, bytes]:
    """Return the fields of an extra area; ExtraError when it is damaged or names the member otherwise."""
    if not extra:
        return {}
    found: dict[int, bytes] = {}
    try:
        for number, content in records.extra_fields(extra):
            if number in found and number in _ONCE:
                raise ExtraError("extra-damaged", f"the extra field 0x{number:04x} comes twice")
            found[number] = content
    except ValueError as fault:
        raise ExtraError("extra-damaged", f"its extra field is damaged: {fault}") from None
    if records.UNICODE_PATH in found and found[records.UNICODE_PATH][5:] != name.encode(
        "utf-8", "surrogateescape"
    ):
        raise ExtraError("name-unicode-extra", "an extra field gives it another name")
    return found


def _unsupported(entry: Entry) -> Fault | None:
    """Return why an entry cannot be what a wheel holds."""
    name, kind = entry.name, entry.mode & 0o170000
    if entry.needed > _LATEST:
        return Fault("version", name, f"asks for a reader of version {entry.needed / 10:.1f}")
    usual = kind == _FILE and entry.method == records.DEFLATED and not entry.flags & _UNUSUAL
    if usual and entry.size <= _DEFLATE_LIMIT * (entry.compressed + 64) and not entry.is_folder:
        return None
    if entry.flags & (records.ENCRYPTED | records.STRONG):
        return Fault("encrypted", name, "encrypted")
    if entry.flags & (records.PATCHED | records.MASKED):
        return Fault("flags", name, f"flags 0x{entry.flags:04x}: patched data or a masked header")
    if entry.method not in (records.STORED, records.DEFLATED):
        return Fault("method", name, f"compression method {entry.method}; wheels are stored or deflated")
    if kind not in _FILE_TYPES:
        return Fault("file-type", name, f"neither file, folder nor link (mode {entry.mode:o})")
    if entry.is_folder and entry.size:
        return Fault("folder-content", name, f"a folder with {entry.size} bytes of content")
    if entry.method == records.STORED and entry.size != entry.compressed:
        return Fault("stored-size", name, f"stored, {entry.size} bytes and {entry.compressed} bytes long")
    if entry.size > _DEFLATE_LIMIT * (entry.compressed + 64):
        return Fault("bomb", name, f"{entry.compressed} bytes cannot inflate to {entry.size}")
    return None

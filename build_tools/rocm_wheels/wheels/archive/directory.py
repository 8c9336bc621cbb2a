"""The directory of an archive: an entry a member, with everything that can be wrong with it alone.

Source: PKWARE APPNOTE 6.3.10, sections 4.3.12, 4.4 and 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.ending import UnreadableError
from rocm_wheels.wheels.archive.entry_names import find_name_fault
from rocm_wheels.wheels.archive.faults import ArchiveFault
from rocm_wheels.wheels.archive.records import CENTRAL_ENTRY, LOCAL_HEADER, MAX_UINT32, ZipEntry

_DEFLATE_LIMIT = 1032  # no deflate stream is shorter than its content by more than this factor
_LATEST_VERSION = 63  # version 6.3 of the format
_REGULAR_FILE = 0o100000
_FILE_TYPES = {0, _REGULAR_FILE, 0o040000, 0o120000}  # none, file, folder, symbolic link
_UNUSUAL_FLAGS = (
    records.FLAG_ENCRYPTED | records.FLAG_STRONG_ENCRYPTION | records.FLAG_PATCHED | records.FLAG_MASKED
)
_SINGLE_FIELDS = {records.EXTRA_ZIP64, records.EXTRA_UNICODE_PATH}


class DirectoryEntry(NamedTuple):
    """An entry of the directory, what is wrong with it, and the part of it that its own header repeats.

    That are flags, method, date, CRC, sizes and the length of the name: where they are the same bytes,
    nothing needs to be compared one by one. The places in the entry hold if its header has no extra field.
    """

    entry: ZipEntry
    faults: list[ArchiveFault]
    repeated: bytes


def read_zip_directory(directory: bytes) -> Iterator[DirectoryEntry]:
    """Yield the entries of a directory; UnreadableError where it holds none."""
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != records.CENTRAL_MARK or at + CENTRAL_ENTRY.size > len(directory):
            raise UnreadableError("directory-damaged", f"no entry at byte {at} of its directory")
        fields = CENTRAL_ENTRY.unpack_from(directory, at)
        name, extra, comment = fields[11:14]
        start = at + CENTRAL_ENTRY.size
        end = start + name + extra + comment
        if end > len(directory):
            raise UnreadableError("directory-damaged", "the last entry of its directory is cut short")
        raw, area = directory[start : start + name], directory[start + name : start + name + extra]
        yield DirectoryEntry(*_read_entry(fields, raw, area), directory[at + 8 : at + 30])
        at = end


def _read_entry(fields: tuple[int, ...], raw: bytes, extra: bytes) -> tuple[ZipEntry, list[ArchiveFault]]:
    (_, made_by, system, needed, flags, method, time, date, crc, compressed, size) = fields[:11]
    comment, disk, internal, external, header = fields[13:]
    faults: list[ArchiveFault] = []
    name, coded = (raw.decode("ascii"), True) if raw.isascii() else _decode_name(raw, flags)
    if not coded:
        text = f"the name {raw!r} is neither ASCII nor marked, valid UTF-8"
        faults.append(ArchiveFault("name-encoding", name, text))
    if extra or MAX_UINT32 in (size, compressed, header):
        try:
            size, compressed, header, extra = _apply_zip64(extra, size, compressed, header, name)
        except ExtraFieldError as fault:
            faults.append(ArchiveFault(fault.kind, name, str(fault)))
            extra = b""
    if disk:
        faults.append(ArchiveFault("zip64-extra", name, f"said to begin on disk {disk}"))
    data = header + LOCAL_HEADER.size + len(raw)
    place = (internal, external, extra, header, b"", data, data + compressed)
    entry = ZipEntry(
        name, raw, made_by, system, needed, flags, method, time, date, crc, compressed, size, *place
    )
    faults += [
        entry_fault for entry_fault in (find_name_fault(entry), _find_unsupported(entry)) if entry_fault
    ]
    if comment:
        faults.append(ArchiveFault("comment", name, f"a comment of {comment} bytes"))
    return entry, faults


def _decode_name(raw: bytes, flags: int) -> tuple[str, bool]:
    try:
        if flags & records.FLAG_UTF8:
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
    wide = read_extra_area(extra, name).get(records.EXTRA_ZIP64)
    values = [size, compressed, header]
    widened = [number for number, value in enumerate(values) if value == MAX_UINT32]
    if wide is None:
        if widened:
            raise ExtraFieldError("zip64-extra", "its ZIP64 values are missing")
        return size, compressed, header, extra
    if len(wide) != 8 * len(widened):
        raise ExtraFieldError("zip64-extra", f"{len(wide)} bytes of ZIP64 values for {len(widened)} of them")
    for place, number in enumerate(widened):
        values[number] = int.from_bytes(wide[8 * place : 8 * place + 8], "little")
    return values[0], values[1], values[2], records.remove_extra_field(extra, records.EXTRA_ZIP64)


def read_extra_area(extra: bytes, name: str) -> dict[int, bytes]:
    """Return the fields of an extra area; ExtraError when it is damaged or names the member otherwise."""
    if not extra:
        return {}
    fields: dict[int, bytes] = {}
    try:
        for number, content in records.read_extra_fields(extra):
            if number in fields and number in _SINGLE_FIELDS:
                raise ExtraFieldError("extra-damaged", f"the extra field 0x{number:04x} comes twice")
            fields[number] = content
    except ValueError as fault:
        raise ExtraFieldError("extra-damaged", f"its extra field is damaged: {fault}") from None
    if records.EXTRA_UNICODE_PATH in fields and fields[records.EXTRA_UNICODE_PATH][5:] != name.encode(
        "utf-8", "surrogateescape"
    ):
        raise ExtraFieldError("name-unicode-extra", "an extra field gives it another name")
    return fields


def _find_unsupported(entry: ZipEntry) -> ArchiveFault | None:
    """Return why an entry cannot be what a wheel holds."""
    name, kind = entry.name, entry.mode & 0o170000
    if entry.needed > _LATEST_VERSION:
        return ArchiveFault("version", name, f"asks for a reader of version {entry.needed / 10:.1f}")
    usual = (
        kind == _REGULAR_FILE and entry.method == records.METHOD_DEFLATED and not entry.flags & _UNUSUAL_FLAGS
    )
    if usual and entry.size <= _DEFLATE_LIMIT * (entry.compressed + 64) and not entry.is_folder:
        return None
    if entry.flags & (records.FLAG_ENCRYPTED | records.FLAG_STRONG_ENCRYPTION):
        return ArchiveFault("encrypted", name, "encrypted")
    if entry.flags & (records.FLAG_PATCHED | records.FLAG_MASKED):
        return ArchiveFault("flags", name, f"flags 0x{entry.flags:04x}: patched data or a masked header")
    if entry.method not in (records.METHOD_STORED, records.METHOD_DEFLATED):
        return ArchiveFault(
            "method", name, f"compression method {entry.method}; wheels are stored or deflated"
        )
    if kind not in _FILE_TYPES:
        return ArchiveFault("file-type", name, f"neither file, folder nor link (mode {entry.mode:o})")
    if entry.is_folder and entry.size:
        return ArchiveFault("folder-content", name, f"a folder with {entry.size} bytes of content")
    if entry.method == records.METHOD_STORED and entry.size != entry.compressed:
        return ArchiveFault(
            "stored-size", name, f"stored, {entry.size} bytes and {entry.compressed} bytes long"
        )
    if entry.size > _DEFLATE_LIMIT * (entry.compressed + 64):
        return ArchiveFault("bomb", name, f"{entry.compressed} bytes cannot inflate to {entry.size}")
    return None

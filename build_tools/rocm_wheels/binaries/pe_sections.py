"""Put another section into a DLL in place of one that is emptied, as ``elf_pages`` does for ELF libraries.

Nothing moves in memory: the emptied section keeps its place there, and the loader fills it with zeros, for it
has no bytes in the file. What stands behind it in the file moves up. The new section comes behind all others,
in memory and in the file. Sections stay one behind the other, as Windows wants them: one that goes keeps its
header, and loses its name. Source: Microsoft, "PE Format".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.binaries import elf, elf_pages, limits

_FILE_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_DIRECTORY = struct.Struct("<II")
_DEBUG_ENTRY = struct.Struct("<IIHHIIII")
_RELOCATION_BLOCK = struct.Struct("<II")
_WORD, _LONG, _QUAD = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_PE32_PLUS = 0x20B
_CERTIFICATES, _BASE_RELOCATIONS, _DEBUG = 4, 5, 6
_IMAGE_BASE, _SECTION_ALIGNMENT, _FILE_ALIGNMENT, _IMAGE_SIZE, _HEADERS_SIZE, _CHECKSUM = (
    24,
    32,
    36,
    56,
    60,
    64,
)
_DIRECTORY_COUNT, _DIRECTORIES = 108, 112
_DIR64 = 10
_READ_ONLY_DATA = 0x40000040
_LARGEST_ALIGNMENT, _LARGEST_IMAGE = 1 << 16, 1 << 31
_UNUSED = b".unused\0"

Change = tuple[int, bytes]


@dataclass(frozen=True)
class DllLayout:
    """The headers of a DLL: where they are in the file, and its sections as rows of the table."""

    span: elf.BinarySpan
    file_header: int
    optional_header: int
    table: int
    sections: Sequence[tuple[bytes, int, int, int, int, int, int, int, int, int]]

    def get_number(self, at: int, form: struct.Struct = _LONG) -> int:
        """Return a number of the optional header."""
        (number,) = self.span.unpack_numbers(form, self.optional_header + at, "the optional header")
        return int(number)

    @property
    def image_base(self) -> int:
        """The address that the linker laid it out for; addresses in it count from there."""
        return self.get_number(_IMAGE_BASE, _QUAD)

    def find_offset(self, address: int) -> int:
        """Return where in the file a relative address is; DataError when it is nowhere."""
        for row in self.sections:
            if row[2] <= address < row[2] + row[3]:
                return address - row[2] + row[4]
        raise self.span.make_fault(f"the relative address {address:#x} is in no section")

    def get_directory(self, number: int) -> tuple[int, int]:
        """Return place and size of a data directory; zeros when it has none."""
        if number >= self.get_number(_DIRECTORY_COUNT):
            return 0, 0
        at = self.optional_header + _DIRECTORIES + number * _DIRECTORY.size
        place, size = self.span.unpack_numbers(_DIRECTORY, at, "the data directories")
        return place, size

    def list_pointers(self) -> Iterator[tuple[int, int, int]]:
        """Yield relative address, value and place in the file of each pointer that is relocated."""
        place, size = self.get_directory(_BASE_RELOCATIONS)
        at = self.find_offset(place) if size else 0
        end = at + size
        self.span.require_limit(size // _WORD.size, limits.MOST_RELOCATIONS, "base relocations")
        while at + _RELOCATION_BLOCK.size <= end:
            page, length = self.span.unpack_numbers(_RELOCATION_BLOCK, at, "the base relocations")
            if length < _RELOCATION_BLOCK.size:
                raise self.span.make_fault(f"a block of base relocations of {length} bytes")
            entries = self.span.get_part(at + 8, length - 8 - length % 2, "the base relocations")
            for (entry,) in _WORD.iter_unpack(entries):
                if entry >> 12 == _DIR64:
                    offset = self.find_offset(page + (entry & 0xFFF))
                    (value,) = self.span.unpack_numbers(_QUAD, offset, "a pointer")
                    yield page + (entry & 0xFFF), value, offset
            at += length


def read_dll_layout(span: elf.BinarySpan) -> DllLayout:
    """Read the headers of a DLL for 64 bits; DataError for another one."""
    signature = elf.find_pe_signature(span)
    if signature is None:
        raise span.make_fault("begins like a Windows library, but has no PE header: cut short or damaged")
    header = span.unpack_numbers(_FILE_HEADER, signature + 4, "the COFF header")
    optional = signature + 4 + _FILE_HEADER.size
    if (
        header[5] < _DIRECTORIES
        or span.unpack_numbers(_WORD, optional, "the optional header")[0] != _PE32_PLUS
    ):
        raise span.make_fault("a Windows library, but not one for 64 bits")
    table, label = optional + header[5], "the section table"
    rows = span.unpack_table(_SECTION, table, header[1], limits.MOST_IMAGE_SECTIONS, label)
    return DllLayout(span, signature + 4, optional, table, rows)


def exchange_dll_section(
    data: memoryview,
    name: str,
    emptied: tuple[int, int],
    added: elf_pages.AddedSection,
    *,
    removed: Collection[str] = (),
    patch: Callable[[int], Sequence[Change]],
) -> list[elf_pages.FilePiece]:
    """Return a DLL with another section in place of one that is emptied; as ``exchange_section`` does.

    DataError for a DLL that is signed, which would no longer be so, or has no room for another header.
    """
    layout = read_dll_layout(elf.BinarySpan(data, name))
    _require_room(layout)
    begin = emptied[0]
    size = next((row[3] for row in layout.sections if row[4] == begin and row[3]), 0) if emptied[1] else 0

    def shift(offset: int) -> int:
        return offset - size if offset >= begin + size else offset

    unit, file_unit = _read_alignments(layout)
    end = max(row[2] + max(row[1], row[3]) for row in layout.sections)
    address = -(-end // unit) * unit
    length = added.size
    if address + length > _LARGEST_IMAGE:
        raise layout.span.make_fault(f"has a section that ends at {end:#x}, more than a library can have")
    place = -(-(len(data) - size) // file_unit) * file_unit
    raw_size = -(-length // file_unit) * file_unit
    rows = [_shift_row(row, (begin, size), shift, removed) for row in layout.sections]
    rows.append((added.name.encode(), length, address, raw_size, place, 0, 0, 0, 0, _READ_ONLY_DATA))
    changes = [
        *_change_headers(layout, address + length, shift),
        (layout.table, b"".join(_SECTION.pack(*row) for row in rows)),
        *patch(layout.image_base + address),
    ]
    whole = list(elf_pages.overwrite([data], sorted(changes)))
    kept = [*_cut(whole, 0, begin), *_cut(whole, begin + size, len(data))]
    return [*kept, bytes(place - len(data) + size), *added.pieces, bytes(raw_size - length)]


def _require_room(layout: DllLayout) -> None:
    """Raise DataError for a DLL that cannot get another section."""
    if layout.get_directory(_CERTIFICATES)[1]:
        raise layout.span.make_fault("is signed: sign it when all else is done")
    end = layout.table + len(layout.sections) * _SECTION.size
    limit = layout.get_number(_HEADERS_SIZE)
    if end + _SECTION.size > limit or any(layout.span.get_part(end, _SECTION.size, "the headers")):
        raise layout.span.make_fault("its headers have no room for another section")


def _read_alignments(layout: DllLayout) -> tuple[int, int]:
    """Return what sections are aligned to, in memory and in the file; DataError for what cannot be."""
    unit, file_unit = layout.get_number(_SECTION_ALIGNMENT), layout.get_number(_FILE_ALIGNMENT)
    for alignment in (unit, file_unit):
        if not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
            raise layout.span.make_fault(f"its sections are aligned to {alignment}")
    return unit, file_unit


def _shift_row(
    row: tuple[bytes, int, int, int, int, int, int, int, int, int],
    cut: tuple[int, int],
    shift: Callable[[int], int],
    removed: Collection[str],
) -> tuple[bytes, int, int, int, int, int, int, int, int, int]:
    name, virtual_size, address, size, offset, *rest = row
    if name.rstrip(b"\0").decode("latin-1") in removed:
        name = _UNUSED
    if cut[1] and offset == cut[0]:
        return (name, virtual_size or size, address, 0, 0, *rest)  # type: ignore[return-value]
    return (name, virtual_size, address, size, shift(offset) if offset else 0, *rest)  # type: ignore[return-value]


def _change_headers(layout: DllLayout, end: int, shift: Callable[[int], int]) -> Iterator[Change]:
    """Yield the changes of the headers: number of sections, size of the image, and offsets in the file."""
    unit = layout.get_number(_SECTION_ALIGNMENT)
    fields = list(layout.span.unpack_numbers(_FILE_HEADER, layout.file_header, "the COFF header"))
    fields[1] += 1
    fields[3] = shift(fields[3]) if fields[3] else 0
    yield layout.file_header, _FILE_HEADER.pack(*fields)
    yield layout.optional_header + _IMAGE_SIZE, _LONG.pack(-(-end // unit) * unit)
    yield layout.optional_header + _CHECKSUM, _LONG.pack(0)  # only drivers have one
    place, size = layout.get_directory(_DEBUG)
    at = layout.find_offset(place) if size else 0
    for offset in range(at, at + size - size % _DEBUG_ENTRY.size, _DEBUG_ENTRY.size):
        entry = list(layout.span.unpack_numbers(_DEBUG_ENTRY, offset, "the debug directory"))
        entry[7] = shift(entry[7]) if entry[7] else 0
        yield offset, _DEBUG_ENTRY.pack(*entry)


def _cut(
    placed: Sequence[tuple[int, elf_pages.FilePiece]], begin: int, end: int
) -> Iterator[elf_pages.FilePiece]:
    """Yield what stands between two offsets."""
    for at, piece in placed:
        first, last = max(begin - at, 0), min(end - at, len(piece))
        if first < last:
            yield memoryview(piece)[first:last]

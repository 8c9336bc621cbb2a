"""Read PE and COFF files, and put another section into a DLL in place of one that is emptied.

In the exchange nothing moves in memory, as in ``elf_pages``: the emptied section keeps its place there, and
the loader fills it with zeros, for it has no bytes in the file. What stands behind it in the file moves up.
The new section comes behind all others, in memory and in the file. Sections stay one behind the other, as
Windows wants them: one that goes keeps its header, and loses its name.

Source: Microsoft, "PE Format". In a linked file a section name is cut to 8 characters (``.hip_fat``);
an object keeps the long one in its string table (``/4`` → ``.hip_fatbin``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rocm_wheels.binaries import elf, elf_pages, limits

PE_MAGIC = b"MZ"
COFF_MACHINES = (b"\x64\x86", b"\x64\xaa")  # x86_64, ARM64
PE_ARCHITECTURES: Mapping[int, str] = {0x8664: "amd64", 0xAA64: "arm64", 0x14C: "i386"}
"""Machines of Windows, as platform tags spell them where there are any."""
_SIGNATURE = b"PE\0\0"
_FILE_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_DIRECTORY = struct.Struct("<II")
_DEBUG_ENTRY = struct.Struct("<IIHHIIII")
_RELOCATION_BLOCK = struct.Struct("<II")
_IMPORT, _DELAY_IMPORT = struct.Struct("<IIIII"), struct.Struct("<IIIIIIII")
_WORD, _LONG, _QUAD = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_PE32_PLUS = 0x20B
_DIRECTORIES = {0x10B: 96, _PE32_PLUS: 112}  # by the magic of the optional header: where directories begin
_IMPORTS, _CERTIFICATES, _BASE_RELOCATIONS, _DEBUG, _DELAY_IMPORTS = 1, 4, 5, 6, 13
# places in the optional header of 64 bits
_IMAGE_BASE, _SECTION_ALIGNMENT, _FILE_ALIGNMENT, _IMAGE_SIZE = 24, 32, 36, 56
_HEADERS_SIZE, _CHECKSUM = 60, 64
_DIR64 = 10
_READ_ONLY_DATA = 0x40000040
_LARGEST_ALIGNMENT, _LARGEST_IMAGE = 1 << 16, 1 << 31
_MOST_COFF_SECTIONS = 65279  # of sections in a COFF file (bigobj has a header of its own)
_UNUSED = b".unused\0"
_TABLE_LABEL = "the section table"

Change = tuple[int, bytes]


class _FileHeader(NamedTuple):
    machine: int
    section_count: int
    time: int
    symbols_at: int
    symbol_count: int
    optional_size: int
    flags: int


class _SectionRow(NamedTuple):
    name: bytes
    virtual_size: int
    address: int
    size: int
    offset: int
    relocations_at: int
    lines_at: int
    relocation_count: int
    line_count: int
    flags: int


class PeFile:
    """A COFF file, or an image with such a header behind its signature.

    DataError when a table reaches past the end, LimitError when it is larger than any real one.
    """

    def __init__(self, span: elf.BinarySpan, at: int, most: int) -> None:
        self.span = span
        self.header_at = at
        self.header = _FileHeader(*span.unpack_numbers(_FILE_HEADER, at, "the COFF header"))
        self.optional_at = at + _FILE_HEADER.size
        self.table_at = self.optional_at + self.header.optional_size
        rows = span.unpack_table(_SECTION, self.table_at, self.header.section_count, most, _TABLE_LABEL)
        self.rows = list(map(_SectionRow._make, rows))

    @property
    def sections(self) -> list[elf.BinarySection]:
        """The sections; an image pads their bytes to the file alignment, an object has no virtual size."""
        header, data = self.header, self.span.data
        strings = data[header.symbols_at + 18 * header.symbol_count :] if header.symbols_at else data[:0]
        sections, name_bytes = [], 0
        for row in self.rows:
            name = row.name.rstrip(b"\0").decode("latin-1")
            if name.startswith("/") and name[1:].isascii() and name[1:].isdigit():
                name = elf.read_text_at(strings, int(name[1:]))
            name_bytes += len(name)
            most, label = limits.MOST_SECTION_NAME_BYTES, "characters in names of sections"
            self.span.require_limit(name_bytes, most, label)
            length = min(row.size, row.virtual_size) if row.virtual_size else row.size
            sections.append(elf.BinarySection(name, row.offset, length, row.address))
        return sections

    @cached_property
    def magic(self) -> int:
        """Whose optional header it has: 0 without one, then it is no image that anything loads."""
        if not self.header.optional_size:
            return 0
        (magic,) = self.span.unpack_numbers(_WORD, self.optional_at, "the optional header")
        return int(magic)

    def get_number(self, at: int, form: struct.Struct = _LONG) -> int:
        """Return a number of the optional header."""
        (number,) = self.span.unpack_numbers(form, self.optional_at + at, "the optional header")
        return int(number)

    @property
    def image_base(self) -> int:
        """The address that the linker laid it out for; addresses in it count from there."""
        return self.get_number(_IMAGE_BASE, _QUAD)

    def find_offset(self, address: int) -> int:
        """Return where in the file a relative address is; DataError when it is nowhere."""
        for row in self.rows:
            if row.address <= address < row.address + row.size:
                return address - row.address + row.offset
        raise self.span.make_fault(f"the relative address {address:#x} is in no section")

    def get_directory(self, number: int) -> tuple[int, int]:
        """Return place and size of a data directory; zeros when it has none."""
        begin = _DIRECTORIES[self.magic]
        if number >= self.get_number(begin - 4):
            return 0, 0
        at = self.optional_at + begin + number * _DIRECTORY.size
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


def read_coff_sections(span: elf.BinarySpan) -> list[elf.BinarySection]:
    """Return the sections of a COFF object (``.obj``, or a member of a ``.lib``)."""
    return PeFile(span, 0, _MOST_COFF_SECTIONS).sections


def read_pe_file(span: elf.BinarySpan) -> PeFile | None:
    """Read the headers of a DLL or EXE; None for what only begins like one, or not even that."""
    if not span.starts_with(PE_MAGIC) or len(span) < 64:
        return None
    at = int.from_bytes(span.data[60:64], "little")
    if not span.starts_with(_SIGNATURE, at):
        return None
    return PeFile(span, at + len(_SIGNATURE), limits.MOST_IMAGE_SECTIONS)


def read_pe_architecture(data: memoryview, name: str) -> str | None:
    """Return the machine of a PE file as platform tags spell it, or its number; None for another file.

    DataError and LimitError as ``read_pe_imports``.
    """
    file = read_pe_file(elf.BinarySpan(data, name))
    if file is None or not file.magic:
        return None
    return PE_ARCHITECTURES.get(file.header.machine, f"machine {file.header.machine:#x}")


def read_dll(span: elf.BinarySpan) -> PeFile:
    """Read the headers of a DLL for 64 bits; DataError for another file."""
    file = read_pe_file(span)
    if file is None:
        raise span.make_fault("begins like a Windows library, but has no PE header: cut short or damaged")
    if file.header.optional_size < _DIRECTORIES[_PE32_PLUS] or file.magic != _PE32_PLUS:
        raise span.make_fault("a Windows library, but not one for 64 bits")
    return file


def read_pe_imports(data: memoryview, name: str) -> tuple[str, ...] | None:
    """Return the DLLs that a PE file imports, at once or delayed, as spelled; None for another file.

    DataError when a table reaches past the end, LimitError when it is larger than any real one; ``name``
    stands for the file.
    """
    span = elf.BinarySpan(data, name)
    file = read_pe_file(span)
    if file is None or not file.magic:
        return None if file is None else ()
    if file.magic not in _DIRECTORIES:
        raise span.make_fault(f"an optional header of the unknown kind {file.magic:#x}")
    places: list[int] = []
    for directory, form, column in ((_IMPORTS, _IMPORT, 3), (_DELAY_IMPORTS, _DELAY_IMPORT, 1)):
        address, size = file.get_directory(directory)
        if not address or not size:
            continue
        at = file.find_offset(address)
        while (row := span.unpack_numbers(form, at, "the import table"))[column]:
            places.append(file.find_offset(row[column]))
            span.require_limit(len(places), limits.MOST_IMPORTS, "imported libraries")
            at += form.size
    names = span.read_names(data, places, limits.MOST_LIBRARY_NAME_BYTES, "names of imported libraries")
    return tuple(dict.fromkeys(names))


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
    file = read_dll(elf.BinarySpan(data, name))
    span = file.span
    if file.get_directory(_CERTIFICATES)[1]:
        raise span.make_fault("is signed: sign it when all else is done")
    headers_end = file.table_at + len(file.rows) * _SECTION.size
    is_full = headers_end + _SECTION.size > file.get_number(_HEADERS_SIZE)
    if is_full or any(span.get_part(headers_end, _SECTION.size, "the headers")):
        raise span.make_fault("its headers have no room for another section")
    unit, file_unit = file.get_number(_SECTION_ALIGNMENT), file.get_number(_FILE_ALIGNMENT)
    for alignment in (unit, file_unit):
        if not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
            raise span.make_fault(f"its sections are aligned to {alignment}")
    end = max(row.address + max(row.virtual_size, row.size) for row in file.rows)
    address = -(-end // unit) * unit
    if address + added.size > _LARGEST_IMAGE:
        raise span.make_fault(f"has a section that ends at {end:#x}, more than a library can have")

    begin = emptied[0]
    size = next((row.size for row in file.rows if row.offset == begin and row.size), 0) if emptied[1] else 0

    def shift(offset: int) -> int:
        return offset - size if offset >= begin + size else offset

    rows = []
    for row in file.rows:
        is_gone = row.name.rstrip(b"\0").decode("latin-1") in removed
        new = row._replace(name=_UNUSED if is_gone else row.name, offset=shift(row.offset))
        if size and row.offset == begin:
            new = new._replace(virtual_size=row.virtual_size or row.size, size=0, offset=0)
        rows.append(new)
    place = -(-(len(data) - size) // file_unit) * file_unit
    raw_size = -(-added.size // file_unit) * file_unit
    extent = (added.size, address, raw_size, place)
    rows.append(_SectionRow(added.name.encode(), *extent, 0, 0, 0, 0, _READ_ONLY_DATA))
    header = file.header._replace(section_count=len(rows), symbols_at=shift(file.header.symbols_at))
    changes = [
        (file.header_at, _FILE_HEADER.pack(*header)),
        (file.optional_at + _IMAGE_SIZE, _LONG.pack(-(-(address + added.size) // unit) * unit)),
        (file.optional_at + _CHECKSUM, _LONG.pack(0)),  # only drivers have one
        (file.table_at, b"".join(_SECTION.pack(*row) for row in rows)),
        *patch(file.image_base + address),
    ]
    debug, debug_size = file.get_directory(_DEBUG)
    at = file.find_offset(debug) if debug_size else 0
    for offset in range(at, at + debug_size - debug_size % _DEBUG_ENTRY.size, _DEBUG_ENTRY.size):
        *values, data_at = span.unpack_numbers(_DEBUG_ENTRY, offset, "the debug directory")
        changes.append((offset, _DEBUG_ENTRY.pack(*values, shift(data_at))))
    kept: list[elf_pages.FilePiece] = []
    for at, piece in elf_pages.overwrite([data], sorted(changes)):
        for first, last in ((0, begin), (begin + size, len(data))):
            if part := memoryview(piece)[max(first - at, 0) : max(last - at, 0)]:
                kept.append(part)
    return [*kept, bytes(place - len(data) + size), *added.pieces, bytes(raw_size - added.size)]

"""ELF: section tables of host libraries, and the header of AMDGPU code objects.

Little-endian 64-bit only: that is what HIP has hosts for (x86_64, aarch64, …) and what
AMDGPU code objects are. Layout: System V ABI, chapters "ELF Header" and "Sections".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rocm_wheels.wheels.device_code.span import BinarySection, BinarySpan, read_text_at

ELF_MAGIC = b"\x7fELF"
ELF_HEADER_SIZE = 64
EM_AMDGPU = 224
_SHT_NOBITS = 8
_SHN_XINDEX = 0xFFFF

_ELF_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class ElfHeader:
    """The fields of an ELF header that we need; ``abi_version`` is ``e_ident[8]``."""

    abi_version: int
    machine: int
    flags: int
    sections_at: int
    section_size: int
    section_count: int
    names_index: int


def is_elf(head: bytes | memoryview) -> bool:
    """Tell whether ``head`` begins a 64-bit little-endian ELF file."""
    return bytes(head[:4]) == ELF_MAGIC and bytes(head[4:6]) == b"\x02\x01"


def read_elf_header(span: BinarySpan, *, size: int | None = None) -> ElfHeader:
    """Read the 64 bytes of the header.

    ``size`` is that of the whole ELF file when ``span`` holds only its beginning. DataError
    when it is no 64-bit little-endian ELF or its section table reaches past the end.
    """
    size = len(span) if size is None else size
    if not span.starts_with(ELF_MAGIC):
        raise span.make_fault("not an ELF file")
    if not is_elf(span.data):
        raise span.make_fault("an ELF file, but not a 64-bit little-endian one")
    fields = span.unpack_numbers(_ELF_HEADER, 0, "the ELF header")
    machine, sections_at, flags = fields[1], fields[5], fields[6]
    section_size, section_count, names_index = fields[10:13]
    header = ElfHeader(span.data[8], machine, flags, sections_at, section_size, section_count, names_index)
    if sections_at + section_size * section_count > size:
        raise span.make_fault(
            f"cut short: the section table at {sections_at} ({section_count} sections) "
            f"reaches past the end ({size} bytes)"
        )
    return header


def read_elf_sections(span: BinarySpan, header: ElfHeader) -> list[BinarySection]:
    """Return the sections that have bytes in the file, in the order of the table.

    DataError when there is no section table or it has no names (then nobody can say
    whether the file holds device code), and when a section lies outside the file.
    """
    if not header.sections_at:
        raise span.make_fault(
            "no section table, so its device code cannot be found",
            tip="it was stripped with more than `strip` takes; read it before that step",
        )
    if header.section_size != _SECTION_HEADER.size:
        raise span.make_fault(
            f"section headers of {header.section_size} bytes instead of {_SECTION_HEADER.size}"
        )
    first = span.unpack_numbers(_SECTION_HEADER, header.sections_at, "section header 0")
    count = header.section_count or first[5]  # too many for 16 bits: the number is in section 0
    names_index = first[6] if header.names_index == _SHN_XINDEX else header.names_index
    table = span.get_part(header.sections_at, count * _SECTION_HEADER.size, "the section table")
    headers = list(_SECTION_HEADER.iter_unpack(table))
    if not 0 < names_index < len(headers):
        raise span.make_fault("the section table has no names, so its device code cannot be found")
    names = span.get_part(headers[names_index][4], headers[names_index][5], "the section names")
    return [
        BinarySection(read_text_at(names, row[0]), row[4], row[5])
        for row in headers[1:]
        if row[1] != _SHT_NOBITS
    ]

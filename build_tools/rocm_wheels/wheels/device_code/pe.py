"""PE and COFF: section tables of Windows libraries and objects.

Source: Microsoft, "PE Format". In a linked file a section name is cut to 8 characters
(``.hip_fat``); an object keeps the long one in its string table (``/4`` → ``.hip_fatbin``).
"""

from __future__ import annotations

import struct

from rocm_wheels.wheels.device_code.span import BinarySection, BinarySpan, read_text_at

PE_MAGIC = b"MZ"
COFF_MACHINES = (b"\x64\x86", b"\x64\xaa")  # x86_64, ARM64
_PE_SIGNATURE = b"PE\0\0"
_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SECTION = struct.Struct("<8sIIIIIIHHI")
_MOST_COFF_SECTIONS = 65279  # of sections in a COFF file (bigobj has a header of its own)


def find_pe_signature(span: BinarySpan) -> int | None:
    """Return where ``PE`` stands in a file that begins with ``MZ``, or None when it is not there."""
    if len(span) < 64:
        return None
    offset = int.from_bytes(span.data[60:64], "little")
    return offset if span.starts_with(_PE_SIGNATURE, offset) else None


def read_pe_sections(span: BinarySpan, signature: int) -> list[BinarySection]:
    """Return the sections of a DLL or EXE."""
    return _read_section_table(span, signature + len(_PE_SIGNATURE))


def read_coff_sections(span: BinarySpan) -> list[BinarySection]:
    """Return the sections of a COFF object (``.obj``, or a member of a ``.lib``)."""
    return _read_section_table(span, 0)


def _read_section_table(span: BinarySpan, at: int) -> list[BinarySection]:
    _, count, _, symbols_at, symbol_count, optional_size, _ = span.unpack_numbers(
        _COFF_HEADER, at, "the COFF header"
    )
    if count > _MOST_COFF_SECTIONS:
        raise span.make_fault(f"{count} sections are more than COFF allows")
    at += _COFF_HEADER.size + optional_size
    table = span.get_part(at, count * _COFF_SECTION.size, "the section table")
    strings = span.data[symbols_at + 18 * symbol_count :] if symbols_at else span.data[:0]
    sections = []
    for row in _COFF_SECTION.iter_unpack(table):
        raw, virtual_size, size, offset = row[0], row[1], row[3], row[4]
        name = raw.rstrip(b"\0").decode("latin-1")
        if name.startswith("/") and name[1:].isascii() and name[1:].isdigit():
            name = read_text_at(strings, int(name[1:]))
        # an image pads the bytes of a section to the file alignment; an object has no virtual size
        sections.append(BinarySection(name, offset, min(size, virtual_size) if virtual_size else size))
    return sections

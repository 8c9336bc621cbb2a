"""PE and COFF: section tables of Windows libraries and objects.

Source: Microsoft, "PE Format". In a linked file a section name is cut to 8 characters
(``.hip_fat``); an object keeps the long one in its string table (``/4`` → ``.hip_fatbin``).
"""

from __future__ import annotations

import struct

from rocm_wheels.wheels.device_code.span import Section, Span, text_at

MAGIC = b"MZ"
COFF_MACHINES = (b"\x64\x86", b"\x64\xaa")  # x86_64, ARM64
_SIGNATURE = b"PE\0\0"
_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_LARGEST_COUNT = 65279  # of sections in a COFF file (bigobj has a header of its own)


def signature_at(span: Span) -> int | None:
    """Return where ``PE`` stands in a file that begins with ``MZ``, or None when it is not there."""
    if len(span) < 64:
        return None
    offset = int.from_bytes(span.data[60:64], "little")
    return offset if span.starts(_SIGNATURE, offset) else None


def read_image_sections(span: Span, signature: int) -> list[Section]:
    """Return the sections of a DLL or EXE."""
    return _read(span, signature + len(_SIGNATURE))


def read_object_sections(span: Span) -> list[Section]:
    """Return the sections of a COFF object (``.obj``, or a member of a ``.lib``)."""
    return _read(span, 0)


def _read(span: Span, at: int) -> list[Section]:
    _, count, _, symbols_at, symbol_count, optional_size, _ = span.numbers(_HEADER, at, "the COFF header")
    if count > _LARGEST_COUNT:
        raise span.fault(f"{count} sections are more than COFF allows")
    at += _HEADER.size + optional_size
    table = span.part(at, count * _SECTION.size, "the section table")
    strings = span.data[symbols_at + 18 * symbol_count :] if symbols_at else span.data[:0]
    sections = []
    for row in _SECTION.iter_unpack(table):
        raw, virtual_size, size, offset = row[0], row[1], row[3], row[4]
        name = raw.rstrip(b"\0").decode("latin-1")
        if name.startswith("/") and name[1:].isascii() and name[1:].isdigit():
            name = text_at(strings, int(name[1:]))
        # an image pads the bytes of a section to the file alignment; an object has no virtual size
        sections.append(Section(name, offset, min(size, virtual_size) if virtual_size else size))
    return sections

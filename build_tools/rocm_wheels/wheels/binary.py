"""Read spans of binary files, and the sections of Windows binaries (PE, COFF) and static libraries
(``ar``).

A span is a piece of a file with a name, and the one place where bytes become numbers: every read is
checked against the end, and every fault says which file, member and section it is in. Nothing is
copied.

Source: Microsoft, "PE Format". In a linked file a section name is cut to 8 characters (``.hip_fat``);
an object keeps the long one in its string table (``/4`` → ``.hip_fatbin``). Member names of static
libraries come in GNU, BSD and Windows spellings.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rocm_wheels.core import DataError


@dataclass(frozen=True)
class BinarySpan:
    """Bytes and where they are, as people say it: ``torch.whl: torch/lib/x.so: section .hip_fatbin``."""

    data: memoryview
    place: str

    def __len__(self) -> int:
        return len(self.data)

    def make_fault(self, text: str, *, tip: str | None = None) -> DataError:
        """Return the error that says ``text`` about this place."""
        return DataError(f"{self.place}: {text}", tip=tip)

    def get_part(self, offset: int, size: int, label: str) -> memoryview:
        """Return ``size`` bytes from ``offset``; DataError when ``label`` reaches past the end."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.make_fault(
                f"{label} at {offset} with {size} bytes reaches past the end ({len(self.data)} bytes)"
            )
        return self.data[offset : offset + size]

    def unpack_numbers(self, form: struct.Struct, offset: int, label: str) -> tuple[Any, ...]:
        """Unpack ``form`` at ``offset``; DataError when ``label`` reaches past the end."""
        return form.unpack(self.get_part(offset, form.size, label))

    def get_span(self, offset: int, size: int, label: str) -> BinarySpan:
        """Return the part as a span of its own, whose place ends with ``label``."""
        return BinarySpan(self.get_part(offset, size, label), f"{self.place}: {label}")

    def starts_with(self, magic: bytes, offset: int = 0) -> bool:
        """Tell whether ``magic`` stands at ``offset``."""
        return self.data[offset : offset + len(magic)] == magic


@dataclass(frozen=True)
class BinarySection:
    """A named piece of a host binary."""

    name: str
    offset: int
    size: int


def read_text_at(data: memoryview, offset: int) -> str:
    """Return the NUL-terminated text at ``offset`` (up to 4096 bytes of it)."""
    raw = bytes(data[offset : offset + 4096])
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


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


AR_MAGIC = b"!<arch>\n"
THIN_AR_MAGIC = b"!<thin>\n"
_AR_HEADER_SIZE = 60
_AR_INDEXES = ("/", "/SYM64/", "/<ECSYMBOLS>/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64")


def read_ar_members(span: BinarySpan) -> Iterator[BinarySpan]:
    """Yield the object files of an archive; symbol indexes and name tables are left out.

    DataError for a thin archive (its members are elsewhere) and for a broken header.
    """
    if span.starts_with(THIN_AR_MAGIC):
        raise span.make_fault("a thin archive: its members are other files", tip="name those files instead")
    long_names = b""
    at = len(AR_MAGIC)
    while at < len(span):
        header = bytes(span.get_part(at, _AR_HEADER_SIZE, "a member header"))
        name, size = header[:16].decode("latin-1").rstrip(" "), header[48:58].strip()
        if header[58:60] != b"`\n" or not re.fullmatch(rb"[0-9]+", size):
            raise span.make_fault(f"the member header at {at} is broken")
        start, length = at + _AR_HEADER_SIZE, int(size)
        content = span.get_part(start, length, f"member {name}")
        at = start + length + length % 2
        if name == "//":
            long_names = bytes(content)
            continue
        if re.fullmatch(r"#1/[0-9]+", name):  # BSD: the name stands before the content
            cut = int(name[3:])
            if cut > length:
                raise span.make_fault(f"the member header at {start} has a name longer than the member")
            name = bytes(content[:cut]).rstrip(b"\0").decode("utf-8", "replace")
            content = content[cut:]
        elif re.fullmatch(r"/[0-9]+", name):  # GNU: an offset into the table of long names
            name = re.split(rb"[\n\0]", long_names[int(name[1:]) :], maxsplit=1)[0].decode("utf-8", "replace")
        if name in _AR_INDEXES:
            continue
        yield BinarySpan(content, f"{span.place}({name.removesuffix('/')})")

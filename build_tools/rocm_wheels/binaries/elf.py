"""Native binaries: what the loader reads of an ELF file, and sections of ELF, PE and Mach-O.

Little-endian 64-bit only: that is what HIP has hosts for (x86_64, aarch64, …) and what AMDGPU code
objects are. The loader's view (name, needed libraries, search paths) is read through the program
headers, as the loader does: a file without a section table is read, too. Layout: System V ABI, chapters
"ELF Header", "Sections", "Program Header" and "Dynamic Section".

A span is a piece of a file with a name, and the one place where bytes become numbers: every read is
checked against the end, and every fault says which file, member and section it is in. Nothing is
copied.

Source: Microsoft, "PE Format". In a linked file a section name is cut to 8 characters (``.hip_fat``);
an object keeps the long one in its string table (``/4`` → ``.hip_fatbin``). Member names of static
libraries come in GNU, BSD and Windows spellings.
"""

from __future__ import annotations

import mmap
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rocm_wheels.binaries import limits
from rocm_wheels.core import errors


@dataclass(frozen=True)
class BinarySpan:
    """Bytes and where they are, as people say it: ``torch.whl: torch/lib/x.so: section .hip_fatbin``."""

    data: memoryview
    place: str

    def __len__(self) -> int:
        return len(self.data)

    def make_fault(self, text: str, *, tip: str = "build the file, or fetch it, again") -> errors.DataError:
        """Return the error that says ``text`` about this place."""
        return errors.DataError(f"{self.place}: {text}", tip=tip)

    def require_limit(self, number: int, most: int, label: str) -> None:
        """Raise LimitError when ``number`` of what ``label`` names is more than any real file has."""
        if number > most:
            raise limits.LimitError(
                f"{self.place}: {number} {label}, and no real file has more than {most}",
                tip="build the file, or fetch it, again",
            )

    def get_part(self, offset: int, size: int, label: str) -> memoryview:
        """Return ``size`` bytes from ``offset``; DataError when ``label`` reaches past the end."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.make_fault(
                f"{label} at {offset} with {size} bytes reaches past the end ({len(self.data)} bytes)"
            )
        return self.data[offset : offset + size]

    def unpack_table(self, form: struct.Struct, offset: int, count: int, most: int, label: str) -> list[Any]:
        """Unpack ``count`` rows at ``offset``; LimitError for more than ``most``, DataError past the end."""
        self.require_limit(count, most, f"rows in {label}")
        return list(form.iter_unpack(self.get_part(offset, count * form.size, label)))

    def read_names(self, data: memoryview, offsets: Iterable[int], most: int, label: str) -> list[str]:
        """Return the texts at offsets of ``data``; LimitError for more than ``most`` characters in all."""
        names, size = [], 0
        for offset in offsets:
            names.append(read_text_at(data, offset))
            size += len(names[-1])
            self.require_limit(size, most, f"characters in {label}")
        return names

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
    """A named piece of a host binary; ``address`` is where it is in memory."""

    name: str
    offset: int
    size: int
    address: int = 0


_LONGEST_TEXT = 4096


def read_text_at(data: memoryview, offset: int) -> str:
    """Return the NUL-terminated text at ``offset`` (up to 4096 bytes of it)."""
    raw = bytes(data[offset : offset + _LONGEST_TEXT])
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
    return _read_section_table(span, signature + len(_PE_SIGNATURE), limits.MOST_IMAGE_SECTIONS)


def read_coff_sections(span: BinarySpan) -> list[BinarySection]:
    """Return the sections of a COFF object (``.obj``, or a member of a ``.lib``)."""
    return _read_section_table(span, 0, _MOST_COFF_SECTIONS)


def _read_section_table(span: BinarySpan, at: int, most: int) -> list[BinarySection]:
    _, count, _, symbols_at, symbol_count, optional_size, _ = span.unpack_numbers(
        _COFF_HEADER, at, "the COFF header"
    )
    table = span.unpack_table(
        _COFF_SECTION, at + _COFF_HEADER.size + optional_size, count, most, "the section table"
    )
    strings = span.data[symbols_at + 18 * symbol_count :] if symbols_at else span.data[:0]
    sections = []
    name_bytes = 0
    for row in table:
        raw, virtual_size, address, size, offset = row[:5]
        name = raw.rstrip(b"\0").decode("latin-1")
        if name.startswith("/") and name[1:].isascii() and name[1:].isdigit():
            name = read_text_at(strings, int(name[1:]))
        name_bytes += len(name)
        span.require_limit(name_bytes, limits.MOST_SECTION_NAME_BYTES, "characters in names of sections")
        # an image pads the bytes of a section to the file alignment; an object has no virtual size
        length = min(size, virtual_size) if virtual_size else size
        sections.append(BinarySection(name, offset, length, address))
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
            name = bytes(content[: min(cut, _LONGEST_TEXT)]).rstrip(b"\0").decode("utf-8", "replace")
            content = content[cut:]
        elif re.fullmatch(r"/[0-9]+", name):  # GNU: an offset into the table of long names
            begin = int(name[1:])
            text = long_names[begin : begin + _LONGEST_TEXT]
            name = re.split(rb"[\n\0]", text, maxsplit=1)[0].decode("utf-8", "replace")
        if name in _AR_INDEXES:
            continue
        yield BinarySpan(content, f"{span.place}({name.removesuffix('/')})")


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
    headers = span.unpack_table(
        _SECTION_HEADER, header.sections_at, count, limits.MOST_SECTIONS, "the section table"
    )
    if not 0 < names_index < len(headers):
        raise span.make_fault("the section table has no names, so its device code cannot be found")
    return make_elf_sections(span, headers, names_index)


def make_elf_sections(span: BinarySpan, headers: list[Any], names_index: int) -> list[BinarySection]:
    """Return what has bytes in the file of a section table, whose names are in section ``names_index``."""
    names = span.get_part(headers[names_index][4], headers[names_index][5], "the section names")
    rows = [row for row in headers[1:] if row[1] != _SHT_NOBITS]
    texts = span.read_names(
        names, (row[0] for row in rows), limits.MOST_SECTION_NAME_BYTES, "names of sections"
    )
    return [BinarySection(text, row[4], row[5], row[3]) for text, row in zip(texts, rows, strict=True)]


_LOADER_HEADER = struct.Struct("<16sHHIQQQIHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29
_RELOCATION_TAGS = {"rela": (7, 8), "relr": (36, 35)}  # DT_RELA, DT_RELASZ; DT_RELR, DT_RELRSZ


@dataclass(frozen=True)
class LoaderInfo:
    """A 64-bit ELF program or shared library for the host.

    ``search_paths`` has the entries of DT_RPATH and DT_RUNPATH as written, ``$ORIGIN`` included.
    """

    program: bool
    soname: str | None
    needed: tuple[str, ...]
    search_paths: tuple[str, ...]


def read_loader_info(data: memoryview, name: str) -> LoaderInfo | None:
    """Read what the loader would; ``None`` when ``data`` is no 64-bit little-endian host ELF.

    ``name`` stands for the file in messages. DataError when its tables reach past its end, LimitError when
    they are larger than those of any library.
    """
    if not is_elf(data):
        return None
    span = BinarySpan(data, name)
    _, kind, machine, _, _, offset, _, _, _, size, count = span.unpack_numbers(
        _LOADER_HEADER, 0, "the ELF header"
    )
    if kind not in (_ET_EXEC, _ET_DYN) or machine == EM_AMDGPU or size != _PROGRAM_HEADER.size:
        return None
    segments = span.unpack_table(_PROGRAM_HEADER, offset, count, count, "the program headers")
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    entries = read_dynamic_entries(span, dynamic[2], dynamic[5]) if dynamic else []
    names = _find_dynamic_strings(span, segments, entries)
    soname = next((read_text_at(names, value) for tag, value in entries if tag == _DT_SONAME), None)
    needed = [value for tag, value in entries if tag == _DT_NEEDED]
    interpreted = any(s[0] == _PT_INTERP for s in segments)
    places = [value for tag, value in entries if tag in (_DT_RPATH, _DT_RUNPATH)]
    span.require_limit(len(places), limits.MOST_RUN_PATHS, "run paths")
    paths = [read_text_at(names, place) for place in places]
    return LoaderInfo(
        program=kind == _ET_EXEC or (interpreted and soname is None),
        soname=soname,
        needed=tuple(
            span.read_names(names, needed, limits.MOST_LIBRARY_NAME_BYTES, "names of needed libraries")
        ),
        search_paths=tuple(part for path in paths for part in path.split(":") if part),
    )


def read_loader_info_of_file(path: Path) -> LoaderInfo | None:
    """Read a file; one that says it is ELF and then breaks off is data: the loader will not take it.

    LimitError as ``read_loader_info``.
    """
    with path.open("rb") as file:
        if not is_elf(file.read(8)):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                return read_loader_info(data, str(path))
            except limits.LimitError:
                raise
            except errors.DataError:
                return None


@dataclass(frozen=True)
class ElfImage:
    """A host file as the loader maps it.

    ``loads`` are address, offset and size in the file of its segments, sorted.

    ``is_fixed``: it is not moved, so that addresses in it need no relocation.
    """

    span: BinarySpan
    machine: int
    is_fixed: bool
    loads: tuple[tuple[int, int, int], ...]
    entries: tuple[tuple[int, int], ...]

    def find_offset(self, address: int) -> int:
        """Return where in the file an address is; DataError when it is nowhere."""
        number = bisect_right(self.loads, address, key=lambda load: load[0]) - 1
        if number >= 0:
            virtual, offset, size = self.loads[number]
            if address < virtual + size:
                return address - virtual + offset
        raise self.span.make_fault(f"the address {address:#x} is in no segment")

    def iterate_table(self, kind: str, form: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place in the file and numbers of each row of a table of relocations (``rela``, ``relr``)."""
        values = dict(self.entries)
        at, size = (values.get(tag, 0) for tag in _RELOCATION_TAGS[kind])
        if not size:
            return
        offset = self.find_offset(at)
        self.span.require_limit(size // form.size, limits.MOST_RELOCATIONS, "relocations")
        table = self.span.get_part(offset, size - size % form.size, "the relocations")
        for number, row in enumerate(form.iter_unpack(table)):
            yield offset + number * form.size, row


def read_elf_image(span: BinarySpan) -> ElfImage:
    """Read segments and dynamic section of a host file; DataError when they reach past its end."""
    _, kind, machine, _, _, offset, _, _, _, size, count = span.unpack_numbers(
        _LOADER_HEADER, 0, "the ELF header"
    )
    if size != _PROGRAM_HEADER.size:
        raise span.make_fault("no program headers: not a linked library")
    segments = span.unpack_table(_PROGRAM_HEADER, offset, count, count, "the program headers")
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    entries = read_dynamic_entries(span, dynamic[2], dynamic[5]) if dynamic else []
    # in the order of their addresses, as the ABI wants them
    loads = sorted((s[3], s[2], s[5]) for s in segments if s[0] == _PT_LOAD)
    return ElfImage(span, machine, kind == _ET_EXEC, tuple(loads), tuple(entries))


def read_dynamic_entries(span: BinarySpan, offset: int, size: int) -> list[tuple[int, int]]:
    """Return tag and value of each dynamic entry before the first that is null."""
    count, label = size // _DYNAMIC_ENTRY.size, "the dynamic section"
    rows = span.unpack_table(_DYNAMIC_ENTRY, offset, count, limits.MOST_DYNAMIC_ENTRIES, label)
    return list(takewhile(lambda row: row[0] != _DT_NULL, rows))


def _find_dynamic_strings(
    span: BinarySpan, segments: list[tuple[Any, ...]], entries: list[tuple[int, int]]
) -> memoryview:
    """Return the file from the dynamic string table on, which is found through the loaded segments."""
    address = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    for kind, _, offset, virtual, _, in_file, *_ in segments:
        if address is not None and kind == _PT_LOAD and virtual <= address < virtual + in_file:
            start = address - virtual + offset
            return span.get_part(start, len(span) - start, "the dynamic string table")
    return span.data[:0]

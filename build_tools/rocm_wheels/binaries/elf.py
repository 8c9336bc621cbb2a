"""Read the tables of ELF files, and the members of static libraries.

Little-endian 64-bit only: that is what HIP has hosts for (x86_64, aarch64, …) and what AMDGPU code
objects are. What the loader reads (name, needed libraries, search paths) is found through the program
headers, as the loader does: a file without a section table is read, too. Layout: System V ABI, chapters
"ELF Header", "Sections", "Program Header" and "Dynamic Section".

A span is a piece of a file with a name, and the one place where bytes become numbers: every read is
checked against the end, and every fault says which file, member and section it is in. Nothing is
copied.

Member names of static libraries come in GNU, BSD and Windows spellings.
"""

from __future__ import annotations

import mmap
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
EM_AMDGPU = 224
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_PHDR, PT_GNU_STACK = 1, 2, 3, 6, 0x6474E551
SHT_PROGBITS, SHT_NOBITS, SHT_DYNSYM = 1, 8, 11
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29
HEADER_FORM = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT_FORM = struct.Struct("<IIQQQQQQ")
SECTION_FORM = struct.Struct("<IIQQQQIIQQ")
DYNAMIC_FORM = struct.Struct("<qQ")
_ET_EXEC, _ET_DYN = 2, 3
_SHN_XINDEX = 0xFFFF
_RELOCATION_TAGS = {"rela": (7, 8), "relr": (36, 35)}  # DT_RELA, DT_RELASZ; DT_RELR, DT_RELRSZ


class ElfHeader(NamedTuple):
    """The header of a file, in its order."""

    ident: bytes
    kind: int
    machine: int
    version: int
    entry: int
    segments_at: int
    sections_at: int
    flags: int
    size: int
    segment_size: int
    segment_count: int
    section_size: int
    section_count: int
    names_index: int

    @property
    def abi_version(self) -> int:
        """``EI_ABIVERSION``: of code objects."""
        return self.ident[8]


class Segment(NamedTuple):
    """A program header, in its order."""

    kind: int
    flags: int
    offset: int
    virtual: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int


class SectionRow(NamedTuple):
    """A row of the section table, in its order; ``name`` is a place in the section of names."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def is_elf(head: bytes | memoryview) -> bool:
    """Tell whether ``head`` begins a 64-bit little-endian ELF file."""
    return bytes(head[:4]) == ELF_MAGIC and bytes(head[4:6]) == b"\x02\x01"


def read_narrow_machine(head: bytes | memoryview) -> str | None:
    """Return what an ELF program or library is for that is not 64-bit little-endian; None for others."""
    if bytes(head[:4]) != ELF_MAGIC or is_elf(head) or len(head) < 20 or head[5] not in (1, 2):
        return None
    kind, machine = struct.unpack_from("<HH" if head[5] == 1 else ">HH", head, 16)
    if kind not in (_ET_EXEC, _ET_DYN):
        return None
    order = "little-endian" if head[5] == 1 else "big-endian"
    bits = {1: "32", 2: "64"}.get(head[4], "unknown")
    return f"machine {machine} ({bits} bits, {order})"


class ElfFile:
    """A file whose tables are read, each once, when they are first asked for.

    ``size`` is that of the whole file when ``span`` holds only its beginning. DataError when it is no 64-bit
    little-endian ELF or a table reaches past the end, LimitError when one is larger than any real one.
    """

    def __init__(self, span: BinarySpan, *, size: int | None = None) -> None:
        if not is_elf(span.data):
            other = "an ELF file, but not a 64-bit little-endian one"
            raise span.make_fault(other if span.starts_with(ELF_MAGIC) else "not an ELF file")
        self.span = span
        self.header = header = ElfHeader(*span.unpack_numbers(HEADER_FORM, 0, "the ELF header"))
        size = len(span) if size is None else size
        if header.sections_at + header.section_size * header.section_count > size:
            raise span.make_fault(
                f"cut short: the section table at {header.sections_at} ({header.section_count} sections) "
                f"reaches past the end ({size} bytes)"
            )

    @property
    def is_fixed(self) -> bool:
        """Whether it is not moved, so that addresses in it need no relocation."""
        return self.header.kind == _ET_EXEC

    @property
    def is_loadable(self) -> bool:
        """Whether it is a program or library for the host: neither an object nor device code."""
        header = self.header
        is_linked = header.kind in (_ET_EXEC, _ET_DYN) and header.segment_size == SEGMENT_FORM.size
        return is_linked and header.machine != EM_AMDGPU

    @cached_property
    def segments(self) -> list[Segment]:
        """The program headers; their number has no limit but its 16 bits."""
        if self.header.segment_size != SEGMENT_FORM.size:
            raise self.span.make_fault("no program headers: not a linked library")
        at, count = self.header.segments_at, self.header.segment_count
        rows = self.span.unpack_table(SEGMENT_FORM, at, count, count, "the program headers")
        return list(map(Segment._make, rows))

    @cached_property
    def section_rows(self) -> list[SectionRow]:
        """The section table; [] without one, which no loader needs."""
        header = self.header
        if not header.sections_at:
            return []
        if header.section_size != SECTION_FORM.size:
            raise self.span.make_fault(
                f"section headers of {header.section_size} bytes instead of {SECTION_FORM.size}"
            )
        count = header.section_count or self._first_section.size  # too many for 16 bits: it is in section 0
        rows = self.span.unpack_table(
            SECTION_FORM, header.sections_at, count, limits.MOST_SECTIONS, "the section table"
        )
        return list(map(SectionRow._make, rows))

    @property
    def _first_section(self) -> SectionRow:
        row = self.span.unpack_numbers(SECTION_FORM, self.header.sections_at, "section header 0")
        return SectionRow._make(row)

    def read_sections(self) -> list[BinarySection]:
        """Return the sections that have bytes in the file, in the order of the table.

        DataError when there is no section table or it has no names (then nobody can say
        whether the file holds device code), and when the names lie outside the file.
        """
        if not self.header.sections_at:
            raise self.span.make_fault(
                "no section table, so its device code cannot be found",
                tip="it was stripped with more than `strip` takes; read it before that step",
            )
        rows, number = self.section_rows, self.header.names_index
        if number == _SHN_XINDEX:
            number = self._first_section.link
        if not 0 < number < len(rows):
            raise self.span.make_fault("the section table has no names, so its device code cannot be found")
        names = self.span.get_part(rows[number].offset, rows[number].size, "the section names")
        rows = [row for row in rows[1:] if row.kind != SHT_NOBITS]
        places = (row.name for row in rows)
        texts = self.span.read_names(names, places, limits.MOST_SECTION_NAME_BYTES, "names of sections")
        return [
            BinarySection(text, row.offset, row.size, row.address)
            for text, row in zip(texts, rows, strict=True)
        ]

    @cached_property
    def dynamic(self) -> Segment | None:
        """The program header of the dynamic section."""
        return next((segment for segment in self.segments if segment.kind == PT_DYNAMIC), None)

    @cached_property
    def entries(self) -> list[tuple[int, int]]:
        """Tag and value of each dynamic entry before the first that is null."""
        if self.dynamic is None:
            return []
        count, label = self.dynamic.file_size // DYNAMIC_FORM.size, "the dynamic section"
        rows = self.span.unpack_table(
            DYNAMIC_FORM, self.dynamic.offset, count, limits.MOST_DYNAMIC_ENTRIES, label
        )
        return list(takewhile(lambda row: row[0] != 0, rows))

    @cached_property
    def values(self) -> dict[int, int]:
        """The value of the first dynamic entry of each tag."""
        return dict(reversed(self.entries))

    @cached_property
    def _loads(self) -> list[Segment]:
        # in the order of their addresses, as the ABI wants them
        loads = (segment for segment in self.segments if segment.kind == PT_LOAD)
        return sorted(loads, key=lambda segment: segment.virtual)

    def find_offset(self, address: int | None) -> int | None:
        """Return where in the file an address is loaded from; None when it is nowhere."""
        if address is None:
            return None
        number = bisect_right(self._loads, address, key=lambda segment: segment.virtual)
        for segment in reversed(self._loads[:number]):  # mostly the first; what is mapped later lies on top
            if address < segment.virtual + segment.file_size:
                return address - segment.virtual + segment.offset
        return None

    def get_offset(self, address: int) -> int:
        """Return where in the file an address is; DataError when it is nowhere."""
        offset = self.find_offset(address)
        if offset is None:
            raise self.span.make_fault(f"the address {address:#x} is in no segment")
        return offset

    @cached_property
    def names_at(self) -> int | None:
        """Where the dynamic string table begins."""
        return self.find_offset(self.values.get(DT_STRTAB))

    def iterate_relocations(self, kind: str, form: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place in the file and numbers of each row of a table of relocations (``rela``, ``relr``)."""
        at, size = (self.values.get(tag, 0) for tag in _RELOCATION_TAGS[kind])
        if not size:
            return
        offset = self.get_offset(at)
        self.span.require_limit(size // form.size, limits.MOST_RELOCATIONS, "relocations")
        table = self.span.get_part(offset, size - size % form.size, "the relocations")
        for number, row in enumerate(form.iter_unpack(table)):
            yield offset + number * form.size, row


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
    file = ElfFile(BinarySpan(data, name))
    return describe_loading(file) if file.is_loadable else None


def describe_loading(file: ElfFile) -> LoaderInfo:
    """Return what the loader reads of a file that it loads; raises as ``read_loader_info``."""
    span, at = file.span, file.names_at
    names = span.data[:0] if at is None else span.data[at:]
    soname = read_text_at(names, file.values[DT_SONAME]) if DT_SONAME in file.values else None
    needed = [value for tag, value in file.entries if tag == DT_NEEDED]
    places = [value for tag, value in file.entries if tag in (DT_RPATH, DT_RUNPATH)]
    span.require_limit(len(places), limits.MOST_RUN_PATHS, "run paths")
    paths = [read_text_at(names, place) for place in places]
    most, label = limits.MOST_LIBRARY_NAME_BYTES, "names of needed libraries"
    is_interpreted = any(segment.kind == PT_INTERP for segment in file.segments)
    return LoaderInfo(
        program=file.is_fixed or (is_interpreted and soname is None),
        soname=soname,
        needed=tuple(span.read_names(names, needed, most, label)),
        search_paths=tuple(part for path in paths for part in path.split(":") if part),
    )


def read_loader_info_of_file(path: Path) -> LoaderInfo | None:
    """Read a file; one that says it is ELF and then breaks off is data: the loader will not take it.

    LimitError as ``read_loader_info``.
    """
    return read_mapped(path, read_loader_info)


ResultT = TypeVar("ResultT")


def read_mapped(path: Path, read: Callable[[memoryview, str], ResultT | None]) -> ResultT | None:
    """Have an ELF file read, content and name, while it is mapped; None for another, or one that is cut."""
    with path.open("rb") as file:
        if not is_elf(file.read(8)):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                return read(data, str(path))
            except limits.LimitError:
                raise
            except errors.DataError:
                return None

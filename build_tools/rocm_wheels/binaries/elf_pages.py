"""Take pages of zeros out of an ELF library: they become memory that the loader fills with zeros.

Or put another section in place of one, which goes: ``exchange_section``.

Nothing moves in memory. The PT_LOAD that holds the pages is split: what has bytes stays mapped from the
file, each hole becomes a PT_LOAD with a size in memory and none in the file, which ld.so maps from nowhere.
All that stands behind moves up in the file by whole pages, so that offsets and addresses still agree modulo
the largest alignment of a PT_LOAD. The table of program headers becomes longer and goes to the end of the
file; ld.so reads it by ``e_phoff``, and copies it where no segment holds it (glibc, elf/dl-load.c), so
PT_PHDR goes. A new section is in a PT_LOAD of its own, with the table in front of it, and PT_PHDR stays.

The header of the section keeps its address and gets the size that is left in the file: readers that go by
the section table, as ours does, find the bundles one after another. What sorts sections by address
(``strip``) takes the file for damaged afterwards: strip first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rocm_wheels.binaries import elf

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PT_LOAD, _PT_PHDR = 1, 6
_PF_R = 4
_SHT_PROGBITS, _SHT_NOBITS = 1, 8
_SHF_ALLOC = 2
_SEGMENT_PAGES = {183: 1 << 16}  # aarch64 has kernels with pages of 64 KB; all else 4 KB
_LEAST_PAGE = 4096
_LEAST_HOLE = 1 << 16  # each costs two mappings of a process
_MOST_HEADERS = 0xFFF0

FilePiece = memoryview | bytes


@dataclass(frozen=True)
class _Hole:
    begin: int
    end: int


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    virtual: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int

    def pack(self) -> bytes:
        return _PROGRAM_HEADER.pack(
            self.kind,
            self.flags,
            self.offset,
            self.virtual,
            self.physical,
            self.file_size,
            self.memory_size,
            self.alignment,
        )


def replace_section(
    data: memoryview, begin: int, size: int, chunks: Sequence[tuple[int, FilePiece]]
) -> list[FilePiece]:
    """Return a file with ``chunks`` (offset in the section, bytes) in a section, and zeros in its rest."""
    return [data[:begin], *fill_gaps([*chunks, (size, b"")]), data[begin + size :]]


def fill_gaps(chunks: Sequence[tuple[int, FilePiece]]) -> list[FilePiece]:
    """Return bytes by their offset as pieces one after another, with zeros between them."""
    pieces: list[FilePiece] = []
    at = 0
    for offset, content in chunks:
        pieces += [bytes(offset - at), content]
        at = offset + len(content)
    return pieces


@dataclass(frozen=True)
class AddedSection:
    """A section that a library gets in a PT_LOAD of its own, behind all others in memory; read only."""

    name: str
    pieces: Sequence[FilePiece]
    alignment: int = 8

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(map(len, self.pieces))


def cut_section_pages(
    data: memoryview, name: str, begin: int, size: int, chunks: Sequence[tuple[int, FilePiece]]
) -> list[FilePiece] | None:
    """Return what ``replace_section`` does without its pages of zeros; None when none can be given back.

    ``name`` stands for the file in messages. DataError when the tables of the file reach past its end.
    """
    if not elf.is_elf(data):
        return None
    layout = _read_layout(elf.BinarySpan(data, name))
    owner, holes = layout.find_holes(begin, size, chunks, _LEAST_HOLE)
    parts = [] if owner is None else _split_segments(layout.segments, owner, holes)
    headers = [segment for segment in parts if segment.kind != _PT_PHDR]
    if not holes or len(headers) > _MOST_HEADERS or not layout.sections:
        return None
    end = shift_offset(holes, len(data))
    padding = -end % 8
    header = list(layout.header)
    header[5], header[10] = end + padding, len(headers)
    header[6] = shift_offset(holes, layout.sections_at)
    changes = [
        (0, _FILE_HEADER.pack(*header)),
        (layout.sections_at, _pack_sections(_shift_sections(layout.sections, begin, holes))),
    ]
    old = replace_section(data, begin, size, chunks)
    table = b"".join(segment.pack() for segment in headers)
    return [*_drop_holes(overwrite(old, changes), holes), bytes(padding), table]


def exchange_section(
    data: memoryview,
    name: str,
    emptied: tuple[int, int],
    added: AddedSection,
    *,
    removed: Collection[str] = (),
    patch: Callable[[int], Sequence[tuple[int, bytes]]],
) -> list[FilePiece]:
    """Return a library with another section in place of one that is emptied.

    ``emptied`` is where the old one begins and its size: it becomes zeros, and its whole pages are given
    back. ``patch`` gets the address of the new section, and returns what else is written, by its offset in
    the old file. ``removed``: sections whose headers go. DataError for a file without section table.
    """
    layout = _read_layout(elf.BinarySpan(data, name))
    if not layout.sections:
        raise elf.BinarySpan(data, name).make_fault("no section table, or more sections than a library has")
    begin, size = emptied
    owner, holes = layout.find_holes(begin, size, [], _LEAST_PAGE)
    headers = list(layout.segments if owner is None else _split_segments(layout.segments, owner, holes))
    start = -(-shift_offset(holes, len(data)) // 8) * 8
    segment, place = layout.place_segment(start, len(headers) + 1, added)
    headers = _insert_segment(headers, segment)
    rows = _shift_sections(layout.sections, begin, holes)
    names, rows = layout.name_section(rows, added, removed)
    names_at = place + added.size
    sections_at = -(-(names_at + len(names)) // 8) * 8
    address = segment.virtual + place - segment.offset
    rows[-1][3:6] = [address, place, added.size]
    rows[layout.header[13]][4:6] = [names_at, len(names)]
    header = list(layout.header)
    header[5], header[6], header[10], header[12] = start, sections_at, len(headers), len(rows)
    changes = sorted([(0, _FILE_HEADER.pack(*header)), *patch(address)])
    table = b"".join(segment.pack() for segment in headers)
    tail: list[tuple[int, FilePiece]] = [(start, table)]
    for piece in added.pieces:
        tail.append((place, piece))
        place += len(piece)
    tail += [(names_at, names), (sections_at, _pack_sections(rows))]
    kept = list(_drop_holes(overwrite(replace_section(data, begin, size, []), changes), holes))
    end = sum(map(len, kept))
    return [*kept, *fill_gaps([(at - end, piece) for at, piece in tail])]


def shift_offset(holes: Sequence[_Hole], offset: int) -> int:
    """Return where what stands at an offset stands when the holes are gone."""
    return offset - sum(min(offset, hole.end) - hole.begin for hole in holes if hole.begin < offset)


@dataclass(frozen=True)
class _Layout:
    """The tables of a file: its header, segments, and section headers ([] when nobody can say how many)."""

    span: elf.BinarySpan
    header: Sequence[Any]
    segments: Sequence[_Segment]
    sections: Sequence[list[int]]

    @property
    def sections_at(self) -> int:
        return int(self.header[6])

    @property
    def page(self) -> int:
        loads = (segment.alignment for segment in self.segments if segment.kind == _PT_LOAD)
        return max([_LEAST_PAGE, *loads])

    def find_holes(
        self, begin: int, size: int, chunks: Sequence[tuple[int, FilePiece]], least: int
    ) -> tuple[_Segment | None, list[_Hole]]:
        """Return the PT_LOAD that holds a section, and the pages of it that can be given back."""
        loads = [segment for segment in self.segments if segment.kind == _PT_LOAD]
        owner = next((s for s in loads if s.offset <= begin and begin + size <= s.offset + s.file_size), None)
        if owner is None:
            return None, []
        holes = list(_find_holes(begin, size, chunks, (self.page, least), owner))
        return owner, [] if _is_shared(self.segments, owner, holes) else holes

    def place_segment(self, start: int, count: int, added: AddedSection) -> tuple[_Segment, int]:
        """Return the PT_LOAD of a new section and ``count`` program headers, and where the section begins."""
        loads = [segment for segment in self.segments if segment.kind == _PT_LOAD]
        page = max(_SEGMENT_PAGES.get(self.header[2], _LEAST_PAGE), added.alignment)
        last = max((segment.virtual + segment.memory_size for segment in loads), default=0)
        virtual = -(-last // page) * page + start % page
        place = -(-(start + count * _PROGRAM_HEADER.size) // added.alignment) * added.alignment
        size = place + added.size - start
        return _Segment(_PT_LOAD, _PF_R, start, virtual, virtual, size, size, page), place

    def name_section(
        self, rows: Sequence[list[int]], added: AddedSection, removed: Collection[str]
    ) -> tuple[bytes, list[list[int]]]:
        """Return the section names with a new one, and the headers with one for it at the end."""
        at, size = self.sections[self.header[13]][4:6]
        names = bytes(self.span.get_part(at, size, "the section names"))
        data = memoryview(names)
        kept = [[0] * 10 if elf.read_text_at(data, row[0]) in removed else row for row in rows]
        new = [len(names), _SHT_PROGBITS, _SHF_ALLOC, 0, 0, 0, 0, 0, added.alignment, 0]
        return names + added.name.encode() + b"\0", [*kept, new]


def _read_layout(span: elf.BinarySpan) -> _Layout:
    header = span.unpack_numbers(_FILE_HEADER, 0, "the ELF header")
    table = span.get_part(header[5], header[10] * _PROGRAM_HEADER.size, "the program headers")
    segments = [_Segment(*row) for row in _PROGRAM_HEADER.iter_unpack(table)]
    section_table = span.get_part(header[6], header[12] * _SECTION_HEADER.size, "the section table")
    sections = [list(row) for row in _SECTION_HEADER.iter_unpack(section_table)]
    return _Layout(span, header, segments, sections if 0 < header[13] < len(sections) else [])


def _insert_segment(segments: Sequence[_Segment], new: _Segment) -> list[_Segment]:
    """Put a PT_LOAD behind the others, which are sorted by address; PT_PHDR follows the table into it."""
    last = max((i for i, segment in enumerate(segments) if segment.kind == _PT_LOAD), default=-1)
    joined = [*segments[: last + 1], new, *segments[last + 1 :]]
    size = len(joined) * _PROGRAM_HEADER.size
    moved = {"offset": new.offset, "virtual": new.virtual, "physical": new.virtual}
    return [
        replace(segment, **moved, file_size=size, memory_size=size) if segment.kind == _PT_PHDR else segment
        for segment in joined
    ]


def _pack_sections(rows: Sequence[Sequence[int]]) -> bytes:
    return b"".join(_SECTION_HEADER.pack(*row) for row in rows)


def _find_holes(
    begin: int,
    size: int,
    chunks: Sequence[tuple[int, FilePiece]],
    pages: tuple[int, int],
    owner: _Segment,
) -> Iterator[_Hole]:
    """Yield whole pages without content, as offsets in the file; pages are those of the memory.

    ``pages`` are the size of one, and the least size of a hole.
    """
    page, least = pages
    delta = owner.virtual - owner.offset
    at = 0
    for offset, length in [*((offset, len(content)) for offset, content in chunks), (size, 0)]:
        first = -(-(begin + at + delta) // page) * page - delta
        last = (begin + offset + delta) // page * page - delta
        if last - first >= max(least, page):
            yield _Hole(first, last)
        at = offset + length


def _is_shared(segments: Sequence[_Segment], owner: _Segment, holes: Sequence[_Hole]) -> bool:
    """Tell whether something else than its PT_LOAD describes what is to be cut."""
    for segment in segments:
        if segment is owner or not segment.file_size:
            continue
        for hole in holes:
            if segment.offset < hole.end and hole.begin < segment.offset + segment.file_size:
                return True
    return False


def _split_segments(
    segments: Sequence[_Segment], owner: _Segment, holes: Sequence[_Hole]
) -> Iterator[_Segment]:
    """Yield the segments at their new offsets, that with the holes in parts."""
    for segment in segments:
        if segment is not owner:
            yield replace(segment, offset=shift_offset(holes, segment.offset))
            continue
        at = segment.offset
        end, memory_end = segment.offset + segment.file_size, segment.offset + segment.memory_size
        for hole in holes:
            if hole.begin > at:
                yield _make_part(owner, (at, hole.begin, hole.begin), holes)
            yield _make_part(owner, (hole.begin, hole.begin, hole.end), holes)
            at = hole.end
        if memory_end > at:
            yield _make_part(owner, (at, end, memory_end), holes)


def _make_part(owner: _Segment, part: tuple[int, int, int], holes: Sequence[_Hole]) -> _Segment:
    """Return the part of a segment between offsets of the old file: begin, end, and end in memory."""
    begin, end, memory_end = part
    moved = begin - owner.offset
    return replace(
        owner,
        offset=shift_offset(holes, begin),
        virtual=owner.virtual + moved,
        physical=owner.physical + moved,
        file_size=end - begin,
        memory_size=memory_end - begin,
    )


def _shift_sections(rows: Sequence[list[int]], begin: int, holes: Sequence[_Hole]) -> list[list[int]]:
    """Return section headers with their new offsets; the one at ``begin`` gets the size that is left."""
    shifted = []
    for row in rows:
        values = list(row)
        offset, size = row[4], row[5]
        values[4] = shift_offset(holes, offset)
        if row[1] != _SHT_NOBITS and offset == begin:
            values[5] = shift_offset(holes, offset + size) - values[4]
        shifted.append(values)
    return shifted


def overwrite(
    pieces: Sequence[FilePiece], changes: Sequence[tuple[int, bytes]]
) -> Iterator[tuple[int, FilePiece]]:
    """Yield the pieces of a file with their offsets, ``changes`` (in order) in place of what was there."""
    remaining = list(changes)
    at = 0
    for piece in pieces:
        end, rest = at + len(piece), memoryview(piece)
        while remaining and remaining[0][0] < end:
            place, content = remaining.pop(0)
            yield at, rest[: place - at]
            yield place, content
            rest = rest[place - at + len(content) :]
            at = place + len(content)
        yield at, rest
        at = end


def _drop_holes(placed: Iterator[tuple[int, FilePiece]], holes: Sequence[_Hole]) -> Iterator[FilePiece]:
    for at, piece in placed:
        begin, end = at, at + len(piece)
        for hole in holes:
            if hole.begin < end and begin < hole.end:
                if begin < hole.begin:
                    yield piece[begin - at : hole.begin - at]
                begin = hole.end
        if begin < end:
            yield piece[begin - at :]

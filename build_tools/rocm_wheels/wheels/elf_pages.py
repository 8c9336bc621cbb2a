"""Take pages of zeros out of an ELF library: they become memory that the loader fills with zeros.

Nothing moves in memory. The PT_LOAD that holds the pages is split: what has bytes stays mapped from the
file, each hole becomes a PT_LOAD with a size in memory and none in the file, which ld.so maps from nowhere.
All that stands behind moves up in the file by whole pages, so that offsets and addresses still agree modulo
the largest alignment of a PT_LOAD. The table of program headers becomes longer and goes to the end of the
file; ld.so reads it by ``e_phoff``, and copies it where no segment holds it (glibc, elf/dl-load.c), so
PT_PHDR goes.

The header of the section keeps its address and gets the size that is left in the file: readers that go by
the section table, as ours does, find the bundles one after another. What sorts sections by address
(``strip``) takes the file for damaged afterwards: strip first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rocm_wheels.wheels.elf import BinarySpan, is_elf

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PT_LOAD, _PT_PHDR = 1, 6
_SHT_NOBITS = 8
_LEAST_PAGE = 4096
_LEAST_HOLE = 1 << 16  # each costs two mappings of a process
_MOST_HEADERS = 0xFFF0

FilePiece = memoryview | bytes
Shift = Callable[[int], int]


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


def cut_section_pages(
    data: memoryview, name: str, begin: int, size: int, chunks: Sequence[tuple[int, FilePiece]]
) -> list[FilePiece] | None:
    """Return what ``replace_section`` does without its pages of zeros; None when none can be given back.

    ``name`` stands for the file in messages. DataError when the tables of the file reach past its end.
    """
    span = BinarySpan(data, name)
    if not is_elf(data):
        return None
    header = list(span.unpack_numbers(_FILE_HEADER, 0, "the ELF header"))
    table = span.get_part(header[5], header[10] * _PROGRAM_HEADER.size, "the program headers")
    segments = [_Segment(*row) for row in _PROGRAM_HEADER.iter_unpack(table)]
    loads = [segment for segment in segments if segment.kind == _PT_LOAD]
    owner = next((s for s in loads if s.offset <= begin and begin + size <= s.offset + s.file_size), None)
    if owner is None:
        return None
    page = max(_LEAST_PAGE, *(segment.alignment for segment in loads))
    holes = list(_find_holes(begin, size, chunks, page, owner))
    if not holes or _is_shared(segments, owner, holes):
        return None

    def shift(offset: int) -> int:
        return offset - sum(min(offset, hole.end) - hole.begin for hole in holes if hole.begin < offset)

    headers = b"".join(segment.pack() for segment in _split_segments(segments, owner, holes, shift))
    if len(headers) > _MOST_HEADERS * _PROGRAM_HEADER.size:
        return None
    sections_at, section_count = header[6], header[12]
    if not section_count:  # more than 65279: no library
        return None
    section_table = span.get_part(sections_at, section_count * _SECTION_HEADER.size, "the section table")
    end = shift(len(data))
    padding = -end % 8
    header[5], header[10] = end + padding, len(headers) // _PROGRAM_HEADER.size
    header[6] = shift(sections_at)
    old = replace_section(data, begin, size, chunks)
    changes = [
        (0, _FILE_HEADER.pack(*header)),
        (sections_at, _shift_sections(section_table, begin, shift)),
    ]
    return [*_drop_holes(_overwrite(old, changes), holes), bytes(padding), headers]


def _find_holes(
    begin: int,
    size: int,
    chunks: Sequence[tuple[int, FilePiece]],
    page: int,
    owner: _Segment,
) -> Iterator[_Hole]:
    """Yield whole pages without content, as offsets in the file; pages are those of the memory."""
    delta = owner.virtual - owner.offset
    at = 0
    for offset, length in [*((offset, len(content)) for offset, content in chunks), (size, 0)]:
        first = -(-(begin + at + delta) // page) * page - delta
        last = (begin + offset + delta) // page * page - delta
        if last - first >= max(_LEAST_HOLE, page):
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
    segments: Sequence[_Segment], owner: _Segment, holes: Sequence[_Hole], shift: Shift
) -> Iterator[_Segment]:
    for segment in segments:
        if segment.kind == _PT_PHDR:
            continue
        if segment is not owner:
            yield _move_segment(segment, shift)
            continue
        at = segment.offset
        end, memory_end = segment.offset + segment.file_size, segment.offset + segment.memory_size
        for hole in holes:
            if hole.begin > at:
                yield _make_part(owner, at, hole.begin, hole.begin, shift)
            yield _make_part(owner, hole.begin, hole.begin, hole.end, shift)
            at = hole.end
        if memory_end > at:
            yield _make_part(owner, at, end, memory_end, shift)


def _move_segment(segment: _Segment, shift: Shift) -> _Segment:
    return replace(segment, offset=shift(segment.offset))


def _make_part(owner: _Segment, begin: int, end: int, memory_end: int, shift: Shift) -> _Segment:
    """Return the part of a segment between offsets of the old file."""
    moved = begin - owner.offset
    return _Segment(
        kind=_PT_LOAD,
        flags=owner.flags,
        offset=shift(begin),
        virtual=owner.virtual + moved,
        physical=owner.physical + moved,
        file_size=end - begin,
        memory_size=memory_end - begin,
        alignment=owner.alignment,
    )


def _shift_sections(table: memoryview, begin: int, shift: Shift) -> bytes:
    rows = []
    for row in _SECTION_HEADER.iter_unpack(table):
        values = list(row)
        offset, size = row[4], row[5]
        values[4] = shift(offset)
        if row[1] != _SHT_NOBITS and offset == begin:
            values[5] = shift(offset + size) - shift(offset)
        rows.append(_SECTION_HEADER.pack(*values))
    return b"".join(rows)


def _overwrite(
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

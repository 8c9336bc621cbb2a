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

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.binaries import elf
from rocm_wheels.binaries.elf import SEGMENT_FORM, SectionRow, Segment

_PF_R = 4
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
    file = elf.ElfFile(elf.BinarySpan(data, name)) if elf.is_elf(data) else None
    if file is None or not file.is_loadable:
        return None
    owner, holes = _find_holes(file, begin, size, chunks, _LEAST_HOLE)
    segments = [s for s in _split_segments(file.segments, owner, holes) if s.kind != elf.PT_PHDR]
    if not holes or len(segments) > _MOST_HEADERS or not _has_plain_sections(file):
        return None
    end = shift_offset(holes, len(data))
    padding = -end % 8
    header = file.header._replace(
        segments_at=end + padding,
        segment_count=len(segments),
        sections_at=shift_offset(holes, file.header.sections_at),
    )
    sections = _pack_sections(_shift_sections(file.section_rows, begin, holes))
    changes = [(0, elf.HEADER_FORM.pack(*header)), (file.header.sections_at, sections)]
    old = replace_section(data, begin, size, chunks)
    return [*_drop_holes(overwrite(old, changes), holes), bytes(padding), _pack_segments(segments)]


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
    file = elf.ElfFile(elf.BinarySpan(data, name))
    if not _has_plain_sections(file):
        raise file.span.make_fault("no section table, or more sections than a library has")
    begin, size = emptied
    owner, holes = _find_holes(file, begin, size, [], _LEAST_PAGE)
    segments = _split_segments(file.segments, owner, holes)

    # a PT_LOAD for the table of program headers and the section, behind all others in memory and in the file
    start = -(-shift_offset(holes, len(data)) // 8) * 8
    place = -(-(start + (len(segments) + 1) * SEGMENT_FORM.size) // added.alignment) * added.alignment
    loads = [number for number, segment in enumerate(segments) if segment.kind == elf.PT_LOAD]
    last = max((segments[number].virtual + segments[number].memory_size for number in loads), default=0)
    page = max(_SEGMENT_PAGES.get(file.header.machine, _LEAST_PAGE), added.alignment)
    virtual = -(-last // page) * page + start % page
    length = place + added.size - start
    new = Segment(elf.PT_LOAD, _PF_R, start, virtual, virtual, length, length, page)
    segments.insert(max(loads, default=-1) + 1, new)
    table = len(segments) * SEGMENT_FORM.size
    for number, segment in enumerate(segments):
        if segment.kind == elf.PT_PHDR:  # it follows the table
            segments[number] = segment._replace(
                offset=start, virtual=virtual, physical=virtual, file_size=table, memory_size=table
            )

    # behind it the names of the sections, and their table, which no loader reads
    address, names_at = virtual + place - start, place + added.size
    number = file.header.names_index
    old_names = file.span.get_part(
        file.section_rows[number].offset, file.section_rows[number].size, "the section names"
    )
    names = bytes(old_names) + added.name.encode() + b"\0"
    rows = [
        SectionRow(*[0] * 10) if elf.read_text_at(old_names, row.name) in removed else row
        for row in _shift_sections(file.section_rows, begin, holes)
    ]
    rows[number] = rows[number]._replace(offset=names_at, size=len(names))
    flags = (elf.SHT_PROGBITS, _SHF_ALLOC)
    rows.append(SectionRow(len(old_names), *flags, address, place, added.size, 0, 0, added.alignment, 0))
    sections_at = -(-(names_at + len(names)) // 8) * 8

    header = file.header._replace(
        segments_at=start, sections_at=sections_at, segment_count=len(segments), section_count=len(rows)
    )
    changes = sorted([(0, elf.HEADER_FORM.pack(*header)), *patch(address)])
    kept = list(_drop_holes(overwrite(replace_section(data, begin, size, []), changes), holes))
    tail: list[tuple[int, FilePiece]] = [(start, _pack_segments(segments))]
    for piece in added.pieces:
        tail.append((place, piece))
        place += len(piece)
    tail += [(names_at, names), (sections_at, _pack_sections(rows))]
    end = sum(map(len, kept))
    return [*kept, *fill_gaps([(at - end, piece) for at, piece in tail])]


def shift_offset(holes: Sequence[_Hole], offset: int) -> int:
    """Return where what stands at an offset stands when the holes are gone."""
    return offset - sum(min(offset, hole.end) - hole.begin for hole in holes if hole.begin < offset)


def _has_plain_sections(file: elf.ElfFile) -> bool:
    """Tell whether the header says how many sections there are, and which has their names."""
    header = file.header
    return bool(header.section_count) and 0 < header.names_index < len(file.section_rows)


def _pack_segments(segments: Sequence[Segment]) -> bytes:
    return b"".join(SEGMENT_FORM.pack(*segment) for segment in segments)


def _pack_sections(rows: Sequence[SectionRow]) -> bytes:
    return b"".join(elf.SECTION_FORM.pack(*row) for row in rows)


def _find_holes(
    file: elf.ElfFile, begin: int, size: int, chunks: Sequence[tuple[int, FilePiece]], least: int
) -> tuple[Segment | None, list[_Hole]]:
    """Return the PT_LOAD that holds a section, and its pages without content that can be given back.

    Holes are offsets in the file; pages are those of the memory. ``least`` is the least size of a hole.
    """
    loads = [segment for segment in file.segments if segment.kind == elf.PT_LOAD]
    page = max([_LEAST_PAGE, *(segment.alignment for segment in loads)])
    owner = next((s for s in loads if s.offset <= begin and begin + size <= s.offset + s.file_size), None)
    if owner is None:
        return None, []
    holes: list[_Hole] = []
    delta = owner.virtual - owner.offset
    at = 0
    for offset, length in [*((offset, len(content)) for offset, content in chunks), (size, 0)]:
        first = -(-(begin + at + delta) // page) * page - delta
        last = (begin + offset + delta) // page * page - delta
        if last - first >= max(least, page):
            holes.append(_Hole(first, last))
        at = offset + length
    for segment in file.segments:  # something else than its PT_LOAD may describe what is to be cut
        end = segment.offset + segment.file_size
        is_other = segment is not owner and segment.file_size > 0
        if is_other and any(segment.offset < hole.end and hole.begin < end for hole in holes):
            return owner, []
    return owner, holes


def _split_segments(
    segments: Sequence[Segment], owner: Segment | None, holes: Sequence[_Hole]
) -> list[Segment]:
    """Return the segments at their new offsets, that with the holes in parts."""
    split: list[Segment] = []
    for segment in segments:
        if segment is not owner:
            split.append(segment._replace(offset=shift_offset(holes, segment.offset)))
            continue
        # offsets in the old file where a part begins, ends, and ends in memory
        at, parts = segment.offset, list[tuple[int, int, int]]()
        for hole in holes:
            parts += [(at, hole.begin, hole.begin), (hole.begin, hole.begin, hole.end)]
            at = hole.end
        parts.append((at, segment.offset + segment.file_size, segment.offset + segment.memory_size))
        for begin, end, memory_end in parts:
            moved = begin - segment.offset
            if memory_end > begin:
                split.append(
                    segment._replace(
                        offset=shift_offset(holes, begin),
                        virtual=segment.virtual + moved,
                        physical=segment.physical + moved,
                        file_size=end - begin,
                        memory_size=memory_end - begin,
                    )
                )
    return split


def _shift_sections(rows: Sequence[SectionRow], begin: int, holes: Sequence[_Hole]) -> list[SectionRow]:
    """Return section headers with their new offsets; the one at ``begin`` gets the size that is left."""
    shifted = []
    for row in rows:
        moved = row._replace(offset=shift_offset(holes, row.offset))
        if row.kind != elf.SHT_NOBITS and row.offset == begin:
            moved = moved._replace(size=shift_offset(holes, row.offset + row.size) - moved.offset)
        shifted.append(moved)
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

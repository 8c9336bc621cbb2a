"""The end of an archive: where its directory lies, how long it is and how many entries it has.

The records at the end must fill it without a gap: directory, ZIP64 end record and its locator where
there are some, end record. What two readers would find in two ways is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.faults import ArchiveFault
from rocm_wheels.wheels.archive.records import (
    END_RECORD,
    ZIP64_END_RECORD,
    ZIP64_LOCATOR,
    MAX_UINT16,
    MAX_UINT32,
)

ReadAt = Callable[[int, int], bytes]
_LONGEST_COMMENT = 0xFFFF
# what claims more is no wheel: the largest have some 40,000 members, and each takes 1 KB of memory here
_LARGEST_DIRECTORY, _MOST_MEMBERS = 64 << 20, 250_000


@dataclass(frozen=True)
class ArchiveEnd:
    """Where the directory lies and how many entries it is said to have, and what is wrong with the end."""

    directory: int
    size: int
    count: int
    faults: tuple[ArchiveFault, ...]


class UnreadableError(Exception):
    """The archive cannot be read at all; holds the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = ArchiveFault(kind, "", text)


def read_archive_end(read: ReadAt, length: int) -> ArchiveEnd:
    """Find the directory of an archive of ``length`` bytes; UnreadableError when there is none to rely on."""
    end, faults = _find_end(read, length)
    _, disk, first_disk, entries_here, count, size, offset, _ = END_RECORD.unpack(read(end, END_RECORD.size))
    directory_end = end  # where the directory must end
    locator = read(end - ZIP64_LOCATOR.size, ZIP64_LOCATOR.size) if end >= ZIP64_LOCATOR.size else b""
    if locator.startswith(records.ZIP64_LOCATOR_MARK):
        directory_end, zip64_fields = _read_zip64(read, end, locator)
        stated = (disk, first_disk, entries_here, count, size, offset)
        limits = (MAX_UINT16, MAX_UINT16, MAX_UINT16, MAX_UINT16, MAX_UINT32, MAX_UINT32)
        if any(a not in (b, most) for a, b, most in zip(stated, zip64_fields, limits, strict=True)):
            raise UnreadableError(
                "zip64-end-disagrees",
                f"the end record says {stated[3:]}, the one of ZIP64 {zip64_fields[3:]}",
            )
        disk, first_disk, entries_here, count, size, offset = zip64_fields
    if disk or first_disk or entries_here != count:
        raise UnreadableError("several-disks", "a part of an archive on several disks")
    if size > _LARGEST_DIRECTORY or count > _MOST_MEMBERS:
        raise UnreadableError("directory-size", f"a directory of {size} bytes for {count} members")
    if offset + size != directory_end:
        raise UnreadableError("directory-place", _describe_misplaced(offset, size, directory_end))
    return ArchiveEnd(offset, size, count, tuple(faults))


def _find_end(read: ReadAt, length: int) -> tuple[int, list[ArchiveFault]]:
    start = max(0, length - END_RECORD.size - _LONGEST_COMMENT)
    tail = read(start, length - start)
    marks = [at for at in _find_end_marks(tail) if at + END_RECORD.size <= len(tail)]
    if not marks:
        raise UnreadableError("no-end", "it has no end record: cut short, or no archive")
    last = marks[-1]
    # a record that an earlier one holds in its comment or that follows it: which of them counts?
    reaching = [at for at in marks if at + END_RECORD.size + _read_comment_size(tail, at) == len(tail)]
    if len(reaching) > 1:
        raise UnreadableError("two-ends", f"end records at {start + reaching[0]} and {start + reaching[-1]}")
    comment = _read_comment_size(tail, last)
    rest = len(tail) - last - END_RECORD.size
    if comment > rest:
        raise UnreadableError("no-end", f"its end record has a comment of {comment} bytes, {rest} are there")
    if comment < rest:
        return start + last, [
            ArchiveFault("trailing-bytes", "", f"{rest - comment} bytes behind its end record")
        ]
    faults = [ArchiveFault("comment", "", f"a comment of {comment} bytes")] if comment else []
    return start + last, faults


def _find_end_marks(tail: bytes) -> list[int]:
    places, at = [], tail.find(records.END_MARK)
    while at >= 0:
        places.append(at)
        at = tail.find(records.END_MARK, at + 1)
    return places


def _read_comment_size(tail: bytes, at: int) -> int:
    return int.from_bytes(tail[at + END_RECORD.size - 2 : at + END_RECORD.size], "little")


def _read_zip64(read: ReadAt, end: int, locator: bytes) -> tuple[int, tuple[int, ...]]:
    _, disk, place, disks = ZIP64_LOCATOR.unpack(locator)
    if disk or disks > 1:
        raise UnreadableError("several-disks", f"its ZIP64 end record is on disk {disk} of {disks}")
    expected = end - ZIP64_LOCATOR.size - ZIP64_END_RECORD.size
    if place != expected or expected < 0:
        raise UnreadableError(
            "zip64-end", f"its ZIP64 end record is said to lie at {place}, and must at {expected}"
        )
    mark, size, _, _, *wide = ZIP64_END_RECORD.unpack(read(place, ZIP64_END_RECORD.size))
    if mark != records.ZIP64_END_MARK or size != ZIP64_END_RECORD.size - 12:
        raise UnreadableError("zip64-end", f"no ZIP64 end record of {ZIP64_END_RECORD.size} bytes at {place}")
    return place, tuple(wide)


def _describe_misplaced(offset: int, size: int, behind: int) -> str:
    gap = behind - offset - size
    where = f"its directory is said to lie at {offset} to {offset + size}, the end record follows {behind}"
    if gap > 0:
        return f"{where}: {gap} bytes are in front of the archive or between"
    return f"{where}: cut short by {-gap} bytes"

"""The end of an archive: where its directory lies, how long it is and how many entries it has.

The records at the end must fill it without a gap: directory, ZIP64 end record and its locator where
there are some, end record. What two readers would find in two ways is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocm_wheels.wheels.archive import records
from rocm_wheels.wheels.archive.faults import Fault
from rocm_wheels.wheels.archive.records import END, END64, LOCATOR, MOST16, MOST32

ReadAt = Callable[[int, int], bytes]
_LONGEST_COMMENT = 0xFFFF
# what claims more is no wheel: the largest have some 40,000 members, and each takes 1 KB of memory here
_LARGEST_DIRECTORY, _MOST_MEMBERS = 64 << 20, 250_000


@dataclass(frozen=True)
class Ending:
    """Where the directory lies and how many entries it is said to have, and what is wrong with the end."""

    directory: int
    size: int
    count: int
    faults: tuple[Fault, ...]


class UnreadableError(Exception):
    """The archive cannot be read at all; holds the fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(kind, "", text)


def read_ending(read: ReadAt, length: int) -> Ending:
    """Find the directory of an archive of ``length`` bytes; UnreadableError when there is none to rely on."""
    end, faults = _find_end(read, length)
    _, disk, first_disk, here, count, size, offset, _ = END.unpack(read(end, END.size))
    behind = end  # where the directory must end
    locator = read(end - LOCATOR.size, LOCATOR.size) if end >= LOCATOR.size else b""
    if locator.startswith(records.LOCATOR_MARK):
        behind, wide = _read_zip64(read, end, locator)
        stated = (disk, first_disk, here, count, size, offset)
        limits = (MOST16, MOST16, MOST16, MOST16, MOST32, MOST32)
        if any(a not in (b, most) for a, b, most in zip(stated, wide, limits, strict=True)):
            raise UnreadableError(
                "zip64-end-disagrees", f"the end record says {stated[3:]}, the one of ZIP64 {wide[3:]}"
            )
        disk, first_disk, here, count, size, offset = wide
    if disk or first_disk or here != count:
        raise UnreadableError("several-disks", "a part of an archive on several disks")
    if size > _LARGEST_DIRECTORY or count > _MOST_MEMBERS:
        raise UnreadableError("directory-size", f"a directory of {size} bytes for {count} members")
    if offset + size != behind:
        raise UnreadableError("directory-place", _misplaced(offset, size, behind))
    return Ending(offset, size, count, tuple(faults))


def _find_end(read: ReadAt, length: int) -> tuple[int, list[Fault]]:
    start = max(0, length - END.size - _LONGEST_COMMENT)
    tail = read(start, length - start)
    marks = [at for at in _places(tail) if at + END.size <= len(tail)]
    if not marks:
        raise UnreadableError("no-end", "it has no end record: cut short, or no archive")
    last = marks[-1]
    # a record that an earlier one holds in its comment or that follows it: which of them counts?
    reaching = [at for at in marks if at + END.size + _comment_size(tail, at) == len(tail)]
    if len(reaching) > 1:
        raise UnreadableError("two-ends", f"end records at {start + reaching[0]} and {start + reaching[-1]}")
    comment = _comment_size(tail, last)
    rest = len(tail) - last - END.size
    if comment > rest:
        raise UnreadableError("no-end", f"its end record has a comment of {comment} bytes, {rest} are there")
    if comment < rest:
        return start + last, [Fault("trailing-bytes", "", f"{rest - comment} bytes behind its end record")]
    found = [Fault("comment", "", f"a comment of {comment} bytes")] if comment else []
    return start + last, found


def _places(tail: bytes) -> list[int]:
    places, at = [], tail.find(records.END_MARK)
    while at >= 0:
        places.append(at)
        at = tail.find(records.END_MARK, at + 1)
    return places


def _comment_size(tail: bytes, at: int) -> int:
    return int.from_bytes(tail[at + END.size - 2 : at + END.size], "little")


def _read_zip64(read: ReadAt, end: int, locator: bytes) -> tuple[int, tuple[int, ...]]:
    _, disk, place, disks = LOCATOR.unpack(locator)
    if disk or disks > 1:
        raise UnreadableError("several-disks", f"its ZIP64 end record is on disk {disk} of {disks}")
    expected = end - LOCATOR.size - END64.size
    if place != expected or expected < 0:
        raise UnreadableError(
            "zip64-end", f"its ZIP64 end record is said to lie at {place}, and must at {expected}"
        )
    mark, size, _, _, *wide = END64.unpack(read(place, END64.size))
    if mark != records.END64_MARK or size != END64.size - 12:
        raise UnreadableError("zip64-end", f"no ZIP64 end record of {END64.size} bytes at {place}")
    return place, tuple(wide)


def _misplaced(offset: int, size: int, behind: int) -> str:
    gap = behind - offset - size
    where = f"its directory is said to lie at {offset} to {offset + size}, the end record follows {behind}"
    if gap > 0:
        return f"{where}: {gap} bytes are in front of the archive or between"
    return f"{where}: cut short by {-gap} bytes"

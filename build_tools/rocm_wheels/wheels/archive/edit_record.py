"""RECORD edited by the line: those of members that are not touched stay as they are written.

Digests in hex or with padding, as some producers write them, are put right on the way.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping

from rocm_wheels.errors import DataError
from rocm_wheels.wheels.record import (
    SIGNATURE_SUFFIXES,
    RecordEntry,
    encode_record_digest,
    require_record_size,
)

_HEX_DIGEST = re.compile(r"sha256=([0-9a-fA-F]{64})")
_PADDED_DIGEST = re.compile(r"sha256=([A-Za-z0-9_-]{43})=")
_RIGHT_DIGEST = re.compile(r"sha256=[A-Za-z0-9_-]{43}")
_MOST_SHOWN = 5


def edit_record(
    content: bytes,
    record: str,
    *,
    sizes: Mapping[str, int],
    renamed: Callable[[str], str],
    changed: Mapping[str, RecordEntry | None],
) -> tuple[bytes, tuple[RecordEntry, ...]]:
    """Return RECORD with what changed, and its entries.

    ``sizes`` are those of all files of the wheel as it is, ``renamed`` gives a path its new name, ``changed``
    has the entries of new and other contents (by new name; None: left out). The lines of new members
    come before RECORD's own, sorted. DataError when it does not have each file once, with
    its size and a sha256 digest: a digest that is taken over must be one.
    """
    exempt = {record, *(record + suffix for suffix in SIGNATURE_SUFFIXES)}
    require_record_size(len(sizes), content, name=record)
    faults: list[str] = []
    listed_paths: set[str] = set()
    entries: list[RecordEntry] = []
    lines: list[str] = []
    for entry, text in _read_rows(content, record):
        path = entry.path
        if (fault := _find_row_fault(entry, listed_paths, sizes, exempt)) is not None:
            faults.append(f"{path} {fault}")
        listed_paths.add(path)
        new = changed.get(name := renamed(path), entry)
        if new is None or path == record:
            continue
        if new is entry and (name is not path or not _RIGHT_DIGEST.fullmatch(entry.digest)):
            new = RecordEntry(name, _correct_digest(entry.digest) or entry.digest, entry.size)
        entries.append(new)
        lines.append(text if (new is entry or new == entry) and text.endswith("\n") else _format_row(new))
    faults += [
        f"{name} is in the wheel but not listed"
        for name in sizes
        if name not in listed_paths and name not in exempt
    ]
    if faults:
        more = f"; {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise DataError(f"{record}: {'; '.join(faults[:_MOST_SHOWN])}{more}")
    listed = {entry.path for entry in entries}
    added = [entry for path, entry in sorted(changed.items()) if entry and path not in listed]
    added.append(RecordEntry(renamed(record), "", None))
    return "".join([*lines, *map(_format_row, added)]).encode(), (*entries, *added)


def _read_rows(content: bytes, name: str) -> Iterator[tuple[RecordEntry, str]]:
    """Yield the entries of RECORD, each with the text it was read from; DataError as ``parse_wheel_record``."""
    taken: list[str] = []

    def lines(text: str) -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    try:
        rows = csv.reader(lines(content.decode("utf-8")), strict=True)
        for row in rows:
            text = taken[0] if len(taken) == 1 else "".join(taken)
            taken.clear()
            if row:
                if len(row) != 3 or (row[2] and not (row[2].isascii() and row[2].isdigit())):
                    raise DataError(f"{name}:{rows.line_num}: {row} are not path, digest and size")
                yield RecordEntry(row[0], row[1], int(row[2][:20]) if row[2] else None), text
    except (UnicodeDecodeError, csv.Error) as cause:
        raise DataError(f"{name} is not CSV in UTF-8") from cause


def _find_row_fault(
    entry: RecordEntry, listed_paths: set[str], sizes: Mapping[str, int], exempt: set[str]
) -> str | None:
    path = entry.path
    if path in listed_paths:
        return "is listed twice"
    if path not in sizes:
        return "is listed but not in the wheel"
    if path in exempt:
        return None
    if not _RIGHT_DIGEST.fullmatch(entry.digest) and _correct_digest(entry.digest) is None:
        return "is listed without a sha256 digest"
    if entry.size != sizes[path]:
        return f"has {sizes[path]} bytes, listed with {entry.size}"
    return None


def _correct_digest(digest: str) -> str | None:
    """Return a digest as RECORD must spell it; None when it is none."""
    if match := _HEX_DIGEST.fullmatch(digest):
        return encode_record_digest(bytes.fromhex(match[1]))
    return f"sha256={match[1]}" if (match := _PADDED_DIGEST.fullmatch(digest)) else None


def _format_row(entry: RecordEntry) -> str:
    """Return a line of RECORD; quoted where the path asks for it."""
    text = io.StringIO()
    size = "" if entry.size is None else str(entry.size)
    csv.writer(text, lineterminator="\n").writerow((entry.path, entry.digest, size))
    return text.getvalue()

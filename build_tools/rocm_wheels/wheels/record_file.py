"""Read and compare RECORD: every file of a wheel with its digest and size.

Source: "Recording installed projects" of the PyPA specifications: CSV; digests are
``sha256=`` and URL-safe base64 without padding; RECORD itself and its signatures have none.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.core import DataError

SIGNATURE_SUFFIXES = (".jws", ".p7s")
_MOST_SHOWN = 3
_MORE_LINES = 1000
_MOST_A_FILE, _MORE_BYTES = 4096, 1 << 20


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One line: ``digest`` like ``sha256=47DEQ…`` ("" when none), ``size`` in bytes (None when none)."""

    path: str
    digest: str
    size: int | None


def encode_record_digest(sha256: bytes) -> str:
    """Return a raw SHA-256 digest as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode("ascii")


def require_record_size(files: int, content: bytes, *, name: str) -> None:
    """Raise DataError for a RECORD that cannot be one of so many files: its lines would fill the memory.

    The bounds are wide: lines may be ended by CR and LF, and be there twice (which is told by name).
    """
    lines = content.count(b"\n") + content.count(b"\r")
    if lines > 4 * files + _MORE_LINES or len(content) > _MOST_A_FILE * files + _MORE_BYTES:
        raise DataError(f"{name} has {lines} lines and {len(content)} bytes, for a wheel of {files} files")


def parse_wheel_record(content: bytes, *, name: str, files: int | None = None) -> list[RecordEntry]:
    """Read RECORD; DataError with line number when it is not UTF-8, CSV or of three fields.

    With ``files``, how many the wheel has, also when it is too large for that.
    """
    if files is not None:
        require_record_size(files, content, name=name)
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        entries = []
        for row in rows:
            if not row:
                continue
            if len(row) != 3:
                raise DataError(f"{name}:{rows.line_num}: {len(row)} fields instead of path, digest and size")
            path, digest, size = row
            if size and not re.fullmatch("[0-9]{1,19}", size):
                raise DataError(f"{name}:{rows.line_num}: {size!r} is not a size")
            entries.append(RecordEntry(path, digest, int(size) if size else None))
    except (UnicodeDecodeError, csv.Error) as cause:
        raise DataError(f"{name} is not CSV in UTF-8") from cause
    return entries


_HEX_FAULT = "is listed with a digest in hex; the specification wants URL-safe base64 without padding"


def compare_wheel_record(
    entries: list[RecordEntry], members: Mapping[str, tuple[int, bytes]], *, record: str
) -> list[str]:
    """Return what RECORD and the archive disagree about; [] when nothing.

    ``members`` are sizes and raw SHA-256 digests by name; ``record`` is RECORD's own path.
    """
    exempt = {record, *(record + suffix for suffix in SIGNATURE_SUFFIXES)}
    faults: list[tuple[str, str]] = []
    listed_paths: set[str] = set()
    for entry in entries:
        if entry.path in listed_paths:
            faults.append((entry.path, "is listed twice"))
            continue
        listed_paths.add(entry.path)
        if entry.path in exempt:
            if entry.digest or entry.size is not None:
                faults.append((entry.path, "must be listed without digest and size"))
        elif entry.path not in members:
            faults.append((entry.path, "is listed but not in the wheel"))
        else:
            faults += [(entry.path, text) for text in _compare_entry(entry, *members[entry.path])]
    if record not in listed_paths:
        faults.append((record, "does not list itself"))
    faults += [
        (path, "is in the wheel but not listed")
        for path in members
        if path not in exempt and path not in listed_paths
    ]
    return [f"{record}: {line}" for line in _group_faults(faults)]


def is_spelling_fault(fault: str) -> bool:
    """Tell whether a fault of ``compare_wheel_record`` is the spelling of digests that are right."""
    return fault.endswith(_HEX_FAULT)


def _group_faults(faults: list[tuple[str, str]]) -> list[str]:
    """Put the same fault of many files into one line: a wheel can have twenty thousand."""
    by_text: dict[str, list[str]] = {}
    for path, text in faults:
        by_text.setdefault(text, []).append(path)
    lines = []
    for text, paths in by_text.items():
        shown_paths = (
            paths
            if len(paths) <= _MOST_SHOWN + 1
            else [*paths[:_MOST_SHOWN], f"{len(paths) - _MOST_SHOWN} more files"]
        )
        lines.append(
            f"{', '.join(shown_paths)}: {text}" if len(shown_paths) > 1 else f"{shown_paths[0]} {text}"
        )
    return lines


def _compare_entry(entry: RecordEntry, size: int, sha256: bytes) -> list[str]:
    differences = []
    if entry.size is None:
        differences.append("is listed without a size")
    elif entry.size != size:
        differences.append(f"has {size} bytes, listed with {entry.size}")
    right = encode_record_digest(sha256)
    if entry.digest == right:
        return differences
    if not entry.digest:
        differences.append("is listed without a digest")
    elif entry.digest == f"sha256={sha256.hex()}":
        differences.append(_HEX_FAULT)
    elif entry.digest == right + "=":
        differences.append("is listed with a padded digest; the specification wants it without '='")
    elif not entry.digest.startswith("sha256="):
        differences.append(f"is listed with a {entry.digest.partition('=')[0]} instead of a sha256 digest")
    else:
        differences.append("does not have the digest it is listed with")
    return differences

"""The lock that a wheel was built from, inside the wheel: ``*.dist-info/sources.lock.json``.

It is the part of the lock that made the wheel: its project and those that it is built against. What else
the lock pins may change without another byte in this wheel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.model.project import load_project
from rocm_wheels.wheels.archive.edits import Edit
from rocm_wheels.wheels.archive.rewrite import read_dist_info_files, rewrite_wheel
from rocm_wheels.wheels.record import RecordEntry, parse_record

if TYPE_CHECKING:
    from rocm_wheels.model.lock import Lock

FILE = "sources.lock.json"


def part_of(lock: Lock, name: str) -> bytes:
    """Return the text of the lock of one project and, of those locked, all that it is built after."""
    from rocm_wheels.sources.lock.file import lock_text

    wanted: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in lock.projects and one not in wanted:
            wanted.add(one)
            waiting += load_project(one).build.after
    kept = {one: project for one, project in lock.projects.items() if one in wanted}
    return lock_text(lock.model_copy(update={"projects": kept})).encode("utf-8")


def part_digest(lock: Lock, name: str) -> str:
    """Return the SHA-256 of ``part_of``, in hex."""
    return hashlib.sha256(part_of(lock, name)).hexdigest()


def put_inside(wheel: Path, folder: Path, text: bytes) -> tuple[Path, str]:
    """Write a wheel with the lock inside into ``folder`` (its own: in its place); return it and its content.

    DataError for a wheel that is damaged; it is left as it was.
    """
    written = rewrite_wheel(wheel, folder, Edit(put={FILE: text}), replace=True)
    return written.path, _content(written.record)


def content(wheel: Path) -> str:
    """Return a digest of all that a wheel holds but its lock, as its RECORD lists it; nothing is inflated."""
    files = read_dist_info_files(wheel)
    return _content(parse_record(files["RECORD"], name=f"RECORD of {wheel.name}"))


def _content(record: Iterable[RecordEntry]) -> str:
    lines = sorted(
        f"{entry.path}\0{entry.digest}\0{entry.size}\n"
        for entry in record
        if not entry.path.endswith((f".dist-info/{FILE}", ".dist-info/RECORD"))
    )
    return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()

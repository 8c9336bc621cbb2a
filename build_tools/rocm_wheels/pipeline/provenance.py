"""What we write into a finished wheel: the lock that it was built from, and what it was built against.

The lock is ``*.dist-info/sources.lock.json``: the part of the lock that made the wheel, its project and those
that it is built against. What else the lock pins may change without another byte in this wheel.

Pins are in METADATA: exact versions of what the wheel was built against. Some builds write them when they are
told the version (torchvision, torchaudio to 2.10), some never do (torchaudio since then, apex).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def put_inside(wheel: Path, folder: Path, text: bytes | None, pins: Sequence[str] = ()) -> tuple[Path, str]:
    """Write a wheel with lock and pins inside into ``folder`` (its own: in its place).

    Return it and its content. ``text`` is the lock, if there is one; ``pins``: see ``with_pins``.
    DataError for a wheel that is damaged; it is left as it was.
    """
    edit = Edit(put={} if text is None else {FILE: text}, requirements=partial(with_pins, pins=pins))
    written = rewrite_wheel(wheel, folder, edit, replace=True)
    return written.path, _content(written.record)


def with_pins(requires: Sequence[str], *, pins: Sequence[str]) -> list[str]:
    """Return requirements narrowed to ``pins``; one that is missing is added.

    A requirement that does not admit the version of a pin stays as it is: its build knows of another
    version, and the checks of the wheel say so. So does one that holds only with an extra.
    """
    found = list(requires)
    for pin in pins:
        wanted = Requirement(pin)
        (exact,) = wanted.specifier
        if not any(_contradicts(text, wanted.name, exact.version) for text in found):
            kept = [text for text in found if not _is_about(text, wanted.name)]
            place = next((n for n, text in enumerate(found) if _is_about(text, wanted.name)), len(kept))
            found = [*kept[:place], pin, *kept[place:]]
    return found


def _is_about(text: str, name: str) -> bool:
    asked = Requirement(text)
    same = canonicalize_name(asked.name) == canonicalize_name(name)
    return same and "extra" not in str(asked.marker or "")


def _contradicts(text: str, name: str, version: str) -> bool:
    asked = Requirement(text)
    admits = asked.url is None and asked.specifier.contains(version, prereleases=True)
    return _is_about(text, name) and not admits


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

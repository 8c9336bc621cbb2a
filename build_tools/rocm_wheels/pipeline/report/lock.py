"""The lock that a run was built from, as long as the file is still that lock."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.pipeline.record.reading import Run
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.tables import code, facts


def lock_part(run: Run) -> Markup | None:
    """Show the lock's digest, and its content where the file still has that digest."""
    place, digest = run.begun.get("lock"), run.begun.get("lock_digest")
    if not place and not digest:
        return None
    known = facts([("file", code(place) if place else None), ("sha256", code(digest) if digest else None)])
    return join(known, _content(Path(place), digest) if place and digest else None)


def _content(path: Path, digest: str) -> Markup:
    from rocm_wheels.sources.lock.file import lock_digest, lock_text, read_lock

    try:
        lock = read_lock(path)
    except (DataError, OSError, ValueError):  # ValueError: of a path that cannot be one
        return tag(
            "p", "The file cannot be read as a lock any more: its content is not shown.", class_="note"
        )
    if lock_digest(lock) != digest:
        return tag("p", "The file is another lock by now: its content is not shown.", class_="note")
    return tag("details", tag("summary", "Its content"), tag("pre", lock_text(lock)))

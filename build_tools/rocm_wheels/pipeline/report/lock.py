"""The lock that a run was built from, as long as the file is still that lock."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.errors import DataError
from rocm_wheels.pipeline.record.reading import RecordedRun
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.tables import make_code, make_fact_list


def render_lock(run: RecordedRun) -> Markup | None:
    """Show the lock's digest, and its content where the file still has that digest."""
    location, digest = run.begun.get("lock"), run.begun.get("lock_digest")
    if not location and not digest:
        return None
    lock_facts = make_fact_list(
        [
            ("file", make_code(location) if location else None),
            ("sha256", make_code(digest) if digest else None),
        ]
    )
    return join_markup(
        lock_facts, _render_lock_content(Path(location), digest) if location and digest else None
    )


def _render_lock_content(path: Path, digest: str) -> Markup:
    from rocm_wheels.sources.lock.file import digest_lock, format_lock, read_lock

    try:
        lock = read_lock(path)
    except (DataError, OSError, ValueError):  # ValueError: of a path that cannot be one
        return make_tag(
            "p", "The file cannot be read as a lock any more: its content is not shown.", class_="note"
        )
    if digest_lock(lock) != digest:
        return make_tag("p", "The file is another lock by now: its content is not shown.", class_="note")
    return make_tag("details", make_tag("summary", "Its content"), make_tag("pre", format_lock(lock)))

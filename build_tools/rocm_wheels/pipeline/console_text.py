"""Text for people: the table at the end of a run, and foreign text made safe to print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from rocm_wheels.core import align_rows, format_duration, format_markdown_table, format_size, format_table

# colours and cursor moves (ECMA-48), titles of windows, then whatever else controls
_ESCAPE_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_DIRECTION_MARKS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION_MARKS}\ud800-\udfff]")
_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{12,}\b")


def strip_controls(text: str) -> str:
    """Return text without escape sequences; other controls and halves of characters become ``\ufffd``.

    Line ends and tabs stay; marks that turn the direction of writing count as controls.
    """
    return _CONTROLS.sub("\ufffd", _ESCAPE_SEQUENCES.sub("", text))


def join_lines(text: str) -> str:
    """Return text on one line, with single blanks."""
    return " ".join(strip_controls(text).split())


def shorten_digests(text: str) -> str:
    """Return text with 12 digits of each long digest or commit in it."""
    return _LONG_DIGEST.sub(r"\1…", text)


def find_last_line(tail: bytes) -> str:
    """Return the last line with anything on it; of one that was drawn over, what was drawn last."""
    text = tail.decode("utf-8", "replace")
    return next((line for part in reversed(re.split("[\r\n]+", text)) if (line := join_lines(part))), "")


@dataclass(frozen=True)
class SummaryRow:
    """A project's outcome. ``seconds`` is this run's; ``size`` in bytes; ``sha256`` in hex.

    ``targets`` is ``None`` when nobody looked into the wheel.
    """

    project: str
    outcome: str  # built | up to date | failed | not built | …
    wheel: str = ""
    version: str = ""
    targets: tuple[str, ...] | None = ()
    size: int | None = None
    seconds: float | None = None
    sha256: str = ""
    checked: str = ""  # "verified", "not verified (--no-verify)"
    note: str = ""
    lock: str = ""  # SHA-256 of the lock that it was built from
    python: str = ""  # ABI tag
    dropped: tuple[str, ...] = ()  # targets left out, because nothing compiles for them
    target_set: str = ""  # with --per-target: the folder of the output that it is in


SUMMARY_HEADERS = ("wheel", "version", "targets", "size", "time", "sha256", "outcome")


def format_cells(row: SummaryRow) -> tuple[str, ...]:
    """Return a row as text, in the order of ``SUMMARY_HEADERS``."""
    outcome = ", ".join(part for part in (row.outcome, row.checked, row.note) if part)
    return (
        "/".join(
            part for part in (row.target_set, row.wheel or f"{row.project} {row.python}".strip()) if part
        ),
        row.version,
        _format_targets(row) if row.wheel else "",
        format_size(row.size, unknown=""),
        "" if row.seconds is None else format_duration(row.seconds),
        row.sha256,
        outcome,
    )


def _format_targets(row: SummaryRow) -> str:
    if row.targets is None:
        return "not read"
    return ", ".join(sorted(row.targets, key=lambda name: (len(name), name))) or "none"


def format_summary(rows: Sequence[SummaryRow], *, width: int | None = None) -> str:
    """Write the table in aligned columns, or as some lines a wheel where ``width`` is too small for that.

    Names and digests are whole, to be copied; only a table that would fit but for them has 12
    digits of each digest.
    """
    short = [replace(row, sha256=row.sha256[:12]) for row in rows]
    for table_rows in (rows, short):
        cells = [format_cells(row) for row in table_rows]
        if width is None or max(map(len, align_rows([SUMMARY_HEADERS, *cells]))) <= width:
            return format_table(SUMMARY_HEADERS, cells)
    return format_table(SUMMARY_HEADERS, [format_cells(row) for row in rows], width=width)


def format_markdown_summary(rows: Sequence[SummaryRow]) -> str:
    """Write the table for a GitHub step summary."""
    return format_markdown_table(SUMMARY_HEADERS, [format_cells(row) for row in rows])


def format_json_summary(rows: Sequence[SummaryRow]) -> str:
    """Write the rows as JSON: a list of objects with the fields of ``SummaryRow``."""
    import json

    return json.dumps([asdict(row) for row in rows], indent=1)

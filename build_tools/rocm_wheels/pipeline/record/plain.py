"""Text of programs and records as it may be shown: nothing in it moves a cursor, paints or reorders."""

from __future__ import annotations

import re

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

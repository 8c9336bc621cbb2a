"""Fill templates of pages, and take out of text what would control a terminal or reorder a line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.core import tables

if TYPE_CHECKING:
    from jinja2 import Environment

# colours and cursor moves (ECMA-48), titles of windows, then whatever else controls
_ESCAPE_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_DIRECTION_MARKS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION_MARKS}\ud800-\udfff]")


def strip_controls(text: str) -> str:
    """Return text without escape sequences; other controls and halves of characters become ``\ufffd``.

    Line ends and tabs stay; marks that turn the direction of writing count as controls.
    """
    return _CONTROLS.sub("\ufffd", _ESCAPE_SEQUENCES.sub("", text))


def make_page_templates(folder: Path) -> Environment:
    """Return what fills the templates of a folder.

    Every value is escaped, with nothing in it that controls or reorders.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finish_value(value: object) -> object:
        if value is None:
            return ""
        if isinstance(value, float):
            return f"{value:.2f}".rstrip("0").rstrip(".")
        if isinstance(value, Markup):
            return Markup(strip_controls(value))  # escaped before
        return value if isinstance(value, int) else strip_controls(str(value))

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finish_value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["counted"] = tables.format_count
    return environment

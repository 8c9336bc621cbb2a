"""HTML that cannot be broken by what it shows: text is escaped unless it was made here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from rocm_wheels.pipeline.record.plain import strip_controls

_VOID_TAGS = {"meta", "br"}
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_ESCAPED = re.compile("[&<>\"']")


class Markup(str):
    """Finished HTML."""

    __slots__ = ()


def escape_text(value: object) -> Markup:
    """Return a value as HTML text: escaped, with nothing in it that controls or reorders."""
    if isinstance(value, Markup):
        return value
    return Markup(_ESCAPED.sub(lambda match: _ESCAPES[match.group()], strip_controls(str(value))))


def join_markup(*parts: object) -> Markup:
    """Return parts one after the other: text is escaped, ``None`` left out, lists opened."""
    return Markup("".join(_render_parts(parts)))


def make_tag(name: str, /, *inside: object, **attributes: object) -> Markup:
    """Return an element; ``inside`` as in ``join_markup``.

    Attributes are named as in HTML, with ``_`` for ``-`` and without a last one (``class_``, ``aria_label``);
    one of ``None`` or ``False`` is left out, ``True`` stands without a value.
    """
    attribute_text = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        attribute_text += f" {label}" if value is True else f' {label}="{escape_text(_format_number(value))}"'
    if name in _VOID_TAGS:
        return Markup(f"<{name}{attribute_text}>")
    return Markup(f"<{name}{attribute_text}>{join_markup(*inside)}</{name}>")


def format_percent(part: float, whole: float) -> str:
    """Return where ``part`` lies on an axis of length ``whole``."""
    return f"{_format_number(round(max(min(part / whole, 1.0), 0.0) * 100, 2) if whole > 0 else 0)}%"


def _format_number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _render_parts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if part is None:
            continue
        if isinstance(part, (str, int, float, PurePath)):
            yield escape_text(_format_number(part))
        elif isinstance(part, Iterable):
            yield from _render_parts(part)
        else:
            raise TypeError(f"{type(part).__name__} cannot stand in a page")

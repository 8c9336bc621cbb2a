"""HTML that cannot be broken by what it shows, and the parts that many sections of a report are made of.

Text is escaped unless it was made here; tables scroll in a box of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath

from rocm_wheels.pipeline.console_text import strip_controls

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


def make_table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    wide: Collection[int] = (0,),
    label: str | None = None,
    class_: str | None = None,
) -> Markup:
    """Return a table; the first cell of a row names it. ``numbers`` are columns set to the right.

    Columns of ``wide`` may wrap anywhere, the others only where words end.
    """

    def style(column: int) -> str | None:
        return "number" if column in numbers else "wide" if column in wide else None

    titles = [make_tag("th", title, scope="col", class_=style(n)) for n, title in enumerate(head)]
    lines = []
    for row in rows:
        first, *rest = row
        cells = [make_tag("td", cell, class_=style(n)) for n, cell in enumerate(rest, 1)]
        lines.append(make_tag("tr", make_tag("th", first, scope="row", class_=style(0)), cells))
    markup = make_tag(
        "table", make_tag("thead", make_tag("tr", titles)), make_tag("tbody", lines), class_=class_
    )
    return make_scroll_box(markup, label or f"Table: {', '.join(str(title) for title in head)}")


def make_scroll_box(inside: Markup, label: str) -> Markup:
    """Return a box that scrolls sideways by itself, also by keys; the page never does."""
    return make_tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)


def make_fact_list(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Return names with values; those without a value are left out."""
    entries = [make_tag("div", make_tag("dt", name), make_tag("dd", value)) for name, value in pairs if value]
    return make_tag("dl", entries, class_="facts")


def make_outcome(word: str) -> Markup:
    """Return the word for how something ended, with its mark."""
    return make_tag("span", word, class_=f"outcome {word}")


def make_code(value: object) -> Markup:
    """Return something that is typed or read by machines."""
    return make_tag("code", value)

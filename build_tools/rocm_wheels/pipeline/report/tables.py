"""Parts that many sections are made of: tables in a box that scrolls by itself, facts, notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rocm_wheels.pipeline.report.markup import Markup, make_tag


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

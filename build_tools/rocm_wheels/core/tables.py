"""What is printed for people: tables, counts, sizes and durations, lists of names."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

from rocm_wheels.core import log

_MARKS = re.compile(r"[\\`*\[\]|<>&~]|\b_|_\b")  # of Markdown and HTML inside of a line
_CELL_WIDTHS = (68, 50, 34)  # characters of a cell before it goes on in the next line, where not all fits


Row = Sequence[str]


def get_output_width() -> int:
    """Return how many characters a line of stdout has: ``COLUMNS``, the terminal's, or 80 in a pipe."""
    return shutil.get_terminal_size().columns


def format_table(
    header: Row,
    rows: Sequence[Row],
    *,
    right: Collection[int] = (),
    width: int | None = None,
    cut: bool = False,
) -> str:
    """Return rows as aligned columns below their header; columns in ``right`` are aligned to the right.

    What is wider than ``width`` is broken between the words of cells, else printed as a block a row; with
    ``cut`` lines end with ``…`` instead. Without ``width`` every row is one line, however long. No word is
    ever broken: names are there to be copied.
    """
    lines = _align_columns([header, *rows], right, None)
    if width is not None and cut:
        lines = [cut_line(line, width) for line in lines]
    elif width is not None and max(map(len, lines)) > width:
        lines = _fit_columns(header, rows, right, width)
    return "\n".join([log.paint_result(lines[0], "bold"), *lines[1:]])


def align_rows(rows: Sequence[Row], *, right: Collection[int] = ()) -> list[str]:
    """Return each row as one line of aligned columns; columns that are empty in every row are left out."""
    if not rows:
        return []
    filled = [number for number in range(len(rows[0])) if any(row[number] for row in rows)]
    on_right = [place for place, number in enumerate(filled) if number in right]
    cells = [[row[number].replace("\n", " ") for number in filled] for row in rows]
    return _align_columns(cells, on_right, None)


def format_markdown_table(header: Row, rows: Sequence[Row]) -> str:
    """Return a table of Markdown, with a line end after the last row."""
    cells = [[escape_markdown(cell) for cell in line] for line in (header, *rows)]
    cells.insert(1, ["---"] * len(header))
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, in one line: no mark-up, no HTML, no end of a cell."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.splitlines()))


def fence_markdown(text: str) -> str:
    """Return text as a block of Markdown that shows it as it is: no fence in it ends the block."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}\n"


def cut_line(line: str, width: int | None) -> str:
    """Return a line of at most ``width`` characters, with ``…`` where it was cut."""
    return line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…"


def _fit_columns(header: Row, rows: Sequence[Row], right: Collection[int], width: int) -> list[str]:
    for widest in _CELL_WIDTHS:
        lines = _align_columns([header, *rows], right, widest)
        if max(map(len, lines)) <= width:
            return lines
    return _format_blocks(header, rows, width)


def _format_blocks(header: Row, rows: Sequence[Row], width: int) -> list[str]:
    """Return each row as its first cell and, below it, a line or more for each of the others."""
    lines = []
    label_width = max(map(len, header))
    for row in rows:
        lines.append(f"{header[0]}  {row[0]}")
        labels = [f"{word:{label_width}}" for word in header[1:]]
        facts = [(label, cell) for label, cell in zip(labels, row[1:], strict=True) if cell]
        if facts:
            lines += [f"  {line}" for line in _align_columns(facts, (), max(width - label_width - 4, 1))]
    return lines


def _align_columns(rows: Sequence[Row], right: Collection[int], widest: int | None) -> list[str]:
    """Return lines of columns; cells of more than ``widest`` characters go on in the next line."""
    columns = [_wrap_column(column, widest) for column in zip(*rows, strict=True)]
    widths = [max(measure_text(line) for cell in column for line in cell) for column in columns]
    lines = []
    for row in zip(*columns, strict=True):
        for parts in zip_longest(*row, fillvalue=""):
            padding = [" " * (width - measure_text(part)) for part, width in zip(parts, widths, strict=True)]
            cells = [
                blank + part if number in right else part + blank
                for number, (part, blank) in enumerate(zip(parts, padding, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
    return lines


def _wrap_column(column: Sequence[str], widest: int | None) -> list[list[str]]:
    """Return the lines of each cell of a column, broken between words where its longest word ends."""
    if widest is None:
        return [cell.split("\n") for cell in column]
    width = max([widest, *(measure_text(word) for cell in column for word in cell.split())])
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return [[part for line in cell.split("\n") for part in wrapper.wrap(line) or [""]] for cell in column]


def measure_text(text: str) -> int:
    """Return how many places of a terminal a text takes: Chinese and the like take two a letter."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    visible = (letter for letter in text if category(letter) not in ("Mn", "Me", "Cf"))
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in visible)


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 wheel``, ``2 wheels``, ``1,234 wheels``.

    ``plural`` is the noun of more than one, where that is not ``noun`` with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def count_part(part: int, total: int, noun: str) -> str:
    """Return how many of how many: ``2 of 4 wheels``, ``all 4 wheels``, ``the only wheel``."""
    if part == total:
        return f"the only {noun}" if total == 1 else f"all {format_count(total, noun)}"
    return f"{part:,} of {format_count(total, noun)}"


def suggest_name(word: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing.

    Names that begin with it are nearer than all others, and are all named: gfx11 is no gfx1201.
    """
    import difflib  # only when something is wrong

    names = list(names)
    longer = [name for name in names if word and name.startswith(word)]
    near = longer[:6] or difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def format_size(size: int | None, *, unknown: str = "unknown size") -> str:
    """Return a number of bytes for people: ``2.1 GiB``; ``unknown`` for ``None``.

    Units are powers of 1024: so are the sizes that people give (``50G``) and those that we are given
    (limits of memory, of Slurm, of /dev/shm), and one number can be compared with another.
    """
    if size is None:
        return unknown
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def format_duration(seconds: float) -> str:
    """Return a length of time for people: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 7 min``, ``12 d``.

    Two units at most, and without what is nought of them; days from three of them on.
    """
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    rest = round(seconds)
    units = [("d", 86400), ("h", 3600), ("min", 60), ("s", 1)]
    if rest < 3 * 86400:
        del units[0]
    parts: list[tuple[int, str]] = []
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)

"""What the commands of ``compat`` share: reading versions and GPUs from options, and printing tables."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from packaging.version import Version

_CELL_WIDTHS = (68, 50, 34)  # characters of a cell before it goes on in the next line, where not all fits


def read_version(text: str, option: str) -> Version:
    """Return a version that was given. Raises UsageError for what is none; 2.13 and 7.2 are series."""
    from rocm_wheels.model.compat import versions

    try:
        return versions.parse_version(text)
    except ValueError as fault:
        raise UsageError(f"{option}: {fault}", tip="such as 2.13, 2.13.1 or 7.14") from None


def find_version(text: str, option: str, versions: Sequence[Version]) -> Version:
    """Return a version that the tables have. Raises UsageError with the one that was probably meant."""
    from rocm_wheels.model.compat.builds import is_same_release
    from rocm_wheels.records import suggest_name

    version = read_version(text, option)
    if not any(is_same_release(version, candidate) for candidate in versions):
        words = list(map(str, versions))
        raise UsageError(
            f"{option}: no table has {version}{suggest_name(text, words)}", tip=f"known: {', '.join(words)}"
        )
    return version


def read_gpu(text: str, option: str = "--gfx") -> str:
    """Return the target that is named: a target with or without features, or a product of exactly one target.

    Raises UsageError otherwise, with the name that was probably meant.
    """
    from rocm_wheels.model.compat.pci_find import list_near_targets
    from rocm_wheels.model.compat.targets import find_targets
    from rocm_wheels.model.gfx import strip_features, get_gfx_targets, parse_targets
    from rocm_wheels.records import suggest_name

    if strip_features(text) in get_gfx_targets():
        return strip_features(parse_targets(text, input_name=option)[0])
    targets = find_targets(text)
    if len(targets) == 1:
        return targets[0]
    if targets:
        raise UsageError(f"{option}: {text!r} can mean {', '.join(targets)}", tip="name one of them")
    products = [word for target in get_gfx_targets().values() for word in target.products]
    hint = suggest_name(text, [*list_near_targets(text, list(get_gfx_targets())), *products])
    raise UsageError(
        f"{option}: {text!r} is no GPU target or product{hint}",
        tip="`rocm-wheels compat show targets` lists them; `rocm-wheels compat gpu` knows more names",
    )


def read_python(text: str, option: str = "--python") -> str:
    """Return a Python as the tables write it, ``3.12`` or ``3.14t``. Raises UsageError."""
    from rocm_wheels.model.compat.versions import get_python_key

    try:
        get_python_key(text)
    except ValueError as fault:
        raise UsageError(f"{option}: {fault}", tip="such as 3.12, or 3.14t for free threading") from None
    return text


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """Return the rows as aligned columns; sources as numbers, listed below; empty columns are left out.

    ``width`` is that of a terminal: what is wider is broken within cells, else printed as a block a row.
    None is for what reads lines (grep, a file): a row is one line, however long.
    """
    table_rows = [list(row) for row in rows]
    places: dict[str, int] = {}
    if header and header[-1] == "source":
        for row in table_rows:
            row[-1] = f"[{places.setdefault(row[-1], len(places) + 1)}]" if row[-1] else ""
    columns = [i for i in range(len(header)) if any(row[i] for row in table_rows)] or list(range(len(header)))
    words = [header[i] for i in columns]
    cells = [[row[i] for i in columns] for row in table_rows]
    lines = _align_columns(words, cells, None) if width is None else _fit_columns(words, cells, width)
    return "\n".join([*lines, *(f"[{number}] {place}" for place, number in places.items())])


def _fit_columns(words: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    for widest in (None, *_CELL_WIDTHS):
        lines = _align_columns(words, cells, widest)
        if max(map(len, lines)) <= width:
            return lines
    return _format_blocks(words, cells, width)


def _align_columns(words: Sequence[str], rows: Sequence[Sequence[str]], widest: int | None) -> list[str]:
    cells = [[_wrap_cell(cell, widest) for cell in row] for row in rows]
    widths = [
        max([len(word), *(len(line) for row in cells for line in row[at])]) for at, word in enumerate(words)
    ]
    lines = [_join_cells(words, widths)]
    for wrapped in cells:
        for at in range(max(map(len, wrapped))):
            lines.append(_join_cells([cell[at] if at < len(cell) else "" for cell in wrapped], widths))
    return lines


def _format_blocks(words: Sequence[str], rows: Sequence[Sequence[str]], line: int) -> list[str]:
    width = max(map(len, words))
    line = max(line, 2 * width + 4)  # of a terminal that is narrower than that nothing can be made
    lines = []
    for row in rows:
        lines.append(f"{words[0]} {row[0]}")
        for word, cell in zip(words[1:], row[1:], strict=True):
            if cell:
                lines += textwrap.wrap(
                    cell,
                    line,
                    initial_indent=f"  {word:{width}}  ",
                    subsequent_indent=" " * (width + 4),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return lines


def rows_as_json(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Return each row with the header's words as keys."""
    keys = [word.replace(" ", "_") for word in header]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _wrap_cell(cell: str, widest: int | None) -> list[str]:
    if widest is None:
        return [cell]
    return textwrap.wrap(cell, widest, break_long_words=False, break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """Return how many characters a line of stdout has; None when it goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _join_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

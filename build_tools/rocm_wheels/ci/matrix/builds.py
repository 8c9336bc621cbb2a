"""What cells share: a checkout, a Python, a build, a set of wheels.

In the layout ``per-family`` each cell is a build, with a set for each family of a line; in ``multi-arch`` the
cells of a Python are one build, for the targets of all of them, and a line has one set. Tests are of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from rocm_wheels.ci.matrix.cells import BuiltCell
from rocm_wheels.model.ci import MULTI_ARCH
from rocm_wheels.model.project import Platform

K = TypeVar("K", bound=Hashable)
_TESTED_APART = "each family is tested by itself"


def combine_builds(cells: Iterable[BuiltCell]) -> list[BuiltCell]:
    """Return what is built as one, in the order of the cells.

    Where that is all families of a Python, ``multi-arch`` stands in the place of the family, and the build
    has no tests: each of its cells has its own.
    """
    return [
        _combine_group(group) for group in group_cells(cells, lambda built_cell: built_cell.build).values()
    ]


def line_key(built_cell: BuiltCell) -> tuple[str, Platform]:
    """Return what a lock and a checkout are for: line and platform."""
    return built_cell.cell.line, built_cell.cell.platform


def python_key(built_cell: BuiltCell) -> tuple[str, Platform, str]:
    """Return what wheels for every family are for: line, platform and Python."""
    return *line_key(built_cell), built_cell.cell.python


def set_key(built_cell: BuiltCell) -> tuple[str, Platform, str]:
    """Return what a set of wheels is for: line, platform, and a family or ``multi-arch``."""
    return *line_key(built_cell), built_cell.staged_as


def group_cells(cells: Iterable[BuiltCell], key: Callable[[BuiltCell], K]) -> dict[K, list[BuiltCell]]:
    """Return cells by what they share."""
    groups: dict[K, list[BuiltCell]] = {}
    for built_cell in cells:
        groups.setdefault(key(built_cell), []).append(built_cell)
    return groups


def collect_targets(cells: Iterable[BuiltCell]) -> tuple[str, ...]:
    """Return the targets of all cells."""
    return tuple(dict.fromkeys(target for built_cell in cells for target in built_cell.targets))


def find_uneven_sets(cells: Iterable[BuiltCell]) -> list[str]:
    """Return what to say of each Python that lacks targets which others of its set have.

    A set wants each Python for all of its targets: without some it is not complete, and its gate holds it.
    """
    messages = []
    together = group_cells((built_cell for built_cell in cells if built_cell.layout == MULTI_ARCH), set_key)
    for (line, platform, name), group in together.items():
        for python, mine in group_cells(group, lambda built_cell: built_cell.cell.python).items():
            if lacking := [
                target for target in collect_targets(group) if target not in collect_targets(mine)
            ]:
                messages.append(
                    f"{name} of torch {line} on {platform}: Python {python} without {', '.join(lacking)},"
                    " which other Pythons have: its gate holds it; exclude the family for every Python"
                )
    return messages


def _combine_group(group: list[BuiltCell]) -> BuiltCell:
    first = group[0]
    if first.build == first.cell:
        return first
    targets = collect_targets(group)
    return replace(first, cell=first.build, targets=targets, tests=(), tester="", untested=_TESTED_APART)

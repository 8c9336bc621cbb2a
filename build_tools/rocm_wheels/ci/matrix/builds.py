"""What cells share: a checkout, a Python, a build, a set of wheels.

In the layout ``per-family`` each cell is a build, with a set for each family of a line; in ``multi-arch`` the
cells of a Python are one build, for the targets of all of them, and a line has one set. Tests are of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import TypeVar

from rocm_wheels.ci.matrix.cells import Built
from rocm_wheels.model.ci import MULTI_ARCH
from rocm_wheels.model.project import Platform

K = TypeVar("K", bound=Hashable)
_APART = "each family is tested by itself"


def builds(cells: Iterable[Built]) -> list[Built]:
    """Return what is built as one, in the order of the cells.

    Where that is all families of a Python, ``multi-arch`` stands in the place of the family, and the build
    has no tests: each of its cells has its own.
    """
    return [_together(group) for group in grouped(cells, lambda one: one.build).values()]


def by_line(one: Built) -> tuple[str, Platform]:
    """Return what a lock and a checkout are for: line and platform."""
    return one.cell.line, one.cell.platform


def by_python(one: Built) -> tuple[str, Platform, str]:
    """Return what wheels for every family are for: line, platform and Python."""
    return *by_line(one), one.cell.python


def by_set(one: Built) -> tuple[str, Platform, str]:
    """Return what a set of wheels is for: line, platform, and a family or ``multi-arch``."""
    return *by_line(one), one.staged_as


def grouped(cells: Iterable[Built], key: Callable[[Built], K]) -> dict[K, list[Built]]:
    """Return cells by what they share."""
    found: dict[K, list[Built]] = {}
    for one in cells:
        found.setdefault(key(one), []).append(one)
    return found


def targets_of(cells: Iterable[Built]) -> tuple[str, ...]:
    """Return the targets of all cells."""
    return tuple(dict.fromkeys(target for one in cells for target in one.targets))


def uneven(cells: Iterable[Built]) -> list[str]:
    """Return what to say of each Python that lacks targets which others of its set have.

    A set wants each Python for all of its targets: without some it is not complete, and its gate holds it.
    """
    said = []
    together = grouped((one for one in cells if one.layout == MULTI_ARCH), by_set)
    for (line, platform, name), group in together.items():
        for python, mine in grouped(group, lambda one: one.cell.python).items():
            if lacking := [target for target in targets_of(group) if target not in targets_of(mine)]:
                said.append(
                    f"{name} of torch {line} on {platform}: Python {python} without {', '.join(lacking)},"
                    " which other Pythons have: its gate holds it; exclude the family for every Python"
                )
    return said


def _together(group: list[Built]) -> Built:
    first = group[0]
    if first.build == first.cell:
        return first
    targets = targets_of(group)
    return replace(first, cell=first.build, targets=targets, tests=(), tester="", untested=_APART)

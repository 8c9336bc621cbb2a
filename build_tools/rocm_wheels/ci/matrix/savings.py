"""What it saves to do once what cells share, against building each cell from nothing.

- a lock and a checkout, hipified, for each torch line and platform
- the wheels that serve every family (triton, torchaudio) for each Python of them
- one cell of each of them first: it fills the compiler cache with the host's code for the others
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocm_wheels.ci.matrix.cells import Built
from rocm_wheels.ci.matrix.costs import (
    CHECKOUT,
    ROCM,
    TOOLS,
    Prices,
    companions,
    is_shared,
    projects_on,
    shared_before,
)
from rocm_wheels.model.project import Platform, Project

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Saving:
    """A kind of work: how often and for how many builder hours, each cell alone, and shared."""

    what: str
    times_alone: int
    hours_alone: float
    times: int
    hours: float


def savings(cells: Sequence[Built], prices: Prices) -> list[Saving]:
    """Return what is saved, for each kind of work in the order of the pipeline."""
    rows = [_once_a_line(CHECKOUT, cells, prices)]
    rows.extend(_installed(name, cells, prices) for name in (ROCM, TOOLS))
    named = {project.name: project for one in cells for project in _projects(one)}
    for name, project in named.items():
        mine = [one for one in cells if project in _projects(one)]
        shared = [one for one in mine if is_shared(project, one.cell.platform)]
        rows.append(_once_a_python(name, shared, prices) if shared else _warmed(name, mine, prices))
    return rows


def first_cells(cells: Iterable[Built], prices: Prices) -> list[Built]:
    """Return the cells that warm the cache for others of their line and platform: the cheapest of each."""
    return [
        min(group, key=lambda one: (prices.cell(one).hours, str(one.cell)))
        for group in grouped(cells, by_line).values()
    ]


def by_line(one: Built) -> tuple[str, Platform]:
    """Return what a lock and a checkout are for: line and platform."""
    return one.cell.line, one.cell.platform


def by_python(one: Built) -> tuple[str, Platform, str]:
    """Return what wheels for every family are for: line, platform and Python."""
    return *by_line(one), one.cell.python


def grouped(cells: Iterable[Built], key: Callable[[Built], K]) -> dict[K, list[Built]]:
    """Return cells by what they share."""
    found: dict[K, list[Built]] = {}
    for one in cells:
        found.setdefault(key(one), []).append(one)
    return found


def targets_of(cells: Iterable[Built]) -> tuple[str, ...]:
    """Return the targets of all cells."""
    return tuple(dict.fromkeys(target for one in cells for target in one.targets))


def _projects(one: Built) -> Sequence[Project]:
    return projects_on(one.cell.platform, one.cell.line)


def _alone(name: str, cells: Sequence[Built], prices: Prices) -> float:
    return sum(prices.step(name, len(one.targets), one.cell.platform).hours for one in cells)


def _once_a_line(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    lines = grouped(cells, by_line)
    hours = sum(prices.step(name, 0, platform).hours for _, platform in lines)
    return Saving(name, len(cells), _alone(name, cells, prices), len(lines), hours)


def _installed(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    """Each cell is built on a machine of its own: what is installed there is installed each time, and once
    more for the wheels that are shared: before any torch is there, and after."""
    alone, times, more = _alone(name, cells, prices), len(cells), 0.0
    for shared in (shared_before, companions):
        with_shared = [one for one in cells if shared(one.cell.platform, one.cell.line)]
        for key, group in grouped(with_shared, by_python).items():
            times += 1
            more += prices.step(name, len(targets_of(group)), key[1]).hours
    return Saving(name, len(cells), alone, times, alone + more)


def _once_a_python(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    pythons = grouped(cells, by_python)
    hours = sum(prices.step(name, len(targets_of(group)), key[1]).hours for key, group in pythons.items())
    return Saving(name, len(cells), _alone(name, cells, prices), len(pythons), hours)


def _warmed(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    first = {one.cell for one in first_cells(cells, prices)}
    hours = sum(
        prices.step(name, len(one.targets), one.cell.platform, warm=one.cell not in first).hours
        for one in cells
    )
    return Saving(name, len(cells), _alone(name, cells, prices), len(cells), hours)

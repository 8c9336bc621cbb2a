"""What it saves to do once what cells share, against building each cell from nothing.

- a lock and a checkout, hipified, for each torch line and platform
- the wheels that serve every family (triton, torchaudio) for each Python of them
- all families of a Python, where they are one build (``multi-arch``)
- one build of a line and platform first: it fills the compiler cache for the others, with the host's code,
  and with that of GPUs for those that have the same targets
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocm_wheels.ci.matrix.builds import builds, by_line, by_python, grouped, targets_of
from rocm_wheels.ci.matrix.cells import Built
from rocm_wheels.ci.matrix.costs import (
    CHECKOUT,
    ROCM,
    TOOLS,
    Prices,
    Warm,
    companions,
    is_shared,
    projects_on,
    shared_before,
)
from rocm_wheels.model.project import Project


@dataclass(frozen=True)
class Saving:
    """A kind of work: how often and for how many builder hours, each cell alone, and shared."""

    what: str
    times_alone: int
    hours_alone: float
    times: int
    hours: float


def savings(cells: Sequence[Built], prices: Prices) -> list[Saving]:
    """Return what is saved, for each kind of work in the order of the pipeline.

    Alone is each family by itself; shared, what several are built as where they are built as one.
    """
    rows = [_once_a_line(CHECKOUT, cells, prices)]
    rows.extend(_installed(name, cells, prices) for name in (ROCM, TOOLS))
    named = {project.name: project for one in cells for project in _projects(one)}
    for name, project in named.items():
        mine = [one for one in cells if project in _projects(one)]
        shared = [one for one in mine if is_shared(project, one.cell.platform)]
        rows.append(_once_a_python(name, shared, prices) if shared else _warmed(name, mine, prices))
    return rows


def first_cells(cells: Iterable[Built], prices: Prices) -> list[Built]:
    """Return the builds that warm the cache for others of their line and platform: the cheapest of each."""
    return [
        min(group, key=lambda one: (prices.cell(one).hours, str(one.cell)))
        for group in grouped(builds(cells), by_line).values()
    ]


def _projects(one: Built) -> Sequence[Project]:
    return projects_on(one.cell.platform, one.cell.line)


def _alone(name: str, cells: Sequence[Built], prices: Prices) -> float:
    return sum(prices.step(name, len(one.targets), one.cell.platform).hours for one in cells)


def _once_a_line(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    lines = grouped(cells, by_line)
    hours = sum(prices.step(name, 0, platform).hours for _, platform in lines)
    return Saving(name, len(cells), _alone(name, cells, prices), len(lines), hours)


def _installed(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    """Each build has a machine of its own: what is installed there is installed each time, and once more
    for the wheels that are shared: before any torch is there, and after."""
    machines = builds(cells)
    times, hours = len(machines), _alone(name, machines, prices)
    for shared in (shared_before, companions):
        with_shared = [one for one in cells if shared(one.cell.platform, one.cell.line)]
        for key, group in grouped(with_shared, by_python).items():
            times += 1
            hours += prices.step(name, len(targets_of(group)), key[1]).hours
    return Saving(name, len(cells), _alone(name, cells, prices), times, hours)


def _once_a_python(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    pythons = grouped(cells, by_python)
    hours = sum(prices.step(name, len(targets_of(group)), key[1]).hours for key, group in pythons.items())
    return Saving(name, len(cells), _alone(name, cells, prices), len(pythons), hours)


def _warmed(name: str, cells: Sequence[Built], prices: Prices) -> Saving:
    first = {by_line(one): one for one in first_cells(cells, prices)}
    done = builds(cells)
    hours = sum(
        prices.step(name, len(one.targets), one.cell.platform, warm=_warmth(one, first[by_line(one)])).hours
        for one in done
    )
    return Saving(name, len(cells), _alone(name, cells, prices), len(done), hours)


def _warmth(one: Built, first: Built) -> Warm:
    if one.cell == first.cell:
        return "no"
    return "for its GPUs" if one.targets == first.targets else "for the host"

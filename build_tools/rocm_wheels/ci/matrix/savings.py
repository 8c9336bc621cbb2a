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

from rocm_wheels.ci.matrix.builds import combine_builds, line_key, python_key, group_cells, collect_targets
from rocm_wheels.ci.matrix.cells import BuiltCell
from rocm_wheels.ci.matrix.costs import (
    CHECKOUT_STEP,
    INSTALL_ROCM_STEP,
    INSTALL_TOOLS_STEP,
    Prices,
    CacheWarmth,
    list_companions,
    is_shared_wheel,
    list_line_projects,
    list_shared_before_torch,
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


def compute_savings(cells: Sequence[BuiltCell], prices: Prices) -> list[Saving]:
    """Return what is saved, for each kind of work in the order of the pipeline.

    Alone is each family by itself; shared, what several are built as where they are built as one.
    """
    rows = [_make_line_saving(CHECKOUT_STEP, cells, prices)]
    rows.extend(_make_install_saving(name, cells, prices) for name in (INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP))
    named = {project.name: project for built_cell in cells for project in _list_projects(built_cell)}
    for name, project in named.items():
        mine = [built_cell for built_cell in cells if project in _list_projects(built_cell)]
        shared = [built_cell for built_cell in mine if is_shared_wheel(project, built_cell.cell.platform)]
        rows.append(
            _make_python_saving(name, shared, prices) if shared else _make_cache_saving(name, mine, prices)
        )
    return rows


def choose_first_builds(cells: Iterable[BuiltCell], prices: Prices) -> list[BuiltCell]:
    """Return the builds that warm the cache for others of their line and platform: the cheapest of each."""
    return [
        min(group, key=lambda build: (prices.price_cell(build).hours, str(build.cell)))
        for group in group_cells(combine_builds(cells), line_key).values()
    ]


def _list_projects(built_cell: BuiltCell) -> Sequence[Project]:
    return list_line_projects(built_cell.cell.platform, built_cell.cell.line)


def _sum_hours_alone(name: str, cells: Sequence[BuiltCell], prices: Prices) -> float:
    return sum(
        prices.price_step(name, len(built_cell.targets), built_cell.cell.platform).hours
        for built_cell in cells
    )


def _make_line_saving(name: str, cells: Sequence[BuiltCell], prices: Prices) -> Saving:
    lines = group_cells(cells, line_key)
    hours = sum(prices.price_step(name, 0, platform).hours for _, platform in lines)
    return Saving(name, len(cells), _sum_hours_alone(name, cells, prices), len(lines), hours)


def _make_install_saving(name: str, cells: Sequence[BuiltCell], prices: Prices) -> Saving:
    """Each build has a machine of its own: what is installed there is installed each time, and once more
    for the wheels that are shared: before any torch is there, and after."""
    machines = combine_builds(cells)
    times, hours = len(machines), _sum_hours_alone(name, machines, prices)
    for shared in (list_shared_before_torch, list_companions):
        with_shared = [
            built_cell for built_cell in cells if shared(built_cell.cell.platform, built_cell.cell.line)
        ]
        for key, group in group_cells(with_shared, python_key).items():
            times += 1
            hours += prices.price_step(name, len(collect_targets(group)), key[1]).hours
    return Saving(name, len(cells), _sum_hours_alone(name, cells, prices), times, hours)


def _make_python_saving(name: str, cells: Sequence[BuiltCell], prices: Prices) -> Saving:
    pythons = group_cells(cells, python_key)
    hours = sum(
        prices.price_step(name, len(collect_targets(group)), key[1]).hours for key, group in pythons.items()
    )
    return Saving(name, len(cells), _sum_hours_alone(name, cells, prices), len(pythons), hours)


def _make_cache_saving(name: str, cells: Sequence[BuiltCell], prices: Prices) -> Saving:
    first = {line_key(build): build for build in choose_first_builds(cells, prices)}
    done = combine_builds(cells)
    hours = sum(
        prices.price_step(
            name, len(build.targets), build.cell.platform, warm=_choose_warmth(build, first[line_key(build)])
        ).hours
        for build in done
    )
    return Saving(name, len(cells), _sum_hours_alone(name, cells, prices), len(done), hours)


def _choose_warmth(build: BuiltCell, first: BuiltCell) -> CacheWarmth:
    if build.cell == first.cell:
        return "no"
    return "for its GPUs" if build.targets == first.targets else "for the host"

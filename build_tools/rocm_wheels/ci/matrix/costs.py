"""What cells cost: machine hours and disk of a build, GPU hours of its tests.

As recorded runs tell, else as ``data/estimates.yaml`` and ``data/ci.yaml`` state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rocm_wheels.ci.matrix.cells import BuiltCell, find_line
from rocm_wheels.machine import MachineResources
from rocm_wheels.model.ci import CiTable
from rocm_wheels.model.estimates import get_step_costs
from rocm_wheels.model.names import list_project_names
from rocm_wheels.model.project import Platform, Project, sort_projects, load_project
from rocm_wheels.pipeline.estimates import Estimate, History, estimate_step

CacheWarmth = Literal["no", "for the host", "for its GPUs"]
CHECKOUT_STEP, INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP = "checkout", "install-rocm", "install-tools"
_HOUR_SECONDS = 3600
_GIB = 1 << 30
_AMPLE_MEMORY = (
    1 << 50
)  # memory: what a builder has is not stated, and the table's cores are meant to be used


@dataclass(frozen=True)
class CellCost:
    """Hours of a builder, GiB of its disk, hours of a GPU; ``sources`` say what they come from."""

    hours: float = 0.0
    disk: float = 0.0
    gpu_hours: float = 0.0
    sources: tuple[str, ...] = ()

    def __add__(self, other: CellCost) -> CellCost:
        """Return both together."""
        return CellCost(
            self.hours + other.hours,
            self.disk + other.disk,
            self.gpu_hours + other.gpu_hours,
            tuple(dict.fromkeys((*self.sources, *other.sources))),
        )


def sum_costs(costs: Iterable[CellCost]) -> CellCost:
    """Return what all cost together."""
    return sum(costs, CellCost())


@dataclass(frozen=True)
class Prices:
    """What things cost on the builders of the table, by recorded runs where there are some."""

    table: CiTable
    history: History

    def price_cell(self, built: BuiltCell) -> CellCost:
        """Return what a cell costs that is built alone, with nothing from a cache."""
        platform, targets = built.cell.platform, len(built.targets)
        projects = list_line_projects(platform, built.cell.line)
        names = [
            CHECKOUT_STEP,
            INSTALL_ROCM_STEP,
            INSTALL_TOOLS_STEP,
            *(project.name for project in projects),
        ]
        return sum_costs(self.price_step(name, targets, platform) for name in names) + self.price_tests(built)

    def price_tests(self, built: BuiltCell) -> CellCost:
        """Return what the tests of a cell take of a GPU."""
        minutes = [self.table.tests[test] for test in built.tests]
        return CellCost(gpu_hours=sum(entry.minutes for entry in minutes) / 60)

    def price_step(
        self, name: str, targets: int, platform: Platform, *, warm: CacheWarmth = "no"
    ) -> CellCost:
        """Return what a step costs. ``warm``: a compiler cache has the host's code, and that for its GPUs.

        One compile is for all targets: a cache answers it where it has the same ones.
        """
        expected = self._estimate_step(name, targets, platform)
        hours = expected.seconds / _HOUR_SECONDS
        if warm != "no":
            device = warm == "for its GPUs" and platform == "linux"  # elsewhere the host's code alone is kept
            hours *= 1 - self._saved_share(name, targets, platform, targets if device else 0)
        return CellCost(hours, expected.disk / _GIB, 0.0, (f"{name}: {expected.source}",))

    def stated_size(self, built: BuiltCell) -> float:
        """Return the stated size of the wheels of a build, with what it shares with others, in bytes."""
        wheels = [
            get_step_costs(entry.name).wheel
            for entry in list_line_projects(built.cell.platform, built.cell.line)
        ]
        return sum(entry.get_bytes(len(built.targets)) for entry in wheels if entry is not None)

    def _saved_share(self, name: str, targets: int, platform: Platform, cached_targets: int) -> float:
        """Return the share of a step's time that a warm cache saves, with the code of ``cached_targets`` targets.

        A recorded run is divided as the stated figures are.
        """
        time, jobs = get_step_costs(name).time, self.table.platforms[platform].cores
        whole = time.get_serial_seconds() + time.get_core_seconds(targets) / jobs
        return (
            time.get_core_seconds(cached_targets) / jobs * self.table.cache.compiles / whole if whole else 0.0
        )

    def _estimate_step(self, name: str, targets: int, platform: Platform) -> Estimate:
        cores = self.table.platforms[platform].cores
        return estimate_step(
            name, targets, MachineResources(cores, _AMPLE_MEMORY, _AMPLE_MEMORY), self.history, jobs=cores
        )


@lru_cache
def list_buildable_projects(platform: Platform) -> Sequence[Project]:
    """Return the recipes that can be built on a platform, in the order of their builds."""
    ordered = sort_projects(load_project(name) for name in list_project_names())
    return [project for project in ordered if platform in project.build.platforms]


@lru_cache
def list_line_projects(platform: Platform, line: str) -> Sequence[Project]:
    """Return the recipes that are built of a torch line on a platform, in the order of their builds."""
    row = find_line(line)
    return [
        project for project in list_buildable_projects(platform) if not row.leaves_out(project.name, platform)
    ]


def list_shared_before_torch(platform: Platform, line: str) -> list[Project]:
    """Return what is built once for all families before any torch is there."""
    before: list[Project] = []
    for project in list_line_projects(platform, line):  # in the order of their builds
        if is_shared_wheel(project, platform) and {*project.build.needs} <= {
            earlier.name for earlier in before
        }:
            before.append(project)
    return before


def list_companions(platform: Platform, line: str) -> list[Project]:
    """Return what is built once for all families against the torch of one."""
    before = list_shared_before_torch(platform, line)
    return [
        project
        for project in list_line_projects(platform, line)
        if is_shared_wheel(project, platform) and project not in before
    ]


def is_shared_wheel(project: Project, platform: Platform) -> bool:
    """Tell whether a wheel is built once for every family: one serves all, and no family's own needs it.

    triton has no device code, torchaudio that of all families (``build.across_families``).
    """
    users = [other for other in list_buildable_projects(platform) if project.name in other.build.needs]
    return project.serves_every_family(platform) and all(is_shared_wheel(other, platform) for other in users)

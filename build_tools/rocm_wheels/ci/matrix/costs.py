"""What cells cost: machine hours and disk of a build, GPU hours of its tests.

As recorded runs tell, else as ``data/estimates.yaml`` and ``data/ci.yaml`` state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rocm_wheels.ci.matrix.cells import Built, line_named
from rocm_wheels.machine import Machine
from rocm_wheels.model.ci import CiTable
from rocm_wheels.model.estimates import costs_of
from rocm_wheels.model.names import project_names
from rocm_wheels.model.project import Platform, Project, build_order, load_project
from rocm_wheels.pipeline.estimates import Estimate, History, estimate

Warm = Literal["no", "for the host", "for its GPUs"]
CHECKOUT, ROCM, TOOLS = "checkout", "install-rocm", "install-tools"
_HOUR = 3600
_GIB = 1 << 30
_AMPLE = 1 << 50  # memory: what a builder has is not stated, and the table's cores are meant to be used


@dataclass(frozen=True)
class Cost:
    """Hours of a builder, GiB of its disk, hours of a GPU; ``sources`` say what they come from."""

    hours: float = 0.0
    disk: float = 0.0
    gpu_hours: float = 0.0
    sources: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Return both together."""
        return Cost(
            self.hours + other.hours,
            self.disk + other.disk,
            self.gpu_hours + other.gpu_hours,
            tuple(dict.fromkeys((*self.sources, *other.sources))),
        )


def all_of(costs: Iterable[Cost]) -> Cost:
    """Return what all cost together."""
    return sum(costs, Cost())


@dataclass(frozen=True)
class Prices:
    """What things cost on the builders of the table, by recorded runs where there are some."""

    table: CiTable
    history: History

    def cell(self, built: Built) -> Cost:
        """Return what a cell costs that is built alone, with nothing from a cache."""
        platform, targets = built.cell.platform, len(built.targets)
        projects = projects_on(platform, built.cell.line)
        names = [CHECKOUT, ROCM, TOOLS, *(project.name for project in projects)]
        return all_of(self.step(name, targets, platform) for name in names) + self.tests(built)

    def tests(self, built: Built) -> Cost:
        """Return what the tests of a cell take of a GPU."""
        minutes = [self.table.tests[test] for test in built.tests]
        return Cost(gpu_hours=sum(one.minutes for one in minutes) / 60)

    def step(self, name: str, targets: int, platform: Platform, *, warm: Warm = "no") -> Cost:
        """Return what a step costs. ``warm``: a compiler cache has the host's code, and that for its GPUs.

        One compile is for all targets: a cache answers it where it has the same ones.
        """
        found = self._estimate(name, targets, platform)
        hours = found.seconds / _HOUR
        if warm != "no":
            device = warm == "for its GPUs" and platform == "linux"  # elsewhere the host's code alone is kept
            hours *= 1 - self._saved(name, targets, platform, targets if device else 0)
        return Cost(hours, found.disk / _GIB, 0.0, (f"{name}: {found.source}",))

    def size(self, built: Built) -> float:
        """Return the stated size of the wheels of a build, with what it shares with others, in bytes."""
        wheels = [costs_of(one.name).wheel for one in projects_on(built.cell.platform, built.cell.line)]
        return sum(one.bytes(len(built.targets)) for one in wheels if one is not None)

    def _saved(self, name: str, targets: int, platform: Platform, known: int) -> float:
        """Return the share of a step's time that a warm cache saves, with the code of ``known`` targets.

        A recorded run is divided as the stated figures are.
        """
        time, jobs = costs_of(name).time, self.table.platforms[platform].cores
        whole = time.serial() + time.work(targets) / jobs
        return time.work(known) / jobs * self.table.cache.compiles / whole if whole else 0.0

    def _estimate(self, name: str, targets: int, platform: Platform) -> Estimate:
        cores = self.table.platforms[platform].cores
        return estimate(name, targets, Machine(cores, _AMPLE, _AMPLE), self.history, jobs=cores)


@lru_cache
def built_on(platform: Platform) -> Sequence[Project]:
    """Return the recipes that can be built on a platform, in the order of their builds."""
    known = build_order(load_project(name) for name in project_names())
    return [project for project in known if platform in project.build.platforms]


@lru_cache
def projects_on(platform: Platform, line: str) -> Sequence[Project]:
    """Return the recipes that are built of a torch line on a platform, in the order of their builds."""
    row = line_named(line)
    return [project for project in built_on(platform) if not row.leaves_out(project.name, platform)]


def shared_before(platform: Platform, line: str) -> list[Project]:
    """Return what is built once for all families before any torch is there."""
    before: list[Project] = []
    for project in projects_on(platform, line):  # in the order of their builds
        if is_shared(project, platform) and {*project.build.needs} <= {one.name for one in before}:
            before.append(project)
    return before


def companions(platform: Platform, line: str) -> list[Project]:
    """Return what is built once for all families against the torch of one."""
    before = shared_before(platform, line)
    return [one for one in projects_on(platform, line) if is_shared(one, platform) and one not in before]


def is_shared(project: Project, platform: Platform) -> bool:
    """Tell whether a wheel is built once for every family: one serves all, and no family's own needs it.

    triton has no device code, torchaudio that of all families (``build.across_families``).
    """
    users = [other for other in built_on(platform) if project.name in other.build.needs]
    return project.serves_every_family(platform) and all(is_shared(other, platform) for other in users)

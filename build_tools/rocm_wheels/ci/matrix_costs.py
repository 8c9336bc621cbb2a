"""What cells cost: machine hours and disk of a build, GPU hours of its tests, and what sharing saves.

As recorded runs tell, else as ``data/estimates.yaml`` and ``data/ci.yaml`` state. Shared are:

- a lock and a checkout, hipified, for each torch line and platform
- the wheels that serve every family (triton, torchaudio) for each Python of them
- all families of a Python, where they are one build (``multi-arch``)
- the compiler cache: one build of a line and platform comes first and fills it for the others, with the
  host's code, and with that of GPUs for those that have the same targets

What GitHub holds a workflow to (jobs of a matrix, hours of a job, disk) is here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from rocm_wheels.ci.matrix import (
    BuiltCell,
    MatrixCell,
    collect_targets,
    combine_builds,
    find_line,
    group_cells,
    line_key,
    python_key,
)
from rocm_wheels.compile import can_cache_device_code
from rocm_wheels.core import MachineResources, UsageError
from rocm_wheels.models import (
    HOSTED_RUNNER,
    CiTable,
    Platform,
    Project,
    ShortTest,
    get_step_costs,
    list_projects,
)
from rocm_wheels.pipeline import Estimate, History, estimate_step

_SHORT_TESTS: tuple[ShortTest, ...] = get_args(ShortTest)
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
        short = sum(self.table.tests[test].minutes for test in list_short_tests(built)) / 60
        return CellCost(gpu_hours=short + sum(self.table.suites[suite.name].hours for suite in built.suites))

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
        """Return the share of a step's time that a warm cache saves, with the code of ``cached_targets``
        targets.

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


def list_short_tests(built: BuiltCell) -> list[ShortTest]:
    """Return the tests of a cell that its first job on a GPU runs."""
    return [test for test in _SHORT_TESTS if test in built.tests]


@lru_cache
def list_buildable_projects(platform: Platform) -> Sequence[Project]:
    """Return the recipes that can be built on a platform, in the order of their builds."""
    return [project for project in list_projects() if platform in project.build.platforms]


@lru_cache
def list_line_projects(platform: Platform, line: str) -> Sequence[Project]:
    """Return the recipes that are built of a torch line on a platform, in the order of their builds."""
    row = find_line(line)
    return [project for project in list_buildable_projects(platform) if not row.leaves_out(project, platform)]


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
    keeps_device_code = build.targets == first.targets and can_cache_device_code(
        build.rocm, build.cell.platform
    )
    return "for its GPUs" if keeps_device_code else "for the host"


_GB = 10**9
_TOOL_BYTES = 2 * _GB  # of a disk, beside wheels: our files and what they need
_SIZE_MARGIN = 1.5  # times what wheels are stated to take
_TIME_MARGIN = 2.0  # a job may take so many times what is expected of it


def require_single_matrix(table: CiTable, rows: int) -> None:
    """Raise UsageError when a matrix has more jobs than GitHub makes of one."""
    most = table.limits.matrix_jobs
    if rows > most.value:
        where = table.sources[most.source].url
        raise UsageError(
            f"{rows} rows, and a matrix of GitHub has at most {most.value} jobs ({where})",
            tip="one line and platform at a time: `--rows lines` lists them, --line and --platform choose",
        )


def limit_minutes(table: CiTable, hours: float, *, hosted: bool) -> int:
    """Return how long a job may take: twice what is expected, and no longer than GitHub lets it."""
    return min(int(hours * 60 * _TIME_MARGIN) + 30, limit_hours(table, hosted=hosted) * 60)


def limit_hours(table: CiTable, *, hosted: bool) -> int:
    """Return the hours after which GitHub ends a job."""
    return (table.limits.hosted_job_hours if hosted else table.limits.own_job_hours).value


def choose_stager(table: CiTable, size: float, own_label: str) -> str:
    """Return the label of what stages so many bytes: GitHub's machine, if its disk will do, else
    ``own_label``.
    """
    fits = size * _SIZE_MARGIN + _TOOL_BYTES <= table.limits.hosted_disk_gb.value * _GB
    return HOSTED_RUNNER if fits else own_label


def find_long_builds(cells: Sequence[BuiltCell], prices: Prices) -> list[str]:
    """Return a line for each line of torch and platform of which a build takes longer than a job may."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for build in combine_builds(cells):
        key, hours = (build.cell.line, build.cell.platform), prices.price_cell(build).hours
        worst[key] = max(worst.get(key, (0.0, "")), (hours, str(build.cell)))
    messages = []
    for (_, platform), (hours, cell) in worst.items():
        machines = prices.table.platforms["windows" if platform == "windows" else "linux"]
        most = limit_hours(prices.table, hosted=machines.hosted)
        if hours > most:
            messages.append(
                f"{cell} takes {hours:.1f} h on {machines.cores} cores, and a job ends after {most} h:"
                " more cores, fewer targets, or a job for each step of its plan (`rocm-wheels run-step`)"
            )
    return messages


def describe_absent_projects(cells: Iterable[MatrixCell]) -> list[str]:
    """Return what to say of each project that torch lines have on other platforms only: nobody builds it."""
    lines: dict[tuple[str, Platform], list[str]] = {}
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        for project in list_buildable_projects(platform):
            if find_line(name).leaves_out(project, platform):
                lines.setdefault((project.name, platform), []).append(name)
    return [
        f"{platform}: torch {', '.join(names)} without {project}, which release_lines.yaml has elsewhere only"
        for (project, platform), names in lines.items()
    ]


def describe_unplaced_projects(cells: Iterable[MatrixCell]) -> list[str]:
    """Return what to say of each torch line and platform that lacks the place of a project."""
    messages = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line = find_line(name)
        lacking = [
            project.name
            for project in list_line_projects(platform, name)
            if line.get_checkout(project, platform) is None
        ]
        if lacking:
            messages.append(
                f"torch {name} on {platform} has no place to check out {', '.join(lacking)} from:"
                " there is no lock unless the torch tree pins it, or `rocm-wheels lock` is told"
            )
    return messages

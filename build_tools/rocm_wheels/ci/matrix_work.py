"""What a build of the matrix does, what it shares with others, and how long a job may take.

By what ``data/estimates.yaml`` and recipes state. Shared are:

- a lock and a checkout, hipified, for each torch line and platform
- the wheels that serve every family (triton, torchaudio) for each Python of them
- all families of a Python, where they are one build (``multi-arch``)
- the compiler cache: one build of a line and platform comes first and fills it for the others

What GitHub holds a workflow to (jobs of a matrix, hours of a job, disk) is here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import get_args

from rocm_wheels.ci import matrix
from rocm_wheels.core import errors
from rocm_wheels.models import ci, project_names
from rocm_wheels.models.project import Project, get_step_costs, list_projects

_SHORT_TESTS: tuple[ci.ShortTest, ...] = get_args(ci.ShortTest)
CHECKOUT_STEP, INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP = "checkout", "install-rocm", "install-tools"
_HOUR_SECONDS = 3600


def estimate_hours(
    table: ci.CiTable, names: Iterable[str], targets: int, platform: project_names.Platform
) -> float:
    """Return the hours of steps for so many targets on a builder, as stated, with nothing from a cache."""
    cores, seconds = table.platforms[platform].cores, 0.0
    for name in names:
        time = get_step_costs(name).time
        seconds += time.get_serial_seconds() + time.get_core_seconds(targets) / cores
    return seconds / _HOUR_SECONDS


def estimate_build_hours(table: ci.CiTable, build: matrix.BuiltCell) -> float:
    """Return the hours of a build that does all by itself."""
    platform = build.cell.platform
    projects = [project.name for project in list_line_projects(platform, build.cell.line)]
    names = [CHECKOUT_STEP, INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP, *projects]
    return estimate_hours(table, names, len(build.targets), platform)


def get_stated_size(built: matrix.BuiltCell) -> float:
    """Return the stated size of the wheels of a build, with what it shares with others, in bytes."""
    wheels = [
        get_step_costs(entry.name).wheel for entry in list_line_projects(built.cell.platform, built.cell.line)
    ]
    return sum(entry.get_bytes(len(built.targets)) for entry in wheels if entry is not None)


def list_short_tests(built: matrix.BuiltCell) -> list[ci.ShortTest]:
    """Return the tests of a cell that its first job on a GPU runs."""
    return [test for test in _SHORT_TESTS if test in built.tests]


@lru_cache
def list_buildable_projects(platform: project_names.Platform) -> Sequence[Project]:
    """Return the recipes that can be built on a platform, in the order of their builds."""
    return [project for project in list_projects() if platform in project.build.platforms]


@lru_cache
def list_line_projects(platform: project_names.Platform, line: str) -> Sequence[Project]:
    """Return the recipes that are built of a torch line on a platform, in the order of their builds."""
    row = matrix.find_line(line)
    return [project for project in list_buildable_projects(platform) if not row.leaves_out(project, platform)]


def list_shared_before_torch(platform: project_names.Platform, line: str) -> list[Project]:
    """Return what is built once for all families before any torch is there."""
    before: list[Project] = []
    for project in list_line_projects(platform, line):  # in the order of their builds
        if is_shared_wheel(project, platform) and {*project.build.needs} <= {
            earlier.name for earlier in before
        }:
            before.append(project)
    return before


def list_companions(platform: project_names.Platform, line: str) -> list[Project]:
    """Return what is built once for all families against the torch of one."""
    before = list_shared_before_torch(platform, line)
    return [
        project
        for project in list_line_projects(platform, line)
        if is_shared_wheel(project, platform) and project not in before
    ]


def is_shared_wheel(project: Project, platform: project_names.Platform) -> bool:
    """Tell whether a wheel is built once for every family: one serves all, and no family's own needs it.

    triton has no device code, torchaudio that of all families (``build.across_families``).
    """
    users = [other for other in list_buildable_projects(platform) if project.name in other.build.needs]
    return project.serves_every_family(platform) and all(is_shared_wheel(other, platform) for other in users)


def choose_first_builds(cells: Iterable[matrix.BuiltCell], table: ci.CiTable) -> list[matrix.BuiltCell]:
    """Return the builds that warm the cache for others of their line and platform: the cheapest of each."""
    return [
        min(group, key=lambda build: (estimate_build_hours(table, build), str(build.cell)))
        for group in matrix.group_cells(matrix.combine_builds(cells), matrix.line_key).values()
    ]


_GB = 10**9
_TOOL_BYTES = 2 * _GB  # of a disk, beside wheels: our files and what they need
_SIZE_MARGIN = 1.5  # times what wheels are stated to take
_TIME_MARGIN = 2.0  # a job may take so many times what is expected of it


def require_single_matrix(table: ci.CiTable, rows: int) -> None:
    """Raise UsageError when a matrix has more jobs than GitHub makes of one."""
    most = table.limits.matrix_jobs
    if rows > most.value:
        where = table.sources[most.source].url
        raise errors.UsageError(
            f"{rows} rows, and a matrix of GitHub has at most {most.value} jobs ({where})",
            tip="one line and platform at a time: `--rows lines` lists them, --line and --platform choose",
        )


def limit_minutes(table: ci.CiTable, hours: float, *, hosted: bool) -> int:
    """Return how long a job may take: twice what is expected, and no longer than GitHub lets it."""
    return min(int(hours * 60 * _TIME_MARGIN) + 30, limit_hours(table, hosted=hosted) * 60)


def limit_hours(table: ci.CiTable, *, hosted: bool) -> int:
    """Return the hours after which GitHub ends a job."""
    return (table.limits.hosted_job_hours if hosted else table.limits.own_job_hours).value


def choose_stager(table: ci.CiTable, size: float, own_label: str) -> str:
    """Return the label of what stages so many bytes: GitHub's machine, if its disk will do, else
    ``own_label``.
    """
    fits = size * _SIZE_MARGIN + _TOOL_BYTES <= table.limits.hosted_disk_gb.value * _GB
    return ci.HOSTED_RUNNER if fits else own_label


def find_long_builds(cells: Sequence[matrix.BuiltCell], table: ci.CiTable) -> list[str]:
    """Return a line for each line of torch and platform of which a build takes longer than a job may."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for build in matrix.combine_builds(cells):
        key, hours = (build.cell.line, build.cell.platform), estimate_build_hours(table, build)
        worst[key] = max(worst.get(key, (0.0, "")), (hours, str(build.cell)))
    messages = []
    for (_, platform), (hours, cell) in worst.items():
        machines = table.platforms["windows" if platform == "windows" else "linux"]
        most = limit_hours(table, hosted=machines.hosted)
        if hours > most:
            messages.append(
                f"{cell} takes {hours:.1f} h on {machines.cores} cores, and a job ends after {most} h:"
                " more cores, fewer targets, or a job for each step of its plan (`rocm-wheels run-step`)"
            )
    return messages


def describe_absent_projects(cells: Iterable[matrix.MatrixCell]) -> list[str]:
    """Return what to say of each project that torch lines have on other platforms only: nobody builds it."""
    lines: dict[tuple[str, project_names.Platform], list[str]] = {}
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        for project in list_buildable_projects(platform):
            if matrix.find_line(name).leaves_out(project, platform):
                lines.setdefault((project.name, platform), []).append(name)
    return [
        f"{platform}: torch {', '.join(names)} without {project}, which release_lines.yaml has elsewhere only"
        for (project, platform), names in lines.items()
    ]


def describe_unplaced_projects(cells: Iterable[matrix.MatrixCell]) -> list[str]:
    """Return what to say of each torch line and platform that lacks the place of a project."""
    messages = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line = matrix.find_line(name)
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

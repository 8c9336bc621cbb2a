"""What GitHub holds a workflow to: jobs of a matrix, hours of a job."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.ci.matrix.builds import combine_builds
from rocm_wheels.ci.matrix.cells import BuiltCell
from rocm_wheels.ci.matrix.costs import Prices
from rocm_wheels.errors import UsageError
from rocm_wheels.model.ci import HOSTED_RUNNER, CiTable

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
            tip="one line and platform at a time: `--rows lines` lists them, --lines and --platform choose",
        )


def limit_minutes(table: CiTable, hours: float, *, hosted: bool) -> int:
    """Return how long a job may take: twice what is expected, and no longer than GitHub lets it."""
    return min(int(hours * 60 * _TIME_MARGIN) + 30, limit_hours(table, hosted=hosted) * 60)


def limit_hours(table: CiTable, *, hosted: bool) -> int:
    """Return the hours after which GitHub ends a job."""
    return (table.limits.hosted_job_hours if hosted else table.limits.own_job_hours).value


def choose_stager(table: CiTable, size: float, own_label: str) -> str:
    """Return the label of what stages so many bytes: GitHub's machine, if its disk will do, else ``own_label``."""
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

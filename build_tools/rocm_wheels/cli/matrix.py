"""``matrix``: what CI builds and tests, and why not the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command, output
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci import matrix, matrix_report

_MOST_FILES = 5

# which cells: families × Pythons × torch lines × platforms
_selection_options = catalogue.takes(
    command.option(
        "--trigger",
        default="nightly",
        show_default=True,
        metavar="T",
        help="presubmit, postsubmit, nightly or release.",
    ),
    catalogue.FAMILIES.but(
        envvar="ROCM_WHEELS_FAMILIES",
        metavar="F,…",
        help="These GPU families [default: those of the trigger].",
    ),
    catalogue.PYTHON_VERSIONS.but(
        envvar="ROCM_WHEELS_PYTHONS", help="These Pythons, as 3.12 or 3.14t [default: those of the trigger]."
    ),
    catalogue.LINE.but(
        name="lines",
        envvar="ROCM_WHEELS_LINES",
        metavar="L,…",
        help="These torch lines, as 2.13 or nightly [default: those of the trigger].",
    ),
    catalogue.PLATFORM.but(envvar="ROCM_WHEELS_PLATFORM", help="Only this platform [default: both]."),
    catalogue.LAYOUT.but(
        envvar="ROCM_WHEELS_LAYOUT",
        help="Wheels for each family, or one set for all [default: the trigger's].",
    ),
    catalogue.PACKAGING.but(
        envvar="ROCM_WHEELS_PACKAGING",
        type=click.Choice(project_names.MATRIX_PACKAGINGS),
        help="How sets are packaged: host and device wheels, fat, or as the layout; or built with asan"
        " [default: the trigger's].",
    ),
    catalogue.ROCM.but(
        name="rocm_version",
        envvar="ROCM_WHEELS_ROCM_VERSION",
        help="Version of ROCm [default: the newest that AMD has for each line].",
    ),
)


@command.command(
    "matrix",
    apart=[
        ("--rows", "--json"),
        ("--rows", "--explain"),
        ("--explain", "--since"),
        ("--explain", "--cheapest"),
    ],
)
@_selection_options
@command.option(
    "--since", metavar="REF", help="Only what is affected by files that changed since this commit."
)
@command.option(
    "--cheapest",
    is_flag=True,
    help="Only one cell of each line and platform: the cheapest tested one, else the cheapest.",
)
@command.option(
    "--rows",
    "kinds",
    multiple=True,
    type=click.Choice(project_names.ROW_KINDS),
    help="Print rows for `fromJSON` in a workflow, one for each line (lock, checkout), set of wheels, Python"
    " (what families share before there is a torch; companions: after it), build (cells; first: those that go"
    " first, others: the rest), tested cell, or shard of torch's own tests of such a cell. In a workflow it"
    " also sets each as an output of the step, and NAME_count.",
)
@command.option(
    "--explain", metavar="CELL", help="Explain why this cell is built or not: gfx94X-dcgpu/3.12/2.13/linux."
)
@catalogue.JSON
def matrix_command(
    since: str | None,
    cheapest: bool,
    kinds: tuple[project_names.RowKind, ...],
    explain: str | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Show what CI builds and tests: families × Pythons × torch lines × platforms.

    The rules are in data/ci.yaml; every cell that is left out has a reason. Rows for GitHub have a time limit
    for each job, twice its expected time. ROCM_WHEELS_FAMILIES, _PYTHONS, _LINES, _PLATFORM, _LAYOUT,
    _PACKAGING, _ROCM_VERSION set options that are not given, unless empty. ROCM_WHEELS_SUITES names suites of
    torch's own tests for every cell, in place of those whose turn it is. ROCM_WHEELS_RUNNERS names machines
    for one purpose (oem, sandbox); only these test then. ROCM_WHEELS_DATE (YYYY-MM-DD) decides whose turn it
    is, in place of today (UTC).

    \b
    Examples:
      rocm-wheels matrix --trigger nightly
      rocm-wheels matrix --trigger presubmit --since HEAD~1 --rows lines
    """
    from rocm_wheels.ci import matrix, matrix_report
    from rocm_wheels.core import workspace
    from rocm_wheels.models import ci

    table, selection = ci.load_ci_table(), _make_selection(**selected)
    if explain is not None:
        document, lines = matrix_report.explain_cell(table, selection, explain)
        output.print_result(document, ["\n  ".join(lines)], as_json=as_json)
        return

    changes: list[matrix_report.ChangedFile] | None = None
    if since is not None:
        paths = matrix_report.list_changed_since(workspace.get_project_home(), since)
        changes = matrix_report.classify_changes(table, paths)
    planned = matrix.plan_matrix(table, matrix_report.widen_selection(table, selection, changes or ()))
    cells = list(planned.built)
    if changes is not None:
        cells = matrix_report.find_affected_cells(cells, changes)
    if cheapest:
        cells = matrix.choose_cheapest(cells, table, tested=True)
    if kinds:
        env = boundary.read_environment()
        matrix_report.require_output_file(env)  # a job without them would run nothing, and pass
        matrix_report.set_outputs(env, _print_rows(planned, cells, tuple(dict.fromkeys(kinds))))
        return

    warnings = matrix.list_warnings(cells, table)
    notes, _ = matrix.describe_projects(built_cell.cell for built_cell in cells)
    if as_json:
        document = {**matrix_report.matrix_as_json(planned, cells), "warnings": warnings, "notes": notes}
        if changes is not None:
            document["changes"] = changes
        output.print_result(document, (), as_json=True)
        return
    click.echo(matrix_report.format_cells(cells, width=tables.get_output_width()))
    if fewer := len(planned.built) - len(cells):
        why = ["the change has nothing to do with them"] if changes is not None else []
        why += ["another stands for them"] if cheapest else []
        count = tables.format_count(fewer, "cell")
        click.echo(f"{count} of the selection need not be built: {', or '.join(why)}")
    if planned.excluded:
        click.echo(matrix_report.format_excluded(planned.excluded))
    for warning in warnings:
        log.log_warning(warning)
    subjects: dict[str, list[str]] = {}
    for change in changes or ():
        on = f" of torch {change.line}" if change.line else ""
        subjects.setdefault(f"{change.project or change.what}{on}", []).append(change.path)
    for subject, files in subjects.items():
        more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
        notes.append(f"{subject}: {', '.join(files[:_MOST_FILES])}{more}")
    for note in notes:
        log.log_note(note)


def _make_selection(*, platform: Any, rocm_version: str | None, **selected: Any) -> Any:
    from datetime import datetime, timezone

    from rocm_wheels.ci import matrix
    from rocm_wheels.models import gfx

    env = boundary.read_environment()
    selected["suites"] = env.get("ROCM_WHEELS_SUITES") or None
    pool = env.get("ROCM_WHEELS_RUNNERS", "")
    day = datetime.now(timezone.utc)
    if text := env.get("ROCM_WHEELS_DATE"):
        try:
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)
        except ValueError:
            raise errors.UsageError(
                f"ROCM_WHEELS_DATE={text!r} is no day", tip="such as 2026-11-28"
            ) from None
    for name in ("families", "pythons", "lines", "suites"):
        text = selected[name]
        words = gfx.split_target_words(text or "")
        if name != "families":  # these are read as --gfx reads them
            words = (text or "").replace(",", " ").replace(";", " ").split()
        if text is not None and not words:
            raise click.UsageError(f"an empty list of {name} says nothing: leave the option out")
        selected[name] = tuple(dict.fromkeys(words))
    return matrix.MatrixSelection(
        platforms=(platform,) if platform else (), rocm=rocm_version, pool=pool, day=day.date(), **selected
    )


def _print_rows(
    planned: matrix.Matrix, cells: matrix.Cells, kinds: Sequence[project_names.RowKind]
) -> dict[str, str]:
    """Print rows of each kind as what `fromJSON` reads; return them as outputs of a step.

    Rows of lines say the day: who plans a line later, maybe after midnight, passes it on (ROCM_WHEELS_DATE).
    Raises UsageError for more rows than GitHub takes.
    """
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.models import ci

    outputs: dict[str, str] = {}
    for kind in kinds:
        rows = matrix_report.make_rows(cells, ci.load_ci_table(), kind)
        if kind == "lines":
            rows = [{**row, "date": str(planned.selection.day)} for row in rows]
        outputs |= {kind: matrix_report.format_github_matrix(rows), f"{kind}_count": str(len(rows))}
        click.echo(outputs[kind])
        if not rows:
            log.log_note(
                f"no row of {kind}: a job of this matrix must not be started (GitHub fails an empty one)"
            )
            if kind == "tested" and cells:
                log.log_warning(f"nothing is tested: {'; '.join(dict.fromkeys(c.untested for c in cells))}")
    return outputs

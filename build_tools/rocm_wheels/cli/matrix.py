"""``matrix``: what CI builds and tests, and why not the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, catalogue, command, output
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci import matrix, matrix_report

_MOST_FILES = 5
# what rows of a kind say nothing of: an option that is about nothing else is refused
_UNTOLD_BY_ROWS = {
    "suites": {"lines", "pythons", "companions"},
    "day": {"pythons", "companions"},
    "layout": {"torch_tested"},
    "packaging": {"torch_tested"},
    "rocm_version": {"torch_tested"},
}

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
        help="Wheels for each family, or one set of them for all together [default: as the trigger has it].",
    ),
    catalogue.PACKAGING.but(
        envvar="ROCM_WHEELS_PACKAGING",
        type=click.Choice(project_names.MATRIX_PACKAGINGS),
        help="How sets are packaged: host and device wheels, fat, or as the layout [default: as the"
        " trigger has it].",
    ),
    catalogue.ROCM.but(
        name="rocm_version",
        envvar="ROCM_WHEELS_ROCM_VERSION",
        help="Another ROCm than the newest that AMD has with each line.",
    ),
    catalogue.SUITE.but(
        name="suites",
        envvar="ROCM_WHEELS_SUITES",
        metavar="S,…",
        help="These suites of torch's own tests, of every cell [default: those whose turn it is].",
    ),
    command.option(
        "--date",
        "day",
        envvar="ROCM_WHEELS_DATE",
        type=click.DateTime(["%Y-%m-%d"]),
        metavar="YYYY-MM-DD",
        help="The day by which Pythons, families and suites take turns [default: today, UTC].",
    ),
)


@command.command("matrix")
@_selection_options
@command.option(
    "--changed", multiple=True, metavar="PATH", help="Only what a change of this file has to do with."
)
@command.option(
    "--since", metavar="REF", help="Only what the files have to do with that changed since this commit."
)
@command.option(
    "--cheapest",
    is_flag=True,
    help="Only one cell of each line and platform, which stands for others: the cheapest that is tested,"
    " or that there is.",
)
@command.option(
    "--rows",
    "kinds",
    multiple=True,
    type=click.Choice(project_names.ROW_KINDS),
    help="With --format github: a row a line (lock, checkout), a set of wheels, a Python (what families"
    " share, before there is a torch; companions: after), a build (cells; of them those that go first, the"
    " others), a cell that is tested, or a shard of torch's own tests of such a cell.  [default: lines]",
)
@command.option("--require-rows", is_flag=True, help="With --rows: fail where one of these kinds has no row.")
@command.option(
    "--format",
    "form",
    type=click.Choice(["table", "github"]),
    default="table",
    show_default=True,
    help="For people, or for `fromJSON` in a workflow.",
)
@catalogue.OUTPUTS.but(
    help="With --format github: set outputs of the step (GITHUB_OUTPUT), for each of --rows its name and"
    " its name with _count."
)
@command.option(
    "--explain", metavar="CELL", help="Why this cell is built or not: gfx94X-dcgpu/3.12/2.13/linux."
)
@catalogue.JSON
def matrix_command(  # noqa: PLR0917 - click passes them by name
    changed: tuple[str, ...],
    since: str | None,
    cheapest: bool,
    kinds: tuple[project_names.RowKind, ...],
    require_rows: bool,
    form: str,
    outputs: bool,
    explain: str | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Say what CI builds and tests: families × Pythons × torch lines × platforms.

    Policy is data/ci.yaml; every cell that is left out has a reason. Rows for GitHub have a limit of time for
    each job, twice what it is expected to take. ROCM_WHEELS_FAMILIES, _PYTHONS, _LINES, _PLATFORM, _LAYOUT,
    _PACKAGING, _ROCM_VERSION, _SUITES, _DATE stand for options that are not given; empty, they say nothing.

    \b
    Examples:
      rocm-wheels matrix --trigger nightly
      rocm-wheels matrix --trigger presubmit --changed repos/pytorch.yaml --format github
    """
    from rocm_wheels.ci import matrix, matrix_report
    from rocm_wheels.core import workspace
    from rocm_wheels.models import ci

    if as_json and form != "table":
        raise errors.UsageError(f"--json and --format {form} exclude each other")
    if explain is not None and (form == "github" or changed or since is not None or cheapest):
        raise click.UsageError(
            "--explain is about one cell: no --format github, --changed, --since, --cheapest"
        )
    if form != "github" and (kinds or require_rows or outputs):
        raise click.UsageError("--rows, --require-rows and --outputs go with --format github")
    kinds = tuple(dict.fromkeys(kinds)) or ("lines",)
    if form == "github":
        _refuse_untold_options({*kinds})
    table, selection = ci.load_ci_table(), _make_selection(**selected)
    if explain is not None:
        document, lines = matrix_report.explain_cell(table, selection, explain)
        output.print_result(document, ["\n  ".join(lines)], as_json=as_json)
        return

    changes: list[matrix_report.ChangedFile] | None = None
    if changed or since is not None:
        home = workspace.get_project_home()
        paths = matrix_report.check_named_files(home, changed)
        paths += matrix_report.list_changed_since(home, since) if since is not None else []
        changes = matrix_report.classify_changes(table, dict.fromkeys(paths))
    planned = matrix.plan_matrix(table, matrix_report.widen_selection(table, selection, changes or ()))
    cells = list(planned.built)
    if changes is not None:
        cells = matrix_report.find_affected_cells(cells, changes)
    if cheapest:
        cells = matrix.choose_cheapest(cells, table, tested=True)
    if form == "github":
        texts = _print_rows(planned, cells, kinds, required=require_rows)
        if outputs:
            matrix_report.set_outputs(boundary.read_environment(), texts)
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


def _refuse_untold_options(kinds: set[project_names.RowKind]) -> None:
    """Raise click's UsageError for an option of the command line that is nowhere in rows of these kinds."""
    context = click.get_current_context()
    for name, without in _UNTOLD_BY_ROWS.items():
        if kinds <= without and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param.opts[0] for param in context.command.params if param.name == name)
            raise click.UsageError(f"{option} changes nothing in rows of {', '.join(sorted(kinds))}")


def _make_selection(*, platform: Any, rocm_version: str | None, day: Any, **selected: Any) -> Any:
    from datetime import datetime, timezone

    from rocm_wheels.ci import matrix
    from rocm_wheels.models import gfx

    for name in ("families", "pythons", "lines", "suites"):
        text = selected[name]
        words = gfx.split_target_words(text or "")
        if name != "families":  # these are read as --gfx reads them
            words = (text or "").replace(",", " ").replace(";", " ").split()
        if text is not None and not words:
            raise click.UsageError(f"an empty list of {name} says nothing: leave the option out")
        selected[name] = tuple(dict.fromkeys(words))
    return matrix.MatrixSelection(
        platforms=(platform,) if platform else (),
        rocm=rocm_version,
        day=(day or datetime.now(timezone.utc)).date(),
        **selected,
    )


def _print_rows(
    planned: matrix.Matrix,
    cells: matrix.Cells,
    kinds: Sequence[project_names.RowKind],
    *,
    required: bool,
) -> dict[str, str]:
    """Print rows of each kind as what `fromJSON` reads; return them as outputs of a step.

    Rows of lines say the day: who plans a line later, maybe after midnight, passes it on (--date).
    Raises UsageError for more rows than GitHub takes, ChecksError for none of a kind where they are required.
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
        if rows:
            continue
        log.log_note(
            f"no row of {kind}: a job of this matrix must not be started (GitHub fails an empty one)"
        )
        reasons = "; ".join(dict.fromkeys(cell.untested for cell in cells)) if kind == "tested" else ""
        if required:
            raise errors.ChecksError(
                f"no row of {kind}: {reasons or 'nothing is chosen'}",
                tip="`rocm-wheels matrix` lists what is built and tested, and why not the rest",
            )
        if reasons:
            log.log_warning(f"nothing is tested: {reasons}")
    return outputs

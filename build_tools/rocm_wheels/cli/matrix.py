"""``matrix``: what CI builds and tests, and why not the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import project_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from rocm_wheels.ci import matrix_report
    from rocm_wheels.ci.matrix import BuiltCell, Matrix, MatrixSelection
    from rocm_wheels.models import ci


def check_output_names(kinds: Sequence[matrix_report.RowKind], names: Sequence[str]) -> None:
    """Raise UsageError for kinds of rows of which not each has a name, or two have one."""
    if len(kinds) > 1 and not names:
        raise click.UsageError("several --rows are for outputs of a step: give an --output for each")
    if names and len(names) != max(len(kinds), 1):
        raise click.UsageError(
            f"{len(names)} --output and {max(len(kinds), 1)} --rows: one for each, in order"
        )
    if len({*names}) != len(names):
        raise click.UsageError("two --output have one name")


def print_github_rows(
    cells: Sequence[BuiltCell],
    table: ci.CiTable,
    kinds: Sequence[matrix_report.RowKind],
    touched: list[matrix_report.AffectedCell] | None,
    names: Sequence[str],
    *,
    day: date,
    required: bool,
) -> None:
    """Print rows of each kind as what `fromJSON` reads, and set them as outputs where they have names.

    Rows of lines say the ``day``: who plans a line later, maybe after midnight, passes it on (--date).
    Raises UsageError for more rows than GitHub takes, ChecksError for none of a kind where they are required.
    """
    from rocm_wheels.ci import matrix_report, matrix_work

    anew = _list_new_builds(touched or ())
    outputs: dict[str, str] = {}
    for number, kind in enumerate(kinds):
        rows = matrix_report.make_rows(cells, table, kind)
        if kind in {"cells", "first", "others", "tested", "torch_tested", "suites"} and touched is not None:
            rows = [{**row, "anew": anew[row["cell"]]} for row in rows]
        if kind == "lines":
            rows = [{**row, "date": str(day)} for row in rows]
        matrix_work.require_single_matrix(table, len(rows))
        text = matrix_report.format_github_matrix(rows)
        if names:
            outputs |= {names[number]: text, f"{names[number]}_count": str(len(rows))}
        click.echo(text)
        if not rows:
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
    if outputs:
        matrix_report.set_outputs(boundary.read_environment(), outputs)


def _list_new_builds(touched: Sequence[matrix_report.AffectedCell]) -> dict[str, str]:
    """Return the projects that must be built anew, by cells and by what these are built as."""
    projects_by_cell: dict[str, dict[str, None]] = {}
    for cell in touched:
        for name in {str(cell.built.cell), str(cell.built.build)}:
            projects_by_cell.setdefault(name, {}).update(dict.fromkeys(cell.projects))
    return {name: " ".join(projects) for name, projects in projects_by_cell.items()}


_MOST_FILES = 5


def print_cell(selection: MatrixSelection, text: str, *, as_json: bool) -> None:
    """Print why a cell is built or not, with every reason."""
    from rocm_wheels.ci import matrix_report, matrix_work
    from rocm_wheels.ci.matrix import (
        check_cell,
        check_selection,
        find_untested,
        list_exclusions,
        parse_cell,
        plan_matrix,
    )
    from rocm_wheels.models import ci

    table, cell = ci.load_ci_table(), parse_cell(text)
    check_cell(table, cell)
    chosen = check_selection(table, selection)
    against = list(list_exclusions(table, chosen, cell))
    built = next((entry for entry in plan_matrix(table, chosen).built if entry.cell == cell), None)
    without = [
        f"without {matrix_report.join_test_names(entry.tests)} tests: {entry.reason}"
        for entry in find_untested(table, cell)
    ]
    notes = (
        [
            *without,
            *matrix_work.describe_absent_projects([cell]),
            *matrix_work.describe_unplaced_projects([cell]),
        ]
        if built is not None
        else []
    )
    if as_json:
        reason_rows = [{"reason": entry.reason, "source": entry.source} for entry in against]
        document = {
            "cell": str(cell),
            "built": built is not None,
            "build": str(built.build) if built is not None else None,
            "reasons": reason_rows,
            "notes": notes,
        }
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(matrix_report.explain_cell(cell, built, against, selection.trigger, notes))


def print_json(
    matrix: Matrix,
    cells: Sequence[BuiltCell],
    table: ci.CiTable,
    changes: list[matrix_report.ChangedFile] | None,
) -> None:
    """Print everything as JSON, warnings too."""
    from dataclasses import asdict

    from rocm_wheels.ci import matrix_report, matrix_work

    document = matrix_report.matrix_as_json(matrix, cells)
    document["warnings"] = _list_warnings(cells, table)
    document["notes"] = matrix_work.describe_absent_projects(entry.cell for entry in cells)
    if changes is not None:
        document["changes"] = [asdict(entry) for entry in changes]
    click.echo(json.dumps(document, indent=1))


def print_table(
    matrix: Matrix,
    cells: Sequence[BuiltCell],
    table: ci.CiTable,
    changes: list[matrix_report.ChangedFile] | None,
    *,
    cheapest: bool,
) -> None:
    """Print the cells, and how many are left out for which reason; warn of what will not do."""
    from rocm_wheels.ci import matrix_report, matrix_work

    click.echo(matrix_report.format_cells(cells, width=tables.get_output_width()))
    if fewer := len(matrix.built) - len(cells):
        why = (
            ("the change has nothing to do with them", changes is not None),
            ("another stands for them", cheapest),
        )
        reasons = ", or ".join(text for text, on in why if on)
        click.echo(f"{tables.format_count(fewer, 'cell')} of the selection need not be built: {reasons}")
    if matrix.excluded:
        click.echo(matrix_report.format_excluded(matrix.excluded))
    for line in _list_warnings(cells, table):
        log.log_warning(line)
    for line in matrix_work.describe_absent_projects(cell.cell for cell in cells):
        log.log_note(line)
    print_changes(changes)


def _list_warnings(cells: Sequence[BuiltCell], table: ci.CiTable) -> list[str]:
    """Return what will not do."""
    from rocm_wheels.ci import matrix_work
    from rocm_wheels.ci.matrix import find_uneven_sets

    return [
        *matrix_work.find_long_builds(cells, table),
        *matrix_work.describe_unplaced_projects(cell.cell for cell in cells),
        *find_uneven_sets(cells),
    ]


def print_changes(changes: list[matrix_report.ChangedFile] | None) -> None:
    """Say what changed files have to do with."""
    if changes is None:
        return
    kinds: dict[str, list[str]] = {}
    for change in changes:
        on = f" of torch {change.line}" if change.line else ""
        kinds.setdefault(f"{change.project or change.what}{on}", []).append(change.path)
    for subject, paths in kinds.items():
        more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
        log.log_note(f"{subject}: {', '.join(paths[:_MOST_FILES])}{more}")


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
    command.option(
        "--line",
        "lines",
        envvar="ROCM_WHEELS_LINES",
        metavar="L,…",
        help="These torch lines, as 2.13 or nightly [default: those of the trigger].",
    ),
    catalogue.PLATFORM.but(envvar="ROCM_WHEELS_PLATFORM", help="Only this platform [default: both]."),
    command.option(
        "--layout",
        envvar="ROCM_WHEELS_LAYOUT",
        type=click.Choice(["per-family", "multi-arch"]),
        help="Wheels for each family, or one set of them for all together [default: as the trigger has it].",
    ),
    command.option(
        "--packaging",
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
    multiple=True,
    type=click.Choice(
        [
            *("cells", "first", "others", "tested", "torch_tested", "suites"),
            *("sets", "pythons", "companions", "lines"),
        ]
    ),
    help="With --format github: a row a build (cells; of them those that go first, the others), a cell that"
    " is tested, a shard (torch_tested) or a suite of torch's own tests of such a cell, a set of wheels, a"
    " Python (what families share, before there is a torch; companions: after) or a line (lock, checkout)"
    "  [default: cells].",
)
@command.option("--require-rows", is_flag=True, help="With --rows: fail where one of these kinds has no row.")
@command.option(
    "--format",
    "form",
    type=click.Choice(["table", "github", "json"]),
    default="table",
    show_default=True,
    help="For people, for `fromJSON` in a workflow, or everything as JSON.",
)
@command.option(
    "--github-output",
    "output",
    multiple=True,
    metavar="NAME",
    help="With --format github: set NAME and NAME_count as outputs of the step (GITHUB_OUTPUT); one for each"
    " of several --rows.",
)
@command.option(
    "--explain", metavar="CELL", help="Why this cell is built or not: gfx94X-dcgpu/3.12/2.13/linux."
)
@catalogue.JSON.but(help="The same as --format json.")
def matrix_command(  # noqa: PLR0917 - click passes them by name
    changed: tuple[str, ...],
    since: str | None,
    cheapest: bool,
    rows: tuple[matrix_report.RowKind, ...],
    require_rows: bool,
    form: str,
    output: tuple[str, ...],
    explain: str | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Say what CI builds and tests: families × Pythons × torch lines × platforms.

    Policy is data/ci.yaml; every cell that is left out has a reason. Rows for GitHub have a limit of time for
    each job, twice what it is expected to take. ROCM_WHEELS_FAMILIES, _PYTHONS, _LINES, _PLATFORM, _LAYOUT,
    _ROCM_VERSION, _SUITES and _DATE stand for options that are not given; empty, they say nothing.

    \b
    Examples:
      rocm-wheels matrix --trigger nightly
      rocm-wheels matrix --trigger presubmit --changed repos/pytorch.yaml --format github
    """
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.ci.matrix import plan_matrix
    from rocm_wheels.models import ci

    if as_json and form == "github":
        raise errors.UsageError("--json and --format github exclude each other")
    form = "json" if as_json else form
    if explain is not None and form == "github":
        raise click.UsageError("--explain and --format github exclude each other")
    if explain is not None:
        narrower = {"--changed": changed, "--since": since, "--cheapest": cheapest}
        _refuse_options(narrower, "with --explain, which is about one cell, there is no use for")
    if form != "github":
        _refuse_options(
            {"--github-output": output, "--rows": rows, "--require-rows": require_rows},
            "only --format github has a use for",
        )
    check_output_names(rows, output)
    table, selection = ci.load_ci_table(), _make_selection(**selected)
    if explain is not None:
        print_cell(selection, explain, as_json=form == "json")
        return
    changes = _find_changes(changed, since)
    matrix = plan_matrix(table, matrix_report.widen_selection(table, selection, changes or ()))
    touched = _find_affected(matrix, changes)
    cells = [entry.built for entry in touched] if touched is not None else list(matrix.built)
    if cheapest:
        cells = _choose_cheapest(cells, table)
    if form == "github":
        print_github_rows(
            cells, table, rows or ("cells",), touched, output, day=matrix.day, required=require_rows
        )
    elif form == "json":
        print_json(matrix, cells, table, changes)
    else:
        print_table(matrix, cells, table, changes, cheapest=cheapest)


def _make_selection(
    *,
    trigger: str,
    families: str | None,
    pythons: str | None,
    lines: str | None,
    platform: Any,
    layout: Any,
    packaging: Any,
    rocm_version: str | None,
    suites: str | None,
    day: datetime | None,
) -> MatrixSelection:
    from datetime import datetime, timezone

    from rocm_wheels.ci.matrix import MatrixSelection

    return MatrixSelection(
        trigger,
        families=_parse_list(families),
        pythons=_parse_list(pythons),
        lines=_parse_list(lines),
        platforms=(platform,) if platform else (),
        rocm=rocm_version,
        layout=layout,
        packaging=packaging,
        suites=_parse_list(suites),
        day=(day or datetime.now(timezone.utc)).date(),
    )


def _refuse_options(options: Mapping[str, object], why: str) -> None:
    if named := [name for name, value in options.items() if value not in {None, False, ()}]:
        raise click.UsageError(f"{why} {' and '.join(named)}")


def _parse_list(text: str | None) -> tuple[str, ...]:
    words = (text or "").replace(",", " ").replace(";", " ").split()
    if text is not None and not words:
        raise click.UsageError(
            "an empty list of families, Pythons, lines or suites says nothing: leave the option out"
        )
    return tuple(dict.fromkeys(words))


def _find_changes(changed: tuple[str, ...], since: str | None) -> list[matrix_report.ChangedFile] | None:
    from rocm_wheels.ci import matrix_report
    from rocm_wheels.core import workspace
    from rocm_wheels.models import ci

    if not changed and since is None:
        return None
    paths = [
        *matrix_report.check_named_files(workspace.get_project_home(), changed),
        *(matrix_report.list_changed_since(workspace.get_project_home(), since) if since is not None else ()),
    ]
    return matrix_report.classify_changes(ci.load_ci_table(), dict.fromkeys(paths))


def _find_affected(
    matrix: Matrix, changes: list[matrix_report.ChangedFile] | None
) -> list[matrix_report.AffectedCell] | None:
    from rocm_wheels.ci import matrix_report

    return None if changes is None else matrix_report.find_affected_cells(matrix.built, changes)


def _choose_cheapest(cells: Sequence[BuiltCell], table: ci.CiTable) -> list[BuiltCell]:
    from rocm_wheels.ci import matrix_report

    return matrix_report.choose_cheapest_cells(cells, table)

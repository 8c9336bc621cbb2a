"""``rocm-wheels matrix``: what CI builds and tests, why not the rest, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import matrix_text
from rocm_wheels.cli.option_lists import combine_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocm_wheels.ci.matrix import Matrix, MatrixSelection
    from rocm_wheels.ci.matrix.cells import BuiltCell
    from rocm_wheels.ci.matrix.changes import AffectedCell, ChangedFile
    from rocm_wheels.ci.matrix.costs import Prices
    from rocm_wheels.ci.matrix.rows import RowKind
    from rocm_wheels.pipeline.estimates import History


# which cells: families × Pythons × torch lines × platforms
_selection_options = combine_options(
    click.option(
        "--trigger",
        default="nightly",
        show_default=True,
        metavar="T",
        help="presubmit, postsubmit, nightly or release.",
    ),
    click.option(
        "--families",
        envvar="ROCM_WHEELS_FAMILIES",
        metavar="F,…",
        help="These GPU families [default: those of the trigger].",
    ),
    click.option(
        "--pythons",
        envvar="ROCM_WHEELS_PYTHONS",
        metavar="V,…",
        help="These Pythons, as 3.12 or 3.14t [default: those of the trigger].",
    ),
    click.option(
        "--lines",
        envvar="ROCM_WHEELS_LINES",
        metavar="L,…",
        help="These torch lines, as 2.13 or nightly [default: those of the trigger].",
    ),
    click.option(
        "--platform",
        envvar="ROCM_WHEELS_PLATFORM",
        type=click.Choice(["linux", "windows"]),
        help="Only this platform [default: both].",
    ),
    click.option(
        "--layout",
        envvar="ROCM_WHEELS_LAYOUT",
        type=click.Choice(["per-family", "multi-arch"]),
        help="Wheels for each family, or one set of them for all together [default: as the trigger has it].",
    ),
    click.option(
        "--rocm-version",
        envvar="ROCM_WHEELS_ROCM_VERSION",
        metavar="V",
        help="Another ROCm than the newest that AMD has with each line.",
    ),
)


@click.command("matrix")
@_selection_options
@click.option(
    "--changed", multiple=True, metavar="PATH", help="Only what a change of this file has to do with."
)
@click.option(
    "--since", metavar="REF", help="Only what the files have to do with that changed since this commit."
)
@click.option(
    "--cheapest",
    is_flag=True,
    help="Only one cell of each line and platform, which stands for others: the cheapest that is tested,"
    " or that there is.",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Take what steps cost from the runs of this work directory.",
)
@click.option(
    "--rows",
    multiple=True,
    type=click.Choice(
        ["cells", "first", "others", "tested", "torch_tested", "sets", "pythons", "companions", "lines"]
    ),
    help="With --format github: a row a build (cells; of them those that go first, the others), a cell that"
    " is tested (or by torch's own tests), a set of wheels, a Python (what families share, before there is a"
    " torch; companions: after) or a line (lock, checkout)  [default: cells].",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "github", "json"]),
    default="table",
    show_default=True,
    help="For people, for `fromJSON` in a workflow, or everything as JSON.",
)
@click.option(
    "--output",
    multiple=True,
    metavar="NAME",
    help="With --format github: set NAME and NAME_count as outputs of the step (GITHUB_OUTPUT); one for each"
    " of several --rows.",
)
@click.option(
    "--explain", metavar="CELL", help="Why this cell is built or not: gfx94X-dcgpu/3.12/2.13/linux."
)
@click.option("--savings", is_flag=True, help="What it saves to do once what cells share.")
def command(  # noqa: PLR0917 - click passes them by name
    changed: tuple[str, ...],
    since: str | None,
    cheapest: bool,
    runs: Path | None,
    rows: tuple[RowKind, ...],
    form: str,
    output: tuple[str, ...],
    explain: str | None,
    savings: bool,
    **selected: Any,
) -> None:
    """Say what CI builds and tests: families × Pythons × torch lines × platforms.

    Policy is data/ci.yaml; every cell that is left out has a reason. Hours are of a builder, as recorded runs
    (--runs) or the stated figures tell. ROCM_WHEELS_FAMILIES, _PYTHONS, _LINES, _PLATFORM, _LAYOUT and
    _ROCM_VERSION stand for options that are not given; empty, they say nothing.
    """
    from rocm_wheels.ci.matrix import plan_matrix
    from rocm_wheels.ci.matrix.changes import widen_selection
    from rocm_wheels.ci.matrix.costs import Prices
    from rocm_wheels.cli.matrix_rows import check_output_names, print_github_rows
    from rocm_wheels.model.ci import load_ci_table

    _refuse_conflicts(explain=explain is not None, savings=savings, github=form == "github")
    narrower = {"--changed": changed, "--since": since, "--cheapest": cheapest, "--runs": runs}
    if explain is not None:
        _refuse_options(narrower, "with --explain, which is about one cell, there is no use for")
    if form != "github":
        _refuse_options({"--output": output, "--rows": rows}, "only --format github has a use for")
    check_output_names(rows, output)
    table, selection = load_ci_table(), _make_selection(**selected)
    if explain is not None:
        matrix_text.print_cell(selection, explain, as_json=form == "json")
        return
    prices = Prices(table, _read_work_history(runs))
    changes = _find_changes(changed, since)
    matrix = plan_matrix(table, widen_selection(table, selection, changes or ()))
    touched = _find_affected(matrix, changes)
    cells = [entry.built for entry in touched] if touched is not None else list(matrix.built)
    if cheapest:
        cells = _choose_cheapest(cells, prices)
    if savings:
        matrix_text.print_savings(cells, prices, as_json=form == "json")
    elif form == "github":
        print_github_rows(cells, prices, rows or ("cells",), touched, output)
    elif form == "json":
        matrix_text.print_json(matrix, cells, prices, changes)
    else:
        matrix_text.print_table(matrix, cells, prices, changes, cheapest=cheapest)


def _make_selection(
    *,
    trigger: str,
    families: str | None,
    pythons: str | None,
    lines: str | None,
    platform: Any,
    layout: Any,
    rocm_version: str | None,
) -> MatrixSelection:
    from rocm_wheels.ci.matrix import MatrixSelection

    lists = _parse_list(families), _parse_list(pythons), _parse_list(lines)
    return MatrixSelection(trigger, *lists, (platform,) if platform else (), rocm_version, layout)


def _refuse_conflicts(**flags: bool) -> None:
    named = [{"github": "--format github"}.get(name, f"--{name}") for name, on in flags.items() if on]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other")


def _refuse_options(options: Mapping[str, object], why: str) -> None:
    if named := [name for name, value in options.items() if value not in {None, False, ()}]:
        raise click.UsageError(f"{why} {' and '.join(named)}")


def _read_work_history(work: Path | None) -> History:
    """Read the runs of a work directory. Raises UsageError where there are none: nothing would come of it."""
    from rocm_wheels.errors import UsageError
    from rocm_wheels.pipeline.estimates import History, read_history
    from rocm_wheels.workspace import Workspace

    if work is None:
        return History()
    history = read_history(Workspace(work).runs)
    if not history.steps:
        tip = "name the work directory of a build: .rocm-wheels, beside its checkouts unless told otherwise"
        raise UsageError(f"--runs: no step that was done is recorded in {Workspace(work).runs}", tip=tip)
    return history


def _parse_list(text: str | None) -> tuple[str, ...]:
    words = (text or "").replace(",", " ").replace(";", " ").split()
    if text is not None and not words:
        raise click.UsageError(
            "an empty list of families, Pythons or lines says nothing: leave the option out"
        )
    return tuple(dict.fromkeys(words))


def _find_changes(changed: tuple[str, ...], since: str | None) -> list[ChangedFile] | None:
    from rocm_wheels.ci.matrix.changed_files import list_changed_since, check_named_files
    from rocm_wheels.ci.matrix.changes import classify_changes
    from rocm_wheels.model.ci import load_ci_table
    from rocm_wheels.workspace import get_project_home

    if not changed and since is None:
        return None
    paths = [
        *check_named_files(get_project_home(), changed),
        *(list_changed_since(get_project_home(), since) if since is not None else ()),
    ]
    return classify_changes(load_ci_table(), dict.fromkeys(paths))


def _find_affected(matrix: Matrix, changes: list[ChangedFile] | None) -> list[AffectedCell] | None:
    from rocm_wheels.ci.matrix.changes import find_affected_cells

    return None if changes is None else find_affected_cells(matrix.built, changes)


def _choose_cheapest(cells: Sequence[BuiltCell], prices: Prices) -> list[BuiltCell]:
    from rocm_wheels.ci.matrix.changes import choose_cheapest_cells

    return choose_cheapest_cells(cells, prices)

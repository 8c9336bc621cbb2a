"""Rows of the matrix for GitHub: printed, and set as outputs of a step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci.matrix.cells import BuiltCell
    from rocm_wheels.ci.matrix.changes import AffectedCell
    from rocm_wheels.ci.matrix.costs import Prices
    from rocm_wheels.ci.matrix.rows import RowKind


def check_output_names(kinds: Sequence[RowKind], names: Sequence[str]) -> None:
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
    prices: Prices,
    kinds: Sequence[RowKind],
    touched: list[AffectedCell] | None,
    names: Sequence[str],
) -> None:
    """Print rows of each kind as what `fromJSON` reads, and set them as outputs where they have names.

    Raises UsageError for more rows than GitHub takes.
    """
    from rocm_wheels.ci.matrix.limits import require_single_matrix
    from rocm_wheels.ci.matrix.rows import make_rows
    from rocm_wheels.ci.outputs import set_outputs

    anew = _list_new_builds(touched or ())
    outputs: dict[str, str] = {}
    for number, kind in enumerate(kinds):
        rows = make_rows(cells, prices, kind)
        if kind in {"cells", "first", "others", "tested", "torch_tested"} and touched is not None:
            rows = [{**row, "anew": anew[row["cell"]]} for row in rows]
        require_single_matrix(prices.table, len(rows))
        text = json.dumps({"include": rows}, separators=(",", ":"))
        if names:
            outputs |= {names[number]: text, f"{names[number]}_count": str(len(rows))}
        click.echo(text)
        if not rows:
            log.log_note(
                f"no row of {kind}: a job of this matrix must not be started (GitHub fails an empty one)"
            )
    if outputs:
        set_outputs(read_environment(), outputs)


def _list_new_builds(touched: Sequence[AffectedCell]) -> dict[str, str]:
    """Return the projects that must be built anew, by cells and by what these are built as."""
    projects_by_cell: dict[str, dict[str, None]] = {}
    for cell in touched:
        for name in {str(cell.built.cell), str(cell.built.build)}:
            projects_by_cell.setdefault(name, {}).update(dict.fromkeys(cell.projects))
    return {name: " ".join(projects) for name, projects in projects_by_cell.items()}

"""What ``rocm-wheels matrix`` prints: tables for people, rows for GitHub, everything as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.words import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci.matrix import Matrix, MatrixSelection
    from rocm_wheels.ci.matrix.cells import BuiltCell
    from rocm_wheels.ci.matrix.changes import ChangedFile
    from rocm_wheels.ci.matrix.costs import Prices

_MOST_FILES = 5


def print_cell(selection: MatrixSelection, text: str, *, as_json: bool) -> None:
    """Print why a cell is built or not, with every reason."""
    from rocm_wheels.ci.matrix.cells import find_untested, plan_matrix, list_exclusions
    from rocm_wheels.ci.matrix.places import describe_absent_projects, describe_unplaced_projects
    from rocm_wheels.ci.matrix.selection import check_cell, check_selection, parse_cell
    from rocm_wheels.ci.matrix.shown import explain_cell, join_test_names
    from rocm_wheels.model.ci import load_ci_table

    table, cell = load_ci_table(), parse_cell(text)
    check_cell(table, cell)
    chosen = check_selection(table, selection)
    against = list(list_exclusions(table, chosen, cell))
    built = next((entry for entry in plan_matrix(table, chosen).built if entry.cell == cell), None)
    without = [
        f"without {join_test_names(entry.tests)} tests: {entry.reason}"
        for entry in find_untested(table, cell)
    ]
    notes = (
        [*without, *describe_absent_projects([cell]), *describe_unplaced_projects([cell])]
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
    click.echo(explain_cell(cell, built, against, selection.trigger, notes))


def print_savings(cells: Sequence[BuiltCell], prices: Prices, *, as_json: bool) -> None:
    """Print what it saves to do once what cells share."""
    from dataclasses import asdict

    from rocm_wheels.ci.matrix.savings import compute_savings
    from rocm_wheels.ci.matrix.shown import format_savings

    rows = compute_savings(cells, prices)
    if as_json:
        click.echo(json.dumps({"cells": len(cells), "work": [asdict(row) for row in rows]}, indent=1))
    else:
        click.echo(format_savings(rows, len(cells)))


def print_json(
    matrix: Matrix, cells: Sequence[BuiltCell], prices: Prices, changes: list[ChangedFile] | None
) -> None:
    """Print everything as JSON, warnings too."""
    from dataclasses import asdict

    from rocm_wheels.ci.matrix.places import describe_absent_projects
    from rocm_wheels.ci.matrix.shown import matrix_as_json

    document = matrix_as_json(matrix, cells, prices)
    document["warnings"] = _list_warnings(cells, prices)
    document["notes"] = describe_absent_projects(entry.cell for entry in cells)
    if changes is not None:
        document["changes"] = [asdict(entry) for entry in changes]
    click.echo(json.dumps(document, indent=1))


def print_table(
    matrix: Matrix,
    cells: Sequence[BuiltCell],
    prices: Prices,
    changes: list[ChangedFile] | None,
    *,
    cheapest: bool,
) -> None:
    """Print the cells, and how many are left out for which reason; warn of what will not do."""
    from rocm_wheels.ci.matrix.places import describe_absent_projects
    from rocm_wheels.ci.matrix.shown import format_cells, format_excluded

    click.echo(format_cells(cells, prices))
    if fewer := len(matrix.built) - len(cells):
        why = (
            ("the change has nothing to do with them", changes is not None),
            ("another stands for them", cheapest),
        )
        reasons = ", or ".join(text for text, on in why if on)
        click.echo(f"{format_count(fewer, 'cell')} of the selection need not be built: {reasons}")
    if matrix.excluded:
        click.echo(format_excluded(matrix.excluded))
    for line in _list_warnings(cells, prices):
        log.log_warning(line)
    for line in describe_absent_projects(cell.cell for cell in cells):
        log.log_note(line)
    print_changes(changes)


def _list_warnings(cells: Sequence[BuiltCell], prices: Prices) -> list[str]:
    """Return what will not do."""
    from rocm_wheels.ci.matrix.builds import find_uneven_sets
    from rocm_wheels.ci.matrix.limits import find_long_builds
    from rocm_wheels.ci.matrix.places import describe_unplaced_projects

    return [
        *find_long_builds(cells, prices),
        *describe_unplaced_projects(cell.cell for cell in cells),
        *find_uneven_sets(cells),
    ]


def print_changes(changes: list[ChangedFile] | None) -> None:
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

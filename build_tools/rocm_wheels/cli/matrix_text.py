"""What ``rocm-wheels matrix`` prints: tables for people, rows for GitHub, everything as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci.matrix import Matrix, Selection
    from rocm_wheels.ci.matrix.cells import Built
    from rocm_wheels.ci.matrix.changes import Change
    from rocm_wheels.ci.matrix.costs import Prices

_MOST_FILES = 5


def show_cell(selection: Selection, text: str, *, as_json: bool) -> None:
    """Print why a cell is built or not, with every reason."""
    from rocm_wheels.ci.matrix.cells import exceptions, plan_matrix, reasons
    from rocm_wheels.ci.matrix.places import absent, unplaced
    from rocm_wheels.ci.matrix.selection import check_cell, checked, parse_cell
    from rocm_wheels.ci.matrix.shown import explained, kinds_of
    from rocm_wheels.model.ci import ci_table

    table, cell = ci_table(), parse_cell(text)
    check_cell(table, cell)
    chosen = checked(table, selection)
    against = list(reasons(table, chosen, cell))
    built = next((one for one in plan_matrix(table, chosen).built if one.cell == cell), None)
    without = [f"without {kinds_of(one.tests)} tests: {one.reason}" for one in exceptions(table, cell)]
    notes = [*without, *absent([cell]), *unplaced([cell])] if built is not None else []
    if as_json:
        reasons_said = [{"reason": one.reason, "source": one.source} for one in against]
        said = {
            "cell": str(cell),
            "built": built is not None,
            "build": str(built.build) if built is not None else None,
            "reasons": reasons_said,
            "notes": notes,
        }
        click.echo(json.dumps(said, indent=1))
        return
    click.echo(explained(cell, built, against, selection.trigger, notes))


def show_savings(cells: Sequence[Built], prices: Prices, *, as_json: bool) -> None:
    """Print what it saves to do once what cells share."""
    from dataclasses import asdict

    from rocm_wheels.ci.matrix.savings import savings
    from rocm_wheels.ci.matrix.shown import savings_table

    found = savings(cells, prices)
    if as_json:
        click.echo(json.dumps({"cells": len(cells), "work": [asdict(one) for one in found]}, indent=1))
    else:
        click.echo(savings_table(found, len(cells)))


def show_json(matrix: Matrix, cells: Sequence[Built], prices: Prices, changes: list[Change] | None) -> None:
    """Print everything as JSON, warnings too."""
    from dataclasses import asdict

    from rocm_wheels.ci.matrix.places import absent
    from rocm_wheels.ci.matrix.shown import as_json

    said = as_json(matrix, cells, prices)
    said["warnings"] = _warnings(cells, prices)
    said["notes"] = absent(one.cell for one in cells)
    if changes is not None:
        said["changes"] = [asdict(one) for one in changes]
    click.echo(json.dumps(said, indent=1))


def show_table(
    matrix: Matrix, cells: Sequence[Built], prices: Prices, changes: list[Change] | None, *, cheapest: bool
) -> None:
    """Print the cells, and how many are left out for which reason; warn of what will not do."""
    from rocm_wheels.ci.matrix.places import absent
    from rocm_wheels.ci.matrix.shown import cells_table, left_table

    click.echo(cells_table(cells, prices))
    if fewer := len(matrix.built) - len(cells):
        why = (
            ("the change has nothing to do with them", changes is not None),
            ("another stands for them", cheapest),
        )
        said = ", or ".join(text for text, on in why if on)
        click.echo(f"{counted(fewer, 'cell')} of the selection need not be built: {said}")
    if matrix.left:
        click.echo(left_table(matrix.left))
    for line in _warnings(cells, prices):
        log.warn(line)
    for line in absent(one.cell for one in cells):
        log.note(line)
    show_changes(changes)


def _warnings(cells: Sequence[Built], prices: Prices) -> list[str]:
    """Return what will not do."""
    from rocm_wheels.ci.matrix.builds import uneven
    from rocm_wheels.ci.matrix.limits import too_long
    from rocm_wheels.ci.matrix.places import unplaced

    return [*too_long(cells, prices), *unplaced(one.cell for one in cells), *uneven(cells)]


def show_changes(changes: list[Change] | None) -> None:
    """Say what changed files have to do with."""
    if changes is None:
        return
    kinds: dict[str, list[str]] = {}
    for one in changes:
        on = f" of torch {one.line}" if one.line else ""
        kinds.setdefault(f"{one.project or one.what}{on}", []).append(one.path)
    for what, paths in kinds.items():
        more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
        log.note(f"{what}: {', '.join(paths[:_MOST_FILES])}{more}")

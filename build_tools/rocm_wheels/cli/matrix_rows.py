"""Rows of the matrix for GitHub: printed, and set as outputs of a step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.ci.matrix.cells import Built
    from rocm_wheels.ci.matrix.changes import Affected
    from rocm_wheels.ci.matrix.costs import Prices
    from rocm_wheels.ci.matrix.rows import Rows


def require_names(kinds: Sequence[Rows], names: Sequence[str]) -> None:
    """Raise UsageError for kinds of rows of which not each has a name, or two have one."""
    if len(kinds) > 1 and not names:
        raise click.UsageError("several --rows are for outputs of a step: give an --output for each")
    if names and len(names) != max(len(kinds), 1):
        raise click.UsageError(
            f"{len(names)} --output and {max(len(kinds), 1)} --rows: one for each, in order"
        )
    if len({*names}) != len(names):
        raise click.UsageError("two --output have one name")


def show_github(
    cells: Sequence[Built],
    prices: Prices,
    kinds: Sequence[Rows],
    touched: list[Affected] | None,
    names: Sequence[str],
) -> None:
    """Print rows of each kind as what `fromJSON` reads, and set them as outputs where they have names.

    Raises UsageError for more rows than GitHub takes.
    """
    from rocm_wheels.ci.matrix.limits import require_one_matrix
    from rocm_wheels.ci.matrix.rows import rows_of
    from rocm_wheels.ci.outputs import set_outputs

    anew = _anew(touched or ())
    outputs: dict[str, str] = {}
    for number, kind in enumerate(kinds):
        found = rows_of(cells, prices, kind)
        if kind in {"cells", "first", "others", "tested", "torch_tested"} and touched is not None:
            found = [{**row, "anew": anew[row["cell"]]} for row in found]
        require_one_matrix(prices.table, len(found))
        said = json.dumps({"include": found}, separators=(",", ":"))
        if names:
            outputs |= {names[number]: said, f"{names[number]}_count": str(len(found))}
        click.echo(said)
        if not found:
            log.note(
                f"no row of {kind}: a job of this matrix must not be started (GitHub fails an empty one)"
            )
    if outputs:
        set_outputs(environment(), outputs)


def _anew(touched: Sequence[Affected]) -> dict[str, str]:
    """Return the projects that must be built anew, by cells and by what these are built as."""
    found: dict[str, dict[str, None]] = {}
    for one in touched:
        for name in {str(one.built.cell), str(one.built.build)}:
            found.setdefault(name, {}).update(dict.fromkeys(one.projects))
    return {name: " ".join(projects) for name, projects in found.items()}

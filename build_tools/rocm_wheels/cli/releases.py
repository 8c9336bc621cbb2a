"""``rocm-wheels releases``: the sets of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.stage import layout_option
from rocm_wheels.errors import ReleaseError

if TYPE_CHECKING:
    from rocm_wheels.release.overview import Overview, Row


@click.command("releases")
@click.argument("store", metavar="STORE")
@click.option("--family", metavar="NAME", help="Only the sets of this GPU family.")
@layout_option
@click.option("--json", "as_json", is_flag=True, help="Print the sets as JSON.")
def command(store: str, family: str | None, store_layout: Path | None, as_json: bool) -> None:
    """List the staged sets of STORE, newest first: version, ROCm, what is missing, and what is known of them.

    A set that is staged only in part is no set yet; how many there are is said.
    """
    from rocm_wheels.release.layout import load_layout
    from rocm_wheels.release.overview import overviews
    from rocm_wheels.release.results import results_of
    from rocm_wheels.release.stores import open_store

    opened, layout = open_store(store, environment()), load_layout(store_layout)
    found = overviews(opened, layout, family=family)
    results = {one.family: results_of(opened, layout, one.family) for one in found}
    rows = sorted(
        (row for one in found for row in one.rows), key=lambda row: (row.created, row.id), reverse=True
    )
    if as_json:
        sets = [{**row.model_dump(), "results": results[row.family].get(row.id, [])} for row in rows]
        unfinished = [{"family": one.family, "set": name} for one in found for name in one.unfinished]
        click.echo(json.dumps({"sets": sets, "unfinished": unfinished}, indent=1))
    else:
        for row in rows:
            click.echo(_line(row, results[row.family].get(row.id, [])))
        if not rows:
            where = f" of {family}" if family else ""
            log.note(f"there are no sets{where} in {opened.url}")
    _tell(found)


def _line(row: Row, results: list[str]) -> str:
    complete = f"{row.missing} of {row.planned} cells missing" if row.missing else "complete"
    targets = " ".join(row.targets) or "no device code"
    said = f"{row.id}  {row.family}  ROCm {row.rocm or 'unknown'}  {row.wheels} wheels  {complete}"
    known = "; ".join(results) or "no results"
    return f"{said}\n  {row.created}  {targets}  {known}"


def _tell(found: list[Overview]) -> None:
    for one in found:
        if one.unfinished:
            log.note(
                f"{one.family}: {len(one.unfinished)} sets are not finished: {', '.join(one.unfinished)}"
            )
    if damaged := [fault for one in found for fault in one.damaged]:
        raise ReleaseError("\n".join(damaged), tip="put the document back from a copy of the store")

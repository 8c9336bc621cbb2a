"""The table ``lines`` of ``compat show``: which versions belong together, and how that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rocm_wheels.core import tables

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines

_BELIEVED = "?"
LEGEND = (
    f"{_BELIEVED}: believed, nobody states it. `rocm-wheels compat show lines NAME` says where each fact was "
    "found."
)


def print_lines() -> None:
    """Print a row a line. Raises DataError."""
    click.echo(tables.format_table(*tabulate_lines(), width=tables.get_output_width()))
    click.echo(LEGEND)


def tabulate_lines() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table's head and a row a line; a column a companion, in the order of the builds."""
    from rocm_wheels.models import project, release_lines

    companions = [companion for companion in project.list_usual_projects() if companion.name != "pytorch"]
    titles = [companion.distribution for companion in companions]
    rows = []
    for line in release_lines.get_release_lines():
        torch = line.projects.get("pytorch")
        cells = (
            line.name,
            _describe_place(torch.checkout) if torch else "unknown",
            _describe_pythons(line),
            _describe_values(line.rocm.pytorch_org),
            _describe_values(line.rocm.amd),
            _describe_values(line.platforms),
        )
        rows.append((*cells, *(_describe_companion(line, companion.name) for companion in companions)))
    return ("line", "torch from", "Python", "ROCm, pytorch.org", "ROCm, AMD", "platforms", *titles), rows


def _join_values(values: release_lines.LineValues) -> str:
    return ", ".join(values.values) or ("unknown" if values.kind == "unknown" else "none")


def _describe_values(values: release_lines.LineValues) -> str:
    return _join_values(values) + _mark_believed(values)


def _describe_pythons(line: release_lines.TorchLine) -> str:
    values = line.pythons.values
    spelled = f"{values[0]} to {values[-1]}" if len(values) > 1 else _join_values(line.pythons)
    return ", ".join([spelled + _mark_believed(line.pythons), *line.free_threaded.values])


def _describe_place(place: release_lines.LineCheckout) -> str:
    if place.origin is None:
        return "unknown"
    owner_and_name = "/".join(place.origin.removesuffix(".git").split("/")[-2:])
    return f"{owner_and_name} {place.ref or 'pinned by torch'}{_mark_believed(place)}"


def _describe_companion(line: release_lines.TorchLine, name: str) -> str:
    companion = line.projects.get(name)
    if companion is None:
        return "unknown"
    if companion.version is not None:
        return (companion.version.value or "unknown") + _mark_believed(companion.version)
    place = companion.checkout
    return "unknown" if place.origin is None else (place.ref or "pinned by torch") + _mark_believed(place)


def _mark_believed(fact: release_lines.LineFact) -> str:
    return _BELIEVED if fact.kind == "believed" else ""

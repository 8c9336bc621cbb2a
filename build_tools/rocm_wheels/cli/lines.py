"""The table ``lines`` of ``compat show``: which versions belong together, and how that is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.core import tables

if TYPE_CHECKING:
    from rocm_wheels.models import release_lines

_BELIEVED = "?"
LEGEND = (
    f"{_BELIEVED}: believed, nobody states it. `rocm-wheels compat show lines NAME` says where each fact was "
    "found."
)


def print_lines(name: str | None, *, as_json: bool) -> None:
    """Print the table, or every fact of the line ``name``. Raises DataError."""
    from rocm_wheels.models import release_lines

    lines = release_lines.get_release_lines() if name is None else (release_lines.get_release_line(name),)
    if as_json:
        click.echo(json.dumps({"lines": [line_as_json(line) for line in lines]}, indent=1))
    elif name is not None:
        click.echo(describe_facts(lines[0]))
    else:
        click.echo(tables.format_table(*tabulate_lines(), width=tables.get_output_width()))
        click.echo(LEGEND)


def line_as_json(line: release_lines.TorchLine) -> dict[str, Any]:
    """Return a line as ``--json`` prints it: the keys of the table. Keys are added later, never renamed."""
    return line.model_dump(mode="json", exclude={"toolset"})


def tabulate_lines() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table's head and a row a line; a column a companion, in the order of the builds."""
    from rocm_wheels.models import project, release_lines

    companions = [companion for companion in project.list_projects() if companion.name != "pytorch"]
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


def describe_facts(line: release_lines.TorchLine) -> str:
    """Return every fact of a line: what, how it is known, where it was found."""
    facts: list[tuple[str, str, release_lines.LineFact]] = [
        ("Python", _join_values(line.pythons), line.pythons),
        ("Python without GIL", _join_values(line.free_threaded), line.free_threaded),
        ("platforms", _join_values(line.platforms), line.platforms),
        ("ROCm, pytorch.org", _join_values(line.rocm.pytorch_org), line.rocm.pytorch_org),
        ("ROCm, AMD", _join_values(line.rocm.amd), line.rocm.amd),
    ]
    for name, companion in line.projects.items():
        version = companion.version
        if version is not None:
            facts.append((f"{name}, version", version.value or "unknown", version))
        place = companion.checkout
        where = f"{place.origin} {place.ref or '(as the torch tree pins it)'}" if place.origin else "unknown"
        also = f" (only {', '.join(place.platforms)})" if len(place.platforms) == 1 else ""
        facts.append((f"{name}, from", where + also, place))
    rows = []
    for label, value, fact in facts:
        rows += [(label, value), ("", f"{fact.kind}: {fact.source}")]
    return "\n".join([f"line {line.name}", *tables.align_rows(rows)])


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

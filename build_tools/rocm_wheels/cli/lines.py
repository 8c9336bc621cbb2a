"""``rocm-wheels lines``: which versions belong together, and how that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.model.line_facts import Fact, Line, Place, Values
    from rocm_wheels.model.project import Project

_BELIEVED = "?"
_LEGEND = f"{_BELIEVED}: believed, nobody states it. `rocm-wheels lines NAME` says where each fact was found."


@click.command("lines")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print every fact with its source as JSON.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
def command(name: str | None, as_json: bool, markdown: bool) -> None:
    """List the release lines: what belongs to each torch.

    With NAME (2.13, nightly) every fact of that line, how it is known and where it was found.
    """
    from rocm_wheels.model.lines import all_lines, line_named
    from rocm_wheels.model.names import project_names
    from rocm_wheels.model.project import build_order, load_project

    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    projects = build_order(load_project(project) for project in project_names())
    lines = all_lines() if name is None else (line_named(name),)
    if as_json:
        import json

        click.echo(json.dumps({"lines": [line_as_json(line) for line in lines]}, indent=1))
    elif name is not None and not markdown:
        click.echo(facts_as_text(lines[0]))
    else:
        rows = as_rows(lines, projects)
        click.echo(as_markdown(rows) if markdown else as_text(rows))


def line_as_json(line: Line) -> dict[str, Any]:
    """Return a line as ``--json`` prints it: the keys of the table. Keys are added later, never renamed."""
    return line.model_dump(mode="json", exclude={"toolset"})


def as_rows(lines: Sequence[Line], projects: Sequence[Project]) -> list[list[str]]:
    """Return the table's head and a row a line; a column a companion, in the order of the builds."""
    companions = [project for project in projects if project.name != "pytorch"]
    titles = [project.distribution for project in companions]
    rows = [["line", "torch from", "Python", "ROCm, pytorch.org", "ROCm, AMD", "platforms", *titles]]
    for line in lines:
        torch = line.projects.get("pytorch")
        cells = [
            line.name,
            _place(torch.checkout) if torch else "unknown",
            _pythons(line),
            _values(line.rocm.pytorch_org),
            _values(line.rocm.amd),
            _values(line.platforms),
        ]
        rows.append(cells + [_companion(line, project.name) for project in companions])
    return rows


def as_text(rows: list[list[str]]) -> str:
    """Return aligned columns for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, _LEGEND])


def as_markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table and what its marks mean."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in lines), "", _LEGEND])


def facts_as_text(line: Line) -> str:
    """Return every fact of a line: what, how it is known, where it was found."""
    facts: list[tuple[str, str, Fact]] = [
        ("Python", _plain(line.pythons), line.pythons),
        ("Python without GIL", _plain(line.free_threaded), line.free_threaded),
        ("platforms", _plain(line.platforms), line.platforms),
        ("ROCm, pytorch.org", _plain(line.rocm.pytorch_org), line.rocm.pytorch_org),
        ("ROCm, AMD", _plain(line.rocm.amd), line.rocm.amd),
    ]
    for name, companion in line.projects.items():
        version = companion.version
        if version is not None:
            facts.append((f"{name}, version", version.value or "unknown", version))
        place = companion.checkout
        where = f"{place.origin} {place.ref or '(as the torch tree pins it)'}" if place.origin else "unknown"
        also = f" (only {', '.join(place.platforms)})" if len(place.platforms) == 1 else ""
        facts.append((f"{name}, from", where + also, place))
    width = max(len(what) for what, _, _ in facts)
    rows = [
        f"{what:{width}}  {value}\n{'':{width}}  {fact.kind}: {fact.source}" for what, value, fact in facts
    ]
    return "\n".join([f"line {line.name}", *rows])


def _plain(values: Values) -> str:
    return ", ".join(values.values) or ("unknown" if values.kind == "unknown" else "none")


def _values(values: Values) -> str:
    return _plain(values) + _mark(values)


def _pythons(line: Line) -> str:
    values = line.pythons.values
    spelled = f"{values[0]} to {values[-1]}" if len(values) > 1 else _plain(line.pythons)
    return ", ".join([spelled + _mark(line.pythons), *line.free_threaded.values])


def _place(place: Place) -> str:
    if place.origin is None:
        return "unknown"
    owner_and_name = "/".join(place.origin.removesuffix(".git").split("/")[-2:])
    return f"{owner_and_name} {place.ref or 'pinned by torch'}{_mark(place)}"


def _companion(line: Line, name: str) -> str:
    companion = line.projects.get(name)
    if companion is None:
        return "unknown"
    if companion.version is not None:
        return (companion.version.value or "unknown") + _mark(companion.version)
    place = companion.checkout
    return "unknown" if place.origin is None else (place.ref or "pinned by torch") + _mark(place)


def _mark(fact: Fact) -> str:
    return _BELIEVED if fact.kind == "believed" else ""

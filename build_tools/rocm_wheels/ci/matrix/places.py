"""Projects of which a torch line says not where they are checked out from: a lock of it may find nothing."""

from __future__ import annotations

from collections.abc import Iterable

from rocm_wheels.ci.matrix.cells import Cell, line_named
from rocm_wheels.ci.matrix.costs import projects_on


def unplaced(cells: Iterable[Cell]) -> list[str]:
    """Return what to say of each torch line and platform that lacks the place of a project."""
    said = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line = line_named(name)
        lacking = [one.name for one in projects_on(platform) if line.place(one.name, platform) is None]
        if lacking:
            said.append(
                f"torch {name} on {platform} has no place to check out {', '.join(lacking)} from:"
                " there is no lock unless the torch tree pins it, or `rocm-wheels lock` is told"
            )
    return said

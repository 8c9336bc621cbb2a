"""Projects that a torch line lacks: it has none on a platform, or nobody says where they come from."""

from __future__ import annotations

from collections.abc import Iterable

from rocm_wheels.ci.matrix.cells import line_named
from rocm_wheels.ci.matrix.costs import built_on, projects_on
from rocm_wheels.ci.matrix.selection import Cell
from rocm_wheels.model.project import Platform


def absent(cells: Iterable[Cell]) -> list[str]:
    """Return what to say of each project that torch lines have on other platforms only: nobody builds it."""
    lines: dict[tuple[str, Platform], list[str]] = {}
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        for project in built_on(platform):
            if line_named(name).leaves_out(project.name, platform):
                lines.setdefault((project.name, platform), []).append(name)
    return [
        f"{platform}: torch {', '.join(names)} without {project}, which release_lines.yaml has elsewhere only"
        for (project, platform), names in lines.items()
    ]


def unplaced(cells: Iterable[Cell]) -> list[str]:
    """Return what to say of each torch line and platform that lacks the place of a project."""
    said = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line = line_named(name)
        lacking = [one.name for one in projects_on(platform, name) if line.place(one.name, platform) is None]
        if lacking:
            said.append(
                f"torch {name} on {platform} has no place to check out {', '.join(lacking)} from:"
                " there is no lock unless the torch tree pins it, or `rocm-wheels lock` is told"
            )
    return said

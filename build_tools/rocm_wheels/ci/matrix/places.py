"""Projects that a torch line lacks: it has none on a platform, or nobody says where they come from."""

from __future__ import annotations

from collections.abc import Iterable

from rocm_wheels.ci.matrix.cells import find_line
from rocm_wheels.ci.matrix.costs import list_buildable_projects, list_line_projects
from rocm_wheels.ci.matrix.selection import MatrixCell
from rocm_wheels.model.project import Platform


def describe_absent_projects(cells: Iterable[MatrixCell]) -> list[str]:
    """Return what to say of each project that torch lines have on other platforms only: nobody builds it."""
    lines: dict[tuple[str, Platform], list[str]] = {}
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        for project in list_buildable_projects(platform):
            if find_line(name).leaves_out(project.name, platform):
                lines.setdefault((project.name, platform), []).append(name)
    return [
        f"{platform}: torch {', '.join(names)} without {project}, which release_lines.yaml has elsewhere only"
        for (project, platform), names in lines.items()
    ]


def describe_unplaced_projects(cells: Iterable[MatrixCell]) -> list[str]:
    """Return what to say of each torch line and platform that lacks the place of a project."""
    messages = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line = find_line(name)
        lacking = [
            project.name
            for project in list_line_projects(platform, name)
            if line.get_checkout(project.name, platform) is None
        ]
        if lacking:
            messages.append(
                f"torch {name} on {platform} has no place to check out {', '.join(lacking)} from:"
                " there is no lock unless the torch tree pins it, or `rocm-wheels lock` is told"
            )
    return messages

"""What a change of files has to do with: which projects of which cells must be built, what must be tested.

By ``touches`` of ``data/ci.yaml``: the first glob that matches a file counts. ``**`` stands for anything,
``*`` for anything but a slash, ``{project}`` and ``{line}`` for names that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rocm_wheels.ci.matrix.builds import line_key, group_cells
from rocm_wheels.ci.matrix.cells import BuiltCell, choose_lines
from rocm_wheels.ci.matrix.costs import Prices, list_line_projects
from rocm_wheels.ci.matrix.selection import MatrixSelection
from rocm_wheels.model.ci import CiTable, ChangeScope
from rocm_wheels.model.lines import get_release_lines
from rocm_wheels.model.names import list_project_names
from rocm_wheels.model.project import Project

_GLOB_PIECES = re.compile(r"\*\*|\*|\{project\}|\{line\}|[^*{]+|.")


@dataclass(frozen=True)
class ChangedFile:
    """A changed file: what it has to do with, and of which project and torch line ("": every one)."""

    path: str
    what: ChangeScope
    project: str = ""
    line: str = ""


@dataclass(frozen=True)
class AffectedCell:
    """A cell with the projects that must be built anew, in order; () when it must only be tested."""

    built: BuiltCell
    projects: tuple[str, ...]


def classify_changes(table: CiTable, paths: Iterable[str]) -> list[ChangedFile]:
    """Return what each file has to do with; paths are as git prints them."""
    return [_classify_file(table, path) for path in paths]


def widen_selection(
    table: CiTable, selection: MatrixSelection, changes: Sequence[ChangedFile]
) -> MatrixSelection:
    """Return a selection with the torch lines that changes are about, where it names no lines itself.

    Else a change of a patch for a line that the trigger does not build would pass with nothing built.
    """
    named = [change.line for change in changes if change.line and change.what != "nothing"]
    if selection.lines or not named or selection.trigger not in table.triggers:
        return selection
    return replace(selection, lines=tuple(dict.fromkeys((*choose_lines(table, selection.trigger), *named))))


def find_affected_cells(cells: Sequence[BuiltCell], changes: Sequence[ChangedFile]) -> list[AffectedCell]:
    """Return the cells that a change has to do with."""
    affected_cells = []
    for built in cells:
        mine = [
            change for change in changes if change.line in {"", built.cell.line} and change.what != "nothing"
        ]
        names = _list_affected_projects(mine, list_line_projects(built.cell.platform, built.cell.line))
        if names or (built.tests and any(change.what == "tests" for change in mine)):
            affected_cells.append(AffectedCell(built, names))
    return affected_cells


def choose_cheapest_cells(cells: Sequence[BuiltCell], prices: Prices) -> list[BuiltCell]:
    """Return one cell for each line and platform that stands for all: of those that are tested, the cheapest.

    Where none is tested, the cheapest there is.
    """
    chosen = []
    for mine in group_cells(cells, line_key).values():
        tested = [built_cell for built_cell in mine if built_cell.tests]
        chosen.append(
            min(
                tested or mine,
                key=lambda built_cell: (prices.price_cell(built_cell).hours, str(built_cell.cell)),
            )
        )
    return chosen


def _list_affected_projects(changes: Sequence[ChangedFile], projects: Sequence[Project]) -> tuple[str, ...]:
    """Return what is built anew: what changed, and what is built with it."""
    if any(change.what == "everything" for change in changes):
        return tuple(project.name for project in projects)
    here = {project.name for project in projects}  # not what the platform lacks: nobody waits for it
    anew = here & {change.project for change in changes if change.what == "project"}
    for project in projects:  # in the order of the builds
        if anew & {*project.build.after, *project.build.needs}:
            anew.add(project.name)
    return tuple(project.name for project in projects if project.name in anew)


def _classify_file(table: CiTable, path: str) -> ChangedFile:
    for touch in table.touches:
        for glob in touch.paths:
            if match := _make_pattern(glob).fullmatch(path):
                names = match.groupdict()
                return ChangedFile(path, touch.what, names.get("project", ""), names.get("line", ""))
    raise AssertionError("the last glob is **")


def _make_pattern(glob: str) -> re.Pattern[str]:
    patterns = {
        "**": ".*",
        "*": "[^/]*",
        "{project}": f"(?P<project>{_match_any(list_project_names())})",
        "{line}": f"(?P<line>{_match_any(line.name for line in get_release_lines())})",
    }
    return re.compile("".join(patterns.get(piece, re.escape(piece)) for piece in _GLOB_PIECES.findall(glob)))


def _match_any(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))

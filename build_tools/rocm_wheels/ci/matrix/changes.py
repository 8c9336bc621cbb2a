"""What a change of files has to do with: which projects of which cells must be built, what must be tested.

By ``touches`` of ``data/ci.yaml``: the first glob that matches a file counts. ``**`` stands for anything,
``*`` for anything but a slash, ``{project}`` and ``{line}`` for names that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rocm_wheels.ci.matrix.builds import by_line, grouped
from rocm_wheels.ci.matrix.cells import Built, lines_of
from rocm_wheels.ci.matrix.costs import Prices, projects_on
from rocm_wheels.ci.matrix.selection import Selection
from rocm_wheels.model.ci import CiTable, Touched
from rocm_wheels.model.lines import all_lines
from rocm_wheels.model.names import project_names
from rocm_wheels.model.project import Project

_PIECES = re.compile(r"\*\*|\*|\{project\}|\{line\}|[^*{]+|.")


@dataclass(frozen=True)
class Change:
    """A changed file: what it has to do with, and of which project and torch line ("": every one)."""

    path: str
    what: Touched
    project: str = ""
    line: str = ""


@dataclass(frozen=True)
class Affected:
    """A cell with the projects that must be built anew, in order; () when it must only be tested."""

    built: Built
    projects: tuple[str, ...]


def changes_of(table: CiTable, paths: Iterable[str]) -> list[Change]:
    """Return what each file has to do with; paths are as git prints them."""
    return [_change(table, path) for path in paths]


def widened(table: CiTable, selection: Selection, changes: Sequence[Change]) -> Selection:
    """Return a selection with the torch lines that changes are about, where it names no lines itself.

    Else a change of a patch for a line that the trigger does not build would pass with nothing built.
    """
    named = [one.line for one in changes if one.line and one.what != "nothing"]
    if selection.lines or not named or selection.trigger not in table.triggers:
        return selection
    return replace(selection, lines=tuple(dict.fromkeys((*lines_of(table, selection.trigger), *named))))


def affected(cells: Sequence[Built], changes: Sequence[Change]) -> list[Affected]:
    """Return the cells that a change has to do with."""
    found = []
    for built in cells:
        mine = [one for one in changes if one.line in {"", built.cell.line} and one.what != "nothing"]
        names = _projects(mine, projects_on(built.cell.platform, built.cell.line))
        if names or (built.tests and any(one.what == "tests" for one in mine)):
            found.append(Affected(built, names))
    return found


def cheapest(cells: Sequence[Built], prices: Prices) -> list[Built]:
    """Return one cell for each line and platform that stands for all: of those that are tested, the cheapest.

    Where none is tested, the cheapest there is.
    """
    found = []
    for mine in grouped(cells, by_line).values():
        tested = [one for one in mine if one.tests]
        found.append(min(tested or mine, key=lambda one: (prices.cell(one).hours, str(one.cell))))
    return found


def _projects(changes: Sequence[Change], projects: Sequence[Project]) -> tuple[str, ...]:
    """Return what is built anew: what changed, and what is built with it."""
    if any(one.what == "everything" for one in changes):
        return tuple(project.name for project in projects)
    here = {project.name for project in projects}  # not what the platform lacks: nobody waits for it
    anew = here & {one.project for one in changes if one.what == "project"}
    for project in projects:  # in the order of the builds
        if anew & {*project.build.after, *project.build.needs}:
            anew.add(project.name)
    return tuple(project.name for project in projects if project.name in anew)


def _change(table: CiTable, path: str) -> Change:
    for touch in table.touches:
        for glob in touch.paths:
            if match := _as_pattern(glob).fullmatch(path):
                names = match.groupdict()
                return Change(path, touch.what, names.get("project", ""), names.get("line", ""))
    raise AssertionError("the last glob is **")


def _as_pattern(glob: str) -> re.Pattern[str]:
    said = {
        "**": ".*",
        "*": "[^/]*",
        "{project}": f"(?P<project>{_any(project_names())})",
        "{line}": f"(?P<line>{_any(line.name for line in all_lines())})",
    }
    return re.compile("".join(said.get(piece, re.escape(piece)) for piece in _PIECES.findall(glob)))


def _any(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))

"""Which cells a change of files affects: what must be built anew, and what must be tested.

By ``touches`` of ``data/ci.yaml``: the first glob that matches a file counts. ``**`` stands for anything,
``*`` for anything but a slash, ``{project}`` and ``{line}`` for names that there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.ci.matrix import BuiltCell, MatrixSelection, choose_lines, group_cells, line_key
from rocm_wheels.ci.matrix_costs import Prices, list_line_projects
from rocm_wheels.core import UsageError, log_warning
from rocm_wheels.models import ChangeScope, CiTable, Project, get_release_lines, list_project_names


def check_named_files(repository: Path, names: Iterable[str]) -> list[str]:
    """Return files that a user names, as git prints paths; warn of those that are not there.

    Whole paths may lie in the repository; others count from its top. Raises UsageError for what lies outside.
    """
    paths = []
    for name in names:
        path = Path(os.path.normpath(repository / name))
        if not path.is_relative_to(repository) or path == repository:
            raise UsageError(f"--changed {name} is no file of {repository}", tip="name it from there")
        if path.is_dir() and not path.is_symlink():
            raise UsageError(f"--changed {name} is a folder", tip="name the files in it that have changed")
        if not os.path.lexists(path):
            log_warning(f"--changed: there is no {path}; it counts as a file that was removed")
        paths.append(path.relative_to(repository).as_posix())
    return paths


def list_changed_since(repository: Path, ref: str) -> list[str]:
    """Return the paths that differ between where a branch left ``ref`` and the files as they are now.

    Files that git does not know yet count, renamed ones under both names. Since zeros, which is what GitHub
    says of a branch that was not there before a push, all have changed. Raises UsageError for no repository
    or no such commit.
    """
    from git import Repo
    from git.exc import BadName, GitCommandError, InvalidGitRepositoryError, NoSuchPathError

    everything = set(ref) == {"0"}
    try:
        repo = Repo(repository)
        base = repo.merge_base("HEAD" if everything else ref, "HEAD")
    except (InvalidGitRepositoryError, NoSuchPathError) as cause:
        raise UsageError(f"{repository} is no git repository", tip="name the files with --changed") from cause
    except (GitCommandError, BadName, ValueError) as cause:
        tip = "a shallow clone may not have it: git fetch origin REF, with --deepen where it ends before it"
        raise UsageError(f"there is no commit {ref or repr(ref)} in {repository}", tip=tip) from cause
    if not base:
        raise UsageError(f"{ref} and HEAD have no commit in common in {repository}", tip="git fetch --deepen")
    if everything:
        output = repo.git.ls_files("-z")
    else:
        output = repo.git.diff("--name-only", "--no-renames", "-z", base[0].hexsha)
    return sorted({*filter(None, output.split("\0")), *repo.untracked_files})


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

"""A matrix as others read it: tables and JSON for people, rows for GitHub, cells that changed files touch.

Which lines changed files touch follows from ``touches`` of ``data/ci.yaml``: there the first glob that
matches a file counts. ``**`` stands for anything, ``*`` for anything but a slash, ``{project}`` and
``{line}`` for names that there are.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.ci import matrix_work
from rocm_wheels.ci.matrix import (
    BuiltCell,
    ExcludedCell,
    Matrix,
    MatrixCell,
    MatrixSelection,
    choose_lines,
    collect_targets,
    combine_builds,
    group_cells,
    line_key,
    python_key,
    set_key,
)
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import ci, project_names, release_lines
from rocm_wheels.models.project import Project

_SET_HEADER = ("platform", "torch", "family", "Pythons", "ROCm", "tests")
_MOST_CELLS = 2
_TEST_NAMES = {"tests": "torch's own"}


def format_cells(cells: Sequence[BuiltCell], *, width: int | None = None) -> str:
    """Return a line for each set of wheels, with its Pythons, and the sum; ``width`` is a terminal's.

    Below a set for all families is a line for each of them: what is tested of it.
    """
    if not cells:
        return "no cell is built"
    rows: list[list[str]] = []
    for group in group_cells(cells, set_key).values():
        rows.append(_format_set(group))
        if group[0].layout == ci.MULTI_ARCH:
            families = group_cells(group, lambda entry: entry.cell.family)
            rows.extend(_format_family(name, mine) for name, mine in families.items())
    combined = combine_builds(cells)
    alone = f"{tables.format_count(len(cells), 'cell')}, each built alone"
    together = f"{tables.format_count(len(cells), 'cell')} in {tables.format_count(len(combined), 'build')}"
    summary = alone if len(combined) == len(cells) else together
    return f"{tables.format_table(_SET_HEADER, rows, width=width)}\n{summary}"


def _format_set(group: Sequence[BuiltCell]) -> list[str]:
    cell = group[0].cell
    pythons = " ".join(entry.cell.python for entry in combine_builds(group))
    families = tables.format_count(len({entry.cell.family for entry in group}), "family", "families")
    tests = f"of {families}:" if group[0].layout == ci.MULTI_ARCH else _describe_tests(group)
    return [cell.platform, cell.line, group[0].staged_as, pythons, group[0].rocm, tests]


def _format_family(name: str, group: Sequence[BuiltCell]) -> list[str]:
    pythons = " ".join(built_cell.cell.python for built_cell in group)
    return ["", "", f"  {name}", pythons, "", _describe_tests(group)]


def _describe_tests(group: Sequence[BuiltCell]) -> str:
    """Return what is tested where, every machine; Pythons are named where not all are tested alike."""
    kinds: dict[str, list[BuiltCell]] = {}
    for built_cell in group:
        kinds.setdefault(built_cell.untested or _name_tests(built_cell), []).append(built_cell)
    parts = []
    for kind, mine in kinds.items():
        machines = ", ".join(dict.fromkeys(built_cell.tester for built_cell in mine if built_cell.tester))
        pythons = f"{' '.join(built_cell.cell.python for built_cell in mine)}: " if len(kinds) > 1 else ""
        parts.append(f"{pythons}{kind}{f' on {machines}' if machines else ''}")
    return "; ".join(parts)


def _name_tests(built_cell: BuiltCell) -> str:
    """Return what is tested of a cell, with the suites of torch's own tests."""
    suites = f" ({', '.join(suite.name for suite in built_cell.suites)})" if built_cell.suites else ""
    return f"{join_test_names(built_cell.tests)}{suites}"


def join_test_names(tests: Sequence[ci.CiTest]) -> str:
    """Return kinds of tests as people say them: ``smoke and torch's own``."""
    return " and ".join(_TEST_NAMES.get(test, test) for test in tests)


def format_excluded(excluded: Sequence[ExcludedCell]) -> str:
    """Return every reason for which cells are left out, with how many and which."""
    reasons: dict[str, list[MatrixCell]] = {}
    for entry in excluded:
        reasons.setdefault(entry.reason, []).append(entry.cell)
    lines = [
        f"{tables.format_count(len(excluded), 'cell')} left out (--explain CELL says where a "
        "reason is stated):"
    ]
    rows = []
    for reason, cells in reasons.items():
        more = f" and {len(cells) - _MOST_CELLS} more" if len(cells) > _MOST_CELLS else ""
        rows.append((str(len(cells)), f"{reason}: {', '.join(map(str, cells[:_MOST_CELLS]))}{more}"))
    lines += [f"  {row}" for row in tables.align_rows(rows, right=[0])]
    return "\n".join(lines)


def explain_cell(
    cell: MatrixCell,
    built: BuiltCell | None,
    against: Sequence[ExcludedCell],
    trigger: str,
    notes: Sequence[str],
) -> str:
    """Return why a cell is built with ``notes`` on it, or every reason why it is not."""
    if built is not None:
        tests = (
            f"tested: {_name_tests(built)} on {built.tester}"
            if built.tests
            else f"untested: {built.untested}"
        )
        together = f" as part of {built.build}" if built.build != cell else ""
        details = f"for {', '.join(built.targets)} against ROCm {built.rocm} on {built.builder}{together}"
        suites = [f"no suite {name}: {reason}" for name, reason in built.absent_suites] if built.tests else []
        return "\n  ".join([f"{cell} is built in {trigger}, {details}", tests, *suites, *notes])
    lines = [f"{entry.reason}" + (f" ({entry.source})" if entry.source else "") for entry in against]
    return "\n  ".join([f"{cell} is not built in {trigger}:", *lines])


def matrix_as_json(matrix: Matrix, cells: Sequence[BuiltCell]) -> dict[str, Any]:
    """Return everything: keys are added later, never renamed."""
    return {
        "schema": 1,
        "trigger": matrix.trigger,
        "date": str(matrix.day),
        "layout": matrix.layout,
        "packaging": matrix.packaging,
        "cells": [_cell_as_json(entry) for entry in cells],
        "builds": [
            {"build": str(entry.cell), "targets": list(entry.targets), "builder": entry.builder}
            for entry in combine_builds(cells)
        ],
        "left_out": [
            {"cell": str(entry.cell), "reason": entry.reason, "source": entry.source}
            for entry in matrix.excluded
        ],
    }


def _cell_as_json(built_cell: BuiltCell) -> dict[str, Any]:
    return {
        "cell": str(built_cell.cell),
        "build": str(built_cell.build),
        "family": built_cell.cell.family,
        "python": built_cell.cell.python,
        "line": built_cell.cell.line,
        "platform": built_cell.cell.platform,
        "targets": list(built_cell.targets),
        "rocm": built_cell.rocm,
        "tests": list(built_cell.tests),
        "tester": built_cell.tester,
        "untested": built_cell.untested,
        "suites": [asdict(suite) for suite in built_cell.suites],
        "absent_suites": dict(built_cell.absent_suites),
        "builder": built_cell.builder,
    }


OUTPUT_VARIABLE = "GITHUB_OUTPUT"
_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def set_outputs(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append outputs to the file that GitHub names. Raises UsageError outside of a workflow.

    A value of several lines ends at a word that is nowhere in it, so that no value can set another output.
    """
    if not env.get(OUTPUT_VARIABLE):
        tip = f"without --github-output it is printed; in a shell: {OUTPUT_VARIABLE}=FILE writes to a file"
        raise errors.UsageError(f"{OUTPUT_VARIABLE} is not set: this is no step of a workflow", tip=tip)
    lines = []
    for name, value in values.items():
        if not _OUTPUT_NAME.fullmatch(name):
            raise errors.UsageError(f"{name!r} is no name of an output", tip="letters, digits, - and _")
        end = f"end-{secrets.token_hex(8)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n" if "\n" in value else f"{name}={value}\n")
    path = Path(env[OUTPUT_VARIABLE])
    if path.is_dir() or not path.parent.is_dir():
        raise errors.UsageError(
            f"{OUTPUT_VARIABLE} names {path}, which cannot be a file: a folder is there, or none above it"
        )
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
    except OSError as failure:
        errors.name_failed_file(failure, path)
        raise


RowKind = Literal[
    "cells", "first", "others", "tested", "torch_tested", "suites", "sets", "pythons", "companions", "lines"
]
MatrixRow = dict[str, Any]
_SETUP_MINUTES = (
    25  # minutes of a job on a GPU that are not its tests: to install, and to hand over what they found
)


def make_rows(cells: Sequence[BuiltCell], table: ci.CiTable, kind: RowKind) -> list[MatrixRow]:
    """Return what a matrix of GitHub includes: texts, numbers and booleans; keys are never renamed.

    ``cells``: a row a build, which is a cell, or all families of a Python together; of them ``first`` are
    those that warm the cache, ``others`` the rest. ``tested``: a row a cell with a machine to test on, which
    names what it is ``built`` as; ``torch_tested``: a row a ``shard`` of each suite of torch's own tests of
    such a cell, which names the row that was ``tested`` before; ``suites``: a row a suite of such a cell,
    with the rows of its shards, ``jobs``, as text for `fromJSON`.
    ``sets``: a row a set of wheels: a family of a line and platform, or all of them.
    ``pythons``: a row for what all families of a Python share and needs no torch, where there is such a
    thing (``given`` names it in the rows of cells); ``companions`` for what needs one: ``torch`` names the
    build whose torch it is built against, ``reserve`` another. ``lines``: a row a torch line and platform: a
    lock, a checkout.
    """
    if kind == "suites":
        return _group_by_suite(make_rows(cells, table, "torch_tested"))
    if kind == "lines":
        return [_make_line_row(group, table) for group in group_cells(cells, line_key).values()]
    if kind == "sets":
        sets = group_cells(cells, set_key).values()
        stagers = ci.share_jobs(table.staging, len(sets))
        return [_make_set_row(group, table, label) for group, label in zip(sets, stagers, strict=True)]
    if kind == "pythons":
        with_shared = [
            built_cell
            for built_cell in cells
            if matrix_work.list_shared_before_torch(built_cell.cell.platform, built_cell.cell.line)
        ]
        return [_make_python_row(group, table) for group in group_cells(with_shared, python_key).values()]
    first = {built_cell.cell for built_cell in matrix_work.choose_first_builds(cells, table)}
    if kind == "companions":
        with_companions = [
            built_cell
            for built_cell in combine_builds(cells)
            if matrix_work.list_companions(built_cell.cell.platform, built_cell.cell.line)
        ]
        return [
            _make_companions_row(group, table, first)
            for group in group_cells(with_companions, python_key).values()
        ]
    if kind == "torch_tested":
        return [
            row
            for built_cell in cells
            for row in _make_suite_rows(built_cell, table, first=built_cell.cell in first)
        ]
    required_key = {"first": "first", "tested": "tester"}.get(kind, "cell")
    chosen = cells if kind == "tested" else combine_builds(cells)
    made_rows = [
        row
        for built_cell in chosen
        if (row := _make_cell_row(built_cell, table, first=built_cell.cell in first))[required_key]
    ]
    return [row for row in made_rows if not row["first"]] if kind == "others" else made_rows


def _group_by_suite(shard_rows: Sequence[MatrixRow]) -> list[MatrixRow]:
    """Return a row for each suite of each cell: its shards are one result, and wait for no other suite."""
    suites: dict[tuple[str, str], list[MatrixRow]] = {}
    for row in shard_rows:
        suites.setdefault((row["cell"], row["suite"]), []).append(row)
    return [
        {
            "cell": cell,
            "name": rows[0]["tested"],
            "family": rows[0]["family"],
            "python": rows[0]["python"],
            "suite": suite,
            "tester": rows[0]["tester"],
            "jobs": format_github_matrix(rows),
        }
        for (cell, suite), rows in suites.items()
    ]


def format_github_matrix(rows: Sequence[MatrixRow]) -> str:
    """Return rows as the text that `fromJSON` makes a matrix of."""
    return json.dumps({"include": rows}, separators=(",", ":"))


def _make_cell_row(build: BuiltCell, table: ci.CiTable, *, first: bool) -> MatrixRow:
    cell, platform = build.cell, build.cell.platform
    projects = [
        project
        for project in matrix_work.list_line_projects(platform, cell.line)
        if not matrix_work.is_shared_wheel(project, platform)
    ]
    before, after = (
        matrix_work.list_shared_before_torch(platform, cell.line),
        matrix_work.list_companions(platform, cell.line),
    )
    names = [
        matrix_work.INSTALL_ROCM_STEP,
        matrix_work.INSTALL_TOOLS_STEP,
        *(project.name for project in projects),
    ]
    # a cache that was lost, or never filled, must cost nobody a night: limits are those of a cold one
    hours = matrix_work.estimate_hours(table, names, len(build.targets), platform)
    return {
        "cell": str(cell),
        "name": _name_cell(cell),
        "built": _name_cell(build.build),
        "family": cell.family,
        "targets": ",".join(build.targets),
        "extras": _list_device_extras(build.targets),
        "python": cell.python,
        "line": cell.line,
        "platform": platform,
        "rocm": build.rocm,
        "projects": " ".join(project.name for project in projects),
        "wheels": _list_wheel_globs(projects),
        "packages": " ".join(project.distribution for project in [*projects, *before, *after]),
        "given": " ".join(project.name for project in before),
        "shared": f"{python_tag(cell.python)}-{cell.line}-{platform}",
        "builder": build.builder,
        "first": first,
        "minutes": _limit_build_minutes(table, platform, hours),
        "tests": " ".join(build.tests),
        "test_packages": " ".join(_list_test_packages(build, table)),
        "tester": build.tester,
        "gpus": "1" if build.tester else "",
        "container_options": _find_container_options(build, table, build.tester),
        "suites": " ".join(suite.name for suite in build.suites),
        "test_minutes": (short := _limit_test_minutes(build, table)),
        "test_step_minutes": max(short - _SETUP_MINUTES, 0),
        "untested": build.untested,
    }


def _make_suite_rows(build: BuiltCell, table: ci.CiTable, *, first: bool) -> list[MatrixRow]:
    """Return a row a shard of each suite of a cell, with the machine that it runs on."""
    cell_row = _make_cell_row(build, table, first=first)
    rows = []
    for suite in build.suites:
        hours = table.suites[suite.name].hours / suite.shards
        minutes = matrix_work.limit_minutes(table, hours, hosted=False)
        for shard, tester in enumerate(suite.testers, start=1):
            part = f"-{shard}of{suite.shards}" if suite.shards > 1 else ""
            rows.append(
                {
                    **cell_row,
                    "name": f"{cell_row['name']}-{suite.name}{part}",
                    "tested": cell_row["name"],
                    "suite": suite.name,
                    "shard": shard,
                    "shards": suite.shards,
                    "tester": tester,
                    "gpus": "several" if suite.gpus == "every" else "1",
                    "container_options": _find_container_options(build, table, tester),
                    "torch_test_minutes": minutes,
                    "torch_step_minutes": max(minutes - _SETUP_MINUTES, 0),
                }
            )
    return rows


def _list_test_packages(build: BuiltCell, table: ci.CiTable) -> Iterable[str]:
    """Return what the first job on a machine with GPUs installs beside the wheels that it tests."""
    return dict.fromkeys(
        name for test in matrix_work.list_short_tests(build) for name in table.tests[test].packages
    )


def _find_container_options(build: BuiltCell, table: ci.CiTable, label: str) -> str:
    """Return what a container on a machine with GPUs needs, as a workflow passes it; "" without one."""
    platform = build.cell.platform
    on = table.all_families[build.cell.family].get_platform(platform) if label else None
    runners = (*on.runners, *on.several_gpus) if on is not None else ()
    return next(
        (
            " ".join(table.get_container_options(runner, platform))
            for runner in runners
            if runner.label == label
        ),
        "",
    )


def _make_python_row(group: Sequence[BuiltCell], table: ci.CiTable) -> MatrixRow:
    cell = group[0].cell
    return _make_shared_row(group, table, matrix_work.list_shared_before_torch(cell.platform, cell.line))


def _make_companions_row(
    group: Sequence[BuiltCell], table: ci.CiTable, first: Collection[MatrixCell]
) -> MatrixRow:
    """Return a row with the cell whose torch is built against, the first or the cheapest, and a reserve."""
    cell = group[0].cell
    by_cost = sorted(
        group,
        key=lambda build: (
            build.cell not in first,
            matrix_work.estimate_build_hours(table, build),
            str(build.cell),
        ),
    )
    torch, reserve, *_ = [*(_name_cell(build.cell) for build in by_cost), ""]
    projects = matrix_work.list_companions(cell.platform, cell.line)
    return {
        **_make_shared_row(group, table, projects),
        "wheels": _list_wheel_globs(projects),
        "torch": torch,
        "reserve": reserve,
    }


def _make_shared_row(group: Sequence[BuiltCell], table: ci.CiTable, projects: Sequence[Project]) -> MatrixRow:
    first = group[0]
    cell, platform, targets = first.cell, first.cell.platform, collect_targets(group)
    shared = [project.name for project in projects]
    names = (matrix_work.INSTALL_ROCM_STEP, matrix_work.INSTALL_TOOLS_STEP, *shared)
    hours = matrix_work.estimate_hours(table, names, len(targets), platform)
    return {
        "name": f"{python_tag(cell.python)}-{cell.line}-{platform}",
        "python": cell.python,
        "line": cell.line,
        "platform": platform,
        "rocm": first.rocm,
        "targets": ",".join(targets),
        # what has no device code (triton) is built against none of a GPU's packages, which are gigabytes
        "extras": _list_device_extras(targets) if any(each.has_device_code for each in projects) else "",
        "projects": " ".join(shared),
        "builder": first.builder,
        "minutes": _limit_build_minutes(table, platform, hours),
    }


def _make_line_row(group: Sequence[BuiltCell], table: ci.CiTable) -> MatrixRow:
    first = group[0]
    cell, platform = first.cell, first.cell.platform
    return {
        "name": f"{cell.line}-{platform}",
        "line": cell.line,
        "platform": platform,
        "rocm": first.rocm,
        "pythons": " ".join(dict.fromkeys(each.cell.python for each in group)),
        "families": " ".join(dict.fromkeys(each.cell.family for each in group)),
        "layout": first.layout,
        "packaging": first.packaging,
        "targets": ",".join(collect_targets(group)),
        "cells": len(group),
        "builder": first.builder,
        "minutes": _limit_build_minutes(
            table, platform, matrix_work.estimate_hours(table, [matrix_work.CHECKOUT_STEP], 0, platform)
        ),
    }


def _make_set_row(group: Sequence[BuiltCell], table: ci.CiTable, label: str) -> MatrixRow:
    first = group[0]
    cell, size = first.cell, sum(matrix_work.get_stated_size(each) for each in combine_builds(group))
    return {
        "name": f"{first.staged_as}-{cell.line}-{cell.platform}",
        "family": first.staged_as,
        "families": " ".join(dict.fromkeys(each.cell.family for each in group)),
        "layout": first.layout,
        "packaging": first.packaging,
        "targets": ",".join(collect_targets(group)),
        "line": cell.line,
        "platform": cell.platform,
        "rocm": first.rocm,
        "pythons": " ".join(dict.fromkeys(each.cell.python for each in group)),
        "cells": len(group),
        "tested": any(each.tester for each in group),
        "gib": round(size / (1 << 30), 1),
        "stager": matrix_work.choose_stager(table, size, label),
    }


def _list_wheel_globs(projects: Iterable[Project]) -> str:
    """Return the names of the wheels of projects, as globs in lines: what an artifact is made of."""
    return "\n".join(f"wheels/{project.distribution.replace('-', '_')}-*.whl*" for project in projects)


def _list_device_extras(targets: Iterable[str]) -> str:
    """Return the extras of the package `rocm` that bring what GPUs need of it."""
    return ",".join(f"device-{target}" for target in targets)


def _name_cell(cell: MatrixCell) -> str:
    return f"{cell.family}-{python_tag(cell.python)}-{cell.line}-{cell.platform}"


def python_tag(python: str) -> str:
    """Return the tag of a Python: ``cp312``, ``cp313t``."""
    return f"cp{python.replace('.', '')}"


def _limit_test_minutes(built_cell: BuiltCell, table: ci.CiTable) -> int:
    """Return how long the first job on a machine with GPUs may take, which installs ROCm and torch first."""
    minutes = [table.tests[test].minutes for test in matrix_work.list_short_tests(built_cell)]
    return matrix_work.limit_minutes(table, sum(minutes) / 60, hosted=False) if minutes else 0


def _limit_build_minutes(table: ci.CiTable, platform: project_names.Platform, hours: float) -> int:
    return matrix_work.limit_minutes(table, hours, hosted=table.platforms[platform].hosted)


def check_named_files(repository: Path, names: Iterable[str]) -> list[str]:
    """Return files that a user names, as git prints paths; warn of those that are not there.

    Whole paths may lie in the repository; others count from its top. Raises UsageError for what lies outside.
    """
    paths = []
    for name in names:
        path = Path(os.path.normpath(repository / name))
        if not path.is_relative_to(repository) or path == repository:
            raise errors.UsageError(f"--changed {name} is no file of {repository}", tip="name it from there")
        if path.is_dir() and not path.is_symlink():
            raise errors.UsageError(
                f"--changed {name} is a folder", tip="name the files in it that have changed"
            )
        if not os.path.lexists(path):
            log.log_warning(f"--changed: there is no {path}; it counts as a file that was removed")
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
        raise errors.UsageError(
            f"{repository} is no git repository", tip="name the files with --changed"
        ) from cause
    except (GitCommandError, BadName, ValueError) as cause:
        tip = "a shallow clone may not have it: git fetch origin REF, with --deepen where it ends before it"
        raise errors.UsageError(f"there is no commit {ref or repr(ref)} in {repository}", tip=tip) from cause
    if not base:
        raise errors.UsageError(
            f"{ref} and HEAD have no commit in common in {repository}", tip="git fetch --deepen"
        )
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
    what: ci.ChangeScope
    project: str = ""
    line: str = ""


@dataclass(frozen=True)
class AffectedCell:
    """A cell with the projects that must be built anew, in order; () when it must only be tested."""

    built: BuiltCell
    projects: tuple[str, ...]


def classify_changes(table: ci.CiTable, paths: Iterable[str]) -> list[ChangedFile]:
    """Return what each file has to do with; paths are as git prints them."""
    return [_classify_file(table, path) for path in paths]


def widen_selection(
    table: ci.CiTable, selection: MatrixSelection, changes: Sequence[ChangedFile]
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
        names = _list_affected_projects(
            mine, matrix_work.list_line_projects(built.cell.platform, built.cell.line)
        )
        if names or (built.tests and any(change.what == "tests" for change in mine)):
            affected_cells.append(AffectedCell(built, names))
    return affected_cells


def choose_cheapest_cells(cells: Sequence[BuiltCell], table: ci.CiTable) -> list[BuiltCell]:
    """Return one cell for each line and platform that stands for all: of those that are tested, the cheapest.

    Where none is tested, the cheapest there is.
    """
    chosen = []
    for mine in group_cells(cells, line_key).values():
        tested = [built_cell for built_cell in mine if built_cell.tests]
        chosen.append(
            min(
                tested or mine,
                key=lambda built_cell: (
                    matrix_work.estimate_build_hours(table, built_cell),
                    str(built_cell.cell),
                ),
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


def _classify_file(table: ci.CiTable, path: str) -> ChangedFile:
    for name, recipe in project_names.find_recipes().items():
        if recipe.path.as_posix().endswith(f"/{path}"):
            return ChangedFile(path, "project", name, "")
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
        "{project}": f"(?P<project>{_match_any(project_names.list_project_names())})",
        "{line}": f"(?P<line>{_match_any(line.name for line in release_lines.get_release_lines())})",
    }
    return re.compile("".join(patterns.get(piece, re.escape(piece)) for piece in _GLOB_PIECES.findall(glob)))


def _match_any(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))

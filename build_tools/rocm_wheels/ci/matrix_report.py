"""A matrix as others read it: tables and JSON for people, rows for GitHub, cells that changed files touch.

Which lines changed files touch follows from ``touches`` of ``data/ci.yaml``: there the first glob that
matches a file counts. ``**`` stands for anything, ``*`` for anything but a slash, ``{project}`` and
``{line}`` for names that there are.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from rocm_wheels.ci import matrix
from rocm_wheels.ci.matrix import BuiltCell, Cells, ExcludedCell, MatrixCell
from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import ci, project_names, release_lines
from rocm_wheels.models.project import Project, get_step_costs

_MOST_CELLS = 2
OUTPUT_VARIABLE = "GITHUB_OUTPUT"
MatrixRow = dict[str, Any]
# minutes of a job on a GPU that are not its tests: to install, and to hand over what they found
_SETUP_MINUTES = 25
_GB = 10**9
_TOOL_BYTES = 2 * _GB  # of a disk, beside wheels: our files and what they need
_SIZE_MARGIN = 1.5  # times what wheels are stated to take


# ---- for people


def format_cells(cells: Cells, *, width: int | None = None) -> str:
    """Return a line for each set of wheels, with its Pythons, and the sum; ``width`` is a terminal's.

    Below a set for all families is a line for each of them: what is tested of it.
    """
    if not cells:
        return "no cell is built"
    rows: list[list[str]] = []
    for group in matrix.group_cells(cells, matrix.set_key).values():
        first, families = group[0], matrix.group_cells(group, lambda entry: entry.cell.family)
        together = first.layout == ci.MULTI_ARCH
        tests = f"of {tables.format_count(len(families), 'family', 'families')}:"
        tests = tests if together else _describe_tests(group)
        pythons = _join_pythons(matrix.combine_builds(group))
        rows.append([first.cell.platform, first.cell.line, first.staged_as, pythons, first.rocm, tests])
        for name, mine in families.items() if together else ():
            rows.append(["", "", f"  {name}", _join_pythons(mine), "", _describe_tests(mine)])
    header = ("platform", "torch", "family", "Pythons", "ROCm", "tests")
    builds = len(matrix.combine_builds(cells))
    how = f" in {tables.format_count(builds, 'build')}" if builds < len(cells) else ", each built alone"
    how += _describe_packaging(cells[0])
    return f"{tables.format_table(header, rows, width=width)}\n{tables.format_count(len(cells), 'cell')}{how}"


def _describe_packaging(built_cell: BuiltCell) -> str:
    is_usual = built_cell.packaging == built_cell.layout
    return "" if is_usual else f", packaged {built_cell.packaging}"


def _join_pythons(cells: Cells) -> str:
    return " ".join(dict.fromkeys(built_cell.cell.python for built_cell in cells))


def _describe_tests(group: Cells) -> str:
    """Return what is tested where, every machine; Pythons are named where not all are tested alike."""
    kinds = matrix.group_cells(group, lambda built_cell: built_cell.untested or _name_tests(built_cell))
    parts = []
    for kind, mine in kinds.items():
        machines = ", ".join(dict.fromkeys(built_cell.tester for built_cell in mine if built_cell.tester))
        pythons = f"{_join_pythons(mine)}: " if len(kinds) > 1 else ""
        parts.append(f"{pythons}{kind}{f' on {machines}' if machines else ''}")
    return "; ".join(parts)


def _name_tests(built_cell: BuiltCell) -> str:
    """Return what is tested of a cell, with the suites of torch's own tests."""
    suites = f" ({', '.join(suite.name for suite in built_cell.suites)})" if built_cell.suites else ""
    return f"{_join_test_names(built_cell.tests)}{suites}"


def _join_test_names(tests: Sequence[ci.CiTest]) -> str:
    """Return kinds of tests as people say them: ``smoke and torch's own``."""
    return " and ".join("torch's own" if test == ci.TORCH_TESTS else test for test in tests)


def format_excluded(excluded: Sequence[ExcludedCell]) -> str:
    """Return every reason for which cells are left out, with how many and which."""
    rows = []
    for reason, group in matrix.group_cells(excluded, lambda entry: entry.reason).items():
        names = ", ".join(str(entry.cell) for entry in group[:_MOST_CELLS])
        more = f" and {len(group) - _MOST_CELLS} more" if len(group) > _MOST_CELLS else ""
        rows.append((str(len(group)), f"{reason}: {names}{more}"))
    count = tables.format_count(len(excluded), "cell")
    title = f"{count} left out (--explain CELL says where a reason is stated):"
    return "\n  ".join([title, *tables.align_rows(rows, right=[0])])


def explain_cell(
    table: ci.CiTable, selection: matrix.MatrixSelection, text: str
) -> tuple[dict[str, Any], list[str]]:
    """Return why a cell is built or not, with every reason: as a document, and as lines for people.

    Raises UsageError for what is no cell.
    """
    cell, chosen = matrix.parse_cell(table, text), matrix.check_selection(table, selection)
    against = list(matrix.list_exclusions(table, chosen, cell))
    built = next((entry for entry in matrix.plan_matrix(table, chosen).built if entry.cell == cell), None)
    lines, notes = [f"{cell} is not built in {chosen.trigger}:"], []
    lines += [f"{entry.reason}{f' ({entry.source})' if entry.source else ''}" for entry in against]
    if built is not None:
        for row in matrix.find_untested(table, cell):
            notes.append(f"without {_join_test_names(row.tests)} tests: {row.reason}")
        notes += [note for part in matrix.describe_projects([cell]) for note in part]
        together = f" as part of {built.build}" if built.build != cell else ""
        details = f"for {', '.join(built.targets)} against ROCm {built.rocm} on {built.builder}{together}"
        details += _describe_packaging(built)
        lines = [f"{cell} is built in {chosen.trigger}, {details}", f"untested: {built.untested}"]
        if built.tests:
            lines[1] = f"tested: {_name_tests(built)} on {built.tester}"
            lines += [f"no suite {name}: {reason}" for name, reason in built.absent_suites]
        lines += notes
    document = {
        "cell": str(cell),
        "built": built is not None,
        "build": str(built.build) if built is not None else None,
        "reasons": [{"reason": entry.reason, "source": entry.source} for entry in against],
        "notes": notes,
    }
    return document, lines


def matrix_as_json(planned: matrix.Matrix, cells: Cells) -> dict[str, Any]:
    """Return everything: keys are added later, never renamed."""
    facts = ("targets", "rocm", "tests", "tester", "untested", "builder")
    rows = [
        {**entry.cell._asdict(), "cell": str(entry.cell), "build": str(entry.build)}
        | {name: getattr(entry, name) for name in facts}
        | {"suites": [asdict(suite) for suite in entry.suites], "absent_suites": dict(entry.absent_suites)}
        for entry in cells
    ]
    builds = [
        {"build": str(build.cell), "targets": build.targets, "builder": build.builder}
        for build in matrix.combine_builds(cells)
    ]
    return {
        "schema": 1,
        "trigger": planned.selection.trigger,
        "date": str(planned.selection.day),
        "layout": planned.selection.layout,
        "packaging": planned.selection.packaging,
        "cells": rows,
        "builds": builds,
        "left_out": [{**asdict(entry), "cell": str(entry.cell)} for entry in planned.excluded],
    }


# ---- for GitHub


def require_output_file(env: Mapping[str, str]) -> None:
    """Raise UsageError where outputs of a step cannot be set, though GitHub's variable names a file for them.

    It is for commands that change something, before they do, and for those whose work the outputs are.
    """
    if not env.get(OUTPUT_VARIABLE):
        return
    path = Path(env[OUTPUT_VARIABLE])
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as failure:
        raise errors.UsageError(
            f"{OUTPUT_VARIABLE} names {path}, which cannot be written: {failure.strerror}",
            tip=f"mount its folder, or unset {OUTPUT_VARIABLE} where nobody reads outputs of this step",
        ) from None


def set_outputs(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append outputs of the step of a workflow to the file that GitHub names; elsewhere there is none.

    A file that cannot be opened is a warning: a container inherits the variable and not the folder, and what
    a command prints is right all the same. A value of several lines ends at a word that is nowhere in it, so
    that no value can set another output. Raises UsageError for more than GitHub takes.
    """
    if not env.get(OUTPUT_VARIABLE):
        return
    try:
        require_output_file(env)
    except errors.UsageError as unwritable:
        log.log_warning(f"no outputs are set: {errors.explain_error(unwritable)}")
        return
    limit = ci.load_ci_table().limits.output_kb
    if 2 * sum(map(len, values.values())) > limit.value * 1000:
        where = ci.load_ci_table().sources[limit.source].url
        raise errors.UsageError(
            f"outputs of a job are {limit.value} kB at most, and these are more ({where})",
            tip="fewer --rows, or one torch line and platform at a time: --line, --platform",
        )
    lines = []
    for name, value in values.items():
        end = f"end-{secrets.token_hex(8)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n" if "\n" in value else f"{name}={value}\n")
    path = Path(env[OUTPUT_VARIABLE])
    with errors.name_failed_file(path), path.open("a", encoding="utf-8") as file:
        file.write("".join(lines))


def format_github_matrix(rows: Sequence[MatrixRow]) -> str:
    """Return rows as the text that `fromJSON` makes a matrix of.

    Raises UsageError when there are more than GitHub makes jobs of.
    """
    table = ci.load_ci_table()
    most = table.limits.matrix_jobs
    if len(rows) > most.value:
        where = table.sources[most.source].url
        raise errors.UsageError(
            f"{len(rows)} rows, and a matrix of GitHub has at most {most.value} jobs ({where})",
            tip="one line and platform at a time: `--rows lines` lists them, --line and --platform choose",
        )
    for value in (value for row in rows for value in row.values() if isinstance(value, dict)):
        format_github_matrix(value["include"])  # a matrix within a row has the same limit
    return json.dumps({"include": rows}, separators=(",", ":"))


def make_rows(cells: Cells, table: ci.CiTable, kind: project_names.RowKind) -> list[MatrixRow]:
    """Return what a matrix of GitHub includes: texts, numbers, booleans, matrices; keys are never renamed.

    ``lines``: a row a torch line and platform: a lock, a checkout. ``sets``: a row a set of wheels: a family
    of a line and platform, or all of them; ``rows`` is the matrix of what is ``tested`` of it. ``cells``: a
    row a build, which is a cell, or all families of a Python together; of them ``first`` are those that warm
    the cache, ``others`` the rest. ``pythons``: a row for what all families of a Python share and needs no
    torch, where there is such a thing (``given`` names it in the rows of cells); ``companions`` for what
    needs one: ``torch`` names the build whose torch it is built against, ``reserve`` another. ``tested``: a
    row a cell with a machine to test on, which names what it is ``built`` as; ``suite_rows`` is the matrix
    of its suites of torch's own tests. ``torch_tested``: a row a ``shard`` of each of these suites.
    """
    if kind == "torch_tested":
        suites = [suite for entry in cells for suite in _make_suite_rows(entry, table)]
        return [row for suite in suites for row in suite["shards"]["include"]]
    rows: list[MatrixRow] = []
    builds = matrix.combine_builds(cells)
    first = {build.cell for build in matrix.choose_cheapest(builds, table)}
    if kind == "lines":
        for (line, platform), group in matrix.group_cells(cells, matrix.line_key).items():
            rows.append(_make_row(group, table, ["checkout"], name=f"{line}-{platform}", cells=len(group)))
    elif kind == "sets":
        groups = matrix.group_cells(cells, matrix.set_key).values()
        labels = ci.share_jobs(table.staging, len(groups))
        rows = [_make_set_row(group, table, label) for group, label in zip(groups, labels, strict=True)]
    elif kind in {"pythons", "companions"}:
        for (line, platform, _), group in matrix.group_cells(builds, matrix.python_key).items():
            before, _, companions = matrix.split_projects(platform, line)
            projects = before if kind == "pythons" else companions
            if not projects:
                continue
            # what has no device code (triton) is built against none of a GPU's packages, which are gigabytes
            needs_devices = any(project.has_device_code for project in projects)
            targets = matrix.collect_targets(group) if needs_devices else ()
            facts = {"name": _name_shared(group[0].cell), "extras": _join_extras(targets)}
            if kind == "companions":
                by_cost = sorted(group, key=lambda build: matrix.rank_cost(build, table))
                facts["torch"], facts["reserve"], *_ = [*(_name_cell(build.cell) for build in by_cost), ""]
            rows.append(_make_row(group, table, projects=projects, **facts))
    elif kind == "tested":
        for entry in cells:
            if entry.tester:
                row = _make_cell_row(entry, table, first=entry.cell in first)
                rows.append({**row, "suite_rows": {"include": _make_suite_rows(entry, table)}})
    else:
        for build in builds:
            if kind in {"cells", "first" if build.cell in first else "others"}:
                rows.append(_make_cell_row(build, table, first=build.cell in first))
    return rows


def _make_row(
    group: Cells, table: ci.CiTable, steps: Sequence[str] = (), projects: Sequence[Project] = (), **own: Any
) -> MatrixRow:
    """Return what rows of all kinds say of cells of one line and platform, and what one says on its ``own``.

    Of a job that does ``steps``, or builds ``projects`` for one Python, also where and how long; ``wheels``
    are globs, in lines. Its limit of time is that with a cold cache: one that was lost, or never filled, must
    cost nobody a night.
    """
    first, cell, targets = group[0], group[0].cell, matrix.collect_targets(group)
    row: MatrixRow = {
        "line": cell.line,
        "platform": cell.platform,
        "rocm": first.rocm,
        "pythons": _join_pythons(group),
        "families": " ".join(dict.fromkeys(each.cell.family for each in group)),
        "layout": first.layout,
        "packaging": first.packaging,
        "targets": ",".join(targets),
    }
    names = [project.name for project in projects]
    if steps := steps or (names and ["install-rocm", "install-tools", *names]):
        hours = matrix.estimate_hours(table, steps, len(targets), cell.platform)
        minutes = matrix.limit_minutes(table, hours, hosted=table.platforms[cell.platform].hosted)
        row |= {"builder": first.builder, "minutes": minutes}
    if projects:
        files = [project.distribution.replace("-", "_") for project in projects]
        wheels = "\n".join(f"wheels/{file}-*.whl*" for file in files)
        row |= {"python": cell.python, "projects": " ".join(names), "wheels": wheels}
    return row | own


def _make_set_row(group: Cells, table: ci.CiTable, label: str) -> MatrixRow:
    """Return the row of a set; it is staged on GitHub's machine, if its disk will do, else on ``label``."""
    family, cell, size = group[0].staged_as, group[0].cell, 0.0
    for build in matrix.combine_builds(group):
        for project in matrix.list_line_projects(cell.platform, cell.line):
            if (wheel := get_step_costs(project.name).wheel) is not None:
                size += wheel.get_bytes(len(build.targets))
    fits = size * _SIZE_MARGIN + _TOOL_BYTES <= table.limits.hosted_disk_gb.value * _GB
    return _make_row(
        group,
        table,
        name=f"{family}-{cell.line}-{cell.platform}",
        family=family,
        cells=len(group),
        tested=any(each.tester for each in group),
        gib=round(size / (1 << 30), 1),
        stager=ci.HOSTED_RUNNER if fits else label,
        rows={"include": make_rows(group, table, "tested")},
    )


def _make_cell_row(build: BuiltCell, table: ci.CiTable, *, first: bool) -> MatrixRow:
    """Return the row of a build, or of a tested cell: what is built of it where, and tested where."""
    cell, tests = build.cell, [table.tests[test] for test in get_args(ci.ShortTest) if test in build.tests]
    before, own, companions = matrix.split_projects(cell.platform, cell.line)
    hours = sum(test.minutes for test in tests) / 60
    minutes = matrix.limit_minutes(table, hours, hosted=False) if tests else 0
    return _make_row(
        [build],
        table,
        projects=own,
        cell=str(cell),
        name=_name_cell(cell),
        built=_name_cell(build.build),
        family=cell.family,
        extras=_join_extras(build.targets),
        packages=" ".join(project.distribution for project in [*own, *before, *companions]),
        given=" ".join(project.name for project in before),
        shared=_name_shared(cell),
        first=first,
        tests=" ".join(build.tests),
        test_packages=" ".join(dict.fromkeys(name for test in tests for name in test.packages)),
        tester=build.tester,
        container_options=_find_container_options(build, table, build.tester),
        suites=" ".join(suite.name for suite in build.suites),
        test_minutes=minutes,
        test_step_minutes=max(minutes - _SETUP_MINUTES, 0),
        untested=build.untested,
    )


def _make_suite_rows(build: BuiltCell, table: ci.CiTable) -> list[MatrixRow]:
    """Return a row a suite: its shards, a matrix, are one result, and wait for no other suite."""
    suites, cell, name = [], build.cell, _name_cell(build.cell)
    targets = ",".join(build.targets)
    where = {"family": cell.family, "targets": targets, "python": cell.python, "platform": cell.platform}
    for suite in build.suites:
        hours = table.suites[suite.name].hours / suite.shards
        minutes = matrix.limit_minutes(table, hours, hosted=False)
        rows: list[MatrixRow] = []
        for shard, tester in enumerate(suite.testers, start=1):
            part = f"-{shard}of{suite.shards}" if suite.shards > 1 else ""
            rows.append(
                {
                    "name": f"{name}-{suite.name}{part}",
                    "tested": name,
                    **where,
                    "suite": suite.name,
                    "shard": shard,
                    "shards": suite.shards,
                    "tester": tester,
                    "container_options": _find_container_options(build, table, tester),
                    "torch_test_minutes": minutes,
                    "torch_step_minutes": max(minutes - _SETUP_MINUTES, 0),
                }
            )
        suites.append({"suite": suite.name, "tester": suite.testers[0], "shards": {"include": rows}})
    return suites


def _find_container_options(build: BuiltCell, table: ci.CiTable, label: str) -> str:
    """Return what a container on a machine with GPUs needs, as a workflow passes it; "" without one."""
    if not label:
        return ""
    runners = (*build.on.runners, *build.on.several_gpus)
    runner = next(runner for runner in runners if runner.label == label)
    return " ".join(table.get_container_options(runner, build.cell.platform))


def _join_extras(targets: Iterable[str]) -> str:
    return ",".join(f"device-{target}" for target in targets)


def _name_cell(cell: MatrixCell) -> str:
    return f"{cell.family}-{_name_shared(cell)}"


def _name_shared(cell: MatrixCell) -> str:
    return f"cp{cell.python.replace('.', '')}-{cell.line}-{cell.platform}"


# ---- changed files


@dataclass(frozen=True)
class ChangedFile:
    """A changed file: what it has to do with, and of which project and torch line ("": every one)."""

    path: str
    what: ci.ChangeScope
    project: str = ""
    line: str = ""


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
        message = f"{repository} is no git repository"
        raise errors.UsageError(message, tip="run it in a clone") from cause
    except (GitCommandError, BadName, ValueError) as cause:
        tip = "a shallow clone may not have it: git fetch origin REF, with --deepen where it ends before it"
        raise errors.UsageError(f"there is no commit {ref or repr(ref)} in {repository}", tip=tip) from cause
    if not base:
        message = f"{ref} and HEAD have no commit in common in {repository}"
        raise errors.UsageError(message, tip="git fetch --deepen")
    if everything:
        output = repo.git.ls_files("-z")
    else:
        output = repo.git.diff("--name-only", "--no-renames", "-z", base[0].hexsha)
    return sorted({*filter(None, output.split("\0")), *repo.untracked_files})


def classify_changes(table: ci.CiTable, paths: Iterable[str]) -> list[ChangedFile]:
    """Return what each file has to do with; paths are as git prints them."""
    lines = [line.name for line in release_lines.get_release_lines()]
    patterns = {"**": ".*", "*": "[^/]*"}
    for kind, names in (("project", project_names.list_project_names()), ("line", lines)):
        patterns[f"{{{kind}}}"] = f"(?P<{kind}>{'|'.join(map(re.escape, names))})"
    rules = []
    for touch in table.touches:
        for glob in touch.paths:
            parts = [patterns.get(part) or re.escape(part) for part in re.split(r"(\*\*|\*|{\w+})", glob)]
            rules.append((re.compile("".join(parts)), touch.what))
    recipes = {name: recipe.path.as_posix() for name, recipe in project_names.find_recipes().items()}
    changes = []
    for path in paths:
        owner = next((name for name, place in recipes.items() if place.endswith(f"/{path}")), None)
        if owner is not None:
            changes.append(ChangedFile(path, "project", owner))
        else:
            match, what = next((match, what) for rule, what in rules if (match := rule.fullmatch(path)))
            changes.append(ChangedFile(path, what, **match.groupdict()))
    return changes


def widen_selection(
    table: ci.CiTable, selection: matrix.MatrixSelection, changes: Sequence[ChangedFile]
) -> matrix.MatrixSelection:
    """Return a selection with the torch lines that changes are about, where it names no lines itself.

    Else a change of a patch for a line that the trigger does not build would pass with nothing built.
    """
    named = [change.line for change in changes if change.line and change.what != "nothing"]
    if selection.lines or not named or selection.trigger not in table.triggers:
        return selection
    usual = matrix.choose_lines(table.triggers[selection.trigger].lines)
    return replace(selection, lines=tuple(dict.fromkeys((*usual, *named))))


def find_affected_cells(cells: Cells, changes: Sequence[ChangedFile]) -> list[BuiltCell]:
    """Return the cells that a change has to do with: what it builds of them, or how they are tested."""
    affected = []
    for built_cell in cells:
        cell = built_cell.cell
        touched = {"everything": True, "tests": bool(built_cell.tests), "nothing": False}
        projects = {project.name for project in matrix.list_line_projects(cell.platform, cell.line)}
        for change in changes:
            touches = change.project in projects if change.what == "project" else touched[change.what]
            if touches and change.line in {"", cell.line}:
                affected.append(built_cell)
                break
    return affected

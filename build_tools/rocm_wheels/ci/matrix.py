"""The matrix of CI: which cells a run builds, why not the others, and which of them are built as one.

A cell is a GPU family, a Python, a torch line and a platform. In the layout ``per-family`` each cell is a
build, with a set for each family of a line; in ``multi-arch`` the cells of a Python are one build for the
targets of all of them, and a line has one set. Tests are of cells. Pure: all follows from the tables and
the selection, its day among it (what takes turns), in the order of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from typing import Literal, TypeVar, get_args

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, tables
from rocm_wheels.models import ci, gfx, project_names, release_lines, torch_tests

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class MatrixCell:
    """A family of GPUs, a Python (``3.12``, ``3.14t``), a torch line and a platform."""

    family: str
    python: str
    line: str
    platform: project_names.Platform

    def __str__(self) -> str:
        """Return it as people name it: ``gfx94X-dcgpu/3.12/2.13/linux``."""
        return f"{self.family}/{self.python}/{self.line}/{self.platform}"


@dataclass(frozen=True)
class MatrixSelection:
    """What a run is asked for. Empty: what the trigger has. ``rocm``: another than the newest of AMD.

    ``suites`` of torch's own tests that are named run of every cell; ``day`` (UTC, as workflows are
    scheduled) is what takes turns by: who asks says it, so that a plan made after midnight is the same.
    """

    trigger: str = "nightly"
    families: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    platforms: tuple[project_names.Platform, ...] = ()
    rocm: str | None = None
    layout: ci.MatrixLayout | None = None
    packaging: project_names.MatrixPackaging | None = None
    suites: tuple[str, ...] = ()
    day: date = field(kw_only=True)


def parse_cell(text: str) -> MatrixCell:
    """Read a cell as it is printed. Raises UsageError for another form."""
    parts = text.split("/")
    if len(parts) != 4 or parts[3] not in ci.CI_PLATFORMS:
        tip = "for example gfx94X-dcgpu/3.12/2.13/linux: family, Python, torch line, linux or windows"
        raise errors.UsageError(f"{text!r} is no cell", tip=tip)
    return MatrixCell(parts[0], parts[1], parts[2], "linux" if parts[3] == "linux" else "windows")


def check_selection(table: ci.CiTable, selection: MatrixSelection) -> MatrixSelection:
    """Return a selection that says its layout and packaging. Raises UsageError for unknown names."""
    lines = [line.name for line in release_lines.get_release_lines()]
    pythons = {
        python
        for line in release_lines.get_release_lines()
        for python in (*line.pythons.values, *line.free_threaded.values)
    }
    known_pythons = {python for trigger in table.triggers.values() for python in trigger.pythons} | pythons
    _require_known("--trigger", "trigger", (selection.trigger,), table.triggers)
    if selection.rocm is not None:
        _require_version(selection.rocm)
    for family in selection.families:
        if family not in table.all_families:
            raise errors.UsageError(
                f"--family: {_explain_no_family(table, family)}",
                tip=f"there are {join_names(table.all_families)}",
            )
    _require_known("--line", "release line", selection.lines, lines)
    _require_known(
        "--python",
        "Python that torch is built for",
        selection.pythons,
        sorted(known_pythons, key=_python_order),
    )
    _require_known("--suite", "suite", selection.suites, table.suites)
    packaging = find_packaging(table, selection)
    return replace(selection, layout=find_layout(table, selection), packaging=packaging)


def find_layout(table: ci.CiTable, selection: MatrixSelection) -> ci.MatrixLayout:
    """Return the layout that a selection names, or else its trigger has."""
    return selection.layout or table.triggers[selection.trigger].layout


def find_packaging(table: ci.CiTable, selection: MatrixSelection) -> project_names.MatrixPackaging:
    """Return how the sets of a selection are packaged: as it says, or its trigger, else as they are built.

    Raises UsageError for one that is the other layout.
    """
    layout = find_layout(table, selection)
    packaging = selection.packaging or table.triggers[selection.trigger].packaging or layout
    if packaging in get_args(ci.MatrixLayout) and packaging != layout:
        raise errors.UsageError(
            f"--packaging {packaging}: the layout is {layout}", tip=f"--layout {packaging}"
        )
    return packaging


def _explain_no_family(table: ci.CiTable, name: str) -> str:
    if name == ci.MULTI_ARCH:
        return f"{name} is no family, but all of a run together: --layout {name}"
    members = gfx.get_gfx_families()
    holding = [family for family in table.all_families if name in members[family]]
    if holding:
        return f"{name} is built with {holding[0]}"
    if name in members:
        within = [family for family in table.all_families if set(members[family]) & set(members[name])]
        return f"{name} is not built as one, but as {join_names(within)}"
    return f"there is no family {name!r}{tables.suggest_name(name, table.all_families)}"


def check_cell(table: ci.CiTable, cell: MatrixCell) -> None:
    """Raise UsageError for a cell with a name that there is not."""
    try:
        trigger = next(iter(table.triggers))
        named = MatrixSelection(trigger, (cell.family,), (cell.python,), (cell.line,), day=date.min)
        check_selection(table, named)  # of names, which no day changes
    except errors.UsageError as wrong:
        message = wrong.message.partition(": ")[2]
        raise errors.UsageError(f"{str(cell)!r} is no cell: {message}", tip=wrong.tip) from None


def _require_known(option: str, noun: str, values: Iterable[str], choices: Iterable[str]) -> None:
    names = list(choices)
    for value in values:
        if value not in names:
            raise errors.UsageError(
                f"{option}: there is no {noun} {value!r}{tables.suggest_name(value, names)}",
                tip=f"there are {join_names(names)}",
            )


def _require_version(text: str) -> None:
    try:
        Version(text)
    except InvalidVersion:
        tip = "such as 10.1 or 7.14.0rc1"
        raise errors.UsageError(f"--rocm: {text!r} is not a version (PEP 440)", tip=tip) from None


def _python_order(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python


def join_names(names: Iterable[str]) -> str:
    """Return names with commas between, as messages have them."""
    return ", ".join(names) or "none"


@dataclass(frozen=True)
class PlannedSuite:
    """A suite of torch's own tests of a cell, cut into ``shards``.

    ``gpus``: ``every`` for machines with several GPUs, else ``one``. ``testers`` are the labels of the
    machines of its shards, in order.
    """

    name: str
    shards: int
    gpus: Literal["one", "every"]
    testers: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuiltCell:
    """A cell that is built. ``tests`` are those that run on a ``tester``; ``untested`` says why none do.

    ``suites`` are torch's own tests, ``absent_suites`` those of its trigger that it has not, each with why.
    ``staged_as`` is the family of its wheels: its own, or ``multi-arch`` where they are for others, too.
    ``rocm`` is the version that it is built against, ``builder`` and ``tester`` are labels of machines.
    """

    cell: MatrixCell
    targets: tuple[str, ...]
    staged_as: str
    rocm: str
    builder: str = ""
    tests: tuple[ci.CiTest, ...] = ()
    tester: str = ""
    untested: str = ""
    packaging: project_names.MatrixPackaging = "per-family"
    suites: tuple[PlannedSuite, ...] = ()
    absent_suites: tuple[tuple[str, str], ...] = ()

    @property
    def build(self) -> MatrixCell:
        """What it is built as: itself, or all families of its Python together."""
        return replace(self.cell, family=self.staged_as)

    @property
    def layout(self) -> ci.MatrixLayout:
        """Whether its wheels are for its family, or for others, too."""
        return ci.MULTI_ARCH if self.staged_as == ci.MULTI_ARCH else "per-family"


@dataclass(frozen=True)
class ExcludedCell:
    """A cell that is left out, and why; ``source`` is where that is stated, "" for our own policy."""

    cell: MatrixCell
    reason: str
    source: str = ""


@dataclass(frozen=True)
class Matrix:
    """All cells of a selection: those that are built, and those that are left out."""

    trigger: str
    layout: ci.MatrixLayout
    packaging: project_names.MatrixPackaging
    day: date
    built: tuple[BuiltCell, ...]
    excluded: tuple[ExcludedCell, ...] = field(default=())


def plan_matrix(table: ci.CiTable, selection: MatrixSelection) -> Matrix:
    """Return the cells of a selection. Raises UsageError for names that there are not."""
    chosen = check_selection(table, selection)
    sorted_cells, excluded = _sort_cells(table, chosen)
    whole = MatrixSelection(chosen.trigger, layout=chosen.layout, packaging=chosen.packaging, day=chosen.day)
    night = sorted_cells if chosen == whole else _sort_cells(table, whole)[0]
    built = _add_suites(table, chosen, sorted_cells, night)
    before = built if chosen == whole else _add_suites(table, whole, night, night)
    # workflows plan each line by itself: its cells have the machines that they have in the whole
    every = {built_cell.cell: built_cell for built_cell in (*before, *built)}
    assigned = {built_cell.cell: built_cell for built_cell in _assign_machines(table, list(every.values()))}
    return Matrix(
        chosen.trigger,
        find_layout(table, chosen),
        find_packaging(table, chosen),
        chosen.day,
        tuple(assigned[built_cell.cell] for built_cell in built),
        tuple(excluded),
    )


def _sort_cells(table: ci.CiTable, selection: MatrixSelection) -> tuple[list[BuiltCell], list[ExcludedCell]]:
    built, excluded = [], []
    for cell in _generate_cells(table, selection):
        reason = find_exclusion(table, selection, cell)
        if reason is None:
            built.append(_make_built_cell(table, selection, cell))
        else:
            excluded.append(reason)
    return built, excluded


def find_exclusion(table: ci.CiTable, selection: MatrixSelection, cell: MatrixCell) -> ExcludedCell | None:
    """Return the first reason for which a cell is left out of a selection; None when it is built."""
    return next(list_exclusions(table, selection, cell), None)


def list_exclusions(
    table: ci.CiTable, selection: MatrixSelection, cell: MatrixCell
) -> Iterator[ExcludedCell]:
    """Yield every reason against a cell: what cannot be first, then what policy leaves out."""
    line, family = find_line(cell.line), table.all_families[cell.family]
    place = table.sources[family.fact.source].url
    if family.get_platform(cell.platform) is None:
        yield ExcludedCell(cell, f"the family is not built on {cell.platform}", place)
    if cell.platform not in line.platforms.values:
        yield ExcludedCell(cell, f"torch {line.name} is not made for {cell.platform}", line.platforms.source)
    pythons = line.free_threaded if cell.python.endswith("t") else line.pythons
    if cell.python not in pythons.values:
        had = ", ".join(pythons.values) or "none"
        kind = "without a GIL " if cell.python.endswith("t") else ""
        yield ExcludedCell(
            cell, f"torch {line.name} is not released for Python {cell.python} ({kind}{had})", pythons.source
        )
    if selection.rocm is None and not line.rocm.amd.values:
        why = f"AMD has released no ROCm with torch {line.name}: --rocm says which to build it with"
        yield ExcludedCell(cell, why, line.rocm.amd.source)
    for rule in table.excluded:
        if rule.covers_cell(cell.family, cell.python, cell.line, cell.platform):
            yield ExcludedCell(cell, rule.reason, table.sources[rule.source].url)
    yield from _list_policy_exclusions(table, selection, cell, family)


def _list_policy_exclusions(
    table: ci.CiTable, selection: MatrixSelection, cell: MatrixCell, family: ci.CiFamily
) -> Iterator[ExcludedCell]:
    name, trigger = selection.trigger, table.triggers[selection.trigger]
    if cell.family not in (selection.families or [cell.family]):
        yield ExcludedCell(cell, f"--family does not name {cell.family}")
    elif not selection.families and not table.has_begun(family.since, name):
        yield ExcludedCell(cell, f"the family is built since {family.since}, not in {name}")
    if cell.python not in (selection.pythons or trigger.pythons):
        reason = (
            "--python does not name it"
            if selection.pythons
            else f"{name} builds {join_names(trigger.pythons)}"
        )
        yield ExcludedCell(cell, f"Python {cell.python}: {reason}")
    lines = selection.lines or choose_lines(table, name)
    if cell.line not in lines:
        reason = "--line does not name it" if selection.lines else f"{name} builds {join_names(lines)}"
        yield ExcludedCell(cell, f"torch {cell.line}: {reason}")
    if cell.platform not in (selection.platforms or ci.CI_PLATFORMS):
        yield ExcludedCell(cell, f"--platform does not name {cell.platform}")


def choose_lines(table: ci.CiTable, trigger: str) -> tuple[str, ...]:
    """Return the lines that a trigger builds: the newest released by AMD, oldest first, and others."""
    return _list_lines(table.triggers[trigger].lines)


def _list_lines(rule: ci.TriggerLines) -> tuple[str, ...]:
    released = [
        line.name for line in release_lines.get_release_lines() if line.torch and line.rocm.amd.values
    ]
    newest = sorted(released, key=Version)[-rule.newest :] if rule.newest else []
    return tuple(dict.fromkeys((*newest, *rule.also)))


def _generate_cells(table: ci.CiTable, selection: MatrixSelection) -> Iterator[MatrixCell]:
    trigger = table.triggers[selection.trigger]
    for platform in selection.platforms or ci.CI_PLATFORMS:
        for line in selection.lines or choose_lines(table, selection.trigger):
            for python in selection.pythons or trigger.pythons:
                for family in selection.families or table.all_families:
                    yield MatrixCell(family, python, line, platform)


def _make_built_cell(table: ci.CiTable, selection: MatrixSelection, cell: MatrixCell) -> BuiltCell:
    on = table.all_families[cell.family].get_platform(cell.platform)
    assert on is not None  # else it is left out
    tests, untested = _choose_short_tests(table, selection.trigger, cell, on)
    rocm = selection.rocm or find_line(cell.line).rocm.amd.values[-1]
    staged_as = ci.MULTI_ARCH if selection.layout == ci.MULTI_ARCH else cell.family
    return BuiltCell(
        cell,
        gfx.get_gfx_families()[cell.family],
        staged_as,
        rocm,
        tests=tests,
        untested=untested,
        packaging=find_packaging(table, selection),
    )


def _choose_short_tests(
    table: ci.CiTable, trigger: str, cell: MatrixCell, on: ci.FamilyPlatform
) -> tuple[tuple[ci.CiTest, ...], str]:
    """Return what the first job on a GPU tests, and why not where nothing is."""
    if not on.runners:
        return (), "no runner has such a GPU"
    if on.tests_since is not None and not table.has_begun(on.tests_since, trigger):
        return (), f"its runners test since {on.tests_since}, not in {trigger}"
    tests: tuple[ci.CiTest, ...] = ("sanity",) if on.only_sanity else table.triggers[trigger].tests
    covering = find_untested(table, cell)
    remaining = tuple(test for test in tests if all(test not in exception.tests for exception in covering))
    return remaining, "" if remaining else "; ".join(
        exception.reason for exception in covering
    ) or f"{trigger} tests nothing"


def _add_suites(
    table: ci.CiTable, selection: MatrixSelection, built: Sequence[BuiltCell], night: Sequence[BuiltCell]
) -> list[BuiltCell]:
    """Return the cells with the suites of torch's own tests that they have on the day of a selection.

    Pythons take turns among those of the whole ``night``: who plans one alone finds the same.
    """
    groups = group_cells(built, _turn_key) | group_cells(night, _turn_key)
    cadences = _list_cadences(table, selection)
    pythons = {
        (key, name): [each.cell.python for each in group if not _find_suite_obstacle(table, name, each)]
        for key, group in groups.items()
        for name, _ in cadences
    }
    with_suites = []
    for built_cell in built:
        suites, absent = [], []
        for name, cadence in cadences:
            reason = _find_suite_obstacle(table, name, built_cell) or _find_other_turn(
                table, selection, name, cadence, built_cell.cell, pythons=pythons[_turn_key(built_cell), name]
            )
            if reason:
                absent.append((name, reason))
            else:
                gpus = torch_tests.load_torch_tests().suites[name].gpus
                suites.append(PlannedSuite(name, table.count_shards(name), gpus))
        tests = (*built_cell.tests, ci.TORCH_TESTS) if suites else built_cell.tests
        with_suites.append(
            replace(built_cell, tests=tests, suites=tuple(suites), absent_suites=tuple(absent))
        )
    return with_suites


def _turn_key(built_cell: BuiltCell) -> tuple[str, str, project_names.Platform]:
    """Return what takes turns with its Pythons: family, line and platform."""
    return built_cell.cell.family, *line_key(built_cell)


def _list_cadences(table: ci.CiTable, selection: MatrixSelection) -> list[tuple[str, ci.SuiteCadence]]:
    if selection.suites:
        return [(name, ci.SuiteCadence()) for name in selection.suites]
    return list(table.triggers[selection.trigger].suites.items())


def list_suite_runners(name: str, on: ci.FamilyPlatform) -> tuple[ci.CiRunner, ...]:
    """Return the machines of a family that can run a suite: those with several GPUs where it needs them."""
    return on.several_gpus if torch_tests.load_torch_tests().suites[name].gpus == "every" else on.runners


def _find_suite_obstacle(table: ci.CiTable, name: str, built_cell: BuiltCell) -> str:
    """Return why a cell cannot have a suite on any day, "" when it can."""
    cell = built_cell.cell
    on = table.all_families[cell.family].get_platform(cell.platform)
    if on is None or not built_cell.tests:  # tests of torch follow the short ones
        return built_cell.untested
    if on.only_sanity:
        return "its runners only test whether torch starts"
    if reasons := [row.reason for row in find_untested(table, cell) if ci.TORCH_TESTS in row.tests]:
        return "; ".join(reasons)
    runners = list_suite_runners(name, on)
    if not runners:
        return "none of its machines has several GPUs"
    machines = sum(table.count_machines(runner) for runner in runners)
    if machines < (needed := table.suites[name].machines):
        assumed = " (assumed)" if any(runner.machines is None for runner in runners) else ""
        return (
            f"it takes {table.suites[name].hours:g} hours and needs {needed} machines,"
            f" {', '.join(runner.label for runner in runners)} has {machines}{assumed}"
        )
    return ""


def _find_other_turn(
    table: ci.CiTable,
    selection: MatrixSelection,
    name: str,
    cadence: ci.SuiteCadence,
    cell: MatrixCell,
    *,
    pythons: Sequence[str],
) -> str:
    """Return why it is not a cell's turn to have a suite, "" when it is: the same on each day for everybody.

    ``pythons`` are those of its family, line and platform that can have it.
    """
    turn = selection.day.toordinal()
    if cadence.lines is not None and cell.line not in (lines := _list_lines(cadence.lines)):
        return f"of torch {join_names(lines)}"
    choices = [python for python in pythons if not cadence.pythons or python in cadence.pythons]
    offset = list(table.all_families).index(cell.family)  # families take different Pythons on a day
    on_turn = take_turns(choices, cadence.pythons_a_day, turn + offset)
    outside = bool(cadence.pythons) and cell.python not in cadence.pythons
    if outside or (cell.python in pythons and cell.python not in on_turn):
        return f"of Python {join_names(on_turn or cadence.pythons)} on {selection.day}"
    if cadence.takes_every_family(selection.day):
        return ""
    families = list_suite_families(table, selection.trigger, name, cell.platform)
    families_on_turn = take_turns(families, cadence.families_a_day, turn)
    if cell.family in families and cell.family not in families_on_turn:
        return f"of {join_names(families_on_turn)} on {selection.day}"
    return ""


def take_turns(choices: Sequence[K], number: int | None, turn: int) -> list[K]:
    """Return the next ``number`` of the choices each turn, in a circle; None: all of them, each time."""
    if number is None or number >= len(choices):
        return list(choices)
    return [choices[(turn * number + position) % len(choices)] for position in range(number)]


def list_suite_families(
    table: ci.CiTable, trigger: str, name: str, platform: project_names.Platform
) -> list[str]:
    """Return the families of a trigger that have the machines for a suite on a platform, in order."""
    families = []
    for family_name, family in table.all_families.items():
        on = family.get_platform(platform)
        if on is None or on.only_sanity or not table.has_begun(family.since, trigger):
            continue
        runners = list_suite_runners(name, on)
        machines = sum(table.count_machines(runner) for runner in runners)
        if runners and machines >= table.suites[name].machines:
            families.append(family_name)
    return families


def find_untested(table: ci.CiTable, cell: MatrixCell) -> list[ci.UntestedCells]:
    """Return the tests that a cell cannot have, and why."""
    return [
        row for row in table.untested if row.covers_cell(cell.family, cell.python, cell.line, cell.platform)
    ]


def _assign_machines(table: ci.CiTable, built: Sequence[BuiltCell]) -> Iterator[BuiltCell]:
    """Yield the cells with labels: machines share the work as the table says, the same every time."""
    free = {platform: ci.generate_labels(machines.builders) for platform, machines in table.platforms.items()}
    builders: dict[MatrixCell, str] = {}
    testers: dict[tuple[ci.CiRunner, ...], Iterator[str]] = {}
    for built_cell in built:
        cell = built_cell.cell
        on = table.all_families[cell.family].get_platform(cell.platform)
        if built_cell.build not in builders:
            builders[built_cell.build] = next(free[cell.platform])
        if on is None or not built_cell.tests:
            yield replace(built_cell, builder=builders[built_cell.build])
            continue
        tester = next(testers.setdefault(on.runners, ci.generate_labels(on.runners)))
        suites = []
        for suite in built_cell.suites:
            runners = list_suite_runners(suite.name, on)
            labels = testers.setdefault(runners, ci.generate_labels(runners))
            suites.append(replace(suite, testers=tuple(islice(labels, suite.shards))))
        yield replace(built_cell, builder=builders[built_cell.build], tester=tester, suites=tuple(suites))


def find_line(name: str) -> release_lines.TorchLine:
    """Return a release line that there is."""
    return next(line for line in release_lines.get_release_lines() if line.name == name)


_TESTED_APART = "each family is tested by itself"


def combine_builds(cells: Iterable[BuiltCell]) -> list[BuiltCell]:
    """Return what is built as one, in the order of the cells.

    Where that is all families of a Python, ``multi-arch`` stands in the place of the family, and the build
    has no tests: each of its cells has its own.
    """
    return [
        _combine_group(group) for group in group_cells(cells, lambda built_cell: built_cell.build).values()
    ]


def line_key(built_cell: BuiltCell) -> tuple[str, project_names.Platform]:
    """Return what a lock and a checkout are for: line and platform."""
    return built_cell.cell.line, built_cell.cell.platform


def python_key(built_cell: BuiltCell) -> tuple[str, project_names.Platform, str]:
    """Return what wheels for every family are for: line, platform and Python."""
    return *line_key(built_cell), built_cell.cell.python


def set_key(built_cell: BuiltCell) -> tuple[str, project_names.Platform, str]:
    """Return what a set of wheels is for: line, platform, and a family or ``multi-arch``."""
    return *line_key(built_cell), built_cell.staged_as


def group_cells(cells: Iterable[BuiltCell], key: Callable[[BuiltCell], K]) -> dict[K, list[BuiltCell]]:
    """Return cells by what they share."""
    groups: dict[K, list[BuiltCell]] = {}
    for built_cell in cells:
        groups.setdefault(key(built_cell), []).append(built_cell)
    return groups


def collect_targets(cells: Iterable[BuiltCell]) -> tuple[str, ...]:
    """Return the targets of all cells."""
    return tuple(dict.fromkeys(target for built_cell in cells for target in built_cell.targets))


def find_uneven_sets(cells: Iterable[BuiltCell]) -> list[str]:
    """Return what to say of each Python that lacks targets which others of its set have.

    A set wants each Python for all of its targets: without some it is not complete, and its gate holds it.
    """
    messages = []
    together = group_cells(
        (built_cell for built_cell in cells if built_cell.layout == ci.MULTI_ARCH), set_key
    )
    for (line, platform, name), group in together.items():
        for python, mine in group_cells(group, lambda built_cell: built_cell.cell.python).items():
            if lacking := [
                target for target in collect_targets(group) if target not in collect_targets(mine)
            ]:
                messages.append(
                    f"{name} of torch {line} on {platform}: Python {python} without {', '.join(lacking)},"
                    " which other Pythons have: its gate blocks it; exclude the family for every Python"
                )
    return messages


def _combine_group(group: list[BuiltCell]) -> BuiltCell:
    first = group[0]
    if first.build == first.cell:
        return first
    targets = collect_targets(group)
    return replace(
        first,
        cell=first.build,
        targets=targets,
        tests=(),
        tester="",
        untested=_TESTED_APART,
        suites=(),
        absent_suites=(),
    )

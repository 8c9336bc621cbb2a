"""Which cells a run has, and for every other one why not.

Pure: what follows from the tables and the selection, in the order of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import Version

from rocm_wheels.ci.matrix.selection import (
    MatrixCell,
    MatrixSelection,
    check_selection,
    join_names,
    find_layout,
)
from rocm_wheels.model.ci import (
    MULTI_ARCH,
    CI_PLATFORMS,
    CiTable,
    CiFamily,
    FamilyPlatform,
    PackagingMode,
    CiTest,
    UntestedCells,
    share_jobs,
)
from rocm_wheels.model.gfx import get_gfx_families
from rocm_wheels.model.line_facts import TorchLine
from rocm_wheels.model.lines import get_release_lines
from rocm_wheels.model.project import Platform


@dataclass(frozen=True)
class BuiltCell:
    """A cell that is built. ``tests`` are those that run on a ``tester``; ``untested`` says why none do.

    ``staged_as`` is the family of its wheels: its own, or ``multi-arch`` where they are for others, too.
    ``rocm`` is the version that it is built against, ``builder`` and ``tester`` are labels of machines.
    """

    cell: MatrixCell
    targets: tuple[str, ...]
    staged_as: str
    rocm: str
    builder: str = ""
    tests: tuple[CiTest, ...] = ()
    tester: str = ""
    untested: str = ""

    @property
    def build(self) -> MatrixCell:
        """What it is built as: itself, or all families of its Python together."""
        return replace(self.cell, family=self.staged_as)

    @property
    def layout(self) -> PackagingMode:
        """Whether its wheels are for its family, or for others, too."""
        return MULTI_ARCH if self.staged_as == MULTI_ARCH else "per-family"


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
    layout: PackagingMode
    built: tuple[BuiltCell, ...]
    excluded: tuple[ExcludedCell, ...] = field(default=())


def plan_matrix(table: CiTable, selection: MatrixSelection) -> Matrix:
    """Return the cells of a selection. Raises UsageError for names that there are not."""
    chosen = check_selection(table, selection)
    built, excluded = _sort_cells(table, chosen)
    whole = MatrixSelection(chosen.trigger, layout=chosen.layout)
    before = built if chosen == whole else _sort_cells(table, whole)[0]
    # workflows plan each line by itself: its cells have the machines that they have in the whole
    every = {built_cell.cell: built_cell for built_cell in (*before, *built)}
    assigned = {built_cell.cell: built_cell for built_cell in _assign_machines(table, list(every.values()))}
    return Matrix(
        chosen.trigger,
        find_layout(table, chosen),
        tuple(assigned[built_cell.cell] for built_cell in built),
        tuple(excluded),
    )


def _sort_cells(table: CiTable, selection: MatrixSelection) -> tuple[list[BuiltCell], list[ExcludedCell]]:
    built, excluded = [], []
    for cell in _generate_cells(table, selection):
        reason = find_exclusion(table, selection, cell)
        if reason is None:
            built.append(_make_built_cell(table, selection, cell))
        else:
            excluded.append(reason)
    return built, excluded


def find_exclusion(table: CiTable, selection: MatrixSelection, cell: MatrixCell) -> ExcludedCell | None:
    """Return the first reason for which a cell is left out of a selection; None when it is built."""
    return next(list_exclusions(table, selection, cell), None)


def list_exclusions(table: CiTable, selection: MatrixSelection, cell: MatrixCell) -> Iterator[ExcludedCell]:
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
        why = f"AMD has released no ROCm with torch {line.name}: --rocm-version says which to build it with"
        yield ExcludedCell(cell, why, line.rocm.amd.source)
    for rule in table.excluded:
        if rule.covers_cell(cell.family, cell.python, cell.line, cell.platform):
            yield ExcludedCell(cell, rule.reason, table.sources[rule.source].url)
    yield from _list_policy_exclusions(table, selection, cell, family)


def _list_policy_exclusions(
    table: CiTable, selection: MatrixSelection, cell: MatrixCell, family: CiFamily
) -> Iterator[ExcludedCell]:
    name, trigger = selection.trigger, table.triggers[selection.trigger]
    if cell.family not in (selection.families or [cell.family]):
        yield ExcludedCell(cell, f"--families does not name {cell.family}")
    elif not selection.families and not table.has_begun(family.since, name):
        yield ExcludedCell(cell, f"the family is built since {family.since}, not in {name}")
    if cell.python not in (selection.pythons or trigger.pythons):
        reason = (
            "--pythons does not name it"
            if selection.pythons
            else f"{name} builds {join_names(trigger.pythons)}"
        )
        yield ExcludedCell(cell, f"Python {cell.python}: {reason}")
    lines = selection.lines or choose_lines(table, name)
    if cell.line not in lines:
        reason = "--lines does not name it" if selection.lines else f"{name} builds {join_names(lines)}"
        yield ExcludedCell(cell, f"torch {cell.line}: {reason}")
    if cell.platform not in (selection.platforms or CI_PLATFORMS):
        yield ExcludedCell(cell, f"--platform does not name {cell.platform}")


def choose_lines(table: CiTable, trigger: str) -> tuple[str, ...]:
    """Return the lines that a trigger builds: the newest released by AMD, oldest first, and others."""
    rule = table.triggers[trigger].lines
    released = [line.name for line in get_release_lines() if line.torch and line.rocm.amd.values]
    newest = sorted(released, key=Version)[-rule.newest :] if rule.newest else []
    return tuple(dict.fromkeys((*newest, *rule.also)))


def _generate_cells(table: CiTable, selection: MatrixSelection) -> Iterator[MatrixCell]:
    trigger = table.triggers[selection.trigger]
    for platform in selection.platforms or CI_PLATFORMS:
        for line in selection.lines or choose_lines(table, selection.trigger):
            for python in selection.pythons or trigger.pythons:
                for family in selection.families or table.all_families:
                    yield MatrixCell(family, python, line, platform)


def _make_built_cell(table: CiTable, selection: MatrixSelection, cell: MatrixCell) -> BuiltCell:
    on = table.all_families[cell.family].get_platform(cell.platform)
    assert on is not None  # else it is left out
    tests, untested = _choose_tests(table, selection.trigger, cell, on)
    rocm = selection.rocm or find_line(cell.line).rocm.amd.values[-1]
    staged_as = MULTI_ARCH if selection.layout == MULTI_ARCH else cell.family
    return BuiltCell(cell, get_gfx_families()[cell.family], staged_as, rocm, tests=tests, untested=untested)


def _choose_tests(
    table: CiTable, trigger: str, cell: MatrixCell, on: FamilyPlatform
) -> tuple[tuple[CiTest, ...], str]:
    """Return what is tested, and why not where nothing is."""
    if not on.runners:
        return (), "no runner has such a GPU"
    if on.tests_since is not None and not table.has_begun(on.tests_since, trigger):
        return (), f"its runners test since {on.tests_since}, not in {trigger}"
    tests: tuple[CiTest, ...] = ("sanity",) if on.only_sanity else table.triggers[trigger].tests
    covering = find_untested(table, cell)
    remaining = tuple(test for test in tests if all(test not in exception.tests for exception in covering))
    return remaining, "" if remaining else "; ".join(
        exception.reason for exception in covering
    ) or f"{trigger} tests nothing"


def find_untested(table: CiTable, cell: MatrixCell) -> list[UntestedCells]:
    """Return the tests that a cell cannot have, and why."""
    return [
        row for row in table.untested if row.covers_cell(cell.family, cell.python, cell.line, cell.platform)
    ]


def _assign_machines(table: CiTable, built: Sequence[BuiltCell]) -> Iterator[BuiltCell]:
    """Yield the cells with labels: machines share the work as the table says, the same every time."""
    free = {
        platform: iter(share_jobs(machines.builders, len(built)))
        for platform, machines in table.platforms.items()
    }
    builders: dict[MatrixCell, str] = {}
    testers: dict[tuple[str, Platform], Iterator[str]] = {}
    for built_cell in built:
        key = built_cell.cell.family, built_cell.cell.platform
        on = table.all_families[built_cell.cell.family].get_platform(built_cell.cell.platform)
        if key not in testers:
            testers[key] = iter(share_jobs(on.runners if on else (), len(built)))
        if built_cell.build not in builders:
            builders[built_cell.build] = next(free[built_cell.cell.platform])
        tester = next(testers[key]) if built_cell.tests else ""
        yield replace(built_cell, builder=builders[built_cell.build], tester=tester)


def find_line(name: str) -> TorchLine:
    """Return a release line that there is."""
    return next(line for line in get_release_lines() if line.name == name)

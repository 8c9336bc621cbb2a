"""Which cells a run has, and for every other one why not.

Pure: what follows from the tables and the selection, in the order of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import Version

from rocm_wheels.ci.matrix.selection import Cell, Selection, checked, enumerated, layout_of
from rocm_wheels.model.ci import (
    MULTI_ARCH,
    PLATFORMS,
    CiTable,
    Family,
    FamilyOn,
    Layout,
    Test,
    Untested,
    shared_out,
)
from rocm_wheels.model.gfx import gfx_families
from rocm_wheels.model.line_facts import Line
from rocm_wheels.model.lines import all_lines
from rocm_wheels.model.project import Platform


@dataclass(frozen=True)
class Built:
    """A cell that is built. ``tests`` are those that run on a ``tester``; ``untested`` says why none do.

    ``staged_as`` is the family of its wheels: its own, or ``multi-arch`` where they are for others, too.
    ``rocm`` is the version that it is built against, ``builder`` and ``tester`` are labels of machines.
    """

    cell: Cell
    targets: tuple[str, ...]
    staged_as: str
    rocm: str
    builder: str = ""
    tests: tuple[Test, ...] = ()
    tester: str = ""
    untested: str = ""

    @property
    def build(self) -> Cell:
        """What it is built as: itself, or all families of its Python together."""
        return replace(self.cell, family=self.staged_as)

    @property
    def layout(self) -> Layout:
        """Whether its wheels are for its family, or for others, too."""
        return MULTI_ARCH if self.staged_as == MULTI_ARCH else "per-family"


@dataclass(frozen=True)
class Left:
    """A cell that is left out, and why; ``source`` is where that is stated, "" for our own policy."""

    cell: Cell
    reason: str
    source: str = ""


@dataclass(frozen=True)
class Matrix:
    """All cells of a selection: those that are built, and those that are left out."""

    trigger: str
    layout: Layout
    built: tuple[Built, ...]
    left: tuple[Left, ...] = field(default=())


def plan_matrix(table: CiTable, selection: Selection) -> Matrix:
    """Return the cells of a selection. Raises UsageError for names that there are not."""
    chosen = checked(table, selection)
    built, left = _sorted_out(table, chosen)
    whole = Selection(chosen.trigger, layout=chosen.layout)
    before = built if chosen == whole else _sorted_out(table, whole)[0]
    # workflows plan each line by itself: its cells have the machines that they have in the whole
    every = {one.cell: one for one in (*before, *built)}
    given = {one.cell: one for one in _with_machines(table, list(every.values()))}
    return Matrix(
        chosen.trigger, layout_of(table, chosen), tuple(given[one.cell] for one in built), tuple(left)
    )


def _sorted_out(table: CiTable, selection: Selection) -> tuple[list[Built], list[Left]]:
    built, left = [], []
    for cell in _universe(table, selection):
        reason = why_left(table, selection, cell)
        if reason is None:
            built.append(_built(table, selection, cell))
        else:
            left.append(reason)
    return built, left


def why_left(table: CiTable, selection: Selection, cell: Cell) -> Left | None:
    """Return the first reason for which a cell is left out of a selection; None when it is built."""
    return next(reasons(table, selection, cell), None)


def reasons(table: CiTable, selection: Selection, cell: Cell) -> Iterator[Left]:
    """Yield every reason against a cell: what cannot be first, then what policy leaves out."""
    line, family = line_named(cell.line), table.every_family[cell.family]
    place = table.sources[family.fact.source].url
    if family.on(cell.platform) is None:
        yield Left(cell, f"the family is not built on {cell.platform}", place)
    if cell.platform not in line.platforms.values:
        yield Left(cell, f"torch {line.name} is not made for {cell.platform}", line.platforms.source)
    pythons = line.free_threaded if cell.python.endswith("t") else line.pythons
    if cell.python not in pythons.values:
        had = ", ".join(pythons.values) or "none"
        kind = "without a GIL " if cell.python.endswith("t") else ""
        yield Left(
            cell, f"torch {line.name} is not released for Python {cell.python} ({kind}{had})", pythons.source
        )
    if selection.rocm is None and not line.rocm.amd.values:
        why = f"AMD has released no ROCm with torch {line.name}: --rocm-version says which to build it with"
        yield Left(cell, why, line.rocm.amd.source)
    for one in table.excluded:
        if one.covers(cell.family, cell.python, cell.line, cell.platform):
            yield Left(cell, one.reason, table.sources[one.source].url)
    yield from _by_policy(table, selection, cell, family)


def _by_policy(table: CiTable, selection: Selection, cell: Cell, family: Family) -> Iterator[Left]:
    name, trigger = selection.trigger, table.triggers[selection.trigger]
    if cell.family not in (selection.families or [cell.family]):
        yield Left(cell, f"--families does not name {cell.family}")
    elif not selection.families and not table.begun(family.since, name):
        yield Left(cell, f"the family is built since {family.since}, not in {name}")
    if cell.python not in (selection.pythons or trigger.pythons):
        said = (
            "--pythons does not name it"
            if selection.pythons
            else f"{name} builds {enumerated(trigger.pythons)}"
        )
        yield Left(cell, f"Python {cell.python}: {said}")
    wanted = selection.lines or lines_of(table, name)
    if cell.line not in wanted:
        said = "--lines does not name it" if selection.lines else f"{name} builds {enumerated(wanted)}"
        yield Left(cell, f"torch {cell.line}: {said}")
    if cell.platform not in (selection.platforms or PLATFORMS):
        yield Left(cell, f"--platform does not name {cell.platform}")


def lines_of(table: CiTable, trigger: str) -> tuple[str, ...]:
    """Return the lines that a trigger builds: the newest released by AMD, oldest first, and others."""
    said = table.triggers[trigger].lines
    released = [line.name for line in all_lines() if line.torch and line.rocm.amd.values]
    newest = sorted(released, key=Version)[-said.newest :] if said.newest else []
    return tuple(dict.fromkeys((*newest, *said.also)))


def _universe(table: CiTable, selection: Selection) -> Iterator[Cell]:
    trigger = table.triggers[selection.trigger]
    for platform in selection.platforms or PLATFORMS:
        for line in selection.lines or lines_of(table, selection.trigger):
            for python in selection.pythons or trigger.pythons:
                for family in selection.families or table.every_family:
                    yield Cell(family, python, line, platform)


def _built(table: CiTable, selection: Selection, cell: Cell) -> Built:
    on = table.every_family[cell.family].on(cell.platform)
    assert on is not None  # else it is left out
    tests, untested = _tests(table, selection.trigger, cell, on)
    rocm = selection.rocm or line_named(cell.line).rocm.amd.values[-1]
    staged_as = MULTI_ARCH if selection.layout == MULTI_ARCH else cell.family
    return Built(cell, gfx_families()[cell.family], staged_as, rocm, tests=tests, untested=untested)


def _tests(table: CiTable, trigger: str, cell: Cell, on: FamilyOn) -> tuple[tuple[Test, ...], str]:
    """Return what is tested, and why not where nothing is."""
    if not on.runners:
        return (), "no runner has such a GPU"
    if on.tests_since is not None and not table.begun(on.tests_since, trigger):
        return (), f"its runners test since {on.tests_since}, not in {trigger}"
    wanted: tuple[Test, ...] = ("sanity",) if on.only_sanity else table.triggers[trigger].tests
    covering = exceptions(table, cell)
    left = tuple(test for test in wanted if all(test not in one.tests for one in covering))
    return left, "" if left else "; ".join(one.reason for one in covering) or f"{trigger} tests nothing"


def exceptions(table: CiTable, cell: Cell) -> list[Untested]:
    """Return the tests that a cell cannot have, and why."""
    return [one for one in table.untested if one.covers(cell.family, cell.python, cell.line, cell.platform)]


def _with_machines(table: CiTable, built: Sequence[Built]) -> Iterator[Built]:
    """Yield the cells with labels: machines share the work as the table says, the same every time."""
    free = {
        platform: iter(shared_out(machines.builders, len(built)))
        for platform, machines in table.platforms.items()
    }
    builders: dict[Cell, str] = {}
    testers: dict[tuple[str, Platform], Iterator[str]] = {}
    for one in built:
        key = one.cell.family, one.cell.platform
        on = table.every_family[one.cell.family].on(one.cell.platform)
        if key not in testers:
            testers[key] = iter(shared_out(on.runners if on else (), len(built)))
        if one.build not in builders:
            builders[one.build] = next(free[one.cell.platform])
        tester = next(testers[key]) if one.tests else ""
        yield replace(one, builder=builders[one.build], tester=tester)


def line_named(name: str) -> Line:
    """Return a release line that there is."""
    return next(line for line in all_lines() if line.name == name)

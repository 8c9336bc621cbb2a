"""Cells as rows: for GitHub's matrices, which share what can be done once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from rocm_wheels.ci.matrix.builds import builds, by_line, by_python, by_set, grouped, targets_of
from rocm_wheels.ci.matrix.cells import Built
from rocm_wheels.ci.matrix.costs import (
    CHECKOUT,
    ROCM,
    TOOLS,
    Prices,
    companions,
    is_shared,
    projects_on,
    shared_before,
)
from rocm_wheels.ci.matrix.limits import minutes_of, stager
from rocm_wheels.ci.matrix.savings import first_cells
from rocm_wheels.ci.matrix.selection import Cell
from rocm_wheels.model.ci import Test, shared_out
from rocm_wheels.model.project import Platform, Project

Rows = Literal["cells", "first", "others", "tested", "torch_tested", "sets", "pythons", "companions", "lines"]
Row = dict[str, Any]
_TORCH: Test = "tests"
SHORT: tuple[Test, ...] = ("sanity", "smoke")  # tests of the first job on a GPU
_AROUND = 25  # minutes of a job on a GPU that are not its tests: to install, and to hand over what they found


def rows_of(cells: Sequence[Built], prices: Prices, rows: Rows) -> list[Row]:
    """Return what a matrix of GitHub includes: texts, numbers and booleans; keys are never renamed.

    ``cells``: a row a build, which is a cell, or all families of a Python together; of them ``first`` are
    those that warm the cache, ``others`` the rest. ``tested``: a row a cell with a machine to test on, which
    names what it is ``built`` as; ``torch_tested`` those on which torch's own tests run.
    ``sets``: a row a set of wheels: a family of a line and platform, or all of them.
    ``pythons``: a row for what all families of a Python share and needs no torch, where there is such a
    thing (``given`` names it in the rows of cells); ``companions`` for what needs one: ``torch`` names the
    build whose torch it is built against, ``reserve`` another. ``lines``: a row a torch line and platform: a
    lock, a checkout.
    """
    if rows == "lines":
        return [_line(group, prices) for group in grouped(cells, by_line).values()]
    if rows == "sets":
        sets = grouped(cells, by_set).values()
        stagers = shared_out(prices.table.staging, len(sets))
        return [_set(group, prices, own) for group, own in zip(sets, stagers, strict=True)]
    if rows == "pythons":
        with_shared = [one for one in cells if shared_before(one.cell.platform, one.cell.line)]
        return [_python(group, prices) for group in grouped(with_shared, by_python).values()]
    first = {one.cell for one in first_cells(cells, prices)}
    if rows == "companions":
        with_companions = [one for one in builds(cells) if companions(one.cell.platform, one.cell.line)]
        return [_companions(group, prices, first) for group in grouped(with_companions, by_python).values()]
    wanted = {"first": "first", "tested": "tester", "torch_tested": "torch_test_minutes"}.get(rows, "cell")
    chosen = cells if rows in {"tested", "torch_tested"} else builds(cells)
    found = [row for one in chosen if (row := _cell(one, prices, first=one.cell in first))[wanted]]
    return [row for row in found if not row["first"]] if rows == "others" else found


def _cell(one: Built, prices: Prices, *, first: bool) -> Row:
    cell, platform = one.cell, one.cell.platform
    own = [project for project in projects_on(platform, cell.line) if not is_shared(project, platform)]
    before, after = shared_before(platform, cell.line), companions(platform, cell.line)
    names = [ROCM, TOOLS, *(project.name for project in own)]
    # a cache that was lost, or never filled, must cost nobody a night: limits are those of a cold one
    hours = sum(prices.step(name, len(one.targets), platform).hours for name in names)
    return {
        "cell": str(cell),
        "name": _name(cell),
        "built": _name(one.build),
        "family": cell.family,
        "targets": ",".join(one.targets),
        "extras": _extras(one.targets),
        "python": cell.python,
        "line": cell.line,
        "platform": platform,
        "rocm": one.rocm,
        "projects": " ".join(project.name for project in own),
        "wheels": _files(own),
        "packages": " ".join(project.distribution for project in [*own, *before, *after]),
        "given": " ".join(project.name for project in before),
        "shared": f"{tag_of(cell.python)}-{cell.line}-{platform}",
        "builder": one.builder,
        "first": first,
        "minutes": _minutes(prices, platform, hours),
        "tests": " ".join(one.tests),
        "tester": one.tester,
        "test_minutes": (short := _test_minutes(one, prices, SHORT)),
        "test_step_minutes": max(short - _AROUND, 0),
        "torch_test_minutes": (torch := _test_minutes(one, prices, (_TORCH,))),
        "torch_step_minutes": max(torch - _AROUND, 0),
        "untested": one.untested,
    }


def _python(group: Sequence[Built], prices: Prices) -> Row:
    cell = group[0].cell
    return _for_all(group, prices, shared_before(cell.platform, cell.line))


def _companions(group: Sequence[Built], prices: Prices, first: Collection[Cell]) -> Row:
    """Return a row with the cell whose torch is built against, the first or the cheapest, and a reserve."""
    cell = group[0].cell
    by_cost = sorted(group, key=lambda one: (one.cell not in first, prices.cell(one).hours, str(one.cell)))
    torch, reserve, *_ = [*(_name(one.cell) for one in by_cost), ""]
    own = companions(cell.platform, cell.line)
    return {
        **_for_all(group, prices, own),
        "wheels": _files(own),
        "torch": torch,
        "reserve": reserve,
    }


def _for_all(group: Sequence[Built], prices: Prices, projects: Iterable[Project]) -> Row:
    one = group[0]
    cell, platform, targets = one.cell, one.cell.platform, targets_of(group)
    shared = [project.name for project in projects]
    hours = sum(prices.step(name, len(targets), platform).hours for name in (ROCM, TOOLS, *shared))
    return {
        "name": f"{tag_of(cell.python)}-{cell.line}-{platform}",
        "python": cell.python,
        "line": cell.line,
        "platform": platform,
        "rocm": one.rocm,
        "targets": ",".join(targets),
        "extras": _extras(targets),
        "projects": " ".join(shared),
        "builder": one.builder,
        "minutes": _minutes(prices, platform, hours),
    }


def _line(group: Sequence[Built], prices: Prices) -> Row:
    one = group[0]
    cell, platform = one.cell, one.cell.platform
    return {
        "name": f"{cell.line}-{platform}",
        "line": cell.line,
        "platform": platform,
        "rocm": one.rocm,
        "pythons": " ".join(dict.fromkeys(each.cell.python for each in group)),
        "families": " ".join(dict.fromkeys(each.cell.family for each in group)),
        "layout": one.layout,
        "targets": ",".join(targets_of(group)),
        "cells": len(group),
        "builder": one.builder,
        "minutes": _minutes(prices, platform, prices.step(CHECKOUT, 0, platform).hours),
    }


def _set(group: Sequence[Built], prices: Prices, own: str) -> Row:
    one = group[0]
    cell, size = one.cell, sum(prices.size(each) for each in builds(group))
    return {
        "name": f"{one.staged_as}-{cell.line}-{cell.platform}",
        "family": one.staged_as,
        "families": " ".join(dict.fromkeys(each.cell.family for each in group)),
        "layout": one.layout,
        "targets": ",".join(targets_of(group)),
        "line": cell.line,
        "platform": cell.platform,
        "rocm": one.rocm,
        "pythons": " ".join(dict.fromkeys(each.cell.python for each in group)),
        "cells": len(group),
        "tested": any(each.tester for each in group),
        "gib": round(size / (1 << 30), 1),
        "stager": stager(prices.table, size, own),
    }


def _files(projects: Iterable[Project]) -> str:
    """Return the names of the wheels of projects, as globs in lines: what an artifact is made of."""
    return "\n".join(f"wheels/{project.distribution.replace('-', '_')}-*.whl" for project in projects)


def _extras(targets: Iterable[str]) -> str:
    """Return the extras of the package `rocm` that bring what GPUs need of it."""
    return ",".join(f"device-{target}" for target in targets)


def _name(cell: Cell) -> str:
    return f"{cell.family}-{tag_of(cell.python)}-{cell.line}-{cell.platform}"


def tag_of(python: str) -> str:
    """Return the tag of a Python: ``cp312``, ``cp313t``."""
    return f"cp{python.replace('.', '')}"


def _test_minutes(one: Built, prices: Prices, kinds: Collection[Test]) -> int:
    """Return how long the job on a machine with GPUs may take, which installs ROCm and torch first."""
    minutes = [prices.table.tests[test].minutes for test in one.tests if test in kinds]
    return minutes_of(prices.table, sum(minutes) / 60, hosted=False) if minutes else 0


def _minutes(prices: Prices, platform: Platform, hours: float) -> int:
    return minutes_of(prices.table, hours, hosted=prices.table.platforms[platform].hosted)

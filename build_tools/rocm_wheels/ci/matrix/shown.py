"""The matrix for people: tables of a line for each set of wheels, and every reason once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocm_wheels.ci.matrix.builds import builds, by_set, grouped
from rocm_wheels.ci.matrix.cells import Built, Left, Matrix
from rocm_wheels.ci.matrix.costs import Prices
from rocm_wheels.ci.matrix.savings import Saving
from rocm_wheels.ci.matrix.selection import Cell
from rocm_wheels.model.ci import MULTI_ARCH, Test
from rocm_wheels.words import counted

_MOST = 2
_OF_TORCH = {"tests": "torch's own"}


def cells_table(cells: Sequence[Built], prices: Prices) -> str:
    """Return a line for each set of wheels, with its Pythons, and the sum.

    Below a set for all families is a line for each of them: what is tested of it, and what that takes.
    """
    if not cells:
        return "no cell is built"
    rows = [["platform", "torch", "family", "Pythons", "ROCm", "tests", "builder h", "GPU h", "disk GiB"]]
    for group in grouped(cells, by_set).values():
        rows.append(_set_row(group, prices))
        if group[0].layout == MULTI_ARCH:
            families = grouped(group, lambda one: one.cell.family)
            rows.extend(_family_row(name, mine, prices) for name, mine in families.items())
    made = builds(cells)
    hours = sum(prices.cell(one).hours for one in made)
    spent = f"{hours:.1f} builder hours, {_gpu_hours(cells, prices)} GPU hours"
    alone = f"{counted(len(cells), 'cell')}, each built alone"
    together = f"{counted(len(cells), 'cell')} in {counted(len(made), 'build')}, each from nothing"
    said = (
        f"{alone if len(made) == len(cells) else together} (--savings: shared): {spent};"
        " hours are of all Pythons of a row, disk is that of one"
    )
    return "\n".join([*_aligned(rows), said])


def _set_row(group: Sequence[Built], prices: Prices) -> list[str]:
    cell, made = group[0].cell, builds(group)
    costs = [prices.cell(one) for one in made]
    spent = [
        f"{sum(one.hours for one in costs):.1f}",
        _gpu_hours(group, prices),
        f"{max(one.disk for one in costs):.0f}",
    ]
    pythons = " ".join(one.cell.python for one in made)
    families = counted(len({one.cell.family for one in group}), "family", "families")
    tests = f"of {families}:" if group[0].layout == MULTI_ARCH else _tests_of(group)
    return [cell.platform, cell.line, group[0].staged_as, pythons, group[0].rocm, tests, *spent]


def _family_row(name: str, group: Sequence[Built], prices: Prices) -> list[str]:
    pythons = " ".join(one.cell.python for one in group)
    return ["", "", f"  {name}", pythons, "", _tests_of(group), "", _gpu_hours(group, prices), ""]


def _gpu_hours(cells: Sequence[Built], prices: Prices) -> str:
    return f"{sum(prices.tests(one).gpu_hours for one in cells):.1f}"


def _tests_of(group: Sequence[Built]) -> str:
    """Return what is tested where, every machine; Pythons are named where not all are tested alike."""
    kinds: dict[str, list[Built]] = {}
    for one in group:
        kinds.setdefault(one.untested or kinds_of(one.tests), []).append(one)
    said = []
    for kind, mine in kinds.items():
        machines = ", ".join(dict.fromkeys(one.tester for one in mine if one.tester))
        pythons = f"{' '.join(one.cell.python for one in mine)}: " if len(kinds) > 1 else ""
        said.append(f"{pythons}{kind}{f' on {machines}' if machines else ''}")
    return "; ".join(said)


def kinds_of(tests: Sequence[Test]) -> str:
    """Return kinds of tests as people say them: ``smoke and torch's own``."""
    return " and ".join(_OF_TORCH.get(one, one) for one in tests)


def left_table(left: Sequence[Left]) -> str:
    """Return every reason for which cells are left out, with how many and which."""
    reasons: dict[str, list[Cell]] = {}
    for one in left:
        reasons.setdefault(one.reason, []).append(one.cell)
    said = [f"{counted(len(left), 'cell')} left out (--explain CELL says where a reason is stated):"]
    for reason, cells in reasons.items():
        more = f" and {len(cells) - _MOST} more" if len(cells) > _MOST else ""
        said.append(f"  {len(cells):>3}  {reason}: {', '.join(map(str, cells[:_MOST]))}{more}")
    return "\n".join(said)


def explained(
    cell: Cell, built: Built | None, against: Sequence[Left], trigger: str, notes: Sequence[str]
) -> str:
    """Return why a cell is built with ``notes`` on it, or every reason why it is not."""
    if built is not None:
        tests = (
            f"tested: {kinds_of(built.tests)} on {built.tester}"
            if built.tests
            else f"untested: {built.untested}"
        )
        together = f" as part of {built.build}" if built.build != cell else ""
        made = f"for {', '.join(built.targets)} against ROCm {built.rocm} on {built.builder}{together}"
        return "\n  ".join([f"{cell} is built in {trigger}, {made}", tests, *notes])
    said = [f"{one.reason}" + (f" ({one.source})" if one.source else "") for one in against]
    return "\n  ".join([f"{cell} is not built in {trigger}:", *said])


def savings_table(found: Sequence[Saving], cells: int) -> str:
    """Return what each kind of work takes, alone and shared, and the sum."""
    rows = [["work", "alone", "h", "shared", "h", "saved"]]
    for one in found:
        alone, shared = f"{one.hours_alone:.1f}", f"{one.hours:.1f}"
        saved = _percent(one.hours_alone, one.hours)
        rows.append([one.what, f"{one.times_alone}x", alone, f"{one.times}x", shared, saved])
    total_alone, total = sum(one.hours_alone for one in found), sum(one.hours for one in found)
    rows.append(["together", "", f"{total_alone:.1f}", "", f"{total:.1f}", _percent(total_alone, total)])
    said = (
        f"{cells} cells; hours of builders. One build of each line and platform is first, and warms the cache"
    )
    return "\n".join([*_aligned(rows), said])


def as_json(matrix: Matrix, cells: Sequence[Built], prices: Prices) -> dict[str, Any]:
    """Return everything: keys are added later, never renamed. Costs of a cell are those of it alone."""
    return {
        "schema": 1,
        "trigger": matrix.trigger,
        "layout": matrix.layout,
        "cells": [_cell_as_json(one, prices) for one in cells],
        "builds": [_build_as_json(one, prices) for one in builds(cells)],
        "left_out": [
            {"cell": str(one.cell), "reason": one.reason, "source": one.source} for one in matrix.left
        ],
    }


def _cell_as_json(one: Built, prices: Prices) -> dict[str, Any]:
    return {
        "cell": str(one.cell),
        "build": str(one.build),
        "family": one.cell.family,
        "python": one.cell.python,
        "line": one.cell.line,
        "platform": one.cell.platform,
        "targets": list(one.targets),
        "rocm": one.rocm,
        "tests": list(one.tests),
        "tester": one.tester,
        "untested": one.untested,
        **_spent(one, prices),
        "gpu_hours": round(prices.tests(one).gpu_hours, 3),
    }


def _build_as_json(one: Built, prices: Prices) -> dict[str, Any]:
    return {"build": str(one.cell), "targets": list(one.targets), **_spent(one, prices)}


def _spent(one: Built, prices: Prices) -> dict[str, Any]:
    cost = prices.cell(one)
    return {
        "builder": one.builder,
        "hours": round(cost.hours, 3),
        "disk_gib": round(cost.disk, 1),
        "sources": list(cost.sources),
    }


def _percent(alone: float, shared: float) -> str:
    return f"{(alone - shared) / alone:.0%}" if alone else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]

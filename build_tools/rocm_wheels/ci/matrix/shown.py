"""The matrix for people: tables of a line for each family, and every reason once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocm_wheels.ci.matrix.cells import Built, Cell, Left, Matrix
from rocm_wheels.ci.matrix.costs import Prices, all_of
from rocm_wheels.ci.matrix.savings import Saving
from rocm_wheels.model.ci import Test
from rocm_wheels.words import counted

_MOST = 2
_OF_TORCH = {"tests": "torch's own"}


def cells_table(cells: Sequence[Built], prices: Prices) -> str:
    """Return a line for each family, torch line and platform, with its Pythons, and the sum."""
    if not cells:
        return "no cell is built"
    groups: dict[tuple[str, str, str], list[Built]] = {}
    for one in cells:
        groups.setdefault((one.cell.platform, one.cell.line, one.cell.family), []).append(one)
    rows = [["platform", "torch", "family", "Pythons", "ROCm", "tests", "builder h", "GPU h", "disk GiB"]]
    for (platform, line, family), group in groups.items():
        cost = all_of(prices.cell(one) for one in group)
        pythons = " ".join(one.cell.python for one in group)
        spent = [f"{cost.hours:.1f}", f"{cost.gpu_hours:.1f}", f"{prices.cell(group[0]).disk:.0f}"]
        rows.append([platform, line, family, pythons, group[0].rocm, _tests_of(group), *spent])
    total = all_of(prices.cell(one) for one in cells)
    hours = f"{total.hours:.1f} builder hours, {total.gpu_hours:.1f} GPU hours"
    said = (
        f"{counted(len(cells), 'cell')}, each built alone (--savings: shared): {hours};"
        " hours are of all Pythons of a row, disk is that of one"
    )
    return "\n".join([*_aligned(rows), said])


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
        made = f"for {', '.join(built.targets)} against ROCm {built.rocm} on {built.builder}"
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
        f"{cells} cells; hours of builders. One cell of each line and platform is first, and warms the cache"
    )
    return "\n".join([*_aligned(rows), said])


def as_json(matrix: Matrix, cells: Sequence[Built], prices: Prices) -> dict[str, Any]:
    """Return everything: keys are added later, never renamed."""
    return {
        "schema": 1,
        "trigger": matrix.trigger,
        "cells": [_cell_as_json(one, prices) for one in cells],
        "left_out": [
            {"cell": str(one.cell), "reason": one.reason, "source": one.source} for one in matrix.left
        ],
    }


def _cell_as_json(one: Built, prices: Prices) -> dict[str, Any]:
    cost = prices.cell(one)
    return {
        "cell": str(one.cell),
        "family": one.cell.family,
        "python": one.cell.python,
        "line": one.cell.line,
        "platform": one.cell.platform,
        "targets": list(one.targets),
        "rocm": one.rocm,
        "builder": one.builder,
        "tests": list(one.tests),
        "tester": one.tester,
        "untested": one.untested,
        "hours": round(cost.hours, 3),
        "disk_gib": round(cost.disk, 1),
        "gpu_hours": round(cost.gpu_hours, 3),
        "sources": list(cost.sources),
    }


def _percent(alone: float, shared: float) -> str:
    return f"{(alone - shared) / alone:.0%}" if alone else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]

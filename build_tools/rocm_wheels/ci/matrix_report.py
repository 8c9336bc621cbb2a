"""Show a matrix: as tables for people, as JSON, as outputs and summary of a GitHub job."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.ci.matrix import (
    BuiltCell,
    ExcludedCell,
    Matrix,
    MatrixCell,
    combine_builds,
    group_cells,
    set_key,
)
from rocm_wheels.ci.matrix_costs import Prices, Saving
from rocm_wheels.core import UsageError, align_rows, format_count, format_table, name_failed_file
from rocm_wheels.models import MULTI_ARCH, CiTest

_SET_HEADER = ("platform", "torch", "family", "Pythons", "ROCm", "tests", "builder h", "GPU h", "disk GiB")
_MOST_CELLS = 2
_TEST_NAMES = {"tests": "torch's own"}


def format_cells(cells: Sequence[BuiltCell], prices: Prices, *, width: int | None = None) -> str:
    """Return a line for each set of wheels, with its Pythons, and the sum; ``width`` is a terminal's.

    Below a set for all families is a line for each of them: what is tested of it, and what that takes.
    """
    if not cells:
        return "no cell is built"
    rows: list[list[str]] = []
    for group in group_cells(cells, set_key).values():
        rows.append(_format_set(group, prices))
        if group[0].layout == MULTI_ARCH:
            families = group_cells(group, lambda entry: entry.cell.family)
            rows.extend(_format_family(name, mine, prices) for name, mine in families.items())
    combined = combine_builds(cells)
    hours = sum(prices.price_cell(entry).hours for entry in combined)
    spent = f"{hours:.1f} builder hours, {_sum_gpu_hours(cells, prices)} GPU hours"
    alone = f"{format_count(len(cells), 'cell')}, each built alone"
    together = (
        f"{format_count(len(cells), 'cell')} in {format_count(len(combined), 'build')}, each from nothing"
    )
    summary = (
        f"{alone if len(combined) == len(cells) else together} (--savings: shared): {spent};"
        " hours are of all Pythons of a row, disk is that of one"
    )
    return f"{format_table(_SET_HEADER, rows, width=width)}\n{summary}"


def _format_set(group: Sequence[BuiltCell], prices: Prices) -> list[str]:
    cell, combined = group[0].cell, combine_builds(group)
    costs = [prices.price_cell(entry) for entry in combined]
    spent = [
        f"{sum(entry.hours for entry in costs):.1f}",
        _sum_gpu_hours(group, prices),
        f"{max(entry.disk for entry in costs):.0f}",
    ]
    pythons = " ".join(entry.cell.python for entry in combined)
    families = format_count(len({entry.cell.family for entry in group}), "family", "families")
    tests = f"of {families}:" if group[0].layout == MULTI_ARCH else _describe_tests(group)
    return [cell.platform, cell.line, group[0].staged_as, pythons, group[0].rocm, tests, *spent]


def _format_family(name: str, group: Sequence[BuiltCell], prices: Prices) -> list[str]:
    pythons = " ".join(built_cell.cell.python for built_cell in group)
    return ["", "", f"  {name}", pythons, "", _describe_tests(group), "", _sum_gpu_hours(group, prices), ""]


def _sum_gpu_hours(cells: Sequence[BuiltCell], prices: Prices) -> str:
    return f"{sum(prices.price_tests(built_cell).gpu_hours for built_cell in cells):.1f}"


def _describe_tests(group: Sequence[BuiltCell]) -> str:
    """Return what is tested where, every machine; Pythons are named where not all are tested alike."""
    kinds: dict[str, list[BuiltCell]] = {}
    for built_cell in group:
        kinds.setdefault(built_cell.untested or join_test_names(built_cell.tests), []).append(built_cell)
    parts = []
    for kind, mine in kinds.items():
        machines = ", ".join(dict.fromkeys(built_cell.tester for built_cell in mine if built_cell.tester))
        pythons = f"{' '.join(built_cell.cell.python for built_cell in mine)}: " if len(kinds) > 1 else ""
        parts.append(f"{pythons}{kind}{f' on {machines}' if machines else ''}")
    return "; ".join(parts)


def join_test_names(tests: Sequence[CiTest]) -> str:
    """Return kinds of tests as people say them: ``smoke and torch's own``."""
    return " and ".join(_TEST_NAMES.get(test, test) for test in tests)


def format_excluded(excluded: Sequence[ExcludedCell]) -> str:
    """Return every reason for which cells are left out, with how many and which."""
    reasons: dict[str, list[MatrixCell]] = {}
    for entry in excluded:
        reasons.setdefault(entry.reason, []).append(entry.cell)
    lines = [
        f"{format_count(len(excluded), 'cell')} left out (--explain CELL says where a reason is stated):"
    ]
    rows = []
    for reason, cells in reasons.items():
        more = f" and {len(cells) - _MOST_CELLS} more" if len(cells) > _MOST_CELLS else ""
        rows.append((str(len(cells)), f"{reason}: {', '.join(map(str, cells[:_MOST_CELLS]))}{more}"))
    lines += [f"  {row}" for row in align_rows(rows, right=[0])]
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
            f"tested: {join_test_names(built.tests)} on {built.tester}"
            if built.tests
            else f"untested: {built.untested}"
        )
        together = f" as part of {built.build}" if built.build != cell else ""
        details = f"for {', '.join(built.targets)} against ROCm {built.rocm} on {built.builder}{together}"
        return "\n  ".join([f"{cell} is built in {trigger}, {details}", tests, *notes])
    lines = [f"{entry.reason}" + (f" ({entry.source})" if entry.source else "") for entry in against]
    return "\n  ".join([f"{cell} is not built in {trigger}:", *lines])


def format_savings(savings: Sequence[Saving], cells: int, *, width: int | None = None) -> str:
    """Return what each kind of work takes, alone and shared, and the sum; ``width`` is a terminal's."""
    rows = []
    for saving in savings:
        alone, shared = f"{saving.hours_alone:.1f}", f"{saving.hours:.1f}"
        saved = _format_percent(saving.hours_alone, saving.hours)
        rows.append([saving.what, f"{saving.times_alone}x", alone, f"{saving.times}x", shared, saved])
    total_alone, total = (
        sum(saving.hours_alone for saving in savings),
        sum(saving.hours for saving in savings),
    )
    rows.append(
        ["together", "", f"{total_alone:.1f}", "", f"{total:.1f}", _format_percent(total_alone, total)]
    )
    summary = (
        f"{cells} cells; hours of builders. One build of each line and platform is first, and warms the cache"
    )
    table = format_table(("work", "alone", "h", "shared", "h", "saved"), rows, width=width)
    return f"{table}\n{summary}"


def matrix_as_json(matrix: Matrix, cells: Sequence[BuiltCell], prices: Prices) -> dict[str, Any]:
    """Return everything: keys are added later, never renamed. Costs of a cell are those of it alone."""
    return {
        "schema": 1,
        "trigger": matrix.trigger,
        "layout": matrix.layout,
        "cells": [_cell_as_json(entry, prices) for entry in cells],
        "builds": [_build_as_json(entry, prices) for entry in combine_builds(cells)],
        "left_out": [
            {"cell": str(entry.cell), "reason": entry.reason, "source": entry.source}
            for entry in matrix.excluded
        ],
    }


def _cell_as_json(built_cell: BuiltCell, prices: Prices) -> dict[str, Any]:
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
        **_cost_as_json(built_cell, prices),
        "gpu_hours": round(prices.price_tests(built_cell).gpu_hours, 3),
    }


def _build_as_json(build: BuiltCell, prices: Prices) -> dict[str, Any]:
    return {"build": str(build.cell), "targets": list(build.targets), **_cost_as_json(build, prices)}


def _cost_as_json(build: BuiltCell, prices: Prices) -> dict[str, Any]:
    cost = prices.price_cell(build)
    return {
        "builder": build.builder,
        "hours": round(cost.hours, 3),
        "disk_gib": round(cost.disk, 1),
        "sources": list(cost.sources),
    }


def _format_percent(alone: float, shared: float) -> str:
    return f"{(alone - shared) / alone:.0%}" if alone else "-"


OUTPUT_VARIABLE = "GITHUB_OUTPUT"
_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def set_outputs(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append outputs to the file that GitHub names. Raises UsageError outside of a workflow.

    A value of several lines ends at a word that is nowhere in it, so that no value can set another output.
    """
    if not env.get(OUTPUT_VARIABLE):
        tip = f"without --output it is printed; in a shell: {OUTPUT_VARIABLE}=FILE names the file to write to"
        raise UsageError(f"{OUTPUT_VARIABLE} is not set: this is no step of a workflow", tip=tip)
    lines = []
    for name, value in values.items():
        if not _OUTPUT_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of an output", tip="letters, digits, - and _")
        end = f"end-{secrets.token_hex(8)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n" if "\n" in value else f"{name}={value}\n")
    path = Path(env[OUTPUT_VARIABLE])
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(
            f"{OUTPUT_VARIABLE} names {path}, which cannot be a file: a folder is there, or none above it"
        )
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
    except OSError as failure:
        name_failed_file(failure, path)
        raise

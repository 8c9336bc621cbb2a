"""Say which wheels were planned, for ``audit --plan``: what ``matrix --json`` and ``plan --json`` print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_wheels.core import errors

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_set
    from rocm_wheels.models import project_names
    from rocm_wheels.models.project import Project

_PLAN_TIP = "write it with `rocm-wheels matrix --json` or `rocm-wheels plan --json`"


def read_planned_wheels(path: Path) -> tuple[audited_set.PlannedWheel, ...]:
    """Return what ``matrix --json`` or ``plan --json`` says that there must be.

    DataError for a file that is neither; UsageError for a matrix of several sets.
    """
    from rocm_wheels.core import records

    document = records.read_json_file(path, complaint="is no plan", tip=_PLAN_TIP)
    try:
        if "cells" in document:
            return _read_matrix(path, document)
        plans = document if isinstance(document, list) and document else [document]  # one for each Python
        return tuple(wheel for plan in plans for wheel in _read_plan(plan))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise errors.DataError(f"{path} is neither a matrix nor a plan", tip=_PLAN_TIP) from None


def _read_matrix(path: Path, document: Mapping[str, Any]) -> tuple[audited_set.PlannedWheel, ...]:
    """Return the cells of a matrix. A set is of one torch line, and of one family in that layout."""
    from rocm_wheels.ci import matrix

    cells = document["cells"]
    for option in ("line", *(["family"] if document["layout"] == "per-family" else [])):
        values = list(dict.fromkeys(cell[option] for cell in cells))
        if len(values) > 1:
            raise errors.UsageError(
                f"--plan {path} is of several sets: {option} {', '.join(values)}",
                tip=f"write it for the one that is audited: rocm-wheels matrix --{option} {values[0]} --json",
            )
    targets_by_cell: dict[tuple[str, project_names.Platform, str], dict[str, None]] = {}
    for cell in cells:
        targets = targets_by_cell.setdefault((cell["python"], cell["platform"], cell["line"]), {})
        targets.update(dict.fromkeys(cell["targets"]))
    planned: list[audited_set.PlannedWheel] = []
    for (python, platform, line), targets in targets_by_cell.items():
        of_line = _plan_projects(matrix.list_line_projects(platform, line), python, platform, targets)
        is_release = re.fullmatch(r"[0-9]+\.[0-9]+", line)  # others are called nightly
        for wheel in of_line:
            is_torch = is_release and wheel.project == "torch"
            planned.append(replace(wheel, line=line) if is_torch else wheel)
    return tuple(planned)


def _read_plan(document: Mapping[str, Any]) -> tuple[audited_set.PlannedWheel, ...]:
    """Return the wheels that a plan's steps build."""
    from rocm_wheels.models.project import load_project

    planned: list[audited_set.PlannedWheel] = []
    for step in document["steps"]:
        if step["kind"] == "build":
            python = f"3.{step['python'].removeprefix('cp3')}"
            projects = [load_project(step["project"])]
            planned += _plan_projects(projects, python, document["request"]["platform"], document["targets"])
    return tuple(planned)


def _plan_projects(
    projects: Iterable[Project], python: str, platform: project_names.Platform, targets: Iterable[str]
) -> list[audited_set.PlannedWheel]:
    """Return the wheels of projects; targets count where a recipe has a library with code for all of them."""
    from packaging.utils import canonicalize_name

    from rocm_wheels.audit import audited_set

    planned = []
    for project in projects:
        rules = project.list_device_code_rules(platform)
        has_code = any(rule.expect == "all" and rule.required for rule in rules)
        names = tuple(targets) if has_code else ()
        planned.append(
            audited_set.PlannedWheel(canonicalize_name(project.distribution), python, platform, names)
        )
    return planned

"""Show wheels, of a set or not: one page of all, and a small table for terminals.

What several Pythons have alike is one row. Nothing that a wheel says reaches the page unescaped.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from packaging.utils import canonicalize_name

from rocm_wheels.audit import audited_set, audited_wheel, checks
from rocm_wheels.core import errors, page_templates
from rocm_wheels.core.tables import align_rows, format_count, format_size
from rocm_wheels.wheels import dist_info

_TEMPLATES = Path(__file__).with_name("templates")
_MOST_SINGLE_ROWS = (
    30  # libraries of a project; of more, those of one folder with the same targets share a row
)
_MOST_COLUMNS = 12
_MOST_PLACES = 20
_LARGEST = 15
_KERNEL_FILE = re.compile(r"\.(co|hsaco|kpack)$")
_PYTHON_SUFFIX = re.compile(r"\.cpython-3\d+t?-")
_MARKS = {"held": "●", "part": "◐", "none": "–"}
ANY_PYTHON = "any Python"


@dataclass(frozen=True)
class GridRow:
    """A library, or several of one folder, of a project; by target, whether its wheels have code for it."""

    project: str
    library: str
    states: tuple[str, ...]


@dataclass(frozen=True)
class DeviceCodeGrid:
    """Which library has code for which target, over all wheels."""

    targets: tuple[str, ...]
    rows: tuple[GridRow, ...]


def make_device_code_grid(reports: Iterable[audited_wheel.AuditReport]) -> DeviceCodeGrid:
    """Return the grid of wheels; libraries of several Pythons are one row, kernel files one a folder."""
    members: dict[tuple[str, str], list[set[str]]] = {}
    for report in reports:
        in_wheel: dict[tuple[str, str], set[str]] = {}
        for member, targets in report.libraries.items():
            key = _get_project(report.wheel.name), _mask_library(member)
            in_wheel.setdefault(key, set()).update(audited_wheel.list_base_targets(targets))
        for key, held in in_wheel.items():
            members.setdefault(key, []).append(held)
    columns = sort_targets({target for groups in members.values() for held in groups for target in held})
    states = {
        key: tuple(_judge_cell(target, groups) for target in columns) for key, groups in members.items()
    }
    rows = []
    for project in sorted({project for project, _ in states}):
        libraries = {library: row for (owner, library), row in states.items() if owner == project}
        rows += [GridRow(project, name, row) for name, row in group_libraries(libraries)]
    return DeviceCodeGrid(tuple(columns), tuple(rows))


def _mask_library(member: str) -> str:
    if _KERNEL_FILE.search(member):
        return f"{posixpath.dirname(member)}/*{posixpath.splitext(member)[1]}"
    return _PYTHON_SUFFIX.sub(".cpython-*-", member)


def _judge_cell(target: str, groups: Sequence[set[str]]) -> str:
    number = sum(target in held for held in groups)
    return "held" if number == len(groups) else "part" if number else "none"


def sort_targets(targets: Iterable[str]) -> list[str]:
    """Return targets in the order in which people look for them: gfx90a before gfx1100."""
    return sorted(targets, key=lambda name: (len(name), name))


def group_libraries(libraries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return a row a library; of very many, a row for those of one folder that are alike."""
    if len(libraries) <= _MOST_SINGLE_ROWS:
        return sorted(libraries.items())
    shared: dict[tuple[str, Any], list[str]] = {}
    for member, held in sorted(libraries.items()):
        shared.setdefault((member.rpartition("/")[0], held), []).append(member)
    return [
        (members[0] if len(members) == 1 else f"{folder}/ ({format_count(len(members), 'file')})", held)
        for (folder, held), members in shared.items()
    ]


def format_device_code(reports: Iterable[audited_wheel.AuditReport]) -> list[str]:
    """Return the grid for a terminal: a line a target, a column for libraries with the same targets."""
    grid = make_device_code_grid(reports)
    columns: dict[tuple[str, ...], list[GridRow]] = {}
    for row in grid.rows:
        columns.setdefault(row.states, []).append(row)
    shown = list(columns.items())[:_MOST_COLUMNS]
    letters = ascii_uppercase[: len(shown)]
    lines = [["target", *letters]]
    for number, target in enumerate(grid.targets):
        lines.append([target, *(_MARKS[states[number]] for states, _ in shown)])
    legend = []
    for letter, (_, rows) in zip(letters, shown, strict=True):
        projects = ", ".join(dict.fromkeys(row.project for row in rows))
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        legend.append(
            f"  {letter}: {posixpath.basename(rows[0].library) or rows[0].library}{more} ({projects})"
        )
    if len(columns) > len(shown):
        legend.append(f"  {format_count(len(columns) - len(shown), 'other column')}: see the page (--report)")
    return [*(f"  {line}" for line in align_rows(lines)), *legend] if shown else []


def list_platforms(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a table a platform: projects by Python, with the versions that there are; "" where none is."""
    wheels = [(_read_name(name), name) for name in names]
    named = [wheel for wheel, _ in wheels if wheel is not None]
    platforms = sorted({platform for wheel in named for platform in _list_platforms(wheel)} - {"any"}) or [
        "any"
    ]
    tables = []
    for platform in platforms:
        here = [wheel for wheel in named if {platform, "any"} & set(_list_platforms(wheel))]
        minors = {minor for wheel in here for minor in _list_pythons(wheel)}
        pythons = sorted(minors, key=lambda text: (int(text[2:].rstrip("t")), text)) or [ANY_PYTHON]
        cells: dict[tuple[str, str], list[str]] = {}
        for wheel, python in product(here, pythons):
            if _accepts(wheel, python):
                cells.setdefault((str(wheel.name), python), []).append(str(wheel.version))
        projects = sorted({str(wheel.name) for wheel in here})
        rows = [
            {"project": project, "cells": [_join_versions(cells.get((project, p), [])) for p in pythons]}
            for project in projects
        ]
        tables.append({"name": platform, "pythons": pythons, "rows": rows})
    return tables


def _join_versions(versions: Sequence[str]) -> str:
    names = ", ".join(dict.fromkeys(versions))
    return f"{names} ({len(versions)} wheels)" if len(versions) > 1 else names


def _read_name(file_name: str) -> dist_info.WheelName | None:
    try:
        return dist_info.parse_wheel_name(file_name)
    except errors.DataError:
        return None  # a check of the wheel tells


def _list_platforms(wheel: dist_info.WheelName) -> list[str]:
    """Return its platforms without what tells them from older and newer ones: ``linux_x86_64``."""
    return sorted(
        {re.sub(r"^(many|musl)?linux[^x_]*(_\d+_\d+)?_", "linux_", tag.platform) for tag in wheel.tags}
    )


def _list_pythons(wheel: dist_info.WheelName) -> list[str]:
    """Return the Pythons that it is for alone; [] for one that several take."""
    return [
        f"3.{tag.interpreter[3:]}{'t' if tag.abi.endswith('t') else ''}"
        for tag in wheel.tags
        if tag.interpreter.startswith("cp3") and tag.interpreter[3:] and tag.abi not in ("abi3", "none")
    ]


def _accepts(wheel: dist_info.WheelName, python: str) -> bool:
    if python == ANY_PYTHON:
        return True
    minor = int(python[2:].rstrip("t"))
    for tag in wheel.tags:
        version = tag.interpreter[3:]
        stable = tag.abi == "abi3" and not python.endswith("t") and version and int(version) <= minor
        if stable or tag.interpreter in ("py3", f"py3{minor}") or python in _list_pythons(wheel):
            return True
    return False


def _get_project(file_name: str) -> str:
    return str(canonicalize_name(file_name.partition("-")[0]))


def render_audit_page(
    reports: Sequence[audited_wheel.AuditReport], version: str, of_set: audited_set.SetReport | None = None
) -> str:
    """Return the page of wheels, of a set or not: HTML without scripts, the same bytes for the same reports.

    Wheels with errors stand first.
    """
    title = format_count(len(reports), "wheel")
    report = of_set or audited_set.SetReport(title, "folder", {}, (), (), ())
    wheels = sorted(reports, key=lambda wheel: (wheel.passed, wheel.wheel.name))
    numbers = {wheel.wheel.name: number for number, wheel in enumerate(wheels, 1)}
    rows = _make_finding_rows(report, wheels, numbers)
    drift = {checks.LOST_WHEELS, *(check.name for check in checks.DRIFT_CHECKS)}
    is_compared = bool(report.compared_with)
    found = {finding.check for each in (report, *wheels) for finding in each.findings}
    counts = _count_severities([finding for each in (report, *wheels) for finding in each.findings])
    targets = sort_targets({target for wheel in wheels for target in wheel.targets})
    return (
        page_templates.make_page_templates(_TEMPLATES)
        .get_template("audit.html")
        .render(
            title=report.origin,
            full_title=report.title if of_set else title,
            of_set=of_set is not None,
            counts=counts,
            ignored=sum(len(each.ignored) for each in (report, *wheels)),
            facts=[
                ("wheels", format_count(len(wheels), "wheel")),
                ("size", format_size(sum(wheel.size for wheel in wheels))),
                ("targets", " ".join(targets)),
                ("compared with", report.compared_with),
            ],
            findings=[row for row in rows if not is_compared or row["check"] not in drift],
            changes=_describe_changes(report, wheels, numbers, [row for row in rows if row["check"] in drift])
            if is_compared
            else None,
            grid=make_device_code_grid(wheels),
            marks=_MARKS,
            platforms=list_platforms({*report.wheels, *numbers}),
            severities=list(audited_wheel.SEVERITY_WORDS.values()),
            wheels=[_describe_wheel(wheel, numbers) for wheel in wheels],
            largest=_list_largest(wheels),
            skipped=report.skipped,
            checks=[check for check in checks.ALL_CHECKS if check.name in found],
            version=version,
        )
    )


def _count_severities(findings: Sequence[errors.Finding]) -> list[dict[str, Any]]:
    return [
        {"word": word, "number": sum(finding.severity == severity for finding in findings)}
        for severity, word in audited_wheel.SEVERITY_WORDS.items()
    ]


def _make_finding_rows(
    report: audited_set.SetReport, wheels: Sequence[audited_wheel.AuditReport], numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return a row for what is said alike of several wheels, errors first."""
    groups: dict[tuple[str, str, str], tuple[errors.Finding, dict[str, list[str]]]] = {}
    for finding in report.findings:
        _, places = groups.setdefault((finding.severity, finding.check, finding.message), (finding, {}))
        places.setdefault(finding.subject or "the set", [])
    for wheel in wheels:
        for finding in wheel.findings:
            _, places = groups.setdefault((finding.severity, finding.check, finding.message), (finding, {}))
            members = places.setdefault(wheel.wheel.name, [])
            members += [finding.subject] if finding.subject else []
    rows = []
    for severity, word in audited_wheel.SEVERITY_WORDS.items():
        for finding, places in groups.values():
            if finding.severity == severity:
                listed = [
                    {
                        "name": _shorten_name(name),
                        "wheel": numbers.get(name),
                        "members": members[:_MOST_PLACES],
                    }
                    for name, members in list(places.items())[:_MOST_PLACES]
                ]
                hidden = max(len(places) - _MOST_PLACES, 0)
                hidden += sum(max(len(members) - _MOST_PLACES, 0) for members in places.values())
                facts = {"severity": word, "id": checks.get_check_id(finding.check), "check": finding.check}
                texts = {"message": finding.message, "tip": finding.tip}
                rows.append({**facts, **texts, "places": listed, "more": hidden})
    return rows


def _shorten_name(file_name: str) -> str:
    """Return what tells a wheel from others of its set: project, Python, platform and label."""
    try:
        fields = dist_info.split_wheel_name(file_name)
    except errors.DataError:
        return file_name
    parts = (fields.distribution, fields.abi if fields.abi != "none" else "", fields.label)
    return " ".join(filter(None, parts))


def _describe_wheel(wheel: audited_wheel.AuditReport, numbers: Mapping[str, int]) -> dict[str, Any]:
    return {
        "number": numbers[wheel.wheel.name],
        "name": wheel.wheel.name,
        "sha256": wheel.sha256,
        "size": format_size(wheel.size),
        "counts": _count_severities(wheel.findings),
        "targets": " ".join(sort_targets(wheel.targets)),
    }


def _list_largest(wheels: Sequence[audited_wheel.AuditReport]) -> list[dict[str, str]]:
    files = [(size, wheel.wheel.name, member) for wheel in wheels for member, size in wheel.largest.items()]
    largest = sorted(files, key=lambda file: (-file[0], *file[1:]))[:_LARGEST]
    return [{"member": member, "wheel": name, "size": format_size(size)} for size, name, member in largest]


def _describe_changes(
    report: audited_set.SetReport,
    wheels: Sequence[audited_wheel.AuditReport],
    numbers: Mapping[str, int],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    sizes = []
    for wheel in wheels:
        before = wheel.compared_size
        change = f"{(wheel.size - before) * 100 / before:+.1f} %" if wheel.compared_with and before else ""
        sizes.append(
            {
                "wheel": numbers[wheel.wheel.name],
                "name": _shorten_name(wheel.wheel.name),
                "old": wheel.compared_with,
                "before": format_size(before) if wheel.compared_with else "",
                "now": format_size(wheel.size),
                "change": change,
            }
        )
    return {"origin": report.compared_with, "rows": sizes, "findings": rows}

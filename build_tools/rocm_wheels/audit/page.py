"""Show wheels, of a set or not, as one page. Nothing that a wheel says reaches the page unescaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.audit import checks, outputs
from rocm_wheels.audit.audited_set import SetReport
from rocm_wheels.audit.audited_wheel import SEVERITY_WORDS, AuditReport
from rocm_wheels.core import errors, page_templates
from rocm_wheels.core.tables import format_count, format_size
from rocm_wheels.wheels import dist_info

_TEMPLATES = Path(__file__).with_name("templates")
_MOST_PLACES = 20
_LARGEST = 15


def render_audit_page(reports: Sequence[AuditReport], version: str, of_set: SetReport | None = None) -> str:
    """Return the page of wheels, of a set or not: HTML without scripts, the same bytes for the same reports.

    Wheels with errors stand first; what several Pythons have alike is one row.
    """
    title = format_count(len(reports), "wheel")
    report = of_set or SetReport(origin=title, kind="folder")
    wheels = sorted(reports, key=lambda wheel: (wheel.passed, wheel.wheel.name))
    numbers = {wheel.wheel.name: number for number, wheel in enumerate(wheels, 1)}
    every = (report, *wheels)
    targets = outputs.sort_targets({target for wheel in wheels for target in wheel.targets})
    rows: list[dict[str, Any]] = []
    for group in outputs.group_findings(every):
        places = [
            {"name": _shorten_name(name), "wheel": numbers.get(name), "members": members[:_MOST_PLACES]}
            for name, members in list(group.places.items())[:_MOST_PLACES]
        ]
        hidden = max(len(group.places) - _MOST_PLACES, 0)
        hidden += sum(max(len(members) - _MOST_PLACES, 0) for members in group.places.values())
        row = {"finding": group.finding, "severity": SEVERITY_WORDS[group.finding.severity], "more": hidden}
        rows.append({**row, "id": checks.get_check_id(group.finding.check), "places": places})
    drift = {checks.LOST_WHEELS, *(check.name for check in checks.DRIFT_CHECKS)}
    changes = [row for row in rows if report.compared_with and row["finding"].check in drift]
    named = {finding.check for each in every for finding in each.findings}
    sizes = [(size, wheel.wheel.name, member) for wheel in wheels for member, size in wheel.largest.items()]
    largest = sorted(sizes, key=lambda file: (-file[0], *file[1:]))[:_LARGEST]
    values: dict[str, Any] = {
        "title": report.origin,
        "full_title": report.title if of_set else title,
        "of_set": of_set is not None,
        "counts": outputs.count_severities(every),
        "ignored": sum(len(each.ignored) for each in every),
        "facts": [
            ("wheels", format_count(len(wheels), "wheel")),
            ("size", format_size(sum(wheel.size for wheel in wheels))),
            ("targets", " ".join(targets)),
            ("compared with", report.compared_with),
        ],
        "findings": [row for row in rows if row not in changes],
        "changes": changes,
        "compared_with": report.compared_with,
        "code": outputs.list_device_code(wheels),
        "wheels": [
            {
                "number": numbers[wheel.wheel.name],
                "report": wheel,
                "name": _shorten_name(wheel.wheel.name),
                "size": format_size(wheel.size),
                "before": format_size(wheel.compared_size) if wheel.compared_with else "",
                "change": _describe_change(wheel),
                "counts": outputs.count_severities([wheel]),
                "targets": " ".join(outputs.sort_targets(wheel.targets)),
            }
            for wheel in wheels
        ],
        "largest": [(member, name, format_size(size)) for size, name, member in largest],
        "skipped": report.skipped,
        "checks": [check for check in checks.ALL_CHECKS if check.name in named],
        "version": version,
    }
    return page_templates.make_page_templates(_TEMPLATES).get_template("audit.html").render(values)


def _shorten_name(file_name: str) -> str:
    """Return what tells a wheel from others of its set: project, Python, platform and label."""
    try:
        fields = dist_info.split_wheel_name(file_name)
    except errors.DataError:
        return file_name
    parts = (fields.distribution, fields.abi if fields.abi != "none" else "", fields.label)
    return " ".join(filter(None, parts))


def _describe_change(wheel: AuditReport) -> str:
    before = wheel.compared_size
    return f"{(wheel.size - before) * 100 / before:+.1f} %" if wheel.compared_with and before else ""

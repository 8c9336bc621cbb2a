"""Audit a set that is to be staged, from what staging has read: no wheel is read a second time."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rocm_wheels import __version__
from rocm_wheels.audit import audited_set, audited_wheel, page, verify
from rocm_wheels.release import staged_wheels, wheel_set

AUDIT_PAGE, AUDIT_FILE = AUDIT_FILES = "audit.html", "audit.json"


def make_set_audit(
    document: wheel_set.SetDocument, wheels: Sequence[staged_wheels.StagedWheel]
) -> dict[str, bytes]:
    """Return the audit of a set as files by their names: a page, and the same as JSON.

    Both depend on the wheels and the version of this tool alone, and say nothing of this machine. Raises
    ModuleNotFoundError without what fills the page.
    """
    platform = wheel_set.find_set_platform(document)
    scans = {wheel.path: wheel.scan for wheel in wheels}
    read = verify.join_scans(
        scans, dict.fromkeys(scans, audited_wheel.WheelExpectation(None, platform)), together=True
    )
    reports = [verify.check_wheel(wheel) for wheel in read.wheels]
    files = audited_set.SetFiles(document.id, "set", tuple(scans), planned=list_planned_wheels(document))
    report = verify.check_set(audited_set.AuditedSet(files, read.wheels))
    texts = {
        "rocm_wheels": __version__,
        "set": report.to_json(),
        "wheels": [report.to_json() for report in reports],
    }
    return {
        AUDIT_FILE: (json.dumps(texts, indent=1) + "\n").encode(),
        AUDIT_PAGE: page.render_audit_page(reports, __version__, report).encode(),
    }


def list_planned_wheels(document: wheel_set.SetDocument) -> tuple[audited_set.PlannedWheel, ...] | None:
    """Return what a set should hold, a project and Python each; None where nothing is known of that."""
    platform = wheel_set.find_set_platform(document)
    targets: dict[tuple[str, str], list[str]] = {}
    for cell in document.planned:
        targets.setdefault((cell.project, cell.python), []).extend([cell.target] if cell.target else [])
    planned = [
        audited_set.PlannedWheel(project, python, platform, tuple(dict.fromkeys(names)))
        for (project, python), names in targets.items()
    ]
    return tuple(planned) or None

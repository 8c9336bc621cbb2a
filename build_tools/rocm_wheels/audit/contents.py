"""Checks of what is inside: the archive itself, the recipe's files, traces of the builder's machine."""

from __future__ import annotations

import re

from rocm_wheels.audit.findings import AuditFinding, SkippedCheck
from rocm_wheels.audit.subject import AuditedWheel

# files that installers write; in a wheel they tell lies about the machine that it lands on
_INSTALLER_FILES = ("direct_url.json", "INSTALLER", "REQUESTED")
_SYSTEM_FOLDER = re.compile(r"/(usr/)?lib(32|64)?(/|$)")


def check_archive(wheel: AuditedWheel) -> list[AuditFinding]:
    """Every member is whole and listed in RECORD; name, folder, METADATA and WHEEL agree.

    Device code that is damaged is told here as well: see ``wheels.scan``.
    """
    tip = "something changed or cut the wheel after it was packed, or packed it wrongly: build it again"
    prefix = f"{wheel.scan.path}: "
    broken = [AuditFinding(fault.removeprefix(prefix), tip=tip) for fault in wheel.scan.breaking_faults]
    spelled = [fault for fault in wheel.scan.faults if fault not in wheel.scan.breaking_faults]
    return [*broken, *(AuditFinding(fault.removeprefix(prefix), severity="warning") for fault in spelled)]


def check_files(wheel: AuditedWheel) -> list[AuditFinding] | SkippedCheck:
    """Every file that the recipe names is there."""
    patterns = wheel.expected.project.checks.files
    if not patterns:
        return SkippedCheck("the recipe names no files")
    tip = "the build back end left it out, or the tree was not complete when the build began"
    return [
        AuditFinding(f"no member matches {pattern}", tip=tip)
        for pattern in patterns
        if not wheel.find_members(pattern)
    ]


def check_installer_files(wheel: AuditedWheel) -> list[AuditFinding]:
    """No file is inside that only an installer may write (such as ``direct_url.json``)."""
    return [
        AuditFinding("is written by installers and must not be in a wheel", f"{wheel.dist_info}/{name}")
        for name in _INSTALLER_FILES
        if f"{wheel.dist_info}/{name}" in wheel.members
    ]


def check_run_paths(wheel: AuditedWheel) -> list[AuditFinding]:
    """No library looks for others in a folder of the builder's machine (DT_RUNPATH, DT_RPATH).

    A warning: link steps of upstream projects leave such entries behind, and the loader passes
    over a folder that is not there; on a machine where somebody else can make it, it is a hole.
    """
    tip = "link with entries relative to $ORIGIN, or take the entry out when the wheel is repaired"
    findings = []
    for member, entries in sorted(wheel.scan.run_paths.items()):
        outside = [entry for entry in entries if entry.startswith("/") and not _SYSTEM_FOLDER.match(entry)]
        if outside:
            message = f"looks for libraries in {', '.join(outside)}"
            findings.append(AuditFinding(message, member, tip, severity="warning"))
    return findings

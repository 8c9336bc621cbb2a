"""Verify wheels and sets: read each wheel once, run every check of the tables, and make the reports."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocm_wheels.audit import audited_set, audited_wheel, drift_limits, import_check, metadata, split_wheels
from rocm_wheels.audit.checks import CHECKS, DRIFT_CHECKS, IMPORT_CHECK, SET_CHECKS, find_check
from rocm_wheels.audit.definition import AuditCheck, SkippedCheck
from rocm_wheels.core import errors, files, parallel
from rocm_wheels.wheels import required_packages
from rocm_wheels.wheels.scan import WheelScan, scan_wheel

_LARGEST = 10  # members whose size is told


def verify_wheel(
    path: Path,
    expected: audited_wheel.WheelExpectation,
    *,
    environment: import_check.ImportEnvironment | None = None,
    parts: Sequence[Path] = (),
    packages: required_packages.PackagePool | None = None,
) -> audited_wheel.AuditReport:
    """Run every check of the table, the import in ``environment`` included; ``parts`` are device wheels split
    off, ``packages`` those at hand to look for what it requires in.

    Without a recipe, checks that need one are skipped by name. The import is skipped, with the reason in the
    report, when no place is given, when this machine is not what the wheel is for, and when the archive
    itself is damaged. DataError only when the file is not there or is no archive.
    """
    scan = _scan_expected(path, expected)
    subject = audited_wheel.AuditedWheel(scan, expected, tuple(scan_wheel(part) for part in parts))
    if packages is not None:
        subject = replace(subject, required=_find_required(subject, packages))
    return check_wheel(subject, environment=environment)


@dataclass(frozen=True)
class ReadWheels:
    """Wheels that were read together, and why others could not be."""

    wheels: tuple[audited_wheel.AuditedWheel, ...]
    damaged: Mapping[Path, errors.DataError]


def read_wheels(
    expected: Mapping[Path, audited_wheel.WheelExpectation],
    *,
    find_links: Sequence[Path] = (),
    together: bool = False,
) -> ReadWheels:
    """Read wheels once each, as many at a time as there are cores; device wheels as parts of hosts, too.

    With ``find_links`` (files or folders) what a wheel requires is looked for there and among the others;
    ``together``: among the others in any case.
    """

    def scan_or_fail(path: Path) -> WheelScan | errors.DataError:
        try:
            return _scan_expected(path, expected[path])
        except errors.DataError as damage:  # the other wheels are still worth a look
            return damage

    # the largest first: one member can keep one core busy for longer than small wheels keep all
    paths = sorted(expected, key=lambda path: path.stat().st_size, reverse=True)
    outcomes = dict(
        zip(paths, parallel.run_in_parallel(scan_or_fail, paths, jobs=os.cpu_count() or 1), strict=True)
    )
    scans = {path: scan for path in expected if isinstance(scan := outcomes[path], WheelScan)}
    damaged = {path: fault for path in expected if isinstance(fault := outcomes[path], errors.DataError)}
    packages = None
    if find_links or together:
        packages = required_packages.PackagePool.collect(
            (), find_links, None, {}, scans=tuple(scans.values()), symbols=True
        )
    wheels = []
    for path, scan in scans.items():
        parts = tuple(scans[part] for part in split_wheels.select_device_wheels(path, list(scans)))
        wheel = audited_wheel.AuditedWheel(scan, expected[path], parts)
        try:
            required = _find_required(wheel, packages) if packages is not None else None
        except errors.DataError as damage:
            damaged[path] = damage
            continue
        wheels.append(replace(wheel, required=required))
    return ReadWheels(tuple(wheels), damaged)


def read_baseline(path: Path, limits: drift_limits.DriftLimits) -> audited_wheel.Baseline:
    """Read a wheel to compare another with. DataError when it is no archive."""
    expected = audited_wheel.WheelExpectation(None, "linux")
    return audited_wheel.Baseline(
        audited_wheel.AuditedWheel(scan_wheel(path, symbols=True), expected), limits
    )


def check_wheel(
    subject: audited_wheel.AuditedWheel, *, environment: import_check.ImportEnvironment | None = None
) -> audited_wheel.AuditReport:
    """Run every check of the table on a wheel that was read, as ``verify_wheel`` does."""
    scan, expected = subject.scan, subject.expected
    older = subject.baseline.wheel.scan if subject.baseline is not None else None
    checks = (*CHECKS, *(DRIFT_CHECKS if older is not None else ()))
    largest = sorted(scan.members, key=lambda member: -member.size)[:_LARGEST]
    report = audited_wheel.AuditReport(
        wheel=scan.path,
        size=scan.size,
        sha256=scan.sha256,
        targets=subject.targets,
        **_run_checks(checks, subject),
        archives=tuple(sorted({name for names in scan.moved_code.values() for name in names})),
        parts={part.path.name: part.sha256 for part in subject.parts},
        libraries={
            name: tuple(sorted({str(code.target) for code in objects}))
            for name, objects in scan.device_code.items()
        },
        jit_sources=subject.jit_sources,
        record=tuple(member.recorded for member in scan.members if member.recorded is not None),
        requirements=tuple(map(str, metadata.list_requirements(subject))),
        recipe=expected.project.name if expected.project is not None else "",
        largest={member.name: member.size for member in largest},
        compared_with=older.path.name if older is not None else "",
        compared_size=older.size if older is not None else 0,
    )
    if environment is None or scan.breaking_faults:
        return report
    return add_import_check(report, expected, environment)


def check_set(subject: audited_set.AuditedSet) -> audited_set.SetReport:
    """Run every check of sets on one whose wheels were read."""
    return audited_set.SetReport(
        origin=subject.origin,
        kind=subject.files.kind,
        wheels=dict(sorted(subject.sha256_by_name.items())),
        **_run_checks(SET_CHECKS, subject),
        older=len(subject.files.older),
        compared_with=subject.compared.origin if subject.compared is not None else "",
    )


def _run_checks(checks: Iterable[AuditCheck], subject: Any) -> dict[str, Any]:
    """Return what checks found, which ran, and which did not, as a report has it."""
    findings: list[errors.Finding] = []
    ran: list[str] = []
    skipped: list[SkippedCheck] = []
    for check in checks:
        if check.find is None:
            continue
        outcome = check.run(subject)
        if isinstance(outcome, SkippedCheck):
            skipped.append(outcome)
        else:
            ran.append(check.name)
            findings += outcome
    return {"findings": tuple(findings), "ran": tuple(ran), "skipped": tuple(skipped)}


def _scan_expected(path: Path, expected: audited_wheel.WheelExpectation) -> WheelScan:
    """Read a wheel with the modules that checks read: of its recipe, else what import runs by its name."""
    name = path.name.partition("-")[0]
    modules: tuple[str | None, ...] = (f"{name}/__init__.py", f"{name}/_rocm_init.py")
    if expected.project is not None:
        checks = expected.project.checks
        modules = (f"{checks.import_name}/version.py", f"{checks.import_name}/__init__.py", checks.rocm_init)
    return scan_wheel(path, keep=tuple(filter(None, modules)), leaks=True, symbols=True)


def _find_required(
    subject: audited_wheel.AuditedWheel, packages: required_packages.PackagePool
) -> required_packages.RequiredPackages | None:
    if subject.wheel_platform is None or subject.scan.metadata is None:
        return None
    return packages.find_required(subject.scan.path, subject.wheel_platform)


def make_unreadable_report(
    path: Path, damage: errors.DataError, expected: audited_wheel.WheelExpectation
) -> audited_wheel.AuditReport:
    """Return the report of a file that is no archive: one finding, of the check of archives.

    ``expected`` is that of the wheel, of a device wheel that of its host: its recipe is named.
    """
    archive = CHECKS[0]
    message, tip = errors.split_explanation(damage)
    finding = errors.Finding(
        "error", message.removeprefix(f"{path} "), tip or archive.fix, check=archive.name
    )
    recipe = expected.project.name if expected.project is not None else ""
    return audited_wheel.AuditReport(
        wheel=path,
        size=path.stat().st_size,
        sha256=files.hash_file(path),
        findings=(finding,),
        ran=(archive.name,),
        recipe=recipe,
    )


def add_import_check(
    report: audited_wheel.AuditReport,
    expected: audited_wheel.WheelExpectation,
    environment: import_check.ImportEnvironment,
) -> audited_wheel.AuditReport:
    """Return a report with the import check added that was skipped."""
    outcome = find_check(IMPORT_CHECK).collect(
        lambda: import_check.import_here(report.wheel, expected, environment)
    )
    skipped = tuple(skip for skip in report.skipped if skip.check != IMPORT_CHECK)
    if isinstance(outcome, SkippedCheck):
        return replace(report, skipped=(*skipped, outcome))
    findings, ran = (*report.findings, *outcome), (*report.ran, IMPORT_CHECK)
    return replace(report, findings=findings, ran=ran, skipped=skipped)


def reject_wheel(wheel: Path, report: audited_wheel.AuditReport, log: Path | None, folder: Path) -> Path:
    """Set a failed wheel aside and return its new path.

    ``<folder>/<stem>/`` receives the wheel, ``<wheel>.findings.json`` and a copy of the log as
    ``<wheel>.log``. That folder appears whole or not at all, and only then the wheel leaves its
    old place. Another wheel of that name that was set aside before stays: the new folder is
    ``<stem>.2``, ``<stem>.3``, …; the same wheel (by sha256) takes its own old place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    findings = f"{wheel.name}.findings.json"
    new_folder = Path(tempfile.mkdtemp(prefix=".rejected-", dir=folder))
    try:
        new_folder.chmod(0o755)
        files.write_json_file(new_folder / findings, report.to_json())
        if log is not None and log.is_file():
            files.copy_atomically(log, new_folder / f"{wheel.name}.log")
        files.link_or_copy(wheel, new_folder / wheel.name)
        number, place = 1, folder / wheel.stem
        while place.exists() and _read_digest(place / findings) != report.sha256:
            number += 1
            place = folder / f"{wheel.stem}.{number}"
        files.replace_folder(new_folder, place)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    wheel.unlink()
    return place / wheel.name


def _read_digest(findings: Path) -> str | None:
    """Return the digest of a wheel that was set aside; None for somebody else's file, which is none of it."""
    try:
        return str(json.loads(findings.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None

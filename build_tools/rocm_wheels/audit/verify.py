"""Verify a wheel: the table of checks, what each is given, and the report that they make."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.audit.audited_wheel import AuditedWheel, AuditReport, SkippedCheck, WheelExpectation
from rocm_wheels.audit.contents import (
    check_archive,
    check_carried_rocm,
    check_files,
    check_installer_files,
    check_rocm_init,
    check_run_paths,
)
from rocm_wheels.audit.device_code import (
    check_consistency,
    check_coverage,
    check_device_code,
    check_device_libraries,
    check_device_wheels,
    check_rocm_build,
)
from rocm_wheels.audit.import_check import (
    ImportEnvironment,
    check_import,
    detect_import_host,
    explain_no_import,
)
from rocm_wheels.audit.metadata import (
    check_file_name,
    check_metadata,
    check_pins,
    check_platform,
    check_python,
    check_requirements,
    check_requires_python,
    check_rocm_requirement,
    list_requirements,
)
from rocm_wheels.core import (
    Finding,
    copy_atomically,
    format_count,
    format_finding,
    format_size,
    link_or_copy,
    replace_folder,
    write_json_file,
)
from rocm_wheels.variants import collect_wheel_targets
from rocm_wheels.wheels import scan_wheel

CheckFunction = Callable[[AuditedWheel], Sequence[Finding] | SkippedCheck]


@dataclass(frozen=True)
class WheelCheck:
    """A named check: ``run_check`` returns what is wrong ([] when nothing is), or why it could not look."""

    name: str
    summary: str
    run_check: CheckFunction


CHECKS: tuple[WheelCheck, ...] = (
    WheelCheck("archive", "members are whole; RECORD, METADATA, WHEEL and names agree", check_archive),
    WheelCheck("file-name", "the distribution and version that were to be built", check_file_name),
    WheelCheck("platform", "the tags say the platform it is for", check_platform),
    WheelCheck("python", "the interpreter it was built for accepts its tags", check_python),
    WheelCheck("metadata", "every field of METADATA is valid", check_metadata),
    WheelCheck("requires-python", "Requires-Python admits that interpreter", check_requires_python),
    WheelCheck("requirements", "no requirement points at a place", check_requirements),
    WheelCheck("rocm-requirement", "rocm[libraries] is pinned where it must be", check_rocm_requirement),
    WheelCheck("pins", "what was built with it is required at that version", check_pins),
    WheelCheck("files", "the files that the recipe names are inside", check_files),
    WheelCheck("installer-files", "no file that only installers may write", check_installer_files),
    WheelCheck("rocm-init", "the module that starts ROCm asks for the SDK's version", check_rocm_init),
    WheelCheck(
        "carried-rocm", "of a wheel that carries its ROCm: what it is linked to is inside", check_carried_rocm
    ),
    WheelCheck("rocm-build", "a ROCm build, not a CPU-only one", check_rocm_build),
    WheelCheck(
        "device-libraries",
        "the libraries that must hold device code exist",
        check_device_libraries,
    ),
    WheelCheck("device-code", "each library holds all, some or none of the targets", check_device_code),
    WheelCheck("device-consistency", "without stated targets: libraries agree", check_consistency),
    WheelCheck("device-coverage", "device code only where the recipe has a rule", check_coverage),
    WheelCheck(
        "device-wheels", "parts that were split off are whole and of this version", check_device_wheels
    ),
    WheelCheck("run-paths", "no library looks into the builder's folders", check_run_paths),
)
IMPORT_CHECK = "import"  # not in the table: it needs an environment; see imports.check_import
IMPORT_SUMMARY = "it can be imported in a clean process, and says of itself what was built"


_NO_ENVIRONMENT = "not imported: no environment to import it in"


def verify_wheel(
    path: Path,
    expected: WheelExpectation,
    *,
    environment: ImportEnvironment | None = None,
    parts: Sequence[Path] = (),
) -> AuditReport:
    """Run every check of the table, then the import in ``environment``; ``parts`` are device wheels split
    off.

    The import is skipped, with the reason in the report, when no place is given, when this
    machine is not what the wheel is for, and when the archive itself is damaged. DataError only
    when the file is not there or is no archive.
    """
    checks = expected.project.checks
    version_module = f"{checks.import_name}/version.py"
    package_module = f"{checks.import_name}/__init__.py"
    scan = scan_wheel(path, keep=(version_module, package_module, checks.rocm_init or version_module))
    subject = AuditedWheel(scan, expected, tuple(scan_wheel(part) for part in parts))
    findings: list[Finding] = []
    ran: list[str] = []
    skipped: list[SkippedCheck] = []
    outcomes = [(check.name, check.run_check(subject)) for check in CHECKS]
    outcomes.append(
        (IMPORT_CHECK, _check_import_here(path, expected, environment, damaged=bool(scan.breaking_faults)))
    )
    for name, outcome in outcomes:
        if isinstance(outcome, SkippedCheck):
            skipped.append(replace(outcome, check=name))
        else:
            ran.append(name)
            findings += [replace(finding, check=name) for finding in outcome]
    return AuditReport(
        wheel=path,
        size=scan.size,
        sha256=scan.sha256,
        targets=subject.targets,
        findings=tuple(findings),
        ran=tuple(ran),
        skipped=tuple(skipped),
        archives=tuple(sorted({name for names in scan.moved_code.values() for name in names})),
        parts=tuple(part.name for part in parts),
        held_targets=collect_wheel_targets(scan.device_code, scan.moved_code),
        libraries={
            name: tuple(sorted({str(code.target) for code in objects}))
            for name, objects in scan.device_code.items()
        },
        jit_sources=subject.jit_sources,
        record=tuple(member.recorded for member in scan.members if member.recorded is not None),
        requirements=tuple(map(str, list_requirements(subject))),
    )


def add_import_check(
    report: AuditReport, expected: WheelExpectation, environment: ImportEnvironment
) -> AuditReport:
    """Return a report of ``verify_wheel`` with the import check added that was skipped there."""
    outcome = _check_import_here(report.wheel, expected, environment, damaged=False)
    others = tuple(skip for skip in report.skipped if skip.check != IMPORT_CHECK)
    if isinstance(outcome, SkippedCheck):
        return replace(report, skipped=(*others, replace(outcome, check=IMPORT_CHECK)))
    findings = tuple(replace(finding, check=IMPORT_CHECK) for finding in outcome)
    return replace(
        report, findings=(*report.findings, *findings), ran=(*report.ran, IMPORT_CHECK), skipped=others
    )


def format_report(report: AuditReport) -> list[str]:
    """Return a report as lines for people: verdict, findings with tips, what ran and what did not."""
    verdict = "passed" if report.passed else "FAILED"
    target_names = " ".join(report.targets)
    moved = f"device code in {', '.join(report.archives)}" if report.archives else ""
    jit = ""
    if report.jit_sources:
        jit = f"{format_count(len(report.jit_sources), 'HIP source')} that the user's machine compiles"
    targets = "; ".join(filter(None, (target_names, moved, jit))) or "no device code"
    checks = f"{format_count(len(report.ran), 'check')}, {len(report.skipped)} skipped"
    lines = [f"{report.wheel.name}: {verdict} ({checks}; {targets}; {format_size(report.size)})"]
    for finding in report.findings:
        lines.append(f"  {finding.severity}: {format_finding(finding)}")
        lines += [f"    tip: {finding.tip}"] if finding.tip else []
    lines.append(f"  ran: {' '.join(report.ran)}")
    return [*lines, *(f"  skipped: {skip.check}: {skip.reason}" for skip in report.skipped)]


def reject_wheel(wheel: Path, report: AuditReport, log: Path | None, folder: Path) -> Path:
    """Set a failed wheel aside and return its new path.

    ``<folder>/<stem>/`` receives the wheel, ``<wheel>.findings.json`` and a copy of the log as
    ``<wheel>.log``. That folder appears whole or not at all, and only then the wheel leaves its
    old place. Another wheel of that name that was set aside before stays: the new folder is
    ``<stem>.2``, ``<stem>.3``, …; the same wheel (by sha256) takes its own old place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new_folder = Path(tempfile.mkdtemp(prefix=".rejected-", dir=folder))
    try:
        new_folder.chmod(0o755)
        write_json_file(new_folder / _findings_name(wheel), report.to_json())
        if log is not None and log.is_file():
            copy_atomically(log, new_folder / f"{wheel.name}.log")
        link_or_copy(wheel, new_folder / wheel.name)
        final_folder = _choose_folder(folder, wheel, report.sha256)
        replace_folder(new_folder, final_folder)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    wheel.unlink()
    return final_folder / wheel.name


def _choose_folder(folder: Path, wheel: Path, sha256: str) -> Path:
    """Return the first numbered folder that is free or holds this very wheel."""
    number = 1
    while True:
        candidate = folder / (wheel.stem if number == 1 else f"{wheel.stem}.{number}")
        if not candidate.exists() or _read_rejected_digest(candidate / _findings_name(wheel)) == sha256:
            return candidate
        number += 1


def _read_rejected_digest(findings: Path) -> str | None:
    try:
        return str(json.loads(findings.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # somebody else's file: whatever it is, it is not this wheel's


def _findings_name(wheel: Path) -> str:
    return f"{wheel.name}.findings.json"


def _check_import_here(
    path: Path, expected: WheelExpectation, environment: ImportEnvironment | None, *, damaged: bool
) -> Sequence[Finding] | SkippedCheck:
    if damaged:
        return SkippedCheck("not imported: its archive is damaged or does not agree with itself")
    if environment is None:
        return SkippedCheck(_NO_ENVIRONMENT)
    reason = explain_no_import(path.name, expected, detect_import_host())
    return SkippedCheck(reason) if reason else check_import(path, expected, environment)

"""Check a wheel that a step made: as a file, then by importing it; set one that fails aside.

Only processes of steps need the audit: planning does not load it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import AuditError, SdkError, format_count, format_finding, log_note, log_warning
from rocm_wheels.models import Project, list_project_names, load_project
from rocm_wheels.pipeline.build_environment import (
    find_importing_python,
    find_project_layer,
    layer_packages_folder,
    list_installed_packages,
    list_packages_below,
)
from rocm_wheels.pipeline.step import KnownAfter
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import install_additions

if TYPE_CHECKING:
    from rocm_wheels.audit import AuditReport, WheelExpectation


def make_expectation(
    step_run: StepRun, version: str | None, requirements: Sequence[str] = ()
) -> WheelExpectation:
    """Return what the wheel of a step was asked to be; ``requirements``: see ``WheelExpectation``."""
    from rocm_wheels.audit import WheelExpectation

    targets = step_run.planner.find_targets(step_run.step.cell)
    assert not isinstance(targets, KnownAfter), "a wheel is checked when its targets are known"
    return WheelExpectation(
        project=load_project(str(step_run.step.project)),
        platform=step_run.facts.request.platform,
        version=version,
        python_tag=step_run.ready.python_tag,
        targets=targets,
        rocm_version=step_run.ready.sdk.version,
        requirements=tuple(requirements),
        unrepaired=not step_run.facts.request.repair.enabled,
    )


def import_checked_wheel(
    step_run: StepRun, report: AuditReport, expected: WheelExpectation, *, installed: bool
) -> AuditReport:
    """Import a wheel that was right as a file; return its report with what that found.

    ``installed``: it is in the build environment already; else it is put into a throw-away folder.
    """
    from rocm_wheels.audit import IMPORT_CHECK, ImportEnvironment, add_import_check

    facts, ready, project = step_run.facts, step_run.ready, load_project(str(step_run.step.project))
    with _provide_requirements(step_run, project, report.requirements) as (additions, lacking):
        import_place = ImportEnvironment(
            find_importing_python(project.name, ready, facts.workspace),
            env=facts.env,
            installed=installed,
            packages=ready.site_packages if installed else None,
            additions=additions,
            lacking=lacking,
            log=step_run.log,
        )
        report = add_import_check(report, expected, import_place)
        for skip in report.skipped:
            if lacking and skip.check == IMPORT_CHECK:
                log_warning(f"{report.wheel.name}: {skip.reason}")
    return report


@contextmanager
def _provide_requirements(
    step_run: StepRun, project: Project, requirements: Sequence[str]
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield a folder with what the wheel requires and its build did not, and the names still lacking.

    The environment stays as it is: what lies in it may change what is compiled next. Wheels of ours and
    ROCm are never taken from an index: another build of them says nothing of this one.
    """
    ready, facts = step_run.ready, step_run.facts
    layer = find_project_layer(project.name, ready, facts.workspace)
    folders = [
        layer_packages_folder(project.name, ready, facts.workspace),
        *list_packages_below(project, ready, facts.workspace),
    ]
    installed = {name for folder in folders for name in list_installed_packages(folder)}
    built = {canonicalize_name(load_project(name).distribution) for name in list_project_names()}
    missing: list[str] = []
    lacking: list[str] = []
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name in built or name.startswith("rocm"):
            lacking += [] if name in installed else [requirement.name]
        elif name not in installed:
            requirement.marker = None
            missing.append(str(requirement))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-requirements-") as folder:
        if missing:
            try:
                install_additions(
                    layer if layer.python.exists() else ready.environment,
                    missing,
                    Path(folder),
                    without=sorted(installed | built),
                    env=facts.env,
                    on_line=step_run.echo_line,
                    source=facts.request.sdk.tools_source,
                )
            except SdkError as error:
                log_warning(f"what the wheel requires, to import it, could not be installed: {error.message}")
                lacking += missing
        yield Path(folder), tuple(lacking)


_MOST_RECORDED = 100  # findings of a wheel, gravest first: an event is one line of the record


def _record_audit(step_run: StepRun, report: AuditReport) -> None:
    """Put what was found into the record, for the report of the run."""
    from rocm_wheels.audit import SEVERITIES, describe_finding

    ranked = sorted(report.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    findings = [describe_finding(finding) for finding in ranked]
    step_run.record_event(
        "audit",
        wheel=report.wheel.name,
        checks=len(report.ran),
        findings=findings[:_MOST_RECORDED],
        more=max(len(findings) - _MOST_RECORDED, 0),
    )


def judge_report(step_run: StepRun, report: AuditReport) -> AuditReport:
    """Write a report into the log; set a wheel that failed aside and raise AuditError."""
    from rocm_wheels.audit import format_report, reject_wheel

    wheel = report.wheel
    step_run.append_log("checks", format_report(report))
    _record_audit(step_run, report)
    if report.jit_sources and not report.targets:
        sources = format_count(len(report.jit_sources), "HIP source")
        log_note(f"no kernels are compiled into {wheel.name}: it brings {sources} for the user's machine")
    for finding in report.findings:
        if finding.severity == "warning":
            log_warning(f"{wheel.name}: {format_finding(finding)}")
    if not report.passed:
        rejected_path = reject_wheel(wheel, report, step_run.log, step_run.facts.workspace.rejected_wheels)
        findings_text = "\n".join(f"  {format_finding(finding)}" for finding in report.errors)
        tips = [finding.tip for finding in report.errors if finding.tip]
        raise AuditError(
            f"{wheel.name} failed verification:\n{findings_text}\n"
            f"kept aside with its log: {rejected_path.parent}",
            tip=tips[0] if tips else "build with --no-verify to keep it unchecked",
        )
    return report

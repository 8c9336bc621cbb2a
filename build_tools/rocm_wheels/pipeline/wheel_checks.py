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

from rocm_wheels.core import errors, log, tables
from rocm_wheels.models import project_names
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import build_environment
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk.build_environment import install_requirements

if TYPE_CHECKING:
    from rocm_wheels.audit import audited_wheel


def make_expectation(
    step_run: StepRun, version: str | None, requirements: Sequence[str] = ()
) -> audited_wheel.WheelExpectation:
    """Return what the wheel of a step was asked to be; ``requirements``: see ``WheelExpectation``."""
    from rocm_wheels.audit import audited_wheel

    return audited_wheel.WheelExpectation(
        project=load_project(str(step_run.step.project)),
        platform=step_run.facts.request.platform,
        version=version,
        python_tag=step_run.ready.python_tag,
        targets=step_run.planner.find_targets(),
        rocm_version=step_run.ready.sdk.version,
        requirements=tuple(requirements),
        unrepaired=not step_run.facts.request.repair,
    )


def import_checked_wheel(
    step_run: StepRun,
    report: audited_wheel.AuditReport,
    expected: audited_wheel.WheelExpectation,
    *,
    installed: bool,
) -> audited_wheel.AuditReport:
    """Import a wheel that was right as a file; return its report with what that found.

    ``installed``: it is in the build environment already; else it is put into a throw-away folder.
    """
    from rocm_wheels.audit import checks, import_check, verify

    facts, ready, project = step_run.facts, step_run.ready, load_project(str(step_run.step.project))
    with _provide_requirements(step_run, project, report.requirements) as (additions, lacking):
        import_place = import_check.ImportEnvironment(
            build_environment.find_importing_python(project.name, ready, facts.workspace),
            env=facts.env,
            installed=installed,
            packages=ready.site_packages if installed else None,
            additions=additions,
            lacking=lacking,
            log=step_run.log,
        )
        report = verify.add_import_check(report, expected, import_place)
        for skip in report.skipped:
            if lacking and skip.check == checks.IMPORT_CHECK:
                log.log_warning(f"{report.wheel.name}: {skip.reason}")
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
    layer = build_environment.find_project_layer(project.name, ready, facts.workspace)
    folders = [
        build_environment.layer_packages_folder(project.name, ready, facts.workspace),
        *build_environment.list_packages_below(project, ready, facts.workspace),
    ]
    installed = {name for folder in folders for name in build_environment.list_installed_packages(folder)}
    ours = {canonicalize_name(load_project(name).distribution) for name in project_names.list_project_names()}
    missing: list[str] = []
    lacking: list[str] = []
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name in installed:
            continue
        if name in ours or name.startswith("rocm"):
            lacking.append(requirement.name)
        else:
            requirement.marker = None
            missing.append(str(requirement))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-requirements-") as folder:
        if missing:
            try:
                install_requirements(
                    layer if layer.python.exists() else ready.environment,
                    missing,
                    folder=Path(folder),
                    without=sorted(installed | ours),
                    env=facts.env,
                    on_line=step_run.echo_line,
                    source=facts.request.sdk.tools_source,
                )
            except errors.SdkError as error:
                log.log_warning(
                    f"what the wheel requires, to import it, could not be installed: {error.message}"
                )
                lacking += missing
        yield Path(folder), tuple(lacking)


_MOST_RECORDED = 100  # findings of a wheel, gravest first: an event is one line of the record


def judge_report(step_run: StepRun, report: audited_wheel.AuditReport) -> audited_wheel.AuditReport:
    """Write a report into the log; set a wheel that failed aside and raise AuditError."""
    from rocm_wheels.audit import audited_wheel, outputs, verify

    wheel = report.wheel
    step_run.append_log("checks", outputs.format_audits([report]))
    ranked = sorted(report.findings, key=lambda finding: audited_wheel.SEVERITIES.index(finding.severity))
    step_run.record_event(
        "audit",
        wheel=wheel.name,
        checks=len(report.ran),
        findings=[audited_wheel.describe_finding(finding) for finding in ranked[:_MOST_RECORDED]],
        more=max(len(ranked) - _MOST_RECORDED, 0),
    )
    if report.jit_sources and not report.targets:
        sources = tables.format_count(len(report.jit_sources), "HIP source")
        log.log_note(f"no kernels are compiled into {wheel.name}: it brings {sources} for the user's machine")
    for finding in report.findings:
        if finding.severity == "warning":
            log.log_warning(f"{wheel.name}: {errors.format_finding(finding)}")
    if not report.passed:
        rejected_path = verify.reject_wheel(
            wheel, report, step_run.log, step_run.facts.workspace.rejected_wheels
        )
        findings_text = "\n".join(f"  {errors.format_finding(finding)}" for finding in report.errors)
        tips = [finding.tip for finding in report.errors if finding.tip]
        raise errors.AuditError(
            f"{wheel.name} failed verification:\n{findings_text}\n"
            f"kept aside with its log: {rejected_path.parent}",
            tip=tips[0] if tips else None,
        )
    return report

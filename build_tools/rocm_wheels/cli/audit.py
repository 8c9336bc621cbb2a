"""``audit``: what is wrong with anybody's wheels, without a GPU and without a recipe."""

from __future__ import annotations

import platform as machine_platform
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import __version__
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.evidence import describe_origin
from rocm_wheels.cli.options import GivenPath, json_option, print_result
from rocm_wheels.core import (
    AuditError,
    DataError,
    UsageError,
    align_rows,
    format_count,
    format_finding,
    is_log_on_github,
    log_error,
    log_warning,
    require_extras,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.audit import AuditReport, WheelExpectation
    from rocm_wheels.models import Project
    from rocm_wheels.wheels import PackagePool

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@command("audit")
@click.argument("wheels", nargs=-1, type=_FILE, metavar="WHEEL...")
@option(
    "--recipe",
    "recipes",
    multiple=True,
    metavar="NAME",
    help="Hold the wheel of this project to its recipe, too. May be given several times.",
)
@option(
    "--find-links",
    multiple=True,
    metavar="DIR|WHEEL",
    type=GivenPath(),
    help="Wheels that METADATA requires, to look in for what libraries need. May be given several times.",
)
@option(
    "--ignore",
    multiple=True,
    metavar="CHECK[:FILE]",
    help="Let findings of a check pass, for files that a glob names. May be given several times.",
)
@option(
    "--policy",
    type=GivenPath(),
    metavar="FILE",
    help="YAML file of exceptions, each with owner, reason and end date.",
)
@option("--sarif", type=GivenPath(), metavar="FILE", help="Write the findings as SARIF 2.1.0.")
@option("--junit", type=GivenPath(), metavar="FILE", help="Write the checks as JUnit XML.")
@option(
    "--html", type=GivenPath(), metavar="FILE", help="Write a page: findings, libraries and their targets."
)
@option("--explain", metavar="CHECK", help="Say what a check looks for, why, and what to do; then leave.")
@option("--list-checks", is_flag=True, help="List the checks and leave.")
@json_option
def audit_command(  # noqa: PLR0917 - click passes them by name
    wheels: tuple[Path, ...],
    recipes: tuple[str, ...],
    find_links: tuple[Path, ...],
    explain: str | None,
    list_checks: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Audit WHEELs of anybody, for Linux and Windows, without a GPU.

    Errors break on a machine that the tags promise, or are what an index refuses; warnings are untidy, and
    work; notes are worth knowing. Exit code 14 with any error. A recipe adds what its wheel must be;
    `rocm-wheels verify` takes targets and versions as well. Device wheels are read with their host wheel,
    too. On GitHub errors and warnings become annotations.

    \b
    Examples:
      rocm-wheels audit torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl
      rocm-wheels audit dist/*.whl --find-links rocm-packages --html audit.html
      rocm-wheels audit --explain RW012
    """
    from rocm_wheels.audit import CHECKS, explain_check, find_check, format_audit

    if list_checks or explain is not None:
        chosen = CHECKS if explain is None else (find_check(explain),)
        rows = [(check.id, check.name, check.severity, check.summary) for check in CHECKS]
        lines = align_rows(rows) if explain is None else explain_check(chosen[0])
        print_result({"checks": [_describe_check(check) for check in chosen]}, lines, as_json=as_json)
        return
    if not wheels:
        raise UsageError("no wheels were named", tip="for example: rocm-wheels audit dist/*.whl")
    if options["html"] is not None:
        require_extras("a page", "build")
    begun = describe_origin("audit")
    reports = audit_wheels(wheels, recipes, find_links, options["ignore"], options["policy"])
    _write_files(reports, options)
    document = {**begun, "wheels": [report.to_json() for report in reports]}
    lines = [line for report in reports for line in format_audit(report)]
    print_result(document, lines, as_json=as_json)
    if is_log_on_github():
        _annotate(reports)
    failed = sum(not report.passed for report in reports)
    if failed:
        raise AuditError(f"{failed} of {format_count(len(wheels), 'wheel')} failed")


def audit_wheels(
    wheels: Sequence[Path],
    recipes: Sequence[str],
    find_links: Sequence[Path],
    ignore: Sequence[str],
    policy: Path | None,
) -> list[AuditReport]:
    """Return a report of each wheel; that one cannot be read is a finding like others."""
    from rocm_wheels.audit import (
        AuditPolicy,
        apply_exceptions,
        load_audit_policy,
        make_unreadable_report,
        parse_ignored,
        select_device_wheels,
        verify_wheel,
    )

    ignored = [parse_ignored(text) for text in ignore]
    exceptions = load_audit_policy(policy) if policy is not None else AuditPolicy()
    expected = _make_expectations(wheels, recipes)
    packages = _collect_packages(wheels, find_links)
    today = datetime.now(timezone.utc).date()
    reports = []
    for wheel in wheels:
        try:
            parts = select_device_wheels(wheel, wheels)
            report = verify_wheel(wheel, expected[wheel], parts=parts, packages=packages)
        except DataError as damage:  # the other wheels are still worth a look
            report = make_unreadable_report(wheel, damage)
        reports.append(apply_exceptions(report, ignored, exceptions, today))
    return reports


def _make_expectations(wheels: Sequence[Path], names: Sequence[str]) -> dict[Path, WheelExpectation]:
    """Return what each wheel is held to. UsageError for a recipe that builds none of them."""
    from rocm_wheels.audit import WheelExpectation, is_same_name
    from rocm_wheels.models import load_project

    recipes = [load_project(name) for name in names]
    expected: dict[Path, WheelExpectation] = {}
    held: set[str] = set()
    for wheel in wheels:
        recipe: Project | None = None
        distribution, _, tags = wheel.name.partition("-")  # whether it is a wheel's name, a check tells
        windows = "-win_" in tags
        for project in recipes:
            if is_same_name(project.distribution, distribution):
                recipe = project
                held.add(project.name)
        expected[wheel] = WheelExpectation(recipe, "windows" if windows else "linux")
    for project in recipes:
        if project.name not in held:
            raise UsageError(
                f"--recipe {project.name}: none of the wheels is of {project.distribution}",
                tip="name its wheel, or leave --recipe out: any wheel can be audited without",
            )
    return expected


def _collect_packages(wheels: Sequence[Path], find_links: Sequence[Path]) -> PackagePool | None:
    """Return what is at hand, where something was named; the wheels count for each other then."""
    from rocm_wheels.wheels import PackagePool

    return PackagePool.collect(wheels, find_links, None, {}) if find_links else None


def _write_files(reports: Sequence[AuditReport], options: dict[str, Any]) -> None:
    from rocm_wheels.audit import render_audit_page, write_audit_junit, write_sarif_file

    if options["sarif"] is not None:
        write_sarif_file(options["sarif"], reports, __version__)
    if options["junit"] is not None:
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_audit_junit(options["junit"], reports, when=when, host=machine_platform.node())
    if options["html"] is not None:
        write_atomically(options["html"], render_audit_page(reports, __version__))


def _annotate(reports: Sequence[AuditReport]) -> None:
    """Print errors and warnings as GitHub shows them, beside the job."""
    from rocm_wheels.audit import get_check_id

    for report in reports:
        for finding in report.findings:
            text = f"{report.wheel.name}: {get_check_id(finding.check)} {format_finding(finding)}"
            if finding.severity == "error":
                log_error(text)
            elif finding.severity == "warning":
                log_warning(text)


def _describe_check(check: Any) -> dict[str, object]:
    return {
        "id": check.id,
        "name": check.name,
        "severity": check.severity,
        "looks_for": check.summary,
        "why": check.reason,
        "fix": check.fix,
        "needs_recipe": check.needs_recipe,
    }

"""Write audit reports for others: lines, SARIF, JUnit and a page.

SARIF 2.1.0 (OASIS) is what code scanning of GitHub and editors read: rules are the table of checks, a wheel
is an artifact, a member of it an artifact inside. Nothing that a wheel says reaches a page unescaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocm_wheels.audit.audited_wheel import AuditReport
from rocm_wheels.audit.checks import CHECKS, WheelCheck, get_check_id
from rocm_wheels.core import (
    Finding,
    JunitCase,
    JunitSuite,
    JunitTag,
    Severity,
    format_count,
    format_size,
    make_page_templates,
    write_atomically,
    write_junit_file,
)

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note", "ok": "none"}
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_SEVERITY_WORDS: dict[str, str] = {"error": "error", "warning": "warning", "info": "note"}
_MOST_MEMBERS = 3
_TEMPLATES = Path(__file__).with_name("templates")


def format_audit(report: AuditReport) -> list[str]:
    """Return a report as lines for people: counts, then findings; the same of several members once."""
    counts = [
        format_count(number, _SEVERITY_WORDS[severity])
        for severity in SEVERITIES
        if (number := sum(finding.severity == severity for finding in report.findings))
    ]
    facts = [" ".join(report.targets) or "no device code", format_size(report.size)]
    if report.ignored:
        facts.append(f"{len(report.ignored)} ignored")
    lines = [f"{report.wheel.name}: {', '.join(counts) or 'nothing found'} ({'; '.join(facts)})"]
    for severity in SEVERITIES:
        for finding, members in _group_findings(report.findings, severity):
            lines.append(f"  {_SEVERITY_WORDS[severity]} {get_check_id(finding.check)} {finding.check}")
            shown = [*members[:_MOST_MEMBERS]]
            if len(members) > _MOST_MEMBERS:
                shown.append(f"{len(members) - _MOST_MEMBERS} more")
            lines += [f"    {', '.join(shown)}"] if shown else []
            lines.append(f"    {finding.message}")
            lines += [f"    tip: {finding.tip}"] if finding.tip else []
    recipe_checks = {check.name for check in CHECKS if check.needs_recipe}
    without_recipe = [skip for skip in report.skipped if skip.check in recipe_checks]
    others = [skip for skip in report.skipped if skip not in without_recipe]
    checks = f"{format_count(len(report.ran), 'check')} ran"
    skipped = f"{len(others)} had nothing to look at, {len(without_recipe)} need a recipe or its facts"
    return [*lines, f"  {checks}, {skipped}"]


def _group_findings(findings: Iterable[Finding], severity: Severity) -> list[tuple[Finding, list[str]]]:
    groups: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for finding in findings:
        if finding.severity == severity:
            _, members = groups.setdefault((finding.check, finding.message), (finding, []))
            members += [finding.subject] if finding.subject else []
    return list(groups.values())


def explain_check(check: WheelCheck) -> list[str]:
    """Return what a check is about, for people."""
    return [
        f"{check.id} {check.name} ({_SEVERITY_WORDS[check.severity]})",
        f"  looks for: {check.summary}",
        f"  why: {check.reason}",
        f"  fix: {check.fix}",
        *(["  needs: a recipe (--recipe)"] if check.needs_recipe else []),
    ]


def make_sarif(reports: Sequence[AuditReport], version: str) -> dict[str, Any]:
    """Return reports as a SARIF log; what is ignored is there as suppressed."""
    numbers = {check.name: number for number, check in enumerate(CHECKS)}
    artifacts: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for report in reports:
        parent, members = len(artifacts), dict[str, int]()
        artifacts.append(
            {
                "location": {"uri": quote(report.wheel.name)},
                "length": report.size,
                "hashes": {"sha-256": report.sha256},
                "roles": ["analysisTarget"],
            }
        )
        for finding in (*report.findings, *report.ignored):
            place = parent
            if finding.subject and finding.subject not in members:
                members[finding.subject] = len(artifacts)
                artifacts.append({"location": {"uri": quote(f"/{finding.subject}")}, "parentIndex": parent})
            if finding.subject:
                place = members[finding.subject]
            result = _make_sarif_result(report, finding, numbers[finding.check], place)
            if finding in report.ignored:
                result["suppressions"] = [{"kind": "external"}]
            results.append(result)
    driver = {"name": "rocm-wheels", "version": version, "rules": [_make_sarif_rule(c) for c in CHECKS]}
    run = {"tool": {"driver": driver}, "artifacts": artifacts, "results": results}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _make_sarif_rule(check: WheelCheck) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": check.reason},
        "help": {"text": check.fix},
        "defaultConfiguration": {"level": _SARIF_LEVELS[check.severity]},
    }


def _make_sarif_result(report: AuditReport, finding: Finding, rule: int, place: int) -> dict[str, Any]:
    wheel = quote(report.wheel.name)
    uri = f"{wheel}/{quote(finding.subject)}" if finding.subject else wheel
    text = ": ".join(filter(None, (finding.subject, finding.message)))
    return {
        "ruleId": CHECKS[rule].id,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{text}. {finding.tip}" if finding.tip else text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri, "index": place}}}],
    }


def write_sarif_file(path: Path, reports: Sequence[AuditReport], version: str) -> None:
    """Write a SARIF log, whole or not at all."""
    write_atomically(path, json.dumps(make_sarif(reports, version), indent=1) + "\n")


def write_audit_junit(path: Path, reports: Sequence[AuditReport], *, when: str, host: str) -> None:
    """Write a suite for each wheel and a case for each check; errors are failures, warnings pass."""
    suites = []
    for report in reports:
        cases = []
        for check in CHECKS:
            skip = next((skip for skip in report.skipped if skip.check == check.name), None)
            errors = [f for f in report.errors if f.check == check.name]
            if skip is None and check.name not in report.ran and not errors:
                continue
            reasons = [": ".join(filter(None, (f.subject, f.message))) for f in errors]
            reason = skip.reason if skip else "\n".join(reasons)
            tag: JunitTag = "skipped" if skip else "failure" if errors else ""
            cases.append(JunitCase("audit", f"{check.id} {check.name}", 0.0, tag, "AuditError", reason))
        suites.append(JunitSuite(report.wheel.name, tuple(cases)))
    write_junit_file(path, suites, when=when, host=host)


def render_audit_page(reports: Sequence[AuditReport], version: str) -> str:
    """Return the page of an audit: findings by severity, sizes, and the targets of each library."""
    wheels = []
    for report in reports:
        columns = sorted({target for targets in report.libraries.values() for target in targets})
        grid = [
            (member, [target in targets for target in columns])
            for member, targets in sorted(report.libraries.items())
        ]
        findings = [
            {"severity": _SEVERITY_WORDS[severity], "id": get_check_id(finding.check), "finding": finding,
             "members": members}
            for severity in SEVERITIES
            for finding, members in _group_findings(report.findings, severity)
        ]  # fmt: skip
        wheels.append(
            {
                "report": report,
                "size": format_size(report.size),
                "largest": [(member, format_size(size)) for member, size in report.largest.items()],
                "columns": columns,
                "grid": grid,
                "findings": findings,
                "counts": [
                    (_SEVERITY_WORDS[s], sum(f.severity == s for f in report.findings)) for s in SEVERITIES
                ],
            }
        )
    used = {finding.check for report in reports for finding in report.findings}
    checks = [check for check in CHECKS if check.name in used]
    template = make_page_templates(_TEMPLATES).get_template("audit.html")
    return template.render(wheels=wheels, checks=checks, version=version)

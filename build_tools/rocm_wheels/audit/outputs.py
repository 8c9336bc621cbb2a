"""Write audit reports for others: lines, SARIF and JUnit; the page is in ``page``.

SARIF 2.1.0 (OASIS) is what code scanning of GitHub and editors read: rules are the tables of checks, a wheel
is an artifact, a member of it an artifact inside; so is a set, and what it has no wheel of. Nothing that a
wheel says reaches a page unescaped.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from rocm_wheels.audit import audited_set, audited_wheel, page
from rocm_wheels.audit.checks import ALL_CHECKS, get_check_id
from rocm_wheels.audit.definition import AuditCheck
from rocm_wheels.core import files, junit, tables
from rocm_wheels.core.errors import Finding, Severity
from rocm_wheels.wheels.zip_format import ARCHIVE_FAULTS

_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note", "ok": "none"}
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_SARIF_SUBJECT = "analysisTarget"
_MOST_MEMBERS = 3
_MOST_ALIKE = 3  # findings of one check that are told in full


def format_audits(
    reports: Sequence[audited_wheel.AuditReport], of_set: audited_set.SetReport | None = None
) -> list[str]:
    """Return reports as lines for people: of each the verdict, then errors and warnings; what failed first.

    Of one wheel alone notes are told, too, and with a recipe each check that did not run; of several, a wheel
    in which nothing is wrong is one line. Of a set a table says which libraries have code for which targets.
    """
    lines = []
    if of_set is not None:
        facts = [tables.format_count(len(of_set.wheels), "wheel")]
        if of_set.older:
            facts.append(f"{tables.format_count(of_set.older, 'older file')} of the index not read")
        lines += _format_report(of_set, facts)
    is_alone = len(reports) == 1
    for report in sort_reports(reports):
        moved = f"device code in {', '.join(report.archives)}" if report.archives else ""
        jit = tables.format_count(len(report.jit_sources), "HIP source") + " that the user's machine compiles"
        code = [" ".join(report.targets), moved, jit if report.jit_sources else ""]
        facts = ["; ".join(filter(None, code)) or "no device code", tables.format_size(report.size)]
        facts.append(f"{tables.format_count(len(report.ran), 'check')}, {len(report.skipped)} skipped")
        lines += _format_report(report, facts, notes=is_alone)
        if is_alone and report.recipe:
            lines += [f"  skipped: {skip.check}: {skip.reason}" for skip in report.skipped]
    if of_set is not None:
        lines += page.format_device_code(reports)
        lines += [f"  skipped: {skip.check}: {skip.reason}" for skip in of_set.skipped]
    return lines


ReportT = TypeVar("ReportT", bound=audited_wheel.CheckReport)


def sort_reports(reports: Iterable[ReportT]) -> list[ReportT]:
    """Return reports by the gravest that was found, errors first; else in their order."""

    def rank(report: ReportT) -> int:
        ranks = (audited_wheel.SEVERITIES.index(finding.severity) for finding in report.findings)
        return min(ranks, default=len(audited_wheel.SEVERITIES))

    return sorted(reports, key=rank)


def _format_report(
    report: audited_wheel.CheckReport, facts: Sequence[str], *, notes: bool = True
) -> list[str]:
    counts = [
        tables.format_count(number, audited_wheel.SEVERITY_WORDS[severity])
        for severity in audited_wheel.SEVERITIES
        if (number := sum(finding.severity == severity for finding in report.findings))
    ]
    ignored = [f"{len(report.ignored)} ignored"] if report.ignored else []
    compared = getattr(report, "compared_with", "")
    facts = [*facts, *ignored, *([f"compared with {compared}"] if compared else [])]
    verdict = f"{'passed' if report.passed else 'FAILED'} {report.title}"
    lines = [f"{verdict}: {', '.join(counts) or 'nothing found'} ({'; '.join(facts)})"]
    for severity in audited_wheel.SEVERITIES if notes else audited_wheel.SEVERITIES[:-1]:
        told: dict[str, int] = {}
        for finding, members in _group_findings(report.findings, severity):
            told[finding.check] = told.get(finding.check, 0) + 1
            if told[finding.check] > _MOST_ALIKE:
                continue
            head = f"{audited_wheel.SEVERITY_WORDS[severity]} {get_check_id(finding.check)} {finding.check}"
            shown = members[:_MOST_MEMBERS]
            if len(members) > _MOST_MEMBERS:
                shown = [*shown, f"{len(members) - _MOST_MEMBERS} more"]
            lines += [f"  {head}", *([f"    {', '.join(shown)}"] if shown else []), f"    {finding.message}"]
            lines += [f"    tip: {finding.tip}"] if finding.tip else []
        for check, number in told.items():
            if number > _MOST_ALIKE:
                count = tables.format_count(number - _MOST_ALIKE, "other finding")
                lines.append(f"  {count} of {check}: --json and --report have all")
    return lines


def _group_findings(findings: Iterable[Finding], severity: Severity) -> list[tuple[Finding, list[str]]]:
    groups: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for finding in findings:
        if finding.severity == severity:
            _, members = groups.setdefault((finding.check, finding.message), (finding, []))
            members += [finding.subject] if finding.subject else []
    return list(groups.values())


def explain_check(check: AuditCheck) -> list[str]:
    """Return what a check is about, for people."""
    return [
        f"{check.id} {check.name} ({audited_wheel.SEVERITY_WORDS[check.severity]})",
        f"  looks for: {check.looks_for}",
        f"  why: {check.why}",
        f"  fix: {check.fix}",
        *([f"  {name}: {text}" for name, text in ARCHIVE_FAULTS.items()] if check.name == "archive" else []),
        *(["  needs: a recipe (--by-recipe)"] if check.needs_recipe else []),
        *(["  needs: a set (--set)"] if check.kind == "set" else []),
    ]


def make_sarif(reports: Sequence[audited_wheel.CheckReport], version: str) -> dict[str, Any]:
    """Return reports as a SARIF log; what is ignored is there as suppressed."""
    artifacts = _SarifArtifacts()
    results: list[dict[str, Any]] = []
    for report in reports:
        uri = quote(report.wheel.name if isinstance(report, audited_wheel.AuditReport) else report.title)
        if isinstance(report, audited_wheel.AuditReport):
            artifacts.add(uri, length=report.size, hashes={"sha-256": report.sha256}, roles=[_SARIF_SUBJECT])
        else:
            artifacts.add(uri, roles=[_SARIF_SUBJECT])
        for finding in (*report.findings, *report.ignored):
            place = uri
            if finding.subject and isinstance(report, audited_wheel.AuditReport):
                place = artifacts.add_member(uri, finding.subject)
            elif finding.subject:  # of a set: a file of it
                place = artifacts.add(quote(finding.subject))
            result = _make_sarif_result(finding, place, artifacts.numbers[place])
            if finding in report.ignored:
                result["suppressions"] = [{"kind": "external"}]
            results.append(result)
    driver = {"name": "rocm-wheels", "version": version, "rules": [_make_sarif_rule(c) for c in ALL_CHECKS]}
    run = {"tool": {"driver": driver}, "artifacts": artifacts.listed, "results": results}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


class _SarifArtifacts:
    """The artifacts of a log; ``numbers`` are their places in it, by URI."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.numbers: dict[str, int] = {}

    def add(self, uri: str, **facts: object) -> str:
        """Add an artifact, or what else is known of one that is there; return its URI."""
        if uri not in self.numbers:
            self.numbers[uri] = len(self.listed)
            self.listed.append({"location": {"uri": uri}})
        self.listed[self.numbers[uri]].update(facts)
        return uri

    def add_member(self, parent: str, member: str) -> str:
        """Add a member of an artifact; return the URI of it inside that."""
        uri = f"{parent}/{quote(member)}"
        if uri not in self.numbers:
            self.numbers[uri] = len(self.listed)
            location = {"uri": quote(f"/{member}")}
            self.listed.append({"location": location, "parentIndex": self.numbers[parent]})
        return uri


def _make_sarif_rule(check: AuditCheck) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.looks_for},
        "fullDescription": {"text": check.why},
        "help": {"text": check.fix},
        "defaultConfiguration": {"level": _SARIF_LEVELS[check.severity]},
    }


def _make_sarif_result(finding: Finding, uri: str, place: int) -> dict[str, Any]:
    rule = next(number for number, check in enumerate(ALL_CHECKS) if check.name == finding.check)
    text = ": ".join(filter(None, (finding.subject, finding.message)))
    return {
        "ruleId": ALL_CHECKS[rule].id,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{text}. {finding.tip}" if finding.tip else text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri, "index": place}}}],
    }


def write_report(
    path: Path,
    reports: Sequence[audited_wheel.AuditReport],
    of_set: audited_set.SetReport | None,
    version: str,
    when: str,
) -> None:
    """Write reports in the form that the file's name ends with: a page, SARIF, or JUnit XML."""
    every = [*reports, *([of_set] if of_set is not None else [])]
    if path.suffix == ".html":
        files.write_atomically(path, page.render_audit_page(reports, version, of_set))
    elif path.suffix == ".sarif":
        files.write_atomically(path, json.dumps(make_sarif(every, version), indent=1) + "\n")
    else:
        junit.write_junit_file(path, make_junit_suites(every), when=when, host=platform.node())


def make_junit_suites(reports: Sequence[audited_wheel.CheckReport]) -> list[junit.JunitSuite]:
    """Return a suite for each report and a case for each check; errors are failures, warnings pass."""
    suites = []
    for report in reports:
        cases = []
        for check in ALL_CHECKS:
            skip = next((skip for skip in report.skipped if skip.check == check.name), None)
            errors = [f for f in report.errors if f.check == check.name]
            if skip is None and check.name not in report.ran and not errors:
                continue
            reasons = [": ".join(filter(None, (f.subject, f.message))) for f in errors]
            reason = skip.reason if skip else "\n".join(reasons)
            tag: junit.JunitTag = "skipped" if skip else "failure" if errors else ""
            cases.append(junit.JunitCase("audit", f"{check.id} {check.name}", 0.0, tag, "AuditError", reason))
        suites.append(junit.JunitSuite(report.title, tuple(cases)))
    return suites

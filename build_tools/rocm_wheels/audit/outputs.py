"""Write audit reports for others: lines, SARIF and JUnit; the page is in ``page``.

SARIF 2.1.0 (OASIS) is what code scanning of GitHub and editors read: rules are the tables of checks, a wheel
is an artifact, a member of it an artifact inside; so is a set, and what it has no wheel of.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from rocm_wheels.audit.audited_set import SetReport
from rocm_wheels.audit.audited_wheel import (
    SEVERITIES,
    SEVERITY_WORDS,
    AuditReport,
    CheckReport,
    list_base_targets,
)
from rocm_wheels.audit.checks import ALL_CHECKS, get_check_id
from rocm_wheels.audit.definition import AuditCheck
from rocm_wheels.core import files, junit, tables
from rocm_wheels.core.errors import Finding

_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note", "ok": "none"}
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_MOST_MEMBERS = 3
_MOST_ALIKE = 3  # findings of one check that are told in full
_MOST_SINGLE = 30  # libraries of a project; of more, those of one folder with the same targets are one name
_KERNEL_FILE = re.compile(r"\.(co|hsaco|kpack)$")
_PYTHON_SUFFIX = re.compile(r"\.cpython-3\d+t?-")


@dataclass(frozen=True)
class FindingGroup:
    """What is said alike: the first finding, and the members by the wheel, or file of a set, they are in."""

    finding: Finding
    places: dict[str, list[str]] = field(default_factory=dict)


def group_findings(reports: Iterable[CheckReport]) -> list[FindingGroup]:
    """Return the findings of reports, those that say the same once, errors first."""
    groups: dict[tuple[str, str, str], FindingGroup] = {}
    for report in reports:
        for finding in report.findings:
            key = finding.severity, finding.check, finding.message
            places = groups.setdefault(key, FindingGroup(finding)).places
            if isinstance(report, SetReport):
                places.setdefault(finding.subject or "the set", [])
            else:
                places.setdefault(report.title, []).extend([finding.subject] if finding.subject else [])
    return sorted(groups.values(), key=lambda group: SEVERITIES.index(group.finding.severity))


def count_severities(reports: Iterable[CheckReport]) -> dict[str, int]:
    """Return how many errors, warnings and notes there are, by these words."""
    counts = Counter(finding.severity for report in reports for finding in report.findings)
    return {word: counts[severity] for severity, word in SEVERITY_WORDS.items()}  # type: ignore[index]


@dataclass(frozen=True)
class CodeRow:
    """Libraries with code for the same targets: ``held`` in all wheels that have them, ``part`` in some."""

    libraries: tuple[str, ...]
    held: tuple[str, ...]
    part: tuple[str, ...]


def list_device_code(reports: Iterable[AuditReport]) -> list[CodeRow]:
    """Return which libraries have code for which targets; those of several Pythons are one."""
    by_project: dict[str, dict[str, list[set[str]]]] = {}
    for report in reports:
        in_wheel: dict[str, set[str]] = {}
        for member, targets in report.libraries.items():
            library = _PYTHON_SUFFIX.sub(".cpython-*-", member)
            if _KERNEL_FILE.search(member):
                library = f"{posixpath.dirname(member)}/*{posixpath.splitext(member)[1]}"
            in_wheel.setdefault(library, set()).update(list_base_targets(targets))
        of_project = by_project.setdefault(canonicalize_name(report.wheel.name.partition("-")[0]), {})
        for library, held in in_wheel.items():
            of_project.setdefault(library, []).append(held)
    rows: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for project, libraries in sorted(by_project.items()):
        states = {}
        for library, groups in libraries.items():
            common, every = set.intersection(*groups), set().union(*groups)
            states[library] = sort_targets(common), sort_targets(every - common)
        for name, state in group_libraries(states):
            rows.setdefault(state, []).append(f"{name} ({project})")
    return [CodeRow(tuple(libraries), *state) for state, libraries in rows.items()]


def sort_targets(targets: Iterable[str]) -> tuple[str, ...]:
    """Return targets in the order in which people look for them: gfx90a before gfx1100."""
    return tuple(sorted(targets, key=lambda name: (len(name), name)))


def group_libraries(libraries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return a name a library; of very many, one for those of one folder that are alike."""
    if len(libraries) <= _MOST_SINGLE:
        return sorted(libraries.items())
    shared: dict[tuple[str, Any], list[str]] = {}
    for member, held in sorted(libraries.items()):
        shared.setdefault((member.rpartition("/")[0], held), []).append(member)
    return [
        (
            members[0] if len(members) == 1 else f"{folder}/ ({tables.format_count(len(members), 'file')})",
            held,
        )
        for (folder, held), members in shared.items()
    ]


def format_audits(reports: Sequence[AuditReport], of_set: SetReport | None = None) -> list[str]:
    """Return reports as lines for people: of each the verdict, then errors and warnings; what failed first.

    Of one wheel alone notes are told, too, and with a recipe each check that did not run; of several, a wheel
    in which nothing is wrong is one line. Of a set it is said which libraries have code for which targets.
    """
    lines = []
    if of_set is not None:
        facts = [tables.format_count(len(of_set.wheels), "wheel")]
        if of_set.older:
            facts.append(f"{tables.format_count(of_set.older, 'older file')} of the index not read")
        lines += _format_report(of_set, facts)
    is_alone = len(reports) == 1

    def rank(report: AuditReport) -> int:
        return min((SEVERITIES.index(f.severity) for f in report.findings), default=len(SEVERITIES))

    for report in sorted(reports, key=rank):
        code = [" ".join(report.targets)]
        if report.archives:
            code.append(f"device code in {', '.join(report.archives)}")
        if report.jit_sources:
            sources = tables.format_count(len(report.jit_sources), "HIP source")
            code.append(f"{sources} that the user's machine compiles")
        facts = ["; ".join(filter(None, code)) or "no device code", tables.format_size(report.size)]
        facts.append(f"{tables.format_count(len(report.ran), 'check')}, {len(report.skipped)} skipped")
        lines += _format_report(report, facts, notes=is_alone)
        if is_alone and report.recipe:
            lines += [f"  skipped: {skip.check}: {skip.reason}" for skip in report.skipped]
    if of_set is not None:
        for row in list_device_code(reports):
            targets = " ".join(row.held) or "no target"
            some = f", in some wheels for {' '.join(row.part)}, too" if row.part else ""
            lines.append(f"  code for {targets}{some}: {_join_members(row.libraries)}")
        lines += [f"  skipped: {skip.check}: {skip.reason}" for skip in of_set.skipped]
    return lines


def _format_report(report: CheckReport, facts: Sequence[str], *, notes: bool = True) -> list[str]:
    counts = [
        tables.format_count(number, word) for word, number in count_severities([report]).items() if number
    ]
    facts = [*facts, *([f"{len(report.ignored)} ignored"] if report.ignored else [])]
    if report.compared_with:
        facts.append(f"compared with {report.compared_with}")
    verdict = f"{'passed' if report.passed else 'FAILED'} {report.title}"
    lines = [f"{verdict}: {', '.join(counts) or 'nothing found'} ({'; '.join(facts)})"]
    groups: dict[tuple[str, str], list[FindingGroup]] = {}
    for group in group_findings([report]):
        if notes or group.finding.severity != "info":
            groups.setdefault((group.finding.severity, group.finding.check), []).append(group)
    for (severity, check), alike in groups.items():
        for group in alike[:_MOST_ALIKE]:
            members = group.places if isinstance(report, SetReport) else group.places[report.title]
            named = [member for member in members if member != "the set"]
            lines.append(f"  {SEVERITY_WORDS[severity]} {get_check_id(check)} {check}")
            lines += [f"    {_join_members(named)}"] if named else []
            lines.append(f"    {group.finding.message}")
            lines += [f"    tip: {group.finding.tip}"] if group.finding.tip else []
        if (hidden := len(alike) - _MOST_ALIKE) > 0:
            count = tables.format_count(hidden, "other finding")
            lines.append(f"  {count} of {check}: --json and --report have all")
    return lines


def _join_members(members: Sequence[str]) -> str:
    more = [f"{len(members) - _MOST_MEMBERS} more"] if len(members) > _MOST_MEMBERS else []
    return ", ".join([*members[:_MOST_MEMBERS], *more])


def explain_check(check: AuditCheck) -> list[str]:
    """Return what a check is about, for people."""
    lines = [
        f"{check.id} {check.name} ({SEVERITY_WORDS[check.severity]})",
        f"  looks for: {check.looks_for}",
        f"  why: {check.why}",
        f"  fix: {check.fix}",
    ]
    lines += ["  needs: a recipe (--by-recipe)"] if check.needs_recipe else []
    return [*lines, *(["  needs: a set (--set)"] if check.kind == "set" else [])]


def write_sarif_file(path: Path, reports: Sequence[CheckReport], version: str) -> None:
    """Write reports as a SARIF log; what is ignored is there as suppressed."""
    artifacts: dict[
        str, dict[str, Any]
    ] = {}  # by names that only this log knows; ``places`` are theirs in it
    places: dict[str, int] = {}
    results: list[dict[str, Any]] = []
    numbers = {check.name: number for number, check in enumerate(ALL_CHECKS)}
    for report in reports:
        is_wheel = isinstance(report, AuditReport)
        uri = quote(report.wheel.name if isinstance(report, AuditReport) else report.title)
        artifact = artifacts.setdefault(uri, {"location": {"uri": uri}})
        artifact["roles"] = ["analysisTarget"]
        places.setdefault(uri, len(places))
        if isinstance(report, AuditReport):
            artifact |= {"length": report.size, "hashes": {"sha-256": report.sha256}}
        for finding in (*report.findings, *report.ignored):
            place = uri
            if finding.subject and is_wheel:  # a member of it
                place, location = f"{uri}/{quote(finding.subject)}", {"uri": quote(f"/{finding.subject}")}
                artifacts.setdefault(place, {"location": location, "parentIndex": places[uri]})
            elif finding.subject:  # a file of the set
                place = quote(finding.subject)
                artifacts.setdefault(place, {"location": {"uri": place}})
            text = ": ".join(filter(None, (finding.subject, finding.message)))
            at = {"uri": place, "index": places.setdefault(place, len(places))}
            result: dict[str, Any] = {
                "ruleId": get_check_id(finding.check),
                "ruleIndex": numbers[finding.check],
                "level": _SARIF_LEVELS[finding.severity],
                "message": {"text": f"{text}. {finding.tip}" if finding.tip else text},
                "locations": [{"physicalLocation": {"artifactLocation": at}}],
            }
            if finding in report.ignored:
                result["suppressions"] = [{"kind": "external"}]
            results.append(result)
    rules = [
        {
            "id": check.id,
            "name": "".join(word.capitalize() for word in check.name.split("-")),
            "shortDescription": {"text": check.looks_for},
            "fullDescription": {"text": check.why},
            "help": {"text": check.fix},
            "defaultConfiguration": {"level": _SARIF_LEVELS[check.severity]},
        }
        for check in ALL_CHECKS
    ]
    driver = {"name": "rocm-wheels", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "artifacts": list(artifacts.values()), "results": results}
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    files.write_atomically(path, json.dumps(log, indent=1) + "\n")


def write_junit_file(path: Path, reports: Sequence[CheckReport], *, when: str, host: str) -> None:
    """Write a suite for each report and a case for each check; errors are failures, warnings pass."""
    suites = []
    for report in reports:
        skipped = {skip.check: skip.reason for skip in report.skipped}
        cases = []
        for check in ALL_CHECKS:
            errors = [f for f in report.errors if f.check == check.name]
            if check.name not in (*skipped, *report.ran) and not errors:
                continue
            reasons = [": ".join(filter(None, (f.subject, f.message))) for f in errors]
            reason = skipped.get(check.name, "\n".join(reasons))
            tag: junit.JunitTag = "skipped" if check.name in skipped else "failure" if errors else ""
            cases.append(junit.JunitCase("audit", f"{check.id} {check.name}", 0.0, tag, "AuditError", reason))
        suites.append((report.title, cases))
    junit.write_junit_file(path, suites, when=when, host=host)

"""Results as our own commands print them with ``--json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.lock import Sha256Digest
from rocm_wheels.records import summarize_faults
from rocm_wheels.release.evidence import OutcomeCounts, Evidence
from rocm_wheels.release.evidence_given import EvidenceSubmission
from rocm_wheels.release.gate.needed import list_wheel_pythons
from rocm_wheels.wheels.members import hash_file
from rocm_wheels.wheels.names import parse_wheel_name, split_wheel_name
from rocm_wheels.words import format_count

ResultModel = TypeVar("ResultModel")
_MOST_NAMES_SHOWN = 3
_VERIFY_TOOL = "rocm-wheels verify"


class _VerifyFinding(BaseModel):
    severity: Literal["error", "warning"]
    what: str
    check: str = ""


class _VerifyReport(BaseModel):
    wheel: str
    passed: bool
    sha256: Sha256Digest | None = None  # a file that could not be read has none
    unreadable: str = ""
    findings: tuple[_VerifyFinding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    when: AwareDatetime | None = None
    tool: str = ""


class _ResolverCheck(BaseModel):
    requirement: str
    python: str
    tool: str
    fault: str
    picked: str = ""


class _ResolverResult(BaseModel):
    checks: tuple[_ResolverCheck, ...] = Field(min_length=1)
    when: AwareDatetime | None = None
    tool: str = ""


def make_verify_evidence(value: object, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what ``verify --json`` found: one of all wheels that passed, one of each that did not."""
    reports = parse_result(tuple[_VerifyReport, ...], value, source)
    if not reports:
        raise DataError(f"{source} has no report in it", tip="verify the wheels of the set")
    evidence, passed = [], dict[str, str]()
    checks: Counter[str] = Counter()
    whens = [report.when for report in reports if report.when is not None]
    earliest = min(whens) if len(whens) == len(reports) else None
    make = partial(
        submission.make_evidence,
        "verify",
        source=source,
        tool=next((report.tool for report in reports if report.tool), _VERIFY_TOOL),
        when=earliest,
        digest=hash_file(source) if earliest else "",
    )
    for report in reports:
        sha256 = report.sha256 or submission.wheels.get(report.wheel)
        if sha256 is None:
            tip = "name it too: --wheels DIR"
            raise UsageError(
                f"{source}: {report.wheel} could not be read, so nothing says which it was", tip=tip
            )
        hashes = submission.require_set_hashes({report.wheel: sha256}, source)
        errors = [f"{f.check}: {f.what}" for f in report.findings if f.severity == "error"]
        if report.passed and not errors and report.ran:
            passed[report.wheel] = hashes[0]
            checks.update(passed=len(report.ran), skipped=len(report.skipped))
            continue
        problems = [*errors, *filter(None, [report.unreadable])] or ["no check ran"]
        counts = OutcomeCounts(
            passed=max(len(report.ran) - len(problems), 0), failed=len(problems), skipped=len(report.skipped)
        )
        evidence.append(make(counts, hashes, detail=f"{report.wheel}: {problems[0]}"))
    if passed:
        evidence.append(
            make(OutcomeCounts(**checks), passed.values(), detail=format_count(len(passed), "wheel"))
        )
    return evidence


def make_resolver_evidence(value: object, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what ``resolve-check --json`` found, of those of the given wheels that it speaks of.

    It speaks of those that a check picked; when a check failed, of all whose projects were asked for.
    """
    result = parse_result(_ResolverResult, value, source)
    checks, failed = result.checks, any(check.fault for check in result.checks)
    requested = {
        (_parse_project(check.requirement, source), check.python, "" if failed else check.picked)
        for check in checks
    }
    submission.require_given_hashes(source, "of `resolve-check`")
    about = {name: sha for name, sha in submission.wheels.items() if _covers_wheel(requested, name)}
    if uncovered := sorted(set(submission.wheels) - set(about)):
        log.log_note(
            f"{source} says nothing of {', '.join(uncovered[:_MOST_NAMES_SHOWN])}{' and others' * (len(uncovered) > _MOST_NAMES_SHOWN)}"
        )
    if not about:
        raise UsageError(
            f"{source} speaks of none of the wheels that were given: what was picked are others",
            tip="check the wheels of the set: rocm-wheels resolve-check INDEX WHEELS --json",
        )
    bad = [
        f"{check.requirement}, Python {check.python}, {check.tool}: {(check.fault.splitlines() or [''])[0]}"
        for check in checks
        if check.fault
    ]
    counts = OutcomeCounts(passed=len(checks) - len(bad), failed=len(bad))
    return [
        submission.make_evidence(
            "resolver",
            counts,
            submission.require_set_hashes(about, source),
            source=source,
            tool=result.tool or "rocm-wheels resolve-check",
            when=result.when,
            digest=hash_file(source) if result.when else "",
            detail=format_count(len(about), "wheel"),
            failed=bad,
        )
    ]


def _covers_wheel(requested: set[tuple[str, str, str]], name: str) -> bool:
    project, pythons, version = (
        project_of_wheel(name),
        list_wheel_pythons(name),
        parse_wheel_name(name).version,
    )
    return any(
        project == requested_project
        and (not pythons or python in pythons)
        and (not picked or _is_version(version, picked))
        for requested_project, python, picked in requested
    )


def _is_version(version: Version, picked: str) -> bool:
    try:
        return Version(picked) == version
    except InvalidVersion:
        return False


def project_of_wheel(name: str) -> str:
    """Return the project (normalized) of a wheel by its file name."""
    return canonicalize_name(split_wheel_name(name).distribution)


def find_tested_hashes(
    files: Mapping[str, str], source: Path, submission: EvidenceSubmission, *, tip: str
) -> list[str]:
    """Return the digests of the set's wheels that were tested, of ``files`` (sha256 by name) that were there.

    Others are named. Raises DataError with ``tip`` where none is of the set.
    """
    projects = {file.project for file in submission.document.files}
    tested = {name: sha for name, sha in files.items() if project_of_wheel(name) in projects}
    if other_files := sorted(set(files) - set(tested)):
        log.log_note(f"{source}: also there, and not of this set: {', '.join(other_files)}")
    if not tested:
        raise DataError(f"{source} names no wheel of {submission.document.id}", tip=tip)
    return submission.require_set_hashes(tested, source)


def _parse_project(requirement: str, source: Path) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        raise DataError(f"{source}: {requirement!r} is no requirement") from None


def parse_result(model: type[ResultModel], value: object, source: Path) -> ResultModel:
    """Read JSON into a model. Raises DataError with the places of mistakes."""
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as wrong:
        tip = "it is not whole, or of another version"
        raise DataError(f"{source}: {summarize_faults(wrong, model)}", tip=tip) from None

"""Exceptions: findings that are let pass, on one command's word or by a policy with owner and end date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from rocm_wheels.audit.audited_wheel import AuditReport
from rocm_wheels.audit.checks import CHECKS, EXCEPTION_CHECK, find_check
from rocm_wheels.core import Finding, Record, UsageError, load_record, make_record_error


def _require_check(word: str) -> str:
    try:
        return find_check(word).name
    except UsageError as cause:
        raise make_record_error(cause.message) from None


def _require_text(text: str) -> str:
    if not text.strip():
        raise make_record_error("it must not be empty")
    return text


_Text = Annotated[str, AfterValidator(_require_text)]


class AuditException(Record):
    """Findings of a check that are let pass up to the end of a day.

    ``check`` is its id or name; ``file`` and ``wheel`` are globs of members and of file names; ``owner``
    answers for it.
    """

    check: Annotated[str, AfterValidator(_require_check)]
    file: str = "*"
    wheel: str = "*"
    owner: _Text
    reason: _Text
    expires: date


class AuditPolicy(Record):
    """The exceptions of a project."""

    ignore: tuple[AuditException, ...] = Field(default=())


@dataclass(frozen=True)
class IgnoredFindings:
    """Findings of a check (by name) that are let pass for members that a glob names."""

    check: str
    file: str = "*"


def load_audit_policy(path: Path) -> AuditPolicy:
    """Read a policy. Raises DataError with file, line and column."""
    return load_record(path, AuditPolicy)


def parse_ignored(text: str) -> IgnoredFindings:
    """Read ``RW012`` or ``RW012:torch/lib/*.so``. Raises UsageError for no check."""
    word, _, file = text.partition(":")
    return IgnoredFindings(find_check(word).name, file or "*")


def apply_exceptions(
    report: AuditReport, ignored: Sequence[IgnoredFindings], policy: AuditPolicy, today: date
) -> AuditReport:
    """Take out findings that are let pass; an exception that has ended is an error, and lets nothing pass."""
    exceptions = [entry for entry in policy.ignore if fnmatchcase(report.wheel.name, entry.wheel)]
    in_force = [IgnoredFindings(entry.check, entry.file) for entry in exceptions if entry.expires >= today]
    passed = [finding for finding in report.findings if _is_covered(finding, [*ignored, *in_force])]
    kept = [finding for finding in report.findings if finding not in passed]
    fix = next(check.fix for check in CHECKS if check.name == EXCEPTION_CHECK)
    for entry in exceptions:
        if entry.expires < today:
            message = (
                f"the exception of {entry.owner} for {entry.check} ended on {entry.expires}: {entry.reason}"
            )
            subject = "" if entry.file == "*" else entry.file
            kept.append(Finding("error", message, fix, subject=subject, check=EXCEPTION_CHECK))
    return replace(report, findings=tuple(kept), ignored=tuple(passed))


def _is_covered(finding: Finding, ignored: Sequence[IgnoredFindings]) -> bool:
    return any(entry.check == finding.check and fnmatchcase(finding.subject, entry.file) for entry in ignored)

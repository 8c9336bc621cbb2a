"""Exceptions: findings that are let pass, on one command's word or by a policy with owner and end date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from rocm_wheels.audit import checks
from rocm_wheels.audit.audited_set import SetReport
from rocm_wheels.audit.audited_wheel import AuditReport
from rocm_wheels.audit.drift_limits import DriftLimits, load_drift_limits, require_text
from rocm_wheels.core import errors, records
from rocm_wheels.core.errors import Finding


def _require_check(word: str) -> str:
    try:
        return checks.find_check(word).name
    except errors.UsageError as cause:
        raise records.make_record_error(cause.message) from None


_Text = Annotated[str, AfterValidator(require_text)]
ReportT = TypeVar("ReportT", AuditReport, SetReport)


class AuditException(records.Record):
    """Findings of a check that are let pass up to the end of a day.

    ``check`` is its id or name; ``file`` and ``wheel`` are globs of members and of file names; ``owner``
    answers for it. What a check of a set finds is about file names: both globs are compared with those.
    """

    check: Annotated[str, AfterValidator(_require_check)]
    file: str = "*"
    wheel: str = "*"
    owner: _Text
    reason: _Text
    expires: date


class AuditPolicy(records.Record):
    """The exceptions of a project, and its own limits of what may differ from an older wheel."""

    ignore: tuple[AuditException, ...] = Field(default=())
    limits: DriftLimits = Field(default_factory=dict)

    @property
    def drift_limits(self) -> DriftLimits:
        """The limits that hold: its own, else ours."""
        return {**load_drift_limits(), **self.limits}


@dataclass(frozen=True)
class IgnoredFindings:
    """Findings of a check (by name) that are let pass for members, and wheels, that globs name."""

    check: str
    file: str = "*"
    wheel: str = "*"

    def covers(self, finding: Finding) -> bool:
        """Tell whether a finding is one of them."""
        globs = fnmatchcase(finding.subject, self.file) and fnmatchcase(finding.subject, self.wheel)
        return globs and self.check == finding.check


def load_audit_policy(path: Path) -> AuditPolicy:
    """Read a policy. Raises DataError with file, line and column."""
    return records.load_record(path, AuditPolicy)


def parse_ignored(text: str) -> IgnoredFindings:
    """Read ``RW012`` or ``RW012:torch/lib/*.so``. Raises UsageError for no check."""
    word, _, file = text.partition(":")
    return IgnoredFindings(checks.find_check(word).name, file or "*")


def apply_exceptions(
    report: ReportT, ignored: Sequence[IgnoredFindings], policy: AuditPolicy, today: date
) -> ReportT:
    """Take out findings that are let pass; an exception that has ended is an error, and lets nothing pass."""
    set_checks = {check.name for check in checks.SET_CHECKS}
    of_set = isinstance(report, SetReport)
    entries: list[IgnoredFindings] = list(ignored)
    ended: list[Finding] = []
    fix = checks.find_check(checks.EXCEPTION_CHECK).fix
    for entry in policy.ignore:
        if (entry.check in set_checks) != of_set or not (of_set or fnmatchcase(report.title, entry.wheel)):
            continue
        if entry.expires >= today:
            entries.append(IgnoredFindings(entry.check, entry.file, entry.wheel if of_set else "*"))
        else:
            message = f"the exception of {entry.owner} for {entry.check} ended on {entry.expires}"
            subject = "" if entry.file == "*" else entry.file
            message = f"{message}: {entry.reason}"
            ended.append(Finding("error", message, fix, subject, checks.EXCEPTION_CHECK))
    every: tuple[Finding, ...] = report.findings
    passed: tuple[Finding, ...] = tuple(
        finding for finding in every if any(entry.covers(finding) for entry in entries)
    )
    kept: tuple[Finding, ...] = tuple(finding for finding in every if finding not in passed)
    return replace(report, findings=(*kept, *ended), ignored=passed)

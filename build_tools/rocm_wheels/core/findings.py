"""Define what a check says: of a wheel, a machine, a table, an index, or a run that is about to start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What one check says.

    ``tip`` is what to do: a sentence, a command, or a line to paste. ``subject`` is what it is about (a
    member of a wheel, a row of a table, a URL), "" for the whole. ``source`` says who says so, "" where it
    was read here. ``check`` is its name and ``group`` what it is listed under; whoever runs the check fills
    them in.
    """

    severity: Severity
    message: str
    tip: str = ""
    subject: str = ""
    check: str = ""
    source: str = ""
    group: str = ""


def find_errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that make what was checked fail."""
    return tuple(finding for finding in findings if finding.severity == "error")


def format_finding(finding: Finding) -> str:
    """Return a finding as one line: ``device-code: torch/lib/x.so: holds …``; without how bad it is."""
    return ": ".join(filter(None, (finding.group, finding.check, finding.subject, finding.message)))

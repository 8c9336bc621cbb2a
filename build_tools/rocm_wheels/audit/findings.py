"""Define what an audit says: findings, checks that could not run, and the report of one wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocm_wheels.variants import WheelTargets

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class AuditFinding:
    """One fault of a wheel.

    ``where`` is a member of the wheel, or ``""`` for the wheel as a whole; ``check`` is
    filled in by whoever runs the check.
    """

    message: str
    where: str = ""
    tip: str = ""
    severity: Severity = "error"
    check: str = ""

    def format_line(self) -> str:
        """Return the finding as one line: ``device-code: torch/lib/x.so: holds …``."""
        place = f"{self.where}: " if self.where else ""
        return f"{self.check}: {place}{self.message}"


@dataclass(frozen=True)
class SkippedCheck:
    """A check that did not run, and why."""

    reason: str
    check: str = ""


@dataclass(frozen=True)
class AuditReport:
    """What the checks said about one wheel.

    ``targets`` are the base gfx targets of all device code inside, ``size`` is in bytes.
    ``archives`` are the ``.kpack`` archives that libraries name as the place of theirs, ``parts`` the device
    wheels that were read with it, ``held_targets`` is what a variant may say of the wheel. ``libraries``: the
    targets of each member with device code. ``ran`` and ``skipped`` together name every check.
    ``jit_sources``: the HIP sources that the user's machine compiles.
    """

    wheel: Path
    size: int
    sha256: str
    targets: tuple[str, ...]
    findings: tuple[AuditFinding, ...]
    ran: tuple[str, ...]
    skipped: tuple[SkippedCheck, ...]
    archives: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    held_targets: WheelTargets = field(default_factory=WheelTargets)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jit_sources: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[AuditFinding, ...]:
        """The findings that keep the wheel from counting."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def passed(self) -> bool:
        """Tell whether the wheel counts: warnings are shown, and do not reject it."""
        return not self.errors

    def to_json(self) -> dict[str, object]:
        """Return the report as plain JSON values."""
        return {
            "wheel": self.wheel.name,
            "size": self.size,
            "sha256": self.sha256,
            "targets": list(self.targets),
            "archives": list(self.archives),
            "device_wheels": list(self.parts),
            "jit_sources": list(self.jit_sources),
            "passed": self.passed,
            "findings": [
                {"check": f.check, "severity": f.severity, "what": f.message, "where": f.where, "tip": f.tip}
                for f in self.findings
            ],
            "ran": list(self.ran),
            "skipped": {skip.check: skip.reason for skip in self.skipped},
        }

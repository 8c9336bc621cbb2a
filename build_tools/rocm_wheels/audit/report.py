"""Define what an audit says: checks that could not run, and the report of one wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.core import Finding, find_errors
from rocm_wheels.variants import WheelTargets


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
    findings: tuple[Finding, ...]
    ran: tuple[str, ...]
    skipped: tuple[SkippedCheck, ...]
    archives: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    held_targets: WheelTargets = field(default_factory=WheelTargets)
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jit_sources: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the wheel from counting."""
        return find_errors(self.findings)

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
                {
                    "check": f.check,
                    "severity": f.severity,
                    "what": f.message,
                    "where": f.subject,
                    "tip": f.tip,
                }
                for f in self.findings
            ],
            "ran": list(self.ran),
            "skipped": {skip.check: skip.reason for skip in self.skipped},
        }

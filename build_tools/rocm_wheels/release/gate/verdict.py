"""Describe what the gate says of a set, and what of it those see who install from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal

RuleOutcome = Literal["pass", "fail", "waived", "bypassed"]
TargetTestState = Literal["tested", "failed", "untested"]


@dataclass(frozen=True)
class RuleResult:
    """What came of a rule. ``gfx`` is "" for a rule that is about no single target.

    ``evidence`` are the ids of what it rests on; ``overcome`` those of failures that later passes made good:
    they are shown, and never hidden. ``tip`` is what to do about a failure.
    """

    rule: str
    outcome: RuleOutcome
    why: str
    gfx: str = ""
    evidence: tuple[str, ...] = ()
    overcome: tuple[str, ...] = ()
    tip: str = ""

    @property
    def title(self) -> str:
        """The rule as people name it: ``smoke on gfx942``."""
        return f"{self.rule} on {self.gfx}" if self.gfx else self.rule


@dataclass(frozen=True)
class TargetState:
    """What is known of a target by all evidence that counts, whatever a channel needs.

    ``by`` are the kinds of tests that passed, ``pythons`` those that they passed with, ``when`` is the day
    of the newest ("": none).
    """

    gfx: str
    state: TargetTestState
    by: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    when: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a gate says. ``ignored`` are evidence ids that cannot speak for the set, and why."""

    set: str
    family: str
    channel: str
    when: datetime
    rules: tuple[RuleResult, ...]
    targets: tuple[TargetState, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Tell whether the set may go to the channel: something was judged, and nothing failed."""
        return bool(self.rules) and not self.failures

    @property
    def failures(self) -> tuple[RuleResult, ...]:
        """The rules that hold it."""
        return tuple(rule for rule in self.rules if rule.outcome == "fail")

    @property
    def next_step(self) -> str:
        """The one thing to do next, "" when nothing is."""
        return next((rule.tip for rule in self.failures if rule.tip), "")

    def as_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {
            "schema": 1,
            "set": self.set,
            "family": self.family,
            "channel": self.channel,
            "when": f"{self.when:%Y-%m-%dT%H:%M:%SZ}",
            "passed": self.passed,
            "state": asdict(make_shown_state(self)),
            "rules": [{"title": item.title, **asdict(item)} for item in self.rules],
            "targets": [asdict(item) for item in self.targets],
            "ignored": [{"evidence": name, "why": why} for name, why in self.ignored],
            "notes": list(self.notes),
            "next": self.next_step,
        }


@dataclass(frozen=True)
class ShownState:
    """What users are told on the pages of a set: one word, and lines of plain text."""

    word: Literal["tested", "partly tested", "untested", "tests failed"]
    lines: tuple[str, ...]


def make_shown_state(verdict: Verdict) -> ShownState:
    """Return what the pages of a set tell of its tests: plain text, a line each, no markup.

    What was bypassed or waived is told with who named it; a target that nobody tested is never left out.
    """
    lines = [_describe_target(item) for item in verdict.targets]
    for item in verdict.rules:
        if item.outcome in {"bypassed", "waived"}:
            lines.append(f"{item.title}: {item.why}")
    states = {item.state for item in verdict.targets}
    if "failed" in states:
        return ShownState("tests failed", tuple(lines))
    if states == {"tested"}:
        return ShownState("tested", tuple(lines))
    return ShownState("partly tested" if "tested" in states else "untested", tuple(lines))


def _describe_target(target: TargetState) -> str:
    if target.state == "failed":
        return f"{target.gfx}: tests failed"
    if target.state == "untested":
        return f"{target.gfx}: untested"
    pythons = f" with Python {', '.join(target.pythons)}" if any(target.pythons) else ""
    return f"{target.gfx}: tested ({' and '.join(target.by)}{pythons}, {target.when})"

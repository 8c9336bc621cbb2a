"""What came of a check, and of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CaseState = Literal["pass", "fail", "crash", "timeout", "skip"]
BAD_STATES: tuple[CaseState, ...] = ("fail", "crash", "timeout")


@dataclass(frozen=True)
class SelfTestCase:
    """One check on one device ("" when it is about none)."""

    group: str
    name: str
    device: str = ""

    def __str__(self) -> str:
        return " ".join(word for word in (self.group, self.name, self.device) if word)


@dataclass(frozen=True)
class SelfTestOutcome:
    """What came of a case: ``detail`` says what was measured, why it failed, or why it was left out.

    ``missing`` names the module that was not there, None otherwise. ``seconds`` include importing torch for
    the first case of a process.
    """

    case: SelfTestCase
    state: CaseState
    detail: str = ""
    seconds: float = 0.0
    missing: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class SelfTestReport:
    """All outcomes of a test. ``torch`` is what torch says of itself (empty when it does not start)."""

    python: str
    torch: Mapping[str, object]
    devices: tuple[str, ...]
    outcomes: tuple[SelfTestOutcome, ...]

    @property
    def failures(self) -> tuple[SelfTestOutcome, ...]:
        """Those that failed, crashed or were stopped."""
        return tuple(outcome for outcome in self.outcomes if outcome.state in BAD_STATES)

    def summary(self) -> str:
        """Count them: ``70 passed, 2 failed, 5 skipped``."""
        counts: Counter[str] = Counter(outcome.state for outcome in self.outcomes)
        words = {
            "pass": "passed",
            "fail": "failed",
            "crash": "crashed",
            "timeout": "stopped",
            "skip": "skipped",
        }
        return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])

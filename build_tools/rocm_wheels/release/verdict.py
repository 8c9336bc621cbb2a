"""The verdict on a set: what came of each rule, and the facts that decided. No sentences.

``verdict_text`` makes sentences of it; whoever decides something by a verdict looks at codes and facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal, get_args

from rocm_wheels.core import records

RuleName = Literal[
    "signers",
    "hashes",
    "audit",
    "complete",
    "provenance",
    "reproduced",
    "resolver",
    "smoke",
    "speed",
    "tests",
    "channel",
]
RULE_NAMES: tuple[RuleName, ...] = get_args(RuleName)
RuleOutcome = Literal["pass", "fail", "waived", "bypassed"]
TargetTestState = Literal["tested", "reported, unsigned", "failed", "untested"]
SetState = Literal["tested", "partly tested", "reported, unsigned", "untested", "tests failed"]
REPORTED: Final = "reported, unsigned"
_OUTCOMES_IN_ORDER: tuple[RuleOutcome, ...] = ("fail", "waived", "bypassed", "pass")

# codes, and the facts that each has; ages and limits are in seconds, moments in UTC
ReasonCode = Literal[
    "no-channel",  # the policy has no such channel: channel
    "no-signers",  # evidence must be signed, and the policy names nobody
    "whole",  # the set is what its id says: wheels, locks
    "bytes-read",  # and so are the bytes of its files
    "other-id",  # what the document lists has another id: id
    "other-document",  # evidence was made of another document of this id: evidence
    "gone",  # a file of the set is not in the store: file
    "other-size",  # file, size, expected
    "other-bytes",  # file, sha256
    "changing",  # it was written to while it was read: file
    "complete",  # every planned cell is there: planned
    "missing-cells",  # cells, planned
    "no-plan",  # nobody knows what was planned
    "statements",  # every wheel has a statement: wheels, signers
    "no-statement",  # files, wheels (how many there are)
    "unsigned-statement",  # files, wheels, signers
    "bad-statement",  # fault
    "reproduced",  # built again with the same bytes: wheels, by (signers)
    "own-build",  # its passes are by who built the wheels: signers
    "unlisted",  # its passes are by nobody that the rule names: passes, by (whom it names)
    "passed",  # pythons, counts, age, host, by
    "all-passed",  # of files: wheels
    "overcome",  # failures that passes made good: failures
    "variants-only",  # installers choose none of its wheels by version alone
    "failed",  # the newest failure: evidence, result, counts, when, since, host, machine, tests, detail,
    # before_gpu, others (how many more), passes (how many must come after it)
    "uncovered",  # files without evidence: files, wheels
    "no-pass",  # there is no pass at all
    "partial-pass",  # passed, but not with these: files, pythons
    "unsigned",  # passes that no signer of the policy signed: passes
    "too-old",  # age, limit
    "selection",  # only chosen tests ran: selected
    "too-few",  # passed, needed
    "too-flaky",  # flaky, allowed
    "missing-shards",  # of the newest plan: shards, missing
    "fast-enough",  # set (before it), machine, limit, speeds (how many), least: name, speed, before, ratio
    "slower",  # set, machine, limit, slower: each likewise, the slowest first
    "first-measured",  # no earlier set was, there: machines, speeds (how many)
    "not-measured",  # an earlier set was: set, machines
    "lacks-measurements",  # of an earlier set: names, set, machine, limit
    "other-machine",  # none is of a kind that an earlier set was measured on: machines, set, earlier
    "no-wheels",  # no wheel of these projects has code for the target: projects, gfx
    "no-targets",  # nothing names the GPU targets of the set
    "any-target",  # one of these would be enough: targets
    "exception",  # a family is a named exception: family, owner, why, tested (though not enough)
    "exception-refused",  # and that does not count for this channel: family
    "no-runner",  # no machine of the fleet has this GPU: gfx
    "waived",  # owner, until, why
    "accepted",  # `promote` would refuse nothing of the set on this channel
    "refused",  # `promote` would refuse the set on this channel: fault, tip
    # of evidence that says nothing
    "lost-gpu",
    "not-in-set",  # none of its wheels are
    "trouble",  # its signature: fault
    "other-set",  # set
    "other-wheels",  # count, wheels
    "future",  # when
    "not-signed",
    # notes
    "waiver-ended",  # title, owner, until
    "waiver-too-long",  # title, owner, until, days
    "upgrade",  # what people run into who upgrade: fault
]


@dataclass(frozen=True)
class Reason:
    """Why something came out as it did: a code, and its facts by name, as ``ReasonCode`` lists them."""

    code: ReasonCode
    facts: Mapping[str, Any] = field(default_factory=dict)


def reason(code: ReasonCode, **facts: object) -> Reason:
    """Return a reason with these facts."""
    return Reason(code, facts)


@dataclass(frozen=True)
class RuleResult:
    """What came of a rule, and why. ``gfx`` is "" for a rule that is about no single target.

    ``suite`` is that of torch's own tests, "" for other rules. ``evidence`` are the ids of what it rests on;
    ``overcome`` those of failures that later passes made good: they are shown, and never hidden. ``runner``
    is the label of machines that could test it, "" where there are none or no GPU has a part in it.
    """

    rule: RuleName
    outcome: RuleOutcome
    reasons: tuple[Reason, ...] = ()
    gfx: str = ""
    suite: str = ""
    evidence: tuple[str, ...] = ()
    overcome: tuple[str, ...] = ()
    runner: str = ""

    @property
    def title(self) -> str:
        """The rule as people name it: ``smoke on gfx942``, ``tests (full) on gfx942``."""
        rule = f"{self.rule} ({self.suite})" if self.suite else self.rule
        return f"{rule} on {self.gfx}" if self.gfx else rule

    @property
    def codes(self) -> tuple[ReasonCode, ...]:
        """The codes of its reasons, the one that decided first."""
        return tuple(item.code for item in self.reasons)

    def facts_of(self, code: ReasonCode) -> Mapping[str, Any]:
        """Return the facts of the reason with this code. Raises KeyError where there is none."""
        return {item.code: item.facts for item in self.reasons}[code]


@dataclass(frozen=True)
class TargetState:
    """What is known of a target by all evidence that counts, whatever a channel needs.

    It is tested by results that one of the policy's signers signed; a pass that nobody known signed is a
    report. ``by`` are the kinds of tests that passed, ``pythons`` those that they passed with, ``when`` is
    the day of the newest ("": none).
    """

    gfx: str
    state: TargetTestState
    by: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    when: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a gate says. ``ignored`` are evidence ids that cannot speak for the set, and why.

    ``policy`` is the digest of the policy that it judged by, ``signed`` whether evidence must be.
    """

    set: str
    family: str
    channel: str
    when: datetime
    rules: tuple[RuleResult, ...]
    targets: tuple[TargetState, ...] = ()
    ignored: tuple[tuple[str, Reason], ...] = ()
    notes: tuple[Reason, ...] = ()
    policy: str = ""
    signed: bool = False

    @property
    def passed(self) -> bool:
        """Tell whether the set may go to the channel: something was judged, and nothing failed."""
        return bool(self.rules) and not self.failures

    @property
    def failures(self) -> tuple[RuleResult, ...]:
        """The rules that hold it."""
        return tuple(rule for rule in self.rules if rule.outcome == "fail")

    @property
    def rules_by_outcome(self) -> list[RuleResult]:
        """All rules, what holds the set first, then what somebody answers for."""
        return sorted(self.rules, key=lambda rule: _OUTCOMES_IN_ORDER.index(rule.outcome))

    @property
    def state(self) -> SetState:
        """What is known of its tests, in a word; one target that failed is enough."""
        states = {target.state for target in self.targets}
        if "failed" in states:
            return "tests failed"
        if states == {"tested"}:
            return "tested"
        if "tested" in states:
            return "partly tested"
        return REPORTED if REPORTED in states else "untested"

    def as_json(self) -> dict[str, object]:
        """Return it as plain JSON values: facts, of which ``verdict_text`` makes sentences."""
        ignored = [{"evidence": name, **_as_json(why)} for name, why in self.ignored]
        return {"schema": 1, **_as_json(self), "ignored": ignored, "passed": self.passed, "state": self.state}


def _as_json(value: object) -> Any:
    """Return plain JSON values of a verdict, or of a part of one, each field by its name."""
    if isinstance(value, datetime):
        return records.format_moment(value)
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, Reason):
        return {"code": value.code, **{name: _as_json(fact) for name, fact in value.facts.items()}}
    if isinstance(value, RuleResult | TargetState | Verdict):
        plain = {item.name: _as_json(getattr(value, item.name)) for item in fields(value)}
        return {**plain, "title": value.title} if isinstance(value, RuleResult) else plain
    return value

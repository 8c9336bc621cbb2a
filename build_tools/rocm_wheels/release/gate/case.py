"""What is before the judge: a set, a channel, all evidence; and what waivers and sentences come of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rocm_wheels.release.evidence import summarize_evidence
from rocm_wheels.release.evidence_store import StoredEvidence
from rocm_wheels.release.gate.history import WeighedEvidence, EvidenceMeasure, explain_too_few
from rocm_wheels.release.gate.needed import list_families_of_target, list_set_targets
from rocm_wheels.release.gate.policy import INTEGRITY_RULES, LONGEST_WAIVER, ChannelPolicy, Policy, Waiver
from rocm_wheels.release.gate.verdict import RuleResult
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.words import format_count

_LONGEST_TEST_NAME = 80


@dataclass(frozen=True)
class GateCase:
    """One set before one channel; ``now`` is in UTC."""

    policy: Policy
    channel: str
    document: SetDocument
    evidence: tuple[StoredEvidence, ...]
    now: datetime

    @property
    def rules(self) -> ChannelPolicy:
        """What the channel says of evidence."""
        return self.policy.channels[self.channel]

    def make_measure(
        self, fresh: timedelta, at_least: int = 1, *, selections: bool = False
    ) -> EvidenceMeasure:
        """Return how the channel looks at evidence that may be so old, and in which so many tests passed."""
        return EvidenceMeasure(
            self.document,
            self.now,
            fresh,
            self.rules.passes_after_failure,
            signed=self.rules.signed == "required",
            at_least=at_least,
            selections=selections,
        )

    def apply_waivers(self, failed: RuleResult) -> RuleResult:
        """Return a failed rule as waived, where somebody answers for it today."""
        waivers = self._find_waivers(failed.rule, failed.gfx)
        waiver = next(
            (
                candidate
                for candidate in waivers
                if not self._has_ended(candidate) and not self._is_too_long(candidate)
            ),
            None,
        )
        if waiver is None:
            return failed
        return replace(failed, outcome="waived", why=f"{waiver}; without that: {failed.why}", tip="")

    def describe_ended_waivers(self, results: list[RuleResult]) -> Iterator[str]:
        """Yield a line for each waiver that would count for a rule that failed, were it of today."""
        for result in results:
            targets = [result.gfx] if result.gfx else ["", *list_set_targets(self.document)]
            waivers = [waiver for gfx in targets for waiver in self._find_waivers(result.rule, gfx)]
            for waiver in dict.fromkeys(waivers) if result.outcome == "fail" else ():
                if self._has_ended(waiver):
                    yield f"{result.title}: the waiver of {waiver.owner} ended on {waiver.expires}"
                elif self._is_too_long(waiver):
                    yield (
                        f"{result.title}: the waiver of {waiver.owner} is to hold until {waiver.expires}: "
                        f"none counts for more than {LONGEST_WAIVER.days} days"
                    )

    def _find_waivers(self, rule: str, gfx: str) -> Iterator[Waiver]:
        document = self.document
        for waiver in self.policy.waivers:
            if (
                waiver.rule == rule
                and rule not in INTEGRITY_RULES
                and self.channel in waiver.channels
                and waiver.set in {None, document.id}
                and waiver.gfx in {None, gfx}
                and (
                    waiver.family in {None, document.family}
                    or (gfx and waiver.family in list_families_of_target(document, gfx))
                )
            ):
                yield waiver

    def _has_ended(self, waiver: Waiver) -> bool:
        return self.now.date() > waiver.expires

    def _is_too_long(self, waiver: Waiver) -> bool:
        return waiver.expires - self.now.date() > LONGEST_WAIVER


def list_deciding_ids(weighed: WeighedEvidence) -> tuple[str, ...]:
    """Return the ids of what a rule rests on: what failed, else what passed, else what is too old."""
    return tuple(stored.id for stored in weighed.failing or weighed.passing or weighed.stale)


def list_overcome_ids(weighed: WeighedEvidence) -> tuple[str, ...]:
    """Return the ids of failures that do not hold any more."""
    failing = {stored.id for stored in weighed.failing}
    return tuple(stored.id for stored in weighed.overcome if stored.id not in failing)


def describe_failures(weighed: WeighedEvidence, gfx: str = "") -> str:
    """Return what failed on a target, in a sentence: the newest, and how many more."""
    newest = weighed.failing[0].evidence
    unseen = "before it saw a GPU: " if gfx and newest.gfx is None else ""
    others_note = f", and {len(weighed.failing) - 1} other results" if len(weighed.failing) > 1 else ""
    tests = f": {', '.join(name[:_LONGEST_TEST_NAME] for name in newest.failed[:3])}" if newest.failed else ""
    detail = f" ({newest.detail})" if newest.detail and not tests else ""
    return f"{unseen}{summarize_evidence(newest)}{tests}{detail}{others_note}"


def describe_past_failures(weighed: WeighedEvidence) -> str:
    """Return that it had failed before, for the end of a sentence; "" when it had not."""
    times = len(list_overcome_ids(weighed))
    return f", after {format_count(times, 'failure')} on the same wheels" if times else ""


def describe_staleness(weighed: WeighedEvidence, measure: EvidenceMeasure) -> str:
    """Return that evidence is too old, or of too few tests, for the end of a sentence; "" for none."""
    if not weighed.stale:
        return f"; {explain_too_few(weighed.few[0], measure)}" if weighed.few else ""
    age = measure.now - weighed.stale[0].evidence.when
    return f"; the newest is {format_age(age)} old, and may be {format_age(measure.fresh)}"


def format_age(age: timedelta) -> str:
    """Return a length of time for people: ``20 min``, ``3 h``, ``12 d``."""
    minutes = max(int(age.total_seconds() // 60), 0)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 72 * 60 else f"{minutes // (24 * 60)} d"

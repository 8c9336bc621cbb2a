"""What is before the judge: a set, a channel, all evidence; and what waivers and sentences come of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rocm_wheels.release.evidence import in_short
from rocm_wheels.release.evidence_store import Known
from rocm_wheels.release.gate.history import Come, Measure, why_few
from rocm_wheels.release.gate.needed import families_for, targets_of
from rocm_wheels.release.gate.policy import INTEGRITY, LONGEST, ChannelPolicy, Policy, Waiver
from rocm_wheels.release.gate.verdict import RuleResult
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.words import counted

_NAME = 80


@dataclass(frozen=True)
class Case:
    """One set before one channel; ``now`` is in UTC."""

    policy: Policy
    channel: str
    document: SetDocument
    evidence: tuple[Known, ...]
    now: datetime

    @property
    def rules(self) -> ChannelPolicy:
        """What the channel says of evidence."""
        return self.policy.channels[self.channel]

    def measure(self, fresh: timedelta, at_least: int = 1, *, selections: bool = False) -> Measure:
        """Return how the channel looks at evidence that may be so old, and in which so many tests passed."""
        return Measure(
            self.document,
            self.now,
            fresh,
            self.rules.passes_after_failure,
            signed=self.rules.signed == "required",
            at_least=at_least,
            selections=selections,
        )

    def settle(self, failed: RuleResult) -> RuleResult:
        """Return a failed rule as waived, where somebody answers for it today."""
        waivers = self._waivers(failed.rule, failed.gfx)
        waiver = next((one for one in waivers if not self._ended(one) and not self._endless(one)), None)
        if waiver is None:
            return failed
        return replace(failed, outcome="waived", why=f"{waiver}; without that: {failed.why}", tip="")

    def ended_waivers(self, results: list[RuleResult]) -> Iterator[str]:
        """Yield a line for each waiver that would count for a rule that failed, were it of today."""
        for one in results:
            targets = [one.gfx] if one.gfx else ["", *targets_of(self.document)]
            waivers = [waiver for gfx in targets for waiver in self._waivers(one.rule, gfx)]
            for waiver in dict.fromkeys(waivers) if one.outcome == "fail" else ():
                if self._ended(waiver):
                    yield f"{one.title}: the waiver of {waiver.owner} ended on {waiver.expires}"
                elif self._endless(waiver):
                    yield (
                        f"{one.title}: the waiver of {waiver.owner} is to hold until {waiver.expires}: "
                        f"none counts for more than {LONGEST.days} days"
                    )

    def _waivers(self, rule: str, gfx: str) -> Iterator[Waiver]:
        document = self.document
        for one in self.policy.waivers:
            if (
                one.rule == rule
                and rule not in INTEGRITY
                and self.channel in one.channels
                and one.set in {None, document.id}
                and one.gfx in {None, gfx}
                and (
                    one.family in {None, document.family}
                    or (gfx and one.family in families_for(document, gfx))
                )
            ):
                yield one

    def _ended(self, waiver: Waiver) -> bool:
        return self.now.date() > waiver.expires

    def _endless(self, waiver: Waiver) -> bool:
        return waiver.expires - self.now.date() > LONGEST


def rests_on(come: Come) -> tuple[str, ...]:
    """Return the ids of what a rule rests on: what failed, else what passed, else what is too old."""
    return tuple(one.id for one in come.failing or come.passing or come.stale)


def made_good(come: Come) -> tuple[str, ...]:
    """Return the ids of failures that do not hold any more."""
    failing = {one.id for one in come.failing}
    return tuple(one.id for one in come.overcome if one.id not in failing)


def said_of_failures(come: Come, gfx: str = "") -> str:
    """Return what failed on a target, in a sentence: the newest, and how many more."""
    newest = come.failing[0].evidence
    unseen = "before it saw a GPU: " if gfx and newest.gfx is None else ""
    more = f", and {len(come.failing) - 1} other results" if len(come.failing) > 1 else ""
    tests = f": {', '.join(name[:_NAME] for name in newest.failed[:3])}" if newest.failed else ""
    said = f" ({newest.detail})" if newest.detail and not tests else ""
    return f"{unseen}{in_short(newest)}{tests}{said}{more}"


def said_of_past(come: Come) -> str:
    """Return that it had failed before, for the end of a sentence; "" when it had not."""
    times = len(made_good(come))
    return f", after {counted(times, 'failure')} on the same wheels" if times else ""


def said_of_age(come: Come, measure: Measure) -> str:
    """Return that evidence is too old, or of too few tests, for the end of a sentence; "" for none."""
    if not come.stale:
        return f"; {why_few(come.few[0], measure)}" if come.few else ""
    age = measure.now - come.stale[0].evidence.when
    return f"; the newest is {in_words(age)} old, and may be {in_words(measure.fresh)}"


def in_words(age: timedelta) -> str:
    """Return a length of time for people: ``20 min``, ``3 h``, ``12 d``."""
    minutes = max(int(age.total_seconds() // 60), 0)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 72 * 60 else f"{minutes // (24 * 60)} d"

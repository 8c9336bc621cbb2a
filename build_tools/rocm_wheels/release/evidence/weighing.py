"""Weigh the results about a set: when does a later one take the place of an earlier one?

Results of one kind about one wheel on one target are put in line for each kind of machine.

- A failure holds, until so many passes in a row came after it on the same kind of machine. Passes on
  another kind of machine leave it standing: a wheel that works on one and not on another does not work.
- A failure counts from when it was written down (never earlier than it was found), a pass from when it
  was found. So a machine whose clock is behind cannot put its failure before an older pass.
- A pass that is too old, unsigned where that is needed, from the future or about other wheels is none. A
  failure about any wheel of the set is one, whatever else is wrong with it. One that is written down as of
  another set, and that nobody known signed, is none where evidence must be signed.
- A failure that no GPU had a part in (the interpreter did not start, the CPU half failed) holds for every
  target, until passes on any target came after it.
- A failure that passes made good is shown beside the pass, always.
- A run whose GPU got lost is no pass. It is a failure only where a test failed, crashed or hung before.
- Torch's own tests are weighed suite by suite. Shards of a suite are one pass when all of one plan are there;
  a failure of a shard is made good by that shard, or by the whole suite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from rocm_wheels.models import torch_tests
from rocm_wheels.release import verdict, wheel_set
from rocm_wheels.release.evidence.evidence import CLOCK_SKEW, Evidence, EvidenceKind, OutcomeCounts
from rocm_wheels.release.evidence.store import StoredEvidence

Subject = tuple[str, str]  # kind, suite of torch's own tests ("": none)


@dataclass(frozen=True)
class Measure:
    """What a pass must be: of so many tests, of all of them or of chosen ones, with so few that are flaky.

    ``fresh``: how old it may be. ``passes``: so many in a row make a failure good. ``most_flaky``: None: it
    does not matter.
    """

    fresh: timedelta
    passes: int = 1
    at_least: int = 1
    selections: bool = False
    most_flaky: int | None = None

    def find_lack(self, evidence: Evidence) -> verdict.Reason | None:
        """Return why a pass is one of too few tests; None when it is not."""
        counts = evidence.counts
        if evidence.selected and not self.selections:
            return verdict.reason("selection", selected=evidence.selected)
        if counts.passed < self.at_least:
            return verdict.reason("too-few", passed=counts.passed, needed=self.at_least)
        if self.most_flaky is not None and counts.flaky > self.most_flaky:
            return verdict.reason("too-flaky", flaky=counts.flaky, allowed=self.most_flaky)
        return None


@dataclass(frozen=True)
class Weighed:
    """What results of a kind on a target come to, the newest first.

    ``covered`` are the sha256 that they speak for, ``passing`` the results that do; ``failing`` those that
    hold, ``overcome`` those that do not any more, ``stale`` passes that are too old, ``few`` those in which
    too few tests passed, or only some were run; ``unsigned`` those that would count if a signer had signed
    them.
    """

    covered: frozenset[str] = frozenset()
    passing: tuple[StoredEvidence, ...] = ()
    failing: tuple[StoredEvidence, ...] = ()
    overcome: tuple[StoredEvidence, ...] = ()
    stale: tuple[StoredEvidence, ...] = ()
    few: tuple[StoredEvidence, ...] = ()
    unsigned: tuple[StoredEvidence, ...] = ()


@dataclass(frozen=True)
class _Run:
    """Results of a kind with the shards put together: what counts, what is too little, what is made good."""

    counted: tuple[StoredEvidence, ...]
    few: tuple[StoredEvidence, ...]
    made_good: tuple[StoredEvidence, ...]


def get_subject(evidence: Evidence) -> Subject:
    """Return what a result is of: its kind, and the suite of torch's own tests."""
    if evidence.kind != "tests":
        return evidence.kind, ""
    return "tests", evidence.suite.name if evidence.suite is not None else torch_tests.SUITE_NAMES[0]


@dataclass(frozen=True)
class Scales:
    """The results about a set, as of a moment. ``signed``: only passes count that a signer signed.

    ``needs_signers``: the channel demands it, whichever passes are looked at here.
    """

    document: wheel_set.SetDocument
    evidence: tuple[StoredEvidence, ...]
    now: datetime
    signed: bool = False
    needs_signers: bool = False
    _runs: dict[tuple[Subject, Measure], _Run] = field(default_factory=dict, init=False)

    @cached_property
    def hashes(self) -> frozenset[str]:
        """The sha256 of the set's wheels."""
        return self.document.hashes

    @cached_property
    def ignored(self) -> dict[str, verdict.Reason]:
        """The ids of results that say nothing about the set, however old they are, and why."""
        reasons = ((stored.id, self._find_fault(stored)) for stored in self.evidence)
        return {name: why for name, why in reasons if why is not None}

    @cached_property
    def by_subject(self) -> dict[Subject, list[StoredEvidence]]:
        """All results by what they are of, the oldest first."""
        subjects: dict[Subject, list[StoredEvidence]] = defaultdict(list)
        for stored in sorted(self.evidence, key=_sort_key):
            subjects[get_subject(stored.evidence)].append(stored)
        return dict(subjects)

    def list_suites(self) -> set[str]:
        """Return the suites of torch's own tests that there are results of."""
        return {suite for kind, suite in self.by_subject if kind == "tests"}

    def weigh(self, kind: EvidenceKind, gfx: str | None, measure: Measure, suite: str = "") -> Weighed:
        """Return what the results of a kind come to: on a target, or (None) where no target matters.

        Of the latter the machine does not matter either: whoever looks at a file sees the same. ``suite`` is
        the one of torch's tests that is meant.
        """
        run = self._run(kind, suite, measure)
        unsigned = [
            stored
            for stored in reversed(self.by_subject.get((kind, suite), ()))
            if (why := self.ignored.get(stored.id)) is not None and why.code == "not-signed"
        ]
        if gfx is None:
            return replace(self._line_up(run.counted, measure), unsigned=tuple(unsigned))
        here = [stored for stored in run.counted if stored.evidence.gfx == gfx]
        anywhere = [stored for stored in run.counted if stored.evidence.passed or stored.evidence.gfx is None]
        on_target = self._line_up(here, measure, by_machine=True)
        failing, overcome = on_target.failing, on_target.overcome
        if any(stored.evidence.gfx is None and not stored.evidence.passed for stored in anywhere):
            before_gpu = self._line_up(anywhere, measure, by_machine=True)
            failing, overcome = (*failing, *before_gpu.failing), (*overcome, *before_gpu.overcome)
        return replace(
            on_target,
            failing=_newest_first(failing),
            overcome=_newest_first([*overcome, *_on(gfx, run.made_good)]),
            few=_newest_first(_on(gfx, run.few)),
            unsigned=tuple(_on(gfx, unsigned)),
        )

    def _find_fault(self, stored: StoredEvidence) -> verdict.Reason | None:
        evidence = stored.evidence
        if evidence.outcome == "lost" and not evidence.counts.has_bad:
            return verdict.reason("lost-gpu")
        if not evidence.passed:
            if not self.hashes.intersection(evidence.hashes):
                return verdict.reason("not-in-set")
            is_other = evidence.set != self.document.id and self.needs_signers and not stored.signer
            return verdict.reason("other-set", set=evidence.set) if is_other else None
        if stored.trouble:
            return verdict.reason("trouble", fault=stored.trouble)
        if evidence.set != self.document.id:
            return verdict.reason("other-set", set=evidence.set)
        if others := len(set(evidence.hashes) - self.hashes):
            return verdict.reason("other-wheels", count=others, wheels=len(evidence.hashes))
        if (latest := max(evidence.when, evidence.added)) - self.now > CLOCK_SKEW:
            return verdict.reason("future", when=latest)
        if self.signed and not stored.signer:
            return verdict.reason("not-signed")
        return None

    def _run(self, kind: EvidenceKind, suite: str, measure: Measure) -> _Run:
        """Return the results of a kind that say something, with shards put together to whole passes."""
        key = ((kind, suite), measure)
        if key not in self._runs:
            each = replace(measure, at_least=0)  # all shards of a suite together have tests enough
            whole, shards, few = list[StoredEvidence](), list[StoredEvidence](), list[StoredEvidence]()
            for stored in self.by_subject.get((kind, suite), ()):
                item = stored.evidence
                if stored.id in self.ignored:
                    continue
                if item.suite is None or item.suite.shards == 1:
                    whole.append(stored)
                elif item.passed and each.find_lack(item) is not None:
                    few.append(stored)
                else:
                    shards.append(stored)
            joined, made_good = _join_shards(shards, measure)
            counted = list[StoredEvidence]()
            for stored in sorted([*whole, *joined], key=_sort_key):
                lacks = stored.evidence.passed and measure.find_lack(stored.evidence) is not None
                (few if lacks else counted).append(stored)
            self._runs[key] = _Run(tuple(counted), tuple(few), tuple(made_good))
        return self._runs[key]

    def _line_up(
        self, evidence: Sequence[StoredEvidence], measure: Measure, *, by_machine: bool = False
    ) -> Weighed:
        """Weigh results, the oldest first, wheel by wheel (and machine by machine)."""
        lines: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, stored in enumerate(evidence):
            machine = stored.evidence.host.kind if by_machine else ""
            for sha256 in self.hashes.intersection(stored.evidence.hashes):
                lines[machine, sha256].append(number)
        alike: dict[tuple[int, ...], set[str]] = defaultdict(set)  # most wheels have the same results
        for (_, sha256), numbers in lines.items():
            alike[tuple(numbers)].add(sha256)
        covered, passing, failing, overcome, stale = set[str](), [], [], [], []
        for line, wheels in alike.items():
            failed, after = _split_line([evidence[number] for number in line])
            if failed and _count_findings(after) < measure.passes:
                failing += failed
                continue
            overcome += failed
            if self.now - after[-1].evidence.when > measure.fresh:
                stale.append(after[-1])
            else:
                covered |= wheels
                passing.append(after[-1])
        return Weighed(
            frozenset(covered), *(_newest_first(items) for items in (passing, failing, overcome, stale))
        )


def _join_shards(
    shards: Sequence[StoredEvidence], measure: Measure
) -> tuple[list[StoredEvidence], list[StoredEvidence]]:
    """Return shards (the oldest first) put together to whole passes, and failures that are made good.

    A whole pass is as old as the oldest of its shards, whose name it bears. What is left of a plan of which a
    shard is not there, is its failures; one that its own shard made good is none any more.
    """
    runs: dict[tuple[object, ...], dict[int, list[StoredEvidence]]] = defaultdict(lambda: defaultdict(list))
    for stored in shards:
        item, suite = stored.evidence, stored.evidence.suite
        assert suite is not None
        runs[suite.plan, suite.shards, item.gfx, item.host.kind, item.hashes][suite.shard].append(stored)
    joined, made_good = list[StoredEvidence](), list[StoredEvidence]()
    for (_, count, *_), by_shard in runs.items():
        for line in by_shard.values():
            failed, after = _split_line(line)
            (made_good if _count_findings(after) >= measure.passes else joined).extend(failed)
        passes = [[item for item in line if item.evidence.passed] for line in by_shard.values()]
        if len(passes) == count and all(passes):
            joined += _join_passes(passes)
    return joined, made_good


def _join_passes(lines: Sequence[Sequence[StoredEvidence]]) -> list[StoredEvidence]:
    """Return passes of a whole suite, of the passes of each shard, oldest first: the first of each together,
    then the second, and so on.

    How many tests passed, and how few were flaky, is added up of the best passes of each shard: one pass more
    makes neither worse.
    """
    counts = OutcomeCounts(
        passed=sum(max(stored.evidence.counts.passed for stored in line) for line in lines),
        flaky=sum(min(stored.evidence.counts.flaky for stored in line) for line in lines),
        skipped=sum(line[-1].evidence.counts.skipped for line in lines),
    )
    findings = []
    for line in lines:  # what is handed in twice was found once
        findings.append(list({stored.evidence.claim: stored for stored in reversed(line)}.values()))
    joined = []
    for shard_passes in zip(*findings, strict=False):
        oldest = min(shard_passes, key=_sort_key)
        joined.append(replace(oldest, evidence=oldest.evidence.model_copy(update={"counts": counts})))
    return joined


def _split_line(line: Sequence[StoredEvidence]) -> tuple[list[StoredEvidence], list[StoredEvidence]]:
    """Return the failures of results in a line, and the passes after the last of them."""
    last = max((number for number, stored in enumerate(line) if not stored.evidence.passed), default=-1)
    return [stored for stored in line if not stored.evidence.passed], list(line[last + 1 :])


def _count_findings(passes: Sequence[StoredEvidence]) -> int:
    """Return how often something was found to pass: what is handed in twice was found once."""
    return len({stored.evidence.claim for stored in passes}) if len(passes) > 1 else len(passes)


def _sort_key(stored: StoredEvidence) -> tuple[datetime, bool, str]:
    evidence = stored.evidence
    counts_from = evidence.when if evidence.passed else max(evidence.when, evidence.added)
    return counts_from, not evidence.passed, stored.id


def _newest_first(evidence: Iterable[StoredEvidence]) -> tuple[StoredEvidence, ...]:
    """Return each once, the newest first."""
    by_id = {stored.id: stored for stored in evidence}
    return tuple(sorted(by_id.values(), key=_sort_key, reverse=True))


def _on(gfx: str, evidence: Iterable[StoredEvidence]) -> list[StoredEvidence]:
    return [stored for stored in evidence if stored.evidence.gfx == gfx]

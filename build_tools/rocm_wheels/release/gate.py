"""The gate: judge a set for a channel, each rule of the policy one after the other, by the evidence.

Several results about the same wheels are weighed: when does a later one take the place of an earlier one?
Results of one kind about one wheel on one target are put in line for each kind of machine.

- A failure holds, until so many passes in a row came after it on the same kind of machine. Passes on
  another kind of machine leave it standing: a wheel that works on one and not on another does not work.
- A failure counts from when it was written down (never earlier than it was found), a pass from when it
  was found. So a machine whose clock is behind cannot put its failure before an older pass.
- A pass that is too old, unsigned where that is needed, from the future or about other wheels is none. A
  failure about any wheel of the set is one, whatever else is wrong with it.
- A failure that no GPU had a part in (the interpreter did not start, the CPU half failed) holds for every
  target, until passes on any target came after it.
- A failure that passes made good is shown beside the pass, always.
- A run whose GPU got lost is no pass. It is a failure only where a test failed, crashed or hung before.
- Torch's own tests are judged suite by suite. Shards of a suite are one pass when all of one plan are there;
  a failure of a shard is made good by that shard, or by the whole suite. A failure of a suite that a channel
  does not ask for holds as well.

``judge_set`` looks at nothing but its arguments, and there is an answer for all of them: what cannot be
judged fails. ``judge_staged_set`` reads the evidence from a store first, and judges at this moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from rocm_wheels.core import errors, tables
from rocm_wheels.models import torch_tests
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release import set_statements, stored_digests, wheel_set
from rocm_wheels.release.evidence.evidence import (
    CLOCK_SKEW,
    Evidence,
    EvidenceKind,
    OutcomeCounts,
    summarize_evidence,
)
from rocm_wheels.release.evidence.store import StoredEvidence, read_evidence, warn_of_wrong_clocks
from rocm_wheels.release.policy import (
    INTEGRITY_RULES,
    LONGEST_WAIVER,
    REPORTED,
    ChannelPolicy,
    FreshRule,
    GpuRule,
    Policy,
    ProvenanceRule,
    RuleResult,
    TargetState,
    TestsRule,
    Verdict,
    Waiver,
    load_policy,
)
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import NotInStoreError, Store

_UNSIGNED = "no signer listed by the policy has signed it"
_MachineAndWheel = tuple[str, str]  # kind of machine, sha256


@dataclass(frozen=True)
class EvidenceMeasure:
    """How a channel looks at results: how old, how many passes after a failure, signed, of how many.

    ``selections``: also those count of which not all tests were run. ``most_flaky``: so many tests may be
    flaky; None: it does not matter.
    """

    document: wheel_set.SetDocument
    now: datetime
    fresh: timedelta
    passes_after_failure: int = 1
    signed: bool = False
    at_least: int = 1
    selections: bool = False
    most_flaky: int | None = None

    @cached_property
    def hashes(self) -> frozenset[str]:
        """The sha256 of the set's wheels."""
        return self.document.hashes


@dataclass(frozen=True)
class WeighedEvidence:
    """What results of a kind on a target come to.

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


def explain_ignored(stored: StoredEvidence, measure: EvidenceMeasure) -> str:
    """Return why a result says nothing about the set, however old it is; "" when it does."""
    evidence = stored.evidence
    if evidence.outcome == "lost" and not evidence.counts.has_bad:
        return "its GPU got lost, which says nothing of the wheels"
    if not evidence.passed:
        return "" if measure.hashes & set(evidence.hashes) else "none of its wheels are in the set"
    if stored.trouble:
        return stored.trouble
    if evidence.set != measure.document.id:
        return f"it is about {evidence.set}"
    if other_count := len(set(evidence.hashes) - measure.hashes):
        return f"{other_count} of its {tables.format_count(len(evidence.hashes), 'wheel')} not in the set"
    if max(evidence.when, evidence.added) - measure.now > CLOCK_SKEW:
        return f"it is from the future: {max(evidence.when, evidence.added):%Y-%m-%d %H:%M} UTC"
    if measure.signed and not stored.signer:
        return _UNSIGNED
    return ""


def explain_too_few(stored: StoredEvidence, measure: EvidenceMeasure) -> str:
    """Return why a pass is one of too few tests; "" when it is not."""
    evidence = stored.evidence
    if evidence.selected and not measure.selections:
        return f"only a selection of the tests ran ({evidence.selected})"
    if evidence.counts.passed < measure.at_least:
        return (
            f"only {tables.format_count(evidence.counts.passed, 'test')} passed: at least "
            f"{measure.at_least} needed"
        )
    if measure.most_flaky is not None and evidence.counts.flaky > measure.most_flaky:
        return (
            f"{tables.format_count(evidence.counts.flaky, 'test')} failed and passed when tried again: "
            f"at most {measure.most_flaky} may"
        )
    return ""


def name_suite(evidence: Evidence) -> str:
    """Return the suite of torch's own tests that a result is of: "" for other results."""
    if evidence.kind != "tests":
        return ""
    return evidence.suite.name if evidence.suite is not None else torch_tests.SUITE_NAMES[0]


def weigh_evidence(
    kind: str, gfx: str | None, evidence: Sequence[StoredEvidence], measure: EvidenceMeasure, suite: str = ""
) -> WeighedEvidence:
    """Return what the results of a kind come to: on a target, or (None) where no target matters.

    Of the latter the machine does not matter either: whoever looks at a file sees the same. ``suite`` is the
    one of torch's tests that is meant.
    """
    of_kind = [
        stored for stored in evidence if stored.evidence.kind == kind and name_suite(stored.evidence) == suite
    ]
    reasons = {stored.id: explain_ignored(stored, measure) for stored in of_kind}
    relevant = [stored for stored in of_kind if not reasons[stored.id]]
    each = replace(measure, at_least=0)  # all shards of a suite together have tests enough
    bad_shards = [  # a failure counts whichever tests ran
        stored
        for stored in relevant
        if _is_shard(stored) and stored.evidence.passed and explain_too_few(stored, each)
    ]
    joined, made_good = _join_shards([stored for stored in relevant if stored not in bad_shards], measure)
    relevant = [*joined, *bad_shards]
    unsigned = _sort_evidence([stored for stored in of_kind if reasons[stored.id] == _UNSIGNED])
    few = {stored.id for stored in joined if stored.evidence.passed and explain_too_few(stored, measure)}
    few.update(stored.id for stored in bad_shards)
    counted = [stored for stored in relevant if stored.id not in few]
    if gfx is None:
        return replace(_weigh_lines(counted, measure, lambda _: ""), unsigned=unsigned)
    on_target = _weigh_lines(
        [stored for stored in counted if stored.evidence.gfx == gfx], measure, _get_machine_kind
    )
    without_gpu = [stored for stored in counted if stored.evidence.passed or stored.evidence.gfx is None]
    on_any_target = _weigh_lines(without_gpu, measure, _get_machine_kind)
    return replace(
        on_target,
        failing=_sort_evidence([*on_target.failing, *on_any_target.failing]),
        overcome=_sort_evidence(
            [
                *on_target.overcome,
                *on_any_target.overcome,
                *(stored for stored in made_good if stored.evidence.gfx == gfx),
            ]
        ),
        few=_sort_evidence(
            [stored for stored in relevant if stored.id in few and stored.evidence.gfx == gfx]
        ),
        unsigned=tuple(stored for stored in unsigned if stored.evidence.gfx == gfx),
    )


def _is_shard(stored: StoredEvidence) -> bool:
    return stored.evidence.suite is not None and stored.evidence.suite.shards > 1


_ShardedRun = tuple[
    str, int, str | None, str, tuple[str, ...]
]  # plan, shards, target, kind of machine, wheels


def _join_shards(
    evidence: Sequence[StoredEvidence], measure: EvidenceMeasure
) -> tuple[list[StoredEvidence], list[StoredEvidence]]:
    """Return results with shards put together to whole passes, and failures that their own shard made good.

    A whole pass is as old as the oldest of its shards, whose name it bears. What is left of a plan of which a
    shard is not there, is its failures.
    """
    whole = [stored for stored in evidence if not _is_shard(stored)]
    runs: dict[_ShardedRun, dict[int, list[StoredEvidence]]] = defaultdict(lambda: defaultdict(list))
    for stored in sorted(evidence, key=_evidence_sort_key):
        item = stored.evidence
        if item.suite is not None and item.suite.shards > 1:
            key = (item.suite.plan, item.suite.shards, item.gfx, item.host.kind, item.hashes)
            runs[key][item.suite.shard].append(stored)
    made_good: list[StoredEvidence] = []
    for (_, shards, *_), by_shard in runs.items():
        lines = [by_shard.get(number, []) for number in range(1, shards + 1)]
        for line in lines:
            last = max((i for i, stored in enumerate(line) if not stored.evidence.passed), default=-1)
            failed = [stored for stored in line[: last + 1] if not stored.evidence.passed]
            is_good = _count_findings(line[last + 1 :]) >= measure.passes_after_failure
            (made_good if is_good else whole).extend(failed)
        whole += _join_passes([[stored for stored in line if stored.evidence.passed] for line in lines])
    return whole, made_good


def _join_passes(lines: Sequence[Sequence[StoredEvidence]]) -> list[StoredEvidence]:
    """Return passes of a whole suite, of the passes of each shard, oldest first: the newest of each together.

    How many tests passed, and how few were flaky, is added up of the best passes of each shard: one pass more
    makes neither worse.
    """
    if not all(lines):
        return []
    counts = OutcomeCounts(
        passed=sum(max(stored.evidence.counts.passed for stored in line) for line in lines),
        flaky=sum(min(stored.evidence.counts.flaky for stored in line) for line in lines),
        skipped=sum(line[-1].evidence.counts.skipped for line in lines),
    )
    findings = []
    for line in lines:  # what is handed in twice was found once
        by_claim = {stored.evidence.claim: stored for stored in reversed(line)}
        findings.append(list(by_claim.values()))
    joined = []
    for shard_passes in zip(*findings, strict=False):
        oldest = min(shard_passes, key=_evidence_sort_key)
        joined.append(replace(oldest, evidence=oldest.evidence.model_copy(update={"counts": counts})))
    return joined


def _get_machine_kind(evidence: Evidence) -> str:
    return evidence.host.kind


def _weigh_lines(
    evidence: Sequence[StoredEvidence], measure: EvidenceMeasure, machine: Callable[[Evidence], str]
) -> WeighedEvidence:
    lines: dict[_MachineAndWheel, list[StoredEvidence]] = defaultdict(list)
    for stored in sorted(evidence, key=_evidence_sort_key):
        for sha256 in measure.hashes.intersection(stored.evidence.hashes):
            lines[machine(stored.evidence), sha256].append(stored)
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)  # most wheels have the same results
    for (_, sha256), line in lines.items():
        alike[tuple(stored.id for stored in line)].add(sha256)
    by_id = {stored.id: stored for stored in evidence}
    covered, passing, failing, overcome, stale = set[str](), [], [], [], []
    for ids, wheels in alike.items():
        line = [by_id[name] for name in ids]
        last = max((i for i, stored in enumerate(line) if not stored.evidence.passed), default=-1)
        failed = [stored for stored in line[: last + 1] if not stored.evidence.passed]
        after = line[last + 1 :]
        if failed and _count_findings(after) < measure.passes_after_failure:
            failing += failed
            continue
        overcome += failed
        newest = after[-1]
        if measure.now - newest.evidence.when > measure.fresh:
            stale.append(newest)
        else:
            covered |= wheels
            passing.append(newest)
    return WeighedEvidence(
        frozenset(covered),
        _sort_evidence(passing),
        _sort_evidence(failing),
        _sort_evidence(overcome),
        _sort_evidence(stale),
    )


def _count_findings(passes: Sequence[StoredEvidence]) -> int:
    """Return how often something was found to pass: what is handed in twice was found once."""
    return len({stored.evidence.claim for stored in passes})


def _evidence_sort_key(stored: StoredEvidence) -> tuple[datetime, bool, str]:
    evidence = stored.evidence
    counts_from = evidence.when if evidence.passed else max(evidence.when, evidence.added)
    return counts_from, not evidence.passed, stored.id


def _sort_evidence(evidence: Sequence[StoredEvidence]) -> tuple[StoredEvidence, ...]:
    """Return each once, the newest first."""
    return tuple(
        sorted({stored.id: stored for stored in evidence}.values(), key=_evidence_sort_key, reverse=True)
    )


_LONGEST_TEST_NAME = 80


@dataclass(frozen=True)
class GateCase:
    """One set before one channel; ``now`` is in UTC."""

    policy: Policy
    channel: str
    document: wheel_set.SetDocument
    evidence: tuple[StoredEvidence, ...]
    now: datetime

    @property
    def rules(self) -> ChannelPolicy:
        """What the channel says of evidence."""
        return self.policy.channels[self.channel]

    @property
    def sign_option(self) -> str:
        """What a command that adds results needs in the end, where they must be signed."""
        return "" if self.policy.takes_reports(self.channel) else " --sign-with KEY"

    def make_measure(self, fresh: timedelta, rule: GpuRule | None = None) -> EvidenceMeasure:
        """Return how the channel looks at evidence that may be so old; of tests, as their rule says."""
        return EvidenceMeasure(
            self.document,
            self.now,
            fresh,
            self.rules.passes_after_failure,
            signed=self.rules.signed,
            at_least=1 if rule is None else rule.at_least,
            selections=rule is not None and rule.selections == "count",
            most_flaky=rule.flaky if isinstance(rule, TestsRule) else None,
        )

    def apply_waivers(self, failed: RuleResult) -> RuleResult:
        """Return a failed rule as waived, where somebody answers for it today."""
        waivers = self._find_waivers(failed.rule, failed.gfx, failed.suite)
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
            targets = [result.gfx] if result.gfx else ["", *wheel_set.list_set_targets(self.document)]
            waivers = [
                waiver for gfx in targets for waiver in self._find_waivers(result.rule, gfx, result.suite)
            ]
            for waiver in dict.fromkeys(waivers) if result.outcome == "fail" else ():
                if self._has_ended(waiver):
                    yield f"{result.title}: the waiver of {waiver.owner} ended on {waiver.expires}"
                elif self._is_too_long(waiver):
                    yield (
                        f"{result.title}: the waiver of {waiver.owner} is to hold until {waiver.expires}: "
                        f"none counts for more than {LONGEST_WAIVER.days} days"
                    )

    def _find_waivers(self, rule: str, gfx: str, suite: str) -> Iterator[Waiver]:
        document = self.document
        for waiver in self.policy.waivers:
            if (
                waiver.rule == rule
                and rule not in INTEGRITY_RULES
                and self.channel in waiver.channels
                and waiver.set in {None, document.id}
                and waiver.suite in {None, suite}
                and waiver.gfx in {None, gfx}
                and (
                    waiver.family in {None, document.family}
                    or (gfx and waiver.family in wheel_set.list_families_of_target(document, gfx))
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
    others_note = (
        f", and {tables.format_count(len(weighed.failing) - 1, 'other result')}"
        if len(weighed.failing) > 1
        else ""
    )
    tests = f": {', '.join(name[:_LONGEST_TEST_NAME] for name in newest.failed[:3])}" if newest.failed else ""
    detail = f" ({newest.detail})" if newest.detail and not tests else ""
    return f"{unseen}{summarize_evidence(newest)}{tests}{detail}{others_note}"


def describe_past_failures(weighed: WeighedEvidence) -> str:
    """Return that it had failed before, for the end of a sentence; "" when it had not."""
    times = len(list_overcome_ids(weighed))
    return f", after {tables.format_count(times, 'failure')} on the same wheels" if times else ""


def describe_staleness(weighed: WeighedEvidence, measure: EvidenceMeasure) -> str:
    """Return why passes do not count, for the end of a sentence: unsigned, too old, of too few tests."""
    if weighed.unsigned:
        return f"; of {tables.format_count(len(weighed.unsigned), 'pass')} {_UNSIGNED}"
    if not weighed.stale:
        return f"; {explain_too_few(weighed.few[0], measure)}" if weighed.few else ""
    age = tables.format_duration((measure.now - weighed.stale[0].evidence.when).total_seconds())
    return f"; the newest is {age} old, and may be {tables.format_duration(measure.fresh.total_seconds())}"


_ANY_EVIDENCE_AGE = timedelta(days=36500)
_GPU_EVIDENCE_KINDS: tuple[EvidenceKind, ...] = ("smoke", "tests")
_TEST_COMMANDS = {
    "smoke": (
        " (build_tools/run_pytorch_smoke_tests.py --family GFX --require-gpu --wheels WHEELS)",
        "smoke-results/results.json",
    ),
    "tests": (
        " (build_tools/run_pytorch_tests.py --family GFX --wheels WHEELS[SUITE])",
        "torch-test-results",
    ),
}
_TEST_NAMES = {"smoke": "the smoke tests", "tests": "torch's own tests"}


def judge_torch_tests(case: GateCase, rule: TestsRule) -> list[RuleResult]:
    """Return what came of the suites that a rule asks for, and the failures of others."""
    results = []
    for suite in rule.suites:
        results += judge_on_gpus(case, "tests", rule, suite)
    others = {name_suite(stored.evidence) for stored in case.evidence} - {"", *rule.suites}
    for other_suite in sorted(others):
        for gfx in wheel_set.list_set_targets(case.document):
            result, is_absent = _judge_target(case, "tests", rule, gfx, other_suite)
            if result.outcome != "pass" and not is_absent:
                results.append(result)
    return results


def judge_on_gpus(case: GateCase, kind: EvidenceKind, rule: GpuRule, suite: str = "") -> list[RuleResult]:
    """Return what came of a rule, for each target; where one target is enough, what that one is.

    A failure counts on every target, also where another one passed.
    """
    targets = wheel_set.list_set_targets(case.document)
    if not targets:
        why = "neither the set nor its family names its GPU targets"
        absent = RuleResult(kind, "fail", why, tip="stage the wheels of a GPU family", suite=suite)
        return [case.apply_waivers(absent)]
    judged = [(_judge_target(case, kind, rule, gfx, suite)) for gfx in targets]
    results = [result for result, _ in judged]
    if rule.targets == "every":
        return results
    with_evidence = [result for result, absent in judged if not absent]
    if any(result.outcome == "pass" for result in with_evidence) or len(with_evidence) == len(results):
        return with_evidence
    return [*with_evidence, *_judge_without_any_target([result for result, absent in judged if absent])]


def find_target_state(case: GateCase, gfx: str) -> TargetState:
    """Return what is known of a target by all evidence that counts, however old.

    With a Python it is tested when all that is installed together there was; of torch's own tests, torch.
    Where results that a signer of the policy signed do not make it tested, those of others make it reported.
    """
    state = _weigh_target(case, gfx, signed=True)
    if state.state == "tested" or all(stored.signer for stored in case.evidence if stored.evidence.passed):
        return state
    reported = _weigh_target(case, gfx, signed=False)
    if reported.state == "tested":
        reported = replace(reported, state=REPORTED)
    # a report makes no failure good where none counts
    return reported if case.policy.takes_reports(case.channel) or state.state != "failed" else state


def _weigh_target(case: GateCase, gfx: str, *, signed: bool) -> TargetState:
    """Return what is known of a target by signed results, or by all; failures count, signed or not."""
    by, pythons, days, failed = [], set[str](), [], False
    for kind in _GPU_EVIDENCE_KINDS:
        rule = _find_gpu_rule(case, kind)
        measure = replace(case.make_measure(_ANY_EVIDENCE_AGE, rule), signed=signed)
        groups = wheel_set.list_installed_wheels(case.document, gfx, rule.projects)
        suites: tuple[str, ...] = rule.suites if isinstance(rule, TestsRule) else ("",)
        other_suites = {
            name_suite(stored.evidence) for stored in case.evidence if stored.evidence.kind == kind
        }
        covered_groups = list(groups)
        moments = []
        for suite in sorted({*suites, *other_suites}):
            weighed = weigh_evidence(kind, gfx, case.evidence, measure, suite)
            failed = failed or bool(weighed.failing)
            if suite in suites:
                covered_groups = _find_covered_groups(tuple(covered_groups), weighed)
                moments += [item.evidence.when for item in weighed.passing]
        if covered_groups:
            by.append({"smoke": "smoke tests", "tests": "full tests"}[kind])
            days.append(max(moments))
            pythons |= {item.python for item in covered_groups}
    if failed:
        return TargetState(gfx, "failed")
    if not by:
        return TargetState(gfx, "untested")
    in_order = tuple(
        item.python for item in wheel_set.list_installed_wheels(case.document, gfx) if item.python in pythons
    )
    return TargetState(gfx, "tested", tuple(by), in_order, f"{max(days):%Y-%m-%d}")


def _find_gpu_rule(case: GateCase, kind: EvidenceKind) -> GpuRule:
    """Return what a run must be to be one: as the channel has it, else as another one does."""
    for channel in (case.channel, *case.policy.channels):
        rules = case.policy.rules_for(channel, case.document.family)
        rule = rules.smoke if kind == "smoke" else rules.tests
        if rule is not None:
            return rule
    torch = ("torch",) if kind == "tests" and "torch" in case.document.projects else ()
    rule_type = TestsRule if kind == "tests" else GpuRule
    return rule_type(fresh=_ANY_EVIDENCE_AGE, projects=torch)


def _find_covered_groups(
    groups: tuple[wheel_set.InstalledWheels, ...], weighed: WeighedEvidence
) -> list[wheel_set.InstalledWheels]:
    return [group for group in groups if all(file.sha256 in weighed.covered for file in group.files)]


def _judge_target(
    case: GateCase, kind: EvidenceKind, rule: GpuRule, gfx: str, suite: str
) -> tuple[RuleResult, bool]:
    """Return what came of a rule on a target, and whether that is for want of evidence alone."""
    measure = case.make_measure(rule.fresh, rule)
    weighed = weigh_evidence(kind, gfx, case.evidence, measure, suite)
    result = RuleResult(
        kind, "fail", "", gfx, list_deciding_ids(weighed), list_overcome_ids(weighed), suite=suite
    )
    if weighed.failing:
        times = measure.passes_after_failure
        passes = "a pass" if times == 1 else f"{times} passes in a row"
        newest = weighed.failing[0].evidence
        where = f" on machines of the kind {newest.host.kind}" if newest.host.kind != "any" else ""
        since = f"found after {max(newest.when, newest.added):%Y-%m-%d %H:%M} UTC"
        show = f"show with {passes}{where}, {since}, that it was not the wheels"
        tip = f"mend it, which makes another set; or {show}"
        return case.apply_waivers(replace(result, why=describe_failures(weighed, gfx), tip=tip)), False
    groups = wheel_set.list_installed_wheels(case.document, gfx, rule.projects)
    covered_groups = _find_covered_groups(groups, weighed)
    enough = covered_groups if len(covered_groups) == len(groups) else []
    if rule.pythons == "one":  # one of which something is missing stands for no other
        enough = enough or [group for group in covered_groups if group.full]
    if enough:
        why = f"{_describe_passes(weighed, covered_groups, measure)}{describe_past_failures(weighed)}"
        return replace(result, outcome="pass", why=why), False
    if not groups:
        why = f"the set has no wheels of {', '.join(rule.projects) or 'any project'} with code for {gfx}"
        tip = "build them, and stage the whole set; or waive the rule there"
        return case.apply_waivers(replace(result, why=why, tip=tip)), True
    why = f"{_describe_missing_passes(kind, groups, weighed)}{describe_staleness(weighed, measure)}"
    why += _describe_missing_shards(case, gfx, suite)
    some = bool(weighed.covered or weighed.stale or weighed.few)
    return _apply_exceptions(case, replace(result, why=why), some=some), True


def _describe_missing_shards(case: GateCase, gfx: str, suite: str) -> str:
    """Return which shards of the newest plan of a suite are not there, for the end of a sentence."""
    shards = [
        stored.evidence
        for stored in case.evidence
        if stored.evidence.suite is not None
        and stored.evidence.suite.shards > 1
        and (stored.evidence.suite.name, stored.evidence.gfx) == (suite, gfx)
    ]
    if not shards:
        return ""
    newest = max(shards, key=lambda evidence: evidence.when).suite
    assert newest is not None
    present = {
        evidence.suite.shard
        for evidence in shards
        if evidence.suite is not None
        and (evidence.suite.plan, evidence.suite.shards) == (newest.plan, newest.shards)
    }
    missing = sorted(set(range(1, newest.shards + 1)) - present)
    numbers = ", ".join(map(str, missing))
    return (
        f"; of {newest.shards} shards {numbers} {'is' if len(missing) == 1 else 'are'} not there"
        if missing
        else ""
    )


def _apply_exceptions(case: GateCase, result: RuleResult, *, some: bool) -> RuleResult:
    """Return a rule for which evidence is wanting: bypassed by a named exception, waived, or failed.

    ``some``: there is evidence, of too few, or too old.
    """
    document, platform = case.document, wheel_set.find_set_platform(case.document)
    family, test_place = case.policy.find_test_place(
        wheel_set.list_families_of_target(document, result.gfx), platform
    )
    exception_reason, bypasses = case.policy.describe_exception(family), case.rules.bypasses
    if test_place.bypass_tests_for_releases and (
        bypasses == "count" or (bypasses == "own" and exception_reason)
    ):
        short = result.why.partition("; ")[2] or result.why
        state = f"not tested enough ({short})" if some else "untested"
        why = (
            f"{state}: {family} is a named exception ({exception_reason or 'the data of families names it'})"
        )
        return replace(result, outcome="bypassed", why=why)
    why, runner = result.why, test_place.runner
    if test_place.bypass_tests_for_releases:
        why = f"{why}; that {family} is a named exception does not count for {case.channel}"
    if not runner or (test_place.targets and result.gfx not in test_place.targets):
        why, runner = (
            f"{why}; no runner has a {result.gfx}, which excuses nothing",
            f"a machine with a {result.gfx}",
        )
    run, results = _TEST_COMMANDS[result.rule]
    run = run.replace(
        "[SUITE]", "" if result.suite == torch_tests.SUITE_NAMES[0] else f" --suite {result.suite}"
    )
    add = f"rocm-wheels set evidence add STORE --set {document.id} --from {results}".replace(
        "GFX", result.gfx
    )
    add += case.sign_option
    tip = f"run {_TEST_NAMES[result.rule]} on {runner}{run.replace('GFX', result.gfx)}, then: {add}"
    return case.apply_waivers(replace(result, why=why, tip=tip))


def _judge_without_any_target(absent: list[RuleResult]) -> list[RuleResult]:
    """Return what it comes to that one target would be enough, and there is none.

    A target that is excused excuses no other: the rest must be tested, or one of them.
    """
    failed = [result for result in absent if result.outcome == "fail"]
    if len(failed) < 2:
        return failed or absent
    why = f"one of {', '.join(result.gfx for result in failed)} is enough, and there is none: {failed[0].why}"
    return [replace(failed[0], gfx="", why=why)]


def _describe_passes(
    weighed: WeighedEvidence, covered_groups: list[wheel_set.InstalledWheels], measure: EvidenceMeasure
) -> str:
    newest = weighed.passing[0].evidence
    pythons = ", ".join(group.python for group in covered_groups if group.python)
    spoken = f" with Python {pythons}" if pythons else ""
    age = tables.format_duration((measure.now - newest.when).total_seconds())
    return f"passed{spoken} ({newest.counts}; {age} ago on {newest.host.short}, by {newest.by})"


def _describe_missing_passes(
    kind: EvidenceKind, groups: tuple[wheel_set.InstalledWheels, ...], weighed: WeighedEvidence
) -> str:
    uncovered = [
        (group, file) for group in groups for file in group.files if file.sha256 not in weighed.covered
    ]
    if not weighed.covered:
        return f"no evidence that {_TEST_NAMES[kind]} pass"
    pythons = ", ".join(dict.fromkeys(group.python for group, _ in uncovered if group.python))
    spoken = f" with Python {pythons}" if pythons else ""
    files = {file.name for _, file in uncovered}
    others_note = f" and {tables.format_count(len(files) - 1, 'other')}" if len(files) > 1 else ""
    return f"{_TEST_NAMES[kind]} passed, but not{spoken}: {uncovered[0][1].name}{others_note}"


_MOST_CELLS_SHOWN = 5


def judge_set(
    policy: Policy,
    channel: str,
    document: wheel_set.SetDocument,
    evidence: Sequence[StoredEvidence],
    now: datetime,
    *,
    statements: Mapping[str, set_statements.StoredStatement] = MappingProxyType({}),
    wheel_faults: Sequence[str] | None = None,
) -> Verdict:
    """Return what a channel's rules come to for a set. ``now`` is a moment with its time zone.

    ``statements`` say how wheels were made, by the sha256 of the wheel. ``wheel_faults`` are the wheels whose
    bytes are not the document's; None: they were not read.

    Pure and total. More failures, or fewer passes, never make a better verdict; waivers that have ended
    never count.
    """
    now = now.astimezone(timezone.utc)
    if channel not in policy.channels:
        why = f"the policy says nothing of {channel}, so nothing may go there"
        refused = RuleResult("hashes", "fail", why, tip=f"add {channel} to the channels of the policy")
        return Verdict(document.id, document.family, channel, now, (refused,))
    case = GateCase(policy, channel, document, tuple(evidence), now)
    rules = policy.rules_for(channel, document.family)
    results = [*_judge_signers(case), _judge_hashes(case, wheel_faults)]
    results.append(_judge_files(case, "audit", rules.audit))
    if rules.complete is not None:
        results.append(_judge_completeness(case))
    results += _judge_statements(case, rules.provenance, statements)
    if rules.resolver is not None:
        results.append(_judge_files(case, "resolver", rules.resolver))
    if rules.smoke is not None:
        results += judge_on_gpus(case, "smoke", rules.smoke)
    if rules.tests is not None:
        results += judge_torch_tests(case, rules.tests)
    measure = case.make_measure(timedelta.max)
    return Verdict(
        set=document.id,
        family=document.family,
        channel=channel,
        when=now,
        rules=tuple(results),
        targets=tuple(find_target_state(case, gfx) for gfx in wheel_set.list_set_targets(document)),
        ignored=tuple((stored.id, why) for stored in evidence if (why := explain_ignored(stored, measure))),
        notes=tuple(case.describe_ended_waivers(results)),
        policy=policy.digest,
    )


def _judge_signers(case: GateCase) -> list[RuleResult]:
    """Return a failure where evidence must be signed and the policy names nobody who could."""
    if case.policy.takes_reports(case.channel) or case.policy.signers:
        return []
    why = f"evidence for {case.channel} must be signed, and the policy names nobody under `signers`"
    tip = (
        "rocm-wheels set key NAME --policy POLICY makes a key and names it; add results with --sign-with KEY"
    )
    return [RuleResult("signers", "fail", why, tip=tip)]


def _judge_statements(
    case: GateCase, rule: ProvenanceRule | None, statements: Mapping[str, set_statements.StoredStatement]
) -> list[RuleResult]:
    """Judge how wheels were made. A wrong statement fails, asked for or not, and nobody can waive it."""
    if (wrong := set_statements.judge_stored_statements(statements)) is not None:
        return [wrong]
    if rule is None:
        return []
    judged = set_statements.judge_provenance(case.document, rule, statements)
    return [case.apply_waivers(judged) if judged.outcome == "fail" else judged]


def _judge_hashes(case: GateCase, wheel_faults: Sequence[str] | None) -> RuleResult:
    document = case.document
    own_evidence = [
        stored for stored in case.evidence if stored.evidence.set == document.id and not stored.trouble
    ]
    other = [stored.id for stored in own_evidence if stored.evidence.about not in {"", document.digest}]
    computed_id = document.computed_id
    if computed_id == document.id and other:
        why = f"the document says other things than when {other[0]} was written"
        tip = "put set.json back from a copy of the store"
        return RuleResult("hashes", "fail", why, evidence=(other[0],), tip=tip)
    if computed_id == document.id and wheel_faults:
        others = (
            f" and {tables.format_count(len(wheel_faults) - 1, 'other')}" if len(wheel_faults) > 1 else ""
        )
        tip = "put it back: `rocm-wheels set stage` with the same wheels; or build them again"
        return RuleResult("hashes", "fail", f"{wheel_faults[0]}{others}", tip=tip)
    if computed_id == document.id:
        read_note = "" if wheel_faults is None else ", whose bytes are those"
        locks = "its lock" if len(document.locks) == 1 else f"its {len(document.locks)} locks"
        return RuleResult(
            "hashes",
            "pass",
            f"the id is that of {locks} and its "
            f"{tables.format_count(len(document.files), 'wheel')}{read_note}",
        )
    why = f"what it lists is {computed_id}: the document was changed, or is of another set"
    return RuleResult("hashes", "fail", why, tip="stage the wheels again")


def _judge_completeness(case: GateCase) -> RuleResult:
    document = case.document
    planned = tables.format_count(len(document.planned), "planned cell")
    missing_cells = [cell for cell in document.planned if not _has_wheel_for_cell(cell, document)]
    missing_cells += [cell for cell in document.missing if cell not in missing_cells]
    if missing_cells:
        listed = ", ".join(map(str, missing_cells[:_MOST_CELLS_SHOWN])) + (
            " and others" if len(missing_cells) > _MOST_CELLS_SHOWN else ""
        )
        why = f"missing {len(missing_cells)} of {planned}: {listed}"
        return case.apply_waivers(
            RuleResult("complete", "fail", why, tip="build them, and stage the whole set")
        )
    if not document.planned:
        why = "the set has no list of planned cells: its completeness is unknown"
        tip = "stage it with a lock that names its Pythons and targets"
        return case.apply_waivers(RuleResult("complete", "fail", why, tip=tip))
    return RuleResult("complete", "pass", f"all {planned} (project × Python × target) are there")


def _has_wheel_for_cell(cell: wheel_set.SetCell, document: wheel_set.SetDocument) -> bool:
    """Tell whether a wheel fills a cell; its device code may be in parts of it."""
    files = [item for item in document.files if document.fits_cell(item, cell)]
    usable = [
        item
        for item in files
        if not (pythons := wheel_set.list_wheel_pythons(item.name)) or cell.python in pythons
    ]
    wheels = [file for file in usable if file.project == cell.project]
    parts = [file for file in usable if wheel_set.find_host_project(file.project) == cell.project]
    targets = {strip_features(item) for file in (*wheels, *parts) for item in file.targets}
    return bool(wheels) and (not cell.target or strip_features(cell.target) in targets)


def _judge_files(case: GateCase, kind: EvidenceKind, rule: FreshRule) -> RuleResult:
    """Judge a rule about files, which no GPU has a part in: each must be covered.

    Variants are left out where the resolver is asked: they are not chosen by version alone.
    """
    document, measure = case.document, case.make_measure(rule.fresh)
    files = [file for file in document.files if kind != "resolver" or not file.label]
    weighed = weigh_evidence(kind, None, case.evidence, measure)
    result = RuleResult(kind, "fail", "", "", list_deciding_ids(weighed), list_overcome_ids(weighed))
    tip = f"rocm-wheels set check STORE --set {document.id} --wheels WHEELS{case.sign_option}"
    uncovered = [file.name for file in files if file.sha256 not in weighed.covered]
    if weighed.failing:
        why = describe_failures(weighed)
    elif uncovered:
        why = (
            f"no evidence for {len(uncovered)} of {tables.format_count(len(files), 'wheel')}: {uncovered[0]}"
        )
        why += f"{' and others' if len(uncovered) > 1 else ''}{describe_staleness(weighed, measure)}"
    elif not files:
        return RuleResult(kind, "pass", "all wheels are variants, which are not chosen by version alone")
    else:
        why = f"{tables.format_count(len(files), 'wheel')} passed{describe_past_failures(weighed)}"
        return RuleResult(kind, "pass", why, "", result.evidence, result.overcome)
    return case.apply_waivers(RuleResult(kind, "fail", why, "", result.evidence, result.overcome, tip))


def judge_staged_set(
    store: Store,
    document: wheel_set.SetDocument,
    channel: str,
    *,
    policy: Policy,
    now: datetime,
    env: Mapping[str, str],
    digests: stored_digests.StoredDigests | None = None,
) -> tuple[Verdict, list[StoredEvidence]]:
    """Return what the gate of a channel says of a staged set, and the evidence that it read.

    The bytes of its locks are read, and of its wheels, but for those that ``digests`` remember. Raises
    UsageError for a channel that the policy does not have, and DataError for evidence that cannot be read.
    Clocks that are wrong are warned of.
    """
    require_channel(policy, channel)
    evidence = read_evidence(store, document, signers=policy.signers, env=env)
    warn_of_wrong_clocks(evidence, now)
    paths = FamilyPaths(document.family)
    is_required = policy.rules_for(channel, document.family).provenance is not None
    statements = set_statements.read_set_statements(
        store, paths, document, policy.signer_keys if is_required else {}, env
    )
    faults = (digests or stored_digests.StoredDigests()).list_wheel_faults(store, paths, document)
    for lock in document.locks:
        try:
            digest = store.digest(paths.lock_file(lock.digest))
        except NotInStoreError:
            faults.append(f"the lock {lock.digest[:12]} is gone")
            continue
        if digest != lock.digest:
            faults.append(f"the lock {lock.digest[:12]} has other bytes: their sha256 is {digest}")
    verdict = judge_set(policy, channel, document, evidence, now, statements=statements, wheel_faults=faults)
    return verdict, evidence


def require_channel(policy: Policy, channel: str) -> None:
    """Raise UsageError, with the name that was probably meant, for a channel that a policy does not have."""
    if channel not in policy.channels:
        raise errors.UsageError(
            f"the policy has no channel {channel}{tables.suggest_name(channel, policy.channels)}",
            tip=f"it has {', '.join(policy.channels)}",
        )


def load_policy_for(channel: str | None, path: Path | None) -> Policy:
    """Return the policy at ``path``, by default our own, which has ``channel`` where one is named.

    Raises as ``load_policy`` and ``require_channel`` do.
    """
    policy = load_policy(path)
    if channel is not None:
        require_channel(policy, channel)
    return policy

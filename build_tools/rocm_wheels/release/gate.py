"""The gate: judge a set for a channel, each rule of the policy one after the other, by the evidence.

``evidence.weighing`` says when a later result takes the place of an earlier one. A failure of a suite of
torch's own tests that a channel does not ask for holds as well.

``judge_set`` looks at nothing but its arguments, and there is an answer for all of them: what cannot be
judged fails. ``judge_staged_set`` reads the evidence from a store first, and judges at this moment. Both
state facts; ``verdict_text`` makes sentences of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from rocm_wheels.core import errors, tables
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release import channel as channels
from rocm_wheels.release import set_statements, speed, stored_digests, verdict, wheel_set
from rocm_wheels.release.evidence import weighing
from rocm_wheels.release.evidence.evidence import EvidenceKind
from rocm_wheels.release.evidence.store import StoredEvidence, read_evidence, warn_of_wrong_clocks
from rocm_wheels.release.policy import (
    INTEGRITY_RULES,
    LONGEST_WAIVER,
    ChannelPolicy,
    FreshRule,
    GpuRule,
    Policy,
    ReproducedRule,
    SpeedRule,
    TestsRule,
    Waiver,
    load_policy,
)
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.release.verdict import REPORTED, RuleResult, TargetState, Verdict, reason
from rocm_wheels.stores.store import NotInStoreError, Store
from rocm_wheels.variants import device_names

_ANY_AGE = timedelta(days=36500)
_MOST_TESTS_NAMED = 3  # of a failure, in a reason
_GPU_KINDS: tuple[tuple[EvidenceKind, str], ...] = (("smoke", "smoke tests"), ("tests", "full tests"))


@dataclass(frozen=True)
class EarlierSet:
    """A set that a channel showed before the one that is judged, and what is known of it."""

    document: wheel_set.SetDocument
    evidence: tuple[StoredEvidence, ...]


@dataclass(frozen=True)
class GateCase:
    """One set before one channel; ``now`` is in UTC, ``earlier`` is what the channel showed before it.

    ``ageless``: evidence of any age is fresh.
    """

    policy: Policy
    channel: str
    document: wheel_set.SetDocument
    evidence: tuple[StoredEvidence, ...]
    now: datetime
    earlier: tuple[EarlierSet, ...] = ()
    ageless: bool = False

    @property
    def rules(self) -> ChannelPolicy:
        """What the channel says of evidence."""
        return self.policy.channels[self.channel]

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets that the set is for."""
        return wheel_set.list_set_targets(self.document)

    @cached_property
    def signed_scales(self) -> weighing.Scales:
        """The evidence, where only passes count that a signer of the policy signed."""
        return weighing.Scales(self.document, self.evidence, self.now, True, self.rules.signed)

    @cached_property
    def open_scales(self) -> weighing.Scales:
        """The evidence, where passes of anybody count."""
        return weighing.Scales(self.document, self.evidence, self.now, False, self.rules.signed)

    @property
    def scales(self) -> weighing.Scales:
        """The evidence, as the channel looks at it."""
        return self.signed_scales if self.rules.signed else self.open_scales

    def make_measure(self, rule: FreshRule | GpuRule, *, any_age: bool = False) -> weighing.Measure:
        """Return what a pass must be, as a rule says."""
        fresh, passes = _ANY_AGE if any_age or self.ageless else rule.fresh, self.rules.passes_after_failure
        if isinstance(rule, FreshRule):
            return weighing.Measure(fresh, passes)
        return weighing.Measure(fresh, passes, rule.at_least, rule.selections == "count", rule.flaky)

    def apply_waivers(self, failed: RuleResult) -> RuleResult:
        """Return a failed rule as waived, where somebody answers for it today."""
        for waiver in self._find_waivers(failed, failed.gfx):
            if self.now.date() <= waiver.expires and waiver.expires - self.now.date() <= LONGEST_WAIVER:
                waived = reason("waived", owner=waiver.owner, until=str(waiver.expires), why=waiver.reason)
                return replace(failed, outcome="waived", reasons=(waived, *failed.reasons))
        return failed

    def list_ended_waivers(self, results: Sequence[RuleResult]) -> Iterator[verdict.Reason]:
        """Yield each waiver that would count for a rule that failed, were it of today."""
        for result in results:
            targets = [result.gfx] if result.gfx else ["", *self.targets]
            waivers = [waiver for gfx in targets for waiver in self._find_waivers(result, gfx)]
            for waiver in dict.fromkeys(waivers) if result.outcome == "fail" else ():
                facts = {"title": result.title, "owner": waiver.owner, "until": str(waiver.expires)}
                if self.now.date() > waiver.expires:
                    yield reason("waiver-ended", **facts)
                elif waiver.expires - self.now.date() > LONGEST_WAIVER:
                    yield reason("waiver-too-long", **facts, days=LONGEST_WAIVER.days)

    def _find_waivers(self, result: RuleResult, gfx: str) -> Iterator[Waiver]:
        document = self.document
        for waiver in self.policy.waivers:
            if (
                waiver.rule == result.rule
                and result.rule not in INTEGRITY_RULES
                and self.channel in waiver.channels
                and waiver.set in {None, document.id}
                and waiver.suite in {None, result.suite}
                and waiver.gfx in {None, gfx}
                and (
                    waiver.family in {None, document.family}
                    or (gfx and waiver.family in wheel_set.list_families_of_target(document, gfx))
                )
            ):
                yield waiver


# ---- rules about GPUs


def find_target_state(case: GateCase, gfx: str) -> TargetState:
    """Return what is known of a target by all evidence that counts, however old.

    With a Python it is tested when all that is installed together there was; of torch's own tests, torch.
    Where results that a signer of the policy signed do not make it tested, those of others make it reported.
    """
    state = _weigh_target(case, gfx, case.signed_scales)
    if state.state == "tested" or all(stored.signer for stored in case.evidence if stored.evidence.passed):
        return state
    reported = _weigh_target(case, gfx, case.open_scales)
    if reported.state == "tested":
        reported = replace(reported, state=REPORTED)
    # a report makes no failure good where none counts
    return reported if case.policy.takes_reports(case.channel) or state.state != "failed" else state


def _weigh_target(case: GateCase, gfx: str, scales: weighing.Scales) -> TargetState:
    """Return what is known of a target by the results that count on these scales; failures always do."""
    by, pythons, days, failed = [], set[str](), [], False
    for kind, name in _GPU_KINDS:
        rule = _find_gpu_rule(case, kind)
        suites = set(rule.suites) if isinstance(rule, TestsRule) else {""}
        groups = wheel_set.list_installed_wheels(case.document, gfx, rule.projects)
        moments = []
        for suite in sorted(suites | (scales.list_suites() if kind == "tests" else set())):
            weighed = scales.weigh(kind, gfx, case.make_measure(rule, any_age=True), suite)
            failed = failed or bool(weighed.failing)
            if suite in suites:
                groups = _find_covered_groups(groups, weighed)
                moments += [item.evidence.when for item in weighed.passing]
        if groups:
            by.append(name)
            days.append(max(moments))
            pythons |= {item.python for item in groups}
    if failed:
        return TargetState(gfx, "failed")
    if not by:
        return TargetState(gfx, "untested")
    pythons -= {""}  # of wheels for any
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
    return rule_type(fresh=_ANY_AGE, projects=torch)


def _find_covered_groups(
    groups: Sequence[wheel_set.InstalledWheels], weighed: weighing.Weighed
) -> tuple[wheel_set.InstalledWheels, ...]:
    return tuple(group for group in groups if all(file.sha256 in weighed.covered for file in group.files))


def judge_torch_tests(case: GateCase, rule: TestsRule) -> Iterator[RuleResult]:
    """Yield what came of the suites that a rule asks for, and the failures of others."""
    for suite in rule.suites:
        yield from judge_on_gpus(case, "tests", rule, suite)
    yield from _judge_failures(case, "tests", rule, case.scales.list_suites().difference(rule.suites))


def _judge_failures(
    case: GateCase, kind: EvidenceKind, rule: GpuRule, suites: Iterable[str]
) -> Iterator[RuleResult]:
    """Yield the failures of what a channel does not ask for: they hold a set as well, unless waived."""
    for suite in sorted(suites):
        for gfx in case.targets:
            result, is_absent = _judge_target(case, kind, rule, gfx, suite)
            if result.outcome != "pass" and not is_absent:
                yield result


def judge_on_gpus(case: GateCase, kind: EvidenceKind, rule: GpuRule, suite: str = "") -> list[RuleResult]:
    """Return what came of a rule, for each target; where one target is enough, what that one is.

    A failure counts on every target, also where another one passed. A target that is excused excuses no
    other: the rest must be tested, or one of them.
    """
    if not case.targets:
        absent = RuleResult(kind, "fail", (reason("no-targets"),), suite=suite)
        return [case.apply_waivers(absent)]
    return _choose_targets([_judge_target(case, kind, rule, gfx, suite) for gfx in case.targets], rule)


def _choose_targets(judged: Sequence[tuple[RuleResult, bool]], rule: GpuRule | SpeedRule) -> list[RuleResult]:
    """Return what came of a rule on each target; with each comes whether that is for want of evidence."""
    results = [result for result, _ in judged]
    with_evidence = [result for result, is_absent in judged if not is_absent]
    if rule.targets == "every" or len(with_evidence) == len(results):
        return results
    if any(result.outcome == "pass" for result in with_evidence):
        return with_evidence
    without = [result for result, is_absent in judged if is_absent]
    failed = [result for result in without if result.outcome == "fail"]
    if len(failed) > 1:
        any_target = reason("any-target", targets=tuple(result.gfx for result in failed))
        failed = [replace(failed[0], gfx="", reasons=(any_target, *failed[0].reasons))]
    return [*with_evidence, *(failed or without)]


def _judge_target(
    case: GateCase, kind: EvidenceKind, rule: GpuRule, gfx: str, suite: str
) -> tuple[RuleResult, bool]:
    """Return what came of a rule on a target, and whether that is for want of evidence alone."""
    measure = case.make_measure(rule)
    weighed = case.scales.weigh(kind, gfx, measure, suite)
    result = _begin_result(kind, weighed, gfx, suite)
    if weighed.failing:
        return case.apply_waivers(replace(result, reasons=(_state_failure(case, weighed),))), False
    groups = wheel_set.list_installed_wheels(case.document, gfx, rule.projects)
    covered_groups = _find_covered_groups(groups, weighed)
    enough = covered_groups if len(covered_groups) == len(groups) else ()
    if rule.pythons == "one":  # one of which something is missing stands for no other
        enough = enough or tuple(group for group in covered_groups if group.full)
    if enough:
        newest = weighed.passing[0].evidence
        passed = reason(
            "passed",
            pythons=tuple(group.python for group in covered_groups if group.python),
            counts=newest.counts.model_dump(exclude_defaults=True),
            age=int((case.now - newest.when).total_seconds()),
            host=newest.host.short,
            by=newest.by,
        )
        return replace(result, outcome="pass", reasons=(passed, *_state_overcome(result))), False
    if not groups:
        result = replace(result, reasons=(reason("no-wheels", projects=rule.projects, gfx=gfx),))
        return case.apply_waivers(result), True
    lack = reason("no-pass")
    if weighed.covered:
        missing = [
            (group, file) for group in groups for file in group.files if file.sha256 not in weighed.covered
        ]
        lack = reason(
            "partial-pass",
            files=tuple(dict.fromkeys(file.name for _, file in missing)),
            pythons=tuple(dict.fromkeys(group.python for group, _ in missing if group.python)),
        )
    details = (*_state_lacks(case, weighed, measure), *_state_missing_shards(case, gfx, suite))
    some = bool(weighed.covered or weighed.stale or weighed.few)
    return _apply_exceptions(case, replace(result, reasons=(lack, *details)), some=some), True


def _begin_result(
    kind: EvidenceKind, weighed: weighing.Weighed, gfx: str = "", suite: str = ""
) -> RuleResult:
    """Return a failure that rests on what failed, else on what passed, else on what is too old."""
    failing = [stored.id for stored in weighed.failing]
    deciding = failing or [stored.id for stored in weighed.passing or weighed.stale]
    overcome = tuple(stored.id for stored in weighed.overcome if stored.id not in failing)
    return RuleResult(kind, "fail", gfx=gfx, suite=suite, evidence=tuple(deciding), overcome=overcome)


def _state_failure(case: GateCase, weighed: weighing.Weighed) -> verdict.Reason:
    newest = weighed.failing[0].evidence
    return reason(
        "failed",
        evidence=weighed.failing[0].id,
        result=newest.outcome,
        counts=newest.counts.model_dump(exclude_defaults=True),
        when=newest.when,
        since=max(newest.when, newest.added),
        host=newest.host.short,
        machine=newest.host.kind,
        tests=newest.failed[:_MOST_TESTS_NAMED],
        detail=newest.detail,
        before_gpu=newest.kind in {"smoke", "tests"} and newest.gfx is None,
        others=len(weighed.failing) - 1,
        passes=case.rules.passes_after_failure,
    )


def _state_overcome(result: RuleResult) -> list[verdict.Reason]:
    return [reason("overcome", failures=len(result.overcome))] if result.overcome else []


def _state_lacks(
    case: GateCase, weighed: weighing.Weighed, measure: weighing.Measure
) -> list[verdict.Reason]:
    """Return why passes that are there do not count: unsigned, too old, of too few tests."""
    if weighed.unsigned:
        return [reason("unsigned", passes=len(weighed.unsigned))]
    if weighed.stale:
        age = case.now - weighed.stale[0].evidence.when
        return [reason("too-old", age=int(age.total_seconds()), limit=int(measure.fresh.total_seconds()))]
    lack = measure.find_lack(weighed.few[0].evidence) if weighed.few else None
    return [lack] if lack is not None else []


def _state_missing_shards(case: GateCase, gfx: str, suite: str) -> list[verdict.Reason]:
    """Return which shards of the newest plan of a suite are not there."""
    shards = [
        (stored.evidence.when, stored.evidence.suite)
        for stored in case.evidence
        if stored.evidence.suite is not None
        and stored.evidence.suite.shards > 1
        and (stored.evidence.suite.name, stored.evidence.gfx) == (suite, gfx)
    ]
    if not shards:
        return []
    _, newest = max(shards, key=lambda shard: shard[0])
    present = {item.shard for _, item in shards if (item.plan, item.shards) == (newest.plan, newest.shards)}
    missing = tuple(number for number in range(1, newest.shards + 1) if number not in present)
    return [reason("missing-shards", shards=newest.shards, missing=missing)] if missing else []


def _apply_exceptions(case: GateCase, result: RuleResult, *, some: bool) -> RuleResult:
    """Return a rule for which evidence is wanting: bypassed by a named exception, waived, or failed.

    ``some``: there is evidence, of too few, or too old.
    """
    document = case.document
    family, place = case.policy.find_test_place(
        wheel_set.list_families_of_target(document, result.gfx), wheel_set.find_set_platform(document)
    )
    own, reasons, runner = case.policy.families.get(family), list(result.reasons), place.runner
    is_own = own is not None and bool(own.bypass_tests_for_releases)
    if place.bypass_tests_for_releases:
        if case.rules.bypasses == "count" or (case.rules.bypasses == "own" and is_own):
            owner, why = (own.owner or "", own.reason or "") if own is not None and is_own else ("", "")
            exception = reason("exception", family=family, owner=owner, why=why, tested=some)
            return replace(result, outcome="bypassed", reasons=(exception, *reasons))
        reasons.append(reason("exception-refused", family=family))
    if not runner or (place.targets and result.gfx not in place.targets):
        reasons.append(reason("no-runner", gfx=result.gfx))
        runner = ""
    return case.apply_waivers(replace(result, reasons=tuple(reasons), runner=runner))


def judge_speed(case: GateCase, rule: SpeedRule) -> list[RuleResult]:
    """Return what came of the rule about speed, for each target that anything was measured on.

    Where nothing was, nor of an earlier set, that is said once.
    """
    measure = case.make_measure(_find_gpu_rule(case, "smoke"), any_age=True)

    def weigh(measured_case: GateCase, gfx: str) -> tuple[StoredEvidence, ...]:
        return measured_case.scales.weigh("smoke", gfx, measure).passing

    earlier_cases = [
        GateCase(case.policy, case.channel, earlier.document, earlier.evidence, case.now)
        for earlier in _sort_earlier(case)
    ]
    judged = []
    for gfx in case.targets:
        passing = weigh(case, gfx)
        speeds = speed.find_speeds(stored.evidence for stored in passing)
        before = [
            (earlier.document.id, speed.find_speeds(stored.evidence for stored in weigh(earlier, gfx)))
            for earlier in earlier_cases
        ]
        if not speeds and not any(speeds_before for _, speeds_before in before):
            continue
        fast_enough, reasons = speed.compare_speeds(speeds, before, rule.at_least)
        result = RuleResult("speed", "fail", tuple(reasons), gfx, evidence=tuple(item.id for item in passing))
        if fast_enough:
            judged.append((replace(result, outcome="pass"), False))
        elif fast_enough is None:
            judged.append((_apply_exceptions(case, result, some=bool(speeds)), True))
        else:
            judged.append((case.apply_waivers(result), False))
    if not judged:
        return [RuleResult("speed", "pass", (reason("first-measured", machines=(), speeds=0),))]
    return _choose_targets(judged, rule)


def _sort_earlier(case: GateCase) -> list[EarlierSet]:
    """Return the earlier sets of the platform, the newest of the same torch line first, then of others.

    A torch may be slower than a newer one that came before it. A set without torch is compared with those of
    the same projects: it does nothing of what another one does.
    """
    platform, line = wheel_set.find_set_platform(case.document), case.document.torch_line
    newest_first = [
        item
        for item in reversed(case.earlier)
        if wheel_set.find_set_platform(item.document) == platform
        and item.document.main_projects == case.document.main_projects
    ]
    return sorted(newest_first, key=lambda item: item.document.torch_line != line)


# ---- rules about files


def _judge_signers(case: GateCase) -> Iterator[RuleResult]:
    """Yield a failure where evidence must be signed and the policy names nobody who could."""
    if case.rules.signed and not case.policy.signers:
        yield RuleResult("signers", "fail", (reason("no-signers"),))


def _judge_hashes(case: GateCase, file_faults: Sequence[verdict.Reason] | None) -> RuleResult:
    document = case.document
    if (computed_id := document.computed_id) != document.id:
        return RuleResult("hashes", "fail", (reason("other-id", id=computed_id),))
    digest = document.digest
    for stored in case.evidence:
        is_own = stored.evidence.set == document.id and stored.evidence.about and not stored.trouble
        counts = bool(stored.signer) or not case.rules.signed  # else anybody could hold a set by a word
        if is_own and counts and stored.evidence.about != digest:
            other = reason("other-document", evidence=stored.id)
            return RuleResult("hashes", "fail", (other,), evidence=(stored.id,))
    if file_faults:
        return RuleResult("hashes", "fail", tuple(file_faults))
    whole = reason("whole", wheels=len(document.files), locks=len(document.locks))
    return RuleResult("hashes", "pass", (whole,) if file_faults is None else (whole, reason("bytes-read")))


def _judge_completeness(case: GateCase) -> RuleResult:
    document = case.document
    missing = [cell for cell in document.planned if not _has_wheel_for_cell(cell, document)]
    missing += [cell for cell in document.missing if cell not in missing]
    if missing:
        cells = reason("missing-cells", cells=tuple(map(str, missing)), planned=len(document.planned))
        return case.apply_waivers(RuleResult("complete", "fail", (cells,)))
    if not document.planned:
        return case.apply_waivers(RuleResult("complete", "fail", (reason("no-plan"),)))
    return RuleResult("complete", "pass", (reason("complete", planned=len(document.planned)),))


def _has_wheel_for_cell(cell: wheel_set.SetCell, document: wheel_set.SetDocument) -> bool:
    """Tell whether a wheel fills a cell; its device code may be in parts of it."""
    files = [item for item in document.files if document.fits_cell(item, cell)]
    usable = [item for item in files if wheel_set.is_wheel_for(item.name, cell.python)]
    wheels = [file for file in usable if file.project == cell.project]
    parts = [file for file in usable if device_names.find_host_project(file.project) == cell.project]
    targets = {strip_features(item) for file in (*wheels, *parts) for item in file.targets}
    return bool(wheels) and (not cell.target or strip_features(cell.target) in targets)


def _judge_files(case: GateCase, kind: EvidenceKind, rule: FreshRule) -> RuleResult:
    """Judge a rule about files, which no GPU has a part in: each must be covered.

    Variants are left out where the resolver is asked: they are not chosen by version alone.
    """
    wanted = {file.name: file.sha256 for file in case.document.files if kind != "resolver" or not file.label}
    passed = reason("all-passed", wheels=len(wanted)) if wanted else reason("variants-only")
    return _judge_coverage(case, kind, rule, case.scales, wanted, lambda _: passed)


def _judge_coverage(  # noqa: PLR0917 - which files, by which rule, and what is said of it
    case: GateCase,
    kind: EvidenceKind,
    rule: FreshRule,
    scales: weighing.Scales,
    wanted: Mapping[str, str],
    describe_pass: Callable[[weighing.Weighed], verdict.Reason],
    *lacking: verdict.Reason,
) -> RuleResult:
    """Return whether no failure stands and ``wanted`` are covered: the sha256 of files, by name.

    ``lacking`` is why some may not be.
    """
    measure = case.make_measure(rule)
    weighed = scales.weigh(kind, None, measure)
    result = _begin_result(kind, weighed)
    uncovered = tuple(name for name, sha256 in wanted.items() if sha256 not in weighed.covered)
    if weighed.failing:
        return case.apply_waivers(replace(result, reasons=(_state_failure(case, weighed),)))
    if uncovered:
        lack = reason("uncovered", files=uncovered, wheels=len(wanted))
        lacks = (lack, *lacking, *_state_lacks(case, weighed, measure))
        return case.apply_waivers(replace(result, reasons=lacks))
    reasons = (describe_pass(weighed), *_state_overcome(result))
    return replace(result, outcome="pass", reasons=reasons)


def judge_reproduction(
    case: GateCase, rule: ReproducedRule, statements: Mapping[str, set_statements.StoredStatement]
) -> RuleResult:
    """Return whether every wheel was built again with the same bytes, by somebody who did not build it.

    A pass of anybody else than the rule names is none. Who signed the statement of one of the wheels that a
    pass is about, or one in that, built it. A failure counts as any other does, whoever found it.
    """
    own = []
    for item in case.evidence:
        about = [statements[sha256] for sha256 in item.evidence.hashes if sha256 in statements]
        if item.signer and any(item.signer in {made.signer, *made.earlier} for made in about):
            own.append(item)
    others = tuple(
        item
        for item in case.evidence
        if not item.evidence.passed or (item.signer in rule.by and item not in own)
    )
    found = [item for item in case.evidence if item.evidence.kind == "reproduced" and item.evidence.passed]
    lacking = []
    if signers := sorted({item.signer for item in own if item in found}):
        lacking.append(reason("own-build", signers=tuple(signers)))
    elif unlisted := [item for item in found if item.signer not in rule.by]:
        lacking.append(reason("unlisted", passes=len(unlisted), by=rule.by))
    wanted = {
        file.name: file.sha256
        for file in case.document.files
        if not rule.projects
        or (device_names.find_host_project(file.project) or file.project) in rule.projects
    } or dict.fromkeys(rule.projects, "")

    def describe_pass(weighed: weighing.Weighed) -> verdict.Reason:
        signers = tuple(sorted({item.signer for item in weighed.passing}))
        return reason("reproduced", wheels=len(wanted), by=signers)

    scales = weighing.Scales(case.document, others, case.now, True, case.rules.signed)
    return _judge_coverage(case, "reproduced", rule, scales, wanted, describe_pass, *lacking)


# ---- a whole set


def judge_set(
    policy: Policy,
    channel: str,
    document: wheel_set.SetDocument,
    evidence: Sequence[StoredEvidence],
    now: datetime,
    *,
    statements: Mapping[str, set_statements.StoredStatement] = MappingProxyType({}),
    file_faults: Sequence[verdict.Reason] | None = None,
    earlier: Sequence[EarlierSet] = (),
    ageless: bool = False,
) -> Verdict:
    """Return what a channel's rules come to for a set. ``now`` is a moment with its time zone.

    ``statements`` say how wheels were made, by the sha256 of the wheel. ``file_faults`` are the files whose
    bytes are not the document's; None: they were not read. ``earlier`` are the sets that the channel showed
    before this one, in the order in which they came. ``ageless``: of a set that was released evidence of any
    age counts, and its statements were looked at when it was promoted; no result changes them.

    Pure and total. More failures, or fewer passes, never make a better verdict, but where speed is asked
    for: a pass may be a slow one. Waivers that have ended never count.
    """
    now = now.astimezone(timezone.utc)
    if channel not in policy.channels:
        refused = RuleResult("hashes", "fail", (reason("no-channel", channel=channel),))
        return Verdict(document.id, document.family, channel, now, (refused,), policy=policy.digest)
    case = GateCase(policy, channel, document, tuple(evidence), now, tuple(earlier), ageless)
    rules = policy.rules_for(channel, document.family)
    results = [*_judge_signers(case), _judge_hashes(case, file_faults)]
    results.append(_judge_files(case, "audit", rules.audit))
    if rules.complete is not None:
        results.append(_judge_completeness(case))
    provenance = None if ageless else rules.provenance
    if (judged := set_statements.judge_statements(document, provenance, statements)) is not None:
        # nobody can waive a statement that is wrong
        may_waive = judged.outcome == "fail" and "bad-statement" not in judged.codes
        results.append(case.apply_waivers(judged) if may_waive else judged)
    if rules.reproduced is not None:
        results.append(judge_reproduction(case, rules.reproduced, statements))
    if rules.resolver is not None:
        results.append(_judge_files(case, "resolver", rules.resolver))
    if rules.smoke is not None:
        results += judge_on_gpus(case, "smoke", rules.smoke)
    else:
        results += _judge_failures(case, "smoke", _find_gpu_rule(case, "smoke"), {""})
    if rules.speed is not None:
        results += judge_speed(case, rules.speed)
    if rules.tests is not None:
        results += judge_torch_tests(case, rules.tests)
    else:
        results += _judge_failures(case, "tests", _find_gpu_rule(case, "tests"), case.scales.list_suites())
    return Verdict(
        set=document.id,
        family=document.family,
        channel=channel,
        when=now,
        rules=tuple(results),
        targets=tuple(find_target_state(case, gfx) for gfx in case.targets),
        ignored=tuple(case.scales.ignored.items()),
        notes=tuple(case.list_ended_waivers(results)),
        policy=policy.digest,
        signed=case.rules.signed,
    )


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
    rules = policy.rules_for(channel, document.family)
    asks_builders = rules.provenance is not None or rules.reproduced is not None
    statements = set_statements.read_set_statements(
        store, paths, document, policy.signer_keys if asks_builders else {}, env
    )
    faults = (digests or stored_digests.StoredDigests()).list_wheel_faults(store, paths, document)
    for lock in document.locks:
        name = f"the lock {lock.digest[:12]}"
        try:
            digest = store.digest(paths.lock_file(lock.digest))
        except NotInStoreError:
            faults.append(reason("gone", file=name))
            continue
        if digest != lock.digest:
            faults.append(reason("other-bytes", file=name, sha256=digest))
    earlier = list[EarlierSet]()
    if rules.speed is not None:
        shown = channels.read_channel(store, paths, channel).channel
        entries = shown.sets[: shown.shown.index(document.id)] if document.id in shown.shown else shown.sets
        documents = channels.read_shown_sets(store, paths, entries)
        earlier = [
            EarlierSet(item, tuple(read_evidence(store, item, signers=policy.signers, env=env)))
            for item in documents
        ]
    judged = judge_set(
        policy,
        channel,
        document,
        evidence,
        now,
        statements=statements,
        file_faults=faults,
        earlier=earlier,
    )
    return judged, evidence


def judge_channel(refusals: Sequence[errors.RocmWheelsError]) -> RuleResult:
    """Return what a promotion to a channel would refuse of the set, as a rule; nobody can waive it."""
    reasons = [reason("refused", fault=refusal.message, tip=refusal.tip or "") for refusal in refusals]
    return RuleResult("channel", "fail" if reasons else "pass", tuple(reasons) or (reason("accepted"),))


def require_own_policy(policy: Policy, channel: channels.Channel) -> None:
    """Raise UsageError where the sets of a channel came by another policy, and none is named now."""
    if not all(map(policy.judges_after, channel.policies)):
        raise errors.UsageError(
            f"the sets of {channel.channel} of {channel.family} came by another policy than the one that"
            " ships with this tool",
            tip="name it, or the one that is to judge them from now on: --policy FILE",
        )


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

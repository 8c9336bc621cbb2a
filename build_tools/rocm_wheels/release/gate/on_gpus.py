"""The rules about GPUs: who tested a set on what, who is excused, and what is known of each target."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rocm_wheels.release.evidence import EvidenceKind
from rocm_wheels.release.gate.case import (
    GateCase,
    format_age,
    list_overcome_ids,
    list_deciding_ids,
    describe_staleness,
    describe_failures,
    describe_past_failures,
)
from rocm_wheels.release.gate.history import WeighedEvidence, EvidenceMeasure, weigh_evidence
from rocm_wheels.release.gate.needed import (
    InstalledWheels,
    list_families_of_target,
    find_set_platform,
    list_set_targets,
    list_installed_wheels,
)
from rocm_wheels.release.gate.policy import GpuRule
from rocm_wheels.release.gate.verdict import RuleResult, TargetState

_ANY_EVIDENCE_AGE = timedelta(days=36500)
_GPU_EVIDENCE_KINDS: tuple[EvidenceKind, ...] = ("smoke", "tests")
_TEST_COMMANDS = {
    "smoke": (
        " (build_tools/run_pytorch_smoke_tests.py --amdgpu-family GFX --require-gpu --wheels WHEELS)",
        "smoke-results/results.json",
    ),
    "tests": (
        " (build_tools/run_pytorch_tests.py --amdgpu-family GFX --wheels WHEELS)",
        "torch-test-results",
    ),
}
_TEST_NAMES = {"smoke": "the smoke tests", "tests": "torch's own tests"}


def judge_on_gpus(case: GateCase, kind: EvidenceKind, rule: GpuRule) -> list[RuleResult]:
    """Return what came of a rule, for each target; where one target is enough, what that one is.

    A failure counts on every target, also where another one passed.
    """
    targets = list_set_targets(case.document)
    if not targets:
        why = "neither the set nor its family says which GPU targets it is for"
        return [case.apply_waivers(RuleResult(kind, "fail", why, tip="stage the wheels of a GPU family"))]
    judged = [(_judge_target(case, kind, rule, gfx)) for gfx in targets]
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
    """
    by, pythons, days, failed = [], set[str](), [], False
    for kind in _GPU_EVIDENCE_KINDS:
        rule = _find_gpu_rule(case, kind)
        measure = case.make_measure(_ANY_EVIDENCE_AGE, rule.at_least, selections=rule.selections == "count")
        weighed = weigh_evidence(kind, gfx, case.evidence, measure)
        failed = failed or bool(weighed.failing)
        if covered_groups := _find_covered_groups(
            list_installed_wheels(case.document, gfx, rule.projects), weighed
        ):
            by.append({"smoke": "smoke tests", "tests": "full tests"}[kind])
            days.append(max(item.evidence.when for item in weighed.passing))
            pythons |= {item.python for item in covered_groups}
    if failed:
        return TargetState(gfx, "failed")
    if not by:
        return TargetState(gfx, "untested")
    in_order = tuple(
        item.python for item in list_installed_wheels(case.document, gfx) if item.python in pythons
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
    return GpuRule(fresh=_ANY_EVIDENCE_AGE, projects=torch)


def _find_covered_groups(
    groups: tuple[InstalledWheels, ...], weighed: WeighedEvidence
) -> list[InstalledWheels]:
    return [group for group in groups if all(file.sha256 in weighed.covered for file in group.files)]


def _judge_target(case: GateCase, kind: EvidenceKind, rule: GpuRule, gfx: str) -> tuple[RuleResult, bool]:
    """Return what came of a rule on a target, and whether that is for want of evidence alone."""
    measure = case.make_measure(rule.fresh, rule.at_least, selections=rule.selections == "count")
    weighed = weigh_evidence(kind, gfx, case.evidence, measure)
    result = RuleResult(kind, "fail", "", gfx, list_deciding_ids(weighed), list_overcome_ids(weighed))
    if weighed.failing:
        times = measure.passes_after_failure
        passes = "a pass" if times == 1 else f"{times} passes in a row"
        newest = weighed.failing[0].evidence
        where = f" on machines of the kind {newest.host.kind}" if newest.host.kind != "any" else ""
        since = f"found after {max(newest.when, newest.added):%Y-%m-%d %H:%M} UTC"
        show = f"show with {passes}{where}, {since}, that it was not the wheels"
        tip = f"mend it, which makes another set; or {show}"
        return case.apply_waivers(replace(result, why=describe_failures(weighed, gfx), tip=tip)), False
    groups = list_installed_wheels(case.document, gfx, rule.projects)
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
    some = bool(weighed.covered or weighed.stale or weighed.few)
    return _apply_exceptions(case, replace(result, why=why), some=some), True


def _apply_exceptions(case: GateCase, result: RuleResult, *, some: bool) -> RuleResult:
    """Return a rule for which evidence is wanting: bypassed by a named exception, waived, or failed.

    ``some``: there is evidence, of too few, or too old.
    """
    document, platform = case.document, find_set_platform(case.document)
    family, test_place = case.policy.find_test_place(list_families_of_target(document, result.gfx), platform)
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
    add = f"rocm-wheels evidence add STORE --set {document.id} --from {results}".replace("GFX", result.gfx)
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
    weighed: WeighedEvidence, covered_groups: list[InstalledWheels], measure: EvidenceMeasure
) -> str:
    newest = weighed.passing[0].evidence
    pythons = ", ".join(group.python for group in covered_groups if group.python)
    spoken = f" with Python {pythons}" if pythons else ""
    age = format_age(measure.now - newest.when)
    return f"passed{spoken} ({newest.counts}; {age} ago on {newest.host.short}, by {newest.by})"


def _describe_missing_passes(
    kind: EvidenceKind, groups: tuple[InstalledWheels, ...], weighed: WeighedEvidence
) -> str:
    uncovered = [
        (group, file) for group in groups for file in group.files if file.sha256 not in weighed.covered
    ]
    if not weighed.covered:
        return f"no evidence that {_TEST_NAMES[kind]} pass"
    pythons = ", ".join(dict.fromkeys(group.python for group, _ in uncovered if group.python))
    spoken = f" with Python {pythons}" if pythons else ""
    files = {file.name for _, file in uncovered}
    others_note = f" and {len(files) - 1} others" if len(files) > 1 else ""
    return f"{_TEST_NAMES[kind]} passed, but not{spoken}: {uncovered[0][1].name}{others_note}"

"""The rules about GPUs: who tested a set on what, who is excused, and what is known of each target."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rocm_wheels.release.evidence import Kind
from rocm_wheels.release.gate.case import (
    Case,
    in_words,
    made_good,
    rests_on,
    said_of_age,
    said_of_failures,
    said_of_past,
)
from rocm_wheels.release.gate.history import Come, Measure, come_to
from rocm_wheels.release.gate.needed import Together, families_for, platform_of, targets_of, together
from rocm_wheels.release.gate.policy import OnGpus
from rocm_wheels.release.gate.verdict import RuleResult, TargetState

_ANY_AGE = timedelta(days=36500)
_ON_GPUS: tuple[Kind, ...] = ("smoke", "tests")
_COMMANDS = {
    "smoke": (
        " (build_tools/run_pytorch_smoke_tests.py --amdgpu-family GFX --require-gpu --wheels WHEELS)",
        "smoke-results/results.json",
    ),
    "tests": (
        " (build_tools/run_pytorch_tests.py --amdgpu-family GFX --wheels WHEELS)",
        "torch-test-results",
    ),
}
_WHAT = {"smoke": "the smoke tests", "tests": "torch's own tests"}


def judge_on_gpus(case: Case, kind: Kind, rule: OnGpus) -> list[RuleResult]:
    """Return what came of a rule, for each target; where one target is enough, what that one is.

    A failure counts on every target, also where another one passed.
    """
    targets = targets_of(case.document)
    if not targets:
        why = "neither the set nor its family says which GPU targets it is for"
        return [case.settle(RuleResult(kind, "fail", why, tip="stage the wheels of a GPU family"))]
    judged = [(_on_target(case, kind, rule, gfx)) for gfx in targets]
    results = [result for result, _ in judged]
    if rule.targets == "every":
        return results
    kept = [result for result, absent in judged if not absent]
    if any(one.outcome == "pass" for one in kept) or len(kept) == len(results):
        return kept
    return [*kept, *_on_none([result for result, absent in judged if absent])]


def state_of(case: Case, gfx: str) -> TargetState:
    """Return what is known of a target by all evidence that counts, however old.

    With a Python it is tested when all that is installed together there was; of torch's own tests, torch.
    """
    by, pythons, days, failed = [], set[str](), [], False
    for kind in _ON_GPUS:
        rule = _asked(case, kind)
        measure = case.measure(_ANY_AGE, rule.at_least, selections=rule.selections == "count")
        come = come_to(kind, gfx, case.evidence, measure)
        failed = failed or bool(come.failing)
        if whole := _whole(together(case.document, gfx, rule.projects), come):
            by.append({"smoke": "smoke tests", "tests": "full tests"}[kind])
            days.append(max(one.evidence.when for one in come.passing))
            pythons |= {one.python for one in whole}
    if failed:
        return TargetState(gfx, "failed")
    if not by:
        return TargetState(gfx, "untested")
    in_order = tuple(one.python for one in together(case.document, gfx) if one.python in pythons)
    return TargetState(gfx, "tested", tuple(by), in_order, f"{max(days):%Y-%m-%d}")


def _asked(case: Case, kind: Kind) -> OnGpus:
    """Return what a run must be to be one: as the channel has it, else as another one does."""
    for channel in (case.channel, *case.policy.channels):
        rules = case.policy.rules(channel, case.document.family)
        rule = rules.smoke if kind == "smoke" else rules.tests
        if rule is not None:
            return rule
    torch = ("torch",) if kind == "tests" and "torch" in case.document.projects else ()
    return OnGpus(fresh=_ANY_AGE, projects=torch)


def _whole(groups: tuple[Together, ...], come: Come) -> list[Together]:
    return [one for one in groups if all(file.sha256 in come.covered for file in one.files)]


def _on_target(case: Case, kind: Kind, rule: OnGpus, gfx: str) -> tuple[RuleResult, bool]:
    """Return what came of a rule on a target, and whether that is for want of evidence alone."""
    measure = case.measure(rule.fresh, rule.at_least, selections=rule.selections == "count")
    come = come_to(kind, gfx, case.evidence, measure)
    result = RuleResult(kind, "fail", "", gfx, rests_on(come), made_good(come))
    if come.failing:
        times = measure.passes_after_failure
        passes = "a pass" if times == 1 else f"{times} passes in a row"
        newest = come.failing[0].evidence
        where = f" on machines of the kind {newest.host.kind}" if newest.host.kind != "any" else ""
        since = f"found after {max(newest.when, newest.added):%Y-%m-%d %H:%M} UTC"
        show = f"show with {passes}{where}, {since}, that it was not the wheels"
        tip = f"mend it, which makes another set; or {show}"
        return case.settle(replace(result, why=said_of_failures(come, gfx), tip=tip)), False
    groups = together(case.document, gfx, rule.projects)
    whole = _whole(groups, come)
    enough = whole if len(whole) == len(groups) else []
    if rule.pythons == "one":  # one of which something is missing stands for no other
        enough = enough or [one for one in whole if one.full]
    if enough:
        why = f"{_passed(come, whole, measure)}{said_of_past(come)}"
        return replace(result, outcome="pass", why=why), False
    if not groups:
        why = f"the set has no wheels of {', '.join(rule.projects) or 'any project'} with code for {gfx}"
        tip = "build them, and stage the whole set; or waive the rule there"
        return case.settle(replace(result, why=why, tip=tip)), True
    why = f"{_lacking(kind, groups, come)}{said_of_age(come, measure)}"
    some = bool(come.covered or come.stale or come.few)
    return _excused(case, replace(result, why=why), some=some), True


def _excused(case: Case, result: RuleResult, *, some: bool) -> RuleResult:
    """Return a rule for which evidence is wanting: bypassed by a named exception, waived, or failed.

    ``some``: there is evidence, of too few, or too old.
    """
    document, platform = case.document, platform_of(case.document)
    family, place = case.policy.tested(families_for(document, result.gfx), platform)
    who, bypasses = case.policy.exception(family), case.rules.bypasses
    if place.bypass_tests_for_releases and (bypasses == "count" or (bypasses == "own" and who)):
        short = result.why.partition("; ")[2] or result.why
        state = f"not tested enough ({short})" if some else "untested"
        why = f"{state}: {family} is a named exception ({who or 'the data of families names it'})"
        return replace(result, outcome="bypassed", why=why)
    why, where = result.why, place.runner
    if place.bypass_tests_for_releases:
        why = f"{why}; that {family} is a named exception does not count for {case.channel}"
    if not where or (place.targets and result.gfx not in place.targets):
        why, where = (
            f"{why}; no runner has a {result.gfx}, which excuses nothing",
            f"a machine with a {result.gfx}",
        )
    run, results = _COMMANDS[result.rule]
    add = f"rocm-wheels evidence add STORE --set {document.id} --from {results}".replace("GFX", result.gfx)
    tip = f"run {_WHAT[result.rule]} on {where}{run.replace('GFX', result.gfx)}, then: {add}"
    return case.settle(replace(result, why=why, tip=tip))


def _on_none(absent: list[RuleResult]) -> list[RuleResult]:
    """Return what it comes to that one target would be enough, and there is none.

    A target that is excused excuses no other: the rest must be tested, or one of them.
    """
    held = [one for one in absent if one.outcome == "fail"]
    if len(held) < 2:
        return held or absent
    why = f"one of {', '.join(one.gfx for one in held)} is enough, and there is none: {held[0].why}"
    return [replace(held[0], gfx="", why=why)]


def _passed(come: Come, whole: list[Together], measure: Measure) -> str:
    newest = come.passing[0].evidence
    pythons = ", ".join(one.python for one in whole if one.python)
    spoken = f" with Python {pythons}" if pythons else ""
    age = in_words(measure.now - newest.when)
    return f"passed{spoken} ({newest.counts}; {age} ago on {newest.host.short}, by {newest.by})"


def _lacking(kind: Kind, groups: tuple[Together, ...], come: Come) -> str:
    lacking = [(one, file) for one in groups for file in one.files if file.sha256 not in come.covered]
    if not come.covered:
        return f"no evidence that {_WHAT[kind]} pass"
    pythons = ", ".join(dict.fromkeys(one.python for one, _ in lacking if one.python))
    spoken = f" with Python {pythons}" if pythons else ""
    files = {file.name for _, file in lacking}
    more = f" and {len(files) - 1} others" if len(files) > 1 else ""
    return f"{_WHAT[kind]} passed, but not{spoken}: {lacking[0][1].name}{more}"

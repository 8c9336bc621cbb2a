"""What holds for every verdict, whatever the evidence and the policy."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from documents import NOW, SET, a_set, policy, said, wheel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocm_wheels.release import gate, next_step, verdict_text
from rocm_wheels.release.evidence import store
from rocm_wheels.release.evidence.evidence import OutcomeCounts, TestedSuite
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.verdict import Verdict

pytestmark = pytest.mark.contract

OTHER = a_set(wheel("torch"))
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def a_policy(number: int) -> Policy:
    """A policy of any kind, with waivers that are over, last until today, or longer."""
    of = random.Random(number)
    waivers = [
        f"{{rule: {rule}, channels: [nightly], {whom}, owner: b, reason: r, expires: {day}}}"
        for rule in ("smoke", "tests", "resolver")
        for whom in (("gfx: gfx1030",) if rule != "resolver" else ()) + ("family: gfx103X-all",)
        for day in ("2026-11-20", "2026-11-21", "2026-12-01")
        if of.random() < 0.1
    ]
    exception = "families: {gfx1031: {bypass_tests_for_releases: true, owner: a, reason: r}}"
    every_or_one = ("every", "one")
    rule = f"{{fresh: 7d, targets: {of.choice(every_or_one)}, pythons: {of.choice(every_or_one)}}}"
    suites = f"suites: {of.choice(['[default]', '[default, full]'])}, flaky: {of.randint(0, 2)}"
    tests = f", tests: {{{rule[1:-1]}, {suites}, at_least: {of.choice([1, 2])}}}"
    more = of.choice(["", tests, tests, ", resolver: {fresh: 7d}"])
    rules = f"{{audit: {{fresh: 7d}}, smoke: {rule}{more}}}"
    return policy(
        f"channels: {{nightly: {{signed: false, passes_after_failure: {of.randint(1, 3)},"
        f" rules: {rules}}}}}\n"
        f"waivers: [{', '.join(waivers)}]\n{of.choice(['', exception])}"
    )


def any_evidence(number: int) -> store.StoredEvidence:
    """Evidence of any kind and age, of this set or another, whose clock may be wrong."""
    of = random.Random(number)
    document = of.choice([SET, SET, SET, OTHER])
    when: dict[str, Any] = {"hours": of.choice([-2, 0, 0.05, 1, 2, 3, 30, 24 * 8])}
    if of.random() < 0.3:
        when["added"] = NOW + timedelta(hours=of.choice([-4, -1, 0, 1]))
    kind = of.choice(["audit", "smoke", "smoke", "tests", "tests", "resolver"])
    outcome = of.choice(["pass", "pass", "pass", "fail", "crash", "timeout", "missing"])
    more: dict[str, Any] = {}
    if kind == "tests":  # of a suite, or of a shard of one, with flaky tests
        shards = of.choice([1, 2, 2])
        plan = {"shards": shards, "shard": of.randint(1, shards), "plan": of.choice("pq")}
        more["suite"] = TestedSuite(name=of.choice(["default", "full"]), **(plan if shards > 1 else {}))
        count = {"fail": "failed", "crash": "crashed", "timeout": "timeout"}.get(outcome, "passed")
        more["counts"] = OutcomeCounts(flaky=of.randint(0, 3), **{count: of.randint(1, 3)})
    return said(
        kind,
        outcome,
        gfx=of.choice([None, "gfx1030", "gfx1031", "gfx942"]),
        python=of.choice(["", "", "311", "312"]) if document is SET else "",
        document=document,
        machine=of.choice(["any", "other"]),
        by=of.choice(["ann", "bob"]),
        trouble=of.choice(["", "", "", "its signature is not of what it says"]),
        **more,
        **when,
    )


POLICIES = [a_policy(number) for number in range(40)]
POOL = list({one.id: one for one in map(any_evidence, range(400))}.values())
BAD = [number for number, one in enumerate(POOL) if not one.evidence.passed]
# verified, resolved and tested, so that many verdicts pass
GREEN = [said("audit"), said("resolver")] + [
    said(kind, gfx=gfx, hours=3) for kind, gfx in product(("smoke", "tests"), ("gfx1030", "gfx1031"))
]
GREEN += [  # the suite full in two shards
    said("tests", gfx=gfx, hours=3, suite=TestedSuite(name="full", shard=number, shards=2, plan="p"))
    for gfx, number in product(("gfx1030", "gfx1031"), (1, 2))
]
RULES = st.integers(0, len(POLICIES) - 1)
SOME = st.lists(st.integers(0, len(POOL) - 1), max_size=8, unique=True)


def verdict(rules: Policy, known: list[store.StoredEvidence], now: datetime = NOW) -> Verdict:
    return gate.judge_set(rules, "nightly", SET, known, now)


def evidence(some: list[int], *, green: bool) -> list[store.StoredEvidence]:
    """Return evidence of which no two have one id, as in a store."""
    chosen = [*(GREEN if green else []), *(POOL[number] for number in some)]
    return list({one.id: one for one in reversed(chosen)}.values())[::-1]


@QUICK
@given(RULES, SOME, st.booleans(), st.sampled_from(BAD))
def test_one_more_failure_never_lets_a_set_through(rules: int, some: list[int], green: bool, bad: int):
    known = evidence(some, green=green)
    if not verdict(POLICIES[rules], known).passed:
        assert not verdict(POLICIES[rules], [*known, POOL[bad]]).passed


@QUICK
@given(RULES, SOME, st.booleans())
def test_one_pass_less_never_lets_a_set_through(rules: int, some: list[int], green: bool):
    known = evidence(some, green=green)
    if not verdict(POLICIES[rules], known).passed:
        for one in known:
            if one.evidence.passed:
                assert not verdict(POLICIES[rules], [other for other in known if other is not one]).passed


@QUICK
@given(RULES, SOME, st.booleans())
def test_waivers_that_have_ended_never_count(rules: int, some: list[int], green: bool):
    known, own = evidence(some, green=green), POLICIES[rules]
    alive = tuple(one for one in own.waivers if one.expires >= NOW.date())
    without = own.model_copy(update={"waivers": alive})
    assert verdict(own, known).rules == verdict(without, known).rules
    none = own.model_copy(update={"waivers": ()})
    much_later = NOW + timedelta(days=400)
    assert verdict(own, known, much_later).rules == verdict(none, known, much_later).rules


@QUICK
@given(RULES, SOME, st.booleans())
def test_a_verdict_is_whole_and_the_order_of_evidence_does_not_matter(
    rules: int, some: list[int], green: bool
):
    known = evidence(some, green=green)
    found = verdict(POLICIES[rules], known)
    assert {one.rule for one in found.rules} >= {"hashes", "audit", "smoke"}
    assert all(one.reasons and verdict_text.describe_rule(one) for one in found.rules)
    assert all(next_step.find_step(found, one) for one in found.failures)
    assert all(map(verdict_text.describe_reason, (*found.notes, *dict(found.ignored).values())))
    ids = {one.id for one in known}
    assert all({*one.evidence, *one.overcome} <= ids for one in found.rules)
    excused = {one.rule for one in found.rules if one.outcome in {"waived", "bypassed"}}
    assert not excused & {"hashes", "audit"}
    assert [line.split(":")[0] for line in verdict_text.list_shown_lines(found)[:2]] == [
        "gfx1030",
        "gfx1031",
    ]
    assert verdict(POLICIES[rules], known[::-1]).rules == found.rules
    assert json.loads(json.dumps(found.as_json()))["passed"] == found.passed


def test_the_examples_are_of_both_kinds():
    passed = [verdict(rules, GREEN).passed for rules in POLICIES]
    held = [verdict(rules, POOL[number : number + 8]).passed for number, rules in enumerate(POLICIES)]
    assert any(passed)
    assert not all(held)


@pytest.mark.parametrize("year", [1, 9999])
def test_there_is_an_answer_at_any_time(year: int):
    rules = policy("channels: {nightly: {signed: false, rules: {audit: {fresh: 9999w}, smoke: {fresh: 1h}}}}")
    assert not verdict(rules, GREEN, NOW.replace(year=year)).passed

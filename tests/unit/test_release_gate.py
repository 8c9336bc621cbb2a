"""The gate: each rule, by evidence that is there, is wanting, is old, is contradicted, is excused."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from documents import EVERY, NOW, ONE, SET, a_set, judged, outcomes, said, sha, wheel

from rocm_wheels.models import ci
from rocm_wheels.release import next_step, policy, verdict, verdict_text
from rocm_wheels.release.evidence import store
from rocm_wheels.release.verdict import reason

pytestmark = pytest.mark.contract

VERIFIED = said("audit")
GREEN = (VERIFIED, said())
WAIVER = "{rule: smoke, channels: [nightly], WHOM, owner: bob, reason: known, expires: DAY}"


def held_by(text: str, *known: store.StoredEvidence, **more: Any) -> verdict.RuleResult:
    """The one rule that fails."""
    found = judged(text, *known, **more)
    assert not found.passed
    (one,) = found.failures
    assert next_step.find_next_step(found) == next_step.find_step(found, one)
    return one


def rule_of(found: verdict.Verdict, title: str) -> verdict.RuleResult:
    (one,) = (one for one in found.rules if one.title == title)
    return one


def test_what_has_all_its_evidence_may_go():
    verdict = judged(ONE, *GREEN)
    assert verdict.passed
    assert outcomes(verdict) == {"hashes": "pass", "audit": "pass", "smoke on gfx1030": "pass"}
    assert verdict.rules[1].evidence == (VERIFIED.id,)


@pytest.mark.parametrize(
    ("known", "codes", "facts"),
    [
        ((), ("uncovered",), {"files": tuple(file.name for file in SET.files), "wheels": 4}),
        (
            (said("audit", python="311"),),
            ("uncovered",),
            {"files": tuple(file.name for file in SET.files if "-cp312-" in file.name), "wheels": 4},
        ),
        ((said("audit", "fail", python="311", hours=2), VERIFIED), ("all-passed", "overcome"), {"wheels": 4}),
        (
            (VERIFIED, said("audit", "fail", python="311", hours=0, failed=("r: x",))),
            ("failed",),
            {"result": "fail", "counts": {"failed": 3}, "when": NOW, "host": "runner-1", "tests": ("r: x",)},
        ),
        ((said("audit", hours=15 * 24),), ("too-old", "uncovered"), {"age": 15 * 86400, "limit": 14 * 86400}),
        ((said("audit", hours=-1),), ("uncovered",), {"wheels": 4}),
        ((said("audit", trouble="its signature is not of what it says"),), ("uncovered",), {"wheels": 4}),
    ],
)
def test_audit_covers_every_wheel_and_the_later_result_holds(
    known: tuple[store.StoredEvidence, ...], codes: tuple[verdict.ReasonCode, ...], facts: dict[str, Any]
):
    verdict_ = judged(ONE, said(), *known)
    found = rule_of(verdict_, "audit")
    assert set(found.codes) == set(codes)
    assert facts.items() <= found.facts_of(codes[0]).items()
    assert (found.outcome == "pass") == (codes[0] == "all-passed")
    if found.outcome == "fail":
        step = next_step.find_step(verdict_, found)
        assert step.endswith(f"rocm-wheels set check STORE --set {SET.id}")
        assert step.startswith("mend it, which makes another set") == ("failed" in codes)


BAD = "failed: fail"
SMOKE = {
    "none": ([], "no-pass"),
    "another target": ([said(gfx="gfx1031")], ""),
    "a target that is not its own": ([said(gfx="gfx942")], "no-pass"),
    "too old": ([said(hours=24 * 8)], "too-old"),
    "from the future": ([said(hours=-2)], "no-pass"),
    "clocks that differ a little": ([said(hours=-0.05)], ""),
    "of another set": ([said(document=a_set(wheel("torch")))], "no-pass"),
    "half of a Python": ([said(hashes=(SET.files[0].sha256,))], "partial-pass: 3.11 3.12"),
    "with a wheel from elsewhere": ([said(hashes=tuple(sorted({*SET.hashes, sha("x")})))], "no-pass"),
    "one Python is enough": ([said(python="312")], ""),
    "failed": ([said(outcome="fail")], BAD),
    "crashed": ([said(outcome="crash")], "failed: crash"),
    "hung": ([said(outcome="timeout")], "failed: timeout"),
    "no results": ([said(outcome="missing")], "failed: missing"),
    "failed after it passed": ([said(hours=3), said(outcome="fail", hours=2)], BAD),
    "passed after it failed": ([said(hours=2), said(outcome="fail", hours=3)], ""),
    "at the same moment": ([said(), said(outcome="fail")], BAD),
    "passed on another machine": (
        [said(hours=2, machine="a"), said(outcome="fail", hours=3, machine="b")],
        BAD,
    ),
    "failed on another target": ([said(), said(outcome="fail", gfx="gfx1031")], BAD),
    "a Python failed": ([said(python="312"), said(outcome="fail", python="311")], BAD),
    "failed before there was a GPU": (
        [said(hours=3), said(outcome="crash", gfx=None, hours=2)],
        "failed: crash before a GPU",
    ),
    "and passed on any since": (
        [said(outcome="crash", gfx=None, hours=3), said(hours=2), said(gfx="gfx1031", hours=2)],
        "",
    ),
    "a failure is one, whatever is wrong with it": (
        [said(), said(outcome="fail", hours=0.5, trouble="its signature is not of what it says")],
        BAD,
    ),
    "a failure with a clock that is behind": (
        [said(hours=3), said(outcome="fail", hours=9999, added=NOW)],
        BAD,
    ),
    "a failure with a clock that is ahead": ([said(), said(outcome="fail", hours=-99)], BAD),
}


@pytest.mark.parametrize("case", SMOKE)
def test_smoke_on_one_target_with_one_python(case: str):
    known, expected = SMOKE[case]
    found = judged(ONE, VERIFIED, *known)
    assert found.passed == (not expected)
    reasons = []
    for one in (item for rule in found.failures for item in rule.reasons):
        more = {
            "failed": lambda facts: f": {facts['result']}{' before a GPU' if facts['before_gpu'] else ''}",
            "partial-pass": lambda facts: f": {' '.join(facts['pythons'])}",
        }.get(one.code, lambda _: "")(one.facts)
        reasons.append(f"{one.code}{more}")
    assert not expected or expected in reasons


def test_where_every_target_and_python_is_needed_one_is_not_enough():
    both = [said(gfx=gfx) for gfx in ("gfx1030", "gfx1031")]
    assert judged(EVERY, VERIFIED, *both).passed
    lacking = held_by(EVERY, VERIFIED, both[0])
    assert (lacking.title, lacking.codes[0]) == ("smoke on gfx1031", "no-pass")
    half = [said(gfx="gfx1030", python="312"), both[1]]
    facts = held_by(EVERY, VERIFIED, *half).facts_of("partial-pass")
    assert facts["pythons"] == ("3.11",) and facts["files"][0].startswith("torch-2.9.1+rocm7.1.0-cp311")


def test_a_failure_is_made_good_by_passes_in_a_row_and_shown_for_ever():
    others = (VERIFIED, said(gfx="gfx1031"))
    bad, first, second = said(outcome="fail", hours=5), said(hours=4), said(hours=3)
    failing = held_by(EVERY, *others, bad, first)
    assert failing.title == "smoke on gfx1030" and failing.evidence == (bad.id,)
    assert (
        failing.facts_of("failed")["passes"] == 2 and failing.facts_of("failed")["since"] == bad.evidence.when
    )
    handed_in_twice = said(hours=4, by="bob")
    assert not judged(EVERY, *others, bad, first, handed_in_twice).passed
    between = said(outcome="timeout", hours=3.5)
    assert not judged(EVERY, *others, bad, first, between, second).passed
    found = judged(EVERY, *others, bad, first, second)
    assert found.passed
    smoke = rule_of(found, "smoke on gfx1030")
    assert smoke.overcome == (bad.id,)
    assert smoke.facts_of("overcome") == {"failures": 1}


def test_no_runner_blocks_and_the_next_step_names_the_machine():
    text = ONE.replace("targets: one", "targets: every")
    found = judged(text, VERIFIED)
    there, none = rule_of(found, "smoke on gfx1030"), rule_of(found, "smoke on gfx1031")
    assert there.runner == "linux-gfx1030-gpu-rocm" and "no-runner" not in there.codes
    assert next_step.find_step(found, there) == (
        f"on linux-gfx1030-gpu-rocm: rocm-wheels test smoke --store STORE --set {SET.id} --family gfx1030"
        f" --output-dir smoke; then: rocm-wheels set evidence add STORE --set {SET.id}"
        " --from smoke/results.json"
    )
    assert (none.outcome, there.outcome) == ("fail", "fail")
    assert none.facts_of("no-runner") == {"gfx": "gfx1031"} and none.runner == ""


def test_a_named_exception_excuses_want_of_evidence_and_no_failure():
    other = a_set(family="gfx120X-all", *[wheel("torch", targets=("gfx1200",))])  # noqa: B026
    fine = said("audit", document=other)
    verdict = judged(ONE, fine, document=other)
    assert verdict.passed
    assert outcomes(verdict)["smoke on gfx1200"] == "bypassed"
    assert verdict.state == "untested"
    target, named = verdict_text.list_shown_lines(verdict)
    assert target == "gfx1200: untested"
    assert named.startswith("smoke on gfx1200: untested: gfx120X-all is a named exception")
    facts = rule_of(verdict, "smoke on gfx1200").facts_of("exception")
    assert facts == {"family": "gfx120X-all", "owner": "", "why": "", "tested": False}
    failed = said(outcome="fail", gfx="gfx1200", document=other)
    assert not judged(ONE, fine, failed, document=other).passed
    refused = ONE.replace("nightly: {", "nightly: {bypasses: refused, ")
    assert not judged(refused, fine, document=other).passed
    taken_back = ONE + "\nfamilies: {gfx120X-all: {bypass_tests_for_releases: false}}"
    assert not judged(taken_back, fine, document=other).passed


def test_an_organisation_names_its_own_exceptions():
    own = "\nfamilies: {gfx103X-all: {bypass_tests_for_releases: true, owner: eve, reason: no card}}"
    verdict = judged(ONE + own, VERIFIED)
    assert outcomes(verdict)["smoke on gfx1030"] == "bypassed"
    facts = verdict.rules[-1].facts_of("exception")
    assert facts == {"family": "gfx103X-all", "owner": "eve", "why": "no card", "tested": False}
    one_target = own.replace("gfx103X-all", "gfx1031")
    held = held_by(ONE + one_target, VERIFIED)  # it excuses no other
    assert (held.title, held.codes[0]) == ("smoke on gfx1030", "no-pass")
    every = ONE.replace("targets: one", "targets: every")
    assert outcomes(judged(every + one_target, *GREEN))["smoke on gfx1031"] == "bypassed"


@pytest.mark.parametrize(
    ("whom", "day", "known", "passes"),
    [
        ("family: gfx103X-all", "2026-11-21", [], True),
        ("family: gfx103X-all", "2026-11-20", [], False),
        ("gfx: gfx942", "2026-12-01", [], False),
        ("gfx: gfx1030", "2026-12-01", [], False),  # it excuses no other
        ("gfx: gfx1030", "2026-12-01", [said(outcome="fail")], False),
        ("gfx: gfx1030", "2026-12-01", [said(outcome="fail"), said(gfx="gfx1031")], True),
    ],
)
def test_waivers_are_of_somebody_for_something_until_a_day(
    whom: str, day: str, known: list[store.StoredEvidence], passes: bool
):
    text = f"{ONE}\nwaivers: [{WAIVER.replace('WHOM', whom).replace('DAY', day)}]"
    verdict = judged(text, VERIFIED, *known)
    assert verdict.passed == passes, verdict
    if passes:
        waived = next(one for one in verdict.rules if one.outcome == "waived")
        assert waived.reasons[0] == reason("waived", owner="bob", until=day, why="known")
        assert len(waived.reasons) > 1  # and what it is without that
        assert any("bob answers for it" in line for line in verdict_text.list_shown_lines(verdict))
    elif day < "2026-11-21":
        assert ("waiver-ended", "bob", "2026-11-20") in [
            (note.code, note.facts["owner"], note.facts["until"]) for note in verdict.notes
        ]


def test_completeness_is_looked_at_and_not_believed():
    text = ONE.replace("rules: {", "rules: {complete: {}, ")
    assert judged(text, *GREEN).passed
    less = a_set(*SET.files[:3], planned=SET.planned)
    seen = (said("audit", document=less), said(document=less))
    facts = held_by(text, *seen, document=less).facts_of("missing-cells")
    assert facts["planned"] == 8 and len(facts["cells"]) == 2
    assert facts["cells"][0] == "torchvision for Python 3.12 and gfx1030"
    said_so = a_set(missing=(SET.planned[0],))
    held = held_by(text, *(said(k, document=said_so) for k in ("audit", "smoke")), document=said_so)
    assert len(held.facts_of("missing-cells")["cells"]) == 1
    unplanned = a_set(planned=())
    assert held_by(text, *GREEN, document=unplanned).codes == ("no-plan",)


def test_a_set_that_is_not_what_its_id_says_is_held_and_nobody_can_waive_that():
    other = SET.model_copy(update={"files": SET.files[:3]})
    waived = f"{ONE}\nwaivers: [{WAIVER.replace('WHOM', 'family: gfx103X-all').replace('DAY', '2026-12-01')}]"
    verdict = judged(waived, *GREEN, document=other)
    assert [one.rule for one in verdict.failures] == ["hashes", "audit"]
    assert verdict.failures[0].facts_of("other-id")["id"].startswith("2.9.1-rocm7.1.0-")
    assert verdict.ignored[0][1] == reason("other-wheels", count=1, wheels=4)
    failed = said(outcome="fail", trouble="its signature is not of what it says")
    assert judged(ONE, *GREEN, failed).ignored == ()  # it counts
    elsewhere = said(outcome="fail", hashes=(sha("x"),))
    assert judged(ONE, *GREEN, elsewhere).ignored == ((elsewhere.id, reason("not-in-set")),)


def test_the_resolver_is_asked_about_all_that_is_chosen_by_version():
    text = ONE.replace("rules: {", "rules: {resolver: {fresh: 1d}, ")
    assert judged(text, *GREEN, said("resolver")).passed
    facts = held_by(text, *GREEN, said("resolver", python="311")).facts_of("uncovered")
    assert (len(facts["files"]), facts["wheels"]) == (2, 4)
    held = held_by(text, *GREEN, said("resolver", hours=2), said("resolver", "fail"))
    assert held.title == "resolver" and held.facts_of("failed")["result"] == "fail"
    variant = wheel("torch", label="gfx1030")
    only = a_set(variant, layout="variants")
    assert judged(text, said("audit", document=only), said(document=only), document=only).passed


def test_only_signed_evidence_counts_where_that_is_needed():
    signers = (
        "\nsigners: {ann: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q}"
    )
    text = ONE.replace("signed: false", "signed: true") + signers
    plain = [said("audit", signer=""), said(signer="")]
    verdict = judged(text, *plain)
    assert {why.code for _, why in verdict.ignored} == {"not-signed"}
    assert [one.rule for one in verdict.failures] == ["audit", "smoke"]
    assert all(one.facts_of("unsigned") == {"passes": 1} for one in verdict.failures)
    steps = [next_step.find_step(verdict, one) for one in verdict.failures]
    assert all(step.endswith(" --sign-with KEY") for step in steps)
    assert judged(ONE, *plain).passed and judged(ONE, *plain).state == "reported, unsigned"
    assert judged(text, said("audit", signer="ann"), said(signer="ann")).passed
    assert not judged(text, said("audit", signer="ann"), said(signer="ann"), said(outcome="fail")).passed


def test_where_nobody_could_sign_the_gate_says_what_to_do():
    text = ONE.replace("signed: false", "signed: true")
    verdict = judged(text, *GREEN)
    assert [one.rule for one in verdict.failures] == ["signers"]
    step = next_step.find_next_step(verdict)
    assert "set key NAME --policy POLICY" in step and "--sign-with KEY" in step


def test_a_set_for_many_families_needs_each_target_and_the_wheels_that_it_gets():
    name = "torch-1-cp312-cp312-linux_x86_64-{}.whl"
    own = {g: {"name": name.format(g), "sha256": sha(g), "label": g} for g in ("gfx942", "gfx1201")}
    files = [wheel("torch", targets=(g,), **more) for g, more in own.items()]
    document = a_set(*files, wheel("triton", targets=()), family="multi-arch", layout="variants", planned=())
    text = ONE.replace("targets: one", "targets: every")
    hashes = tuple(sorted(f.sha256 for f in document.files if f.label != "gfx1201"))
    seen = [said("audit", document=document), said(gfx="gfx942", document=document, hashes=hashes)]
    verdict = judged(text, *seen, document=document)
    assert outcomes(verdict)["smoke on gfx942"] == "pass"
    assert outcomes(verdict)["smoke on gfx1201"] == "bypassed"
    states = [(one.gfx, one.state) for one in verdict.targets]
    assert states == [("gfx1201", "untested"), ("gfx942", "tested")]
    assert verdict.state == "partly tested"


def test_a_set_for_all_families_has_rules_and_waivers_of_its_own():
    both = wheel("torch", targets=("gfx942", "gfx1030"))
    document = a_set(both, family="multi-arch", layout="multi-arch")
    text = ONE.replace("targets: one", "targets: every")
    seen = [said("audit", document=document), said(gfx="gfx942", document=document)]
    assert [one.title for one in judged(text, *seen, document=document).failures] == ["smoke on gfx1030"]
    fewer = "{smoke: {fresh: 7d, targets: one, pythons: one}}"
    one = f"{text}\nfamilies: {{multi-arch: {{channels: {{nightly: {fewer}}}}}}}"
    assert judged(one, *seen, document=document).passed
    waived = (
        "{rule: smoke, channels: [nightly], family: multi-arch, owner: bob, reason: r, expires: 2026-12-01}"
    )
    assert judged(f"{text}\nwaivers: [{waived}]", *seen, document=document).passed
    # and they are of no set of one family
    assert not judged(f"{text}\nwaivers: [{waived}]", said("audit")).passed


def test_what_the_policy_does_not_know_is_held():
    assert judged(ONE, *GREEN, channel="stable").rules[0].reasons == (reason("no-channel", channel="stable"),)
    no_torch = ONE.replace("pythons: one", "pythons: one, projects: [torchaudio]")
    assert held_by(no_torch, *GREEN).facts_of("no-wheels")["projects"] == ("torchaudio",)
    nothing = a_set(wheel("torch", targets=()), family="somewhere", planned=())
    assert held_by(ONE, said("audit", document=nothing), document=nothing).codes == ("no-targets",)


def test_families_differ_and_what_is_not_needed_is_not_asked():
    other = (
        ONE + "\nfamilies: {gfx103X-all: {channels: {nightly: {not_needed: [smoke], audit: {fresh: 2h}}}}}"
    )
    assert judged(other, said("audit", hours=0.5)).passed
    held = held_by(other, said("audit", hours=3))
    assert held.facts_of("too-old") == {"age": 3 * 3600, "limit": 2 * 3600}


def test_a_run_of_a_selection_is_none():
    text = ONE.replace("pythons: one", "pythons: one, at_least: 4")
    assert held_by(text, *GREEN).facts_of("too-few") == {"passed": 3, "needed": 4}
    assert judged(text.replace("4", "3"), *GREEN).passed


def test_our_own_policy_needs_more_from_channel_to_channel():
    own = policy.load_policy()
    ages = {name: channel.rules for name, channel in own.channels.items()}
    assert list(ages) == ["nightly", "prerelease", "stable"]
    assert all(rules.complete and rules.resolver and rules.smoke for rules in ages.values())
    smoke = ages["stable"].smoke
    assert smoke is not None
    assert (smoke.targets, smoke.pythons, smoke.fresh) == ("every", "every", timedelta(days=60))
    assert (own.waivers, own.families) == ((), {})
    assert [channel.signed for channel in own.channels.values()] == [True, True, True]


def test_the_data_of_families_names_its_exceptions():
    named = {
        (family, platform)
        for family, one in ci.load_ci_table().families.items()
        for platform in ("linux", "windows")
        if (place := one.get_platform(platform)) is not None and place.bypass_tests_for_releases
    }
    both = ("linux", "windows")
    assert named == {("gfx1151", "linux"), *product(("gfx110X-all", "gfx120X-all"), both)}


def test_what_users_see_of_a_tested_set():
    both = [said(gfx=gfx, python="312") for gfx in ("gfx1030", "gfx1031")]
    tested = judged(ONE, VERIFIED, *both, said("tests", python="312"))
    assert tested.state == "tested"
    shown = verdict_text.list_shown_lines(tested)
    assert shown[0] == "gfx1030: tested (smoke tests and full tests with Python 3.12, 2026-11-21)"
    failed = judged(ONE, VERIFIED, both[0], said(outcome="fail", gfx="gfx1031"))
    assert verdict_text.list_shown_lines(failed)[1] == "gfx1031: tests failed"


def test_a_failure_of_tests_that_the_channel_does_not_ask_for_holds_the_set_unless_it_is_waived():
    """People get it otherwise, and the next refresh says that it is to be taken away."""
    failed = said("tests", "fail", suite={"name": "default"})
    held = held_by(ONE, *GREEN, failed)
    assert (held.title, held.evidence) == ("tests (default) on gfx1030", (failed.id,))
    assert judged(ONE, *GREEN, said("tests", suite={"name": "default"})).passed
    waiver = WAIVER.replace("smoke", "tests").replace("WHOM", "gfx: gfx1030").replace("DAY", "2026-12-01")
    verdict = judged(f"{ONE}\nwaivers: [{waiver}]", *GREEN, failed)
    assert verdict.passed and outcomes(verdict)["tests (default) on gfx1030"] == "waived"
    asks_no_smoke = "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}"
    assert held_by(asks_no_smoke, VERIFIED, said("smoke", "crash")).title == "smoke on gfx1030"

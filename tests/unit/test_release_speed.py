"""The rule about speed: a set against what its channel showed before it, on the same kind of machine."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from documents import NOW, SET, a_set, policy, said, sha, wheel

from rocm_wheels.core import errors
from rocm_wheels.models.tested_machine import TestedGpu, TestedMachine
from rocm_wheels.release import gate, next_step, verdict, verdict_text, wheel_set
from rocm_wheels.release.evidence import store

pytestmark = pytest.mark.contract

RULES = "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}, speed: {at_least: 0.8}}}}"
ONE_TARGET = RULES.replace("at_least: 0.8", "at_least: 0.8, targets: one")
XT, XTX = "AMD Radeon RX 6900 XT", "AMD Radeon RX 6950 XT"
GEMM, CONV = "tflops:gemm-float16-4096x4096x4096", "tflops:conv2d-float32-32x128x56x56"
FAST = {GEMM: 100.0, CONV: 2.577}
SLOW = {GEMM: 100.0, CONV: 0.016}  # what happened between two nightlies of ROCm


def other_set(
    number: int, version: str = "2.9.1+rocm7.1.0", platform: str = "linux_x86_64"
) -> wheel_set.SetDocument:
    """A set of one torch that is none of the sets of another number."""
    name = f"torch-{version}-cp312-cp312-{platform}.whl"
    file = wheel("torch", name=name, version=version, sha256=sha(f"{name} {number}"))
    set_id = wheel_set.make_set_id(version, SET.family, [(file.name, file.sha256)], SET.locks[0].digest)
    return a_set(file, version=version, id=set_id)


BEFORE, LONG_BEFORE = other_set(1), other_set(2)


def measured(
    numbers: dict[str, float], document: wheel_set.SetDocument = SET, *, gpu: str = XT, gfx: str = "gfx1030",
    kind: str = "any", **more: Any,
) -> store.StoredEvidence:  # fmt: skip
    """A pass of the smoke tests that measured something, on a machine with another GPU besides."""
    stored = said(document=document, gfx=gfx, machine=kind, measurements=numbers, **more)
    gpus = (TestedGpu(name=gpu, gfx=f"{gfx}:xnack-"), TestedGpu(name="Radeon of the CPU", gfx="gfx90c"))
    evidence = stored.evidence.model_copy(update={"machine": TestedMachine(gpus=gpus)})
    return replace(stored, id=evidence.id, evidence=evidence)


def earlier(*known: store.StoredEvidence, document: wheel_set.SetDocument = BEFORE) -> gate.EarlierSet:
    return gate.EarlierSet(document, known)


def speed_of(
    now: tuple[store.StoredEvidence, ...], *before: gate.EarlierSet, rules: str = RULES
) -> list[verdict.RuleResult]:
    """What came of the rule, on each target; sets came to the channel in this order."""
    judged = gate.judge_set(policy(rules), "nightly", SET, (said("audit"), *now), NOW, earlier=before)
    results = [result for result in judged.rules if result.rule == "speed"]
    for result in results:
        assert verdict_text.describe_rule(result)
        assert result.outcome != "fail" or "test smoke" in next_step.find_step(judged, result)
    json.dumps(judged.as_json())
    assert judged.passed == all(result.outcome != "fail" for result in results)
    return results


LAST = earlier(measured(FAST, BEFORE))
ON_ANOTHER = earlier(measured(FAST, BEFORE, gpu=XTX))
CASES: dict[str, tuple[tuple[Any, ...], tuple[gate.EarlierSet, ...], str]] = {
    # the first set of a channel, and what is compared with nothing, pass and say so
    "the first": ((measured(SLOW),), (), "first-measured"),
    "the first that is measured": ((measured(SLOW),), (earlier(said(document=BEFORE)),), "first-measured"),
    "nothing was ever measured": ((said(),), (earlier(said(document=BEFORE)),), "first-measured"),
    "as fast": ((measured(FAST),), (LAST,), "fast-enough"),
    "just fast enough": ((measured({**FAST, GEMM: 80.0}),), (LAST,), "fast-enough"),
    "faster": ((measured({GEMM: 200.0, CONV: 9.0}),), (LAST,), "fast-enough"),
    "one more measurement": ((measured({**FAST, "tflops:new": 0.1}),), (LAST,), "fast-enough"),
    "one lost kernel": ((measured(SLOW),), (LAST,), "slower"),
    "a little too slow": ((measured({**FAST, GEMM: 79.9}),), (LAST,), "slower"),
    "no speed at all": ((measured({**FAST, CONV: 0.0}),), (LAST,), "lacks-measurements"),
    "a measurement less": ((measured({GEMM: 100.0}),), (LAST,), "lacks-measurements"),
    "not measured": ((said(),), (LAST,), "not-measured"),
    "not tested at all": ((), (LAST,), "not-measured"),
    "only the CPU": ((measured({"tflops:cpu-gemm": 9.0}),), (LAST,), "not-measured"),
    "a CPU is not judged": ((measured({**FAST, "tflops:cpu-x": 0.1}),),
        (earlier(measured({**FAST, "tflops:cpu-x": 9.0}, BEFORE)),), "fast-enough"),
    "what is no speed is not judged": ((measured({**FAST, "seconds": 9.0}),),
        (earlier(measured({**FAST, "seconds": 1.0, "bytes": 1.0}, BEFORE)),), "fast-enough"),
    "another machine": ((measured(FAST),), (ON_ANOTHER,), "other-machine"),
    "another kind of one": ((measured(FAST, kind="rack-b"),), (LAST,), "other-machine"),
    "this machine, before the last set": ((measured(SLOW),),
        (earlier(measured(FAST, LONG_BEFORE), document=LONG_BEFORE), ON_ANOTHER), "slower"),
    "a new machine beside the old one": ((measured(FAST), measured(SLOW, gpu=XTX, kind="rack-b")),
        (LAST,), "fast-enough first-measured"),
    "slow on one of two machines": ((measured(SLOW), measured(FAST, gpu=XTX, kind="rack-b")),
        (earlier(measured(FAST, BEFORE), measured(FAST, BEFORE, gpu=XTX, kind="rack-b")),), "slower"),
    "the last set counts, not the best": ((measured({**FAST, GEMM: 70.0}),),
        (LAST, earlier(measured({**FAST, GEMM: 80.0}, LONG_BEFORE), document=LONG_BEFORE)), "fast-enough"),
    "measured again": ((measured(SLOW, hours=3), measured(FAST, hours=2)), (LAST,), "fast-enough"),
    "slower when measured again": ((measured(FAST, hours=3), measured(SLOW, hours=2)), (LAST,), "slower"),
    "one of two Pythons is slow":
        ((measured(FAST, python="312", hours=1), measured(SLOW, python="311", hours=2)), (LAST,), "slower"),
    "however old": ((measured(FAST, hours=999),), (earlier(measured(FAST, BEFORE, hours=9999)),),
        "fast-enough"),
    "a run of chosen tests is none": ((measured(FAST, selected="-k speed"),), (LAST,), "not-measured"),
    "a run that failed is none": ((measured(FAST, outcome="fail"),),
        (earlier(measured(SLOW, BEFORE, outcome="fail"), measured(FAST, BEFORE, kind="b")),),
        "not-measured"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_set_is_held_against_the_last_one_on_the_same_machine(case: str) -> None:
    now, before, codes = CASES[case]
    (result,) = speed_of(now, *before)
    assert " ".join(result.codes) == codes
    assert result.outcome == ("pass" if codes.split()[0] in {"fast-enough", "first-measured"} else "fail")
    assert result.gfx == ("gfx1030" if "nothing" not in case else "")


def test_a_verdict_says_what_was_slow_and_against_what() -> None:
    (result,) = speed_of((measured(SLOW),), LAST)
    facts = result.facts_of("slower")
    assert facts["set"] == BEFORE.id and facts["machine"] == XT and facts["limit"] == 0.8
    (slower,) = facts["slower"]
    assert (slower["name"], slower["speed"], slower["before"]) == (CONV, 0.016, 2.577)
    assert slower["ratio"] == pytest.approx(0.016 / 2.577)
    assert result.title == "speed on gfx1030" and result.evidence == (measured(SLOW).id,)


def test_a_torch_is_compared_with_its_own_line_first_and_with_its_own_platform_alone() -> None:
    newer = other_set(3, "2.10.0+rocm7.1.0")
    of_windows = other_set(4, platform="win_amd64")
    twice = {name: 2 * number for name, number in FAST.items()}
    after = [earlier(measured(twice, item), document=item) for item in (newer, of_windows)]
    (result,) = speed_of((measured(FAST),), LAST, *after)
    assert result.facts_of("fast-enough")["set"] == BEFORE.id
    (result,) = speed_of((measured(FAST),), *after)  # the first of its line is held to another line
    assert result.facts_of("slower")["set"] == newer.id
    (result,) = speed_of((measured(FAST),), after[1])
    assert result.codes == ("first-measured",)


def test_every_target_is_compared_or_one() -> None:
    both = earlier(measured(FAST, BEFORE), measured(FAST, BEFORE, gfx="gfx1031"))
    results = speed_of((measured(FAST),), both)
    assert [(result.gfx, result.outcome) for result in results] == [("gfx1030", "pass"), ("gfx1031", "fail")]
    (result,) = speed_of((measured(FAST),), both, rules=ONE_TARGET)
    assert (result.gfx, result.outcome) == ("gfx1030", "pass")
    (result,) = speed_of((said(),), both, rules=ONE_TARGET)
    assert result.outcome == "fail" and result.codes[0] == "any-target"
    slow, fast = measured(SLOW), measured(FAST, gfx="gfx1031")
    assert [item.outcome for item in speed_of((slow, fast), both, rules=ONE_TARGET)] == ["fail", "pass"]


def test_somebody_may_answer_for_a_slow_set_and_nobody_else_excuses_it() -> None:
    waiver = "{rule: speed, channels: [nightly], gfx: gfx1030, owner: bob, reason: r, expires: 2026-12-01}"
    (result,) = speed_of((measured(SLOW),), LAST, rules=f"{RULES}\nwaivers: [{waiver}]")
    assert result.outcome == "waived" and result.codes == ("waived", "slower")
    named = "\nfamilies: {gfx103X-all: {bypass_tests_for_releases: true, owner: eve, reason: no card}}"
    assert [item.outcome for item in speed_of((said(),), LAST, rules=RULES + named)] == ["bypassed"]
    assert [item.outcome for item in speed_of((measured(SLOW),), LAST, rules=RULES + named)] == ["fail"]


def test_only_what_a_signer_signed_was_measured_where_that_is_needed() -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q"
    rules = f"{RULES.replace('signed: false', 'signed: true')}\nsigners: {{ann: {key}}}"
    (result,) = speed_of((measured(FAST, signer=""), measured(SLOW)), LAST, rules=rules)
    assert result.codes == ("slower",)
    unsigned_before = earlier(measured(FAST, BEFORE, signer=""))
    (result,) = speed_of((measured(SLOW),), unsigned_before, rules=rules)
    assert result.codes == ("first-measured",)


@pytest.mark.parametrize(
    "rule", ["{at_least: 0}", "{at_least: 1.2}", "{at_least: fast}", "{}", "{at_least: nan}"]
)
def test_a_part_of_a_speed_is_between_nothing_and_all(rule: str) -> None:
    with pytest.raises(errors.DataError, match="speed"):
        policy(RULES.replace("{at_least: 0.8}", rule))


def test_without_the_rule_nothing_is_compared() -> None:
    assert speed_of((measured(SLOW),), LAST, rules=RULES.replace(", speed: {at_least: 0.8}", "")) == []


def test_no_set_passes_that_is_slower_than_the_last_one_on_its_machine() -> None:
    """Against the rule in its plainest words, on random machines and numbers."""
    outcomes = set()
    for number in range(300):
        source = random.Random(number)
        machines = [source.sample([XT, XTX], source.randint(0, 2)) for _ in range(2)]
        now, last = (
            {gpu: {name: source.choice([60.0, 79.0, 80.0, 100.0]) for name in (GEMM, CONV)} for gpu in gpus}
            for gpus in machines
        )
        for numbers in now.values():
            if source.random() < 0.2:
                numbers.pop(CONV)
        # passes of other machines speak for the same wheels: a kind keeps their results apart
        passes = tuple(measured(numbers, gpu=gpu, kind=gpu) for gpu, numbers in now.items())
        before = [measured(numbers, BEFORE, gpu=gpu, kind=gpu) for gpu, numbers in last.items()]
        (result,) = speed_of(passes, earlier(*before))
        compared = [gpu for gpu in now if gpu in last]
        is_slower = any(
            now[gpu].get(name, 0.0) < 0.8 * speed for gpu in compared for name, speed in last[gpu].items()
        )
        expected = "pass" if not last or (compared and not is_slower) else "fail"
        assert result.outcome == expected, (now, last)
        outcomes.add(result.codes)
    assert len(outcomes) > 5, "each way to come out is there"

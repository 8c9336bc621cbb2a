"""Sentences of verdicts: each reason has one, and nothing else makes any."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, get_args

from commands import take_down, transcript
from documents import EVERY, NOW, SET, judged, said

from rocm_wheels.release import next_step, verdict, verdict_text
from rocm_wheels.release.verdict import ReasonCode, RuleResult, TargetState, Verdict, reason

_ = transcript  # a fixture for every test here
MESSAGES = "gate"

FAILED: dict[str, Any] = {"evidence": "20261121T110000Z-0a1b2c3d4e5f", "result": "fail", "detail": ""}
FAILED |= {"counts": {"passed": 70, "failed": 2}, "tests": ("test_a", "test_b"), "before_gpu": False}
FAILED |= {"when": NOW - timedelta(hours=1), "since": NOW, "host": "runner-3", "machine": "mi300x"}
FAILED |= {"others": 0, "passes": 1}
PASSED = {"counts": {"passed": 70, "skipped": 3}, "age": 7200, "host": "runner-3", "by": "ann"}
WHEELS, CELLS = ("torch.whl", "triton.whl", "vision.whl"), tuple(f"torch for Python 3.1{n}" for n in range(7))
MACHINES = ("AMD Radeon RX 6900 XT", "gfx1030 (rack-b)")
SPEED = {"set": "2.9.1-0a1b2c3d4e5f", "machine": "AMD Radeon RX 6900 XT", "limit": 0.8}
CONV = {"name": "tflops:conv2d-float32-32x128x56x56", "speed": 0.016, "before": 2.577, "ratio": 0.016 / 2.577}


def some(*counts: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    """Facts about so many files of so many wheels."""
    return [{"files": WHEELS[:files], "wheels": wheels, **more} for files, wheels in counts]


# every code, of one and of several
EXAMPLES: dict[ReasonCode, list[dict[str, Any]]] = {
    "no-channel": [{"channel": "stable"}],
    "no-signers": [{}],
    "whole": [{"wheels": 1, "locks": 1}, {"wheels": 4, "locks": 2}],
    "bytes-read": [{}],
    "other-id": [{"id": "2.9.1-0a1b2c3d4e5f"}],
    "other-document": [{"evidence": "20261121T110000Z-0a1b2c3d4e5f"}],
    "gone": [{"file": "torch.whl"}],
    "other-size": [{"file": "torch.whl", "size": 1, "expected": 2}],
    "other-bytes": [{"file": "torch.whl", "sha256": "0a" * 32}],
    "changing": [{"file": "torch.whl"}],
    "complete": [{"planned": 1}, {"planned": 8}],
    "missing-cells": [
        {"cells": CELLS[:cells], "planned": planned} for cells, planned in ((1, 1), (2, 2), (7, 8), (2, 0))
    ],
    "no-plan": [{}],
    "statements": [{"wheels": 1, "signers": ()}, {"wheels": 4, "signers": ("ann", "bob")}],
    "no-statement": some((1, 1), (3, 4)),
    "unsigned-statement": some((1, 1), signers=("ann",)) + some((3, 4), signers=("ann", "bob")),
    "bad-statement": [{"fault": "torch.whl.intoto.json is gone"}],
    "reproduced": [{"wheels": 1, "by": ("lab",)}, {"wheels": 4, "by": ("ann", "lab")}],
    "own-build": [{"signers": ("ann",)}],
    "unlisted": [{"passes": 1, "by": ("lab",)}],
    "passed": [{"pythons": ("3.12",), **PASSED}, {"pythons": (), **PASSED}],
    "all-passed": [{"wheels": 1}, {"wheels": 4}],
    "overcome": [{"failures": 1}, {"failures": 2}],
    "variants-only": [{}],
    "failed": [
        FAILED,
        {**FAILED, "others": 1, "passes": 2, "machine": "any"},
        {**FAILED, "tests": (), "detail": "1 of 2 reports are there", "others": 2},
        {**FAILED, "before_gpu": True, "tests": ()},
    ],
    "uncovered": some((1, 1), (1, 3), (3, 3)),
    "no-pass": [{}],
    "partial-pass": [{"files": WHEELS[:1], "pythons": ()}, {"files": WHEELS, "pythons": ("3.11", "3.12")}],
    "unsigned": [{"passes": 1}, {"passes": 2}],
    "too-old": [{"age": 15 * 86400, "limit": 14 * 86400}],
    "selection": [{"selected": "-k conv"}],
    "too-few": [{"passed": 1, "needed": 1000}, {"passed": 3, "needed": 1000}],
    "too-flaky": [{"flaky": 1, "allowed": 0}, {"flaky": 2, "allowed": 1}],
    "missing-shards": [{"shards": 2, "missing": (2,)}, {"shards": 6, "missing": (2, 3)}],
    "fast-enough": [
        {**SPEED, "speeds": 1, "least": {**CONV, "speed": 2400.0, "ratio": 0.9313}},
        {**SPEED, "speeds": 8, "least": {**CONV, "speed": 3.456, "before": 3.456, "ratio": 1.0}},
    ],
    "slower": [{**SPEED, "slower": (CONV,)}, {**SPEED, "slower": (CONV, {**CONV, "ratio": 0.7})}],
    "first-measured": [
        {"machines": MACHINES[:machines], "speeds": speeds} for machines, speeds in ((0, 0), (1, 1), (2, 16))
    ],
    "not-measured": [{"set": SPEED["set"], "machines": MACHINES}],
    "lacks-measurements": [{**SPEED, "names": (CONV["name"], *more)} for more in ((), ("tflops:x",))],
    "other-machine": [{"set": SPEED["set"], "machines": ("gfx1030",), "earlier": ("AMD Radeon RX 6900 XT",)}],
    "no-wheels": [{"projects": (), "gfx": "gfx942"}, {"projects": ("torch", "triton"), "gfx": "gfx942"}],
    "no-targets": [{}],
    "any-target": [{"targets": ("gfx942", "gfx950")}],
    "exception": [
        {"family": "gfx120X-all", "owner": "", "why": "", "tested": False},
        {"family": "gfx1031", "owner": "eve", "why": "no card", "tested": True},
    ],
    "exception-refused": [{"family": "gfx1031"}],
    "no-runner": [{"gfx": "gfx942"}],
    "waived": [{"owner": "bob", "until": "2026-12-24", "why": "known"}],
    "accepted": [{}],
    "refused": [{"fault": "torch.whl has other bytes in 2.9.1-0b", "tip": "demote 2.9.1-0b"}],
    "lost-gpu": [{}],
    "not-in-set": [{}],
    "trouble": [{"fault": "its signature is not of what it says"}],
    "other-set": [{"set": "2.9.1-0b1c2d3e4f5a"}],
    "other-wheels": [{"count": 1, "wheels": 1}, {"count": 1, "wheels": 4}, {"count": 4, "wheels": 4}],
    "future": [{"when": NOW}],
    "not-signed": [{}],
    "waiver-ended": [{"title": "smoke on gfx942", "owner": "bob", "until": "2026-11-01"}],
    "waiver-too-long": [{"title": "smoke", "owner": "bob", "until": "2029-11-01", "days": 366}],
    "upgrade": [{"fault": "2.9.1+rocm10 sorts below 2.9.1+rocm7"}],
}


def make_verdict(*rules: RuleResult, **more: Any) -> Verdict:
    return Verdict(SET.id, SET.family, "nightly", NOW, rules, **more)


def test_every_reason_has_its_sentence() -> None:
    assert set(EXAMPLES) == set(get_args(ReasonCode))
    for code, examples in EXAMPLES.items():
        sentences = [verdict_text.describe_reason(reason(code, **facts), "smoke") for facts in examples]
        take_down([code], 0, "\n".join(sentences))
        for sentence in sentences:
            assert sentence and "{" not in sentence and "()" not in sentence
            for wrong in (" 1 wheels", " 1 failures", " 1 tests", "1 of 1 ", "passs"):
                assert wrong not in f" {sentence}"


def test_every_failure_has_a_next_step() -> None:
    """For each rule and what can hold it, as commands that can be pasted."""
    holding: dict[verdict.RuleName, list[ReasonCode]] = {
        "signers": ["no-signers"],
        "hashes": ["no-channel", "other-id", "other-document", "gone", "other-bytes", "changing"],
        "audit": ["uncovered", "failed"],
        "complete": ["missing-cells", "no-plan"],
        "provenance": ["no-statement", "unsigned-statement", "bad-statement"],
        "reproduced": ["uncovered", "failed"],
        "resolver": ["uncovered"],
        "smoke": ["no-pass", "partial-pass", "failed", "no-targets", "no-wheels"],
        "speed": ["slower", "not-measured", "lacks-measurements", "other-machine"],
        "tests": ["no-pass"],
        "channel": ["refused"],
    }
    assert set(holding) == set(verdict.RULE_NAMES)
    words = next_step.CommandWords("s3://bucket", "my policy.yaml")
    for name, codes in holding.items():
        for code in codes:
            gfx = "gfx942" if name in {"smoke", "speed", "tests"} else ""
            suite = "full" if name == "tests" else ""
            rule = RuleResult(name, "fail", (reason(code, **EXAMPLES[code][0]),), gfx, suite)
            step = next_step.find_next_step(make_verdict(rule, signed=True), words)
            take_down([f"{name}: {code}"], 0, step)
            assert step
    passed = make_verdict(RuleResult("hashes", "pass"))
    take_down(["passed"], 0, next_step.find_next_step(passed))
    take_down(["passed"], 0, next_step.find_next_step(passed, words))
    take_down(["shown"], 0, next_step.find_next_step(passed, words, is_shown=True))


def test_reasons_of_a_rule_are_one_line() -> None:
    old, lack = reason("too-old", **EXAMPLES["too-old"][0]), reason("no-pass")
    waived, named = reason("waived", **EXAMPLES["waived"][0]), reason("exception", **EXAMPLES["exception"][1])
    any_target = reason("any-target", **EXAMPLES["any-target"][0])
    failed = reason("failed", **FAILED)
    gone = [reason("gone", file=name) for name in WHEELS]
    for rule in (
        RuleResult("smoke", "fail", (any_target, lack, old)),
        RuleResult("smoke", "waived", (waived, lack, old), "gfx942"),
        RuleResult("smoke", "bypassed", (named, lack, old), "gfx942"),
        RuleResult("hashes", "fail", tuple(gone)),
        RuleResult("hashes", "fail", tuple(gone[:2])),
    ):
        take_down([rule.title, rule.outcome], 0, verdict_text.describe_rule(rule))
    assert "test_a" not in verdict_text.describe_rule(RuleResult("smoke", "fail", (failed,)), tests=False)


def test_what_users_are_told_names_every_target() -> None:
    states = (
        TargetState("gfx1030", "tested", ("smoke tests", "full tests"), ("3.12",), "2026-11-21"),
        TargetState("gfx1031", "reported, unsigned", ("smoke tests",), (), "2026-11-21"),
        TargetState("gfx1032", "failed"),
        TargetState("gfx1033", "untested"),
    )
    reasons = (reason("waived", **EXAMPLES["waived"][0]), reason("no-pass"))
    waived = RuleResult("smoke", "waived", reasons, "gfx1033")
    verdict = make_verdict(waived, targets=states)
    take_down([verdict.state], 0, "\n".join(verdict_text.list_shown_lines(verdict)))
    chosen = (states[:1], states[:2], states[1:2], states[3:])
    words = [make_verdict(targets=targets).state for targets in chosen]
    assert words == ["tested", "partly tested", "reported, unsigned", "untested"]


def test_json_has_facts_and_no_sentence() -> None:
    rule = RuleResult("smoke", "fail", (reason("failed", **FAILED),), "gfx942", evidence=("a",))
    (said,) = make_verdict(rule).as_json()["rules"]  # type: ignore[misc]
    (failed,) = said["reasons"]
    assert (failed["code"], failed["when"]) == ("failed", "2026-11-21T11:00:00Z")
    assert failed["counts"] == {"passed": 70, "failed": 2}
    assert said["title"] == "smoke on gfx942" and "why" not in said and "tip" not in said


def test_the_summary_of_a_job_names_all_that_failed_as_text() -> None:
    """What somebody wrote into a result is no markup of it."""
    failed = tuple(f"test_ops::test_{number}<script>|`" for number in range(285))
    markup = {"counts": {"failed": 285, "passed": 3}, "detail": "a|b `c` <script> | forged | row |"}
    known = [
        said("audit"),
        said("smoke", gfx="gfx1030"),
        said("smoke", "fail", gfx="gfx1031", failed=failed, **markup),
    ]
    step = "rocm-wheels set evidence add STORE --set X"
    verdict = judged(EVERY, *known)
    text = verdict_text.format_markdown(verdict, known, step)
    assert text.count("- `test_ops::test_") == 285 and step in text
    for shown in ("285 failed", "3 passed", "| gfx1030 | tested |", "| gfx1031 | failed |"):
        assert shown in text
    assert re.search(r"^\| fail \|", text, flags=re.M)
    assert all(line.count("`") == 2 for line in text.splitlines() if line.startswith("- "))
    outside = re.sub(r"`[^`\n]*`|\\.", "", re.sub(r"^- `.*`$", "", text, flags=re.M))
    assert "forged" in outside and "<" not in outside and "`" not in outside.partition("\nNext:")[0]
    assert {line.count("|") for line in outside.splitlines() if line.startswith("|")} == {4}

"""What is known of sets on targets, whichever channel is asked."""

from __future__ import annotations

from itertools import product

import pytest
from documents import EVERY, NOW, ONE, a_set, policy, said, wheel

from rocm_wheels.release import gate, queries
from rocm_wheels.release.evidence import store

TWO = policy(
    "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}},"
    " stable: {passes_after_failure: 2, signed: true, rules: {audit: {fresh: 1d}}}}\n"
    f"signers: {{ann: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}}}"
)
SETS = [
    a_set(wheel("torch", "312", size=number), created=f"2026-11-{number:02}T00:00:00Z",
          locks=[{"digest": f"{number:064x}"}], id=f"2.9.1-{number:012x}")
    for number in range(1, 5)
]  # fmt: skip
A_YEAR = 24 * 365


def of_first(*args: str, **more: object) -> store.StoredEvidence:
    return said(*args, document=SETS[0], **more)  # type: ignore[arg-type]


SIGNED = of_first(hours=2, signer="ann")
PLAIN = [of_first(hours=2, signer=""), of_first(signer="")]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], "untested"),
        ([of_first("audit")], "untested"),
        ([of_first("smoke")], "tested"),
        ([of_first("smoke", hours=A_YEAR)], "tested"),
        ([of_first("smoke", gfx="gfx1031")], "untested"),
        ([of_first("smoke"), of_first("tests", "fail")], "failed"),
        # a pass that came after: enough for nightly, not for stable
        ([of_first("smoke", "fail", hours=3), of_first("smoke")], "failed"),
        ([of_first("smoke", "fail", hours=3), *PLAIN], "failed"),
        ([of_first("smoke", "fail", hours=3), SIGNED, of_first(signer="ann")], "tested"),
        # what nobody known signed is a report
        (PLAIN, "reported, unsigned"),
        ([*PLAIN, of_first("tests", "fail", signer="")], "failed"),
        ([of_first("smoke", trouble="its signature is not of what it says")], "untested"),
        ([of_first("smoke", hours=-9)], "untested"),
    ],
)  # fmt: skip
def test_what_is_known_of_a_target(known: list[store.StoredEvidence], expected: str) -> None:
    alone = queries.find_state_on(SETS[0], known, "gfx1030:xnack-", TWO, NOW)
    assert alone is not None and (alone.gfx, alone.state) == ("gfx1030", expected)


def test_without_a_channel_a_run_counts_that_counts_for_one() -> None:
    runs, whole = "{fresh: 7d, at_least: 5}", "audit: {fresh: 1d}"
    rules = policy(
        f"channels: {{nightly: {{signed: false, rules: {{{whole}, smoke: {{fresh: 7d}}}}}},"
        f" prerelease: {{signed: false, rules: {{{whole}, tests: {runs}}}}},"
        f" stable: {{passes_after_failure: 2, signed: false,"
        f" rules: {{{whole}, smoke: {runs}, tests: {runs}}}}}}}"
    )

    def state_of(*known: store.StoredEvidence) -> str:
        one = queries.find_state_on(SETS[0], known, "gfx1030", rules, NOW)
        return one.state if one is not None else ""

    assert state_of(of_first("tests")) == "untested"  # three tests: a run for no channel
    assert state_of(of_first("smoke")) == "tested"
    both = [of_first("tests", counts={"passed": 6}), of_first("smoke")]
    assert state_of(*both) == "tested"
    assert state_of(of_first("smoke", "fail", hours=3), *both) == "failed"  # for stable


def test_a_set_that_is_not_for_a_target_has_not_passed_on_it() -> None:
    assert queries.find_state_on(SETS[0], [of_first(gfx="gfx942")], "gfx942", TWO, NOW) is None


@pytest.mark.parametrize("text", [ONE, EVERY])
def test_for_a_channel_it_is_what_its_gate_says(text: str) -> None:
    rules = policy(text)
    (channel,) = rules.channels
    for outcome, gfx in product(("pass", "fail", "crash"), ("gfx1030", "gfx1031", None)):
        known = [of_first("smoke", outcome, gfx=gfx, hours=5), of_first("smoke")]
        verdict = gate.judge_set(rules, channel, SETS[0], known, NOW)
        for state in verdict.targets:
            assert queries.find_state_on(SETS[0], known, state.gfx, rules, NOW) == state

"""What is known of sets on targets, and which is the newest that is good there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_sets import EVERY, NOW, ONE, a_log, a_set, policy, said, wheel

from rocm_wheels.release import (
    SetCandidate,
    SetDocument,
    StoredEvidence,
    TestKind,
    find_newest_passed,
    find_state_on,
    judge_set,
    list_target_states,
    sort_newest_first,
)

TWO = policy(
    "channels: {nightly: {rules: {verify: {fresh: 14d}}},"
    " stable: {passes_after_failure: 2, signed: required, rules: {verify: {fresh: 1d}}}}\n"
    f"signers: {{ann: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}}}"
)
SETS = [
    a_set(wheel("torch", "312", size=number), created=f"2026-11-{number:02}T00:00:00Z",
          lock={"digest": f"{number:064x}", "path": "sources.lock.json"}, id=f"2.9.1-{number:012x}")
    for number in range(1, 5)
]  # fmt: skip
A_YEAR = 24 * 365


def states(
    *known: StoredEvidence, channel: str | None = None, kind: TestKind | None = None
) -> dict[str, str]:
    return {
        one.gfx: one.state for one in list_target_states(SETS[0], known, TWO, NOW, channel=channel, kind=kind)
    }


def of_first(*args: str, **more: object) -> StoredEvidence:
    return said(*args, document=SETS[0], **more)  # type: ignore[arg-type]


SIGNED = of_first(hours=2, signer="ann")
PLAIN = [of_first(hours=2, signer=""), of_first(signer="")]


@pytest.mark.parametrize(
    ("known", "channel", "kind", "expected"),
    [
        ([], None, None, "untested"),
        ([of_first("verify")], None, None, "untested"),
        ([of_first("smoke")], None, None, "tested"),
        ([of_first("smoke", hours=A_YEAR)], None, None, "tested"),
        ([of_first("smoke", gfx="gfx1031")], None, None, "untested"),
        ([of_first("smoke"), of_first("tests", "fail")], None, None, "failed"),
        ([of_first("smoke"), of_first("tests", "fail")], None, "smoke", "tested"),
        ([of_first("smoke"), of_first("tests", "fail")], None, "tests", "failed"),
        ([of_first("smoke")], None, "tests", "untested"),
        # a pass that came after: enough for nightly, not for stable, so not where no channel is asked for
        ([of_first("smoke", "fail", hours=3), of_first("smoke")], "nightly", None, "tested"),
        ([of_first("smoke", "fail", hours=3), of_first("smoke")], None, None, "failed"),
        ([of_first("smoke", "fail", hours=3), *PLAIN], None, None, "failed"),
        ([of_first("smoke", "fail", hours=3), *PLAIN], "nightly", None, "reported, unsigned"),
        ([of_first("smoke", "fail", hours=3), SIGNED, of_first(signer="ann")], None, None, "tested"),
        # what nobody known signed is a report, whatever the channel takes, and goes where something failed
        (PLAIN, "stable", None, "reported, unsigned"),
        (PLAIN, "nightly", None, "reported, unsigned"),
        (PLAIN, None, None, "reported, unsigned"),
        ([*PLAIN, of_first("tests", "fail", signer="")], None, None, "failed"),
        ([*PLAIN, SIGNED], "stable", None, "tested"),
        ([of_first("smoke", trouble="its signature is not of what it says")], None, None, "untested"),
        ([of_first("smoke", hours=-9)], None, None, "untested"),
    ],
)  # fmt: skip
def test_what_is_known_of_a_target(
    known: list[StoredEvidence], channel: str | None, kind: TestKind | None, expected: str
) -> None:
    assert states(*known, channel=channel, kind=kind)["gfx1030"] == expected
    alone = find_state_on(SETS[0], known, "gfx1030:xnack-", TWO, NOW, channel=channel, kind=kind)
    assert alone is not None and (alone.gfx, alone.state) == ("gfx1030", expected)


def test_of_one_version_a_signed_pass_goes_before_a_reported_one() -> None:
    reported = of(SETS[3], "", "2.9.1"), of(SETS[2], "", "2.9.1")
    older = of(SETS[0], "ann", "2.9.0")
    for rest, channel, expected in (
        ((*reported, of(SETS[1], "ann", "2.9.1"), older), None, (SETS[1].id, "tested")),
        ((*reported, older), None, (SETS[3].id, "reported, unsigned")),  # the newest version leads
        ((*reported, older), "stable", (SETS[0].id, "tested")),
        (reported, "stable", ("", "")),
    ):
        found = find_newest_passed(rest, "gfx1030", TWO, NOW, channel=channel)
        answer = (
            (found.candidate.document.id, found.state.state) if found.candidate and found.state else ("", "")
        )
        assert answer == expected


def of(document: SetDocument, signer: str, version: str) -> SetCandidate:
    numbered = document.model_copy(update={"version": version})
    return SetCandidate(numbered, (said("smoke", document=numbered, signer=signer),))


def test_without_a_channel_a_run_counts_that_counts_for_one() -> None:
    runs, whole = "{fresh: 7d, at_least: 5}", "verify: {fresh: 1d}"
    rules = policy(
        f"channels: {{nightly: {{rules: {{{whole}, smoke: {{fresh: 7d}}}}}},"
        f" prerelease: {{rules: {{{whole}, tests: {runs}}}}},"
        f" stable: {{passes_after_failure: 2, rules: {{{whole}, smoke: {runs}, tests: {runs}}}}}}}"
    )

    def states_of(*known: StoredEvidence) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        one = list_target_states(SETS[0], known, rules, NOW)[0]
        return one.state, one.by, one.pythons

    many = {"counts": {"passed": 6}}
    assert states_of(of_first("tests")) == ("untested", (), ())  # three tests: a run for no channel
    assert states_of(of_first("smoke")) == ("tested", ("smoke tests",), ("3.12",))
    both = [of_first("tests", **many), of_first("smoke")]
    assert states_of(*both) == ("tested", ("smoke tests", "full tests"), ("3.12",))
    assert states_of(of_first("smoke", "fail", hours=3), *both)[0] == "failed"  # for stable


def test_a_set_that_is_not_for_a_target_has_not_passed_on_it() -> None:
    assert find_state_on(SETS[0], [of_first(gfx="gfx942")], "gfx942", TWO, NOW) is None
    with pytest.raises(KeyError, match="beta"):
        list_target_states(SETS[0], [], TWO, NOW, channel="beta")


@pytest.mark.parametrize("text", [ONE, EVERY])
def test_for_a_channel_it_is_what_its_gate_says(text: str) -> None:
    rules = policy(text)
    (channel,) = rules.channels
    for outcome, gfx in product(("pass", "fail", "crash"), ("gfx1030", "gfx1031", None)):
        known = [of_first("smoke", outcome, gfx=gfx, hours=5), of_first("smoke")]
        verdict = judge_set(rules, channel, SETS[0], known, NOW, log=a_log(SETS[0], known))
        assert list_target_states(SETS[0], known, rules, NOW, channel=channel) == verdict.targets


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["pass", "fail", "none"]), min_size=4, max_size=4), st.sets(st.integers(0, 3))
)
def test_the_newest_that_passed_and_the_last_good_one(results: list[str], back: set[int]) -> None:
    known = {
        document.id: () if result == "none" else (said("smoke", result, document=document),)
        for document, result in zip(SETS, results, strict=True)
    }
    taken: list[str] = []

    def offered() -> Iterator[SetCandidate]:
        for document in sort_newest_first(reversed(SETS)):
            taken.append(document.id)
            yield SetCandidate(document, known[document.id])

    passed = [one for one, result in zip(SETS, results, strict=True) if result == "pass"]
    found = find_newest_passed(offered(), "gfx1030", TWO, NOW)
    assert (found.candidate.document if found.candidate else None) == (passed[-1] if passed else None)
    assert (found.state.state if found.state else "") == ("tested" if passed else "")
    assert taken == [one.id for one in reversed(SETS[SETS.index(passed[-1]) if passed else 0 :])]
    over = {one.document.id: state.state for one, state in found.passed_over if state}
    words = {"pass": "tested", "fail": "failed", "none": "untested"}
    told = {one.id: words[result] for one, result in zip(SETS, results, strict=True)}
    assert over == {name: told[name] for name in (taken[:-1] if passed else taken)}
    ids = {SETS[number].id for number in back}
    good: list[SetDocument] = [one for one in passed if one.id not in ids]
    found = find_newest_passed(offered(), "gfx1030", TWO, NOW, taken_back=ids)
    assert (found.candidate.document if found.candidate else None) == (good[-1] if good else None)

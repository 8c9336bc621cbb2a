"""The search alone: against looking at every place, also where some cannot be looked at."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.release import bisect


def searched(truth: list[str]) -> tuple[int, int, list[int]]:
    """Try places until there is none to try: the last good and the first bad one, and which were tried."""
    outcomes = ["good", *[""] * (len(truth) - 2), "bad"]
    tried = []
    while (place := bisect.narrow_down(outcomes)[2]) is not None:
        assert not outcomes[place] and 0 < place < len(truth) - 1
        outcomes[place] = truth[place]
        tried.append(place)
    good, bad, _ = bisect.narrow_down(outcomes)
    assert all(outcomes[place] == "skip" for place in range(good + 1, bad))
    return good, bad, tried


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Places of which the first bad one is anywhere, and any but the ends may be skipped."""
    count = draw(st.integers(2, 60))
    first_bad = draw(st.integers(1, count - 1))
    skipped = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return ["skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(count)]


@settings(max_examples=400, deadline=None)
@given(lines())
def test_it_finds_what_looking_at_every_place_finds(truth: list[str]) -> None:
    good, bad, tried = searched(truth)
    assert bad == truth.index("bad")
    assert good == max(n for n, one in enumerate(truth[:bad]) if one == "good")
    if "skip" not in truth:
        assert len(tried) <= (len(truth) - 2).bit_length()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["good", "bad", "skip"]), min_size=2, max_size=40))
def test_whatever_a_command_says_it_ends_between_a_good_and_a_bad_place(truth: list[str]) -> None:
    truth = ["good", *truth, "bad"]
    good, bad, _ = searched(truth)
    assert good < bad and (truth[good], truth[bad]) == ("good", "bad")


@pytest.mark.parametrize(("skipped", "most"), [(range(30, 70), 12), (range(1, 50), 13), (range(10, 12), 8)])
def test_neighbours_that_cannot_be_tested_are_left_at_once(skipped: range, most: int) -> None:
    for first_bad in {1, 9, 80, 99} - set(skipped):
        truth = ["skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(100)]
        hidden = max(n for n in range(first_bad) if truth[n] == "good") < first_bad - 1
        assert hidden or len(searched(truth)[2]) <= most

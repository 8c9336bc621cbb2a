"""The search alone: against looking at every place, also where some cannot be looked at."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.release import bisect


def searched(truth: list[bisect.ProbeOutcome]) -> tuple[int, int, tuple[int, ...], list[int]]:
    """Try places until there is none to try: what is known then, and which were tried."""
    found: dict[int, bisect.ProbeOutcome] = {}
    tried = []
    while (place := bisect.narrow_down(len(truth), found).next) is not None:
        assert place not in found and 0 < place < len(truth) - 1
        found[place] = truth[place]
        tried.append(place)
    between = bisect.narrow_down(len(truth), found)
    assert between.untested == 0
    return between.good, between.bad, between.skipped, tried


@st.composite
def lines(draw: st.DrawFn) -> list[bisect.ProbeOutcome]:
    """Places of which the first bad one is anywhere, and any but the ends may be skipped."""
    count = draw(st.integers(2, 60))
    first_bad = draw(st.integers(1, count - 1))
    skipped = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return ["skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(count)]


@settings(max_examples=400, deadline=None)
@given(lines())
def test_it_finds_what_looking_at_every_place_finds(truth: list[bisect.ProbeOutcome]) -> None:
    good, bad, skipped, tried = searched(truth)
    assert bad == truth.index("bad")
    assert good == max(n for n, one in enumerate(truth[:bad]) if one == "good")
    assert skipped == tuple(range(good + 1, bad))
    if "skip" not in truth:
        assert len(tried) <= bisect.count_probes_at_most(len(truth) - 2)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["good", "bad", "skip"]), min_size=2, max_size=40))
def test_whatever_a_command_says_it_ends_between_a_good_and_a_bad_place(
    truth: list[bisect.ProbeOutcome],
) -> None:
    truth = ["good", *truth, "bad"]
    good, bad, skipped, _ = searched(truth)
    assert good < bad and (truth[good], truth[bad]) == ("good", "bad")
    assert all(truth[n] == "skip" for n in range(good + 1, bad))
    assert skipped == tuple(range(good + 1, bad))


def test_as_many_probes_as_a_binary_search_needs_and_no_fewer() -> None:
    for between in range(130):
        counts = []
        for first_bad in range(1, between + 2):
            truth: list[bisect.ProbeOutcome] = ["good"] * first_bad + ["bad"] * (between + 2 - first_bad)
            counts.append(len(searched(truth)[3]))
        assert max(counts) == bisect.count_probes_at_most(between)


@pytest.mark.parametrize(("skipped", "most"), [(range(30, 70), 12), (range(1, 50), 13), (range(10, 12), 8)])
def test_neighbours_that_cannot_be_tested_are_left_at_once(skipped: range, most: int) -> None:
    for first_bad in {1, 9, 80, 99} - set(skipped):
        truth: list[bisect.ProbeOutcome] = [
            "skip" if n in skipped else "good" if n < first_bad else "bad" for n in range(100)
        ]
        hidden = max(n for n in range(first_bad) if truth[n] == "good") < first_bad - 1
        assert hidden or len(searched(truth)[3]) <= most

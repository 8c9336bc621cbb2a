"""Binary search where some places cannot be looked at.

Places are numbered from the oldest; the first is good, the last is bad, and somewhere between it changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ProbeOutcome = Literal["good", "bad", "skip"]


@dataclass(frozen=True)
class BisectRange:
    """What is known: the newest ``good`` place below the oldest ``bad`` one, and what is between them.

    ``skipped`` are those between that could not be tested, ``untested`` is how many nobody tried, and
    ``next`` is the one to try; ``None`` when it is known as well as it can be.
    """

    good: int
    bad: int
    skipped: tuple[int, ...]
    untested: int
    next: int | None


def narrow_down(count: int, outcomes: Mapping[int, ProbeOutcome]) -> BisectRange:
    """Return what outcomes come to, for so many places (two at least); the ends are what they are.

    The next is the middle of the longest row that nobody tried: away from those that cannot be tested, which
    are often neighbours.
    """
    bad = min([count - 1, *(place for place, outcome in outcomes.items() if outcome == "bad")])
    good = max([0, *(place for place, outcome in outcomes.items() if outcome == "good" and place < bad)])
    between = range(good + 1, bad)
    skipped = tuple(place for place in between if place in outcomes)
    rows: list[list[int]] = [[]]
    for place in between:
        if place in outcomes:
            rows.append([])
        else:
            rows[-1].append(place)
    longest = max(rows, key=len)
    following = longest[(len(longest) - 1) // 2] if longest else None
    return BisectRange(good, bad, skipped, sum(map(len, rows)), following)


def count_probes_at_most(untested: int) -> int:
    """Return how many places are tried at most, when each of them can be tested."""
    return untested.bit_length()

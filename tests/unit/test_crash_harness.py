"""A harness that kills nothing must fail: tests of crashes would pass whatever the commands do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from crash import killed_at_events, killed_at_writes, sample


def test_fewer_points_than_are_sampled_are_refused() -> None:
    assert sample(range(9), False) == [0, 3, 5, 8]
    assert sample(range(4), False) == range(4) == sample(range(4), True)
    assert sample(range(2), False, 3, least=2) == range(2)
    for points, least in ((0, None), (3, None), (0, 0), (19, 20)):
        for exhaustive in (False, True):
            with pytest.raises(AssertionError, match=f"{points} points"):
                sample(range(points), exhaustive, least=least)


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_a_command_that_is_never_killed_is_a_failure(tmp_path: Path) -> None:
    begun: list[bool] = []

    def begin() -> None:
        begun.append(True)

    def work() -> None:  # it writes when its events are counted, and never again
        for number in range(9 if len(begun) == 1 else 0):
            (tmp_path / str(number)).write_text("")

    with pytest.raises(AssertionError, match="0 of 4 were killed"):
        list(killed_at_events(work, begin=begin, exhaustive=False))
    with pytest.raises(AssertionError, match="0 points"):
        list(killed_at_events(lambda: None, begin=begin, exhaustive=False))
    (start := tmp_path / "store").mkdir()
    with pytest.raises(AssertionError, match="0 points"):
        list(killed_at_writes(start, lambda _: None, exhaustive=False))

"""Words of messages."""

from __future__ import annotations

from rocm_wheels.core import tables


def test_one_is_one() -> None:
    assert [tables.format_count(n, "wheel") for n in (0, 1, 2, 1234)] == [
        "0 wheels",
        "1 wheel",
        "2 wheels",
        "1,234 wheels",
    ]
    assert tables.format_count(2, "line is", "lines are") == "2 lines are"

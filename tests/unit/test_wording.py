"""Numbers as people read them."""

from __future__ import annotations

import pytest

from rocm_wheels.core import tables


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "unknown size"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3_500_000, "3.3 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes(size: int | None, text: str) -> None:
    assert tables.format_size(size) == text


def test_a_size_that_is_not_known_is_what_its_place_says() -> None:
    assert tables.format_size(None, unknown="") == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (125, "2 min 5 s"),
        (7200, "2 h"),
        (7380, "2 h 3 min"),
        (71 * 3600, "71 h"),
        (72 * 3600, "3 d"),
        (14.5 * 86400, "14 d 12 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert tables.format_duration(seconds) == text


def test_counts() -> None:
    assert [tables.format_count(number, "wheel") for number in (0, 1, 2, 1234)] == [
        *("0 wheels", "1 wheel", "2 wheels", "1,234 wheels"),
    ]
    assert tables.format_count(2, "family", "families") == "2 families"

"""Which pieces of a work directory go."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from rocm_wheels.cli import options
from rocm_wheels.pipeline import clean

NOW = 1_000_000.0
DAY = 86400.0


def piece(name: str, days: float, kind: str = "trees") -> clean.Leftover:
    return clean.Leftover(kind, name, Path(name), 10, NOW - days * DAY)


OLD, NEW, MIDDLE = piece("old", 30), piece("new", 0), piece("middle", 7, "fresh")


def test_sizes_are_those_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "piece" / "deep").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"x" * 100_000)
    bare = clean.measure_disk_size(tmp_path / "piece")
    (tmp_path / "piece" / "deep" / "link").symlink_to(tmp_path / "outside")
    assert clean.measure_disk_size(tmp_path / "piece") - bare < 20_000
    (tmp_path / "piece" / "one").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "piece" / "one", tmp_path / "piece" / "two")
    assert 100_000 <= clean.measure_disk_size(tmp_path / "piece") - bare < 120_000


@pytest.mark.parametrize("text", ["0d", "36501d", "99999999999d", "100y"])
def test_wrong_lengths_of_time(text: str) -> None:
    """A date so long ago that no year has a number would be a crash wherever ages are counted."""
    with pytest.raises(click.BadParameter):
        options.Duration().convert(text, None, None)
    assert options.Duration().convert("36500d", None, None) == 36500 * 86400

"""Which pieces of a work directory go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

from rocm_wheels.cli import options
from rocm_wheels.core import errors
from rocm_wheels.pipeline import clean

NOW = 1_000_000.0
DAY = 86400.0


def piece(
    name: str, days: float, size: int = 10, kind: clean.LeftoverKind = "trees", *steps: str
) -> clean.Leftover:
    return clean.Leftover(kind, Path(name), name, size, NOW - days * DAY, frozenset(steps))


OLD, NEW, MIDDLE = piece("old", 30, 50), piece("new", 0, 30), piece("middle", 7, 20, "fresh", "build-a-cp311")
HALF = piece("half", 0, 1, "remains")
ALL = [NEW, OLD, MIDDLE]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (clean.LeftoverSelection(), ["old", "middle", "new"]),
        (clean.LeftoverSelection(older_than=8 * DAY), ["old"]),
        (clean.LeftoverSelection(older_than=7 * DAY), ["old", "middle"]),
        (clean.LeftoverSelection(older_than=31 * DAY), []),
        (clean.LeftoverSelection(max_size=100), []),
        (clean.LeftoverSelection(max_size=99), ["old"]),
        (clean.LeftoverSelection(max_size=49), ["old", "middle"]),
        (clean.LeftoverSelection(max_size=0), ["old", "middle", "new"]),
        (clean.LeftoverSelection(older_than=8 * DAY, max_size=0), ["old"]),
        (clean.LeftoverSelection(steps=("build-a-cp311",)), ["middle"]),
        (clean.LeftoverSelection(older_than=8 * DAY, steps=("build-a-cp311",)), []),
    ],
)
def test_what_was_used_longest_ago_goes_first(choice: clean.LeftoverSelection, names: list[str]) -> None:
    assert [one.name for one in clean.select_leftovers(ALL, choice, now=NOW)] == names


@pytest.mark.parametrize(
    "choice",
    [
        clean.LeftoverSelection(),
        clean.LeftoverSelection(older_than=9 * DAY),
        clean.LeftoverSelection(max_size=10**6),
    ],
)
def test_what_is_half_deleted_always_goes_on(choice: clean.LeftoverSelection) -> None:
    assert clean.select_leftovers([*ALL, HALF], choice, now=NOW)[0] == HALF


def test_a_step_that_left_nothing_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="did you mean build-a-cp311"):
        clean.select_leftovers(ALL, clean.LeftoverSelection(steps=("build-a-cp312",)), now=NOW)


def test_sizes_are_what_the_disk_gets_back(tmp_path: Path) -> None:
    (tmp_path / "piece" / "deep").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"x" * 100_000)
    bare = clean.measure_disk_size(tmp_path / "piece")
    (tmp_path / "piece" / "deep" / "link").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside", tmp_path / "piece" / "shared")
    assert clean.measure_disk_size(tmp_path / "piece") - bare < 20_000
    (tmp_path / "piece" / "one").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "piece" / "one", tmp_path / "piece" / "two")
    assert 100_000 <= clean.measure_disk_size(tmp_path / "piece") - bare < 120_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("1k", 1024),
        ("50G", 50 << 30),
        ("1.5 T", 3 << 39),
        ("2MiB", 2 << 20),
        ("3gb", 3 << 30),
    ],
)
def test_reads_sizes(text: str, size: int) -> None:
    assert options.ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1G", "G", "1X", "1,5G", "50 per cent"])
def test_refuses_what_is_no_size(text: Any) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        options.ByteSize().convert(text, None, None)

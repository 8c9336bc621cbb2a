"""Which pieces of a work directory go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

from rocm_wheels.cli.options import ByteSize
from rocm_wheels.core import UsageError
from rocm_wheels.pipeline import (
    Leftover,
    LeftoverKind,
    LeftoverSelection,
    measure_disk_size,
    select_leftovers,
)

NOW = 1_000_000.0
DAY = 86400.0


def piece(name: str, days: float, size: int = 10, kind: LeftoverKind = "trees", *steps: str) -> Leftover:
    return Leftover(kind, Path(name), name, size, NOW - days * DAY, frozenset(steps))


OLD, NEW, MIDDLE = piece("old", 30, 50), piece("new", 0, 30), piece("middle", 7, 20, "fresh", "build-a-cp311")
HALF = piece("half", 0, 1, "remains")
ALL = [NEW, OLD, MIDDLE]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (LeftoverSelection(), ["old", "middle", "new"]),
        (LeftoverSelection(older_than=8 * DAY), ["old"]),
        (LeftoverSelection(older_than=7 * DAY), ["old", "middle"]),
        (LeftoverSelection(older_than=31 * DAY), []),
        (LeftoverSelection(max_size=100), []),
        (LeftoverSelection(max_size=99), ["old"]),
        (LeftoverSelection(max_size=49), ["old", "middle"]),
        (LeftoverSelection(max_size=0), ["old", "middle", "new"]),
        (LeftoverSelection(older_than=8 * DAY, max_size=0), ["old"]),
        (LeftoverSelection(steps=("build-a-cp311",)), ["middle"]),
        (LeftoverSelection(older_than=8 * DAY, steps=("build-a-cp311",)), []),
    ],
)
def test_what_was_used_longest_ago_goes_first(choice: LeftoverSelection, names: list[str]) -> None:
    assert [one.name for one in select_leftovers(ALL, choice, now=NOW)] == names


@pytest.mark.parametrize(
    "choice", [LeftoverSelection(), LeftoverSelection(older_than=9 * DAY), LeftoverSelection(max_size=10**6)]
)
def test_what_is_half_deleted_always_goes_on(choice: LeftoverSelection) -> None:
    assert select_leftovers([*ALL, HALF], choice, now=NOW)[0] == HALF


def test_a_step_that_left_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean build-a-cp311"):
        select_leftovers(ALL, LeftoverSelection(steps=("build-a-cp312",)), now=NOW)


def test_sizes_are_what_the_disk_gets_back(tmp_path: Path) -> None:
    (tmp_path / "piece" / "deep").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"x" * 100_000)
    bare = measure_disk_size(tmp_path / "piece")
    (tmp_path / "piece" / "deep" / "link").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside", tmp_path / "piece" / "shared")
    assert measure_disk_size(tmp_path / "piece") - bare < 20_000
    (tmp_path / "piece" / "one").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "piece" / "one", tmp_path / "piece" / "two")
    assert 100_000 <= measure_disk_size(tmp_path / "piece") - bare < 120_000


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
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1G", "G", "1X", "1,5G", "50 per cent"])
def test_refuses_what_is_no_size(text: Any) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        ByteSize().convert(text, None, None)

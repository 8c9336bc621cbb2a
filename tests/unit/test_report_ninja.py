"""Logs of ninja, and edges in lanes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.pipeline import ninja_log


def read(folder: Path, text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    (folder / "build.ninja_log").write_text(text)
    edges = ninja_log.read_ninja_log(folder, "/elsewhere/before/it/was/moved/build.ninja_log")
    return [(edge.begin, edge.end, edge.outputs) for edge in edges]


@pytest.mark.parametrize("version", [5, 6, 7])
def test_an_edge_may_make_several_files(tmp_path: Path, version: int) -> None:
    lines = [
        "10\t50\t1763726400\ta.o\tab",
        "10\t50\t1763726400\ta.d\tab",
        "12\t90\t0\tpath with blank.so\tcd",
    ]
    edges = read(tmp_path, "\n".join([f"# ninja log v{version}", *lines, "95\t1", ""]))
    assert edges == [(10, 50, ("a.o", "a.d")), (12, 90, ("path with blank.so",))]


def test_only_the_last_ninja_counts(tmp_path: Path) -> None:
    text = "# ninja log v7\n0\t900\t0\told.o\ta\n0\t950\t0\tolder.o\tb\n0\t40\t0\tnew.o\tc\n"
    assert read(tmp_path, text) == [(0, 40, ("new.o",))]


@pytest.mark.parametrize("name", ["", ".", "missing", "\0", "../" * 9])
def test_a_folder_or_nothing_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.DataError, match="cannot be read"):
        ninja_log.read_ninja_log(tmp_path, name)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), min_size=1, max_size=60))
def test_lanes_never_overlap_and_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    stretches = sorted((begin, begin + length) for begin, length in spans)
    lanes = ninja_log.assign_lanes(stretches)
    for lane in range(max(lanes) + 1):
        own = [stretch for stretch, number in zip(stretches, lanes, strict=True) if number == lane]
        assert own and all(first[1] <= second[0] for first, second in pairwise(own))
    busiest = max(sum(begin <= moment < end for begin, end in stretches) for moment, _ in stretches)
    assert max(lanes) + 1 == busiest

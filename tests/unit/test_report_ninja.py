"""Logs of ninja, and edges in lanes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.pipeline import ninja_log


def written(folder: Path, text: str) -> Path:
    path = folder / "build.ninja_log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("version", [5, 6, 7])
def test_an_edge_may_make_several_files(tmp_path: Path, version: int) -> None:
    lines = [
        "10\t50\t1763726400\ta.o\tab",
        "10\t50\t1763726400\ta.d\tab",
        "12\t90\t0\tpath with blank.so\tcd",
    ]
    path = written(tmp_path, "\n".join([f"# ninja log v{version}", *lines, "95\t1", ""]))
    assert ninja_log.read_ninja_log(path) == (
        ninja_log.NinjaEdge(10, 50, ("a.o", "a.d")),
        ninja_log.NinjaEdge(12, 90, ("path with blank.so",)),
    )


def test_only_the_last_ninja_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path, "# ninja log v7\n0\t900\t0\told.o\ta\n0\t950\t0\tolder.o\tb\n0\t40\t0\tnew.o\tc\n"
    )
    assert ninja_log.read_ninja_log(path) == (ninja_log.NinjaEdge(0, 40, ("new.o",)),)


WRONG = [
    ("", "is no log of ninja"),
    ("# ninja log v4\n", "has version 4 of ninja's log; known are 5 to 7"),
    ("# ninja log v8\n", "has version 8"),
    ("0\t1\t2\ta.o\tb\n", "is no log of ninja"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_no_log_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(errors.DataError, match=said):
        ninja_log.read_ninja_log(written(tmp_path, text))


def test_a_folder_or_nothing_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(errors.DataError, match="cannot be read"):
            ninja_log.read_ninja_log(path)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 200)), min_size=1, max_size=60))
def test_lanes_never_overlap_and_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    edges = [
        ninja_log.NinjaEdge(begin, begin + length, (f"{n}.o",)) for n, (begin, length) in enumerate(spans)
    ]
    packed = ninja_log.assign_lanes(edges)
    assert sorted(edge.outputs for lane in packed for edge in lane) == sorted(edge.outputs for edge in edges)
    for lane in packed:
        assert all(first.end <= second.begin for first, second in pairwise(lane))
    longer = [edge for edge in edges if edge.milliseconds]
    busiest = max((sum(o.begin <= e.begin < o.end for o in longer) for e in edges), default=0)
    assert len(packed) <= max(busiest, 1) + sum(not edge.milliseconds for edge in edges)


KINDS = [
    ("caffe2/torch_hip_generated_Sort.hip.o", "device"),
    ("build/temp/csrc/nms_hip.o", "device"),
    ("csrc/kernel.cu.obj", "device"),
    ("a/Register.cpp.o", "host"),
    ("lib/libtorch_hip.so", "link"),
    ("lib/libc10.so.2.9", "link"),
    ("torch/_C.pyd", "link"),
    ("include/config.h", "other"),
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_edges_are_known_by_what_they_make(name: str, kind: str) -> None:
    assert ninja_log.NinjaEdge(0, 1, (name,)).kind == kind

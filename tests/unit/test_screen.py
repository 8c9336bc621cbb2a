"""What people see of steps that run side by side."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from rocm_wheels.core import configure_log
from rocm_wheels.pipeline import StepDisplay, join_step_lines, read_last_log_line


@pytest.fixture
def printed() -> io.StringIO:
    stream = io.StringIO()
    configure_log({"GITHUB_ACTIONS": "true"}, stream=stream)
    return stream


def test_groups_on_github_never_nest_and_lose_no_line(printed: io.StringIO) -> None:
    """Three steps at a time: the second ends within the first, the third outlives both."""
    screen = StepDisplay()
    for step in ("one", "two", "three"):
        screen.begin_step(step, "no earlier result", Path("x.log"))
    for number in range(2):
        for step in ("one", "two", "three"):
            screen.show_line(step, f"{step} says {number}")
    screen.end_step("two", "failed after", "red")
    screen.show_line("one", "one says 2")
    screen.end_step("one", "done in", "green")
    screen.show_line("three", "three says 2")
    screen.end_step("three", "done in", "green")
    screen.close()
    configure_log({})
    lines = [re.sub(r" 0\.\d s$", "", line) for line in printed.getvalue().splitlines()]
    begin = "::group::{}: starting (no earlier result)"
    assert lines == [
        *(begin.format("one"), "one says 0", "one says 1", "one says 2", "::endgroup::", "one: done in"),
        *(begin.format("two"), "two says 0", "two says 1", "::endgroup::", "two: failed after"),
        *(begin.format("three"), "three says 0", "three says 1", "three says 2", "::endgroup::"),
        "three: done in",
    ]


def test_the_last_line_of_a_log_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "step.log"
    assert read_last_log_line(path) == ""
    path.write_bytes(b"x" * 10_000 + b"\n[1/2] one\n[2/2] two\n\n  \n")
    assert read_last_log_line(path) == "[2/2] two"
    path.write_bytes(b"\xff half")
    assert read_last_log_line(path) == "\N{REPLACEMENT CHARACTER} half"


def test_side_by_side_an_empty_line_says_nothing() -> None:
    stream = io.StringIO()
    configure_log({}, stream=stream)
    screen = StepDisplay()
    screen.begin_step("one", "no earlier result", Path("x.log"))
    for text in ("", "  ", "flash attention: on"):
        screen.show_line("one", text)
    screen.close()
    configure_log({})
    assert stream.getvalue() == "one: starting (no earlier result)\n[one] flash attention: on\n"


LONG = "[12/345] Building HIP object csrc/a.hip.o"


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ([("torch  3 s", LONG)], f"torch  3 s  {LONG}"),
        ([("torch  3 s", ""), ("triton  3 s", "")], "torch  3 s  |  triton  3 s"),
        ([("torch  3 s", LONG), ("llvm  3 s", "ok")], "torch  3 s  [12/345] Building …  |  llvm  3 s  ok"),
        ([("a" * 20, LONG), ("b" * 20, LONG)], f"{'a' * 20}  |  {'b' * 20}"),
    ],
)
def test_the_live_line_has_room_for_every_step(steps: list[tuple[str, str]], shown: str) -> None:
    """All of them are named on a narrow terminal; what they compile has the rest."""
    width = 54 if len(steps) == 1 else 49
    said = join_step_lines(steps, width)
    assert len(said) <= width
    assert said == shown

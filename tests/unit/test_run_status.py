"""What a run is at now, and text of programs as it may be shown."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from runs import WrittenRun

from rocm_wheels.pipeline import run_record
from rocm_wheels.pipeline.status import (
    RunStatus,
    find_last_line,
    read_run_status,
    shorten_digests,
)


def at_work(runs: Path) -> WrittenRun:
    run = WrittenRun(runs)
    run.begin(steps=5)
    run.skip("install-rocm-cp312")
    with run.step("build-triton-cp312", 60):
        pass
    run.begin_step("build-pytorch-cp312", estimate={"seconds": 3600, "source": "2 recorded runs"})
    (run.folder / "build-pytorch-cp312.log").write_text(
        "[1/9] a\n\x1b[32m[2/9]\x1b[0m Building\r[3/9] Linking  it\n\n"
    )
    run.clock.seconds += 600
    return run


def look(run: WrittenRun) -> RunStatus:
    return read_run_status(run_record.read_run(run.folder), run.clock())


def test_what_is_at_work_is_shown_with_what_is_left(tmp_path: Path) -> None:
    status = look(at_work(tmp_path))
    (step,) = status.running
    assert (step.step, step.seconds, step.left, step.source) == (
        "build-pytorch-cp312",
        600,
        3000,
        "2 recorded runs",
    )
    assert step.line == "[3/9] Linking it" and (step.memory or 0) > 10 << 20, "that of this very process"
    assert (status.seconds, status.to_come) == (660, 2)


def test_what_is_left_of_a_run_is_its_longest_way(tmp_path: Path) -> None:
    run = at_work(tmp_path)
    assert look(run).left is None
    torch = {"id": "build-pytorch-cp312", "after": ["build-triton-cp312"], "estimate": {"seconds": 9999}}
    audio = {"id": "build-audio-cp312", "after": ["build-pytorch-cp312"], "estimate": {"seconds": 200}}
    apex = {"id": "build-apex-cp312", "after": ["build-pytorch-cp312"], "estimate": {"seconds": 700}}
    done = {"id": "build-triton-cp312", "after": [], "estimate": {"seconds": 50_000}}
    last = {"id": "variant-apex-cp312", "after": ["build-apex-cp312"], "estimate": None}
    (run.folder / "plan.json").write_text(json.dumps({"steps": [done, torch, audio, apex, last]}))
    assert look(run).left == 3000 + 700
    run.clock.seconds += 9000
    assert look(run).left == 700


def test_a_clock_that_is_set_changes_nothing(tmp_path: Path) -> None:
    run = at_work(tmp_path)
    run.clock.jump = timedelta(days=-4)
    assert (look(run).seconds, look(run).running[0].seconds) == (660, 600)


def test_of_another_machine_the_time_of_day_tells(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin(host="another", steps=None)
    run.begin_step("build-pytorch-cp312")
    day, _ = run.clock()
    status = read_run_status(run_record.read_run(run.folder), (day + timedelta(seconds=90), 3.0))
    assert (status.seconds, status.to_come, status.running[0].seconds) == (90, None, 90)
    assert status.running[0].memory is None


def test_a_step_without_a_log_is_shown_without(tmp_path: Path) -> None:
    run = at_work(tmp_path)
    (run.folder / "build-pytorch-cp312.log").unlink()
    run.begin_step("build-odd", log="\0")
    assert [step.line for step in look(run).running] == ["", ""]


def test_a_run_that_is_over_keeps_its_time(tmp_path: Path) -> None:
    run = at_work(tmp_path)
    run.end_step("build-pytorch-cp312", seconds=600)
    run.end()
    run.clock.seconds += 9999
    assert (look(run).seconds, look(run).running) == (660, ())


def test_long_digests_are_cut_and_nothing_else_is() -> None:
    long, word = "0123456789abcdef" * 4, "a" * 11
    assert (
        shorten_digests(f"changed ({long} → {long[:40]}) {word} gfx942")
        == f"changed ({long[:12]}… → {long[:12]}…) {word} gfx942"
    )


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"a\nb", "b"),
        (b"a\rb\r\n", "b"),
        (b"a\n\x1b[0m\n", "a"),
        (b"\xff\xfe x\n", "\ufffd\ufffd x"),
        (b"[7/9] /opt/clang++ -DX=1 -c a/b.hip -o out/a/b.hip.o -O2\n", "[7/9] b.hip.o"),
        (b"[8/9] Linking\n", "[8/9] Linking"),
    ],
)
def test_the_last_line_with_anything_on_it(tail: bytes, line: str) -> None:
    assert find_last_line(tail) == line


def test_what_is_left_of_a_build_comes_from_ninja_once_it_says_something(tmp_path: Path) -> None:
    run = at_work(tmp_path)
    log = run.folder / "build-pytorch-cp312.log"
    run.record.write("ninja-begun", step="build-pytorch-cp312", done=1, commands=101)
    run.clock.seconds += 100
    log.write_text("[1/101] a\n")
    (step,) = look(run).running
    assert (step.source, step.left) == ("2 recorded runs", 2900)
    log.write_text("[1/101] a\n[51/101] b\nwarning: [8/9] c\n")
    (step,) = look(run).running
    assert (step.source, step.left) == ("ninja: 51 of 101 commands", 100)
    log.write_text("[101/101] b\nbuilding the wheel\n")
    (step,) = look(run).running
    assert (step.source, step.left) == ("2 recorded runs", 2900)

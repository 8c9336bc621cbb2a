"""What is read of a run's record, whatever ended the run or damaged the file."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import NOON, WrittenRun

from rocm_wheels.pipeline import run_record

WHEEL = {"path": "/d/torch.whl", "size": 5, "sha256": "ab", "project": "pytorch", "targets": ["gfx942"]}


def whole(runs: Path) -> WrittenRun:
    run = WrittenRun(runs)
    run.begin()
    run.skip("install-rocm-cp312", outputs=[{"path": "/d/triton.whl", "size": 4, "sha256": "cd"}])
    with run.step("build-pytorch-cp312", 40):
        run.record.write("output", step="build-pytorch-cp312", **WHEEL)
    with run.step("build-audio-cp312", 2.5, "failed"):
        pass
    run.end("failed", 12)
    return run


def test_a_whole_run(tmp_path: Path) -> None:
    run = run_record.read_run(whole(tmp_path).folder)
    assert (run.id, run.state, run.seconds) == ("20261121-120000", "failed", 42.5)
    assert (run.damaged, run.torn) == (0, False)
    assert {name: (s.state, s.seconds) for name, s in run.steps.items()} == {
        "install-rocm-cp312": ("skipped", None),
        "build-pytorch-cp312": ("done", 40),
        "build-audio-cp312": ("failed", 2.5),
    }
    assert [o["path"] for s in run.steps.values() for o in s.outputs] == ["/d/triton.whl", "/d/torch.whl"]
    assert run.count_steps("done", "skipped") == 2


TORCH = "build-pytorch-cp312"


def begun(runs: Path, **process: object) -> WrittenRun:
    """A run whose step is at work."""
    run = WrittenRun(runs)
    run.begin(**process)
    run.begin_step(TORCH, **process)
    return run


def states(run: WrittenRun) -> tuple[str, str]:
    """How the run and its step are."""
    found = run_record.read_run(run.folder)
    return found.state, found.steps[TORCH].state


def test_a_run_without_an_end_is_running_while_its_process_lives(tmp_path: Path) -> None:
    assert states(begun(tmp_path)) == ("running", "running")


@pytest.mark.parametrize("process", [{"pid": 2**22 + 1}, {"began": "another boot 1"}, {"pid": None}])
def test_a_run_without_an_end_was_killed_when_its_process_is_gone(
    tmp_path: Path, process: dict[str, object]
) -> None:
    run = begun(tmp_path, **process)
    assert states(run) == ("killed", "killed")
    assert run_record.read_run(run.folder).steps[TORCH].seconds is None


def test_a_step_that_outlives_its_run_is_still_shown_at_work(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin(pid=2**22 + 1)
    run.begin_step(TORCH)
    assert states(run) == ("killed", "running")


def test_a_run_on_another_machine_cannot_be_called_killed(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin(host="another", pid=2**22 + 1)
    found = run_record.read_run(run.folder)
    assert (found.state, found.elsewhere) == ("running", True)
    run.end()
    found = run_record.read_run(run.folder)
    assert (found.state, found.elsewhere) == ("done", False)


def test_an_end_of_the_run_ends_its_steps(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.end("interrupted", 130)
    assert states(run)[1] == "killed"


def test_durations_do_not_follow_a_clock_that_is_set(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.clock.jump = timedelta(hours=-30)
    run.clock.seconds += 7
    run.end_step(TORCH, seconds=None)
    run.record.write("run-ended", outcome="done", seconds=None, exit_code=0)
    found = run_record.read_run(run.folder)
    assert (found.steps[TORCH].seconds, found.seconds) == (7, 7)


def test_a_step_that_began_again_counts_from_there(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin()
    for outcome in ("failed", "done"):
        with run.step("build-pytorch-cp312", 3, outcome):
            run.record.write("output", step="build-pytorch-cp312", **WHEEL)
    step = run_record.read_run(run.folder).steps["build-pytorch-cp312"]
    assert (step.state, len(step.outputs)) == ("done", 1)


DAMAGE = [
    (b'{"event":"step-en', 0, True),
    (b"\n\n", 0, False),
    (b"\x00\x00\x00\n", 1, False),
    (b"[1]\n", 1, False),
    (b"9" * 5000 + b"\n", 1, False),
    (b"[" * 100000 + b"\n", 1, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":1,"event":"step-ended","step":"x","seconds":"7"}\n', 0, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":NaN,"event":"run-ended"}\n', 1, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":1e400,"event":"run-ended"}\n', 1, False),
    (b'{"time":"yesterday","clock":1,"event":"run-ended"}\n', 1, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":1,"event":"run-begun","targets":[null]}\n', 0, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":1,"event":"step-ended"}\n', 0, False),
    (b'{"time":"2026-11-21T12:00:00Z","clock":1,"event":"of-a-later-version","new":[{}]}\n', 0, False),
]


@pytest.mark.parametrize(("added", "damaged", "torn"), DAMAGE)
def test_damage_is_counted_and_the_rest_is_read(
    tmp_path: Path, added: bytes, damaged: int, torn: bool
) -> None:
    run = whole(tmp_path)
    with run.record.path.open("ab") as file:
        file.write(added)
    found = run_record.read_run(run.folder)
    assert (found.damaged, found.torn, found.state, found.count_steps("done")) == (damaged, torn, "failed", 1)
    run.record.write("of-a-later-version")
    assert run_record.read_run(run.folder).damaged == damaged + torn


def test_a_step_shows_even_when_its_begin_is_damaged(tmp_path: Path) -> None:
    run = whole(tmp_path)
    text = run.record.path.read_bytes()
    damaged = text.replace(b'"step-begun","step":"build-audio', b'"step-begun,"step":"build-audio')
    run.record.path.write_bytes(damaged)
    found = run_record.read_run(run.folder)
    assert (found.damaged, found.steps["build-audio-cp312"].seconds) == (1, 2.5)


_HOLES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 30), st.binary(max_size=4)), min_size=1, max_size=5
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole(tmp_path_factory.mktemp("runs")).record.path.read_bytes()


@given(_HOLES)
@settings(max_examples=200, deadline=None)
def test_no_damage_makes_a_record_unreadable(text: bytes, holes: list[tuple[float, int, bytes]]) -> None:
    damaged = bytearray(text)
    for place, length, put in holes:
        begin = int(place * len(damaged))
        damaged[begin : begin + length] = put
    with TemporaryDirectory() as folder:
        (Path(folder) / "events.jsonl").write_bytes(damaged)
        found = run_record.read_run(Path(folder))
    for step in found.steps.values():
        assert step.seconds is None or step.seconds >= -1e10
        assert isinstance(step.outputs, tuple)


def test_a_run_that_recorded_nothing_was_killed(tmp_path: Path) -> None:
    run = run_record.read_run(WrittenRun(tmp_path).folder)
    assert (run.state, run.events, run.seconds, run.last_clock) == ("killed", (), None, 0)


def test_runs_are_listed_newest_first_and_nothing_else_is(tmp_path: Path) -> None:
    for seconds in (0, 0, *[5] * 11):
        WrittenRun(tmp_path, NOON + timedelta(seconds=seconds)).begin()
    (tmp_path / "20261121-999999-x").mkdir()
    (tmp_path / "20271121-120000").write_text("a file")
    ids = run_record.list_run_ids(tmp_path)
    assert ids[:2] == ["20261121-120005-11", "20261121-120005-10"]
    assert ids[-2:] == ["20261121-120000-2", "20261121-120000"]
    assert [run.id for run in run_record.list_runs(tmp_path, limit=3)] == ids[:3]
    assert (latest := run_record.read_newest_run(tmp_path)) is not None
    assert latest.id == ids[0]
    assert run_record.read_newest_run(tmp_path / "missing") is None


def test_a_list_leaves_out_what_is_not_in_it(tmp_path: Path) -> None:
    run = whole(tmp_path)
    with run.record.path.open("ab") as file:
        file.write(b'{"event":"command","command":"echo \\"event\\":\\"step-"}\n' * 50_000)
    begin = time.process_time()
    (brief,) = run_record.list_runs(tmp_path)
    assert (brief.state, brief.count_steps("done", "failed", "skipped")) == ("failed", 3)
    assert time.process_time() - begin < 0.5  # 0.05 here

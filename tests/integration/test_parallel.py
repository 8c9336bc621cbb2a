"""Work side by side: order, failures, interruptions, and programs that fall silent."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from rocm_wheels.core import errors, log, parallel, process

ENV = dict(os.environ)


def test_results_come_in_the_order_of_the_items_whatever_is_ready_first() -> None:
    ready = [threading.Event() for _ in range(3)]
    after = {0: 2, 2: 1}  # ready in this order: 1, 2, 0

    def work(number: int) -> int:
        if number in after:
            assert ready[after[number]].wait(20)
        ready[number].set()
        return number

    assert parallel.run_in_parallel(work, range(3), jobs=3) == [0, 1, 2]


def test_work_that_finds_more_work_does_all_of_it() -> None:
    def work(number: int) -> tuple[int, Iterable[int]]:
        return number, [2 * number, 2 * number + 1] if number < 8 else []

    assert sorted(parallel.run_growing_work(work, [1], jobs=4)) == list(range(1, 16))


def test_the_first_failure_is_raised_and_nothing_new_begins() -> None:
    begun = []
    failed = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        if number == 1:
            failed.set()
            raise errors.SourceError("one")
        assert failed.wait(20)
        return number

    with pytest.raises(errors.SourceError, match="one"):
        parallel.run_in_parallel(work, range(20), jobs=2)
    assert len(begun) <= 4


def test_an_interruption_ends_the_programs_of_every_thread(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    up = threading.Event()

    def sleeper(_: int) -> None:
        process.run_command(argv, env=ENV, on_line=lambda _: up.set(), check=None)

    def interrupted(number: int) -> None:
        if number == 0:
            assert up.wait(20)
            raise KeyboardInterrupt
        sleeper(number)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        parallel.run_in_parallel(interrupted, range(3), jobs=3)
    assert time.monotonic() - begin < 20


def test_each_thread_notes_programs_where_its_caller_does(tmp_path: Path) -> None:
    ledgers = [tmp_path / "a", tmp_path / "b"]
    seen = {}

    def work(ledger: Path) -> None:
        with process.note_groups_in(ledger):
            process.run_command(
                [sys.executable, "-c", "print('up', flush=True); input()"],
                env=ENV,
                on_line=lambda _: seen.setdefault(ledger, ledger.read_text()),
                check=None,
            )

    parallel.run_in_parallel(work, ledgers, jobs=2)
    assert all(seen[ledger].startswith("+") for ledger in ledgers) or sys.platform != "linux"
    assert not any(ledger.exists() for ledger in ledgers)


def test_a_silent_program_is_ended_and_one_that_draws_progress_is_not() -> None:
    # at last a line of dots that takes longer than it may be silent
    drawing = "import time\nfor n in range(10): print(n, end='.\\r'[n < 3], flush=True); time.sleep(0.4)"
    drawn: list[str] = []
    process.run_command([sys.executable, "-c", drawing], env=ENV, silence=3, on_line=drawn.append)
    then_silent = "import time; print('all is here', flush=True); time.sleep(3.5)"
    process.run_command(
        [sys.executable, "-c", then_silent], env=ENV, silence=3, ends_silence=lambda line: "all" in line
    )
    assert drawn[:3] == ["0", "1", "2"]
    with pytest.raises(errors.SourceError, match=r"stopped after 0\.5 s without any progress"):
        process.run_command(
            [sys.executable, "-c", "import time; time.sleep(30)"],
            env=ENV,
            silence=0.5,
            check=errors.SourceError,
        )


def test_lines_of_work_side_by_side_say_whose_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    def work(name: str) -> None:
        with log.prefix_log_lines(name):
            log.log_note("begun")

    parallel.run_in_parallel(work, ["torch", "apex"], jobs=2)
    assert sorted(capsys.readouterr().err.splitlines()) == ["[apex] begun", "[torch] begun"]

"""Programs that we start, and work side by side: groups that end, order, failures, a record of several."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from projects import wait_until

import rocm_wheels
from rocm_wheels.core import errors, files, log, parallel, process
from rocm_wheels.pipeline import run_record

pytestmark = pytest.mark.contract

# a program that starts another one, and ends only when it is made to
FAMILY = "sleep 1000 & sleep 1000"
HOLDER = """
import sys
from pathlib import Path
from rocm_wheels.core.files import lock_folder
from rocm_wheels.core.process import run_command
with lock_folder(Path(sys.argv[1]), purpose="a test"):
    run_command(["sh", "-c", sys.argv[2]], env={"PATH": sys.argv[3]})
"""


def alive(leader: int) -> list[int]:
    return process.list_group_members({leader})


def carriers(mark: str) -> list[int]:
    """Return the live processes that were started with ``MARK`` in their environment; a zombie has none."""
    held = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            if f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                held.append(int(entry.name))
    return held


def started_in(folder: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        noted = (folder / ".groups").read_text() if (folder / ".groups").exists() else ""
        leaders = [int(line[1:].split()[0]) for line in noted.splitlines() if line.startswith("+")]
        if leaders and len(alive(leaders[0])) >= 2:
            return leaders[0]
        time.sleep(0.01)
    raise AssertionError("nothing was started")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_killed_run_had_started_is_ended_by_the_next(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path), FAMILY, os.environ["PATH"]]
    holder = subprocess.Popen(argv, start_new_session=True)
    leader = started_in(tmp_path)
    with (
        pytest.raises(errors.UsageError, match=f"is in use by process {holder.pid}"),
        files.lock_folder(tmp_path, purpose="second"),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert len(alive(leader)) >= 2
    with files.lock_folder(tmp_path, purpose="next"):
        assert alive(leader) == []
    assert re.search(r"ended \d+ process(es)? of a run that was killed", capfd.readouterr().err)
    assert not (tmp_path / ".groups").exists()


@pytest.mark.parametrize("start", [process.run_command, process.capture_output], ids=["run", "capture"])
def test_a_timeout_ends_the_whole_group(start: object, tmp_path: Path) -> None:
    assert callable(start)
    pid_file = tmp_path / "pid"
    words = ["sh", "-c", f"echo $$ > {pid_file}; {FAMILY}"]
    with pytest.raises(errors.BuildError, match="was stopped after 1 s without an end"):
        start(words, env={"PATH": os.environ["PATH"]}, timeout=1)
    assert alive(int(pid_file.read_text())) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there it is so anyway")
def test_a_timeout_ends_the_whole_tree_where_there_are_no_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocm_wheels.core.process._WINDOWS", True)
    pid_file = tmp_path / "pids"
    words = ["sh", "-c", f"sleep 1000 & echo $! $$ > {pid_file}; sleep 1000"]
    with pytest.raises(errors.BuildError, match="was stopped after 1 s without an end"):
        process.run_command(words, env={"PATH": os.environ["PATH"]}, timeout=1)
    assert not any(process.is_process_alive(int(pid), "") for pid in pid_file.read_text().split())


@pytest.mark.parametrize("start", [process.run_command, process.capture_output], ids=["run", "capture"])
def test_a_full_disk_is_told_apart(start: object) -> None:
    assert callable(start)
    words = ["sh", "-c", "echo 'fatal: write error: No space left on device' >&2; exit 128"]
    with pytest.raises(errors.BuildError) as caught:
        start(words, env={"PATH": os.environ["PATH"]}, tip="wait for the network")
    assert caught.value.tip == "free some space, then run the same command again"


def test_a_full_disk_is_seen_above_what_a_message_repeats() -> None:
    words = ["sh", "-c", "echo 'No space left on device' >&2; seq 100 >&2; exit 1"]
    with pytest.raises(errors.BuildError) as caught:
        process.capture_output(words, env={"PATH": os.environ["PATH"]})
    assert caught.value.tip == "free some space, then run the same command again"
    assert [line.strip(" |") for line in caught.value.message.splitlines()[1:]] == [
        str(number) for number in range(86, 101)
    ]


def test_a_value_is_stdout_alone() -> None:
    env = {"PATH": os.environ["PATH"]}
    assert process.capture_output(["sh", "-c", "echo noise >&2; echo value"], env=env) == "value"
    with pytest.raises(errors.BuildError, match=r"(?s)failed with exit code 3:.*the reason"):
        process.capture_output(["sh", "-c", "echo 7.1; echo the reason >&2; exit 3"], env=env)
    with pytest.raises(errors.BuildError, match="was killed by signal 9"):
        process.capture_output(["sh", "-c", "kill -9 $$"], env=env)


def test_output_is_kept_and_credentials_are_not(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    seen: list[str] = []
    secret = "https://me:secret@example.invalid/simple"
    process.run_command(
        ["sh", "-c", f"echo fetching {secret}"],
        env={"PATH": os.environ["PATH"]},
        log=log,
        on_line=seen.append,
    )
    assert seen == ["fetching https://***@example.invalid/simple"]
    assert "secret" not in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("began", ["", " {boot} 1", " 00000000-0000-0000-0000-000000000000 {ticks}"])
def test_a_number_that_is_somebody_elses_now_is_left_alone(tmp_path: Path, began: str) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = Path("/proc", str(stranger.pid), "stat").read_text().split()[21]
        (tmp_path / ".groups").write_text(f"+{stranger.pid}{began.format(boot=boot, ticks=ticks)}\n")
        with files.lock_folder(tmp_path, purpose="a test"):
            assert alive(stranger.pid) == [stranger.pid]
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_program_whose_begin_cannot_be_noted_does_not_go_on(tmp_path: Path) -> None:
    started: list[int] = []

    def noted(pid: int) -> None:
        started.append(pid)
        raise OSError(28, "No space left on device")

    env = {"PATH": os.environ["PATH"]}
    with pytest.raises(OSError, match="No space left") as caught:
        process.run_command(["sh", "-c", FAMILY], env=env, on_start=noted, log=tmp_path / "step.log")
    assert (caught.value.filename, alive(started[0])) == (str(tmp_path / "step.log"), [])
    with (
        process.note_groups_in(tmp_path / "no such folder" / ".groups"),
        pytest.raises(OSError, match="No such file"),
    ):
        process.run_command(["sh", "-c", FAMILY], env={**env, "MARK": str(tmp_path)})
    assert carriers(str(tmp_path)) == []  # it may be stopped before it can tell its number
    other = subprocess.Popen(["sleep", "1000"], env={**env, "MARK": str(tmp_path)})
    try:
        assert carriers(str(tmp_path)) == [other.pid]
    finally:
        other.kill()
        other.wait()


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


WRITER = """
import sys
from pathlib import Path
from rocm_wheels.pipeline.run_record import RunRecord
record = RunRecord(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    record.write("command", step=sys.argv[2], command="x" * (number * 37 % 9000), number=number)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_writer_that_is_killed_takes_nothing_of_the_others_with_it(tmp_path: Path) -> None:
    record = run_record.create_run_record(tmp_path, datetime.now(timezone.utc))
    env = {**os.environ, "PYTHONPATH": str(Path(rocm_wheels.__file__).parent.parent)}

    def write(step: str, lines: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WRITER, record.folder, step, str(lines)], env=env)

    other = write("build-audio", 300)
    for number in range(4):
        victim = write(step := f"victim-{number}", 1000000)
        wait_until(lambda step=step: step in run_record.read_run(record.folder).steps, "its lines", 60)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    assert other.wait() == 0
    run = run_record.read_run(record.folder)
    assert [event["number"] for event in run.steps["build-audio"].events] == list(range(300))
    assert run.damaged <= 4
    for number in range(4):
        seen = [event["number"] for event in run.steps[f"victim-{number}"].events]
        assert seen == list(range(len(seen)))

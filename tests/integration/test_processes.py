"""Programs that we start: whole groups end with us, with a timeout, and with the run after a kill."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocm_wheels.core import errors, files, process

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

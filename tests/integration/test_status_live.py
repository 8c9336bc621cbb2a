"""``runs show --watch`` beside a run that goes on, ends, or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

import rocm_wheels
from rocm_wheels.pipeline import run_record

RUN = """
import os, platform, sys, time
from pathlib import Path
from rocm_wheels.core.process import get_process_start
from rocm_wheels.pipeline.run_record import RunRecord
record = RunRecord(Path(sys.argv[1]))
log = record.folder / "build-pytorch.log"
mark = {"pid": os.getpid(), "began": get_process_start(os.getpid())}
record.write("run-begun", host=platform.node(), steps=1, **mark)
guess = {"seconds": 100, "source": "a guess"}
record.write("step-begun", step="build-pytorch", log=log, estimate=guess, **mark)
held = bytearray(50 << 20)
log.write_text("[1/2] Compiling\\n")
sys.stdin.readline()
record.write("step-ended", step="build-pytorch", outcome="done", seconds=1)
record.write("run-ended", outcome="done", seconds=1, exit_code=0)
"""
AGAIN = f"""{RUN}
time.sleep(2)
folder = record.folder.with_name(record.folder.name + "-2")
folder.mkdir()
record = RunRecord(folder)
{RUN[RUN.index("log =") :].replace("sys.stdin.readline()", "time.sleep(1)")}"""
ENV = {**os.environ, "PYTHONPATH": str(Path(rocm_wheels.__file__).parent.parent), "PYTHONUNBUFFERED": "1"}
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="a live process is known on Linux"
)


def started(work: Path, code: str = RUN) -> tuple[subprocess.Popen[str], subprocess.Popen[str], str]:
    """Start a run, and a watcher beside it; return them and the watcher's first look."""
    record = run_record.create_run_record(work / "runs", datetime.now(timezone.utc))
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(record.folder)], env=ENV, stdin=subprocess.PIPE, text=True
    )
    log, deadline = record.folder / "build-pytorch.log", time.monotonic() + 30
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    words = ["runs", "show", "--watch", "--work-dir", str(work)]
    watcher = subprocess.Popen(
        [sys.executable, "-m", "rocm_wheels", *words], env=ENV, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    return run, watcher, "".join(watcher.stdout.readline() for _ in range(5))


def test_a_run_is_watched_to_its_end(tmp_path: Path) -> None:
    run, watcher, first = started(tmp_path)
    assert ": running, " in first
    assert " left (a guess)" in first
    assert " MiB\n" in first
    assert "  [1/2] Compiling\n" in first
    run.communicate("go\n", timeout=30)
    rest, _ = watcher.communicate(timeout=30)
    assert watcher.returncode == 0
    assert "state   done after 1 s\n" in rest and "build-pytorch  done" in rest


def test_the_next_run_of_the_same_command_is_watched_too(tmp_path: Path) -> None:
    """As of `build` for several Pythons: a process, and a run for each."""
    run, watcher, _ = started(tmp_path, AGAIN)
    run.communicate("go\n", timeout=30)
    rest, _ = watcher.communicate(timeout=30)
    assert watcher.returncode == 0
    assert rest.count("state   done after 1 s\n") == 2


def test_a_run_that_is_killed_while_it_is_watched(tmp_path: Path) -> None:
    run, watcher, _ = started(tmp_path)
    run.kill()
    run.wait()
    rest, _ = watcher.communicate(timeout=30)
    assert "state   killed after " in rest
    assert "build-pytorch: killed: no end is recorded" in rest


def test_watching_is_ended_by_an_interruption(tmp_path: Path) -> None:
    run, watcher, _ = started(tmp_path)
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=30)
    assert watcher.returncode == 0
    run.communicate("go\n", timeout=30)

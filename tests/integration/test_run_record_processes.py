"""One record, written by several processes at a time, of which some are killed."""

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

WRITER = """
import sys
from pathlib import Path
from rocm_wheels.pipeline.run_record import RunRecord
record = RunRecord(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    record.write("command", step=sys.argv[2], command="x" * (number * 37 % 9000), number=number)
"""
PACKAGES = str(Path(rocm_wheels.__file__).parent.parent)


def start(code: str, *words: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": PACKAGES}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=env)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_writer_that_is_killed_takes_nothing_of_the_others_with_it(tmp_path: Path) -> None:
    record = run_record.create_run_record(tmp_path, datetime.now(timezone.utc))
    other = start(WRITER, str(record.folder), "build-audio", "300")
    for number in range(4):
        victim = start(WRITER, str(record.folder), f"victim-{number}", "1000000")
        deadline = time.monotonic() + 60
        while (
            f"victim-{number}" not in run_record.read_run(record.folder).steps and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    assert other.wait() == 0
    run = run_record.read_run(record.folder)
    assert [event["number"] for event in run.steps["build-audio"].events] == list(range(300))
    assert run.damaged <= 4
    for number in range(4):
        seen = [event["number"] for event in run.steps[f"victim-{number}"].events]
        assert seen == list(range(len(seen)))

"""Locks of folders: given back at once, whoever has a copy of the open file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocm_wheels.core import files

OPEN_FILES = Path("/proc/self/fd")


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_a_lock_is_free_at_once_though_a_child_has_the_file_open(tmp_path: Path) -> None:
    copies = []
    with files.lock_folder(tmp_path, purpose="a test"):
        for entry in OPEN_FILES.iterdir():
            if os.path.realpath(entry) == str(tmp_path / ".lock"):
                copies.append(os.dup(int(entry.name)))  # as a forked child has it until it becomes a program
    try:
        with files.lock_folder(tmp_path, purpose="another"):
            assert copies
    finally:
        for file in copies:
            os.close(file)


HOLDER = """
import os, signal, subprocess, sys
from pathlib import Path
from rocm_wheels.core.files import lock_folder

with lock_folder(Path(sys.argv[1]), purpose="to be killed"):
    lock = next(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")
        and os.path.realpath(f"/proc/self/fd/{n}").endswith(".lock"))
    subprocess.Popen(["cat"], stdin=0, stdout=subprocess.DEVNULL, pass_fds=[lock], start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_a_lock_of_a_killed_run_is_free_when_what_it_had_just_started_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:  # its child reads until that is closed
        assert holder.wait() == -signal.SIGKILL
        assert holder.stdin is not None
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(_hold, tmp_path)
            holder.stdin.close()
            waiting.result()


def _hold(folder: Path) -> None:
    with files.lock_folder(folder, purpose="another"):
        pass

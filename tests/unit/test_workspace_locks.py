"""Locks of folders: given back at once, whoever has a copy of the open file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rocm_wheels.core import lock_folder

OPEN_FILES = Path("/proc/self/fd")


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_a_lock_is_free_at_once_though_a_child_has_the_file_open(tmp_path: Path) -> None:
    copies = []
    with lock_folder(tmp_path, purpose="a test"):
        for entry in OPEN_FILES.iterdir():
            if os.path.realpath(entry) == str(tmp_path / ".lock"):
                copies.append(os.dup(int(entry.name)))  # as a forked child has it until it becomes a program
    try:
        with lock_folder(tmp_path, purpose="another"):
            assert copies
    finally:
        for file in copies:
            os.close(file)

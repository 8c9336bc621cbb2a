"""Process groups that a killed run left behind.

``kill -9`` takes us, not the compilers that we started: they would go on writing into a build
tree that the next run is using. While a folder is held, each group is noted in a file there; the
next holder ends what is still alive. A group counts as ours only when its processes are in
the session that we made for it: a number that was given to somebody else since is left alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_SECONDS = 10.0


@dataclass
class _Ledger:
    """Where groups are noted at the moment, if anywhere."""

    path: Path | None = None


_ledger = _Ledger()


@contextmanager
def noted_in(path: Path) -> Iterator[None]:
    """Note every group that is started inside in ``path``; the file is gone afterwards."""
    outer = _ledger.path
    _ledger.path = path
    try:
        yield
    finally:
        _ledger.path = outer
        path.unlink(missing_ok=True)


def started(leader: int) -> None:
    """Note a group, named by its leader."""
    _write(f"+{leader}\n")


def ended(leader: int) -> None:
    """Note that a group is over."""
    _write(f"-{leader}\n")


def end_left_behind(path: Path) -> list[int]:
    """End the groups noted in ``path`` that are still alive; return their processes."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return []
    over = {line[1:] for line in lines if line.startswith("-")}
    open_groups = {line[1:] for line in lines if line.startswith("+")} - over
    leaders = {int(text) for text in open_groups if text.isdecimal()}
    found = members(leaders)
    for pid in found:
        _kill(pid)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while members(leaders) and time.monotonic() < deadline:
        time.sleep(0.02)
    path.unlink(missing_ok=True)
    return found


def members(leaders: set[int]) -> list[int]:
    """Return the live processes in the sessions of ``leaders`` (Linux; elsewhere none are found)."""
    if sys.platform != "linux" or not leaders:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            state, session = fields[0], int(fields[3])
            if session in leaders and state not in "ZX":
                found.append(int(entry.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def _write(line: str) -> None:
    if _ledger.path is not None:
        with _ledger.path.open("a", encoding="ascii") as file:
            file.write(line)

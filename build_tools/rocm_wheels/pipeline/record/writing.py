"""Appending events to a run's record: JSON lines that several processes write side by side.

An event goes to the disk by one write to a file opened for appending, so that lines of several
processes never mix (POSIX ``O_APPEND``), and is fsynced: what is in the record outlives a ``kill -9``
and a power cut. A process that was killed, or met a full disk, in the middle of its write leaves a
torn line; the next event begins on a line of its own.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels.errors import name_failed_file
from rocm_wheels.shell import hide_credentials

EVENTS_FILE = "events.jsonl"
_RUN_ID = re.compile(r"\d{8}-\d{6}(?:-\d{1,9})?")
_OWN_FIELDS = ("time", "clock", "event")
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

Moment = tuple[datetime, float]


def read_moment() -> Moment:
    """Return the time of day (UTC) and the clock that no one sets: seconds since the machine started."""
    return datetime.now(timezone.utc), time.monotonic()


@dataclass(frozen=True)
class RunRecord:
    """The record of one run, in its folder. ``moment`` tells the time of day and of the clock."""

    folder: Path
    moment: Callable[[], Moment] = read_moment

    @property
    def path(self) -> Path:
        """The file of events."""
        return self.folder / EVENTS_FILE

    def write(self, event: str, **fields: object) -> None:
        """Append an event: it is on the disk when this returns. Credentials in URLs are hidden.

        Fields are plain values, paths, and lists, tuples and mappings of these. Raises OSError (a full disk).
        """
        if reserved := [name for name in _OWN_FIELDS if name in fields]:
            raise ValueError(f"{', '.join(reserved)}: every event has this of its own")
        now, clock = self.moment()
        day = now.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        full = {"time": day, "clock": round(clock, 6), "event": event, **fields}
        line = (
            json.dumps(_make_json_value(full), allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
        )
        file = os.open(self.path, _OPEN_FLAGS, 0o644)
        try:
            if not _ends_with_newline(file):
                line = b"\n" + line
            if os.write(file, line) < len(line):  # the rest cannot follow: others may have written since
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(file)
        except OSError as failure:
            name_failed_file(failure, self.path)
            raise
        finally:
            os.close(file)


def create_run_record(runs: Path, now: datetime) -> RunRecord:
    """Make the folder of a new run below ``runs``, named by its time (UTC), and return its record.

    Of runs that begin in one second each gets a name of its own: ``20261121-154130``, ``…-2``, ``…-3``.
    So do runs after a clock was set back: by its name the newest run is the last one all the same.
    """
    runs.mkdir(parents=True, exist_ok=True)
    name = now.astimezone(timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = max([name, *(entry.name[:15] for entry in runs.iterdir() if _RUN_ID.fullmatch(entry.name))])
    number = 1
    while True:
        folder = runs / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return RunRecord(folder)


def _ends_with_newline(file: int) -> bool:
    """Tell whether an event may begin here; a line that another process is writing now counts as torn."""
    end = os.lseek(file, 0, os.SEEK_END)
    if not end:
        return True
    os.lseek(file, end - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _make_json_value(value: object) -> object:
    """Return a value as JSON has it, with no credentials in it."""
    if isinstance(value, str):
        return hide_credentials(value)
    if isinstance(value, os.PathLike):
        return hide_credentials(os.fspath(value))
    if isinstance(value, Mapping):
        return {str(key): _make_json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_json_value(inner) for inner in value]
    return value

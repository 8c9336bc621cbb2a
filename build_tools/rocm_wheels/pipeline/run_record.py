"""The record of a run: a file of events that every process of the run appends to, and how it is read.

An event is a JSON line: ``time`` (of day, UTC), ``clock`` (seconds since the machine started, which no one
sets), ``event`` and its fields. It is written by one write to a file opened for appending, so that lines of
several processes never mix (POSIX ``O_APPEND``), and fsynced: it outlives a ``kill -9`` and a power cut. A
write that broke off leaves a torn line; the next event begins on a line of its own.

================  ====================================================================================
run-begun         run version command pid began host platform cores memory plan steps lock lock_digest
                  targets pythons against output
preflight         findings: check severity text tip
step-skipped      step why fingerprint outputs (path size sha256) targets version
step-begun        step why after command environment fingerprint log pid began jobs
                  estimate: seconds disk memory source
packages          step project locked packages: name version file sha256 source
command           step command cwd environment seconds returncode
cache             step kind rate host device unsorted: hits misses
cache-test        step kind trusted checks: what expected seen passed
probe             step targets (each with its first error, or null)
ninja-begun       step done commands
ninja             step log began
built, output     step path size sha256 project version targets content; libraries note
audit             step wheel checks more findings: id check severity what where tip
step-ended        step outcome seconds peak_memory cpu_seconds exit_code message tip fingerprint
run-ended         outcome seconds exit_code
================  ====================================================================================

Lines that are no events are left out and counted. Whatever an event holds, ``Event`` gives fields of the
type that is asked for, or nothing. Durations come from the ``clock``. A run or a step without an end is
running while its process lives; else it was killed.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast

from rocm_wheels.core import errors, process, shell

EVENTS_FILE, PLAN_FILE = "events.jsonl", "plan.json"
_RUN_ID = re.compile(r"(\d{8}-\d{6})(?:-(\d{1,9}))?")
_BRIEF_EVENT = re.compile(rb'"event": ?"(?:run-|step-|built"|output")')  # in a text, quotes are escaped
_MAX_NUMBER = 1e16  # 9 petabytes, 300 million years: what is more is damage

Moment = tuple[datetime, float]
State = Literal["running", "done", "failed", "interrupted", "killed", "skipped"]
_OUTCOMES = ("done", "failed", "interrupted", "killed")


def read_moment() -> Moment:
    """Return the time of day (UTC) and the clock that no one sets: seconds since the machine started."""
    return datetime.now(timezone.utc), time.monotonic()


class Event(dict[str, Any]):
    """A line of a record, or a part of one, as it was written. A field of another type counts as missing."""

    def text(self, name: str) -> str:
        """Return a text, empty where there is none."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> float | None:
        """Return a number that is neither infinite nor beyond reason."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return value if -_MAX_NUMBER < value < _MAX_NUMBER else None

    def count(self, name: str) -> int | None:
        """Return a whole number."""
        value = self.number(name)
        return None if value is None else int(value)

    def texts(self, name: str) -> list[str]:
        """Return the texts of a list."""
        value = self.get(name)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

    def part(self, name: str) -> Event:
        """Return an object, empty where there is none."""
        value = self.get(name)
        return Event(value) if isinstance(value, dict) else Event()

    def parts(self, name: str) -> list[Event]:
        """Return the objects of a list."""
        value = self.get(name)
        return [Event(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    @property
    def kind(self) -> str:
        """What happened: ``step-begun`` …"""
        return self.text("event")

    @property
    def moment(self) -> Moment:
        """When it was written. Raises ValueError for what is no event."""
        day, clock = datetime.fromisoformat(self.text("time").replace("Z", "+00:00")), self.number("clock")
        if day.tzinfo is None or not 2000 <= day.year < 2200 or clock is None:
            raise ValueError("this is no event")
        return day, clock


def parse_event(line: bytes) -> Event | None:
    """Return the event that a line holds, or ``None`` for a damaged line."""
    try:
        event = Event(line=json.loads(line)).part("line")
        return event if event.moment and event.kind else None
    except (ValueError, RecursionError):
        return None


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
        now, clock = self.moment()
        day = now.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        value = _make_json_value({"time": day, "clock": round(clock, 6), "event": event, **fields})
        line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
        with errors.name_failed_file(self.path), self.path.open("ab+", buffering=0) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            if file.read(1) not in (b"", b"\n"):  # torn, or another process is writing it now
                line = b"\n" + line
            # what did not fit cannot follow: others may have written since
            if os.write(file.fileno(), line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)


def _make_json_value(value: object) -> object:
    """Return a value as JSON has it, with no credentials in it."""
    if isinstance(value, (str, os.PathLike)):
        return shell.hide_credentials(os.fspath(value))
    if isinstance(value, Mapping):
        return {str(key): _make_json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_json_value(inner) for inner in value]
    return value


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
        with suppress(FileExistsError):
            folder.mkdir()
            return RunRecord(folder)
        number += 1


@dataclass(frozen=True)
class RecordedStep:
    """A step as the record shows it: how it began or was skipped, how it ended, and all its events.

    Where the line of its begin was damaged, ``begun`` is the first event that is left; ``ended`` is empty
    where no end is recorded.
    """

    id: str
    state: State
    begun: Event
    ended: Event
    events: tuple[Event, ...]

    @property
    def why(self) -> str:
        """Why it ran, or was skipped."""
        return self.begun.text("why")

    @property
    def seconds(self) -> float | None:
        """How long it took; ``None`` where no end is recorded."""
        recorded = self.ended.number("seconds")
        if recorded is None and self.ended:
            return max(float(self.ended["clock"]) - float(self.begun["clock"]), 0.0)
        return recorded

    @property
    def peak_memory(self) -> int | None:
        """Bytes that its processes held together at most; ``None`` where nobody measured."""
        return self.ended.count("peak_memory")

    @property
    def log(self) -> Path | None:
        """Its log file."""
        return Path(self.begun.text("log")) if self.begun.text("log") else None

    @property
    def outputs(self) -> tuple[Event, ...]:
        """The files that it made, or had made before it was skipped: ``path``, ``size``, ``sha256`` …"""
        is_older = self.state == "skipped"
        return tuple(self.begun.parts("outputs")) if is_older else self.events_of_kind("output")

    def events_of_kind(self, kind: str) -> tuple[Event, ...]:
        """Return the step's events of one kind."""
        return tuple(event for event in self.events if event.kind == kind)


@dataclass(frozen=True)
class RecordedRun:
    """A run as its record shows it. ``damaged`` lines were left out; ``torn``: the last one broke off.

    ``elsewhere``: no end is recorded, and it ran on a machine that cannot be asked from here. ``planned`` are
    the steps of its plan, where that is there: ``id``, ``after``, ``estimate``.
    """

    id: str
    folder: Path
    state: State
    events: tuple[Event, ...]
    begun: Event
    ended: Event
    steps: Mapping[str, RecordedStep]
    damaged: int = 0
    torn: bool = False
    elsewhere: bool = False
    planned: tuple[Event, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long it took; what was recorded of it, where no end is; ``None`` where nothing is."""
        recorded = self.ended.number("seconds")
        if recorded is None and self.events:
            return max(self.last_clock - float(self.events[0]["clock"]), 0.0)
        return recorded

    @property
    def last_clock(self) -> float:
        """The clock at the latest event."""
        return max((event["clock"] for event in self.events), default=0.0)

    def count_steps(self, *states: State) -> int:
        """Return how many steps are in these states."""
        return sum(step.state in states for step in self.steps.values())


def read_run(folder: Path, *, brief: bool = False) -> RecordedRun:
    """Read the run in ``folder``; one that recorded nothing before it was killed has no events.

    ``brief``: only begins and ends of the run and its steps, what they made, and what came last; damage is
    not counted then, and the plan not read.
    """
    try:
        *lines, rest = (folder / EVENTS_FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        lines, rest = [], b""
    if brief:
        lines = [line for line in lines[:-1] if _BRIEF_EVENT.search(line)] + lines[-1:]
    parsed = [parse_event(line) for line in lines if line.strip()]
    events = tuple(event for event in parsed if event is not None)
    begun = next((event for event in events if event.kind == "run-begun"), Event())
    ended = next((event for event in reversed(events) if event.kind == "run-ended"), Event())
    elsewhere = not ended and _is_elsewhere(begun)
    # what is without an end: on another machine nobody can ask, and the end of a run ends its steps
    assumed: State | None = "running" if elsewhere else "killed" if ended else None
    by_step: dict[str, list[Event]] = {}
    for event in events:
        if step := event.text("step"):
            if event.kind in ("step-begun", "step-skipped"):
                by_step[step] = []  # one that began again counts from there
            by_step.setdefault(step, []).append(event)
    try:
        plan = Event() if brief else Event(plan=json.loads((folder / PLAN_FILE).read_bytes())).part("plan")
    except (OSError, ValueError, RecursionError):  # no plan, or one of another form
        plan = Event()
    steps: dict[str, RecordedStep] = {}
    for step, own in by_step.items():
        last = next((event for event in reversed(own) if event.kind == "step-ended"), Event())
        steps[step] = RecordedStep(step, _tell_state(own[0], last, assumed), own[0], last, tuple(own))
    return RecordedRun(
        folder.name,
        folder,
        _tell_state(begun, ended, assumed),
        events,
        begun,
        ended,
        steps,
        damaged=0 if brief else len(parsed) - len(events),
        torn=bool(rest.strip()),
        elsewhere=elsewhere,
        planned=tuple(step for step in plan.parts("steps") if step.text("id")),
    )


def _tell_state(begun: Event, ended: Event, assumed: State | None) -> State:
    """Tell how a run or a step ended, or whether it is at work; what ended in a way unknown here failed.

    ``assumed``: the state of what has no end; ``None``: its process is asked.
    """
    if begun.kind == "step-skipped":
        return "skipped"
    if ended:
        return cast("State", ended["outcome"]) if ended.text("outcome") in _OUTCOMES else "failed"
    return assumed or ("running" if _is_alive(begun) else "killed")


def _is_elsewhere(begun: Event) -> bool:
    return begun.text("host") not in ("", platform.node())


def _is_alive(begun: Event) -> bool:
    pid = begun.count("pid")
    return pid is not None and process.is_process_alive(pid, begun.text("began"))


def list_run_ids(runs: Path) -> list[str]:
    """Return the ids of the runs below ``runs``, newest first; other folders are not looked at."""
    if not runs.is_dir():
        return []
    matches = [(match, entry) for entry in runs.iterdir() if (match := _RUN_ID.fullmatch(entry.name))]
    matches.sort(key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True)
    return [entry.name for _, entry in matches if entry.is_dir()]


def list_runs(runs: Path, *, limit: int | None = None) -> list[RecordedRun]:
    """Read the runs below ``runs``, newest first, ``limit`` at most, in brief (``read_run``)."""
    return [read_run(runs / name, brief=True) for name in list_run_ids(runs)[:limit]]


def read_newest_run(runs: Path) -> RecordedRun | None:
    """Read the newest run below ``runs``, or return ``None`` where there is none."""
    ids = list_run_ids(runs)
    return read_run(runs / ids[0]) if ids else None

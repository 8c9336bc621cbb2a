"""The record of a run: a file of events that every process of the run appends to, and how it is read.

An event is a JSON line with the fields of ``EVENT_FIELDS``. A field may be missing or null (an item of a
list may not), and later versions may add others; what is there has the form given here, or the line
counts as damaged. An event is written by one write to a file opened for appending, so that lines of
several processes never mix (POSIX ``O_APPEND``), and fsynced: it outlives a ``kill -9`` and a power cut.
A write that broke off leaves a torn line; the next event begins on a line of its own.

Damaged lines are left out and counted. Durations come from the ``clock`` of the events, which no one
sets, never from their times of day. A run or a step without an end is running while its process lives;
else it was killed.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast

from rocm_wheels.core import errors, process, shell

Event = Mapping[str, Any]

SECONDS = "seconds"
_SCALAR = (str, int, float, bool)
_COUNTS_SHAPE = {"hits": int, "misses": int}
_FILE_SHAPE = {"path": str, "size": int, "sha256": str}
_ANY_KEY = "*"  # whatever the key

EVENT_FIELDS: Mapping[str, dict[str, Any]] = {
    "run-begun": {
        "run": str,
        "version": str,
        "command": str,
        "pid": int,
        "began": str,
        "host": str,
        "platform": str,
        "cores": float,
        "memory": int,
        "plan": str,
        "steps": int,
        "lock": str,
        "lock_digest": str,
        "targets": [str],
        "pythons": [str],
        "against": [{_ANY_KEY: str}],
        "output": str,
    },
    "preflight": {"findings": [{"check": str, "severity": str, "text": str, "tip": str}]},
    "step-skipped": {
        "step": str,
        "why": str,
        "fingerprint": str,
        "outputs": [_FILE_SHAPE],
        "targets": [str],
        "version": str,
    },
    "step-begun": {
        "step": str,
        "why": str,
        "after": [str],
        "command": str,
        "environment": {_ANY_KEY: str},
        "fingerprint": str,
        "log": str,
        "pid": int,
        "began": str,
        "jobs": int,
        "estimate": {"seconds": SECONDS, "disk": float, "memory": float, "source": str},
    },
    "packages": {
        "step": str,
        "project": str,  # whose layer; "" for the environment with ROCm
        "locked": bool,
        "packages": [{"name": str, "version": str, "file": str, "sha256": str, "source": str}],
    },
    "command": {
        "step": str,
        "command": str,
        "cwd": str,
        "environment": {_ANY_KEY: str},
        "seconds": SECONDS,
        "returncode": int,
    },
    "cache": {
        "step": str,
        "kind": str,
        "host": _COUNTS_SHAPE,
        "device": _COUNTS_SHAPE,
        "unsorted": _COUNTS_SHAPE,  # of which the cache does not say whether they were device code
        "rate": float,
    },
    "cache-test": {
        "step": str,
        "kind": str,
        "trusted": bool,
        "checks": [{"what": str, "expected": _SCALAR, "seen": _SCALAR, "passed": bool}],
    },
    "probe": {"step": str, "targets": {_ANY_KEY: str}, "dropped": [str]},
    "ninja-begun": {"step": str, "done": int, "commands": int},
    "ninja": {"step": str, "log": str, "began": SECONDS},
    "built": {
        "step": str,
        **_FILE_SHAPE,
        "project": str,
        "version": str,
        "targets": [str],
        "content": str,
    },
    "output": {
        "step": str,
        **_FILE_SHAPE,
        "project": str,
        "version": str,
        "targets": [str],
        "libraries": {_ANY_KEY: [str]},
        "content": str,
        "note": str,
    },
    "audit": {
        "step": str,
        "wheel": str,
        "checks": int,
        "findings": [
            {"id": str, "check": str, "severity": str, "what": str, "where": str, "tip": str},
        ],
        "more": int,
    },
    "step-ended": {
        "step": str,
        "outcome": str,
        "seconds": SECONDS,
        "peak_memory": int,
        "cpu_seconds": SECONDS,
        "exit_code": int,
        "message": str,
        "tip": str,
        "fingerprint": str,
    },
    "run-ended": {"outcome": str, "seconds": SECONDS, "exit_code": int},
}
# step-begun says what is to be done, step-skipped that nothing is: without their step they mean nothing
_STEP_EVENTS = {name for name, fields in EVENT_FIELDS.items() if "step" in fields}
# what is more is damage: about 300 years, 9 petabytes
_MAX_SECONDS, _MAX_NUMBER = 1e10, 1e16


def parse_event(line: bytes) -> Event | None:
    """Return the event that a line holds, or ``None`` for a damaged line."""
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    if not _is_time(event.get("time")) or not fits_shape(event.get("clock", ""), SECONDS):
        return None
    if event["event"] in _STEP_EVENTS and not isinstance(event.get("step"), str):
        return None
    return event if fits_shape(event, EVENT_FIELDS.get(event["event"], {})) else None


def parse_event_time(event: Event) -> datetime:
    """Return the time of day at which an event was written, in UTC."""
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00"))


def fits_shape(value: object, shape: Any) -> bool:
    """Tell whether a value has a form as ``EVENT_FIELDS`` writes it; ``None`` always has."""
    if value is None:
        return True
    if isinstance(shape, list):
        return isinstance(value, list) and all(
            item is not None and fits_shape(item, shape[0]) for item in value
        )
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if _ANY_KEY in shape:
            return all(fits_shape(inner, shape[_ANY_KEY]) for inner in value.values())
        return all(fits_shape(value[key], inner) for key, inner in shape.items() if key in value)
    if isinstance(value, bool) and shape in {int, float, SECONDS}:
        return False
    if shape in {float, SECONDS}:
        most = _MAX_SECONDS if shape == SECONDS else _MAX_NUMBER
        return isinstance(value, (int, float)) and -most < value < most
    if shape is int:
        return isinstance(value, int) and -_MAX_NUMBER < value < _MAX_NUMBER
    return isinstance(value, shape)


def _is_time(text: object) -> bool:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
    except ValueError:
        return False
    return when is not None and when.tzinfo is not None and 2000 <= when.year < 2200


def _refuse_constant(_constant: str) -> None:
    raise ValueError("JSON has no such number")


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
            errors.name_failed_file(failure, self.path)
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
        return shell.hide_credentials(value)
    if isinstance(value, os.PathLike):
        return shell.hide_credentials(os.fspath(value))
    if isinstance(value, Mapping):
        return {str(key): _make_json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_json_value(inner) for inner in value]
    return value


RunState = Literal["running", "done", "failed", "interrupted", "killed"]
StepState = Literal["running", "done", "failed", "timeout", "interrupted", "killed", "skipped"]

PLAN_FILE = "plan.json"
_PLAN_SHAPE = {"steps": [{"id": str, "after": [str], "estimate": {"seconds": SECONDS}}]}
_RUN_ID_PARTS = re.compile(r"(\d{8}-\d{6})(?:-(\d{1,9}))?")
_RUN_OUTCOMES = {"done", "failed", "interrupted"}
_STEP_OUTCOMES = {"done", "failed", "timeout", "interrupted", "killed"}
_BRIEF_EVENT = re.compile(rb'"event": ?"(?:run|step)-')  # never inside a text, where quotes are escaped


@dataclass(frozen=True)
class RecordedStep:
    """A step as the record shows it: when it began or was skipped, how it ended, all its events in between.

    ``seconds`` and ``peak_memory`` (bytes) are ``None`` where no end is recorded, or nobody measured.
    """

    id: str
    state: StepState
    begun: Event  # step-begun, or step-skipped; where that line was damaged, the first that is left
    ended: Event | None
    events: tuple[Event, ...]

    @property
    def outcome(self) -> str | None:
        """How it ended, as its process or the run said; ``None`` before that."""
        return None if self.ended is None else str(self.ended.get("outcome"))

    @property
    def why(self) -> str:
        """Why it ran, or was skipped."""
        return str(self.begun.get("why") or "")

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        if self.ended is None:
            return None
        recorded = self.ended.get("seconds")
        return max(self.ended["clock"] - self.begun["clock"], 0.0) if recorded is None else float(recorded)

    @property
    def peak_memory(self) -> int | None:
        """Bytes that its processes held together at most."""
        return None if self.ended is None else cast("int | None", self.ended.get("peak_memory"))

    @property
    def log(self) -> Path | None:
        """Its log file."""
        return Path(self.begun["log"]) if self.begun.get("log") else None

    @property
    def outputs(self) -> tuple[Event, ...]:
        """The files that it made, or had made before it was skipped: ``path``, ``size``, ``sha256`` …"""
        if self.state == "skipped":
            return tuple(self.begun.get("outputs") or ())
        return self.events_of_kind("output")

    def events_of_kind(self, event: str) -> tuple[Event, ...]:
        """Return the step's events of one kind."""
        return tuple(recorded for recorded in self.events if recorded["event"] == event)


@dataclass(frozen=True)
class PlannedStep:
    """A step of the plan: after which others it comes, and how many seconds it may take, if known."""

    id: str
    after: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True)
class RecordedRun:
    """A run as its record shows it. ``damaged`` lines were left out; ``torn``: the last one broke off.

    ``elsewhere``: no end is recorded, and it ran on a machine that cannot be asked from here. ``planned`` are
    the steps of its plan, where that is there.
    """

    id: str
    folder: Path
    state: RunState
    events: tuple[Event, ...]
    begun: Event
    ended: Event | None
    steps: Mapping[str, RecordedStep]
    damaged: int = 0
    torn: bool = False
    elsewhere: bool = False
    planned: tuple[PlannedStep, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long it took; what was recorded of it, where no end is; ``None`` where nothing is."""
        if self.ended is not None and self.ended.get("seconds") is not None:
            return float(self.ended["seconds"])
        return max(self.last_clock - self.first_clock, 0.0) if self.events else None

    @property
    def first_clock(self) -> float:
        """The clock at the first event; 0 where there is none."""
        return float(self.events[0]["clock"]) if self.events else 0.0

    @property
    def last_clock(self) -> float:
        """The clock at the latest event."""
        return max((float(event["clock"]) for event in self.events), default=0.0)

    @property
    def may_be_followed(self) -> bool:
        """Whether the command that it is of is still at work here: it may begin a run for another Python."""
        return not _is_elsewhere(self.begun) and _is_alive(self.begun)

    def count_steps(self, *states: StepState) -> int:
        """Return how many steps are in these states."""
        return sum(step.state in states for step in self.steps.values())


def read_run(folder: Path, *, brief: bool = False) -> RecordedRun:
    """Read the run in ``folder``; one that recorded nothing before it was killed has no events.

    ``brief``: only begins and ends of the run and its steps, and what came last; damage is not counted then.
    """
    try:
        *lines, rest = (folder / EVENTS_FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        lines, rest = [], b""
    if brief:
        lines = [line for line in lines[:-1] if _BRIEF_EVENT.search(line)] + lines[-1:]
    parsed = [parse_event(line) for line in lines if line.strip()]
    events = tuple(event for event in parsed if event is not None)
    begun = next((event for event in events if event["event"] == "run-begun"), {})
    ended = next((event for event in reversed(events) if event["event"] == "run-ended"), None)
    elsewhere = ended is None and _is_elsewhere(begun)
    return RecordedRun(
        id=folder.name,
        folder=folder,
        state=_run_state(begun, ended, elsewhere=elsewhere),
        events=events,
        begun=begun,
        ended=ended,
        steps=_collect_steps(events, run_ended=ended is not None, elsewhere=elsewhere),
        damaged=0 if brief else len(parsed) - len(events),
        torn=bool(rest.strip()),
        elsewhere=elsewhere,
        planned=() if brief else _read_planned_steps(folder / PLAN_FILE),
    )


def list_run_ids(runs: Path) -> list[str]:
    """Return the ids of the runs below ``runs``, newest first; other folders are not looked at."""
    if not runs.is_dir():
        return []
    matches = [(match, entry) for entry in runs.iterdir() if (match := _RUN_ID_PARTS.fullmatch(entry.name))]
    matches.sort(key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True)
    return [entry.name for _, entry in matches if entry.is_dir()]


def list_runs(runs: Path, *, limit: int | None = None) -> list[RecordedRun]:
    """Read the runs below ``runs``, newest first, ``limit`` at most, in brief (``read_run``)."""
    return [read_run(runs / name, brief=True) for name in list_run_ids(runs)[:limit]]


def read_newest_run(runs: Path) -> RecordedRun | None:
    """Read the newest run below ``runs``, or return ``None`` where there is none."""
    ids = list_run_ids(runs)
    return read_run(runs / ids[0]) if ids else None


def read_run_before(run: RecordedRun) -> RecordedRun | None:
    """Return the newest earlier run of its work directory that did a step which it did, too; None: none."""
    done = {step.id for step in run.steps.values() if step.state == "done"}
    ids = list_run_ids(run.folder.parent)
    earlier = ids[ids.index(run.id) + 1 :] if run.id in ids else []
    for name in earlier:
        other = read_run(run.folder.parent / name, brief=True)
        if any(step.id in done and step.state == "done" for step in other.steps.values()):
            return other
    return None


def _read_planned_steps(path: Path) -> tuple[PlannedStep, ...]:
    """Return the steps of a run's plan, in its order; none where there is no plan, or one of another form."""
    try:
        plan = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(plan, dict) or not fits_shape(plan, _PLAN_SHAPE):
        return ()
    return tuple(
        PlannedStep(step["id"], tuple(step.get("after") or ()), (step.get("estimate") or {}).get("seconds"))
        for step in plan.get("steps") or ()
        if step.get("id")
    )


def _is_elsewhere(begun: Event) -> bool:
    host = begun.get("host")
    return host is not None and host != platform.node()


def _run_state(begun: Event, ended: Event | None, *, elsewhere: bool) -> RunState:
    if ended is not None:
        outcome = ended.get("outcome")
        return cast("RunState", outcome) if outcome in _RUN_OUTCOMES else "failed"
    return "running" if elsewhere or _is_alive(begun) else "killed"


def _is_alive(begun: Event) -> bool:
    pid = begun.get("pid")
    return pid is not None and process.is_process_alive(pid, begun.get("began") or "")


def _collect_steps(events: tuple[Event, ...], *, run_ended: bool, elsewhere: bool) -> dict[str, RecordedStep]:
    """Gather each step's events; one that began again counts from there."""
    begun: dict[str, Event] = {}
    ended: dict[str, Event] = {}
    between: dict[str, list[Event]] = {}
    for event in events:
        step = event.get("step")
        if not isinstance(step, str):
            continue
        if event["event"] in {"step-begun", "step-skipped"}:
            begun[step], between[step] = event, []
            ended.pop(step, None)
            continue
        begun.setdefault(step, event)
        between.setdefault(step, []).append(event)
        if event["event"] == "step-ended":
            ended[step] = event
    views = {}
    for step, first in begun.items():
        last = ended.get(step)
        state: object
        if first["event"] == "step-skipped":
            state = "skipped"
        elif last is not None:
            state = last.get("outcome") if last.get("outcome") in _STEP_OUTCOMES else "failed"
        else:
            state = "running" if elsewhere or (not run_ended and _is_alive(first)) else "killed"
        views[step] = RecordedStep(step, cast("StepState", state), first, last, tuple(between[step]))
    return views

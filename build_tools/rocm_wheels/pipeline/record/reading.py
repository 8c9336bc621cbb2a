"""Reading the record of a run, whatever ended it.

A line that was torn in the middle of its write, and lines that something damaged, are left out and
counted. Durations come from the ``clock`` of the events, which no one sets, never from their times of
day. A run, or a step, with no end in the record is running while its process lives; else it was killed.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rocm_wheels import groups
from rocm_wheels.pipeline.record.vocabulary import SECONDS, Event, fits_shape, parse_event
from rocm_wheels.pipeline.record.writing import EVENTS_FILE

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
    return pid is not None and groups.is_process_alive(pid, begun.get("began") or "")


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

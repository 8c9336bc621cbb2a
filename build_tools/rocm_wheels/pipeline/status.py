"""Where a run is now, as another terminal may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.pipeline.console_text import find_last_line
from rocm_wheels.pipeline.run_record import Event, Moment, RecordedRun, RecordedStep, parse_event_time
from rocm_wheels.pipeline.watch import measure_tree_memory

_TAIL_BYTES = 1 << 13


@dataclass(frozen=True)
class StepStatus:
    """A step at work. ``seconds`` since its begin; ``line`` is the last of its log; ``memory`` in bytes now.

    ``expected`` is the estimate in seconds, which ``source`` gave.
    """

    id: str
    seconds: float
    line: str
    log: str | None
    memory: int | None
    expected: float | None
    source: str | None

    @property
    def seconds_left(self) -> float | None:
        """Seconds to its expected end, negative when that is over; ``None`` without an estimate."""
        return None if self.expected is None else self.expected - self.seconds


@dataclass(frozen=True)
class RunStatus:
    """A run and its steps at work. ``seconds`` since its begin; ``to_come`` is ``None`` when not recorded.

    ``seconds_left``: seconds that it takes at least, by the estimates of what is not done yet.
    """

    run: RecordedRun
    seconds: float
    running: tuple[StepStatus, ...]
    to_come: int | None
    seconds_left: float | None

    def as_json(self) -> dict[str, object]:
        """Return what ``status --json`` prints. Keys are added later, never renamed."""
        run = self.run
        return {
            "run": run.id,
            "state": run.state,
            "elsewhere": run.elsewhere,
            "began": run.begun.get("time"),
            "seconds": round(self.seconds, 3),
            "command": run.begun.get("command"),
            "steps": {step.id: step.state for step in run.steps.values()},
            "to_come": self.to_come,
            "left": None if self.seconds_left is None else round(self.seconds_left, 3),
            "running": [
                {
                    "step": step.id,
                    "seconds": round(step.seconds, 3),
                    "line": step.line,
                    "log": step.log,
                    "memory": step.memory,
                    "expected": step.expected,
                    "left": None if step.seconds_left is None else round(step.seconds_left, 3),
                    "source": step.source,
                }
                for step in self.running
            ],
            "damaged": run.damaged,
            "torn": run.torn,
        }


def read_run_status(
    run: RecordedRun, now: Moment, memory: Callable[[int], int | None] = measure_tree_memory
) -> RunStatus:
    """Look at every step that is at work: its log, its processes, how long it has been."""
    working = [step for step in run.steps.values() if step.state == "running"]
    steps = run.begun.get("steps")
    if run.state == "running":
        seconds = _seconds_since(run, run.begun, now)
    else:
        seconds = run.seconds or 0.0
    running = tuple(_read_step_status(run, step, now, memory) for step in working)
    return RunStatus(
        run=run,
        seconds=seconds,
        running=running,
        seconds_left=_estimate_seconds_left(run, running) if run.state == "running" else None,
        to_come=None if steps is None else max(steps - len(run.steps), 0),
    )


def _estimate_seconds_left(run: RecordedRun, running: tuple[StepStatus, ...]) -> float | None:
    """Return the seconds of the longest way through what is left, as if all that can run side by side did.

    A step without an estimate counts for nothing; ``None`` when none of them has one.
    """
    at_work = {step.id: step for step in running}
    ends: dict[str, float] = {}
    has_estimate = False
    for step in run.planned:
        begin = max((ends.get(name, 0.0) for name in step.after), default=0.0)
        if step.id in at_work:
            seconds_left = at_work[step.id].seconds_left
            has_estimate = has_estimate or seconds_left is not None
            ends[step.id] = max(seconds_left or 0.0, 0.0)
        elif step.id not in run.steps:
            has_estimate = has_estimate or step.seconds is not None
            ends[step.id] = begin + (step.seconds or 0.0)
    return max(ends.values()) if has_estimate else None


def _read_step_status(
    run: RecordedRun, step: RecordedStep, now: Moment, memory: Callable[[int], int | None]
) -> StepStatus:
    pid, estimate = step.begun.get("pid"), step.begun.get("estimate") or {}
    return StepStatus(
        id=step.id,
        seconds=_seconds_since(run, step.begun, now),
        line=_read_last_line(step.log),
        log=None if step.log is None else str(step.log),
        memory=None if pid is None or run.elsewhere else memory(pid),
        expected=estimate.get("seconds"),
        source=estimate.get("source"),
    )


def _seconds_since(run: RecordedRun, event: Event, now: Moment) -> float:
    """Return the seconds since an event: by the clock, unless that is another machine's."""
    if not event:
        return 0.0
    day, clock = now
    passed = (day - parse_event_time(event)).total_seconds() if run.elsewhere else clock - event["clock"]
    return max(passed, 0.0)


def _read_last_line(log: Path | None) -> str:
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            return find_last_line(file.read())
    except (OSError, ValueError):
        return ""  # not written yet, cleaned away, or no path at all: the step is shown without

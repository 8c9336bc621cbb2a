"""Writes records of runs as the executor and its steps do, with a clock of their own."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from rocm_wheels import groups
from rocm_wheels.pipeline.record.writing import RunRecord, new_run

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
TARGETS = ["gfx90a", "gfx942", "gfx1100"]


class Clock:
    """A time of day and a clock that only move when they are told to."""

    def __init__(self, start: float = 5000.0) -> None:
        self.seconds = start
        self.jump = timedelta()
        self._start = start

    def __call__(self) -> tuple[datetime, float]:
        return NOON + timedelta(seconds=self.seconds - self._start) + self.jump, self.seconds


class WrittenRun:
    """A run that is being recorded: its folder, its clock, and the events of the vocabulary."""

    def __init__(self, runs: Path, now: datetime = NOON) -> None:
        self.clock = Clock()
        self.record = RunRecord(new_run(runs, now).folder, self.clock)
        self.folder = self.record.folder

    def begin(self, **fields: object) -> None:
        """Write run-begun, of this very process unless told otherwise."""
        given = {
            "run": self.folder.name,
            "version": "0.4.0",
            "command": "rocm-wheels build --output-dir dist --pytorch-rocm-arch gfx90a,gfx942,gfx1100",
            "pid": os.getpid(),
            "began": groups.began(os.getpid()),
            "host": platform.node(),
            "platform": "linux",
            "cores": 64,
            "memory": 256 << 30,
            "plan": self.folder / "plan.json",
            "steps": 4,
            "lock": None,
            "lock_digest": None,
            "targets": TARGETS,
            "pythons": ["cp312"],
            "output": "/srv/wheels/dist",
        }
        self.record.write("run-begun", **{**given, **fields})

    def end(self, outcome: str = "done", exit_code: int = 0) -> None:
        """Write run-ended."""
        self.record.write(
            "run-ended", outcome=outcome, seconds=self.clock.seconds - 5000, exit_code=exit_code
        )

    def skip(self, step: str, **fields: object) -> None:
        """Write step-skipped."""
        given = {
            "why": "up to date",
            "fingerprint": "ab" * 8,
            "outputs": [],
            "targets": None,
            "version": None,
        }
        self.record.write("step-skipped", step=step, **{**given, **fields})

    def begin_step(self, step: str, **fields: object) -> None:
        """Write step-begun."""
        given = {
            "why": "not built yet",
            "after": [],
            "command": f"rocm-wheels run-step {step} --plan {self.folder}/plan.json",
            "environment": {},
            "fingerprint": None,
            "log": self.folder / f"{step}.log",
            "pid": os.getpid(),
            "began": groups.began(os.getpid()),
            "jobs": None,
            "estimate": None,
        }
        self.record.write("step-begun", step=step, **{**given, **fields})

    def end_step(
        self, step: str, outcome: str = "done", seconds: float | None = 0.0, **fields: object
    ) -> None:
        """Write step-ended."""
        given = {
            "peak_memory": 3 << 30,
            "cpu_seconds": (seconds or 0) * 1.5,
            "exit_code": 0 if outcome == "done" else 12,
            "message": None,
            "tip": None,
            "fingerprint": "cd" * 8,
        }
        self.record.write("step-ended", step=step, outcome=outcome, seconds=seconds, **{**given, **fields})

    @contextmanager
    def step(self, step: str, seconds: float, outcome: str = "done", **fields: object) -> Iterator[None]:
        """Write a step that takes so long, and what is written inside between its begin and its end."""
        begin = self.clock.seconds
        self.begin_step(step, **fields)
        yield
        self.clock.seconds = max(self.clock.seconds, begin + seconds)
        self.end_step(step, outcome, seconds)

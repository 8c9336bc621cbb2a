"""Estimate what a step will cost: as it did in recorded runs, else as the table of stated figures says.

Nothing here is certain, and every estimate says what it comes from. A recorded run is scaled: the part of
its time that compilers shared by the number of jobs, and by the targets as the table relates them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_wheels.core import tables
from rocm_wheels.core.machine import MachineResources, count_compile_jobs
from rocm_wheels.models import estimates
from rocm_wheels.models.project import get_step_costs
from rocm_wheels.pipeline import run_record

_MAX_RUNS = 60  # the newest ones
_MAX_SAMPLES = 5  # of them, in which a step was done; the longest counts, for the others may have gone on
_HEAD, _TAIL = 1 << 16, 1 << 19
_STEP_ID = re.compile(
    r"(?:build-(?P<project>[\w-]+?)|(?P<packaging>repair|fat|split|variant)-[\w-]+?|(?P<kind>[a-z-]+?))"
    r"-cp3\d+t?(?:-\S+)?"
)
_RELEVANT_EVENT = re.compile(rb'"event": ?"(?:run-begun|step-begun|built|output|step-ended)"')
_MEMORY_MARGIN = 1.25  # over the memory that a run was seen to take


@dataclass(frozen=True)
class Estimate:
    """Expected seconds, bytes that the step adds to the disk, and bytes of memory at its peak.

    ``memory_per_job``: of one compiler. ``wheel``: bytes of the wheel. ``source``: what this comes from.
    """

    seconds: float
    disk: int
    memory: int
    source: str
    memory_per_job: int = 0
    wheel: int = 0


@dataclass(frozen=True)
class PastStep:
    """A step that was done: ``jobs`` at a time, for ``targets``. 0 seconds or bytes: not measured."""

    run: str
    seconds: float
    cpu_seconds: float
    peak_memory: int
    jobs: int
    targets: int


@dataclass(frozen=True)
class History:
    """Steps of earlier runs by name (a project's, or the kind of another step), the newest first.

    Those of one number of targets are as many as are looked at.
    """

    steps: Mapping[str, tuple[PastStep, ...]] = field(default_factory=dict)


def estimate_step(
    project: str, targets: int, machine: MachineResources, history: History, *, jobs: int | None = None
) -> Estimate:
    """Estimate building a project, or another step by its kind (``install-rocm``), for so many targets.

    ``jobs``: how many compilers run at a time, where that is decided; else what the machine allows.
    """
    costs = get_step_costs(project)
    past_steps = history.steps.get(project, ())
    per_job = _memory_per_job(costs, past_steps)
    jobs = jobs or count_compile_jobs(machine, per_job, None)
    disk, wheel = costs.disk.get_bytes(targets), costs.wheel.get_bytes(targets) if costs.wheel else 0
    fitting = [past for past in past_steps if past.targets == targets] or list(past_steps)
    if not fitting:
        seconds = costs.time.get_serial_seconds() + costs.time.get_core_seconds(targets) / jobs
        source = f"stated, {costs.time.kind}: {costs.time.source}"
        return Estimate(seconds, disk, per_job * jobs, source, per_job, wheel)
    past = max(fitting[:_MAX_SAMPLES], key=lambda past: past.seconds)
    before = costs.time.get_core_seconds(past.targets)
    if past.cpu_seconds:
        shared = min(past.seconds, past.cpu_seconds / past.jobs)
    else:  # not measured: as the table divides it
        at_once = before / past.jobs
        shared = past.seconds * at_once / (costs.time.get_serial_seconds() + at_once) if at_once else 0.0
    more = costs.time.get_core_seconds(targets) / before if before else 1.0
    seconds = past.seconds - shared + shared * more * past.jobs / jobs
    source = f"run {past.run} ({_count_targets_and_jobs(past.targets, past.jobs)})"
    if (past.targets, past.jobs) != (targets, jobs):
        source += f", scaled to {_count_targets_and_jobs(targets, jobs)}"
    memory = past.peak_memory * jobs // past.jobs or per_job * jobs
    return Estimate(seconds, disk, memory, source, per_job, wheel)


def _count_targets_and_jobs(targets: int, jobs: int) -> str:
    return f"{tables.format_count(targets, 'target')}, {tables.format_count(jobs, 'job')}"


def _memory_per_job(costs: estimates.StepCosts, past_steps: tuple[PastStep, ...]) -> int:
    """Return the memory of one compiler.

    A run tells it only when it compiled about everything: one that went on, or took objects from a
    cache, may have left the large files out.
    """
    whole = [
        p
        for p in past_steps
        if p.peak_memory and p.cpu_seconds >= costs.time.get_core_seconds(p.targets) / 2 > 0
    ]
    if not whole:
        return costs.memory_per_job.get_bytes(0)
    return int(max(past.peak_memory / past.jobs for past in whole) * _MEMORY_MARGIN)


def read_history(runs: Path) -> History:
    """Read what the steps of earlier runs took, those whose records are below ``runs``.

    Of a record its ends are read, and of its steps those that were done count. One that is damaged, or being
    written, tells what is whole in it.
    """
    past_steps = [
        item for run in run_record.list_run_ids(runs)[:_MAX_RUNS] for item in _read_past_steps(runs / run)
    ]
    steps_by_name: dict[str, list[PastStep]] = {}
    counted: Counter[tuple[str, int]] = Counter()
    for name, past in past_steps:
        if counted[name, past.targets] < _MAX_SAMPLES:
            steps_by_name.setdefault(name, []).append(past)
            counted[name, past.targets] += 1
    return History({name: tuple(steps) for name, steps in steps_by_name.items()})


def _read_past_steps(folder: Path) -> Iterator[tuple[str, PastStep]]:
    run: Mapping[str, Any] = {}
    begun: dict[str, Mapping[str, Any]] = {}
    targets: dict[str, int] = {}
    for event in _read_events(folder / run_record.EVENTS_FILE):
        step = str(event.get("step", ""))
        match event.get("event"):
            case "run-begun":
                run = event
            case "step-begun":
                begun[step] = event
            case "built" | "output" if (
                event.get("targets") is not None
            ):  # none at all, where there is no device code
                targets[step] = max(targets.get(step, 1), len(event["targets"]))
            case "step-ended" if event.get("outcome") == "done" and event.get("seconds"):
                if name := _cost_name(step):
                    yield (
                        name,
                        PastStep(
                            run=folder.name,
                            seconds=float(event["seconds"]),
                            cpu_seconds=float(event.get("cpu_seconds") or 0),
                            peak_memory=int(event.get("peak_memory") or 0),
                            jobs=int(begun.get(step, {}).get("jobs") or run.get("cores") or 1),
                            targets=targets.get(step) or len(run.get("targets") or ()) or 1,
                        ),
                    )


def _cost_name(step: str) -> str | None:
    """Return under which name a step's costs are known: its project, or its kind."""
    match = _STEP_ID.fullmatch(step)
    for kind in ("configure", "probe-targets", "check-cache"):
        if step == kind or step.startswith(f"{kind}-"):
            return kind
    if match is None:
        return step or None  # probe-targets, check-cache
    return match["project"] or match["packaging"] or match["kind"]


def _read_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events that matter here; of a long record only from its two ends."""
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD + _TAIL + 1)
            if len(data) > _HEAD + _TAIL:
                file.seek(-_TAIL, 2)
                data = data[:_HEAD] + b"\n" + file.read()
    except OSError:  # a run that has not written yet
        return
    for line in data.splitlines():
        if _RELEVANT_EVENT.search(line):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # torn, or cut by us
            if isinstance(event, dict):
                yield event

"""What a step will cost: as it did in recorded runs, else as the table of stated figures says.

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

from rocm_wheels.machine import Machine, compile_jobs
from rocm_wheels.model.estimates import Costs, costs_of
from rocm_wheels.pipeline.record.reading import run_ids
from rocm_wheels.pipeline.record.writing import EVENTS

_RUNS = 60  # the newest ones
_LOOKED_AT = 5  # of them, in which a step was done; the longest counts, for the others may have gone on
_HEAD, _TAIL = 1 << 16, 1 << 19
_STEP = re.compile(
    r"(?:build-(?P<project>[\w-]+?)|(?P<kind>variant|[a-z-]+?)(?:(?<=variant)-[\w-]+?)?)-cp3\d+t?(?:-\S+)?"
)
_TOLD = re.compile(rb'"event": ?"(?:run-begun|step-begun|output|step-ended)"')
_MARGIN = 1.25  # over the memory that a run was seen to take


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
class Past:
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

    steps: Mapping[str, tuple[Past, ...]] = field(default_factory=dict)


def estimate(
    project: str, targets: int, machine: Machine, history: History, *, jobs: int | None = None
) -> Estimate:
    """Estimate building a project, or another step by its kind (``install-rocm``), for so many targets.

    ``jobs``: how many compilers run at a time, where that is decided; else what the machine allows.
    """
    costs = costs_of(project)
    known = history.steps.get(project, ())
    per_job = _memory_per_job(costs, known)
    jobs = jobs or compile_jobs(machine, per_job, None)
    disk, wheel = costs.disk.bytes(targets), costs.wheel.bytes(targets) if costs.wheel else 0
    fitting = [past for past in known if past.targets == targets] or list(known)
    if not fitting:
        seconds = costs.time.serial() + costs.time.work(targets) / jobs
        source = f"stated, {costs.time.kind}: {costs.time.source}"
        return Estimate(seconds, disk, per_job * jobs, source, per_job, wheel)
    past = max(fitting[:_LOOKED_AT], key=lambda past: past.seconds)
    before = costs.time.work(past.targets)
    if past.cpu_seconds:
        shared = min(past.seconds, past.cpu_seconds / past.jobs)
    else:  # not measured: as the table divides it
        at_once = before / past.jobs
        shared = past.seconds * at_once / (costs.time.serial() + at_once) if at_once else 0.0
    more = costs.time.work(targets) / before if before else 1.0
    seconds = past.seconds - shared + shared * more * past.jobs / jobs
    source = f"run {past.run} ({_counted(past.targets, past.jobs)})"
    if (past.targets, past.jobs) != (targets, jobs):
        source += f", scaled to {_counted(targets, jobs)}"
    memory = past.peak_memory * jobs // past.jobs or per_job * jobs
    return Estimate(seconds, disk, memory, source, per_job, wheel)


def _counted(targets: int, jobs: int) -> str:
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((targets, "target"), (jobs, "job")))


def _memory_per_job(costs: Costs, known: tuple[Past, ...]) -> int:
    """Return the memory of one compiler.

    A run tells it only when it compiled about everything: one that went on, or took objects from a
    cache, may have left the large files out.
    """
    whole = [p for p in known if p.peak_memory and p.cpu_seconds >= costs.time.work(p.targets) / 2 > 0]
    if not whole:
        return costs.memory_per_job.bytes(0)
    return int(max(past.peak_memory / past.jobs for past in whole) * _MARGIN)


def read_history(runs: Path) -> History:
    """Read what the steps of earlier runs took, from the ends of the records below ``runs``.

    Only steps that were done count. A record that is damaged, or being written, tells what is whole in it.
    """
    found: dict[str, list[Past]] = {}
    counted: Counter[tuple[str, int]] = Counter()
    for run in run_ids(runs)[:_RUNS]:
        for name, past in _steps(runs / run):
            if counted[name, past.targets] < _LOOKED_AT:
                found.setdefault(name, []).append(past)
                counted[name, past.targets] += 1
    return History({name: tuple(steps) for name, steps in found.items()})


def _steps(folder: Path) -> Iterator[tuple[str, Past]]:
    run: Mapping[str, Any] = {}
    begun: dict[str, Mapping[str, Any]] = {}
    targets: dict[str, int] = {}
    for event in _events(folder / EVENTS):
        step = str(event.get("step", ""))
        match event.get("event"):
            case "run-begun":
                run = event
            case "step-begun":
                begun[step] = event
            case "output" if event.get("targets") is not None:  # none at all, where there is no device code
                targets[step] = max(targets.get(step, 1), len(event["targets"]))
            case "step-ended" if event.get("outcome") == "done" and event.get("seconds"):
                if name := _name(step):
                    yield (
                        name,
                        Past(
                            run=folder.name,
                            seconds=float(event["seconds"]),
                            cpu_seconds=float(event.get("cpu_seconds") or 0),
                            peak_memory=int(event.get("peak_memory") or 0),
                            jobs=int(begun.get(step, {}).get("jobs") or run.get("cores") or 1),
                            targets=targets.get(step) or len(run.get("targets") or ()) or 1,
                        ),
                    )


def _name(step: str) -> str | None:
    """Return under which name a step's costs are known: its project, or its kind."""
    said = _STEP.fullmatch(step)
    if step.startswith("configure-"):
        return "configure"
    if said is None:
        return step or None  # probe-targets, check-cache
    return said["project"] or said["kind"]


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
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
        if _TOLD.search(line):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # torn, or cut by us
            if isinstance(event, dict):
                yield event

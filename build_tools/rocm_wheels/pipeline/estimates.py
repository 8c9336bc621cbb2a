"""Estimate what a step will cost: as it did in recorded runs, else as the table of stated figures says.

Nothing here is certain, and every estimate says what it comes from. A recorded run is scaled: the part of
its time that compilers shared by the number of jobs, and by the targets as the table relates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import tables
from rocm_wheels.models import estimates
from rocm_wheels.models.project import get_step_costs
from rocm_wheels.pipeline import run_record
from rocm_wheels.pipeline.machine import MachineResources, count_compile_jobs

_MAX_RUNS = 60  # the newest ones
_MAX_SAMPLES = 5  # of them, in which a step was done; the longest counts, for the others may have gone on
_BUILD_STEP = re.compile(r"build-([\w-]+?)-cp3\d+t?(?:-\S+)?")
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


# steps of earlier runs by name (a project's, or the kind of another step), the newest first
History = Mapping[str, tuple[PastStep, ...]]


def estimate_step(
    project: str, targets: int, machine: MachineResources, history: History, *, jobs: int | None = None
) -> Estimate:
    """Estimate building a project, or another step by its kind (``install-rocm``), for so many targets.

    ``jobs``: how many compilers run at a time, where that is decided; else what the machine allows.
    """
    costs = get_step_costs(project)
    past_steps = history.get(project, ())
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
    """Read what the steps of earlier runs took that were done; their records are below ``runs``.

    One that is damaged, or being written, tells what is whole in it. Of the runs for one number of targets
    only the newest count.
    """
    history: dict[str, tuple[PastStep, ...]] = {}
    kinds = estimates.load_estimate_table().steps
    for run in run_record.list_runs(runs, limit=_MAX_RUNS):
        for step in run.steps.values():
            build = _BUILD_STEP.fullmatch(step.id)
            other = (kind for kind in kinds if f"{step.id}-".startswith(f"{kind}-"))
            name = build[1] if build else next(other, None)
            if step.state != "done" or not step.seconds or name is None:
                continue
            files = [*step.events_of_kind("built"), *step.events_of_kind("output")]
            # none at all, where there is no device code; where nobody looked, those of the run
            targets = [len(file.texts("targets")) for file in files if file.get("targets") is not None]
            past = PastStep(
                run=run.id,
                seconds=step.seconds,
                cpu_seconds=step.ended.number("cpu_seconds") or 0.0,
                peak_memory=step.peak_memory or 0,
                jobs=max(step.begun.count("jobs") or run.begun.count("cores") or 1, 1),
                targets=max(1, *(targets or [len(run.begun.texts("targets"))])),
            )
            earlier = history.get(name, ())
            if sum(other.targets == past.targets for other in earlier) < _MAX_SAMPLES:
                history[name] = (*earlier, past)
    return history

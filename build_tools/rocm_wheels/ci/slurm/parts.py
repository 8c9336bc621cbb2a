"""What one call of sbatch submits: a plain job, or those tasks of an array that ask and wait for the same."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.ci.slurm.arrays import JobArray
from rocm_wheels.ci.slurm.cluster import SlurmJob
from rocm_wheels.ci.slurm.deciding import Decision
from rocm_wheels.ci.slurm.judging import compute_delay
from rocm_wheels.ci.slurm.sizes import JobSize
from rocm_wheels.pipeline.plan.step import Step


@dataclass(frozen=True)
class ArrayPart:
    """Steps of one array that are submitted together. ``compute_delay``: seconds before they may begin."""

    array: JobArray
    steps: tuple[Step, ...]
    size: JobSize
    delay: int

    def array_expression(self, limit: int | None) -> str:
        """Return what sbatch's ``--array`` takes; nothing for a plain job. ``limit``: tasks at a time."""
        if self.array.plain:
            return ""
        ids = {step.id for step in self.steps}
        numbers = sorted(number for number, step in self.array.tasks.items() if step in ids)
        text = ",".join(map(str, numbers))
        if len(numbers) > 1 and numbers[-1] - numbers[0] + 1 == len(numbers):
            text = f"{numbers[0]}-{numbers[-1]}"
        most = 1 if self.array.one_by_one else limit
        return f"{text}%{most}" if most is not None and most < len(numbers) else text

    def assign_jobs(self, job: int | str) -> dict[str, SlurmJob]:
        """Return the job of each step, once sbatch has told their id."""
        return {step.id: SlurmJob(job, self.array.task_number(step.id)) for step in self.steps}


def split_array(
    array: JobArray,
    decided: Sequence[Decision],
    sizes: Mapping[str, JobSize],
    jobs: Mapping[str, SlurmJob],
    network_delay: float,
) -> list[ArrayPart]:
    """Return what is to be submitted of an array. ``decided``: about those of its steps that are.

    First what may begin first: where tasks are one by one, a part waits for the parts before it.
    """
    groups: dict[tuple[JobSize, int, str], list[Step]] = {}
    for decision in decided:
        end = decision.state.end if decision.state.state == "again" else None
        after = 0 if end is None else compute_delay(end, network_delay)
        key = (sizes[decision.step.id], after, make_dependency(array, decision.step, jobs))
        groups.setdefault(key, []).append(decision.step)
    parts = sorted(groups.items(), key=lambda part: (part[0][1], part[0][2].count(":")))
    return [ArrayPart(array, tuple(steps), size, after) for (size, after, _), steps in parts]


def list_conflicting_jobs(
    array: JobArray, decided: Iterable[Decision], jobs: Mapping[str, SlurmJob]
) -> list[SlurmJob]:
    """Return jobs in the queue that new ones of an array must not be at work beside.

    Others of an array whose tasks are one by one; and what is at work already of all that is behind it.
    """
    array_jobs = [jobs[step] for step in array.steps if array.one_by_one and step in jobs]
    running = [
        decision for decision in decided if decision.action == "leave" and decision.state.state != "waiting"
    ]
    return array_jobs + [
        jobs[decision.step.id] for decision in running if {*array.steps} & {*decision.step.behind}
    ]


def make_dependency(
    array: JobArray, step: Step, jobs: Mapping[str, SlurmJob], others: Iterable[SlurmJob] = ()
) -> str:
    """Return what the job of a step waits for, as sbatch takes it.

    ``aftercorr``: the task of its own number in another array; ``afterok``: what else it needs;
    ``afterany``: what it is behind, or may not be at work beside. ``jobs``: those in the queue.
    """
    needs = [jobs[name] for name in step.after if name in jobs]
    number = array.task_number(step.id)
    corresponding = [str(job.id) for job in needs if number is not None and job.task == number]
    single = [job for job in needs if number is None or job.task != number]
    behind = [jobs[name] for name in step.behind if name in jobs]
    ended = [job for job in dict.fromkeys((*behind, *others)) if job.task is not None or job not in needs]
    parts = {
        "aftercorr": corresponding,
        "afterok": [str(job) for job in single],
        "afterany": shorten_jobs(ended, jobs.values()),
    }
    return ",".join(":".join((kind, *dict.fromkeys(ids))) for kind, ids in parts.items() if ids)


def shorten_jobs(jobs: Iterable[SlurmJob], queued: Collection[SlurmJob]) -> list[str]:
    """Name jobs by the ids of their arrays, where all that is left of an array is meant."""
    named = set(jobs)
    remaining = {job.id for job in queued if job not in named}
    return list(
        dict.fromkeys(
            str(job) if job.id in remaining else str(job.id) for job in sorted(named, key=_job_order)
        )
    )


def _job_order(job: SlurmJob) -> tuple[int, str, int]:
    """Sort by ids; those that are yet to be given, which are names, come last."""
    has_id = isinstance(job.id, int)
    return int(job.id) if has_id else sys.maxsize, str(job.id), -1 if job.task is None else job.task

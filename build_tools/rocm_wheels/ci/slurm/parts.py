"""What one call of sbatch submits: a plain job, or those tasks of an array that ask and wait for the same."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.ci.slurm.arrays import Array
from rocm_wheels.ci.slurm.cluster import Job
from rocm_wheels.ci.slurm.deciding import Decision
from rocm_wheels.ci.slurm.judging import delay
from rocm_wheels.ci.slurm.sizes import Size
from rocm_wheels.pipeline.plan.step import Step


@dataclass(frozen=True)
class Part:
    """Steps of one array that are submitted together. ``delay``: seconds before they may begin."""

    array: Array
    steps: tuple[Step, ...]
    size: Size
    delay: int

    def expression(self, limit: int | None) -> str:
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

    def jobs(self, job: int | str) -> dict[str, Job]:
        """Return the job of each step, once sbatch has told their id."""
        return {step.id: Job(job, self.array.number(step.id)) for step in self.steps}


def parts_of(
    array: Array,
    decided: Sequence[Decision],
    sizes: Mapping[str, Size],
    jobs: Mapping[str, Job],
    network_delay: float,
) -> list[Part]:
    """Return what is to be submitted of an array. ``decided``: about those of its steps that are.

    First what may begin first: where tasks are one by one, a part waits for the parts before it.
    """
    found: dict[tuple[Size, int, str], list[Step]] = {}
    for one in decided:
        end = one.state.end if one.state.state == "again" else None
        after = 0 if end is None else delay(end, network_delay)
        key = (sizes[one.step.id], after, dependency(array, one.step, jobs))
        found.setdefault(key, []).append(one.step)
    parts = sorted(found.items(), key=lambda part: (part[0][1], part[0][2].count(":")))
    return [Part(array, tuple(steps), size, after) for (size, after, _), steps in parts]


def beside(array: Array, decided: Iterable[Decision], jobs: Mapping[str, Job]) -> list[Job]:
    """Return jobs in the queue that new ones of an array must not be at work beside.

    Others of an array whose tasks are one by one; and what is at work already of all that is behind it.
    """
    own = [jobs[step] for step in array.steps if array.one_by_one and step in jobs]
    left = [one for one in decided if one.action == "leave" and one.state.state != "waiting"]
    return own + [jobs[one.step.id] for one in left if {*array.steps} & {*one.step.behind}]


def dependency(array: Array, step: Step, jobs: Mapping[str, Job], others: Iterable[Job] = ()) -> str:
    """Return what the job of a step waits for, as sbatch takes it.

    ``aftercorr``: the task of its own number in another array; ``afterok``: what else it needs;
    ``afterany``: what it is behind, or may not be at work beside. ``jobs``: those in the queue.
    """
    needs = [jobs[name] for name in step.after if name in jobs]
    own = array.number(step.id)
    corresponding = [str(job.id) for job in needs if own is not None and job.task == own]
    single = [job for job in needs if own is None or job.task != own]
    behind = [jobs[name] for name in step.behind if name in jobs]
    ended = [job for job in dict.fromkeys((*behind, *others)) if job.task is not None or job not in needs]
    parts = {
        "aftercorr": corresponding,
        "afterok": [str(job) for job in single],
        "afterany": shortest(ended, jobs.values()),
    }
    return ",".join(":".join((kind, *dict.fromkeys(ids))) for kind, ids in parts.items() if ids)


def shortest(jobs: Iterable[Job], queued: Collection[Job]) -> list[str]:
    """Name jobs by the ids of their arrays, where all that is left of an array is meant."""
    named = set(jobs)
    left = {job.id for job in queued if job not in named}
    return list(
        dict.fromkeys(str(job) if job.id in left else str(job.id) for job in sorted(named, key=_order))
    )


def _order(job: Job) -> tuple[int, str, int]:
    """Sort by ids; those that are yet to be given, which are names, come last."""
    known = isinstance(job.id, int)
    return int(job.id) if known else sys.maxsize, str(job.id), -1 if job.task is None else job.task

"""Where each step of a plan is: from the queue first, then from the records of jobs that are not in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from rocm_wheels.ci.slurm.arrays import known_jobs
from rocm_wheels.ci.slurm.cluster import Job, Queued
from rocm_wheels.ci.slurm.records import End, Folder, Ledger
from rocm_wheels.pipeline.plan.step import Plan, Step

# again: it ended, and another attempt may go well; blocked: what it needs failed, and Slurm has taken it back
State = Literal[
    "not submitted",
    "waiting",
    "running",
    "ending",
    "done",
    "again",
    "lost",
    "failed",
    "blocked",
    "cancelled",
    "left out",
]
AT_WORK: frozenset[State] = frozenset({"waiting", "running", "ending"})


@dataclass(frozen=True)
class StepState:
    """Where a step is. ``job``: the last that was submitted for it; ``why`` for people."""

    step: str
    state: State
    job: Job | None = None
    why: str = ""
    end: End | None = None

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints. Keys are added later, never renamed."""
        job = None if self.job is None else str(self.job)
        return {**asdict(self), "job": job, "end": None if self.end is None else asdict(self.end)}


# as the plan had it when it was made
_UNSUBMITTED = {
    "skip": StepState("", "done", why="before the plan was made"),
    "left out": StepState("", "left out"),
}


def adopted(folder: Folder, plan: Plan, ledger: Ledger, queue: Iterable[Queued]) -> Ledger:
    """Return the ledger with jobs that are in the queue by our names: a submission may have been cut off."""
    known, jobs = known_jobs(folder, plan), dict(ledger.jobs)
    for one in sorted(queue, key=lambda one: int(one.job.id)):
        step = known.get((one.name, one.job.task))
        if step is not None and (step not in jobs or int(one.job.id) > int(jobs[step].id)):
            jobs[step] = one.job
    return Ledger(ledger.plan, jobs, ledger.cancelled)


def states(folder: Folder, plan: Plan, ledger: Ledger, queue: Iterable[Queued]) -> dict[str, StepState]:
    """Return the state of every step. The queue must have been asked before this reads the records."""
    known = known_jobs(folder, plan)  # ids begin anew with another controller
    queued = {one.job: one for one in queue if (one.name, one.job.task) in known}
    found: dict[str, StepState] = {}
    for step in plan:
        job = ledger.jobs.get(step.id)
        if job is None:
            found[step.id] = _UNSUBMITTED.get(step.verdict, StepState("", "not submitted"))
            found[step.id] = replace(found[step.id], step=step.id)
        elif job in queued:
            found[step.id] = _in_queue(folder, step.id, queued[job])
        else:
            found[step.id] = _gone(folder, step, job, cancelled=step.id in ledger.cancelled, found=found)
    return found


def _in_queue(folder: Folder, step: str, job: Queued) -> StepState:
    end = folder.end(step)
    before = f" (before: {end.reason})" if end is not None and end.job == str(job.job) and end.reason else ""
    if job.runs or job.ends:
        begin = folder.begin(step)
        where = f"on {begin.host}" if begin is not None and begin.job == str(job.job) else ""
        more = f", restart {begin.restart}" if begin is not None and where and begin.restart else ""
        return StepState(
            step, "running" if job.runs else "ending", job.job, f"{where}{more}{before}".strip(), end
        )
    return StepState(step, "waiting", job.job, f"{job.reason}{before}", end)


def _gone(
    folder: Folder, step: Step, job: Job, *, cancelled: bool, found: Mapping[str, StepState]
) -> StepState:
    begin, end = folder.begin(step.id), folder.end(step.id)
    begin = begin if begin is not None and begin.job == str(job) else None
    end = end if end is not None and end.job == str(job) else None
    if begin is not None and end is not None and begin.restart > end.restart:
        end = None  # it began once more, and has not told the end of that
    if end is not None and end.exit_code == 0:
        return StepState(step.id, "done", job, "", end)
    if cancelled:
        return StepState(step.id, "cancelled", job, "by submit --cancel", end)
    if end is not None and end.kind == "signal":
        why = "it was told to end, and is not in the queue any more: scancel, or preempted for good"
        return StepState(step.id, "cancelled", job, why, end)
    if end is not None:
        return StepState(step.id, "again" if end.again else "failed", job, end.reason, end)
    if begin is not None:
        return StepState(step.id, "lost", job, f"began on {begin.host}, and ended without a word")
    missing = [
        name
        for name in step.after
        if found[name].state in ("failed", "blocked", "cancelled", "left out", "lost", "again")
    ]
    if missing:
        why = f"needs {missing[0]}, which {_what(found[missing[0]])}"
        return StepState(step.id, "blocked", job, why)
    return StepState(step.id, "lost", job, "it is gone from the queue and has not begun")


def _what(state: StepState) -> str:
    said = {"failed": "failed", "blocked": "did not begin", "cancelled": "was cancelled"}
    return said.get(state.state, "did not end well")

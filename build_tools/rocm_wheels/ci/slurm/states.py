"""Where each step of a plan is: from the queue first, then from the records of jobs that are not in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from rocm_wheels.ci.slurm.arrays import map_job_names
from rocm_wheels.ci.slurm.cluster import SlurmJob, QueuedJob
from rocm_wheels.ci.slurm.records import JobEnd, JobFolder, JobLedger
from rocm_wheels.pipeline.plan.step import Plan, Step

# again: it ended, and another attempt may go well; blocked: what it needs failed, and Slurm has taken it back
StepStateName = Literal[
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
AT_WORK: frozenset[StepStateName] = frozenset({"waiting", "running", "ending"})


@dataclass(frozen=True)
class StepState:
    """Where a step is. ``job``: the last that was submitted for it; ``why`` for people."""

    step: str
    state: StepStateName
    job: SlurmJob | None = None
    why: str = ""
    end: JobEnd | None = None

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints. Keys are added later, never renamed."""
        job = None if self.job is None else str(self.job)
        return {**asdict(self), "job": job, "end": None if self.end is None else asdict(self.end)}


# as the plan had it when it was made
_UNSUBMITTED = {
    "skip": StepState("", "done", why="before the plan was made"),
    "left out": StepState("", "left out"),
}


def adopt_jobs(folder: JobFolder, plan: Plan, ledger: JobLedger, queue: Iterable[QueuedJob]) -> JobLedger:
    """Return the ledger with jobs that are in the queue by our names: a submission may have been cut off."""
    steps_by_job, jobs = map_job_names(folder, plan), dict(ledger.jobs)
    for queued in sorted(queue, key=lambda queued: int(queued.job.id)):
        step = steps_by_job.get((queued.name, queued.job.task))
        if step is not None and (step not in jobs or int(queued.job.id) > int(jobs[step].id)):
            jobs[step] = queued.job
    return JobLedger(ledger.plan, jobs, ledger.cancelled)


def find_step_states(
    folder: JobFolder, plan: Plan, ledger: JobLedger, queue: Iterable[QueuedJob]
) -> dict[str, StepState]:
    """Return the state of every step. The queue must have been asked before this reads the records."""
    job_names = map_job_names(folder, plan)  # ids begin anew with another controller
    queued = {entry.job: entry for entry in queue if (entry.name, entry.job.task) in job_names}
    step_states: dict[str, StepState] = {}
    for step in plan:
        job = ledger.jobs.get(step.id)
        if job is None:
            step_states[step.id] = _UNSUBMITTED.get(step.verdict, StepState("", "not submitted"))
            step_states[step.id] = replace(step_states[step.id], step=step.id)
        elif job in queued:
            step_states[step.id] = _find_queued_state(folder, step.id, queued[job])
        else:
            step_states[step.id] = _find_ended_state(
                folder, step, job, cancelled=step.id in ledger.cancelled, step_states=step_states
            )
    return step_states


def _find_queued_state(folder: JobFolder, step: str, job: QueuedJob) -> StepState:
    end = folder.read_end(step)
    before = f" (before: {end.reason})" if end is not None and end.job == str(job.job) and end.reason else ""
    if job.is_running or job.is_ending:
        begin = folder.read_begin(step)
        where = f"on {begin.host}" if begin is not None and begin.job == str(job.job) else ""
        more = f", restart {begin.restart}" if begin is not None and where and begin.restart else ""
        return StepState(
            step, "running" if job.is_running else "ending", job.job, f"{where}{more}{before}".strip(), end
        )
    return StepState(step, "waiting", job.job, f"{job.reason}{before}", end)


def _find_ended_state(
    folder: JobFolder, step: Step, job: SlurmJob, *, cancelled: bool, step_states: Mapping[str, StepState]
) -> StepState:
    begin, end = folder.read_begin(step.id), folder.read_end(step.id)
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
        if step_states[name].state in ("failed", "blocked", "cancelled", "left out", "lost", "again")
    ]
    if missing:
        why = f"needs {missing[0]}, which {_describe_state(step_states[missing[0]])}"
        return StepState(step.id, "blocked", job, why)
    return StepState(step.id, "lost", job, "it is gone from the queue and has not begun")


def _describe_state(state: StepState) -> str:
    words = {"failed": "failed", "blocked": "did not begin", "cancelled": "was cancelled"}
    return words.get(state.state, "did not end well")

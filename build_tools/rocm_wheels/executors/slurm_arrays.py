"""The steps of a plan as jobs of Slurm: which are one array, and where each step is.

An array has the same step of several Pythons: of one kind, one project, one target set. The number of a task
is that of its Python in the plan, in every array, so that tasks correspond one to one. Which steps are
together, and their numbers, the plan alone decides: whoever reads the queue knows what a task does.

The state of a step is read from the queue first, then from the records of jobs that are not in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from rocm_wheels.core import DataError
from rocm_wheels.executors.executor import StepState
from rocm_wheels.executors.job_records import Job, JobFolder, JobLedger
from rocm_wheels.executors.slurm_cluster import QueuedJob
from rocm_wheels.pipeline import Plan, Step

ARRAY_SIZE = 1001  # MaxArraySize where nobody has said another (slurm.conf(5)): one more than the last number


@dataclass(frozen=True)
class JobArray:
    """Steps by the numbers of their tasks. ``plain``: one step, submitted as a job that is no array.

    ``one_by_one``: no two of them may be at work at a time.
    """

    name: str
    tasks: Mapping[int, str]
    one_by_one: bool = False
    plain: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """The ids of its steps."""
        return tuple(self.tasks.values())

    def task_number(self, step: str) -> int | None:
        """Return the number of a step's task; ``None`` for a plain job."""
        return None if self.plain else next(number for number, name in self.tasks.items() if name == step)


def group_arrays(plan: Plan, size: int = ARRAY_SIZE) -> list[JobArray]:
    """Return the arrays of a plan, in an order in which nothing waits for a later one.

    ``size``: the site's MaxArraySize; less than two: plain jobs alone. Raises DataError for a plan whose
    steps wait for one another.
    """
    numbers = _number_pythons(plan)
    groups: dict[str, list[Step]] = {}
    for step in plan:
        groups.setdefault(_array_name(step), []).append(step)
    together = {
        name: steps
        for name, steps in groups.items()
        if name not in plan.steps and _fits_array(steps, numbers, size)
    }
    while True:
        of = {step.id: name for name, steps in together.items() for step in steps}
        waits: dict[str, list[str]] = {}
        for step in plan:
            array_name = of.get(step.id, step.id)
            others = [of.get(name, name) for name in (*step.after, *step.behind)]
            waits.setdefault(array_name, []).extend(name for name in others if name != array_name)
        try:
            order = list(TopologicalSorter(waits).static_order())
        except CycleError as circle:  # it waits for a part of another array, which waits for a part of it
            if not {*circle.args[1]} & {*together}:
                raise DataError(f"steps wait for one another: {', '.join(circle.args[1])}") from circle
            together = {name: steps for name, steps in together.items() if name not in circle.args[1]}
            continue
        return [
            _make_array(name, together.get(name) or [plan.steps[name]], numbers, name in of.values())
            for name in order
        ]


def _number_pythons(plan: Plan) -> dict[str, int]:
    """Number the Pythons of a plan."""
    return {tag: number for number, tag in enumerate(dict.fromkeys(step.cell.tag for step in plan))}


def _array_name(step: Step) -> str:
    return "-".join(part for part in (step.kind, step.project, step.cell.target_set) if part)


def _fits_array(steps: Collection[Step], numbers: Mapping[str, int], size: int) -> bool:
    """Tell whether steps can be tasks of one array."""
    used = {numbers[step.cell.tag] for step in steps}
    ids = {step.id for step in steps}
    return len(used) == len(steps) > 1 and max(used) < size and not any(ids & {*step.after} for step in steps)


def _make_array(name: str, steps: Collection[Step], numbers: Mapping[str, int], several: bool) -> JobArray:
    ids = {step.id for step in steps}
    tasks = {numbers[step.cell.tag]: step.id for step in steps}
    return JobArray(name, tasks, any(ids & {*step.behind} for step in steps), plain=not several)


def arrange_plan(plan: Plan, arrays: Collection[JobArray]) -> Plan:
    """Return a plan array by array. Its steps are behind all of an array that one of theirs is behind.

    What is behind another task of its own array is that no more: ``one_by_one`` keeps them apart. A step is
    behind all that was in its tree or environment before, too: what came between may be done already when
    the first is submitted again.
    """
    behind = _collect_behind(plan)
    of = {step: array for array in arrays for step in array.steps}
    steps: dict[str, Step] = {}
    for array in arrays:
        arrays_behind = [of[name] for step in array.steps for name in behind[step]]
        others = dict.fromkeys(name for other in arrays_behind if other is not array for name in other.steps)
        for step in array.steps:
            steps[step] = replace(plan.steps[step], behind=tuple(others))
    return replace(plan, steps=steps)


def _collect_behind(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return what each step is behind, and what that was behind of the same project or Python."""
    behind: dict[str, tuple[str, ...]] = {}
    for step in plan:
        names = dict.fromkeys(step.behind)
        for name in [earlier for other in step.behind for earlier in behind.get(other, ())]:
            first = plan.steps[name]
            if first.cell.tag == step.cell.tag or first.project == step.project is not None:
                names[name] = None
        behind[step.id] = tuple(names)
    return behind


def map_job_names(folder: JobFolder, plan: Plan) -> dict[tuple[str, int | None], str]:
    """Return the steps of a plan by the names and numbers that their jobs can have in the queue.

    Whatever has been an array on any site, or been submitted without arrays.
    """
    prefix, numbers = folder.job_prefix(), _number_pythons(plan)
    jobs: dict[tuple[str, int | None], str] = {(f"{prefix}{step.id}", None): step.id for step in plan}
    return jobs | {(f"{prefix}{_array_name(step)}", numbers[step.cell.tag]): step.id for step in plan}


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
    folder: JobFolder, step: Step, job: Job, *, cancelled: bool, step_states: Mapping[str, StepState]
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
        why = "cancelled: no longer in the queue (scancel, or preempted for good)"
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

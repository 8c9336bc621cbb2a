"""The steps of a plan as jobs of Slurm: arrays, what each asks of a node, its script, and where each step is.

An array has the same step of several Pythons: of one kind, one project, one target set. The number of a task
is that of its Python in the plan, in every array, so that tasks correspond one to one. Which steps are
together, and their numbers, the plan alone decides: whoever reads the queue knows what a task does. The state
of a step is read from the queue first, then from the records of jobs that are not in it.

Sizes are those of the plan (recorded runs, else the stated table) with margins that are stated here, for
the processors of a job rather than for the machine that the plan was made on.

The script notes its begin, does its step, has its end judged, and asks for another turn. A task of an array
finds its step by its number, in the script itself, which Slurm keeps: nothing that is changed or seen late
afterwards can give it another. Bash does what must work outside a container, and when no Python starts:
records, signals, ``scontrol``. What an end means is decided by ``rocm-wheels jobs judge``. SIGUSR1
comes to the script alone, ``NOTICE_SECONDS`` before the limit of time (a quarter of it, if that is less);
SIGTERM comes to everything when a job is cancelled or preempted. The step then ends cleanly; whether a job
that was asked to end is wanted again, its state tells: that of a cancelled one is not RUNNING any more.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from rocm_wheels.core import errors, machine, shell, tables, workspace
from rocm_wheels.executors import executor, job_records, slurm_cluster
from rocm_wheels.models import project
from rocm_wheels.pipeline import estimates
from rocm_wheels.pipeline.step import TEST_KINDS, Plan, Step

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
                raise errors.DataError(f"steps wait for one another: {', '.join(circle.args[1])}") from circle
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


def map_job_names(folder: job_records.JobFolder, plan: Plan) -> dict[tuple[str, int | None], str]:
    """Return the steps of a plan by the names and numbers that their jobs can have in the queue.

    Whatever has been an array on any site, or been submitted without arrays.
    """
    prefix, numbers = folder.job_prefix(), _number_pythons(plan)
    jobs: dict[tuple[str, int | None], str] = {(f"{prefix}{step.id}", None): step.id for step in plan}
    return jobs | {(f"{prefix}{_array_name(step)}", numbers[step.cell.tag]): step.id for step in plan}


# as the plan had it when it was made
_UNSUBMITTED = {
    "skip": executor.StepState("", "done", why="before the plan was made"),
    "left out": executor.StepState("", "left out"),
}


def adopt_jobs(
    folder: job_records.JobFolder,
    plan: Plan,
    ledger: job_records.JobLedger,
    queue: Iterable[slurm_cluster.QueuedJob],
) -> job_records.JobLedger:
    """Return the ledger with jobs that are in the queue by our names: a submission may have been cut off."""
    steps_by_job, jobs = map_job_names(folder, plan), dict(ledger.jobs)
    for queued in sorted(queue, key=lambda queued: int(queued.job.id)):
        step = steps_by_job.get((queued.name, queued.job.task))
        if step is not None and (step not in jobs or int(queued.job.id) > int(jobs[step].id)):
            jobs[step] = queued.job
    return job_records.JobLedger(ledger.plan, jobs, ledger.cancelled)


def find_step_states(
    folder: job_records.JobFolder,
    plan: Plan,
    ledger: job_records.JobLedger,
    queue: Iterable[slurm_cluster.QueuedJob],
) -> dict[str, executor.StepState]:
    """Return the state of every step. The queue must have been asked before this reads the records."""
    job_names = map_job_names(folder, plan)  # ids begin anew with another controller
    queued = {entry.job: entry for entry in queue if (entry.name, entry.job.task) in job_names}
    step_states: dict[str, executor.StepState] = {}
    for step in plan:
        job = ledger.jobs.get(step.id)
        if job is None:
            step_states[step.id] = _UNSUBMITTED.get(step.verdict, executor.StepState("", "not submitted"))
            step_states[step.id] = replace(step_states[step.id], step=step.id)
        elif job in queued:
            step_states[step.id] = _find_queued_state(folder, step.id, queued[job])
        else:
            step_states[step.id] = _find_ended_state(
                folder, step, job, cancelled=step.id in ledger.cancelled, step_states=step_states
            )
    return step_states


def _find_queued_state(
    folder: job_records.JobFolder, step: str, job: slurm_cluster.QueuedJob
) -> executor.StepState:
    end = folder.read_end(step)
    before = f" (before: {end.reason})" if end is not None and end.job == str(job.job) and end.reason else ""
    if job.is_running or job.is_ending:
        begin = folder.read_begin(step)
        where = f"on {begin.host}" if begin is not None and begin.job == str(job.job) else ""
        more = f", restart {begin.restart}" if begin is not None and where and begin.restart else ""
        return executor.StepState(
            step, "running" if job.is_running else "ending", job.job, f"{where}{more}{before}".strip(), end
        )
    return executor.StepState(step, "waiting", job.job, f"{job.reason}{before}", end)


def _find_ended_state(
    folder: job_records.JobFolder,
    step: Step,
    job: job_records.Job,
    *,
    cancelled: bool,
    step_states: Mapping[str, executor.StepState],
) -> executor.StepState:
    begin, end = folder.read_begin(step.id), folder.read_end(step.id)
    begin = begin if begin is not None and begin.job == str(job) else None
    end = end if end is not None and end.job == str(job) else None
    if begin is not None and end is not None and begin.restart > end.restart:
        end = None  # it began once more, and has not told the end of that
    if end is not None and end.exit_code == 0:
        return executor.StepState(step.id, "done", job, "", end)
    if cancelled:
        return executor.StepState(step.id, "cancelled", job, "by jobs cancel", end)
    if end is not None and end.kind == "signal":
        why = "cancelled: no longer in the queue (scancel, or preempted for good)"
        return executor.StepState(step.id, "cancelled", job, why, end)
    if end is not None:
        return executor.StepState(step.id, "again" if end.again else "failed", job, end.reason, end)
    if begin is not None:
        return executor.StepState(step.id, "lost", job, f"began on {begin.host}, and ended without a word")
    missing = [
        name
        for name in step.after
        if step_states[name].state in ("failed", "blocked", "cancelled", "left out", "lost", "again")
    ]
    if missing:
        why = f"needs {missing[0]}, which {_describe_state(step_states[missing[0]])}"
        return executor.StepState(step.id, "blocked", job, why)
    return executor.StepState(step.id, "lost", job, "it is gone from the queue and has not begun")


def _describe_state(state: executor.StepState) -> str:
    words = {"failed": "failed", "blocked": "did not begin", "cancelled": "was cancelled"}
    return words.get(state.state, "did not end well")


MEMORY_MARGIN = 1.25  # and a GiB for what starts the compilers
TIME_MARGIN = 2.0  # nodes differ, and file systems that many share; too short costs a restart, no result
MINUTES_AT_LEAST = 30
DISK_WHEELS = 2  # a wheel in TMPDIR: unpacked to be checked, and packed; and a GiB for compilers
MOST_CPUS = 32  # by default: more shorten a build of torch little, and are waited for longer
CPUS_UNKNOWN = 16  # where no partition says
CPUS_OF_OTHERS = 2  # a step that compiles nothing
CPUS_OF_TESTS = 8  # the CPU's half of the tests, and compilers that tests start
GPU_OPTIONS = ("--gres=gpu:1",)  # what sbatch is asked for a GPU by, where a site says nothing else
_MIB, _GIB = 1 << 20, 1 << 30
_NO_MACHINE = machine.MachineResources(1, _GIB, _GIB)  # the number of jobs is given, so this is not asked


@dataclass(frozen=True)
class JobSize:
    """Processors, MiB of memory and of TMPDIR (``None``: not asked for), minutes. ``notes``: for people.

    ``gpu``: it needs one.
    """

    cpus: int
    memory: int | None
    disk: int | None
    minutes: int
    notes: tuple[str, ...] = ()
    gpu: bool = False


def size_job(
    step: Step,
    plan: Plan,
    history: estimates.History,
    partition: slurm_cluster.Partition | None,
    cpus: int | None,
) -> JobSize:
    """Return what the job of a step asks for; ``cpus``: processors that a build is to have.

    No more than the nodes of the partition have: fewer compilers run at a time then, and a job that its
    partition's limit ends goes on in the next one.
    """
    if cpus is None:
        cpus = min(partition.cpus, MOST_CPUS) if partition else CPUS_UNKNOWN
    if step.kind != "build":
        cpus = min(cpus, CPUS_OF_TESTS if step.kind in TEST_KINDS else CPUS_OF_OTHERS)
    expected = _estimate_step(step, plan, history, cpus)
    notes = []
    memory: int | None = int((expected.memory * MEMORY_MARGIN + _GIB) // _MIB)
    if partition is not None and partition.memory is None:
        memory = None
        notes.append(f"no --mem: Slurm does not know how much memory the nodes of {partition.name} have")
    elif partition is not None and memory is not None and partition.memory is not None:
        if memory > partition.memory:
            memory_text, most = tables.format_size(memory * _MIB), tables.format_size(partition.memory * _MIB)
            notes.append(f"--mem: {memory_text} would do; nodes of {partition.name} have {most}")
        memory = min(memory, partition.memory)
    disk: int | None = (expected.wheel * DISK_WHEELS + _GIB) // _MIB
    if partition is not None and partition.disk is None:
        disk = None
        notes.append(f"no --tmp: Slurm does not know how large TMPDIR of {partition.name} is")
    minutes = max(int(expected.seconds * TIME_MARGIN / 60) + 1, MINUTES_AT_LEAST)
    if partition is not None and partition.minutes is not None and minutes > partition.minutes:
        needed, limit = tables.format_duration(minutes * 60), tables.format_duration(partition.minutes * 60)
        notes.append(f"--time: {needed} would do; {partition.name} gives {limit}")
        minutes = partition.minutes
    return JobSize(cpus, memory, disk, minutes, tuple(notes), gpu=step.needs_gpu)


def _estimate_step(step: Step, plan: Plan, history: estimates.History, cpus: int) -> estimates.Estimate:
    if step.kind != "build":
        return estimates.estimate_step(step.kind, max(len(plan.targets), 1), _NO_MACHINE, history, jobs=cpus)
    targets = max(len(plan.targets), 1) if project.load_project(str(step.project)).has_device_code else 1
    if step.cell.target_set:  # one word of several; a family has a few of all targets
        sets = {other.cell.target_set for other in plan if other.cell.target_set}
        targets = max(targets // len(sets), 1)
    return estimates.estimate_step(str(step.project), targets, _NO_MACHINE, history, jobs=cpus)


def describe_size(size: JobSize) -> str:
    """Say what a job asks for."""
    parts = [f"{size.cpus} CPUs"]
    parts += [f"{tables.format_size(size.memory * _MIB)} memory"] if size.memory else []
    parts += [f"{tables.format_size(size.disk * _MIB)} TMPDIR"] if size.disk else []
    parts += ["a GPU"] if size.gpu else []
    return ", ".join([*parts, tables.format_duration(size.minutes * 60)])


@dataclass(frozen=True)
class ArrayPart:
    """Steps of one array that are submitted together. ``delay``: seconds before they may begin."""

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

    def assign_jobs(self, job: int | str) -> dict[str, job_records.Job]:
        """Return the job of each step, once sbatch has told their id."""
        return {step.id: job_records.Job(job, self.array.task_number(step.id)) for step in self.steps}


def split_array(
    array: JobArray,
    decided: Sequence[executor.Decision],
    sizes: Mapping[str, JobSize],
    jobs: Mapping[str, job_records.Job],
    network_delay: float,
) -> list[ArrayPart]:
    """Return what is to be submitted of an array. ``decided``: about those of its steps that are.

    First what may begin first: where tasks are one by one, a part waits for the parts before it.
    """
    groups: dict[tuple[JobSize, int, str], list[Step]] = {}
    for decision in decided:
        end = decision.state.end if decision.state.state == "again" else None
        after = 0 if end is None else job_records.compute_delay(end, network_delay)
        key = (sizes[decision.step.id], after, make_dependency(array, decision.step, jobs))
        groups.setdefault(key, []).append(decision.step)
    parts = sorted(groups.items(), key=lambda part: (part[0][1], part[0][2].count(":")))
    return [ArrayPart(array, tuple(steps), size, after) for (size, after, _), steps in parts]


def list_conflicting_jobs(
    array: JobArray, decided: Iterable[executor.Decision], jobs: Mapping[str, job_records.Job]
) -> list[job_records.Job]:
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
    array: JobArray, step: Step, jobs: Mapping[str, job_records.Job], others: Iterable[job_records.Job] = ()
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


def shorten_jobs(jobs: Iterable[job_records.Job], queued: Collection[job_records.Job]) -> list[str]:
    """Name jobs by the ids of their arrays, where all that is left of an array is meant."""
    named = set(jobs)
    remaining = {job.id for job in queued if job not in named}
    return list(
        dict.fromkeys(
            str(job) if job.id in remaining else str(job.id) for job in sorted(named, key=_job_order)
        )
    )


def _job_order(job: job_records.Job) -> tuple[int, str, int]:
    """Sort by ids; those that are yet to be given, which are names, come last."""
    has_id = isinstance(job.id, int)
    return int(job.id) if has_id else sys.maxsize, str(job.id), -1 if job.task is None else job.task


NOTICE_SECONDS = 120  # Slurm may tell a minute earlier (sbatch(1), --signal)
_MEMORY_UNITS = ("CPU", "GPU", "NODE")
_RESERVED_OPTIONS = (
    *("array", "dependency", "output", "error", "open-mode", "wrap", "parsable", "job-name", "no-requeue"),
    *("requeue", "signal", "wait", "test-only", "hold", "kill-on-invalid-dep", "ntasks", "nodes"),
)
# SBATCH_ and this, where that is not the name of the option (sbatch(1), input environment variables)
_OTHER_VARIABLES = {
    "array": {"ARRAY_INX"},
    "time": {"TIMELIMIT"},
    "mem": {f"MEM_PER_{unit}" for unit in _MEMORY_UNITS},
}
_OPTION_PATTERN = re.compile(r"--(?P<long>[a-z][a-z0-9-]*)(?:=.*)?|-(?P<short>[A-Za-z]).*", re.DOTALL)
_SHORT_OPTIONS = {
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "J": "job-name",
    "n": "ntasks",
}
_SHORT_OPTIONS |= {"N": "nodes", "W": "wait", "H": "hold", "M": "clusters"}


@dataclass(frozen=True)
class SlurmSite:
    """What a site wants of every job. ``options``: further options of sbatch, one a line.

    ``prefix``: the words before our command (``apptainer exec image.sif``); ``program``: our own.
    ``gpu_options``: further ones of a step that needs a GPU. ``array_limit``: tasks of an array at a time.
    ``network_delay``: seconds before a step that met a broken network is tried again.
    """

    program: tuple[str, ...]
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    attempts: int = 3
    array_limit: int | None = None
    network_delay: float = 300.0
    gpu_options: tuple[str, ...] = GPU_OPTIONS

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> SlurmSite:
        """Return what options of ``jobs submit`` say. Raises UsageError."""
        try:
            prefix = tuple(shlex.split(options["container_prefix"] or ""))
        except ValueError as cause:
            raise errors.UsageError(f"--container-prefix: {cause}", tip="close the quotes") from cause
        return cls(
            program=("rocm-wheels",) if prefix else tuple(workspace.get_own_command()),
            partition=options["partition"],
            account=options["account"],
            qos=options["qos"],
            constraint=options["constraint"],
            options=tuple(options["sbatch_option"]),
            prefix=prefix,
            attempts=options["attempts"],
            network_delay=options["network_delay"],
            array_limit=options["array_limit"],
            gpu_options=tuple(options["gpu_option"]) or GPU_OPTIONS,
        )

    def check_options(self) -> None:
        """Refuse options that a script cannot have, or that this program sets itself. Raises UsageError."""
        named_options = {
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--constraint": self.constraint,
        }
        for option, value in named_options.items():
            if value is not None and (not value.strip() or not value.isprintable() or {*'"\\'} & {*value}):
                raise errors.UsageError(f"{option} {value!r} is no name")
        for option in self.options:
            _check_option("--sbatch-option", option)
        for option in self.gpu_options:
            _check_option("--gpu-option", option)
        for word in self.prefix:
            if shell.format_command([word]) != shlex.quote(word):
                raise errors.UsageError(
                    "--container-prefix has a secret in it, and scripts of jobs are there to be read",
                    tip="set it in the environment: jobs get that of `jobs submit`",
                )


def _check_option(ours: str, option: str) -> None:
    try:
        words = shlex.split(option, comments=True)  # as sbatch reads a line of a script
    except ValueError as cause:
        raise errors.UsageError(f"{ours} {option!r}: {cause}", tip="close the quotes") from cause
    if not words or not option.isprintable() or _OPTION_PATTERN.fullmatch(words[0]) is None:
        raise errors.UsageError(f"{ours} {option!r} is no option of sbatch", tip=f"as in {ours}=--gres=gpu:1")
    for match in filter(None, map(_OPTION_PATTERN.fullmatch, words)):  # there can be several
        name = match["long"] or _SHORT_OPTIONS.get(match["short"] or "", "-")
        if name == "clusters":
            raise errors.UsageError(
                f"{ours} --clusters: the queue of another cluster would not be looked at",
                tip="set SLURM_CLUSTERS, which all of Slurm's programs read",
            )
        if reserved := next(
            (name_of_ours for name_of_ours in _RESERVED_OPTIONS if name_of_ours.startswith(name)), ""
        ):  # sbatch takes beginnings, too
            raise errors.UsageError(f"{ours} {option}: every job has a --{reserved} of its own already")
    name = words[0].lstrip("-").split("=")[0]
    if shell.format_command([option]) != shlex.quote(option):
        raise errors.UsageError(
            f"{ours} --{name}: it has a secret in it, and scripts of jobs are there to be read",
            tip="set it in the environment: jobs get that of `jobs submit`",
        )


def make_job_environment(script: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch and the job get: no variable that would win over an option in the script.

    sbatch(1): environment variables override what a script says; SBATCH_EXPORT=NONE would take from jobs
    what they need. A job that submits jobs has a count of restarts that is its own.
    """
    set_options = {
        *_RESERVED_OPTIONS,
        "export",
        *re.findall(r"^#SBATCH --([a-z0-9-]+)", script, re.MULTILINE),
    }
    lost = set().union(
        *(_OTHER_VARIABLES.get(option, {option.upper().replace("-", "_")}) for option in set_options)
    )
    unwanted = {"SLURM_RESTART_COUNT", *(f"SBATCH_{name}" for name in lost)}
    return {name: value for name, value in env.items() if name not in unwanted}


def make_directives(
    folder: job_records.JobFolder, array: JobArray, size: JobSize, site: SlurmSite
) -> list[str]:
    """Return the options of a job, as sbatch reads them from the head of its script; later ones win."""
    log = folder.log_path(array.name) if array.plain else folder.task_log_path(array.name, "\0")
    name = str(log).replace("%", "%%").replace("\0", "%a")
    words = [
        f"--job-name={folder.job_prefix()}{array.name}",
        f"--output={_quote_value(name)}",
        f"--chdir={_quote_value(str(folder.path))}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{min(NOTICE_SECONDS, size.minutes * 15)}",
        "--kill-on-invalid-dep=yes",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={size.cpus}",
    ]
    words += [f"--mem={size.memory}M"] if size.memory else []
    words += [f"--tmp={size.disk}M"] if size.disk else []
    words += [f"--time={size.minutes}"]
    named_options = {"partition": site.partition, "account": site.account}
    named_options |= {"qos": site.qos, "constraint": site.constraint}
    words += [f"--{name}={_quote_value(value)}" for name, value in named_options.items() if value is not None]
    words += [option.strip() for option in site.options]
    return [*words, *(option.strip() for option in site.gpu_options if size.gpu)]


def _quote_value(value: str) -> str:
    """Return a value for a line that sbatch reads: quoted where it is more than a word."""
    if '"' in value or "\n" in value or "\\" in value:
        raise errors.UsageError(
            f"{value!r} cannot stand in a script for sbatch", tip="give the folder another name"
        )
    return value if re.fullmatch(r"[\w./:=,@+%-]+", value, re.ASCII) else f'"{value}"'


def make_job_script(folder: job_records.JobFolder, array: JobArray, size: JobSize, site: SlurmSite) -> str:
    """Return the script of a step's job, or of an array. Slurm keeps it as it is submitted."""
    ours = [*site.prefix, *site.program]
    head = "\n".join(f"#SBATCH {word}" for word in make_directives(folder, array, size, site))
    judge = [*ours, "jobs", "judge", str(folder.plan), "--attempts", str(site.attempts)]
    judge += ["--network-delay", f"{site.network_delay:g}s"]
    return _SCRIPT_TEMPLATE.format(
        head=head,
        which=_PLAIN_STEP.format(step=shlex.quote(array.steps[0]))
        if array.plain
        else _format_task_cases(array),
        plan=shlex.quote(str(folder.plan)),
        folder=shlex.quote(str(folder.path)),
        run=f'{_join_words([*ours, "run-step"])} "$step" {_join_words(["--plan", str(folder.plan)])}',
        judge=_join_words(judge),
    )


def _format_task_cases(array: JobArray) -> str:
    cases = [f"  {number}) step={shlex.quote(step)} ;;" for number, step in array.tasks.items()]
    return _ARRAY_STEP.format(cases="\n".join(cases))


def _join_words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


_PLAIN_STEP = """step={step}
job=$id"""

_ARRAY_STEP = """case ${{SLURM_ARRAY_TASK_ID:?this is a task of an array}} in
{cases}
  *) echo "error: no step has the number $SLURM_ARRAY_TASK_ID"; exit 2 ;;
esac
job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID  # the last task's own id is that of the whole array"""

_SCRIPT_TEMPLATE = """#!/bin/bash
{head}
# Steps of a plan, one a job; `rocm-wheels jobs submit` has written this, and rewrites it.
set -u
plan={plan}
id=${{SLURM_JOB_ID:?this is a job of a Slurm cluster}}
{which}
base={folder}/$step
restart=${{SLURM_RESTART_COUNT:-0}}
host=$(uname -n)

write() {{  # a file is there whole or not at all
  printf '%s\\n' "$2" > "$1.$job.part" && mv -f "$1.$job.part" "$1"
}}
now() {{ date -u +%Y-%m-%dT%H:%M:%SZ; }}

echo "== $step: job $job on $host, restart $restart, $(now)"
if [ ! -r "$plan" ]; then
  echo "error: $host does not see $plan"
  echo "tip: plan, work directory and source trees must be on a file system that all nodes share"
  exit 2
fi
this="\\"job\\": \\"$job\\", \\"restart\\": $restart, \\"host\\": \\"$host\\""
if ! write "$base.begin.json" "{{$this, \\"began\\": \\"$(now)\\", \\"id\\": \\"$id\\"}}"; then
  echo "error: $host cannot write to $base.begin.json"
  echo "tip: is the file system full, or may only some nodes write to it?"
  exit 2
fi
if [ -s "$base.jobs" ]; then
  MAX_JOBS=$(cat "$base.jobs")
  export MAX_JOBS
fi

because=""
child=""
later=""
tell() {{
  hit=1
  because=$1
  [ -n "$child" ] || return
  if [ "$1" = time ]; then
    kill -TERM "$child" 2> /dev/null
  else  # the step has got it as well, as a rule
    ( sleep 3; kill -TERM "$child" 2> /dev/null ) &
    later=$!
  fi
}}
trap 'tell time' USR1
trap 'tell signal' TERM

{run} &
child=$!
[ -z "$because" ] || kill -TERM "$child"
code=1
while :; do
  hit=""
  wait "$child"
  ended=$?
  [ "$ended" -eq 127 ] || code=$ended
  [ -n "$hit" ] || break
done
[ -z "$later" ] || kill "$later" 2> /dev/null
child=""
trap '' USR1

verdict=$({judge} "$step" --exit-code "$code" --because "$because")
verdict=${{verdict##*$'\\n'}}  # the last line: what starts a container may speak, too
if [ -z "$verdict" ]; then
  this="$this, \\"ended\\": \\"$(now)\\", \\"exit_code\\": $code, \\"kind\\": \\"unknown\\""
  this="$this, \\"reason\\": \\"exit code $code, and nobody could tell why\\", \\"again\\": false"
  write "$base.end.json" "{{$this, \\"failures\\": 1, \\"interruptions\\": 0}}"
  exit "$code"
fi
if [ "${{verdict%% *}}" = again ]; then
  state=""
  for _ in {{1..10}}; do  # a controller that is being restarted is silent for minutes
    state=$(scontrol show job -o "$job" | grep -o -m 1 'JobState=[A-Z_]*')
    [ -z "$state" ] || break
    sleep 20
  done
  if [ "$state" = JobState=RUNNING ]; then
    trap '' TERM
    if scontrol requeue "$job"; then
      wait=${{verdict#* }}
      [ "$wait" -eq 0 ] || scontrol update JobId="$job" StartTime=now+"$wait"
      exit 0
    fi
  fi
fi
exit "$code"
"""

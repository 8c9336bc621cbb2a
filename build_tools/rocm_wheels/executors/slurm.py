"""Run a plan on a Slurm cluster: submit its steps array by array, wait for them, cancel them.

The state is what ``squeue`` says and what our jobs write down themselves, never accounting: many sites have
none. The same step of several Pythons is one array of jobs: one call of sbatch, one line in squeue. Steps
that work in one source tree are one at a time in it (``%1``), in whatever order; a step that needs that of
its own Python waits for this task alone (``aftercorr``).

Whether the nodes see what a plan works on is checked as far as that can be told from here; every job looks
itself whether it sees the plan. Our locks are flock(2). On NFS Linux turns them into locks of the server
since 2.6.12 (flock(2); nfs(5): not with ``nolock`` or ``local_lock=flock``), on Lustre with the mount option
``flock``. Where they hold on one machine only, nothing but the order of jobs keeps two of them apart: it
does for steps and source trees; what several steps install into one environment at a time is then kept
apart on each node alone.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rocm_wheels.core import files, log, shell, tables, workspace
from rocm_wheels.core.errors import UsageError
from rocm_wheels.executors import job_records, slurm_cluster, slurm_jobs
from rocm_wheels.executors.executor import (
    AT_WORK,
    Decision,
    ExecutorOption,
    ExecutorUnreachableError,
    Preview,
    StepState,
    decide_steps,
)
from rocm_wheels.pipeline import estimates, run_step
from rocm_wheels.pipeline.plan import PlanFile, check_request, plan_run, read_plan, restore_addresses
from rocm_wheels.pipeline.step import Plan

_LOCK_SECONDS = 60  # for another submission: a call of sbatch takes a part of a second


class PlanInUseError(ExecutorUnreachableError):
    """Somebody else submits or cancels jobs of the plan, and takes long."""


@dataclass(frozen=True)
class SlurmExecutor:
    """A plan that is submitted from here. ``env``: what the jobs get, and Slurm's programs."""

    folder: job_records.JobFolder
    file: PlanFile
    site: slurm_jobs.SlurmSite
    env: Mapping[str, str]
    cpus: int | None = None
    in_arrays: bool = True
    assume_shared: bool = False

    options: ClassVar[tuple[ExecutorOption, ...]] = (
        ExecutorOption(
            "partition",
            "Partition of the jobs [default: the site's].",
            metavar="P",
            variable="SBATCH_PARTITION",
        ),
        ExecutorOption("account", "Account that is charged.", metavar="A", variable="SBATCH_ACCOUNT"),
        ExecutorOption("qos", "Quality of service.", metavar="Q", variable="SBATCH_QOS"),
        ExecutorOption(
            "constraint",
            "What nodes must have, as sbatch takes it; these four also by SBATCH_PARTITION and so on.",
            metavar="C",
            variable="SBATCH_CONSTRAINT",
        ),
        ExecutorOption(
            "sbatch_option",
            "A further option of sbatch for all jobs, over ours: --sbatch-option=--mem=64G.",
            "words",
            metavar="OPTION",
        ),
        ExecutorOption(
            "gpu_option",
            "An option of sbatch for steps that need a GPU, in place of --gres=gpu:1: "
            "--gpu-option=--gpus=mi250:1 --gpu-option=--partition=gpu.",
            "words",
            metavar="OPTION",
        ),
        ExecutorOption(
            "array_limit",
            "Tasks of an array at a time; builds in one source tree are one by one whatever this says.",
            "count",
            metavar="N",
        ),
        ExecutorOption("no_array", "A job of its own for each step, and no arrays.", "flag"),
        ExecutorOption(
            "container_prefix",
            "Words before our command in a job: 'apptainer exec --bind /shared image.sif'.",
            metavar="WORDS",
        ),
    )

    @classmethod
    def open_plan(cls, plan: Path, options: Mapping[str, Any], env: Mapping[str, str]) -> SlurmExecutor:
        """Read a plan that is submitted with options of the command line. Raises UsageError."""
        if options["no_array"] and options["array_limit"] is not None:
            raise UsageError("--array-limit has no effect with --no-array")
        executor = cls.from_plan(
            plan,
            slurm_jobs.SlurmSite.from_options(options),
            env,
            options["cpus"],
            in_arrays=not options["no_array"],
        )
        return replace(executor, assume_shared=options["assume_shared"])

    @classmethod
    def from_plan(
        cls,
        plan: Path,
        site: slurm_jobs.SlurmSite,
        env: Mapping[str, str],
        cpus: int | None = None,
        *,
        in_arrays: bool = True,
    ) -> SlurmExecutor:
        """Read a plan. Raises UsageError for one that cannot be run by Slurm, or from here."""
        file = read_plan(plan)
        if file.request.platform != "linux":
            raise UsageError(
                f"{plan} is a plan for {file.request.platform}, and Slurm's nodes run Linux",
                tip="make the plan on a machine of the cluster",
            )
        site.check_options()
        if plan.suffix == ".slurm":
            raise UsageError(f"{plan} is called as the folder of its own jobs", tip="call it NAME.json")
        if (other := env.get("SBATCH_CLUSTERS")) and other != env.get("SLURM_CLUSTERS"):
            raise UsageError(
                f"SBATCH_CLUSTERS={other}: squeue does not read it, so jobs there would not be found",
                tip="set SLURM_CLUSTERS in its place, which all of Slurm's programs read",
            )
        if (several := env.get("SLURM_CLUSTERS", "")) == "all" or "," in several:
            raise UsageError(
                f"SLURM_CLUSTERS={several}: jobs of one cluster cannot wait for those of another",
                tip="name one cluster",
            )
        clean = {name: value for name, value in env.items() if name != run_step.RECORD_VARIABLE}
        return cls(job_records.JobFolder(plan.resolve()), file, site, clean, cpus, in_arrays)

    def settle_plan(self) -> Plan:
        """Return the plan as it is settled now. Raises UsageError when what it was made of changed."""
        addresses = {name: self.env.get(variable) for name, variable in run_step.ADDRESS_VARIABLES.items()}
        file = self.file
        for step in self.file.plan:
            try:
                file = restore_addresses(file, step.id, addresses)
            except UsageError as missing:
                names = " or ".join(run_step.ADDRESS_VARIABLES.values())
                missing.tip = f"set {names}: jobs get the environment of this command"
                raise
        planned = plan_run(check_request(file.request, self.env))
        locked = planned.facts.locked
        if self.file.lock is not None and (locked is None or locked.digest != self.file.lock[1]):
            raise self._make_stale_error([f"{self.file.lock[0]} is another lock"])
        changes = []
        for step in self.file.plan:
            if step.id not in planned.plan.steps:
                changes.append(f"{step.id}: there is no such step any more")
                continue
            inputs = {name: str(value) for name, value in planned.plan.steps[step.id].inputs.items()}
            if planned.plan.steps[step.id].verdict != "left out":
                changes += [
                    f"{step.id}: inputs changed: {line}" for line in run_step.compare_with_plan(step, inputs)
                ]
        changes += [f"{name}: a new step" for name in planned.plan.steps if name not in self.file.plan.steps]
        if changes:
            raise self._make_stale_error(changes)
        return planned.plan

    def _make_stale_error(self, changes: Sequence[str]) -> UsageError:
        details = "".join(f"\n  {line}" for line in changes[:10])
        more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
        return UsageError(
            f"{self.folder.plan} is older than what it was made of:{details}{more}", tip="make the plan again"
        )

    def read_states(self) -> dict[str, StepState]:
        """Return where each step is, by queue and records."""
        return self.read_jobs()[1]

    def log_path(self, step: str) -> Path:
        """Return the log of a step's jobs."""
        return self.folder.log_path(step)

    def read_jobs(self, *, queued: bool = True) -> tuple[job_records.JobLedger, dict[str, StepState]]:
        """Return which jobs there are, and where each step is; ``queued``: ask the queue, too."""
        written = self.folder.read_ledger()  # first: what is submitted meanwhile is in the queue by its name
        queue = slurm_cluster.query_queue(self.env) if queued else []
        ledger = slurm_jobs.adopt_jobs(self.folder, self.file.plan, self._match_ledger(written, queue), queue)
        return ledger, slurm_jobs.find_step_states(self.folder, self.file.plan, ledger, queue)

    def _match_ledger(
        self, ledger: job_records.JobLedger, queue: Sequence[slurm_cluster.QueuedJob]
    ) -> job_records.JobLedger:
        """Return a ledger; that of a plan that was here before counts no more once its jobs have ended."""
        digest = self.folder.compute_digest()
        if ledger.plan in ("", digest):
            return replace(ledger, plan=digest)
        ids = [queued.job for queued in queue]
        if remaining := slurm_jobs.shorten_jobs([job for job in ids if job in {*ledger.jobs.values()}], ids):
            raise UsageError(
                f"{self.folder.plan} has changed, and jobs of the plan that it was are in the queue: "
                f"{', '.join(remaining)}",
                tip=f"wait for them, or: scancel {' '.join(remaining)}",
            )
        return job_records.JobLedger(digest)

    def make_decisions(
        self, plan: Plan, *, retry_failed: bool = False, but_cancelled: bool = False, queued: bool = True
    ) -> tuple[job_records.JobLedger, list[Decision]]:
        """Decide about each step of the plan as ``settle_plan`` returns it, from queue and records."""
        ledger, step_states = self.read_jobs(queued=queued)
        if self.folder.read_ledger().plan not in (
            "",
            ledger.plan,
        ):  # of another plan: it tells nothing of this
            step_states = {step.id: StepState(step.id, "not submitted") for step in plan}
        plan = slurm_jobs.arrange_plan(plan, self.arrays)
        return ledger, decide_steps(plan, step_states, retry_failed=retry_failed, but_cancelled=but_cancelled)

    @cached_property
    def arrays(self) -> list[slurm_jobs.JobArray]:
        """What is submitted together, by plan and site; as on most sites where there is no cluster."""
        size = slurm_jobs.ARRAY_SIZE if self.in_arrays else 0
        if (
            size
            and slurm_cluster.has_slurm(self.env)
            and any(not array.plain for array in slurm_jobs.group_arrays(self.file.plan))
        ):
            size = slurm_cluster.query_array_size(self.env)
        return slurm_jobs.group_arrays(self.file.plan, size)

    def compute_sizes(self, decided: Sequence[Decision]) -> dict[str, slurm_jobs.JobSize]:
        """Return what the jobs to be submitted ask for; where there is no cluster, by the plan alone."""
        history = estimates.read_history(workspace.Workspace(self.file.request.work).runs, self.env)
        partition: slurm_cluster.Partition | None = None
        if slurm_cluster.has_slurm(self.env):
            partition = slurm_cluster.choose_partition(
                slurm_cluster.query_partitions(self.env), self.site.partition
            )
        return {
            decision.step.id: slurm_jobs.size_job(
                decision.step, self.file.plan, history, partition, self.cpus
            )
            for decision in decided
            if decision.submits
        }

    def preview(self, *, retry_failed: bool) -> Preview:
        """Return what would be submitted; without Slurm here, as if nothing were queued."""
        here = slurm_cluster.has_slurm(self.env)
        if not here:
            log.log_note(
                "there is no Slurm here: as if nothing were queued, with sizes that no partition limits"
            )
        _, decided = self.make_decisions(self.settle_plan(), retry_failed=retry_failed, queued=here)
        lines = describe_submission(self, decided)
        return Preview(decided, lines, sum(line.startswith("sbatch ") for line in lines))

    def judge_job(self, step: str, code: int, because: str) -> str:
        """Write down how a job ended; return what its script is to do: ``stop``, or ``again SECONDS``."""
        step = self.file.plan.find_step(step).id
        runs = workspace.Workspace(self.file.request.work).runs
        end = job_records.judge_end(
            self.folder, step, runs, code=code, because=because, attempts=self.site.attempts
        )
        self.folder.write_end(step, end)
        log.log_note(f"== {step}: {end.kind}{f', {end.reason}' if end.reason else ''}")
        return f"again {job_records.compute_delay(end, self.site.network_delay)}" if end.again else "stop"

    def submit(self, *, retry_failed: bool = False, but_cancelled: bool = False) -> list[Decision]:
        """Submit what is to be submitted; return what was decided. Raises UsageError as sbatch says."""
        slurm_cluster.find_program("sbatch", self.env)
        if not but_cancelled and not self.assume_shared:
            check_shared(self)
        plan = self.settle_plan()
        slurm_cluster.choose_partition(slurm_cluster.query_partitions(self.env), self.site.partition)
        with self.hold_lock("submit"):
            ledger, decided = self.make_decisions(
                plan, retry_failed=retry_failed, but_cancelled=but_cancelled
            )
            if any(decision.submits and decision.state.state == "done" for decision in decided):
                plan = self.settle_plan()  # it was done since this was planned, as a rule
                ledger, decided = self.make_decisions(
                    plan, retry_failed=retry_failed, but_cancelled=but_cancelled
                )
            self._record_done(decided)
            sizes = self.compute_sizes(decided)
            note_sizes(sizes)
            if self.folder.read_ledger().plan not in ("", ledger.plan):
                for decision in decided:
                    if decision.submits:
                        self.folder.forget_step(decision.step.id)
            return self._submit_parts(ledger, decided, sizes, retry_failed=retry_failed)

    def hold_lock(self, purpose: str) -> AbstractContextManager[None]:
        """Wait until nobody else submits or cancels jobs of this plan, and keep others from it."""
        return files.lock_folder(
            self.folder.path,
            purpose=purpose,
            tip=files.WAIT_TIP,
            patience=_LOCK_SECONDS,
            error=PlanInUseError,
        )

    def _submit_parts(
        self,
        ledger: job_records.JobLedger,
        decided: list[Decision],
        sizes: Mapping[str, slurm_jobs.JobSize],
        *,
        retry_failed: bool,
    ) -> list[Decision]:
        decisions = {
            decision.step.id: decision
            for decision in self._keep_decisions(decided, retry_failed=retry_failed)
        }
        ledger = self._take_back_jobs(ledger, decisions.values())
        jobs = list_queued_jobs(decisions.values())
        count = 0
        for array in self.arrays:
            submitted = [decisions[step] for step in array.steps if decisions[step].submits]
            for part in slurm_jobs.split_array(array, submitted, sizes, jobs, self.site.network_delay):
                try:
                    new = self._submit_part(
                        part, jobs, slurm_jobs.list_conflicting_jobs(array, decided, jobs)
                    )
                except (UsageError, OSError):
                    if count:
                        log.log_note(
                            f"submitted before this: {count}; the same command takes up what is queued"
                        )
                    raise
                count += len(new)
                jobs |= new
                ledger = replace(ledger, jobs={**ledger.jobs, **new}, cancelled=ledger.cancelled - {*new})
                self.folder.write_ledger(ledger)
                for step, job in new.items():
                    decisions[step] = replace(decisions[step], state=StepState(step, "waiting", job))
        self.folder.write_ledger(ledger)
        return list(decisions.values())

    def _record_done(self, decided: Iterable[Decision]) -> None:
        """Note what is done though its job has not told so: lost at the very end, or done by hand."""
        for decision in decided:
            if (
                decision.action == "done"
                and decision.state.job is not None
                and decision.state.state != "done"
            ):
                end = job_records.make_done_end(self.folder, decision.step.id, str(decision.state.job))
                self.folder.write_end(decision.step.id, end)

    def _keep_decisions(self, decided: Iterable[Decision], *, retry_failed: bool) -> list[Decision]:
        """Return decisions once jobs that were lost are counted: no attempt is left to some."""
        decisions: list[Decision] = []
        stopped: set[str] = set()
        for decision in decided:
            current = decision
            if current.submits and stopped & {*current.step.after}:
                current = replace(current, action="held back", why="what it needs failed too often")
            elif current.submits and (reason := self._count_lost_job(current, retry_failed=retry_failed)):
                current = replace(current, action="stopped", why=reason)
            if current.action in ("stopped", "held back"):
                stopped.add(current.step.id)
            decisions.append(current)
        return decisions

    def _take_back_jobs(
        self, ledger: job_records.JobLedger, decided: Iterable[Decision]
    ) -> job_records.JobLedger:
        """Take jobs from the queue that wait for others which are no more."""
        old = {
            decision.step.id: decision.state.job
            for decision in decided
            if decision.action == "renew" and decision.state.job
        }
        if not old:
            return ledger
        slurm_cluster.cancel_jobs([str(job) for job in old.values()], self.env)
        ledger = replace(ledger, jobs={step: job for step, job in ledger.jobs.items() if step not in old})
        self.folder.write_ledger(ledger)
        return ledger

    def _count_lost_job(self, decision: Decision, *, retry_failed: bool) -> str:
        """Count a job that was lost; say why there is no further attempt, if there is none."""
        if retry_failed and decision.state.state == "failed":
            self.folder.forget_step(decision.step.id)
        if decision.state.state != "lost" or decision.state.job is None:
            return ""
        runs = workspace.Workspace(self.file.request.work).runs
        end = job_records.judge_lost_job(
            self.folder, decision.step.id, runs, str(decision.state.job), attempts=self.site.attempts
        )
        self.folder.write_end(decision.step.id, end)
        return "" if end.again or retry_failed else end.reason

    def _submit_part(
        self,
        part: slurm_jobs.ArrayPart,
        jobs: Mapping[str, job_records.Job],
        others: Collection[job_records.Job],
    ) -> dict[str, job_records.Job]:
        """Submit a part of an array; return the jobs of its steps."""
        text = slurm_jobs.make_job_script(self.folder, part.array, part.size, self.site)
        script = self.folder.script_path(part.array.name)
        files.write_atomically(script, text)
        if not part.array.plain:
            self.folder.link_logs(part.array.name, part.array.tasks)
        words = slurm_cluster.compose_submission(
            script,
            array=part.array_expression(self.site.array_limit),
            dependency=slurm_jobs.make_dependency(part.array, part.steps[0], jobs, others),
            delay=part.delay,
        )
        return part.assign_jobs(
            slurm_cluster.submit_script(words, slurm_jobs.make_job_environment(text, self.env))
        )

    def cancel(self, names: Collection[str] = ()) -> list[str]:
        """Take the jobs of a plan from the queue, or those of steps and arrays; return whose they were."""
        steps = self._find_steps(names)
        if not self.folder.path.is_dir():
            return []
        with self.hold_lock("cancel"):
            ledger, step_states = self.read_jobs()
            going = {
                step_state.step: step_state.job
                for step_state in step_states.values()
                if step_state.state in AT_WORK and step_state.job is not None
            }
            jobs = {step: job for step, job in going.items() if step in steps}
            self.folder.write_ledger(replace(ledger, cancelled=ledger.cancelled | {*jobs}))
            try:
                slurm_cluster.cancel_jobs(slurm_jobs.shorten_jobs(jobs.values(), going.values()), self.env)
            except UsageError:  # who waits for them must not take those for cancelled that go on
                self.folder.write_ledger(ledger)
                raise
        return list(jobs)

    def _find_steps(self, names: Collection[str]) -> set[str]:
        """Return the steps that are meant by names of steps and arrays; all by none. Raises UsageError."""
        steps = self.file.plan.steps
        steps_by_name: dict[str, tuple[str, ...]] = {name: (name,) for name in steps}
        steps_by_name |= {
            array.name: array.steps for array in slurm_jobs.group_arrays(self.file.plan) if not array.plain
        }
        for name in names:
            if name not in steps_by_name:
                raise UsageError(
                    f"--step: the plan has no step or array {name}{tables.suggest_name(name, steps_by_name)}",
                    tip=f"it has: {', '.join(steps_by_name)}",
                )
        return {step for name in names for step in steps_by_name[name]} if names else {*steps}


def list_queued_jobs(decided: Iterable[Decision]) -> dict[str, job_records.Job]:
    """Return the jobs of steps that are in the queue and stay there."""
    return {
        decision.step.id: decision.state.job
        for decision in decided
        if decision.action == "leave" and decision.state.job is not None
    }


def describe_submission(submission: SlurmExecutor, decided: Sequence[Decision]) -> list[str]:
    """Return the lines. An id that sbatch has yet to give is the name of its array in angle brackets."""
    sizes = submission.compute_sizes(decided)
    decisions = {decision.step.id: decision for decision in decided}
    jobs: dict[str, job_records.Job] = {
        decision.step.id: decision.state.job
        for decision in decided
        if decision.action == "leave" and decision.state.job is not None
    }
    lines = []
    for array in submission.arrays:
        submitted = [decisions[step] for step in array.steps if decisions[step].submits]
        parts = slurm_jobs.split_array(array, submitted, sizes, jobs, submission.site.network_delay)
        for number, part in enumerate(parts):
            waits = slurm_jobs.make_dependency(
                array, part.steps[0], jobs, slurm_jobs.list_conflicting_jobs(array, decided, jobs)
            )
            lines += _describe_part(submission, part, waits)
            jobs |= part.assign_jobs(f"<{array.name}>" if not number else f"<{array.name}, {number + 1}>")
    note_sizes(sizes)
    return lines


def _describe_part(submission: SlurmExecutor, part: slurm_jobs.ArrayPart, waits: str) -> list[str]:
    folder, array = submission.folder, part.array
    words = slurm_cluster.compose_submission(
        folder.script_path(array.name),
        array=part.array_expression(submission.site.array_limit),
        dependency=waits,
        delay=part.delay,
    )
    lines = [shell.format_command(["sbatch", *words])]
    lines += [
        f"  #SBATCH {word}" for word in slurm_jobs.make_directives(folder, array, part.size, submission.site)
    ]
    for step in part.steps:
        number = "" if array.plain else f"{array.task_number(step.id)}: "
        lines.append(f"  {number}{run_step.run_step_line(folder.plan, step.id)}")
    return lines


def note_sizes(sizes: Mapping[str, slurm_jobs.JobSize]) -> None:
    """Say where jobs ask for less than would do."""
    steps_by_note: dict[str, list[str]] = {}
    for step, size in sizes.items():
        for note in size.notes:
            steps_by_note.setdefault(note, []).append(step)
    for note, steps in steps_by_note.items():
        log.log_note(note if len(steps) > 1 else f"{steps[0]}: {note}")


SHARED_KINDS = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs(?:_nodev)?|ceph|glusterfs|cifs|smb3|afs|panfs|pvfs2|wekafs|9p|virtiofs|fuse\..+"
)
LOCAL_KINDS = {
    "tmpfs",
    "ramfs",
    "overlay",
    "squashfs",
    "devtmpfs",
}  # of this machine, or this container, alone


@dataclass(frozen=True)
class MountedFilesystem:
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


@dataclass(frozen=True)
class SharingReport:
    """What keeps jobs from working (``errors``), and what cannot be told or is weaker than it should be."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def check_shared(submission: SlurmExecutor) -> None:
    """Refuse folders that no other machine has, unless the cluster is this machine alone."""
    here = platform.node().split(".")[0]
    if {name.split(".")[0] for name in slurm_cluster.query_nodes(submission.env)} <= {here}:
        return
    request = submission.file.request
    places = {"the plan": submission.folder.plan, "work directory": request.work, "output": request.output}
    places |= {f"sources of {name}": tree for name, tree in request.sources.items() if tree.is_dir()}
    if not submission.site.prefix:
        places["this program"] = Path(submission.site.program[0])
    report = inspect_places(places, list_mounts())
    for warning in report.warnings:
        log.log_warning(warning)
    if report.errors:
        errors = "".join(f"\n  {error}" for error in report.errors)
        raise UsageError(
            f"jobs on other nodes could not work:{errors}",
            tip="put them on a file system that the nodes share, or say --assume-shared",
        )


def inspect_places(places: Mapping[str, Path], mounts: Iterable[MountedFilesystem]) -> SharingReport:
    """Look at the file systems of places, by what they are."""
    mounted = list(mounts)
    errors, warnings, unknown = [], [], []
    for label, path in places.items():
        mount = _find_mount(path, mounted)
        if mount is None or not (mount.kind in LOCAL_KINDS or SHARED_KINDS.fullmatch(mount.kind)):
            unknown.append(f"{label} {path}" + (f" ({mount.kind})" if mount else ""))
        elif mount.kind in LOCAL_KINDS:
            errors.append(f"{label} {path} is on {mount.kind}: no other machine has it")
        elif why := _describe_weak_locks(mount):
            warnings.append(f"{label} {path}: {why}")
    if unknown:
        warnings.append(
            f"cannot determine from here whether the nodes share: {', '.join(unknown)}; each job looks"
        )
    return SharingReport(tuple(errors), tuple(warnings))


def list_mounts() -> list[MountedFilesystem]:
    """Return what is mounted, in the order of mounting; what covers something comes later."""
    import psutil

    return [
        MountedFilesystem(mount.mountpoint, mount.fstype, frozenset(mount.opts.split(",")))
        for mount in psutil.disk_partitions(all=True)
    ]


def _find_mount(path: Path, mounts: Iterable[MountedFilesystem]) -> MountedFilesystem | None:
    """Return the file system of a path; of two on one point the later one covers the other."""
    best: MountedFilesystem | None = None
    for mount in mounts:
        if path.resolve().is_relative_to(mount.point) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    return best


def _describe_weak_locks(mount: MountedFilesystem) -> str:
    if mount.kind.startswith("nfs") and mount.options & {"nolock", "local_lock=flock", "local_lock=all"}:
        return "mounted so that locks hold on one machine only (nolock, local_lock): see nfs(5)"
    if mount.kind == "lustre" and "flock" not in mount.options:
        return "Lustre without the mount option flock: locks hold on one machine only, or fail"
    return ""

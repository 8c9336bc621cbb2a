"""Submitting a plan: what is decided is done, array by array, and written down after each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.ci.slurm.arrays import ARRAY_SIZE, JobArray, arrange_plan, group_arrays
from rocm_wheels.ci.slurm.cluster import SlurmJob
from rocm_wheels.ci.slurm.deciding import Decision, decide_steps
from rocm_wheels.ci.slurm.judging import make_done_end, judge_lost_job
from rocm_wheels.ci.slurm.parts import (
    ArrayPart,
    list_conflicting_jobs,
    make_dependency,
    split_array,
    shorten_jobs,
)
from rocm_wheels.ci.slurm.records import JobFolder, JobLedger
from rocm_wheels.ci.slurm.script import SlurmSite, make_job_environment, make_job_script
from rocm_wheels.ci.slurm.showing import note_sizes
from rocm_wheels.ci.slurm.sizes import JobSize, size_job
from rocm_wheels.ci.slurm.states import AT_WORK, StepState, adopt_jobs, find_step_states
from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.estimates import read_history
from rocm_wheels.pipeline.execute.one import compare_with_plan
from rocm_wheels.pipeline.execute.result import ADDRESS_VARIABLES, RECORD_VARIABLE
from rocm_wheels.pipeline.plan.file import PlanFile, read_plan, restore_addresses
from rocm_wheels.pipeline.plan.planning import check_request, plan_run
from rocm_wheels.pipeline.plan.step import Plan
from rocm_wheels.records import suggest_name
from rocm_wheels.workspace import WAIT_TIP, Workspace, lock_folder, write_atomically

_LOCK_SECONDS = 60  # for another submission: a call of sbatch takes a part of a second


class PlanInUseError(cluster.ClusterUnreachableError):
    """Somebody else submits or cancels jobs of the plan, and takes long."""


@dataclass(frozen=True)
class SlurmSubmission:
    """A plan that is submitted from here. ``env``: what the jobs get, and Slurm's programs."""

    folder: JobFolder
    file: PlanFile
    site: SlurmSite
    env: Mapping[str, str]
    cpus: int | None = None
    in_arrays: bool = True

    @classmethod
    def from_plan(
        cls,
        plan: Path,
        site: SlurmSite,
        env: Mapping[str, str],
        cpus: int | None = None,
        *,
        in_arrays: bool = True,
    ) -> SlurmSubmission:
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
        clean = {name: value for name, value in env.items() if name != RECORD_VARIABLE}
        return cls(JobFolder(plan.resolve()), file, site, clean, cpus, in_arrays)

    def settle_plan(self) -> Plan:
        """Return the plan as it is settled now. Raises UsageError when what it was made of changed."""
        addresses = {name: self.env.get(variable) for name, variable in ADDRESS_VARIABLES.items()}
        file = self.file
        for step in self.file.plan:
            try:
                file = restore_addresses(file, step.id, addresses)
            except UsageError as missing:
                names = " or ".join(ADDRESS_VARIABLES.values())
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
                changes += [f"{step.id}: {line}" for line in compare_with_plan(step, inputs)]
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

    def read_states(self, *, queued: bool = True) -> tuple[JobLedger, dict[str, StepState]]:
        """Return which jobs there are, and where each step is; ``queued``: ask the queue, too."""
        written = self.folder.read_ledger()  # first: what is submitted meanwhile is in the queue by its name
        queue = cluster.query_queue(self.env) if queued else []
        ledger = adopt_jobs(self.folder, self.file.plan, self._match_ledger(written, queue), queue)
        return ledger, find_step_states(self.folder, self.file.plan, ledger, queue)

    def _match_ledger(self, ledger: JobLedger, queue: Sequence[cluster.QueuedJob]) -> JobLedger:
        """Return a ledger; that of a plan that was here before counts no more once its jobs have ended."""
        digest = self.folder.compute_digest()
        if ledger.plan in ("", digest):
            return replace(ledger, plan=digest)
        ids = [queued.job for queued in queue]
        if remaining := shorten_jobs([job for job in ids if job in {*ledger.jobs.values()}], ids):
            raise UsageError(
                f"{self.folder.plan} has changed, and jobs of the plan that it was are in the queue: "
                f"{', '.join(remaining)}",
                tip=f"wait for them, or: scancel {' '.join(remaining)}",
            )
        return JobLedger(digest)

    def make_decisions(
        self, plan: Plan, *, retry_failed: bool = False, but_cancelled: bool = False, queued: bool = True
    ) -> tuple[JobLedger, list[Decision]]:
        """Decide what to do about each step of the plan as it is ``settle_plan``, from queue and records."""
        ledger, step_states = self.read_states(queued=queued)
        if self.folder.read_ledger().plan not in (
            "",
            ledger.plan,
        ):  # of another plan: it tells nothing of this
            step_states = {step.id: StepState(step.id, "not submitted") for step in plan}
        plan = arrange_plan(plan, self.arrays)
        return ledger, decide_steps(plan, step_states, retry_failed=retry_failed, but_cancelled=but_cancelled)

    @cached_property
    def arrays(self) -> list[JobArray]:
        """What is submitted together, by plan and site; as on most sites where there is no cluster."""
        size = ARRAY_SIZE if self.in_arrays else 0
        if (
            size
            and cluster.has_slurm(self.env)
            and any(not array.plain for array in group_arrays(self.file.plan))
        ):
            size = cluster.query_array_size(self.env)
        return group_arrays(self.file.plan, size)

    def compute_sizes(self, decided: Sequence[Decision]) -> dict[str, JobSize]:
        """Return what the jobs to be submitted ask for; where there is no cluster, by the plan alone."""
        history = read_history(Workspace(self.file.request.work).runs)
        partition: cluster.Partition | None = None
        if cluster.has_slurm(self.env):
            partition = cluster.choose_partition(cluster.query_partitions(self.env), self.site.partition)
        return {
            decision.step.id: size_job(decision.step, self.file.plan, history, partition, self.cpus)
            for decision in decided
            if decision.submits
        }

    def submit(self, *, retry_failed: bool = False, but_cancelled: bool = False) -> list[Decision]:
        """Submit what is to be submitted; return what was decided. Raises UsageError as sbatch says."""
        cluster.find_program("sbatch", self.env)
        plan = self.settle_plan()
        cluster.choose_partition(cluster.query_partitions(self.env), self.site.partition)
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
        return lock_folder(
            self.folder.path, purpose=purpose, tip=WAIT_TIP, patience=_LOCK_SECONDS, error=PlanInUseError
        )

    def _submit_parts(
        self, ledger: JobLedger, decided: list[Decision], sizes: Mapping[str, JobSize], *, retry_failed: bool
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
            for part in split_array(array, submitted, sizes, jobs, self.site.network_delay):
                try:
                    new = self._submit_part(part, jobs, list_conflicting_jobs(array, decided, jobs))
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
                end = make_done_end(self.folder, decision.step.id, str(decision.state.job))
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

    def _take_back_jobs(self, ledger: JobLedger, decided: Iterable[Decision]) -> JobLedger:
        """Take jobs from the queue that wait for others which are no more."""
        old = {
            decision.step.id: decision.state.job
            for decision in decided
            if decision.action == "renew" and decision.state.job
        }
        if not old:
            return ledger
        cluster.cancel_jobs([str(job) for job in old.values()], self.env)
        ledger = replace(ledger, jobs={step: job for step, job in ledger.jobs.items() if step not in old})
        self.folder.write_ledger(ledger)
        return ledger

    def _count_lost_job(self, decision: Decision, *, retry_failed: bool) -> str:
        """Count a job that was lost; say why there is no further attempt, if there is none."""
        if retry_failed and decision.state.state == "failed":
            self.folder.forget_step(decision.step.id)
        if decision.state.state != "lost" or decision.state.job is None:
            return ""
        runs = Workspace(self.file.request.work).runs
        end = judge_lost_job(
            self.folder, decision.step.id, runs, str(decision.state.job), attempts=self.site.attempts
        )
        self.folder.write_end(decision.step.id, end)
        return "" if end.again or retry_failed else end.reason

    def _submit_part(
        self, part: ArrayPart, jobs: Mapping[str, SlurmJob], others: Collection[SlurmJob]
    ) -> dict[str, SlurmJob]:
        """Submit a part of an array; return the jobs of its steps."""
        text = make_job_script(self.folder, part.array, part.size, self.site)
        script = self.folder.script_path(part.array.name)
        write_atomically(script, text)
        if not part.array.plain:
            self.folder.link_logs(part.array.name, part.array.tasks)
        words = cluster.compose_submission(
            script,
            array=part.array_expression(self.site.array_limit),
            dependency=make_dependency(part.array, part.steps[0], jobs, others),
            delay=part.delay,
        )
        return part.assign_jobs(cluster.submit_script(words, make_job_environment(text, self.env)))

    def cancel(self, names: Collection[str] = ()) -> list[str]:
        """Take the jobs of a plan from the queue, or those of steps and arrays; return whose they were."""
        steps = self._find_steps(names)
        if not self.folder.path.is_dir():
            return []
        with self.hold_lock("submit --cancel"):
            ledger, step_states = self.read_states()
            going = {
                step_state.step: step_state.job
                for step_state in step_states.values()
                if step_state.state in AT_WORK and step_state.job is not None
            }
            jobs = {step: job for step, job in going.items() if step in steps}
            self.folder.write_ledger(replace(ledger, cancelled=ledger.cancelled | {*jobs}))
            try:
                cluster.cancel_jobs(shorten_jobs(jobs.values(), going.values()), self.env)
            except UsageError:  # who waits for them must not take those for cancelled that go on
                self.folder.write_ledger(ledger)
                raise
        return list(jobs)

    def _find_steps(self, names: Collection[str]) -> set[str]:
        """Return the steps that are meant by names of steps and arrays; all by none. Raises UsageError."""
        steps = self.file.plan.steps
        steps_by_name: dict[str, tuple[str, ...]] = {name: (name,) for name in steps}
        steps_by_name |= {
            array.name: array.steps for array in group_arrays(self.file.plan) if not array.plain
        }
        for name in names:
            if name not in steps_by_name:
                raise UsageError(
                    f"--step: the plan has no step or array {name}{suggest_name(name, steps_by_name)}",
                    tip=f"it has: {', '.join(steps_by_name)}",
                )
        return {step for name in names for step in steps_by_name[name]} if names else {*steps}


def list_queued_jobs(decided: Iterable[Decision]) -> dict[str, SlurmJob]:
    """Return the jobs of steps that are in the queue and stay there."""
    return {
        decision.step.id: decision.state.job
        for decision in decided
        if decision.action == "leave" and decision.state.job is not None
    }

"""Submitting a plan: what is decided is done, array by array, and written down after each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.ci.slurm.arrays import ARRAY_SIZE, Array, arranged, arrays_of
from rocm_wheels.ci.slurm.cluster import Job
from rocm_wheels.ci.slurm.deciding import Decision, decide
from rocm_wheels.ci.slurm.judging import found_done, lost
from rocm_wheels.ci.slurm.parts import Part, beside, dependency, parts_of, shortest
from rocm_wheels.ci.slurm.records import Folder, Ledger
from rocm_wheels.ci.slurm.script import Site, environment_of, job_script
from rocm_wheels.ci.slurm.showing import say_notes
from rocm_wheels.ci.slurm.sizes import Size, size_of
from rocm_wheels.ci.slurm.states import AT_WORK, StepState, adopted, states
from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.estimates import read_history
from rocm_wheels.pipeline.execute.one import differences
from rocm_wheels.pipeline.execute.result import ADDRESS_VARIABLES, RECORD_VARIABLE
from rocm_wheels.pipeline.plan.file import PlanFile, read_plan, with_addresses
from rocm_wheels.pipeline.plan.planning import look_over, make_planned
from rocm_wheels.pipeline.plan.step import Plan
from rocm_wheels.records import did_you_mean
from rocm_wheels.workspace import WAIT, Workspace, exclusive, write_whole

_PATIENCE_SECONDS = 60  # for another submission: a call of sbatch takes a part of a second


class InUse(cluster.Unanswered):
    """Somebody else submits or cancels jobs of the plan, and takes long."""


@dataclass(frozen=True)
class Submission:
    """A plan that is submitted from here. ``env``: what the jobs get, and Slurm's programs."""

    folder: Folder
    file: PlanFile
    site: Site
    env: Mapping[str, str]
    cpus: int | None = None
    in_arrays: bool = True

    @classmethod
    def of(
        cls,
        plan: Path,
        site: Site,
        env: Mapping[str, str],
        cpus: int | None = None,
        *,
        in_arrays: bool = True,
    ) -> Submission:
        """Read a plan. Raises UsageError for one that cannot be run by Slurm, or from here."""
        file = read_plan(plan)
        if file.request.platform != "linux":
            raise UsageError(
                f"{plan} is a plan for {file.request.platform}, and Slurm's nodes run Linux",
                tip="make the plan on a machine of the cluster",
            )
        site.check()
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
        return cls(Folder(plan.resolve()), file, site, clean, cpus, in_arrays)

    def now(self) -> Plan:
        """Return the plan as it is settled now. Raises UsageError when what it was made of changed."""
        given = {name: self.env.get(variable) for name, variable in ADDRESS_VARIABLES.items()}
        file = self.file
        for step in self.file.plan:
            try:
                file = with_addresses(file, step.id, given)
            except UsageError as missing:
                names = " or ".join(ADDRESS_VARIABLES.values())
                missing.tip = f"set {names}: jobs get the environment of this command"
                raise
        planned = make_planned(look_over(file.request, self.env))
        locked = planned.facts.locked
        if self.file.lock is not None and (locked is None or locked.digest != self.file.lock[1]):
            raise self._stale([f"{self.file.lock[0]} is another lock"])
        changes = []
        for step in self.file.plan:
            if step.id not in planned.plan.steps:
                changes.append(f"{step.id}: there is no such step any more")
                continue
            known = {name: str(value) for name, value in planned.plan.steps[step.id].inputs.items()}
            if planned.plan.steps[step.id].verdict != "left out":
                changes += [f"{step.id}: {line}" for line in differences(step, known)]
        changes += [f"{name}: a new step" for name in planned.plan.steps if name not in self.file.plan.steps]
        if changes:
            raise self._stale(changes)
        return planned.plan

    def _stale(self, changes: Sequence[str]) -> UsageError:
        said = "".join(f"\n  {line}" for line in changes[:10])
        more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
        return UsageError(
            f"{self.folder.plan} is older than what it was made of:{said}{more}", tip="make the plan again"
        )

    def look(self, *, queued: bool = True) -> tuple[Ledger, dict[str, StepState]]:
        """Return which jobs there are, and where each step is; ``queued``: ask the queue, too."""
        written = self.folder.ledger()  # first: what is submitted meanwhile is in the queue by its name
        queue = cluster.queue(self.env) if queued else []
        ledger = adopted(self.folder, self.file.plan, self._of_this_plan(written, queue), queue)
        return ledger, states(self.folder, self.file.plan, ledger, queue)

    def _of_this_plan(self, ledger: Ledger, queue: Sequence[cluster.Queued]) -> Ledger:
        """Return a ledger; that of a plan that was here before counts no more once its jobs have ended."""
        digest = self.folder.digest()
        if ledger.plan in ("", digest):
            return replace(ledger, plan=digest)
        ids = [one.job for one in queue]
        if left := shortest([job for job in ids if job in {*ledger.jobs.values()}], ids):
            raise UsageError(
                f"{self.folder.plan} has changed, and jobs of the plan that it was are in the queue: "
                f"{', '.join(left)}",
                tip=f"wait for them, or: scancel {' '.join(left)}",
            )
        return Ledger(digest)

    def decisions(
        self, plan: Plan, *, retry_failed: bool = False, but_cancelled: bool = False, queued: bool = True
    ) -> tuple[Ledger, list[Decision]]:
        """Decide what to do about each step of the plan as it is ``now``, from queue and records."""
        ledger, found = self.look(queued=queued)
        if self.folder.ledger().plan not in ("", ledger.plan):  # of another plan: it tells nothing of this
            found = {step.id: StepState(step.id, "not submitted") for step in plan}
        plan = arranged(plan, self.arrays)
        return ledger, decide(plan, found, retry_failed=retry_failed, but_cancelled=but_cancelled)

    @cached_property
    def arrays(self) -> list[Array]:
        """What is submitted together, by plan and site; as on most sites where there is no cluster."""
        size = ARRAY_SIZE if self.in_arrays else 0
        if size and cluster.is_here(self.env) and any(not one.plain for one in arrays_of(self.file.plan)):
            size = cluster.array_size(self.env)
        return arrays_of(self.file.plan, size)

    def sizes(self, decided: Sequence[Decision]) -> dict[str, Size]:
        """Return what the jobs to be submitted ask for; where there is no cluster, by the plan alone."""
        history = read_history(Workspace(self.file.request.work).runs)
        known: cluster.Partition | None = None
        if cluster.is_here(self.env):
            known = cluster.partition(cluster.partitions(self.env), self.site.partition)
        return {
            one.step.id: size_of(one.step, self.file.plan, history, known, self.cpus)
            for one in decided
            if one.submits
        }

    def submit(self, *, retry_failed: bool = False, but_cancelled: bool = False) -> list[Decision]:
        """Submit what is to be submitted; return what was decided. Raises UsageError as sbatch says."""
        cluster.program("sbatch", self.env)
        plan = self.now()
        cluster.partition(cluster.partitions(self.env), self.site.partition)
        with self.alone("submit"):
            ledger, decided = self.decisions(plan, retry_failed=retry_failed, but_cancelled=but_cancelled)
            if any(one.submits and one.state.state == "done" for one in decided):
                plan = self.now()  # it was done since this was planned, as a rule
                ledger, decided = self.decisions(plan, retry_failed=retry_failed, but_cancelled=but_cancelled)
            self._note_done(decided)
            sizes = self.sizes(decided)
            say_notes(sizes)
            if self.folder.ledger().plan not in ("", ledger.plan):
                for one in decided:
                    if one.submits:
                        self.folder.forget(one.step.id)
            return self._do(ledger, decided, sizes, retry_failed=retry_failed)

    def alone(self, what: str) -> AbstractContextManager[None]:
        """Wait until nobody else submits or cancels jobs of this plan, and keep others from it."""
        return exclusive(self.folder.path, what=what, tip=WAIT, patience=_PATIENCE_SECONDS, error=InUse)

    def _do(
        self, ledger: Ledger, decided: list[Decision], sizes: Mapping[str, Size], *, retry_failed: bool
    ) -> list[Decision]:
        known = {one.step.id: one for one in self._kept(decided, retry_failed=retry_failed)}
        ledger = self._taken_back(ledger, known.values())
        jobs = queued_jobs(known.values())
        count = 0
        for array in self.arrays:
            submitted = [known[step] for step in array.steps if known[step].submits]
            for part in parts_of(array, submitted, sizes, jobs, self.site.network_delay):
                try:
                    new = self._submit(part, jobs, beside(array, decided, jobs))
                except (UsageError, OSError):
                    if count:
                        log.note(f"submitted before this: {count}; the same command takes up what is queued")
                    raise
                count += len(new)
                jobs |= new
                ledger = replace(ledger, jobs={**ledger.jobs, **new}, cancelled=ledger.cancelled - {*new})
                self.folder.write_ledger(ledger)
                for step, job in new.items():
                    known[step] = replace(known[step], state=StepState(step, "waiting", job))
        self.folder.write_ledger(ledger)
        return list(known.values())

    def _note_done(self, decided: Iterable[Decision]) -> None:
        """Note what is done though its job has not told so: lost at the very end, or done by hand."""
        for one in decided:
            if one.action == "done" and one.state.job is not None and one.state.state != "done":
                end = found_done(self.folder, one.step.id, str(one.state.job))
                self.folder.write_end(one.step.id, end)

    def _kept(self, decided: Iterable[Decision], *, retry_failed: bool) -> list[Decision]:
        """Return decisions once jobs that were lost are counted: no attempt is left to some."""
        kept: list[Decision] = []
        stopped: set[str] = set()
        for decision in decided:
            one = decision
            if one.submits and stopped & {*one.step.after}:
                one = replace(one, action="held back", why="what it needs failed too often")
            elif one.submits and (said := self._given_up(one, retry_failed=retry_failed)):
                one = replace(one, action="stopped", why=said)
            if one.action in ("stopped", "held back"):
                stopped.add(one.step.id)
            kept.append(one)
        return kept

    def _taken_back(self, ledger: Ledger, decided: Iterable[Decision]) -> Ledger:
        """Take jobs from the queue that wait for others which are no more."""
        old = {one.step.id: one.state.job for one in decided if one.action == "renew" and one.state.job}
        if not old:
            return ledger
        cluster.cancel([str(job) for job in old.values()], self.env)
        ledger = replace(ledger, jobs={step: job for step, job in ledger.jobs.items() if step not in old})
        self.folder.write_ledger(ledger)
        return ledger

    def _given_up(self, one: Decision, *, retry_failed: bool) -> str:
        """Count a job that was lost; say why there is no further attempt, if there is none."""
        if retry_failed and one.state.state == "failed":
            self.folder.forget(one.step.id)
        if one.state.state != "lost" or one.state.job is None:
            return ""
        runs = Workspace(self.file.request.work).runs
        end = lost(self.folder, one.step.id, runs, str(one.state.job), attempts=self.site.attempts)
        self.folder.write_end(one.step.id, end)
        return "" if end.again or retry_failed else end.reason

    def _submit(self, part: Part, jobs: Mapping[str, Job], others: Collection[Job]) -> dict[str, Job]:
        """Submit a part of an array; return the jobs of its steps."""
        text = job_script(self.folder, part.array, part.size, self.site)
        script = self.folder.script(part.array.name)
        write_whole(script, text)
        if not part.array.plain:
            self.folder.link_logs(part.array.name, part.array.tasks)
        words = cluster.submission(
            script,
            array=part.expression(self.site.array_limit),
            dependency=dependency(part.array, part.steps[0], jobs, others),
            delay=part.delay,
        )
        return part.jobs(cluster.submit(words, environment_of(text, self.env)))

    def cancel(self, names: Collection[str] = ()) -> list[str]:
        """Take the jobs of a plan from the queue, or those of steps and arrays; return whose they were."""
        wanted = self._named(names)
        if not self.folder.path.is_dir():
            return []
        with self.alone("submit --cancel"):
            ledger, found = self.look()
            going = {
                one.step: one.job for one in found.values() if one.state in AT_WORK and one.job is not None
            }
            jobs = {step: job for step, job in going.items() if step in wanted}
            self.folder.write_ledger(replace(ledger, cancelled=ledger.cancelled | {*jobs}))
            try:
                cluster.cancel(shortest(jobs.values(), going.values()), self.env)
            except UsageError:  # who waits for them must not take those for cancelled that go on
                self.folder.write_ledger(ledger)
                raise
        return list(jobs)

    def _named(self, names: Collection[str]) -> set[str]:
        """Return the steps that are meant by names of steps and arrays; all by none. Raises UsageError."""
        steps = self.file.plan.steps
        known: dict[str, tuple[str, ...]] = {name: (name,) for name in steps}
        known |= {one.name: one.steps for one in arrays_of(self.file.plan) if not one.plain}
        for name in names:
            if name not in known:
                raise UsageError(
                    f"--step: the plan has no step or array {name}{did_you_mean(name, known)}",
                    tip=f"it has: {', '.join(known)}",
                )
        return {step for name in names for step in known[name]} if names else {*steps}


def queued_jobs(decided: Iterable[Decision]) -> dict[str, Job]:
    """Return the jobs of steps that are in the queue and stay there."""
    return {
        one.step.id: one.state.job for one in decided if one.action == "leave" and one.state.job is not None
    }

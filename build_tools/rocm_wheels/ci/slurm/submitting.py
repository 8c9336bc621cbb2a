"""Submitting a plan: what is decided is done, job by job, and written down after each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.ci.slurm.deciding import Decision, decide, dependency
from rocm_wheels.ci.slurm.judging import delay, lost
from rocm_wheels.ci.slurm.records import Folder, Ledger
from rocm_wheels.ci.slurm.script import Site, directives, environment_of, job_script
from rocm_wheels.ci.slurm.sizes import Size, size_of
from rocm_wheels.ci.slurm.states import AT_WORK, StepState, adopted, states
from rocm_wheels.errors import UsageError
from rocm_wheels.pipeline.estimates import read_history
from rocm_wheels.pipeline.execute.one import differences
from rocm_wheels.pipeline.execute.result import ADDRESS_VARIABLES, RECORD_VARIABLE
from rocm_wheels.pipeline.plan.file import PlanFile, read_plan, with_addresses
from rocm_wheels.pipeline.plan.planning import look_over, make_planned
from rocm_wheels.pipeline.plan.step import Plan
from rocm_wheels.workspace import WAIT, Workspace, exclusive, write_whole


@dataclass(frozen=True)
class Submission:
    """A plan that is submitted from here. ``env``: what the jobs get, and Slurm's programs."""

    folder: Folder
    file: PlanFile
    site: Site
    env: Mapping[str, str]
    cpus: int | None = None

    @classmethod
    def of(cls, plan: Path, site: Site, env: Mapping[str, str], cpus: int | None = None) -> Submission:
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
        clean = {name: value for name, value in env.items() if name != RECORD_VARIABLE}
        return cls(Folder(plan.resolve()), file, site, clean, cpus)

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
        queue = cluster.queue(self.env) if queued else []
        ledger = adopted(self.folder, self.file.plan, self._ledger(queue), queue)
        return ledger, states(self.folder, self.file.plan, ledger, queue)

    def _ledger(self, queue: Sequence[cluster.Queued]) -> Ledger:
        """Read the ledger; that of a plan that was here before counts no more once its jobs have ended."""
        ledger, digest = self.folder.ledger(), self.folder.digest()
        if ledger.plan in ("", digest):
            return replace(ledger, plan=digest)
        ids = {one.job for one in queue}
        if left := sorted(job for job in ledger.jobs.values() if job in ids):
            raise UsageError(
                f"{self.folder.plan} has changed, and jobs of the plan that it was are in the queue: "
                f"{', '.join(map(str, left))}",
                tip=f"wait for them, or: scancel {' '.join(map(str, left))}",
            )
        return Ledger(digest)

    def decisions(
        self, plan: Plan, *, retry_failed: bool = False, but_cancelled: bool = False, queued: bool = True
    ) -> tuple[Ledger, list[Decision]]:
        """Decide what to do about each step of the plan as it is ``now``, from queue and records."""
        ledger, found = self.look(queued=queued)
        if self.folder.ledger().plan not in ("", ledger.plan):  # of another plan: it tells nothing of this
            found = {step.id: StepState(step.id, "not submitted") for step in plan}
        return ledger, decide(plan, found, retry_failed=retry_failed, but_cancelled=but_cancelled)

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
        with exclusive(self.folder.path, what="submit", tip=WAIT):
            ledger, decided = self.decisions(plan, retry_failed=retry_failed, but_cancelled=but_cancelled)
            sizes = self.sizes(decided)
            _say_notes(sizes)
            new = self.folder.ledger().plan not in ("", ledger.plan)
            for one in decided:
                if one.submits and new:
                    self.folder.forget(one.step.id)
            return self._do(ledger, decided, sizes, retry_failed=retry_failed)

    def _do(
        self, ledger: Ledger, decided: list[Decision], sizes: Mapping[str, Size], *, retry_failed: bool
    ) -> list[Decision]:
        done: list[Decision] = []
        stopped: set[str] = set()
        for decision in decided:
            one = decision
            if one.submits and stopped & set(one.step.after):
                one = replace(one, action="held back", why="what it needs failed too often")
            elif one.submits and (said := self._given_up(one, retry_failed=retry_failed)):
                one = replace(one, action="stopped", why=said)
            if one.action in ("stopped", "held back"):
                stopped.add(one.step.id)
            if one.submits:
                try:
                    ledger = self._submit_one(one, ledger, done, sizes[one.step.id])
                except (UsageError, OSError):
                    if count := sum(other.submits for other in done):
                        log.note(f"submitted before this: {count}; the same command takes up what is queued")
                    raise
                state = StepState(one.step.id, "waiting", ledger.jobs[one.step.id])
                one = replace(one, state=state)
            done.append(one)
        self.folder.write_ledger(ledger)
        return done

    def _given_up(self, one: Decision, *, retry_failed: bool) -> str:
        """Count a job that was lost; say why there is no further attempt, if there is none."""
        if retry_failed and one.state.state == "failed":
            self.folder.forget(one.step.id)
        if one.state.state != "lost" or one.state.job is None:
            return ""
        runs = Workspace(self.file.request.work).runs
        end = lost(self.folder, one.step.id, runs, one.state.job, attempts=self.site.attempts)
        self.folder.write_end(one.step.id, end)
        return "" if end.again or retry_failed else end.reason

    def _submit_one(self, one: Decision, ledger: Ledger, done: Sequence[Decision], size: Size) -> Ledger:
        if one.action == "renew" and one.state.job is not None:
            cluster.cancel([one.state.job], self.env)
        script = self.folder.script(one.step.id)
        text = job_script(self.folder, one.step.id, size, self.site)
        write_whole(script, text)
        waited = waiting_for(done)
        end = one.state.end if one.state.state == "again" else None
        after = 0 if end is None else delay(end, self.site.network_delay)
        job = cluster.submit(
            script, dependency(one.step, waited), environment_of(text, self.env), delay=after
        )
        ledger = replace(
            ledger,
            jobs={**ledger.jobs, one.step.id: job},
            cancelled=ledger.cancelled - {one.step.id},
        )
        self.folder.write_ledger(ledger)
        return ledger

    def shown(self, decided: Sequence[Decision]) -> list[str]:
        """Return what would be submitted, for people: each job with its options and its command."""
        sizes = self.sizes(decided)
        jobs: dict[str, int | str] = {
            one.step.id: f"<{one.step.id}>" if one.submits else one.state.job or 0
            for one in decided
            if one.submits or one.action == "leave"
        }
        lines = []
        for one in decided:
            if not one.submits:
                continue
            waits = dependency(one.step, jobs)
            given = f" --dependency='{waits}'" if waits else ""
            script = shlex.quote(str(self.folder.script(one.step.id)))
            lines.append(f"sbatch --parsable{given} {script}")
            lines += [
                f"  #SBATCH {word}"
                for word in directives(self.folder, one.step.id, sizes[one.step.id], self.site)
            ]
            lines += [
                f"  {line}"
                for line in _commands(job_script(self.folder, one.step.id, sizes[one.step.id], self.site))
            ]
        _say_notes(sizes)
        return lines

    def cancel(self) -> list[str]:
        """Take every job of the plan from the queue; return whose they were."""
        if not self.folder.path.is_dir():
            return []
        with exclusive(self.folder.path, what="submit --cancel", tip=WAIT):
            ledger, found = self.look()
            going = [one for one in found.values() if one.state in AT_WORK and one.job is not None]
            names = [one.step for one in going]
            self.folder.write_ledger(replace(ledger, cancelled=ledger.cancelled | set(names)))
            cluster.cancel([one.job for one in going if one.job is not None], self.env)
        return names


def waiting_for(done: Sequence[Decision]) -> dict[str, int | str]:
    """Return the jobs of steps that are in the queue by now."""
    return {
        one.step.id: one.state.job
        for one in done
        if (one.submits or one.action == "leave") and one.state.job is not None
    }


def _commands(script: str) -> list[str]:
    return [
        line.removesuffix(" &") for line in script.splitlines() if " run-step " in line and line.endswith("&")
    ]


def _say_notes(sizes: Mapping[str, Size]) -> None:
    said: dict[str, list[str]] = {}
    for step, size in sizes.items():
        for note in size.notes:
            said.setdefault(note, []).append(step)
    for note, steps in said.items():
        log.note(note if len(steps) > 1 else f"{steps[0]}: {note}")

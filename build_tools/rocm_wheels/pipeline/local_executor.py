"""Execute a plan on this machine: every step that is not current in a process of its own, side by side.

A step begins when all it needs is there; then it is settled again with what is known by now, and does not
run when that shows that nothing changed. After a failure nothing new begins (``keep_going``: only what
needs the failed step does not) but the packaging of wheels that are built; what is at work ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path

from rocm_wheels.core import environment_numbers, errors, process
from rocm_wheels.pipeline import forks, machine, planner, run_record, run_step, status
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.plan import settle_step
from rocm_wheels.pipeline.step import COMPILING_KINDS, PACKAGING_KINDS, TEST_KINDS, Step

_MAX_PARALLEL_STEPS = 8
_THREAD_PREFIX = "step-at-work"
_STATE_COLOURS: Mapping[run_step.ExecutionState, str] = {"done": "green"}
_STATE_PHRASES: Mapping[run_step.ExecutionState, str] = {
    "done": "done in",
    "killed": "killed after",
}


@dataclass(frozen=True)
class ExecutionOptions:
    """How a plan is run: ``jobs`` steps at a time (``None``: by cores).

    ``server``: what forks the processes of steps; without one each starts Python anew.
    """

    jobs: int | None = None
    keep_going: bool = False
    server: forks.ForkServer | None = None


@dataclass(frozen=True)
class StepOutcome:
    """How a step ended."""

    step: Step
    state: run_step.ExecutionState
    seconds: float = 0.0
    failure: errors.RocmWheelsError | None = None


@dataclass
class LocalExecutor:
    """Runs the steps of one plan; ``env`` is the environment of the processes."""

    steps: Mapping[str, Step]
    facts: Facts
    plan: Path
    record: run_record.RunRecord
    env: Mapping[str, str]
    options: ExecutionOptions
    screen: status.StepDisplay
    settled: dict[str, Step] = field(default_factory=dict)
    outcomes: dict[str, StepOutcome] = field(default_factory=dict)
    _running: dict[Future[StepOutcome], str] = field(default_factory=dict)

    def run(self) -> None:
        """Run them; ``outcomes`` has every step afterwards. An interruption ends all, then is raised."""
        sorter = TopologicalSorter({step.id: step.after for step in self.steps.values()})
        sorter.prepare()
        pending: list[str] = []
        with ThreadPoolExecutor(self._parallel_limit, thread_name_prefix=_THREAD_PREFIX) as pool:
            try:
                while sorter.is_active():
                    pending += sorter.get_ready()
                    while self._begin_next_step(pending, sorter, pool):
                        pending += sorter.get_ready()
                    if self._running:
                        self._await_step(sorter)
            except BaseException:
                self._end_all_steps(pool)
                raise
            finally:
                for name in self.steps:
                    self.outcomes.setdefault(name, StepOutcome(self._latest_step(name), "not begun"))

    def _end_all_steps(self, pool: ThreadPoolExecutor) -> None:
        """End all that is at work, however often somebody interrupts that, and take in how it ended.

        Threads are asked, not what is known here: an interruption may come right after one has begun.
        """
        pool.shutdown(wait=False, cancel_futures=True)
        with process.block_new_work():
            while any(thread.name.startswith(_THREAD_PREFIX) for thread in threading.enumerate()):
                try:
                    process.end_all_processes()
                    time.sleep(0.02)
                except KeyboardInterrupt:
                    continue
        for future, name in self._running.items():
            if not future.cancelled():
                self.outcomes[name] = self._take_outcome(future, name, over=True)
        self._running.clear()

    @property
    def _parallel_limit(self) -> int:
        """How many steps run at a time: one more than compilers may, unless somebody has said how many.

        A front end works by itself before and behind its compilers, with a processor at most.
        """
        spare = environment_numbers.read_number(self.env, "MAX_JOBS") is None
        return self.options.jobs or min(self._count_slots(None) + spare, _MAX_PARALLEL_STEPS)

    def _has_memory(self, name: str) -> bool:
        """Tell whether a step's compilers have memory beside those of others: each build has one at least."""
        step = self.settled[name]
        builds = sum(self.steps[other].kind in COMPILING_KINDS for other in self._running.values())
        if not builds or step.kind not in COMPILING_KINDS or step.estimate is None:
            return True
        slots = self._count_slots(step.estimate.memory_per_job or None)
        return builds < slots or slots == self._count_slots(None)

    def _count_slots(self, memory_per_job: int | None) -> int:
        """Return how many compilers may run at a time on this machine, all steps together."""
        return machine.count_compile_jobs(
            self.facts.machine, memory_per_job, environment_numbers.read_number(self.env, "MAX_JOBS")
        )

    def _begin_next_step(
        self, pending: list[str], sorter: TopologicalSorter[str], pool: ThreadPoolExecutor
    ) -> bool:
        """Deal with one step that is ready, if there is one to deal with now; say whether there was."""
        for name in pending:
            blocked = any(self._is_missing(needed) for needed in self.steps[name].after)
            if blocked or (self._is_stopping() and self.steps[name].kind not in PACKAGING_KINDS):
                outcome: StepOutcome | None = StepOutcome(self._latest_step(name), "not begun")
            else:
                outcome = self._settle_step(name)
            if outcome is not None:
                self.outcomes[name] = outcome
                pending.remove(name)
                sorter.done(name)
                return True
            if self.steps[name].kind in TEST_KINDS and self._is_testing():
                continue  # tests have the GPU to themselves
            if len(self._running) < self._parallel_limit and self._has_memory(name):
                pending.remove(name)
                self._start_step(name, pending, pool)
                return True
        return False

    def _is_missing(self, needed: str) -> bool:
        return needed in self.outcomes and self.outcomes[needed].state not in ("done", "skipped")

    def _is_stopping(self) -> bool:
        failed = any(outcome.failure is not None for outcome in self.outcomes.values())
        return failed and not self.options.keep_going

    def _is_testing(self) -> bool:
        return any(self.steps[name].kind in TEST_KINDS for name in self._running.values())

    def _latest_step(self, name: str) -> Step:
        return self.settled.get(name, self.steps[name])

    def _settle_step(self, name: str) -> StepOutcome | None:
        """Settle a step; return its outcome when it does not run."""
        try:
            step = self.settled[name] = settle_step(
                planner.Planner(self.steps, self.facts, self.settled), name
            )
        except errors.RocmWheelsError as wrong:
            return self._record_early_failure(name, wrong)
        if step.verdict != "skip":
            return None
        done = self.facts.done.get(name)
        outputs = done.stamp.outputs if done is not None and step.delivers else ()
        facts = done.stamp.facts if done is not None else {}
        self.record.write(
            "step-skipped",
            step=name,
            why=step.why,
            fingerprint=step.fingerprint,
            outputs=[
                {"path": output.path, "size": output.size, "sha256": output.sha256} for output in outputs
            ],
            targets=facts.get("targets"),
            version=facts.get("version"),
        )
        return StepOutcome(step, "skipped")

    # -- a step at work -------------------------------------------------------------------------------------

    def _start_step(self, name: str, pending: list[str], pool: ThreadPoolExecutor) -> None:
        step = self.settled[name]
        jobs = self._allot_jobs(step, pending) if step.kind in COMPILING_KINDS else None
        log_file = self.record.folder / f"{name}.log"
        self.screen.begin_step(name, step.why, log_file)
        self._running[pool.submit(copy_context().run, self._run_step, step, jobs, log_file)] = name

    def _allot_jobs(self, step: Step, pending: list[str]) -> int:
        """Return a step's part of the compilers: by the work that is expected of all that may run with it."""
        slots = self._count_slots(step.estimate.memory_per_job or None if step.estimate else None)
        side_by_side = [*self._running.values(), *pending][: self._parallel_limit - 1]
        others = [self._latest_step(name) for name in side_by_side]
        work = [
            max(other.estimate.seconds, 1.0) if other.estimate else 1.0
            for other in others
            if other.kind in COMPILING_KINDS
        ]
        own_work = max(step.estimate.seconds, 1.0) if step.estimate else 1.0
        return max(1, round(slots * own_work / (own_work + sum(work))))

    def _run_step(self, step: Step, jobs: int | None, log_file: Path) -> StepOutcome:
        """Run a step's process to its end; what it left behind is ended. Runs in a thread."""
        env = {**self.env, **run_step.make_step_variables(self.record.folder, self.facts.request.sdk)}
        if jobs is not None:
            env["MAX_JOBS"] = str(jobs)
        usage, begin = status.ResourceUsage(), time.monotonic()
        last_lines = deque[str](maxlen=run_step.KEPT_OUTPUT_LINES)

        def on_start(pid: int) -> None:
            usage.start(pid)
            run_step.record_step_begin(self.record, step, self.plan, log=log_file, pid=pid, jobs=jobs)

        def on_line(line: str) -> None:
            last_lines.append(line)
            self.screen.show_line(step.id, line)

        with usage:
            code = process.run_command(
                run_step.run_step_command(self.plan, step.id, forked=self.options.server is not None),
                env=env,
                on_line=on_line,
                check=None,
                description=step.id,
                on_start=on_start,
                start=self.options.server.start if self.options.server is not None else None,
            ).returncode
        if code:
            self._end_orphans(step.id)
        seconds = time.monotonic() - begin
        result = run_step.read_result(self.record.folder, step.id, last_lines)
        state, failure = run_step.judge_step_end(step, code, result, log_file)
        run_step.record_step_end(
            self.record,
            step,
            state,
            failure,
            seconds=round(seconds, 3),
            peak_memory=usage.peak,
            cpu_seconds=run_step.measured_cpu_seconds(result, usage.cpu_seconds),
            exit_code=code,
        )
        self.screen.end_step(
            step.id, _STATE_PHRASES.get(state, f"{state} after"), _STATE_COLOURS.get(state, "red")
        )
        return StepOutcome(step, state, seconds, failure=failure)

    def _end_orphans(self, name: str) -> None:
        """End what a step's process had started, if that was killed; holding the step does."""
        try:
            with run_step.hold_step(self.facts.workspace, name):
                return
        except (errors.UsageError, OSError):
            return  # a `run-step` is at it, or the disk is full: which is why ours failed

    def _await_step(self, sorter: TopologicalSorter[str]) -> None:
        """Wait until a step ends, and take in what it made. Raises OSError when that cannot be recorded."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            name = self._running[future]
            outcome = self.outcomes[name] = self._take_outcome(future, name)
            del self._running[future]
            if outcome.state == "done":
                self.facts = self.facts.refresh_after_step(
                    name, environment=outcome.step.kind == "install-rocm"
                )
                self.settled[name] = replace(outcome.step, verdict="skip")
            sorter.done(name)

    def _take_outcome(self, future: Future[StepOutcome], name: str, *, over: bool = False) -> StepOutcome:
        """Return how a step ended. ``over``: the run ends for another reason, which is told instead."""
        try:
            return future.result()
        except (errors.RocmWheelsError, OSError) as failure:
            if over:
                return StepOutcome(self._latest_step(name), "interrupted")
            if isinstance(failure, OSError):
                raise
            self.screen.end_step(name, "could not be started after", "red")
            return self._record_early_failure(name, failure)

    def _record_early_failure(self, name: str, failure: errors.RocmWheelsError) -> StepOutcome:
        """Take in that a step failed before its process began."""
        step = self._latest_step(name)
        run_step.record_step_end(
            self.record, step, "failed", failure, seconds=0.0, exit_code=failure.exit_code
        )
        return StepOutcome(step, "failed", failure=failure)

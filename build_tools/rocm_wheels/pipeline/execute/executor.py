"""Runs a plan on this machine: every step that is not current as a process of its own, several side by side.

A step begins when all it needs is there; then it is settled again with what is known by now, and does
not run when that shows that nothing changed. After a failure nothing new begins (``keep_going``: only what
needs the failed step does not); what is at work ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path

from rocm_wheels import ending, process
from rocm_wheels.errors import BuildError, RocmWheelsError, UsageError
from rocm_wheels.machine import compile_jobs, wanted_jobs
from rocm_wheels.pipeline.execute import events
from rocm_wheels.pipeline.execute.one import holding, run_step_command
from rocm_wheels.pipeline.execute.result import SAID_LINES, State, cpu_seconds, end_of, read_result, told
from rocm_wheels.pipeline.execute.screen import Screen
from rocm_wheels.pipeline.execute.usage import Usage
from rocm_wheels.pipeline.facts.gather import Facts
from rocm_wheels.pipeline.plan.graph import Graph
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.settle import settle
from rocm_wheels.pipeline.plan.step import Step
from rocm_wheels.pipeline.record.writing import RunRecord

_MOST_AT_A_TIME = 8
_THREADS = "step-at-work"
_COLOURS: Mapping[State, str] = {"done": "green"}
_SAID: Mapping[State, str] = {"done": "done in", "timeout": "stopped after", "killed": "killed after"}


@dataclass(frozen=True)
class How:
    """How a plan is run: ``jobs`` steps at a time (``None``: by cores), ``timeout`` of a step in seconds."""

    jobs: int | None = None
    keep_going: bool = False
    timeout: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a step ended. ``again``: it ran, and its wheel had only to be brought where it is wanted."""

    step: Step
    state: State
    seconds: float = 0.0
    again: bool = False
    failure: RocmWheelsError | None = None


@dataclass
class Executor:
    """Runs the steps of one plan; ``base`` is the environment of the processes."""

    graph: Graph
    facts: Facts
    plan: Path
    record: RunRecord
    base: Mapping[str, str]
    how: How
    screen: Screen
    settled: dict[str, Step] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _running: dict[Future[Outcome], str] = field(default_factory=dict)

    def run(self) -> None:
        """Run them; ``outcomes`` has every step afterwards. An interruption ends all, then is raised."""
        sorter = TopologicalSorter({s.id: (*s.after, *s.behind) for s in self.graph.steps.values()})
        sorter.prepare()
        waiting: list[str] = []
        with ThreadPoolExecutor(self._at_a_time, thread_name_prefix=_THREADS) as pool:
            try:
                while sorter.is_active():
                    waiting += sorter.get_ready()
                    while self._begin_next(waiting, sorter, pool):
                        waiting += sorter.get_ready()
                    if self._running:
                        self._await(sorter)
            except BaseException:
                self._end_everything(pool)
                raise
            finally:
                for name in self.graph.steps:
                    self.outcomes.setdefault(name, Outcome(self._as_known(name), "not begun"))

    def _end_everything(self, pool: ThreadPoolExecutor) -> None:
        """End all that is at work, however often somebody interrupts that, and take in how it ended.

        Threads are asked, not what is known here: an interruption may come right after one has begun.
        """
        pool.shutdown(wait=False, cancel_futures=True)
        with ending.everything():
            while any(thread.name.startswith(_THREADS) for thread in threading.enumerate()):
                try:
                    process.end_all()
                    time.sleep(0.02)
                except KeyboardInterrupt:
                    continue
        for future, name in self._running.items():
            if not future.cancelled():
                self.outcomes[name] = self._outcome_of(future, name, over=True)
        self._running.clear()

    @property
    def _at_a_time(self) -> int:
        return self.how.jobs or min(self._slots(None), _MOST_AT_A_TIME)

    def _slots(self, memory_per_job: int | None) -> int:
        """Return how many compilers may run at a time on this machine, all steps together."""
        return compile_jobs(self.facts.machine, memory_per_job, wanted_jobs(self.base))

    def _begin_next(
        self, waiting: list[str], sorter: TopologicalSorter[str], pool: ThreadPoolExecutor
    ) -> bool:
        """Deal with one step that is ready, if there is one to deal with now; say whether there was."""
        for name in waiting:
            blocked = any(self._is_missing(needed) for needed in self.graph.steps[name].after)
            if blocked or self._is_over():
                outcome: Outcome | None = Outcome(self._as_known(name), "not begun")
            else:
                outcome = self._skipped_or_failed(name)
            if outcome is not None:
                self.outcomes[name] = outcome
                waiting.remove(name)
                sorter.done(name)
                return True
            if len(self._running) < self._at_a_time:
                waiting.remove(name)
                self._start(name, waiting, pool)
                return True
        return False

    def _is_missing(self, needed: str) -> bool:
        return needed in self.outcomes and self.outcomes[needed].state not in ("done", "skipped", "left out")

    def _is_over(self) -> bool:
        failed = any(outcome.failure is not None for outcome in self.outcomes.values())
        return failed and not self.how.keep_going

    def _as_known(self, name: str) -> Step:
        return self.settled.get(name, self.graph.steps[name])

    def _skipped_or_failed(self, name: str) -> Outcome | None:
        """Settle a step; return its outcome when it does not run."""
        try:
            step = self.settled[name] = settle(Planner(self.graph, self.facts, self.settled), name)
        except RocmWheelsError as wrong:
            return self._failed_at_once(name, wrong)
        if step.verdict not in ("skip", "left out"):
            return None
        done = self.facts.done.get(name)
        outputs = done.stamp.outputs if done is not None and step.kind in ("build", "variant") else ()
        facts = done.stamp.facts if done is not None else {}
        self.record.write(
            "step-skipped",
            step=name,
            why=step.why,
            fingerprint=step.fingerprint,
            outputs=[{"path": one.path, "size": one.size, "sha256": one.sha256} for one in outputs],
            targets=facts.get("targets") if facts.get("verified") else None,
            version=facts.get("version"),
        )
        return Outcome(step, "skipped" if step.verdict == "skip" else "left out")

    # -- a step at work -------------------------------------------------------------------------------------

    def _start(self, name: str, waiting: list[str], pool: ThreadPoolExecutor) -> None:
        step = self.settled[name]
        jobs = self._share(step, waiting) if step.kind == "build" else None
        log_file = self.record.folder / f"{name}.log"
        self.screen.begin(name, step.why, log_file)
        self._running[pool.submit(copy_context().run, self._work, step, jobs, log_file)] = name

    def _share(self, step: Step, waiting: list[str]) -> int:
        """Return a step's part of the compilers: by the work that is expected of all that may run with it."""
        slots = self._slots(step.estimate.memory_per_job or None if step.estimate else None)
        beside = [*self._running.values(), *waiting][: self._at_a_time - 1]
        others = [self._as_known(name) for name in beside]
        work = [
            max(one.estimate.seconds, 1.0) if one.estimate else 1.0 for one in others if one.kind == "build"
        ]
        own = max(step.estimate.seconds, 1.0) if step.estimate else 1.0
        return max(1, round(slots * own / (own + sum(work))))

    def _work(self, step: Step, jobs: int | None, log_file: Path) -> Outcome:
        """Run a step's process to its end; what it left behind is ended. Runs in a thread."""
        env = {**self.base, **told(self.record.folder, self.facts.request.sdk)}
        if jobs is not None:
            env["MAX_JOBS"] = str(jobs)
        usage, begin = Usage(), time.monotonic()
        said = deque[str](maxlen=SAID_LINES)

        def started(pid: int) -> None:
            usage.started(pid)
            events.step_begun(self.record, step, self.plan, log=log_file, pid=pid, jobs=jobs)

        def heard(line: str) -> None:
            said.append(line)
            self.screen.line(step.id, line)

        with usage:
            code, timed_out = self._process(step.id, env, started, heard)
        if code:
            self._end_left_behind(step.id)
        seconds = time.monotonic() - begin
        result = read_result(self.record.folder, step.id, said)
        state, failure = end_of(step, code, timed_out, result, log_file)
        events.step_ended(
            self.record,
            step,
            state,
            failure,
            seconds=seconds,
            peak_memory=usage.peak,
            cpu_seconds=cpu_seconds(result, usage.cpu_seconds),
            exit_code=code,
        )
        self.screen.end(step.id, _SAID.get(state, f"{state} after"), _COLOURS.get(state, "red"))
        return Outcome(step, state, seconds, again=bool(result.get("again")), failure=failure)

    def _process(
        self, name: str, env: Mapping[str, str], started: Callable[[int], None], heard: Callable[[str], None]
    ) -> tuple[int, BuildError | None]:
        """Have a process do a step; return its exit code, and what stopped it when its time was over."""
        begun = False

        def begins(pid: int) -> None:
            nonlocal begun
            begun = True
            started(pid)

        try:
            finished = process.run(
                run_step_command(self.plan, name),
                env=env,
                on_line=heard,
                timeout=self.how.timeout,
                check=None,
                what=name,
                started=begins,
            )
        except BuildError as late:
            if not begun:
                raise
            return -9, late
        return finished.returncode, None

    def _end_left_behind(self, name: str) -> None:
        """End what a step's process had started, if that was killed; holding the step does."""
        try:
            with holding(self.facts.workspace, name):
                return
        except (UsageError, OSError):
            return  # a `run-step` is at it, or the disk is full: which is why ours failed

    def _await(self, sorter: TopologicalSorter[str]) -> None:
        """Wait until a step ends, and take in what it made. Raises OSError when that cannot be recorded."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            name = self._running[future]
            outcome = self.outcomes[name] = self._outcome_of(future, name)
            del self._running[future]
            if outcome.state == "done":
                tag = outcome.step.cell.tag if outcome.step.kind == "install-rocm" else None
                self.facts = self.facts.renewed(name, tag)
                self.settled[name] = replace(outcome.step, verdict="skip")
            sorter.done(name)

    def _outcome_of(self, future: Future[Outcome], name: str, *, over: bool = False) -> Outcome:
        """Return how a step ended. ``over``: the run ends for another reason, which is told instead."""
        try:
            return future.result()
        except (RocmWheelsError, OSError) as failure:
            if over:
                return Outcome(self._as_known(name), "interrupted")
            if isinstance(failure, OSError):
                raise
            self.screen.end(name, "could not be started after", "red")
            return self._failed_at_once(name, failure)

    def _failed_at_once(self, name: str, failure: RocmWheelsError) -> Outcome:
        """Take in that a step failed before its process began."""
        self.record.write(
            "step-ended",
            step=name,
            outcome="failed",
            seconds=0.0,
            exit_code=failure.exit_code,
            message=failure.message,
            tip=failure.tip,
        )
        return Outcome(self._as_known(name), "failed", failure=failure)

"""Who runs the steps of a plan, if not this machine: what each executor does, and the table of them.

A new executor is one file beside this, with a class that keeps to ``Executor``, and its row in
``EXECUTORS``. What it decides about steps (``decide_steps``), how it waits (``wait_for_jobs``) and what its
jobs leave beside the plan (``job_records``) is the same for all: nothing is submitted twice, and nothing that
is done or cannot go well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from rocm_wheels.core import errors, log, process, tables
from rocm_wheels.executors import job_records
from rocm_wheels.pipeline.step import Plan, Step

EXECUTORS: dict[str, str] = {"slurm": "rocm_wheels.executors.slurm:SlurmExecutor"}


class ExecutorUnreachableError(errors.UsageError):
    """Who runs the jobs does not answer: nothing is known of any of them, and it may do so in a minute."""


@dataclass(frozen=True)
class ExecutorOption:
    """An option of ``jobs submit`` for one executor: a ``flag`` has no value, ``words`` can be repeated."""

    name: str
    help: str
    kind: Literal["text", "words", "count", "flag"] = "text"
    flag: str = ""
    metavar: str | None = None
    variable: str | None = None

    @property
    def spelling(self) -> str:
        """Return it as it is given: ``--partition``."""
        return self.flag or f"--{self.name.replace('_', '-')}"


class Preview(NamedTuple):
    """What ``jobs submit`` would do: about each step, in lines for people, by so many requests."""

    decisions: list[Decision]
    lines: list[str]
    requests: int


class Executor(Protocol):
    """Runs the steps of one plan as jobs, each by ``run-step``.

    Its methods raise UsageError for what the user can put right, ExecutorUnreachableError for silence.
    """

    options: ClassVar[tuple[ExecutorOption, ...]]

    @classmethod
    def open_plan(cls, plan: Path, options: Mapping[str, Any], env: Mapping[str, str]) -> Executor:
        """Return the executor of a plan; ``options`` of ``jobs submit``, ``env`` of the jobs."""

    def preview(self, *, retry_failed: bool) -> Preview:
        """Return what would be submitted; write nothing."""

    def submit(self, *, retry_failed: bool = False, but_cancelled: bool = False) -> list[Decision]:
        """Submit what ``decide_steps`` says, in the order of the plan."""

    def read_states(self) -> dict[str, StepState]:
        """Return where each step of the plan is."""

    def cancel(self, names: Collection[str] = ()) -> list[str]:
        """End the jobs of steps, of all without names; return whose they were."""

    def judge_job(self, step: str, code: int, because: str) -> str:
        """Write down how a job ended, for its script: ``stop``, or ``again SECONDS``."""

    def log_path(self, step: str) -> Path:
        """Return where the output of a step's jobs is."""


def load_executor(name: str) -> type[Executor]:
    """Return the executor of a row of ``EXECUTORS``."""
    module, _, attribute = EXECUTORS[name].partition(":")
    executor: type[Executor] = getattr(import_module(module), attribute)
    return executor


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
    job: job_records.Job | None = None
    why: str = ""
    end: job_records.JobEnd | None = None

    def as_json(self) -> dict[str, object]:
        """Return what ``--json`` prints. Keys are added later, never renamed."""
        job = None if self.job is None else str(self.job)
        return {**asdict(self), "job": job, "end": None if self.end is None else asdict(self.end)}


# renew: its job waits for one that is no more, and is taken back first
StepAction = Literal["submit", "renew", "leave", "done", "left out", "stopped", "held back"]


@dataclass(frozen=True)
class Decision:
    """What is done about a step, and why. ``state``: where it was found."""

    step: Step
    action: StepAction
    why: str
    state: StepState

    @property
    def submits(self) -> bool:
        """Whether a job is submitted for it."""
        return self.action in ("submit", "renew")


def decide_steps(
    plan: Plan,
    step_states: Mapping[str, StepState],
    *,
    retry_failed: bool = False,
    but_cancelled: bool = False,
) -> list[Decision]:
    """Decide for every step of a plan as it is now, in its order.

    ``retry_failed``: submit those again, too, that failed for a reason that does not pass by itself;
    ``but_cancelled``: not those that somebody has taken from the queue.
    """
    decided: dict[str, Decision] = {}
    for step in plan:
        action, why = _decide_step(step, step_states[step.id], decided, retry_failed=retry_failed)
        if but_cancelled and action == "submit" and step_states[step.id].state == "cancelled":
            action, why = "stopped", step_states[step.id].why
        decided[step.id] = Decision(step, action, why, step_states[step.id])
    return list(decided.values())


def _decide_step(
    step: Step, state: StepState, decided: Mapping[str, Decision], *, retry_failed: bool
) -> tuple[StepAction, str]:
    if step.verdict == "left out":
        return "left out", step.why
    if state.state in AT_WORK:
        return _decide_queued_step(step, state, decided)
    if step.verdict == "skip":
        return "done", "up to date"
    bad = [name for name in step.after if decided[name].action in ("stopped", "held back")]
    if bad:
        return "held back", f"needs {bad[0]}, which {_describe_decision(decided[bad[0]])}"
    if state.state == "failed" and not retry_failed:
        return "stopped", state.why
    why = {
        "not submitted": "",
        "done": "its inputs or outputs are others since",
        "blocked": state.why,
    }.get(state.state, f"again: {state.why}")
    return "submit", why


def _decide_queued_step(
    step: Step, state: StepState, decided: Mapping[str, Decision]
) -> tuple[StepAction, str]:
    """A job in the queue is left alone, unless what it waits for is no more."""
    if state.state != "waiting":
        return "leave", state.state
    changed = [name for name in (*step.after, *step.behind) if decided[name].submits]
    if any(decided[name].action in ("stopped", "held back") for name in step.after):
        return "leave", state.state  # Slurm takes it back; a new one would begin without what it needs
    if changed:
        return "renew", f"it waits for another job of {changed[0]}"
    if "DependencyNeverSatisfied" in state.why:
        return "renew", "it waits for a job that failed"
    return "leave", state.state


def _describe_decision(decision: Decision) -> str:
    return "failed" if decision.action == "stopped" else "cannot begin"


MOST_SILENCES = 120  # one after another: an hour, if asked every 30 s; nothing is judged meanwhile


def wait_for_jobs(
    executor: Executor, *, every: float, pause: Callable[[float], None] = process.wait_or_stop
) -> dict[str, StepState]:
    """Return the states once no job is left; what happens is told. Jobs go on when this is interrupted."""
    reported: dict[str, tuple[str, str]] = {}
    silent = 0
    while True:
        try:
            step_states, submitted = _poll_once(executor, reported)
        except ExecutorUnreachableError as failure:
            silent += 1
            if not reported or silent > MOST_SILENCES:
                raise
            log.log_warning(f"{failure.message}; asking again in {tables.format_duration(every)}")
            pause(every)
            continue
        silent = 0
        if not submitted and not any(step_state.state in AT_WORK for step_state in step_states.values()):
            return step_states
        pause(every)


def _poll_once(executor: Executor, reported: dict[str, tuple[str, str]]) -> tuple[dict[str, StepState], bool]:
    """Look once; return the states, and whether something was submitted again."""
    step_states = executor.read_states()
    _report_states(step_states, reported)
    if not any(entry.state in ("lost", "again") for entry in step_states.values()):
        return step_states, False
    submitted = any(entry.submits for entry in executor.submit(but_cancelled=True))
    return (step_states if submitted else executor.read_states()), submitted


def refuse_undone(executor: Executor, step_states: Mapping[str, StepState]) -> None:
    """Raise BuildError that names every step whose job did not do it."""
    undone = [
        step_state
        for step_state in step_states.values()
        if step_state.state not in ("done", "not submitted", "left out")
    ]
    if not undone:
        return
    details = "".join(
        f"\n  {step_state.step}: {step_state.state}{f', {step_state.why}' if step_state.why else ''}"
        for step_state in undone
    )
    first = next((step_state for step_state in undone if step_state.state == "failed"), undone[0])
    how = (
        "--retry-failed submits it again" if first.state == "failed" else "the same command submits it again"
    )
    raise errors.BuildError(
        f"{len(undone)} of {tables.format_count(len(step_states), 'step')} not done:{details}",
        tip=f"its log: {executor.log_path(first.step)}; {how}",
    )


def _report_states(step_states: Mapping[str, StepState], reported: dict[str, tuple[str, str]]) -> None:
    for step_state in step_states.values():
        now = (
            step_state.state,
            step_state.why if step_state.state != "waiting" or "held" in step_state.why.lower() else "",
        )
        if reported.get(step_state.step) != now and (
            step_state.step in reported or step_state.state not in ("not submitted", "done")
        ):
            job = f" (job {step_state.job})" if step_state.job is not None else ""
            log.log_note(f"{step_state.step}: {step_state.state}{job}{f', {now[1]}' if now[1] else ''}")
        reported[step_state.step] = now

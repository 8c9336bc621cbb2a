"""Which steps of a plan are submitted now: nothing twice, nothing that is done or cannot go well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.ci.slurm.states import AT_WORK, StepState
from rocm_wheels.pipeline.plan.step import Plan, Step

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

"""Settle the steps of a graph: their inputs from the facts, and whether they run.

Pure: the same facts, the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.planner import NoTargetsLeft, Planner
from rocm_wheels.pipeline.step import KnownAfter, Step
from rocm_wheels.pipeline.step_graph import StepGraph
from rocm_wheels.pipeline.step_kinds import STEP_KINDS


def settle_step(planner: Planner, name: str) -> Step:
    """Return a step with all that is known of it now. Raises UsageError for targets that cannot be built."""
    step = planner.graph.steps[name]
    try:
        return STEP_KINDS[step.kind].settle(planner, step)
    except NoTargetsLeft as nothing:
        return replace(step, verdict="left out", why=nothing.message)


def settle_all_steps(graph: StepGraph, facts: Facts) -> dict[str, Step]:
    """Settle all steps, in their order."""
    settled: dict[str, Step] = {}
    for name in graph.steps:
        settled[name] = settle_step(Planner(graph, facts, settled), name)
    return settled


def list_run_targets(graph: StepGraph, facts: Facts, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return every target of a run, as far as they are known."""
    planner = Planner(graph, facts, {step.id: step for step in steps})
    run_targets: dict[str, None] = {}
    for step in steps:
        targets = (
            planner.find_targets(step.cell) if step.kind == "build" and step.verdict != "left out" else ()
        )
        if not isinstance(targets, KnownAfter):
            run_targets.update(dict.fromkeys(targets))
    return tuple(run_targets)

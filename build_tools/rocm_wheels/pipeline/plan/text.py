"""A plan for people: a line a step, or all that is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocm_wheels.pipeline.estimates import Estimate
from rocm_wheels.pipeline.plan.step import BuiltAgainst, Plan, Step
from rocm_wheels.pipeline.record.plain import shorten_digests
from rocm_wheels.pipeline.summary import format_size, format_duration
from rocm_wheels.shell import hide_variable_value
from rocm_wheels.words import format_count

_VERDICT_WORDS = {"run": "runs", "skip": "done", "known later": "later", "left out": "out"}


def format_plan(plan: Plan, *, details: bool, of_done: bool = True) -> str:
    """Write a plan: each step with whether and why it runs, then what all of it is expected to take.

    ``details``: all that is known of each step; with ``of_done`` of those too that do not run.
    """
    steps = list(plan)
    width = max((len(step.id) for step in steps), default=0)
    lines: list[str] = []
    for step in steps:
        why = "" if step.verdict == "skip" else shorten_digests(step.why)
        cost = f"  ({_format_cost(step)})" if step.estimate is not None and step.may_run else ""
        lines.append(f"{_VERDICT_WORDS[step.verdict]:<5}  {step.id:<{width}}  {why}{cost}".rstrip())
        if details and (of_done or step.may_run):
            lines += [*(f"         {line}" for line in _format_details(step)), ""]
    lines += [""] if lines[-1:] != [""] else []
    return "\n".join([*lines, *map(format_built_against, plan.against), *_format_totals(steps)])


def format_built_against(wheel: BuiltAgainst) -> str:
    """Say what is built against a wheel that the run has not built, and where that comes from."""
    code = f", with code for {wheel.targets}" if wheel.targets else ""
    wheel_text = f"{wheel.project} {wheel.version} for {wheel.python} ({wheel.source}: {wheel.place})"
    return f"built against {wheel_text}{code}"


def _format_details(step: Step) -> Iterator[str]:
    yield f"fingerprint  {step.fingerprint or step.waits_for}"
    if step.after:
        yield f"after        {', '.join(step.after)}"
    if step.behind:
        yield f"behind       {', '.join(step.behind)}"
    if step.command:
        yield f"command      {step.command}"
    for name, value in step.environment.items():
        yield f"environment  {name}" + (" is removed" if value is None else f"={value}")
    for name, input_value in step.inputs.items():
        if step.environment.get(name) != input_value:  # a variable that reaches a compiler is shown already
            yield f"input        {name}: {hide_variable_value(name, str(input_value))}"
    if step.estimate is not None:
        yield f"expected     {_format_cost(step)}; {step.estimate.source}; disk as stated"


def _format_cost(step: Step) -> str:
    estimate = step.estimate
    assert estimate is not None
    size, memory = format_size(estimate.disk), format_size(estimate.memory)
    return f"about {format_duration(estimate.seconds)}, {size} disk, {memory} memory"


def _format_totals(steps: Iterable[Step]) -> Iterator[str]:
    """Say how many steps run, and what is expected of them, one after another, with the sources of that."""
    steps = list(steps)
    runs = [step for step in steps if step.may_run]
    later = sum(step.verdict == "known later" for step in runs)
    text = f"{format_count(len(steps), 'step')}: {len(runs) - later} to run, {len(steps) - len(runs)} done"
    yield text + (f", {later} depend on what others make" if later else "")
    estimates = [step.estimate for step in runs if step.estimate is not None]
    if estimates:
        memory = max(estimate.memory for estimate in estimates)
        yield (
            f"expected, one after another: {format_duration(sum(estimate.seconds for estimate in estimates))}, "
            f"{format_size(sum(estimate.disk for estimate in estimates))} disk, {format_size(memory)} memory at most"
        )
        for source in sorted({_describe_source(estimate) for estimate in estimates}):
            yield f"  {source}"


def _describe_source(estimate: Estimate) -> str:
    """Return what an estimate comes from: of a recorded run its name (``--details`` have the rest)."""
    run, scaled, _ = estimate.source.partition(" (")
    return f"as in {run}; disk as stated" if scaled and run.startswith("run ") else estimate.source


def explain_step(step: Step, *, never: bool, changes: Iterable[str]) -> str:
    """Say of one step whether it runs, and all that changed since it was done last, if it ``never`` was."""
    lines = [f"{step.id}: {step.why if step.verdict != 'skip' else 'up to date'}"]
    lines += [f"  {line}" for line in changes if line != step.why]
    if never:
        lines.append("  it has not been done in this work directory")
    if (waits := step.waits_for) is not None:
        names = [name for name, value in step.inputs.items() if value is waits or value == waits]
        lines.append(f"  {', '.join(names)}: {waits}")
    return "\n".join(lines)

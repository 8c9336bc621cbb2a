"""A plan for people: a line a step, or all that is known of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocm_wheels.pipeline.estimates import Estimate
from rocm_wheels.pipeline.plan.step import BuiltAgainst, Plan, Step
from rocm_wheels.pipeline.record.plain import brief
from rocm_wheels.pipeline.summary import human_size, human_time
from rocm_wheels.shell import hide_value
from rocm_wheels.words import counted

_VERDICTS = {"run": "runs", "skip": "done", "known later": "later", "left out": "out"}


def plan_text(plan: Plan, *, details: bool, of_done: bool = True) -> str:
    """Write a plan: each step with whether and why it runs, then what all of it is expected to take.

    ``details``: all that is known of each step; with ``of_done`` of those too that do not run.
    """
    steps = list(plan)
    width = max((len(step.id) for step in steps), default=0)
    lines: list[str] = []
    for step in steps:
        why = "" if step.verdict == "skip" else brief(step.why)
        cost = f"  ({_cost(step)})" if step.estimate is not None and step.may_run else ""
        lines.append(f"{_VERDICTS[step.verdict]:<5}  {step.id:<{width}}  {why}{cost}".rstrip())
        if details and (of_done or step.may_run):
            lines += [*(f"         {line}" for line in _details(step)), ""]
    lines += [""] if lines[-1:] != [""] else []
    return "\n".join([*lines, *map(against_text, plan.against), *_totals(steps)])


def against_text(wheel: BuiltAgainst) -> str:
    """Say what is built against a wheel that the run has not built, and where that comes from."""
    code = f", with code for {wheel.targets}" if wheel.targets else ""
    said = f"{wheel.project} {wheel.version} for {wheel.python} ({wheel.source}: {wheel.place})"
    return f"built against {said}{code}"


def _details(step: Step) -> Iterator[str]:
    yield f"fingerprint  {step.fingerprint or step.waits_for}"
    if step.after:
        yield f"after        {', '.join(step.after)}"
    if step.behind:
        yield f"behind       {', '.join(step.behind)}"
    if step.command:
        yield f"command      {step.command}"
    for name, value in step.environment.items():
        yield f"environment  {name}" + (" is removed" if value is None else f"={value}")
    for name, given in step.inputs.items():
        if step.environment.get(name) != given:  # a variable that reaches a compiler is shown already
            yield f"input        {name}: {hide_value(name, str(given))}"
    if step.estimate is not None:
        yield f"expected     {_cost(step)}; {step.estimate.source}; disk as stated"


def _cost(step: Step) -> str:
    known = step.estimate
    assert known is not None
    size, memory = human_size(known.disk), human_size(known.memory)
    return f"about {human_time(known.seconds)}, {size} disk, {memory} memory"


def _totals(steps: Iterable[Step]) -> Iterator[str]:
    """Say how many steps run, and what is expected of them, one after another, with the sources of that."""
    steps = list(steps)
    runs = [step for step in steps if step.may_run]
    later = sum(step.verdict == "known later" for step in runs)
    text = f"{counted(len(steps), 'step')}: {len(runs) - later} to run, {len(steps) - len(runs)} done"
    yield text + (f", {later} depend on what others make" if later else "")
    known = [step.estimate for step in runs if step.estimate is not None]
    if known:
        memory = max(one.memory for one in known)
        yield (
            f"expected, one after another: {human_time(sum(one.seconds for one in known))}, "
            f"{human_size(sum(one.disk for one in known))} disk, {human_size(memory)} memory at most"
        )
        for source in sorted({_source(one) for one in known}):
            yield f"  {source}"


def _source(known: Estimate) -> str:
    """Return what an estimate comes from: of a recorded run its name (``--details`` have the rest)."""
    run, scaled, _ = known.source.partition(" (")
    return f"as in {run}; disk as stated" if scaled and run.startswith("run ") else known.source


def why_text(step: Step, *, never: bool, changes: Iterable[str]) -> str:
    """Say of one step whether it runs, and all that changed since it was done last, if it ``never`` was."""
    lines = [f"{step.id}: {step.why if step.verdict != 'skip' else 'up to date'}"]
    lines += [f"  {line}" for line in changes if line != step.why]
    if never:
        lines.append("  it has not been done in this work directory")
    if (waits := step.waits_for) is not None:
        names = [name for name, value in step.inputs.items() if value is waits or value == waits]
        lines.append(f"  {', '.join(names)}: {waits}")
    return "\n".join(lines)

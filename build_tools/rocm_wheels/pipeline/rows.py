"""What a run came to, wheel by wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocm_wheels.model.gfx import parse_targets
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.collect import list_wheels
from rocm_wheels.pipeline.execute.executor import StepOutcome
from rocm_wheels.pipeline.facts.gather import Facts
from rocm_wheels.pipeline.plan.step import Plan, Step
from rocm_wheels.pipeline.stamps import read_stamp
from rocm_wheels.pipeline.summary import SummaryRow

_OUTCOME_WORDS = {"not begun": "not built", "timeout": "stopped"}


def make_rows(plan: Plan, facts: Facts, outcomes: Mapping[str, StepOutcome]) -> tuple[SummaryRow, ...]:
    """Return a row for each wheel of a plan, in its order, with its variant and the targets it lacks."""
    builds = [step for step in plan if step.kind == "build"]
    rows = []
    for step in builds:
        row = _make_row(step, facts, outcomes[step.id])
        variant = outcomes.get(f"variant-{step.project}-{step.cell.suffix}")
        if variant is not None and variant.state in ("done", "skipped"):
            label = facts.done[variant.step.id].stamp.facts["label"]
            row = replace(row, note=", ".join(filter(None, (row.note, f"variant {label}"))))
        rows.append(_add_dropped_targets(row, step, facts))
    return tuple(rows)


def _make_row(step: Step, facts: Facts, outcome: StepOutcome) -> SummaryRow:
    name, seconds = str(step.project), outcome.seconds or None
    common = SummaryRow(
        name, outcome.state, python=step.cell.tag, target_set=step.cell.target_set, seconds=seconds
    )
    if outcome.state not in ("done", "skipped"):
        outcome_word = _OUTCOME_WORDS.get(outcome.state, outcome.state)
        return replace(
            common,
            outcome=outcome_word,
            note="" if outcome_word in ("not built", "left out") else _describe_remaining_wheel(step, facts),
        )
    stamp = facts.done[step.id].stamp
    output = stamp.outputs[0]
    verified = bool(stamp.facts["verified"])
    return replace(
        common,
        outcome="built" if outcome.state == "done" and not outcome.reused else "up to date",
        wheel=Path(output.path).name,
        version=str(stamp.facts["version"]),
        targets=tuple(map(str, stamp.facts["targets"])) if verified else None,
        size=output.size,
        sha256=output.sha256,
        checked="verified" if verified else "NOT VERIFIED (--no-verify)",
        lock=facts.locked.digest if facts.locked else "",
    )


def _add_dropped_targets(row: SummaryRow, step: Step, facts: Facts) -> SummaryRow:
    """Say of a wheel which targets were left out of it, because nothing compiles for them."""
    probe = facts.done.get("probe-targets")
    if (
        not facts.request.drop_bad_targets
        or probe is None
        or not load_project(str(step.project)).has_device_code
    ):
        return row
    bad = [target for target, fault in probe.stamp.facts["faults"].items() if fault is not None]
    if step.cell.target_set:
        set_targets = {target_set.name: target_set.targets for target_set in facts.request.target_sets}[
            step.cell.target_set
        ]
        bad = [target for target in bad if target in parse_targets(str(set_targets))]
    if not bad:
        return row
    note = ", ".join(filter(None, (row.note, f"WITHOUT {', '.join(bad)}, which does not compile")))
    return replace(row, note=note, dropped=tuple(bad))


def _describe_remaining_wheel(step: Step, facts: Facts) -> str:
    """Say whose wheel the output has when a step failed: a cache that hit too seldom fails a finished one."""
    folder, before = facts.request.output / step.cell.target_set, facts.done.get(step.id)
    if not list_wheels(folder, load_project(str(step.project)).distribution, step.cell.tag):
        return ""
    now = read_stamp(facts.workspace.steps, step.id)
    if now is not None and (before is None or now != before.stamp):
        return "its wheel is finished"
    return "an earlier wheel is still in the output"

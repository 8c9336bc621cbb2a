"""Whose wheel is in the output when a step failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runs import finish, make_facts, settled

from rocm_wheels.pipeline import local_executor, outputs, run
from rocm_wheels.pipeline.step import Plan

APEX = "build-apex-cp312"


def test_a_wheel_that_was_finished_is_not_called_an_earlier_one(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path))
    output = facts.request.output
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / "apex-1.0-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"new")
    before = facts.done[APEX].stamp
    plan = Plan(settled(facts), ("gfx942",))
    outcomes = {
        step.id: local_executor.StepOutcome(step, "failed" if step.id == APEX else "not begun")
        for step in plan
    }

    def note() -> str:
        (row,) = [row for row in run.make_rows(plan, facts, outcomes) if row.project == "apex"]
        return row.note

    outputs.write_stamp(facts.workspace.steps, before)
    assert note() == "an earlier wheel is still in the output"
    outputs.write_stamp(
        facts.workspace.steps, replace(before, outputs=(outputs.OutputFile.from_path(wheel),))
    )
    assert note() == "its wheel is finished; the next run packages it"
    outputs.write_stamp(facts.workspace.steps, before)
    wheel.unlink()
    assert note() == ""

"""Whose wheel is in the output when a step failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planned_runs import finish, make_facts, settled

from rocm_wheels.pipeline import OutputFile, Plan, StepOutcome, make_rows, write_stamp

APEX = "build-apex-cp312"


def test_a_wheel_that_was_finished_is_not_called_an_earlier_one(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path))
    output = facts.request.output
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / "apex-1.0-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"new")
    before = facts.done[APEX].stamp
    plan = Plan(settled(facts)[1], ("gfx942",))
    outcomes = {step.id: StepOutcome(step, "failed" if step.id == APEX else "not begun") for step in plan}

    def note() -> str:
        (row,) = [row for row in make_rows(plan, facts, outcomes) if row.project == "apex"]
        return row.note

    write_stamp(facts.workspace.steps, before)
    assert note() == "an earlier wheel is still in the output"
    write_stamp(facts.workspace.steps, replace(before, outputs=(OutputFile.from_path(wheel),)))
    assert note() == "its wheel is finished; the next run packages it"
    write_stamp(facts.workspace.steps, before)
    wheel.unlink()
    assert note() == ""

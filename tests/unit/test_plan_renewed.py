"""Facts after a step: what it made, and what it took away from others."""

from __future__ import annotations

from pathlib import Path

import pytest
from planned_runs import finish, make_facts

from rocm_wheels.pipeline import OutputFile, Planner, StepStamp, make_step_graph, settle_step, write_stamp
from rocm_wheels.pipeline import facts as gather


def test_an_environment_made_anew_has_lost_its_build_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312"])
    record = tmp_path / "RECORD"
    record.write_text("cmake/__init__.py,,\n", encoding="utf-8")
    did = facts.done["install-tools-cp312"].stamp
    write_stamp(
        facts.workspace.steps, StepStamp(did.step, did.inputs, (OutputFile.from_path(record),), did.facts)
    )
    before = facts.refresh_after_step("install-tools-cp312")
    assert settle_step(Planner(make_step_graph(before), before, {}), did.step).verdict == "skip"

    record.unlink()  # the environment was made anew, with the very same ROCm
    monkeypatch.setattr(gather, "inspect_python", lambda *_, **__: facts.pythons["cp312"])
    after = before.refresh_after_step("install-rocm-cp312", "cp312")
    step = settle_step(Planner(make_step_graph(after), after, {}), did.step)
    assert (step.verdict, step.why) == ("run", f"{record} is missing")

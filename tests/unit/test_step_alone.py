"""A step that is run alone, as in a cluster's job: how many compilers it may run, what its record is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planned_runs import GIB, make_facts, settled

from rocm_wheels.core import errors
from rocm_wheels.pipeline import run_record, run_step
from rocm_wheels.pipeline.plan import PlanFile
from rocm_wheels.pipeline.step import Plan


def test_compilers_of_a_step_alone_fit_into_the_memory(tmp_path: Path) -> None:
    facts = make_facts(tmp_path)
    steps = settled(facts)
    file = PlanFile(facts.request, Plan(steps, ("gfx942",)), {})
    torch = steps["build-pytorch-cp312"]
    small = replace(facts.machine, free_memory=8 * GIB)
    assert (
        1
        <= run_step.count_step_jobs(file, torch, small, {})
        < 8
        < run_step.count_step_jobs(file, torch, facts.machine, {})
        <= 64
    )
    assert run_step.count_step_jobs(file, torch, small, {"MAX_JOBS": "48"}) == 48


def test_a_record_is_told_how_a_step_began_and_ended(tmp_path: Path) -> None:
    facts = make_facts(tmp_path)
    steps = settled(facts)
    step, plan, record = steps["build-pytorch-cp312"], tmp_path / "plan.json", run_record.RunRecord(tmp_path)
    file = PlanFile(facts.request, Plan(steps, ("gfx942",), (), "cp312"), {}, (tmp_path / "lock", "7" * 64))
    run_step.record_run_begin(record, file, plan, facts.machine, command="rocm-wheels run-step", steps=1)
    run_step.record_step_begin(record, step, plan, log=tmp_path / "log", pid=1, jobs=4)
    failed = errors.BuildError("building pytorch failed", tip="look")
    used = {"seconds": 1.23456, "peak_memory": 7, "cpu_seconds": 1.5, "exit_code": 12}
    run_step.record_step_end(record, step, "failed", failed, **used)  # type: ignore[arg-type]
    run = run_record.read_run(tmp_path)
    told = run.steps["build-pytorch-cp312"]
    assert (told.state, told.seconds, told.peak_memory, told.ended["tip"]) == ("failed", 1.235, 7, "look")
    assert (run.begun["lock_digest"], told.begun["jobs"], told.log) == ("7" * 64, 4, tmp_path / "log")

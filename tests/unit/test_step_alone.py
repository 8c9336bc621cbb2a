"""A step that is run alone, as in a cluster's job: how many compilers it may run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planned_runs import GIB, make_facts, settled

from rocm_wheels.pipeline.execute.alone import jobs_alone
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.step import Plan


def test_compilers_of_a_step_alone_fit_into_the_memory(tmp_path: Path) -> None:
    facts = make_facts(tmp_path)
    _, steps = settled(facts)
    file = PlanFile(facts.request, Plan(steps, ("gfx942",)), {})
    torch, probe = steps["build-pytorch-cp312"], steps["probe-targets"]
    small = replace(facts.machine, free_memory=8 * GIB)
    assert 1 <= jobs_alone(file, torch, small, {}) < 8 < jobs_alone(file, torch, facts.machine, {}) <= 64
    assert jobs_alone(file, torch, small, {"MAX_JOBS": "48"}) == 48
    assert jobs_alone(file, probe, small, {"MAX_JOBS": "many"}) == 64

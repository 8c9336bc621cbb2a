"""A step that is run alone, as in a cluster's job: how many compilers it may run, what its record is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runs import GIB, make_facts, settled

from rocm_wheels.pipeline import run_step
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

"""What preflight says of a plan: its steps that will run, and where."""

from __future__ import annotations

from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.model.flash_attention import use_flash_attention
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.plan.planning import Planned
from rocm_wheels.pipeline.preflight.look import headers_of, look
from rocm_wheels.pipeline.preflight.subject import Cost, PreflightFinding, Subject
from rocm_wheels.pipeline.preflight.table import run_preflight


def findings_before(planned: Planned) -> tuple[PreflightFinding, ...]:
    """Look at what the steps of a plan that may run need, and return all that is found."""
    return run_preflight(_subject(planned))


def _subject(planned: Planned) -> Subject:
    facts, request = planned.facts, planned.facts.request
    steps = [step for step in planned.plan if step.verdict != "skip"]
    builds = [step for step in steps if step.kind == "build"]
    projects = {str(step.project): load_project(str(step.project)) for step in builds}
    ready = next((python.ready for python in facts.pythons.values() if python.ready is not None), None)
    env = dict(facts.env)
    if ready is not None:
        prepend_path(env, "PATH", ready.environment.bin, request.platform)
    given = facts.env.get("MAX_JOBS", "")
    aotriton = facts.trees["pytorch"].aotriton if "pytorch" in projects else None
    attention = "pytorch" in projects and bool(planned.plan.targets) and use_flash_attention(
        request.flash_attention,
        platform=request.platform,
        with_triton=facts.builds("triton"),
        targets=planned.plan.targets,
        aotriton=aotriton,
    ).on  # fmt: skip
    return look(
        env=env,
        platform=request.platform,
        machine=facts.machine,
        work=request.work,
        output=request.output,
        sources=request.sources,
        projects=list(projects.values()),
        pythons=[headers_of(python.python, facts.env) for python in facts.pythons.values()] if builds else [],
        wheels=[
            (projects[str(step.project)], step.cell.tag, folder)
            for step in builds
            for folder in planned.graph.folders(step, request.output)
        ],
        costs=[Cost(step.id, step.project, step.estimate) for step in steps if step.estimate is not None],
        targets=planned.plan.targets,
        sdk=None if ready is None else ready.tree,
        sdk_targets=None if ready is None else ready.sdk.targets,
        flash_attention=attention,
        aotriton=aotriton,
        jobs=int(given) if given.isdecimal() else None,
        epochs=[facts.trees[name].identity.epoch for name in projects],
    )

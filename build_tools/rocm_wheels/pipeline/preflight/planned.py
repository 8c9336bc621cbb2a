"""Preflight of a plan: of the steps that will run, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.errors import UsageError
from rocm_wheels.machine import read_max_jobs
from rocm_wheels.model.flash_attention import decide_flash_attention
from rocm_wheels.model.lines import get_line_pythons
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.pipeline.estimates import estimate_step
from rocm_wheels.pipeline.plan.fitting import find_usable_triton
from rocm_wheels.pipeline.preflight.downloads import list_fetches
from rocm_wheels.pipeline.preflight.look import find_headers, complete_subject
from rocm_wheels.pipeline.preflight.subject import StepCost, PreflightFinding, PreflightSubject
from rocm_wheels.pipeline.preflight.table import run_preflight_checks

if TYPE_CHECKING:
    from rocm_wheels.pipeline.facts.gather import Facts
    from rocm_wheels.pipeline.facts.ready import ReadyEnvironment
    from rocm_wheels.pipeline.plan.planning import PlannedRun
    from rocm_wheels.pipeline.plan.step import Step

_COMPILER_VARIABLES = ("CC", "CXX")


def preflight_plan(planned: PlannedRun) -> tuple[PreflightFinding, ...]:
    """Return what is known to go wrong with the steps of a plan that will run, errors first."""
    return run_preflight_checks(make_subject(planned))


def make_subject(planned: PlannedRun) -> PreflightSubject:
    """Look at what the steps of a plan that are not current will meet."""
    facts, request = planned.facts, planned.facts.request
    steps = [step for step in planned.plan if step.may_run]
    builds = [(step, load_project(str(step.project))) for step in steps if step.kind == "build"]
    projects = list({project.name: project for _, project in builds}.values())
    tags = dict.fromkeys(step.cell.tag for step, _ in builds if step.cell.tag in facts.pythons)
    pythons = run_in_parallel(
        lambda tag: find_headers(facts.pythons[tag].python, facts.env, tag), tags, jobs=8
    )
    ready = next(
        (python_facts.ready for python_facts in facts.pythons.values() if python_facts.ready is not None),
        None,
    )
    tree = facts.trees.get("pytorch")
    attention = _expects_flash_attention(facts, planned.plan.targets)
    subject = PreflightSubject(
        platform=request.platform,
        machine=facts.machine,
        projects=tuple(project.name for project in projects),
        costs=tuple(_make_step_cost(step, planned) for step in steps if not step.brought),
        pythons=tuple(pythons),
        targets=planned.plan.targets,
        sdk_targets=ready.sdk.targets if ready is not None else None,
        unreleased=_list_unreleased_pythons(facts, tags),
        flash_attention=attention,
        fetches=tuple(
            fetch
            for project in projects
            for fetch in list_fetches(
                project,
                request.sources[project.name],
                {**facts.env, **request.set_env.get(project.name, {})},
                flash_attention=attention,
            )
        ),
        offline=request.offline,
        aotriton=tree.aotriton if tree is not None else None,
        jobs=read_max_jobs(facts.env),
    )
    return complete_subject(
        subject,
        env=_make_program_environment(facts, projects, ready),
        work=request.work,
        output=request.output,
        sources=request.sources,
        wheels=[
            (project, step.cell.tag, folder)
            for step, project in builds
            for folder in planned.graph.output_folders(step, request.output)
        ],
        sdk=ready.sdk_tree if ready is not None else None,
        epochs=[tree.identity.epoch for tree in facts.trees.values()],
    )


def _make_program_environment(
    facts: Facts, projects: Iterable[Project], ready: ReadyEnvironment | None
) -> dict[str, str]:
    """Return the environment of the builds, as far as it says where programs are found."""
    request, env = facts.request, dict(facts.env)
    for project in projects:
        variables = request.set_env.get(project.name, {})
        env.update({name: variables[name] for name in _COMPILER_VARIABLES if name in variables})
    if ready is not None:
        prepend_path(env, "PATH", ready.environment.bin, request.platform)
    return env


def _list_unreleased_pythons(facts: Facts, tags: Iterable[str]) -> tuple[str, ...]:
    """Say of each Python that torch's release line was not released for that it is so."""
    tree = facts.trees.get("pytorch")
    if tree is None or tree.version is None:
        return ()
    line, released = get_line_pythons(tree.version)
    versions = {tag: facts.pythons[tag].version for tag in tags}
    short = {
        tag: ".".join(v.split(".")[:2]) + ("t" if v.endswith("t") else "") for tag, v in versions.items()
    }
    return tuple(
        f"line {line} of torch was released for Python {', '.join(released)}, and not for {version}"
        for version in short.values()
        if released and version not in released
    )


def _make_step_cost(step: Step, planned: PlannedRun) -> StepCost:
    expected = step.estimate or estimate_step(
        step.kind, max(len(planned.plan.targets), 1), planned.facts.machine, planned.facts.history
    )
    return StepCost(step.id, step.project if step.kind == "build" else None, expected)


def _expects_flash_attention(facts: Facts, targets: tuple[str, ...]) -> bool:
    """Tell whether torch is expected to get flash attention; what the option rules out is refused later."""
    tree, others = facts.trees.get("pytorch"), [find_usable_triton(facts, tag) for tag in facts.pythons]
    try:
        return decide_flash_attention(
            facts.request.flash_attention,
            platform=facts.request.platform,
            with_triton=facts.builds_project("triton") or any(triton is not None for triton, _ in others),
            targets=targets,
            aotriton=tree.aotriton if tree is not None else None,
        ).on
    except UsageError:
        return True

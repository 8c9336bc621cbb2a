"""From what was asked to a plan: checks, facts, graph, steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.model.gfx import parse_targets
from rocm_wheels.model.project import Project
from rocm_wheels.model.versions import make_version_suffix
from rocm_wheels.pipeline.facts.gather import Facts, gather_facts
from rocm_wheels.pipeline.facts.others import refuse_stray_wheels
from rocm_wheels.pipeline.locked import LockedBuild, apply_lock
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.fitting import list_built_against, refuse_misfits, warn_of_unread_code
from rocm_wheels.pipeline.plan.graph import StepGraph, make_step_graph
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.settle import settle_all_steps, list_run_targets
from rocm_wheels.pipeline.plan.step import KnownAfter, Plan
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest, select_projects
from rocm_wheels.sources.git import strip_repository_variables


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was looked over, before anything is known of the disk but source trees and lock."""

    request: WheelsRequest
    projects: tuple[Project, ...]
    env: Mapping[str, str]
    locked: LockedBuild | None


@dataclass(frozen=True)
class PlannedRun:
    """A plan with what it was made of."""

    facts: Facts
    graph: StepGraph
    plan: Plan

    @property
    def plan_file(self) -> PlanFile:
        """What of it goes into a file."""
        trees = {name: tree.identity for name, tree in self.facts.trees.items()}
        return PlanFile.from_plan(self.facts.request, self.plan, trees, self.facts.locked)


def check_request(request: WheelsRequest, env: Mapping[str, str]) -> CheckedRequest:
    """Refuse what cannot be right, and compare the trees with the lock where there is one."""
    projects = select_projects(request)
    _check_folders_and_targets(request, projects)
    refuse_stray_wheels(request, projects)
    env = clean_environment(request, env)
    locked = None
    if request.lock is not None:
        request, locked = apply_lock(request, request.lock, projects, env)
    project_names = {project.name for project in projects}
    request = replace(request, chosen={name: name in project_names for name in request.sources})
    _ = request.target_sets
    if not request.install_rocm and (unused := _list_unused_options(request.sdk)):
        log.log_note(f"{', '.join(unused)}: of no effect on ROCm packages, which are taken as installed")
    return CheckedRequest(request, tuple(projects), env, locked)


def clean_environment(
    request: WheelsRequest, env: Mapping[str, str], *, quietly: bool = False
) -> Mapping[str, str]:
    """Return the environment of all work: that of no git hook, with no packages before those of a build."""
    env = strip_repository_variables(env)
    if request.sdk.current_env:
        return env
    strangers = [name for name in ("PYTHONPATH", "PYTHONHOME") if env.get(name)]
    if strangers and not quietly:
        log.log_note(f"{' and '.join(strangers)}: not for the build environment (--current-env takes them)")
    return {name: value for name, value in env.items() if name not in strangers}


def plan_run(checked: CheckedRequest) -> PlannedRun:
    """Look everything up and plan. Raises what the looks raise."""
    facts = gather_facts(checked.request, checked.projects, checked.env, checked.locked)
    if checked.locked is not None:
        for python in facts.pythons.values():
            if python.ready is not None:
                checked.locked.check_rocm(python.ready.sdk.version)
    graph = make_step_graph(facts)
    _refuse_run_misfits(graph, facts)
    steps = settle_all_steps(graph, facts)
    targets = list_run_targets(graph, facts, list(steps.values()))
    return PlannedRun(facts, graph, Plan(steps, targets, list_built_against(facts)))


def _refuse_run_misfits(graph: StepGraph, facts: Facts) -> None:
    """Refuse all wheels at once that cannot be built against, as far as that is known."""
    planner, builds = Planner(graph, facts, {}), []
    asking = {
        project.name: project
        for project in facts.projects
        if not all(map(facts.builds_project, project.build.after))
    }
    for step in graph.steps.values():
        if step.kind == "build" and step.project in asking:
            targets = planner.find_targets(step.cell)
            known_targets = () if isinstance(targets, KnownAfter) else targets
            builds.append((asking[step.project], step.cell.tag, known_targets))
    refuse_misfits(facts, builds)
    warn_of_unread_code(facts, builds)


def log_rocm_and_targets(planned: PlannedRun) -> None:
    """Tell which ROCm and which targets it will be, as far as that is known."""
    facts = planned.facts
    ready = next((python.ready for python in facts.pythons.values() if python.ready is not None), None)
    if ready is None:
        return
    source = f" (from {facts.locked.path})" if facts.locked is not None and facts.locked.lock.targets else ""
    log.log_note(
        f"ROCm {ready.sdk.version} at {ready.sdk.root}; targets {', '.join(planned.plan.targets)}{source}"
    )


def _check_folders_and_targets(request: WheelsRequest, projects: Sequence[Project]) -> None:
    for project in projects:
        tree = request.sources[project.name].resolve()
        for folder, option in ((request.output, "--output-dir"), (request.work, "--work-dir")):
            if folder.resolve().is_relative_to(tree):
                raise UsageError(
                    f"{option} {folder} is inside the source tree of {project.name}, {tree}",
                    tip="choose a folder outside: what is put there would count as changed sources",
                )
    for text, source_name in (
        (request.targets, "--pytorch-rocm-arch"),
        (request.targets_variable, "PYTORCH_ROCM_ARCH"),
    ):
        if text:
            parse_targets(text, input_name=source_name)
    make_version_suffix("0", request.version_suffix)


def _list_unused_options(request: SdkRequest) -> list[str]:
    """Name the options given that say where ROCm packages would come from."""
    option_values = {
        "--index-url": request.index_url,
        "--find-links": request.find_links,
        "--rocm-extras": request.extras,
    }
    return [option for option, value in option_values.items() if value]

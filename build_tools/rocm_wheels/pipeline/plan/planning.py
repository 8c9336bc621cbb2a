"""From what was asked to a plan: checks, facts, graph, steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.model.gfx import parse_targets
from rocm_wheels.model.project import Project
from rocm_wheels.model.versions import version_suffix
from rocm_wheels.pipeline.facts.gather import Facts, gather
from rocm_wheels.pipeline.facts.others import refuse_strange
from rocm_wheels.pipeline.locked import LockedBuild, under_lock
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.fitting import built_against, refuse_misfits, warn_of_unread_code
from rocm_wheels.pipeline.plan.graph import Graph, make_graph
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.settle import make_plan, targets_of_run
from rocm_wheels.pipeline.plan.step import KnownAfter, Plan
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest, select
from rocm_wheels.sources.git import outside_repositories


@dataclass(frozen=True)
class Asked:
    """A request that was looked over, before anything is known of the disk but source trees and lock."""

    request: WheelsRequest
    projects: tuple[Project, ...]
    env: Mapping[str, str]
    locked: LockedBuild | None


@dataclass(frozen=True)
class Planned:
    """A plan with what it was made of."""

    facts: Facts
    graph: Graph
    plan: Plan

    @property
    def file(self) -> PlanFile:
        """What of it goes into a file."""
        trees = {name: tree.identity for name, tree in self.facts.trees.items()}
        return PlanFile.of(self.facts.request, self.plan, trees, self.facts.locked)


def look_over(request: WheelsRequest, env: Mapping[str, str]) -> Asked:
    """Refuse what cannot be right, and compare the trees with the lock where there is one."""
    projects = select(request)
    _check(request, projects)
    refuse_strange(request, projects)
    env = clean_environment(request, env)
    locked = None
    if request.lock is not None:
        request, locked = under_lock(request, request.lock, projects, env)
    wanted = {project.name for project in projects}
    request = replace(request, chosen={name: name in wanted for name in request.sources})
    _ = request.target_sets
    if not request.install_rocm and (unused := _only_for_installing(request.sdk)):
        log.note(f"{', '.join(unused)}: of no effect on ROCm packages, which are taken as installed")
    return Asked(request, tuple(projects), env, locked)


def clean_environment(
    request: WheelsRequest, env: Mapping[str, str], *, quietly: bool = False
) -> Mapping[str, str]:
    """Return the environment of all work: that of no git hook, with no packages before those of a build."""
    env = outside_repositories(env)
    if request.sdk.current_env:
        return env
    strangers = [name for name in ("PYTHONPATH", "PYTHONHOME") if env.get(name)]
    if strangers and not quietly:
        log.note(f"{' and '.join(strangers)}: not for the build environment (--current-env takes them)")
    return {name: value for name, value in env.items() if name not in strangers}


def make_planned(asked: Asked) -> Planned:
    """Look everything up and plan. Raises what the looks raise."""
    facts = gather(asked.request, asked.projects, asked.env, asked.locked)
    if asked.locked is not None:
        for python in facts.pythons.values():
            if python.ready is not None:
                asked.locked.check_rocm(python.ready.sdk.version)
    graph = make_graph(facts)
    _refuse_misfits(graph, facts)
    steps = make_plan(graph, facts)
    targets = targets_of_run(graph, facts, list(steps.values()))
    return Planned(facts, graph, Plan(steps, targets, built_against(facts)))


def _refuse_misfits(graph: Graph, facts: Facts) -> None:
    """Refuse all wheels at once that cannot be built against, as far as that is known."""
    planner, builds = Planner(graph, facts, {}), []
    asking = {one.name: one for one in facts.projects if not all(map(facts.builds, one.build.after))}
    for step in graph.steps.values():
        if step.kind == "build" and step.project in asking:
            targets = planner.targets(step.cell)
            known = () if isinstance(targets, KnownAfter) else targets
            builds.append((asking[step.project], step.cell.tag, known))
    refuse_misfits(facts, builds)
    warn_of_unread_code(facts, builds)


def say_what_holds(planned: Planned) -> None:
    """Tell which ROCm and which targets it will be, as far as that is known."""
    facts = planned.facts
    ready = next((python.ready for python in facts.pythons.values() if python.ready is not None), None)
    if ready is None:
        return
    source = f" (from {facts.locked.path})" if facts.locked is not None and facts.locked.lock.targets else ""
    log.note(
        f"ROCm {ready.sdk.version} at {ready.sdk.root}; targets {', '.join(planned.plan.targets)}{source}"
    )


def _check(request: WheelsRequest, projects: Sequence[Project]) -> None:
    for project in projects:
        tree = request.sources[project.name].resolve()
        for folder, option in ((request.output, "--output-dir"), (request.work, "--work-dir")):
            if folder.resolve().is_relative_to(tree):
                raise UsageError(
                    f"{option} {folder} is inside the source tree of {project.name}, {tree}",
                    tip="choose a folder outside: what is put there would count as changed sources",
                )
    for text, what in (
        (request.targets, "--pytorch-rocm-arch"),
        (request.targets_variable, "PYTORCH_ROCM_ARCH"),
    ):
        if text:
            parse_targets(text, what=what)
    version_suffix("0", request.version_suffix)


def _only_for_installing(request: SdkRequest) -> list[str]:
    """Name the options given that say where ROCm packages would come from."""
    given = {
        "--index-url": request.index_url,
        "--find-links": request.find_links,
        "--rocm-extras": request.extras,
    }
    return [option for option, value in given.items() if value]

"""The steps of a run and what they wait for: decided by what was asked, whatever was done before.

Two steps never work in one source tree, or change one environment, at the same time: they stand in one
order, which all of them share, so that no cycle can come of it. Within that, everything that need not
wait for another step may run beside it. But nothing uses ROCm before that of every Python is installed:
Pythons with the same packages share a path to them, which may lead into an environment that is about to
be made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.models import Project
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.request import TargetSet
from rocm_wheels.pipeline.step import BuildCell, Step

PROBE_STEP = "probe-targets"
CACHE_STEP = "check-cache"


@dataclass(frozen=True)
class StepGraph:
    """The bare steps by id, in an order in which they could run; ``sets``: the target sets by name."""

    steps: Mapping[str, Step]
    sets: Mapping[str, TargetSet]

    def output_folders(self, step: Step, output: Path) -> tuple[Path, ...]:
        """Return the folders that a step's wheel goes to: one for each target set that it belongs to."""
        names = [step.cell.target_set] if step.cell.target_set in self.sets else list(self.sets)
        return tuple(output / name for name in names)


def build_step_id(project: str, cell: BuildCell) -> str:
    """Return the id of the step that builds a project's wheel."""
    return f"build-{project}-{cell.suffix}"


def configure_step_id(project: str) -> str:
    """Return the id of the step that configures a project's tree, before anything is built."""
    return f"configure-{project}"


def make_step_graph(facts: Facts) -> StepGraph:
    """Return the steps of a run. Raises UsageError for target sets that cannot be told apart."""
    request = facts.request
    sets = {target_set.name: target_set for target_set in request.target_sets}
    tags = list(facts.pythons)
    steps: dict[str, Step] = {}

    def add(step: Step) -> None:
        steps[step.id] = step

    before: dict[str, tuple[str, ...]] = {}
    installs = [f"install-rocm-{tag}" for tag in tags if request.install_rocm]
    for tag in tags:
        rocm: tuple[str, ...] = ()
        if request.install_rocm:
            add(Step(f"install-rocm-{tag}", "install-rocm", BuildCell(tag)))
            rocm = (f"install-rocm-{tag}",)
        others = tuple(name for name in installs if name not in rocm)
        add(Step(f"install-tools-{tag}", "install-tools", BuildCell(tag), after=rocm, behind=others))
        before[tag] = (f"install-tools-{tag}",)
    shared: tuple[str, ...] = ()
    first, others = tuple(installs[:1]), tuple(installs[1:])
    if request.probe:
        add(Step(PROBE_STEP, "probe-targets", BuildCell(tags[0]), after=first, behind=others))
        shared += (PROBE_STEP,)
    if facts.cache is not None and "HIP_CLANG_LAUNCHER" in facts.cache.launcher_variables(request.platform):
        add(Step(CACHE_STEP, "check-cache", BuildCell(tags[0]), after=first, behind=others))
        shared += (CACHE_STEP,)
    builds = _BuildSteps(facts.projects, sets, once=_projects_built_once(facts))
    if request.probe:
        for name in facts.configured_first:
            step = builds.make_configure_step(
                name, BuildCell(tags[0], next(iter(sets))), (*before[tags[0]], *shared)
            )
            add(step)
            shared += (step.id,)
    for name in sets:
        for tag in tags:
            for project in facts.projects:
                for step in builds.make_build_steps(project, BuildCell(tag, name), (*before[tag], *shared)):
                    add(step)
    if request.packaging == "variant":
        for step in [step for step in steps.values() if step.kind == "build"]:
            name = f"variant-{step.project}-{step.cell.suffix}"
            add(Step(name, "variant", step.cell, step.project, after=(step.id,)))
    return StepGraph(steps, sets)


def _projects_built_once(facts: Facts) -> frozenset[str]:
    """Return the projects with device code that one wheel with that of all sets is built of.

    Variants state their targets, and a set may be left out, and its torch with it: then each set has its own.
    """
    request = facts.request
    if request.packaging == "variant" or request.drop_bad_targets:
        return frozenset()
    return frozenset(project.name for project in facts.projects if project.build.across_families is not None)


class _BuildSteps:
    """Makes the build steps in their common order, and remembers who was last where."""

    def __init__(
        self, projects: Iterable[Project], sets: Mapping[str, TargetSet], *, once: frozenset[str]
    ) -> None:
        self._projects = {project.name: project for project in projects}
        self._several = len(sets) > 1
        self._once = once
        self._in_tree: dict[str, str] = {}  # project → the step that was last in its tree
        self._in_set: dict[BuildCell, list[str]] = {}  # the steps of a cell that use its environment
        self._last_set: dict[str, BuildCell] = {}  # tag → the cell before
        self._made: set[str] = set()

    def make_build_steps(self, project: Project, cell: BuildCell, first: tuple[str, ...]) -> list[Step]:
        """Return the step of a project in a cell; none when another cell has it already."""
        build_cell = self._find_build_cell(project.name, cell)
        name = build_step_id(project.name, build_cell)
        if name in self._made:
            return []
        needed = [
            build_step_id(other, self._find_build_cell(other, cell))
            for other in project.build.after
            if other in self._projects
        ]
        behind = [self._in_tree[project.name]] if project.name in self._in_tree else []
        if build_cell.target_set or project.build.needs:  # one wheel for all sets is built in the first one's
            behind += self._list_earlier_steps(cell)
            self._in_set.setdefault(cell, []).append(name)
        self._in_tree[project.name] = name
        self._made.add(name)
        after = (*first, *needed)
        return [
            Step(
                name,
                "build",
                build_cell,
                project.name,
                after,
                tuple(n for n in dict.fromkeys(behind) if n not in after),
            )
        ]

    def make_configure_step(self, project: str, cell: BuildCell, first: tuple[str, ...]) -> Step:
        """Return the step that configures the tree of a project's first build, and nothing else."""
        return Step(
            configure_step_id(project), "configure", self._find_build_cell(project, cell), project, first
        )

    def _find_build_cell(self, name: str, cell: BuildCell) -> BuildCell:
        """Return where a project is built: once for all targets when it has no device code or that of all."""
        has_own_code = self._projects[name].has_device_code and name not in self._once
        return cell if has_own_code or not self._several else BuildCell(cell.tag)

    def _list_earlier_steps(self, cell: BuildCell) -> list[str]:
        """Return the steps of the set before, which had another torch in the same environment."""
        other_cells = [other for other in self._in_set if other.tag == cell.tag and other != cell]
        return self._in_set[other_cells[-1]] if other_cells else []

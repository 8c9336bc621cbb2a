"""Steps of a plan: plain values, to be printed, kept in a file and compared; what they wait for.

An input that an earlier step has yet to produce is ``KnownAfter`` that step; it is never guessed. A step
is settled once all its inputs are known: then it has a fingerprint, and it is said whether it runs and
why.

What steps wait for is decided by what was asked, whatever was done before. Two steps never work in one
source tree, or change one environment, at the same time: they stand in one order, which all of them share,
so that no cycle can come of it. Within that, everything that need not wait for another step may run beside
it. But nothing uses ROCm before that of every Python is installed: Pythons with the same packages share a
path to them, which may lead into an environment that is about to be made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocm_wheels.core import errors, tables
from rocm_wheels.models import project_names
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import estimates
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.request import PLANNED_TESTS, PlannedTest, TargetSet, WheelsRequest

StepKind = Literal[
    "install-rocm",
    "install-tools",
    "probe-targets",
    "check-cache",
    "configure",
    "build",
    "develop",
    "repair",
    "fat",
    "split",
    "variant",
    "test-smoke",
    "test-torch",
]
StepVerdict = Literal["run", "skip", "known later", "left out"]
COMPILING_KINDS: frozenset[StepKind] = frozenset({"build", "develop"})
PACKAGING_KINDS: frozenset[StepKind] = frozenset({"repair", "fat", "split", "variant"})
TEST_KINDS: frozenset[StepKind] = frozenset({"test-smoke", "test-torch"})
_KINDS_OF_TESTS: Mapping[PlannedTest, StepKind] = {"smoke": "test-smoke", "torch": "test-torch"}
DEVICE_INPUT, NEEDS_GPU = "device", "a GPU"  # an input of tests, and what it is where they need one
# kinds of which one that was done for more inputs serves for fewer: what is installed for others stays
KINDS_SERVING_FEWER: frozenset[StepKind] = frozenset({"install-tools"})


@dataclass(frozen=True)
class KnownAfter:
    """An input that comes out of a step which is yet to run."""

    step: str

    def __str__(self) -> str:
        return f"known after {self.step}"


StepInput = str | KnownAfter


@dataclass(frozen=True)
class BuildCell:
    """One configuration of a run: the ABI tag of a Python (``cp313t``), and the name of a target set."""

    tag: str
    target_set: str = ""

    @property
    def suffix(self) -> str:
        """How the configuration is spelled in the ids of steps."""
        return f"{self.tag}-{self.target_set}" if self.target_set else self.tag


@dataclass(frozen=True)
class Step:
    """One step. ``after``: steps that must have succeeded; ``behind``: steps that must only have ended,
    because they work in the same tree or environment.

    ``delivers``: its files go to the output folder; of other steps they stay in the work directory.
    ``brought``: it runs only to bring the wheel that is there to where it is wanted. ``command`` is what
    the step itself starts, ready for a shell; ``environment`` are the variables that it changes (``None``:
    removed). ``why`` says why it runs, or why that is not known yet.
    """

    id: str
    kind: StepKind
    cell: BuildCell
    project: str | None = None
    after: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    inputs: Mapping[str, StepInput] = field(default_factory=dict)
    command: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    verdict: StepVerdict = "known later"
    why: str = ""
    brought: bool = False
    delivers: bool = False
    estimate: estimates.Estimate | None = None

    @property
    def fingerprint(self) -> str | None:
        """A digest of the inputs; ``None`` while one of them is not known."""
        inputs = self.known_inputs
        return fingerprint_inputs(inputs) if len(inputs) == len(self.inputs) else None

    @property
    def known_inputs(self) -> dict[str, str]:
        """The inputs that are known already."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, str)}

    @property
    def may_run(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.verdict in ("run", "known later")

    @property
    def needs_gpu(self) -> bool:
        """Whether it can be done on a machine with a GPU alone."""
        return self.inputs.get(DEVICE_INPUT) == NEEDS_GPU

    @property
    def waits_for(self) -> KnownAfter | None:
        """The first step that an input comes from, if there is one."""
        return next((value for value in self.inputs.values() if isinstance(value, KnownAfter)), None)


@dataclass(frozen=True)
class BuiltAgainst:
    """A wheel that steps are built against and none of them builds. ``source``: an option, or ``installed``.

    ``python``: the ABI tag of the Python that it is for; ``place``: the file, or the folder of packages;
    ``targets``: those that it has code for, by spaces.
    """

    project: str
    python: str
    version: str
    source: str
    place: str
    content: str
    targets: str = ""


@dataclass(frozen=True)
class Plan:
    """All steps of a run, in an order in which they could run one by one."""

    steps: Mapping[str, Step]
    targets: tuple[str, ...]
    against: tuple[BuiltAgainst, ...] = ()

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps.values())

    def find_step(self, name: str) -> Step:
        """Return a step. Raises UsageError for an id that the plan does not have."""
        if name not in self.steps:
            raise errors.UsageError(
                f"the plan has no step {name}{tables.suggest_name(name, self.steps)}",
                tip=f"its steps: {', '.join(self.steps)}",
            )
        return self.steps[name]


def fingerprint_inputs(inputs: Mapping[str, str]) -> str:
    """Return a digest of inputs by name: 16 hexadecimal digits."""
    text = json.dumps(dict(inputs), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


PROBE_STEP = "probe-targets"
CACHE_STEP = "check-cache"


@dataclass(frozen=True)
class StepGraph:
    """The bare steps by id, in an order in which they could run; ``sets``: the target sets by name."""

    steps: Mapping[str, Step]
    sets: Mapping[str, TargetSet]

    def output_folders(self, step: Step, output: Path) -> tuple[Path, ...]:
        """Return the folders that people find a step's wheel in: one for each target set that it is of."""
        names = [step.cell.target_set] if step.cell.target_set in self.sets else list(self.sets)
        return tuple(output / name for name in names)

    def find_last_packaging_step(self, build: Step) -> Step:
        """Return the last step of those that package a built wheel."""
        last = build
        for step in self.steps.values():
            if step.after == (last.id,) and step.kind in PACKAGING_KINDS:
                last = step
        return last


def build_step_id(project: str, cell: BuildCell) -> str:
    """Return the id of the step that builds a project's wheel."""
    return f"build-{project}-{cell.suffix}"


def develop_step_id(project: str, cell: BuildCell, *, debug: bool) -> str:
    """Return the id of the step that compiles a project in its tree, of which debug builds have their own."""
    return f"develop-{project}-{cell.suffix}{'-debug' if debug else ''}"


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
        for project in facts.projects if request.develop else ():
            name = develop_step_id(project.name, BuildCell(tag), debug=request.is_debug(project.name))
            add(Step(name, "develop", BuildCell(tag, next(iter(sets))), project.name, after=before[tag]))
    if request.develop:
        return StepGraph(steps, sets)
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
                    for packaging_step in _make_packaging_steps(step, request.packaging):
                        add(packaging_step)  # before the next build, which may take hours, or fail
    for name in sets:
        for tag in tags:
            wheel_builds = [steps[step] for step in builds.list_builds(BuildCell(tag, name))]
            for step in _make_test_steps(StepGraph(steps, sets), wheel_builds, BuildCell(tag, name), request):
                add(step)
    return StepGraph(steps, sets)


def _make_test_steps(
    graph: StepGraph, builds: Iterable[Step], cell: BuildCell, request: WheelsRequest
) -> list[Step]:
    """Return the steps that test the wheels of a cell, each after all of them and the tests before it."""
    needed = [f"install-rocm-{cell.tag}"] if request.install_rocm else []
    needed += [graph.find_last_packaging_step(build).id for build in builds]
    steps: list[Step] = []
    for test in PLANNED_TESTS:
        if test in request.tests:
            kind = _KINDS_OF_TESTS[test]
            after = (*needed, *(step.id for step in steps))
            steps.append(Step(f"{kind}-{cell.suffix}", kind, cell, after=after))
    return steps


def list_packaging_kinds(project: Project, packaging: project_names.PackagingMode) -> tuple[StepKind, ...]:
    """Return what becomes of a built wheel, in order: every one is repaired, then packaged as asked.

    A torch alone can carry ROCm; what is built against it finds it loaded.
    """
    if packaging == "fat" and project.checks.rocm_init is not None:
        return ("repair", "fat")
    if packaging == "split" and project.has_device_code:
        return ("repair", "split")
    if packaging == "variant":
        return ("repair", "variant")
    return ("repair",)


def _make_packaging_steps(build: Step, packaging: project_names.PackagingMode) -> list[Step]:
    """Return the steps that package a wheel, each after the one before.

    The last delivers what people install. A variant has its plain wheel beside it, for installers that do not
    know variants, so both are delivered.
    """
    kinds = list_packaging_kinds(load_project(str(build.project)), packaging)
    steps, needed = [], build.id
    for kind in kinds:
        delivers = kind == kinds[-1] or kinds[-1] == "variant"
        name = f"{kind}-{build.project}-{build.cell.suffix}"
        steps.append(Step(name, kind, build.cell, build.project, after=(needed,), delivers=delivers))
        needed = name
    return steps


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

    def list_builds(self, cell: BuildCell) -> list[str]:
        """Return the steps that build the wheels of a cell, those that it shares included."""
        return [build_step_id(name, self._find_build_cell(name, cell)) for name in self._projects]

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

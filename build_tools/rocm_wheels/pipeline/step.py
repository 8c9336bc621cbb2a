"""Steps of a plan: plain values, to be printed, kept in a file and compared; what they wait for.

An input that an earlier step has yet to produce is never guessed: whoever asks for it raises ``NotYet``. A
step is settled once all its inputs are known: then it has a fingerprint, and it is said whether it runs and
why.

What steps wait for is decided by what was asked, whatever was done before. A plan is of one Python and one
set of targets, so that each source tree is built once in it; what need not wait for another step may run
beside it. The ids of steps name Python and set, but for what is the same for all sets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rocm_wheels.core import errors, tables
from rocm_wheels.models import project_names
from rocm_wheels.models.project import Project
from rocm_wheels.pipeline import estimates
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.request import PLANNED_TESTS, PlannedTest, WheelsRequest

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
StepVerdict = Literal["run", "skip", "known later"]
COMPILING_KINDS: frozenset[StepKind] = frozenset({"build", "develop"})
PACKAGING_KINDS: frozenset[StepKind] = frozenset({"repair", "fat", "split", "variant"})
TEST_KINDS: frozenset[StepKind] = frozenset({"test-smoke", "test-torch"})
_KINDS_OF_TESTS: Mapping[PlannedTest, StepKind] = {"smoke": "test-smoke", "torch": "test-torch"}
DEVICE_INPUT, NEEDS_GPU = "device", "a GPU"  # an input of tests, and what it is where they need one


class NotYet(Exception):
    """What was asked for comes out of ``step``, which is yet to run."""

    def __init__(self, step: str) -> None:
        super().__init__(f"known after {step}")
        self.step = step


@dataclass(frozen=True)
class Step:
    """One step. ``after``: steps that must have succeeded.

    ``inputs`` are those that are known; ``waits_for`` is the step that the others come out of, if there is
    one. ``delivers``: its files go to the output folder; of other steps they stay in the work directory.
    ``command`` is what the step itself starts, ready for a shell; ``environment`` are the variables that it
    changes (``None``: removed). ``why`` says why it runs, or why that is not known yet.
    """

    id: str
    kind: StepKind
    project: str | None = None
    after: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    waits_for: str | None = None
    command: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    verdict: StepVerdict = "known later"
    why: str = ""
    delivers: bool = False
    estimate: estimates.Estimate | None = None

    @property
    def fingerprint(self) -> str | None:
        """A digest of the inputs: 16 hexadecimal digits; ``None`` while one of them is not known."""
        if self.waits_for is not None:
            return None
        text = json.dumps(dict(self.inputs), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def may_run(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.verdict in ("run", "known later")

    @property
    def needs_gpu(self) -> bool:
        """Whether it can be done on a machine with a GPU alone."""
        return self.inputs.get(DEVICE_INPUT) == NEEDS_GPU


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
    """All steps of a cell, in an order in which they could run one by one.

    ``python`` is the ABI tag of its Python (``cp313t``), ``targets`` are those of its set, as far as known.
    """

    steps: Mapping[str, Step]
    targets: tuple[str, ...]
    against: tuple[BuiltAgainst, ...] = ()
    python: str = ""

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


def probe_step_id(request: WheelsRequest) -> str:
    """Return the id of the step that tries the targets of a cell, whichever Python it is of."""
    return "-".join(filter(None, ("probe-targets", request.target_set)))


def configure_step_id(project: str, facts: Facts) -> str:
    """Return the id of the step that configures a project's tree, before anything is built."""
    return f"configure-{project}-{facts.cell}"


def develop_step_id(project: str, tag: str) -> str:
    """Return the id of the step that compiles a project in its tree."""
    return f"develop-{project}-{tag}"


def make_steps(facts: Facts) -> dict[str, Step]:
    """Return the bare steps of a cell by id, in an order in which they could run."""
    request, tag = facts.request, facts.python.tag
    steps: dict[str, Step] = {}

    def add(step: Step) -> str:
        steps[step.id] = step
        return step.id

    rocm: tuple[str, ...] = ()
    if request.install_rocm:
        rocm = (add(Step(f"install-rocm-{tag}", "install-rocm")),)
    first = [add(Step(f"install-tools-{tag}", "install-tools", after=rocm))]
    if request.develop:
        for project in facts.projects:
            add(Step(develop_step_id(project.name, tag), "develop", project.name, tuple(first)))
        return steps
    first.append(add(Step(probe_step_id(request), "probe-targets", after=rocm)))
    if facts.cache is not None and "HIP_CLANG_LAUNCHER" in facts.cache.launcher_variables(request.platform):
        name = "-".join(filter(None, ("check-cache", request.target_set)))
        first.append(add(Step(name, "check-cache", after=rocm)))
    for project_name in facts.configured_first:
        step_id = configure_step_id(project_name, facts)
        first.append(add(Step(step_id, "configure", project_name, tuple(first))))
    builds: dict[str, str] = {}
    packaged: list[str] = []
    for project in facts.projects:
        # without device code it is the same for all sets: built in the first, it is there for the others
        name = f"build-{project.name}-{facts.cell if project.has_device_code else tag}"
        needed = [builds[other] for other in project.build.after if other in builds]
        last = builds[project.name] = add(Step(name, "build", project.name, (*first, *needed)))
        # packaged before the next build, which may take hours, or fail
        kinds = list_packaging_kinds(project, request.packaging)
        for kind in kinds:
            # a variant has its plain wheel beside it, for installers that do not know variants
            delivers = kind == kinds[-1] or kinds[-1] == "variant"
            name = f"{kind}-{project.name}-{facts.cell}"
            last = add(Step(name, kind, project.name, (last,), delivers=delivers))
        packaged.append(last)
    tests: list[str] = []
    for test in PLANNED_TESTS:
        if test in request.tests:  # with the GPU to itself, and quick ones first
            kind = _KINDS_OF_TESTS[test]
            tests.append(add(Step(f"{kind}-{facts.cell}", kind, after=(*rocm, *packaged, *tests))))
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

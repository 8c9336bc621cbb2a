"""What steps ask of each other and of the facts while they are settled; answers may be known only later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rocm_wheels.core import UsageError
from rocm_wheels.models import Project, choose_targets, load_project, strip_features
from rocm_wheels.pipeline.build_inputs import BuildDependencies, PlannedBuild, plan_build
from rocm_wheels.pipeline.facts import Facts, PythonFacts
from rocm_wheels.pipeline.outputs import NO_EARLIER_RESULT, StepStamp, explain_run
from rocm_wheels.pipeline.provided_wheel_checks import find_usable_triton, refuse_misfits
from rocm_wheels.pipeline.provided_wheels import ProvidedWheel
from rocm_wheels.pipeline.step import KINDS_SERVING_FEWER, BuildCell, KnownAfter, Step, StepInput
from rocm_wheels.pipeline.step_graph import PROBE_STEP, StepGraph
from rocm_wheels.sdk import RocmSdk


class NoTargetsLeft(UsageError):
    """No target of a set compiles: with ``--drop-bad-targets`` the whole set is left out."""


@dataclass(frozen=True)
class Planner:
    """What is known when a step is settled: the facts, and the steps ``settled`` before it."""

    graph: StepGraph
    facts: Facts
    settled: Mapping[str, Step]

    def python_facts(self, step: Step) -> PythonFacts:
        """Return the interpreter of a step."""
        return self.facts.pythons[step.cell.tag]

    def is_current(self, name: str) -> bool:
        """Tell whether what a step makes is there and counts."""
        return name in self.settled and (self.settled[name].verdict == "skip" or self.settled[name].brought)

    def find_targets(self, cell: BuildCell) -> tuple[str, ...] | KnownAfter:
        """Return what is compiled for in a cell; a cell without a set is for the targets of all sets."""
        names = [cell.target_set] if cell.target_set in self.graph.sets else list(self.graph.sets)
        targets: dict[str, None] = {}
        for name in names:
            set_targets = self._find_set_targets(name, cell.tag)
            if isinstance(set_targets, KnownAfter):
                return set_targets
            targets.update(dict.fromkeys(set_targets))
        if not targets:
            raise NoTargetsLeft(f"nothing compiles for {cell.target_set or 'any target'}")
        return tuple(targets)

    def _find_set_targets(self, name: str, tag: str) -> tuple[str, ...] | KnownAfter:
        requested = self.requested_targets(name, tag)
        if isinstance(requested, KnownAfter):
            return requested
        ready = self.facts.pythons[tag].ready
        if ready is not None and not self.facts.request.unlisted_targets:
            refuse_missing_targets(requested, ready.sdk)
        if self.facts.request.packaging == "variant":
            from rocm_wheels.variants import choose_targets as named_targets
            from rocm_wheels.variants import parse_target_ids

            named_targets("--packaging variant: the build", parse_target_ids(requested))
        if not self.facts.request.drop_bad_targets:
            return requested
        if not self.is_current(PROBE_STEP):
            return KnownAfter(PROBE_STEP)
        bad = self.facts.done[PROBE_STEP].stamp.facts["faults"]
        return tuple(target for target in requested if bad.get(target) is None)

    def requested_targets(self, name: str, tag: str) -> tuple[str, ...] | KnownAfter:
        """Return the targets of a set as they are asked for, bad ones included."""
        targets, ready = self.graph.sets[name].targets, self.facts.pythons[tag].ready
        if targets is not None:
            return targets
        if ready is None:
            return KnownAfter(f"install-rocm-{tag}")
        return choose_targets(None, None, ready.sdk.targets).targets

    def list_requested_targets(self, tag: str) -> tuple[str, ...] | KnownAfter:
        """Return the targets of all sets as they are asked for, bad ones included."""
        requested: dict[str, None] = {}
        for name in self.graph.sets:
            set_targets = self.requested_targets(name, tag)
            if isinstance(set_targets, KnownAfter):
                return set_targets
            requested.update(dict.fromkeys(set_targets))
        return tuple(requested)

    def rocm_input(self, step: Step) -> StepInput:
        """Return what tells the installed ROCm packages apart."""
        ready = self.python_facts(step).ready
        return KnownAfter(f"install-rocm-{step.cell.tag}") if ready is None else ready.content

    def plan_step_build(self, step: Step) -> PlannedBuild | KnownAfter:
        """Return the settled build of a step, or the first step that it waits for.

        To configure a tree, nothing that this run builds is waited for.
        """
        ready, project = self.python_facts(step).ready, load_project(str(step.project))
        targets = self.find_targets(step.cell)
        known_targets = () if isinstance(targets, KnownAfter) else targets
        refuse_misfits(self.facts, [(project, step.cell.tag, known_targets)])
        tools = f"install-tools-{step.cell.tag}"
        if ready is None:
            return KnownAfter(f"install-rocm-{step.cell.tag}")
        if isinstance(targets, KnownAfter):
            return targets
        if not self.is_current(tools):
            return KnownAfter(tools)
        triton, why_not = find_usable_triton(self.facts, step.cell.tag)
        wheels: dict[str, str] = {}
        for other in project.build.after:
            if not self.facts.builds_project(other):
                provided = triton if other == "triton" else self.python_facts(step).provided.get(other)
                if provided is not None:
                    wheels[f"wheel of {other}"] = provided.content
                continue
            if step.kind == "configure":
                continue
            needed = self.find_build_step(step, other)
            if not self.is_current(needed):
                return KnownAfter(needed)
            wheels[f"wheel of {other}"] = str(self.facts.done[needed].stamp.facts["content"])
        dependencies = BuildDependencies(
            triton=self._triton_requirement(step, project, triton),
            without_triton=why_not,
            wheels=wheels,
            versions={
                pin.project: self._known_wheel_version(step, pin.project) for pin in project.build.pins
            },
            packages=self.facts.done[tools].stamp.facts["packages"].get(project.name, {}),
        )
        return plan_build(project, self.facts, ready, targets, dependencies)

    def find_build_step(self, step: Step, other: str) -> str:
        """Return the step that builds a project which a step is built against."""
        needed = {name: self.graph.steps[name] for name in step.after}
        return next(
            n for n, candidate in needed.items() if candidate.kind == "build" and candidate.project == other
        )

    def find_wheel_version(self, step: Step, other: str) -> StepInput:
        """Return the version of the wheel that a step is built against, as soon as it is known."""
        if self.facts.builds_project(other) and not self.is_current(self.find_build_step(step, other)):
            return KnownAfter(self.find_build_step(step, other))
        if not self.facts.builds_project(other) and other not in self.python_facts(step).provided:
            return KnownAfter(f"install-rocm-{step.cell.tag}")
        return self._known_wheel_version(step, other)

    def _known_wheel_version(self, step: Step, other: str) -> str:
        if self.facts.builds_project(other):
            return str(self.facts.done[self.find_build_step(step, other)].stamp.facts["version"])
        return self.python_facts(step).provided[other].version

    def _triton_requirement(self, step: Step, project: Project, provided: ProvidedWheel | None) -> str | None:
        """Return the requirement on triton: built in this run, given or installed."""
        if "triton" not in project.build.after:
            return None
        if self.facts.builds_project("triton") and step.kind == "configure":
            return f"{load_project('triton').distribution}==0"  # not built yet; no wheel comes of this
        if self.facts.builds_project("triton"):
            version = self._known_wheel_version(step, "triton")
        elif provided is not None:
            version = provided.version
        else:
            return None
        return f"{load_project('triton').distribution}=={version}"


def refuse_missing_targets(targets: Sequence[str], sdk: RocmSdk) -> None:
    """Refuse targets that the installed ROCm packages have no device libraries for."""
    missing = [target for target in targets if strip_features(target) not in sdk.targets]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} is not among the targets of the installed ROCm "
            f"{sdk.version}: {', '.join(sdk.targets)}",
            tip=f"install its packages (--install-rocm --rocm-extras device-{strip_features(missing[0])}),"
            " or compile without kernels of ROCm's libraries: --allow-unlisted-targets",
        )


def decide_verdict(planner: Planner, step: Step, inputs: Mapping[str, StepInput], command: str = "") -> Step:
    """Return a step with its verdict, from its inputs as far as they are known and what it did last."""
    step = replace(step, inputs=inputs, command=command)
    done = planner.facts.done.get(step.id)
    if done is None:
        return replace(step, verdict="run", why=NO_EARLIER_RESULT)
    last_stamp, known_inputs = replace(make_comparable_stamp(step, done.stamp), outputs=()), step.known_inputs
    why = explain_run(last_stamp, known_inputs) or done.fault  # its outputs were looked at with the facts
    if why:
        return replace(step, verdict="run", why=why)
    if step.fingerprint is None:
        return replace(step, verdict="known later", why=str(step.waits_for))
    return replace(step, verdict="skip", why="up to date")


def make_comparable_stamp(step: Step, stamp: StepStamp) -> StepStamp:
    """Return a stamp with those of its inputs that a step, as far as it is known, is compared with."""
    if step.fingerprint is not None and step.kind not in KINDS_SERVING_FEWER:
        return stamp
    known_inputs = step.known_inputs
    return replace(
        stamp, inputs={name: value for name, value in stamp.inputs.items() if name in known_inputs}
    )

"""What steps ask of each other and of the facts while they are settled; answers may be known only later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocm_wheels.errors import UsageError
from rocm_wheels.model.gfx import base_target, choose_targets, parse_targets
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.gather import Facts, PythonFacts
from rocm_wheels.pipeline.facts.provided import Provided
from rocm_wheels.pipeline.plan.building import Beside, PlannedBuild, plan_build
from rocm_wheels.pipeline.plan.fitting import refuse_misfits, usable_triton
from rocm_wheels.pipeline.plan.graph import PROBE, Graph
from rocm_wheels.pipeline.plan.step import Cell, Input, KnownAfter, Step
from rocm_wheels.sdk.ask import RocmSdk
from rocm_wheels.variants.targets import choose_targets as named_targets
from rocm_wheels.variants.targets import held_ids


class NothingLeft(UsageError):
    """No target of a set compiles: with ``--drop-bad-targets`` the whole set is left out."""


@dataclass(frozen=True)
class Planner:
    """What is known when a step is settled: the facts, and the steps ``settled`` before it."""

    graph: Graph
    facts: Facts
    settled: Mapping[str, Step]

    def python(self, step: Step) -> PythonFacts:
        """Return the interpreter of a step."""
        return self.facts.pythons[step.cell.tag]

    def is_current(self, name: str) -> bool:
        """Tell whether what a step makes is there and counts."""
        return name in self.settled and (self.settled[name].verdict == "skip" or self.settled[name].brought)

    def targets(self, cell: Cell) -> tuple[str, ...] | KnownAfter:
        """Return what is compiled for in a cell; a cell without a set is for the targets of all sets."""
        names = [cell.target_set] if cell.target_set in self.graph.sets else list(self.graph.sets)
        found: dict[str, None] = {}
        for name in names:
            one = self._targets_of(name, cell.tag)
            if isinstance(one, KnownAfter):
                return one
            found.update(dict.fromkeys(one))
        if not found:
            raise NothingLeft(f"nothing compiles for {cell.target_set or 'any target'}")
        return tuple(found)

    def _targets_of(self, name: str, tag: str) -> tuple[str, ...] | KnownAfter:
        wanted = self.asked_targets(name, tag)
        if isinstance(wanted, KnownAfter):
            return wanted
        ready = self.facts.pythons[tag].ready
        if ready is not None and not self.facts.request.unlisted_targets:
            refuse_missing(wanted, ready.sdk)
        if self.facts.request.packaging == "variant":
            named_targets("--packaging variant: the build", held_ids(wanted))
        if not self.facts.request.drop_bad_targets:
            return wanted
        if not self.is_current(PROBE):
            return KnownAfter(PROBE)
        bad = self.facts.done[PROBE].stamp.facts["faults"]
        return tuple(target for target in wanted if bad.get(target) is None)

    def asked_targets(self, name: str, tag: str) -> tuple[str, ...] | KnownAfter:
        """Return the targets of a set as they are asked for, bad ones included."""
        request, ready = self.facts.request, self.facts.pythons[tag].ready
        given = self.graph.sets[name].targets
        if given is not None:
            return parse_targets(given)
        if ready is None and not request.targets_variable:
            return KnownAfter(f"install-rocm-{tag}")
        return choose_targets(None, request.targets_variable, ready.sdk.targets if ready else ()).targets

    def rocm(self, step: Step) -> Input:
        """Return what tells the installed ROCm packages apart."""
        ready = self.python(step).ready
        return KnownAfter(f"install-rocm-{step.cell.tag}") if ready is None else ready.content

    def planned_build(self, step: Step) -> PlannedBuild | KnownAfter:
        """Return the settled build of a step, or the first step that it waits for.

        To configure a tree, nothing that this run builds is waited for.
        """
        ready, project = self.python(step).ready, load_project(str(step.project))
        targets = self.targets(step.cell)
        known = () if isinstance(targets, KnownAfter) else targets
        refuse_misfits(self.facts, [(project, step.cell.tag, known)])
        tools = f"install-tools-{step.cell.tag}"
        if ready is None:
            return KnownAfter(f"install-rocm-{step.cell.tag}")
        if isinstance(targets, KnownAfter):
            return targets
        if not self.is_current(tools):
            return KnownAfter(tools)
        triton, why_not = usable_triton(self.facts, step.cell.tag)
        wheels: dict[str, str] = {}
        for other in project.build.after:
            if not self.facts.builds(other):
                provided = triton if other == "triton" else self.python(step).provided.get(other)
                if provided is not None:
                    wheels[f"wheel of {other}"] = provided.content
                continue
            if step.kind == "configure":
                continue
            needed = self.needed_build(step, other)
            if not self.is_current(needed):
                return KnownAfter(needed)
            wheels[f"wheel of {other}"] = str(self.facts.done[needed].stamp.facts["content"])
        beside = Beside(
            triton=self._triton(step, project, triton),
            without_triton=why_not,
            wheels=wheels,
            versions={pin.project: self._version(step, pin.project) for pin in project.build.pins},
            packages=self.facts.done[tools].stamp.facts["packages"].get(project.name, {}),
        )
        return plan_build(project, self.facts, ready, targets, beside)

    def needed_build(self, step: Step, other: str) -> str:
        """Return the step that builds a project which a step is built against."""
        needed = {name: self.graph.steps[name] for name in step.after}
        return next(n for n, one in needed.items() if one.kind == "build" and one.project == other)

    def version_of(self, step: Step, other: str) -> Input:
        """Return the version of the wheel that a step is built against, as soon as it is known."""
        if self.facts.builds(other) and not self.is_current(self.needed_build(step, other)):
            return KnownAfter(self.needed_build(step, other))
        if not self.facts.builds(other) and other not in self.python(step).provided:
            return KnownAfter(f"install-rocm-{step.cell.tag}")
        return self._version(step, other)

    def _version(self, step: Step, other: str) -> str:
        if self.facts.builds(other):
            return str(self.facts.done[self.needed_build(step, other)].stamp.facts["version"])
        return self.python(step).provided[other].version

    def _triton(self, step: Step, project: Project, provided: Provided | None) -> str | None:
        """Return the requirement on triton: built in this run, given or installed."""
        if "triton" not in project.build.after:
            return None
        if self.facts.builds("triton") and step.kind == "configure":
            return f"{load_project('triton').distribution}==0"  # not built yet; no wheel comes of this
        if self.facts.builds("triton"):
            version = self._version(step, "triton")
        elif provided is not None:
            version = provided.version
        else:
            return None
        return f"{load_project('triton').distribution}=={version}"


def refuse_missing(targets: Sequence[str], sdk: RocmSdk) -> None:
    """Refuse targets that the installed ROCm packages have no device libraries for."""
    missing = [target for target in targets if base_target(target) not in sdk.targets]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} is not among the targets of the installed ROCm "
            f"{sdk.version}: {', '.join(sdk.targets)}",
            tip=f"install its packages (--install-rocm --rocm-extras device-{base_target(missing[0])}),"
            " or compile without kernels of ROCm's libraries: --allow-unlisted-targets",
        )

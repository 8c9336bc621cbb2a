"""One step of a plan, done here: what ``run-step`` does, on a laptop, in a cluster job and in CI alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.facts.gather import Facts, gather
from rocm_wheels.pipeline.hipified import refuse_stale
from rocm_wheels.pipeline.locked import LockedBuild
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.graph import make_graph
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.settle import settle
from rocm_wheels.pipeline.plan.step import SERVES_FEWER, Step
from rocm_wheels.pipeline.record.writing import RunRecord
from rocm_wheels.pipeline.request import select
from rocm_wheels.pipeline.stamps import Stamp, changed
from rocm_wheels.pipeline.steps.table import code_of
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.shell import shell_line
from rocm_wheels.workspace import WAIT, Workspace, exclusive, own_program

_EVERYTHING = "everything else"


def run_step_line(plan: Path, step: str) -> str:
    """Return the line that runs a step: the same wherever it runs."""
    return shell_line(["rocm-wheels", "run-step", step, "--plan", plan])


def run_step_command(plan: Path, step: str) -> list[str]:
    """Return the same as a program and its arguments."""
    return [*own_program(), "run-step", step, "--plan", str(plan)]


@contextmanager
def holding(workspace: Workspace, step: str) -> Iterator[None]:
    """Hold a step: nobody else does it meanwhile. What a killed holder had started is ended first."""
    with exclusive(workspace.steps / ".locks" / step, what=f"step {step}", tip=WAIT):
        yield


def perform(
    file: PlanFile,
    path: Path,
    name: str,
    *,
    record: RunRecord,
    env: Mapping[str, str],
    jobs: int | None = None,
) -> bool:
    """Do a step, unless it is current; tell whether nothing had to be made.

    Raises UsageError when a step that it needs has not been done, or when what it works on is not
    what the plan was made of, and what the step itself raises.
    """
    step = file.plan.step(name)
    workspace = Workspace(file.request.work)
    with holding(workspace, name):
        facts = look(file, step, env)
        planner = Planner(make_graph(facts), facts, _needed(file, path, step, facts))
        settled = settle(planner, name)
        _compare(step, settled)
        if settled.verdict == "skip":
            return True
        return bool(code_of(step.kind)(Turn(planner, settled, record, jobs)))


def look(file: PlanFile, step: Step, env: Mapping[str, str]) -> Facts:
    """Look up what one step needs, and no more."""
    request, projects = file.request, select(file.request)
    own = [] if step.project is None else [step.project]
    if step.kind == "install-tools":
        own = [project.name for project in projects]
    if step.kind == "build" and step.project is not None:
        refuse_stale(load_project(step.project), request.sources[step.project], env)
    return gather(
        request,
        projects,
        env,
        _locked(file),
        trees=own,
        identified=own if step.kind in ("build", "configure") else [],
        only=step.cell.tag,
        installed=step.kind != "install-rocm",
    )


def _locked(file: PlanFile) -> LockedBuild | None:
    if file.lock is None:
        return None
    from rocm_wheels.sources.lock.file import lock_digest
    from rocm_wheels.sources.lock.follow import open_lock

    path, digest = file.lock
    lock = open_lock(path, file.request.platform).lock
    if lock_digest(lock) != digest:
        raise SourceError(
            f"{path} is not the lock that the plan was made under",
            tip="make the plan again, or put the lock back",
        )
    return LockedBuild(path, digest, lock, file.identities, begun=True)


def _needed(file: PlanFile, path: Path, step: Step, facts: Facts) -> dict[str, Step]:
    """Return the steps that a step needs. Raises UsageError for those that were not done as planned."""
    found: dict[str, Step] = {}
    for name in step.after:
        needed = file.plan.steps[name]
        fault = _not_made(needed, facts) if needed.kind == "install-rocm" else _undone(needed, facts)
        if fault:
            raise UsageError(
                f"{step.id} needs {name}, {fault}", tip=f"run it first: {run_step_line(path, name)}"
            )
        found[name] = replace(needed, verdict="skip")
    if "probe-targets" in file.plan.steps.keys() - found.keys() and "probe-targets" in facts.done:
        found["probe-targets"] = replace(file.plan.steps["probe-targets"], verdict="skip")
    return found


def _not_made(needed: Step, facts: Facts) -> str:
    """Say why an environment is not the one that was planned. Somebody's own was asked what it has."""
    why = facts.pythons[needed.cell.tag].why_install
    return f"which is yet to make its environment ({why})" if why else ""


def _undone(needed: Step, facts: Facts) -> str:
    done = facts.done.get(needed.id)
    if done is None:
        return "which was not done yet"
    if done.fault:
        return f"but {done.fault}"
    differing = differences(needed, done.stamp.inputs)
    return f"but {differing[0]} since" if differing else ""


def _compare(planned: Step, now: Step) -> None:
    """Raise UsageError when an input that the plan knew is another one now."""
    known = {name: str(value) for name, value in now.inputs.items()}
    if differing := differences(planned, known):
        said = "".join(f"\n  {line}" for line in differing)
        raise UsageError(
            f"{planned.id} is not what was planned:{said}",
            tip="make the plan again, where the step is to run",
        )


def differences(planned: Step, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each input that a plan knew of a step and that is another one among ``inputs``."""
    known = {n: v for n, v in planned.inputs.items() if isinstance(v, str) and n != _EVERYTHING}
    then = Stamp(planned.id, known, (), {})
    whole = planned.fingerprint is not None and planned.kind not in SERVES_FEWER
    return changed(then, inputs if whole else {name: inputs[name] for name in known if name in inputs})

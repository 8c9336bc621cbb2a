"""One step of a plan, done here: what ``run-step`` does, on a laptop, in a cluster job and in CI alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.facts.gather import Facts, gather_facts
from rocm_wheels.pipeline.hipified import refuse_stale_source
from rocm_wheels.pipeline.locked import LockedBuild
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.graph import make_step_graph
from rocm_wheels.pipeline.plan.planner import Planner
from rocm_wheels.pipeline.plan.settle import settle_step
from rocm_wheels.pipeline.plan.step import KINDS_SERVING_FEWER, Step
from rocm_wheels.pipeline.record.writing import RunRecord
from rocm_wheels.pipeline.request import select_projects
from rocm_wheels.pipeline.stamps import StepStamp, describe_changes
from rocm_wheels.pipeline.steps.table import load_step_code
from rocm_wheels.pipeline.steps.turn import StepRun
from rocm_wheels.shell import format_command
from rocm_wheels.workspace import WAIT_TIP, Workspace, lock_folder, get_own_command

_REMAINING_INPUTS = "everything else"


def run_step_line(plan: Path, step: str) -> str:
    """Return the line that runs a step: the same wherever it runs."""
    return format_command(["rocm-wheels", "run-step", step, "--plan", plan])


def run_step_command(plan: Path, step: str) -> list[str]:
    """Return the same as a program and its arguments."""
    return [*get_own_command(), "run-step", step, "--plan", str(plan)]


@contextmanager
def hold_step(workspace: Workspace, step: str) -> Iterator[None]:
    """Hold a step: nobody else does it meanwhile. What a killed holder had started is ended first."""
    with lock_folder(workspace.steps / ".locks" / step, purpose=f"step {step}", tip=WAIT_TIP):
        yield


def perform_step(
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
    step = file.plan.find_step(name)
    workspace = Workspace(file.request.work)
    with hold_step(workspace, name):
        facts = look_up_facts(file, step, env)
        planner = Planner(make_step_graph(facts), facts, _require_needed_steps(file, path, step, facts))
        settled = settle_step(planner, name)
        _refuse_changed_inputs(step, settled)
        if settled.verdict == "skip":
            return True
        return bool(load_step_code(step.kind)(StepRun(planner, settled, record, jobs)))


def look_up_facts(file: PlanFile, step: Step, env: Mapping[str, str]) -> Facts:
    """Look up what one step needs, and no more."""
    request, projects = file.request, select_projects(file.request)
    tree_names = [] if step.project is None else [step.project]
    if step.kind == "install-tools":
        tree_names = [project.name for project in projects]
    if step.kind == "build" and step.project is not None:
        refuse_stale_source(load_project(step.project), request.sources[step.project], env)
    return gather_facts(
        request,
        projects,
        env,
        _open_locked_build(file),
        trees=tree_names,
        identified=tree_names if step.kind in ("build", "configure") else [],
        only=step.cell.tag,
        installed=step.kind != "install-rocm",
    )


def _open_locked_build(file: PlanFile) -> LockedBuild | None:
    if file.lock is None:
        return None
    from rocm_wheels.sources.lock.file import digest_lock
    from rocm_wheels.sources.lock.follow import open_lock

    path, digest = file.lock
    lock = open_lock(path, file.request.platform).lock
    if digest_lock(lock) != digest:
        raise SourceError(
            f"{path} is not the lock that the plan was made under",
            tip="make the plan again, or put the lock back",
        )
    return LockedBuild(path, digest, lock, file.identities, begun=True)


def _require_needed_steps(file: PlanFile, path: Path, step: Step, facts: Facts) -> dict[str, Step]:
    """Return the steps that a step needs. Raises UsageError for those that were not done as planned."""
    needed_steps: dict[str, Step] = {}
    for name in step.after:
        needed = file.plan.steps[name]
        fault = (
            _why_environment_missing(needed, facts)
            if needed.kind == "install-rocm"
            else _why_step_missing(needed, facts)
        )
        if fault:
            raise UsageError(
                f"{step.id} needs {name}, {fault}", tip=f"run it first: {run_step_line(path, name)}"
            )
        needed_steps[name] = replace(needed, verdict="skip")
    if "probe-targets" in file.plan.steps.keys() - needed_steps.keys() and "probe-targets" in facts.done:
        needed_steps["probe-targets"] = replace(file.plan.steps["probe-targets"], verdict="skip")
    return needed_steps


def _why_environment_missing(needed: Step, facts: Facts) -> str:
    """Say why an environment is not the one that was planned. Somebody's own was asked what it has."""
    why = facts.pythons[needed.cell.tag].why_install
    return f"which is yet to make its environment ({why})" if why else ""


def _why_step_missing(needed: Step, facts: Facts) -> str:
    done = facts.done.get(needed.id)
    if done is None:
        return "which was not done yet"
    if done.fault:
        return f"but {done.fault}"
    differing = compare_with_plan(needed, done.stamp.inputs)
    return f"but {differing[0]} since" if differing else ""


def _refuse_changed_inputs(planned: Step, now: Step) -> None:
    """Raise UsageError when an input that the plan knew is another one now."""
    current_inputs = {name: str(value) for name, value in now.inputs.items()}
    if differing := compare_with_plan(planned, current_inputs):
        listing = "".join(f"\n  {line}" for line in differing)
        raise UsageError(
            f"{planned.id} is not what was planned:{listing}",
            tip="make the plan again, where the step is to run",
        )


def compare_with_plan(planned: Step, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each input that a plan knew of a step and that is another one among ``inputs``."""
    planned_inputs = {
        n: v for n, v in planned.inputs.items() if isinstance(v, str) and n != _REMAINING_INPUTS
    }
    planned_stamp = StepStamp(planned.id, planned_inputs, (), {})
    whole = planned.fingerprint is not None and planned.kind not in KINDS_SERVING_FEWER
    return describe_changes(
        planned_stamp, inputs if whole else {name: inputs[name] for name in planned_inputs if name in inputs}
    )

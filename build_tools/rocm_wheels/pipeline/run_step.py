"""Run one step of a plan here: what ``run-step`` does, on a laptop, in a cluster job and in CI alike.

A step is run within the record of a run, or with a record of its own. Where the record is, and how a
step ended, a run and the process of a step tell each other by variables and by a result file.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from rocm_wheels import __version__
from rocm_wheels.core import environment_numbers, errors, files, process, shell, tables
from rocm_wheels.core.installation import get_own_command
from rocm_wheels.core.log import log_note
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.project import load_project
from rocm_wheels.pipeline import estimates, outputs, run_record, source_checks, status, step_kinds, step_run
from rocm_wheels.pipeline.facts import Facts, gather_facts, gather_trees
from rocm_wheels.pipeline.machine import MachineResources, count_compile_jobs, measure_machine
from rocm_wheels.pipeline.plan import PlanFile, clean_environment, settle_step
from rocm_wheels.pipeline.planner import Planner, make_comparable_stamp
from rocm_wheels.pipeline.request import select_projects
from rocm_wheels.pipeline.step import COMPILING_KINDS, Step
from rocm_wheels.sdk import build_environment

RECORD_VARIABLE = "ROCM_WHEELS_RECORD"
ADDRESS_VARIABLES = {"index_url": "ROCM_WHEELS_INDEX_URL", "find_links": "ROCM_WHEELS_FIND_LINKS"}

ExecutionState = Literal["done", "skipped", "failed", "interrupted", "killed", "not begun"]
KEPT_OUTPUT_LINES = 60  # of what a step prints are kept: an error is at its end
_ERROR_PREFIX = re.compile(r"error: |::error::")  # the second on GitHub, where it is one line


def make_step_variables(record: Path, sdk: build_environment.EnvironmentSpec) -> dict[str, str]:
    """Return the variables by which a run tells the process of a step where its record is, and the whole
    addresses of packages, which are not in the plan when they hold a password.
    """
    addresses = {variable: getattr(sdk, name) for name, variable in ADDRESS_VARIABLES.items()}
    return {RECORD_VARIABLE: str(record), **{name: url for name, url in addresses.items() if url}}


def judge_step_end(
    step: Step, code: int, result: Mapping[str, object], log_file: Path
) -> tuple[ExecutionState, errors.RocmWheelsError | None]:
    """Say how a step ended, from the exit code of its process and what that said itself."""
    if not code:
        return "done", None
    if code < 0:
        tip = "run the same command again; it continues where it stopped"
        return "killed", errors.BuildError(
            f"{step.id} was killed by signal {-code} (log: {log_file})", tip=tip
        )
    error, step_tip = errors.get_error_class(code), result.get("tip")
    fallback = (
        "was interrupted"
        if error is errors.InterruptedRunError
        else f"ended with exit code {code}; its output is above"
    )
    failure = error(
        str(result.get("message") or f"{step.id} {fallback}"), tip=None if step_tip is None else str(step_tip)
    )
    return ("interrupted" if isinstance(failure, errors.InterruptedRunError) else "failed"), failure


def result_path(folder: Path, step: str) -> Path:
    """Return the file in which the process of a step says how it ended."""
    return folder / f"{step}.result.json"


def read_result(folder: Path, step: str, last_lines: Iterable[str] = ()) -> Mapping[str, object]:
    """Read what the process of a step said of its end; where it could not (a full disk), what it printed."""
    try:
        result = json.loads(result_path(folder, step).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        result = {}
    result_path(folder, step).unlink(missing_ok=True)
    result = result if isinstance(result, dict) else {}
    return (
        result
        if result.keys() & {"message", "again"}
        else {**_find_printed_error(list(last_lines)), **result}
    )


def measured_cpu_seconds(result: Mapping[str, object], sampled: float) -> float:
    """Return the processors' time of a step: as its process counted it, else as far as it was sampled."""
    counted = result.get("cpu_seconds")
    return round(max(sampled, counted if isinstance(counted, (int, float)) else 0.0), 2)


def _find_printed_error(lines: list[str]) -> Mapping[str, object]:
    """Return the error that a process has printed last: its message, and its tip."""
    first = max((number for number, line in enumerate(lines) if _ERROR_PREFIX.match(line)), default=None)
    if first is None:
        return {}
    text = _ERROR_PREFIX.sub("", "\n".join(lines[first:]).replace("%0A", "\n"), count=1)
    message, _, tip = text.partition("\ntip: ")
    return {"message": message, "tip": tip or None}


def run_step_line(plan: Path, step: str) -> str:
    """Return the line that runs a step: the same wherever it runs."""
    return shell.format_command(["rocm-wheels", "run-step", step, "--plan", plan])


def run_step_command(plan: Path, step: str, *, forked: bool = False) -> list[str]:
    """Return the same as a program and its arguments; ``forked``: as the words of a process of ours."""
    own = ["rocm-wheels"] if forked else get_own_command()
    return [*own, "run-step", step, "--plan", str(plan)]


@contextmanager
def hold_step(workspace: Workspace, step: str) -> Iterator[None]:
    """Hold a step: nobody else does it meanwhile. What a killed holder had started is ended first."""
    with files.lock_folder(workspace.steps / ".locks" / step, purpose=f"step {step}", tip=files.WAIT_TIP):
        yield


def perform_step(
    file: PlanFile,
    path: Path,
    name: str,
    *,
    record: run_record.RunRecord,
    env: Mapping[str, str],
    jobs: int | None = None,
) -> bool:
    """Do a step, unless it is current; tell whether it was.

    Raises UsageError when a step that it needs has not been done, or when what it works on is not
    what the plan was made of, and what the step itself raises.
    """
    step = file.plan.find_step(name)
    workspace = Workspace(file.request.work)
    with hold_step(workspace, name):
        facts = look_up_facts(file, step, env)
        planner = Planner(file.plan.steps, facts, _require_needed_steps(file, path, step, facts))
        settled = settle_step(planner, name)
        if differing := _compare_with_plan(step, settled.inputs):
            listing = "".join(f"\n  {line}" for line in differing)
            raise errors.UsageError(
                f"inputs of {name} changed since it was planned:{listing}",
                tip="make the plan again, where the step is to run",
            )
        if settled.verdict == "skip":
            return True
        step_kinds.STEP_KINDS[step.kind].run(step_run.StepRun(planner, settled, record, jobs))
        return False


def look_up_facts(file: PlanFile, step: Step, env: Mapping[str, str]) -> Facts:
    """Look up what one step needs, and no more."""
    request, projects = file.request, select_projects(file.request)
    own = [] if step.project is None else [load_project(step.project)]
    if step.kind == "install-tools":
        own = projects
    if step.kind in COMPILING_KINDS:
        source_checks.refuse_stale_source(own[0], request.sources[own[0].name], env)
    locked, identified = _open_locked_build(file), step.kind in (*COMPILING_KINDS, "configure")
    trees = gather_trees(request, own, env, locked, identified=identified)
    installed = step.kind != "install-rocm"
    return gather_facts(request, projects, env, locked, trees=trees, installed=installed, kind=step.kind)


def _open_locked_build(file: PlanFile) -> source_checks.LockedBuild | None:
    if file.lock is None:
        return None
    from rocm_wheels.sources.lock import digest_lock, open_lock

    path, digest = file.lock
    lock = open_lock(path, file.request.platform).lock
    if digest_lock(lock) != digest:
        raise errors.SourceError(
            f"{path} is not the lock that the plan was made under",
            tip="make the plan again, or put the lock back",
        )
    return source_checks.LockedBuild(path, digest, lock, file.identities, begun=True)


def _require_needed_steps(file: PlanFile, path: Path, step: Step, facts: Facts) -> dict[str, Step]:
    """Return the steps that a step needs. Raises UsageError for those that were not done as planned."""
    needed_steps: dict[str, Step] = {}
    for name in step.after:
        needed = file.plan.steps[name]
        if needed.kind == "install-rocm":  # of somebody's own environment it was asked what it has
            why = facts.python.why_install
            fault = f"which has not created its environment ({why})" if why else ""
        else:
            fault = _why_step_missing(needed, facts)
        if fault:
            raise errors.UsageError(
                f"{step.id} needs {name}, {fault}", tip=f"run it first: {run_step_line(path, name)}"
            )
        needed_steps[name] = replace(needed, verdict="skip")
    return needed_steps


def _why_step_missing(needed: Step, facts: Facts) -> str:
    done = facts.done.get(needed.id)
    if done is None:
        return "which has not run yet"
    if done.fault:
        return f"but {done.fault}"
    differing = _compare_with_plan(needed, done.stamp.inputs)
    return f"whose inputs changed since: {differing[0]}" if differing else ""


def _compare_with_plan(planned: Step, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each input that a plan knew of a step and that is another one among ``inputs``."""
    stamp = make_comparable_stamp(planned, outputs.StepStamp(planned.id, inputs, (), {}))
    planned_stamp = outputs.StepStamp(planned.id, planned.inputs, (), {})
    return outputs.describe_changes(planned_stamp, stamp.inputs)


_ESTIMATE_FIELDS = ("seconds", "disk", "memory", "source")


def record_run_begin(
    record: run_record.RunRecord,
    file: PlanFile,
    path: Path,
    machine: MachineResources,
    *,
    command: str,
    steps: int,
) -> None:
    """Record that this process begins a run of ``steps`` steps of the plan at ``path``."""
    pid, (lock, digest) = os.getpid(), file.lock or (None, None)
    record.write(
        "run-begun",
        run=record.folder.name,
        version=__version__,
        command=command,
        pid=pid,
        began=process.get_process_start(pid),
        host=platform.node(),
        platform=file.request.platform,
        cores=machine.cores,
        memory=machine.memory,
        plan=path,
        steps=steps,
        lock=lock,
        lock_digest=digest,
        targets=list(file.plan.targets),
        pythons=[file.plan.python],
        against=[asdict(wheel) for wheel in file.plan.against],
        output=file.request.output,
    )


def record_step_begin(
    record: run_record.RunRecord, step: Step, plan: Path, *, log: Path, pid: int, jobs: int | None
) -> None:
    """Record that the process ``pid`` does a step of the plan at ``plan`` now, with ``jobs`` compilers."""
    estimate = step.estimate
    record.write(
        "step-begun",
        step=step.id,
        why=step.why,
        after=list(step.after),
        command=run_step_line(plan, step.id),
        environment=dict(step.environment),
        fingerprint=step.fingerprint,
        log=log,
        pid=pid,
        began=process.get_process_start(pid),
        jobs=jobs,
        estimate=None if estimate is None else {name: getattr(estimate, name) for name in _ESTIMATE_FIELDS},
    )


def record_step_end(
    record: run_record.RunRecord,
    step: Step,
    outcome: str,
    failure: errors.RocmWheelsError | None,
    **figures: float,
) -> None:
    """Record how a step ended. ``figures``: its seconds, exit_code, and what a process took (peak_memory in
    bytes, cpu_seconds).
    """
    message, tip = (None, None) if failure is None else (failure.message, failure.tip)
    about = {"outcome": outcome, "message": message, "tip": tip, "fingerprint": step.fingerprint}
    record.write("step-ended", step=step.id, **about, **figures)


def run_step_in_record(record: Path, file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> bool:
    """Do a step of a run that has a record; the run itself tells of begin and end. See ``perform_step``."""
    clean = clean_environment(file.request, env, quietly=True)
    jobs = environment_numbers.read_number(env, "MAX_JOBS")
    return perform_step(file, path, name, record=run_record.RunRecord(record), env=clean, jobs=jobs)


def count_step_jobs(file: PlanFile, step: Step, machine: MachineResources, env: Mapping[str, str]) -> int:
    """Return how many compilers a step may run: as many as its user says, else as memory and cores allow."""
    requested_jobs = environment_numbers.read_number(env, "MAX_JOBS")
    if requested_jobs is not None or step.kind not in COMPILING_KINDS:
        return count_compile_jobs(machine, None, requested_jobs)
    history = estimates.read_history(Workspace(file.request.work).runs)
    expected = estimates.estimate_step(str(step.project), max(len(file.plan.targets), 1), machine, history)
    return count_compile_jobs(machine, expected.memory_per_job or None, None)


def run_single_step(file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> None:
    """Do a step as a run of its own: both are this process. Raises what the step raises."""
    step, machine, pid = file.plan.find_step(name), measure_machine(env), os.getpid()
    jobs = count_step_jobs(file, step, machine, env)
    record = run_record.create_run_record(Workspace(file.request.work).runs, datetime.now(timezone.utc))
    begin = time.monotonic()
    record_run_begin(record, file, path, machine, command=run_step_line(path, name), steps=1)
    record_step_begin(record, step, path, log=record.folder / f"{name}.log", pid=pid, jobs=jobs)
    usage, outcome, code = status.ResourceUsage(), "failed", 1
    failure: errors.RocmWheelsError | None = None
    usage.start(pid)
    try:
        with usage:
            up_to_date = run_step_in_record(record.folder, file, path, name, {**env, "MAX_JOBS": str(jobs)})
        outcome, code = "done", 0
        duration = tables.format_duration(time.monotonic() - begin)
        log_note(f"{name}: {'up to date' if up_to_date else 'done'} ({duration})")
    except errors.RocmWheelsError as error:
        failure, code = error, error.exit_code
        raise
    except KeyboardInterrupt:
        outcome, code = "interrupted", 130
        raise
    finally:
        seconds = time.monotonic() - begin
        record_step_end(
            record,
            step,
            outcome,
            failure,
            seconds=round(seconds, 3),
            peak_memory=usage.peak,
            cpu_seconds=round(usage.cpu_seconds, 2),
            exit_code=code,
        )
        record.write("run-ended", outcome=outcome, seconds=round(seconds, 3), exit_code=code)

"""``run-step`` by hand or by another scheduler: a step with a run record of its own, or within a run's."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.machine import MachineResources, count_compile_jobs, measure_machine, read_max_jobs
from rocm_wheels.pipeline.estimates import estimate_step, read_history
from rocm_wheels.pipeline.execute import events
from rocm_wheels.pipeline.execute.one import perform_step, run_step_line
from rocm_wheels.pipeline.execute.usage import ResourceUsage
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.planning import clean_environment
from rocm_wheels.pipeline.plan.step import Step
from rocm_wheels.pipeline.record.writing import RunRecord, create_run_record
from rocm_wheels.pipeline.summary import format_duration
from rocm_wheels.workspace import Workspace


def run_step_in_record(record: Path, file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> bool:
    """Do a step of a run that has a record; the run itself tells of begin and end. See ``perform_step``."""
    clean = clean_environment(file.request, env, quietly=True)
    return perform_step(file, path, name, record=RunRecord(record), env=clean, jobs=read_max_jobs(env))


def count_step_jobs(file: PlanFile, step: Step, machine: MachineResources, env: Mapping[str, str]) -> int:
    """Return how many compilers a step may run: as many as its user says, else as memory and cores allow."""
    requested_jobs = read_max_jobs(env)
    if requested_jobs is not None or step.kind != "build":
        return count_compile_jobs(machine, None, requested_jobs)
    history = read_history(Workspace(file.request.work).runs)
    expected = estimate_step(str(step.project), max(len(file.plan.targets), 1), machine, history)
    return count_compile_jobs(machine, expected.memory_per_job or None, None)


def _slurm_job_id(env: Mapping[str, str]) -> str | None:
    """Return the id of the job that this is part of, and how often that was started again."""
    job = env.get("SLURM_JOB_ID")
    return None if job is None else f"{job}.{env.get('SLURM_RESTART_COUNT', '0')}"


def run_single_step(file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> None:
    """Do a step as a run of its own. Raises what the step raises."""
    step = file.plan.find_step(name)
    machine = measure_machine(env)
    jobs = count_step_jobs(file, step, machine, env)
    record = create_run_record(Workspace(file.request.work).runs, datetime.now(timezone.utc))
    begin = time.monotonic()
    _record_single_begin(record, file, path, step, machine=machine, jobs=jobs, env=env)
    usage, end = ResourceUsage(), _StepEnd("failed", 1)
    usage.start(os.getpid())
    try:
        with usage:
            up_to_date = run_step_in_record(record.folder, file, path, name, {**env, "MAX_JOBS": str(jobs)})
        end = _StepEnd("done", 0)
        log.log_note(
            f"{name}: {'up to date' if up_to_date else 'done'} ({format_duration(time.monotonic() - begin)})"
        )
    except RocmWheelsError as error:
        end = _StepEnd("failed", error.exit_code, error)
        raise
    except KeyboardInterrupt:
        end = _StepEnd("interrupted", 130)
        raise
    finally:
        _record_single_end(record, step, end, usage, time.monotonic() - begin)


@dataclass(frozen=True)
class _StepEnd:
    """How a step alone ended, which is how its run did."""

    outcome: str
    exit_code: int
    failure: RocmWheelsError | None = None


def _record_single_begin(
    record: RunRecord,
    file: PlanFile,
    path: Path,
    step: Step,
    *,
    machine: MachineResources,
    jobs: int,
    env: Mapping[str, str],
) -> None:
    """Record the begin of a run of one step, and of that step: both are this process."""
    events.record_run_begin(
        record,
        file.request,
        machine,
        path,
        command=run_step_line(path, step.id),
        steps=1,
        lock=file.lock,
        targets=file.plan.targets,
        pythons=[step.cell.tag],
        against=[wheel for wheel in file.plan.against if wheel.python == step.cell.tag],
        slurm_job=_slurm_job_id(env),
    )
    output = record.folder / f"{step.id}.log"
    events.record_step_begin(record, step, path, log=output, pid=os.getpid(), jobs=jobs)


def _record_single_end(
    record: RunRecord, step: Step, end: _StepEnd, usage: ResourceUsage, seconds: float
) -> None:
    """Record the end of the step, and of its run."""
    events.record_step_end(
        record,
        step,
        end.outcome,
        end.failure,
        seconds=seconds,
        peak_memory=usage.peak,
        cpu_seconds=round(usage.cpu_seconds, 2),
        exit_code=end.exit_code,
    )
    record.write("run-ended", outcome=end.outcome, seconds=round(seconds, 3), exit_code=end.exit_code)

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
from rocm_wheels.machine import Machine, compile_jobs, look_at_machine, wanted_jobs
from rocm_wheels.pipeline.estimates import estimate, read_history
from rocm_wheels.pipeline.execute import events
from rocm_wheels.pipeline.execute.one import perform, run_step_line
from rocm_wheels.pipeline.execute.usage import Usage
from rocm_wheels.pipeline.plan.file import PlanFile
from rocm_wheels.pipeline.plan.planning import clean_environment
from rocm_wheels.pipeline.plan.step import Step
from rocm_wheels.pipeline.record.writing import RunRecord, new_run
from rocm_wheels.pipeline.summary import human_time
from rocm_wheels.workspace import Workspace


def run_in(record: Path, file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> bool:
    """Do a step of a run that has a record; the run itself tells of begin and end. See ``perform``."""
    clean = clean_environment(file.request, env, quietly=True)
    return perform(file, path, name, record=RunRecord(record), env=clean, jobs=wanted_jobs(env))


def jobs_alone(file: PlanFile, step: Step, machine: Machine, env: Mapping[str, str]) -> int:
    """Return how many compilers a step may run: as many as its user says, else as memory and cores allow."""
    given = wanted_jobs(env)
    if given is not None or step.kind != "build":
        return compile_jobs(machine, None, given)
    history = read_history(Workspace(file.request.work).runs)
    known = estimate(str(step.project), max(len(file.plan.targets), 1), machine, history)
    return compile_jobs(machine, known.memory_per_job or None, None)


def _slurm_job(env: Mapping[str, str]) -> str | None:
    """Return the id of the job that this is part of, and how often that was started again."""
    job = env.get("SLURM_JOB_ID")
    return None if job is None else f"{job}.{env.get('SLURM_RESTART_COUNT', '0')}"


def run_alone(file: PlanFile, path: Path, name: str, env: Mapping[str, str]) -> None:
    """Do a step as a run of its own. Raises what the step raises."""
    step = file.plan.step(name)
    machine = look_at_machine(env)
    jobs = jobs_alone(file, step, machine, env)
    record = new_run(Workspace(file.request.work).runs, datetime.now(timezone.utc))
    begin = time.monotonic()
    _record_begin(record, file, path, step, machine=machine, jobs=jobs, env=env)
    usage, ended = Usage(), _End("failed", 1)
    usage.started(os.getpid())
    try:
        with usage:
            again = run_in(record.folder, file, path, name, {**env, "MAX_JOBS": str(jobs)})
        ended = _End("done", 0)
        log.note(f"{name}: {'up to date' if again else 'done'} ({human_time(time.monotonic() - begin)})")
    except RocmWheelsError as known:
        ended = _End("failed", known.exit_code, known)
        raise
    except KeyboardInterrupt:
        ended = _End("interrupted", 130)
        raise
    finally:
        _record_end(record, step, ended, usage, time.monotonic() - begin)


@dataclass(frozen=True)
class _End:
    """How a step alone ended, which is how its run did."""

    outcome: str
    exit_code: int
    failure: RocmWheelsError | None = None


def _record_begin(
    record: RunRecord,
    file: PlanFile,
    path: Path,
    step: Step,
    *,
    machine: Machine,
    jobs: int,
    env: Mapping[str, str],
) -> None:
    """Record the begin of a run of one step, and of that step: both are this process."""
    events.run_begun(
        record,
        file.request,
        machine,
        path,
        command=run_step_line(path, step.id),
        steps=1,
        lock=file.lock,
        targets=file.plan.targets,
        pythons=[step.cell.tag],
        against=[one for one in file.plan.against if one.python == step.cell.tag],
        slurm_job=_slurm_job(env),
    )
    output = record.folder / f"{step.id}.log"
    events.step_begun(record, step, path, log=output, pid=os.getpid(), jobs=jobs)


def _record_end(record: RunRecord, step: Step, ended: _End, usage: Usage, seconds: float) -> None:
    """Record the end of the step, and of its run."""
    events.step_ended(
        record,
        step,
        ended.outcome,
        ended.failure,
        seconds=seconds,
        peak_memory=usage.peak,
        cpu_seconds=round(usage.cpu_seconds, 2),
        exit_code=ended.exit_code,
    )
    record.write("run-ended", outcome=ended.outcome, seconds=round(seconds, 3), exit_code=ended.exit_code)

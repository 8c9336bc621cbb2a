"""``run-step`` by hand or by another scheduler: a step with a run record of its own, or within a run's."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import __version__, groups, log
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.machine import Machine, compile_jobs, look_at_machine, wanted_jobs
from rocm_wheels.pipeline.estimates import estimate, read_history
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
    begin, pid = time.monotonic(), os.getpid()
    record.write(
        "run-begun",
        run=record.folder.name,
        version=__version__,
        command=run_step_line(path, name),
        pid=pid,
        began=groups.began(pid),
        host=platform.node(),
        slurm_job=_slurm_job(env),
        platform=file.request.platform,
        cores=machine.cores,
        memory=machine.memory,
        plan=path,
        steps=1,
        lock=None if file.lock is None else file.lock[0],
        lock_digest=None if file.lock is None else file.lock[1],
        targets=list(file.plan.targets),
        pythons=[step.cell.tag],
        against=[asdict(one) for one in file.plan.against if one.python == step.cell.tag],
        output=file.request.output,
    )
    record.write(
        "step-begun",
        step=name,
        why=step.why,
        after=list(step.after),
        command=run_step_line(path, name),
        environment=dict(step.environment),
        fingerprint=step.fingerprint,
        log=record.folder / f"{name}.log",
        pid=pid,
        began=groups.began(pid),
        jobs=jobs,
        estimate=None,
    )
    usage = Usage()
    usage.started(pid)
    outcome, code, failure = "failed", 1, None
    try:
        with usage:
            again = run_in(record.folder, file, path, name, {**env, "MAX_JOBS": str(jobs)})
        outcome, code = "done", 0
        log.note(f"{name}: {'up to date' if again else 'done'} ({human_time(time.monotonic() - begin)})")
    except RocmWheelsError as known:
        code, failure = known.exit_code, known
        raise
    except KeyboardInterrupt:
        outcome, code = "interrupted", 130
        raise
    finally:
        seconds = round(time.monotonic() - begin, 3)
        record.write(
            "step-ended",
            step=name,
            outcome=outcome,
            seconds=seconds,
            peak_memory=usage.peak,
            cpu_seconds=round(usage.cpu_seconds, 2),
            exit_code=code,
            message=None if failure is None else failure.message,
            tip=None if failure is None else failure.tip,
            fingerprint=step.fingerprint,
        )
        record.write("run-ended", outcome=outcome, seconds=seconds, exit_code=code)

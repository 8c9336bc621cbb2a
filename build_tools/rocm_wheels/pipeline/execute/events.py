"""What the record of a run is told of its begin and of its steps, be they many or one alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rocm_wheels import __version__, groups
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.machine import MachineResources
from rocm_wheels.pipeline.execute.one import run_step_line
from rocm_wheels.pipeline.plan.step import BuiltAgainst, Step
from rocm_wheels.pipeline.record.writing import RunRecord
from rocm_wheels.pipeline.request import WheelsRequest

_ESTIMATE_FIELDS = ("seconds", "disk", "memory", "source")


def record_run_begin(
    record: RunRecord,
    request: WheelsRequest,
    machine: MachineResources,
    plan: Path,
    *,
    command: str,
    steps: int,
    lock: tuple[Path, str] | None,
    targets: Sequence[str],
    pythons: Sequence[str],
    against: Sequence[BuiltAgainst],
    **location: object,
) -> None:
    """Record that this process begins a run of ``steps`` steps of the plan at ``plan``.

    ``lock``: path and SHA-256 of the lock that it is under; ``pythons``: ABI tags; ``location``: more about the
    place that it runs at, besides the host.
    """
    pid = os.getpid()
    record.write(
        "run-begun",
        run=record.folder.name,
        version=__version__,
        command=command,
        pid=pid,
        began=groups.get_process_start(pid),
        host=platform.node(),
        **location,
        platform=request.platform,
        cores=machine.cores,
        memory=machine.memory,
        plan=plan,
        steps=steps,
        lock=None if lock is None else lock[0],
        lock_digest=None if lock is None else lock[1],
        targets=list(targets),
        pythons=list(pythons),
        against=[asdict(wheel) for wheel in against],
        output=request.output,
    )


def record_step_begin(
    record: RunRecord, step: Step, plan: Path, *, log: Path, pid: int, jobs: int | None
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
        began=groups.get_process_start(pid),
        jobs=jobs,
        estimate=None if estimate is None else {name: getattr(estimate, name) for name in _ESTIMATE_FIELDS},
    )


def record_step_end(
    record: RunRecord,
    step: Step,
    outcome: str,
    failure: RocmWheelsError | None,
    *,
    seconds: float,
    peak_memory: int,
    cpu_seconds: float,
    exit_code: int,
) -> None:
    """Record how a step ended that a process did."""
    record.write(
        "step-ended",
        step=step.id,
        outcome=outcome,
        seconds=round(seconds, 3),
        peak_memory=peak_memory,
        cpu_seconds=cpu_seconds,
        exit_code=exit_code,
        message=None if failure is None else failure.message,
        tip=None if failure is None else failure.tip,
        fingerprint=step.fingerprint,
    )

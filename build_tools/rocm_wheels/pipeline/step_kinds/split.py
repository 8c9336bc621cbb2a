"""``split``: make a host wheel and device wheels of a repaired wheel with device code.

Device wheels are for a target each, or with ``--group family`` for a family of them. A wheel without device
code stays as it is: it is its own host wheel.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rocm_wheels.core import copy_atomically, format_count
from rocm_wheels.pipeline.packaging import PackagedFiles, run_packaging, settle_packaging
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import KnownAfter, Step, StepInput
from rocm_wheels.pipeline.step_run import StepRun

SPLIT_VERSION = "2"


def settle_split(planner: Planner, step: Step) -> Step:
    """Return the step with the ROCm whose device packages are required, and what device wheels are for."""
    ready = planner.python_facts(step).ready
    inputs: dict[str, StepInput] = {
        "ROCm": KnownAfter(f"install-rocm-{step.cell.tag}") if ready is None else ready.sdk.version,
        "group": planner.facts.request.split_group,
        "step": SPLIT_VERSION,
    }
    return settle_packaging(planner, step, inputs, "rocm-wheels wheel split")


def run_split(step_run: StepRun) -> bool:
    """Split the wheel. Raises PackageError for code that no archive can hold."""
    return run_packaging(step_run, partial(_split_wheel, step_run))


def _split_wheel(step_run: StepRun, wheel: Path, folder: Path) -> PackagedFiles:
    from rocm_wheels.package import SplitRequest, plan_split, write_split
    from rocm_wheels.wheels import copy_statement, read_wheel_code

    if not any(read_wheel_code(wheel).values()):
        copy_atomically(wheel, folder / wheel.name)
        copy_statement(wheel, folder / wheel.name)
        return PackagedFiles(folder / wheel.name, note="no device code to split off")
    request = SplitRequest(wheel, step_run.ready.sdk.version, step_run.facts.request.split_group)
    with ExitStack() as stack:
        plan = plan_split(request, stack)
        written = write_split(plan, folder)
    step_run.append_log("device wheels", [path.name for path in written.devices.values()])
    return PackagedFiles(
        written.host,
        parts=tuple(written.devices.values()),
        note=f"{format_count(len(written.devices), 'device wheel')}: {', '.join(written.devices)}",
        rewritten=True,
    )

"""``split``: make a host wheel and device wheels of a repaired wheel with device code.

Device wheels are for a target each; ``wheel split`` makes them for families, too. A wheel without device
code stays as it is: it is its own host wheel.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rocm_wheels.core import files, tables
from rocm_wheels.pipeline import packaging
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun

SPLIT_VERSION = "2"


def settle_split(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the ROCm whose device packages are required, and what device wheels are for."""
    inputs["step"] = SPLIT_VERSION
    inputs["ROCm"] = planner.ready.sdk.version
    return packaging.settle_packaging(planner, step, inputs, "rocm-wheels wheel split")


def run_split(step_run: StepRun) -> None:
    """Split the wheel. Raises PackageError for code that no archive can hold."""
    packaging.run_packaging(step_run, partial(_split_wheel, step_run))


def _split_wheel(step_run: StepRun, wheel: Path, folder: Path) -> packaging.PackagedFiles:
    from rocm_wheels.package import split
    from rocm_wheels.wheels import statement, wheel_code

    if not any(wheel_code.read_device_code(wheel).code.values()):
        files.copy_atomically(wheel, folder / wheel.name)
        statement.copy_statement(wheel, folder / wheel.name)
        return packaging.PackagedFiles(folder / wheel.name, note="no device code to split off")
    request = split.SplitRequest(wheel, step_run.ready.sdk.version)
    with ExitStack() as stack:
        plan = split.plan_split(request, stack)
        written = split.write_split(plan, folder)
    step_run.append_log("device wheels", [path.name for path in written.devices.values()])
    return packaging.PackagedFiles(
        written.host,
        others=(*written.devices.values(), written.selector),
        note=f"{tables.format_count(len(written.devices), 'device wheel')}: {', '.join(written.devices)}",
        rewritten=True,
    )

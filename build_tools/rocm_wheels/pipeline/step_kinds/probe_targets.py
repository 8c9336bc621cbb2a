"""``probe-targets``: targets that do not compile are reported before hours of compiling."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rocm_wheels.compile import sdk_tree
from rocm_wheels.core import errors, log
from rocm_wheels.pipeline import machine
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun


def settle_probe(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the targets that are compiled for."""
    inputs["step"] = sdk_tree.PROBE_VERSION
    inputs["targets"] = ",".join(planner.requested_targets())
    inputs["ROCm packages"] = planner.ready.content
    return decide_verdict(planner, step, inputs, command="hipcc, once for each target")


def run_probe(step_run: StepRun) -> None:
    """Compile a small kernel for each target. BuildError names those that fail."""
    facts, ready = step_run.facts, step_run.ready
    targets = step_run.known_inputs["targets"].split(",")
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=step_run.make_scratch_folder()) as folder:
        faults = sdk_tree.probe_targets(
            ready.sdk_tree,
            targets,
            Path(folder),
            facts.env,
            platform=facts.request.platform,
            jobs=machine.count_compile_jobs(facts.machine, None, step_run.jobs),
        )
    step_run.record_event("probe", targets=faults)
    if bad := {target: fault for target, fault in faults.items() if fault is not None}:
        listing = "".join(f"\n  {target}: {fault}" for target, fault in bad.items())
        raise errors.BuildError(
            f"ROCm {ready.sdk.version} does not compile for {', '.join(bad)}:{listing}",
            tip="name other targets with --gfx",
        )
    log.log_note(f"compiles for {', '.join(targets)}")
    step_run.record_success()

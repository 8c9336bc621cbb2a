"""``check-cache``: a compiler cache that cannot be trusted with device code ends the run early."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from rocm_wheels.compile import cache_trust
from rocm_wheels.core import errors, log
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun


def settle_check_cache(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the program of the cache, its settings and a target to compile for."""
    cache = planner.facts.cache
    assert cache is not None
    inputs["program"] = str(cache.program)
    inputs["version"] = planner.facts.cache_version
    inputs["settings"] = ", ".join(planner.facts.cache_settings.splitlines())
    inputs["step"] = cache_trust.CACHE_TEST_VERSION
    inputs["target"] = planner.requested_targets()[0]
    inputs["ROCm packages"] = planner.ready.content
    return decide_verdict(planner, step, inputs, command=f"{cache.kind} before hipcc, on a file of its own")


def run_cache_check(step_run: StepRun) -> None:
    """Try whether the compiler cache can be trusted with device code. BuildError when it cannot."""
    cache, ready = step_run.facts.cache, step_run.ready
    assert cache is not None
    with tempfile.TemporaryDirectory(prefix=".cache-", dir=step_run.make_scratch_folder()) as folder:
        verdict = cache_trust.check_cache_trust(
            cache, ready.sdk_tree, step_run.known_inputs["target"], Path(folder), step_run.facts.env
        )
    step_run.record_event(
        "cache-test",
        kind=cache.kind,
        trusted=verdict.trusted,
        checks=[asdict(check) for check in verdict.checks],
    )
    if not verdict.trusted:
        failed = "".join(
            f"\n  {check.what}: expected {check.expected}, seen {check.seen}"
            for check in verdict.checks
            if not check.passed
        )
        raise errors.BuildError(
            f"{cache.kind} cannot be trusted with device code:{failed}",
            tip="build without it, or cache what is compiled for the host alone: --set-env"
            f" pytorch:CMAKE_CXX_COMPILER_LAUNCHER={cache.kind}",
        )
    log.log_note(f"{cache.kind} can be trusted with device code")
    step_run.record_success(trusted=True)

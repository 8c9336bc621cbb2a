"""``probe-targets`` and ``check-cache``: targets that do not compile, and caches that cannot be trusted.

Both are found out before hours of compiling.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from rocm_wheels.compile import check_cache_trust, probe_targets
from rocm_wheels.core import BuildError, count_compile_jobs, log_note, log_warning
from rocm_wheels.pipeline.step_run import StepRun


def run_probe(step_run: StepRun) -> None:
    """Compile a small kernel for each target; BuildError names those that fail, unless they are dropped."""
    facts, ready = step_run.facts, step_run.ready
    targets = step_run.known_inputs["targets"].split(",")
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=_make_scratch_folder(step_run)) as folder:
        faults = probe_targets(
            ready.sdk_tree,
            targets,
            Path(folder),
            facts.env,
            platform=facts.request.platform,
            jobs=count_compile_jobs(facts.machine, None, step_run.jobs),
        )
    bad = {target: fault for target, fault in faults.items() if fault is not None}
    drop = facts.request.drop_bad_targets
    step_run.record_event("probe", targets=faults, dropped=sorted(bad) if drop else [])
    listing = "".join(f"\n  {target}: {fault}" for target, fault in bad.items())
    if bad and (not drop or len(bad) == len(faults)):
        raise BuildError(
            f"ROCm {ready.sdk.version} does not compile for {', '.join(bad)}:{listing}",
            tip="name other targets, or build with --drop-bad-targets, which leaves these out",
        )
    if bad:
        log_warning(f"left out, because ROCm {ready.sdk.version} does not compile for them:{listing}")
    log_note(f"compiles for {', '.join(target for target in targets if target not in bad)}")
    step_run.record_success(faults=faults)


def run_cache_check(step_run: StepRun) -> None:
    """Try whether the compiler cache can be trusted with device code. BuildError when it cannot."""
    cache, ready = step_run.facts.cache, step_run.ready
    assert cache is not None
    with tempfile.TemporaryDirectory(prefix=".cache-", dir=_make_scratch_folder(step_run)) as folder:
        verdict = check_cache_trust(
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
            if check.passed is False
        )
        raise BuildError(
            f"{cache.kind} cannot be trusted with device code:{failed}",
            tip="build with --sccache-no-wrap, which leaves device code alone, or without a compiler cache",
        )
    log_note(f"{cache.kind} can be trusted with device code")
    step_run.record_success(trusted=True)


def _make_scratch_folder(step_run: StepRun) -> Path:
    folder = step_run.facts.workspace.fresh_wheels
    folder.mkdir(parents=True, exist_ok=True)
    return folder

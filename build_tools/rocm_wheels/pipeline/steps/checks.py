"""What is found out before hours of compiling: targets that do not compile, caches that cannot be trusted."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.compile.cache import self_test
from rocm_wheels.compile.probe import probe_targets
from rocm_wheels.errors import BuildError
from rocm_wheels.machine import compile_jobs
from rocm_wheels.pipeline.steps.turn import Turn


def probe(turn: Turn) -> None:
    """Compile a small kernel for each target; BuildError names those that fail, unless they are dropped."""
    facts, ready = turn.facts, turn.ready
    targets = turn.known_inputs["targets"].split(",")
    with tempfile.TemporaryDirectory(prefix=".probe-", dir=_scratch(turn)) as folder:
        faults = probe_targets(
            ready.tree,
            targets,
            Path(folder),
            facts.env,
            platform=facts.request.platform,
            jobs=compile_jobs(facts.machine, None, turn.jobs),
        )
    bad = {target: fault for target, fault in faults.items() if fault is not None}
    drop = facts.request.drop_bad_targets
    turn.event("probe", targets=faults, dropped=sorted(bad) if drop else [])
    said = "".join(f"\n  {target}: {fault}" for target, fault in bad.items())
    if bad and (not drop or len(bad) == len(faults)):
        raise BuildError(
            f"ROCm {ready.sdk.version} does not compile for {', '.join(bad)}:{said}",
            tip="leave them out, or --drop-bad-targets does, and says so in the record",
        )
    if bad:
        log.warn(f"left out, because ROCm {ready.sdk.version} does not compile for them:{said}")
    log.note(f"compiles for {', '.join(target for target in targets if target not in bad)}")
    turn.succeed(faults=faults)


def check_cache(turn: Turn) -> None:
    """Try whether the compiler cache can be trusted with device code. BuildError when it cannot."""
    cache, ready = turn.facts.cache, turn.ready
    assert cache is not None
    with tempfile.TemporaryDirectory(prefix=".cache-", dir=_scratch(turn)) as folder:
        verdict = self_test(cache, ready.tree, turn.known_inputs["target"], Path(folder), turn.facts.env)
    turn.event(
        "cache-test", kind=cache.kind, trusted=verdict.trusted, checks=[asdict(one) for one in verdict.checks]
    )
    if not verdict.trusted:
        failed = "".join(
            f"\n  {one.what}: expected {one.expected}, seen {one.seen}"
            for one in verdict.checks
            if one.passed is False
        )
        raise BuildError(
            f"{cache.kind} cannot be trusted with device code:{failed}",
            tip="--sccache-no-wrap leaves device code alone; or build without a compiler cache",
        )
    log.note(f"{cache.kind} can be trusted with device code")
    turn.succeed(trusted=True)


def _scratch(turn: Turn) -> Path:
    folder = turn.facts.workspace.fresh
    folder.mkdir(parents=True, exist_ok=True)
    return folder

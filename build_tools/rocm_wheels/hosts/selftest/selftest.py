"""Test the torch of one Python: find it, ask it for its devices, run the checks, judge."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.installed.environment import find_interpreter
from rocm_wheels.hosts.selftest.cases import FIRST_CASE, CASE_GROUPS, LISTING_CASE, list_cases, choose_devices
from rocm_wheels.hosts.selftest.outcome import SelfTestCase, SelfTestOutcome, SelfTestReport
from rocm_wheels.hosts.selftest.running import run_cases

CASE_SECONDS = (
    300.0  # seconds a check: compiling kernels when they are first used takes minutes on some cards
)
NO_KERNEL_MESSAGES = ("invalid device function", "no kernel image", "kernel image is invalid")
_GPU_CASE = SelfTestCase("devices", "a GPU")


@dataclass(frozen=True)
class SelfTestRequest:
    """What is to be tested: groups, devices (``auto``, ``all``, ``cpu`` or torch's name of one).

    ``python`` is None for the running one. ``require_gpu``: no GPU is a failure, even for a CPU build.
    ``limit`` is in seconds, for each check.
    """

    groups: Sequence[str] = CASE_GROUPS
    device: str = "auto"
    python: Path | None = None
    require_gpu: bool = False
    limit: float = CASE_SECONDS


def run_self_test(
    request: SelfTestRequest,
    env: Mapping[str, str],
    *,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
) -> SelfTestReport:
    """Run the checks and return what came of each; a check that fails is no error of this function.

    Raises HostError when torch is not installed or the Python does not start, UsageError for a device that
    torch does not see, and for the CPU alone where a GPU is required.
    """
    if request.require_gpu and request.device == "cpu":
        raise UsageError("a GPU is required, and only the CPU is to be tested", tip="leave out one of them")
    python = Path(sys.executable) if request.python is None else find_interpreter(request.python)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-test-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        within = {**env, **_make_cache_variables(scratch)}
        first_outcomes, facts = inspect_torch(
            python, within, scratch, limit=request.limit, device=request.device
        )
        reported = [
            outcome
            for outcome in first_outcomes
            if outcome.case.group in request.groups or outcome.state != "pass"
        ]
        for outcome in reported:
            done(outcome)
        if any(outcome.state != "pass" for outcome in first_outcomes):
            untested = list_cases(request.groups, ("",))
            reason = f"not tried: {first_outcomes[-1].case} comes first"
            return SelfTestReport(
                str(python),
                facts,
                (),
                (*reported, *(SelfTestOutcome(case, "skip", reason) for case in untested)),
            )
        devices = choose_devices(request.device, facts)
        if (missing := _check_missing_gpu(request, facts, devices)) is not None:
            reported.append(missing)
            done(missing)
        cases = list_cases(request.groups, devices)
        reported += run_cases(cases, python, within, scratch, limit=request.limit, done=done)
    return SelfTestReport(str(python), facts, devices, tuple(reported))


def inspect_torch(
    python: Path, env: Mapping[str, str], scratch: Path, *, limit: float, device: str
) -> tuple[list[SelfTestOutcome], dict[str, object]]:
    """Import torch, then have it list its devices unless only the CPU counts: the outcomes and the facts.

    The first one that fails is the last. Raises HostError when torch is not installed.
    """
    outcomes = run_cases([FIRST_CASE], python, env, scratch, limit=limit)
    if outcomes[0].missing == "torch":
        raise HostError(
            f"torch is not installed in {python}",
            tip="rocm-wheels install; or name the Python that has it: --python .venv/bin/python",
        )
    if outcomes[0].state == "pass" and device != "cpu":
        outcomes += run_cases([LISTING_CASE], python, env, scratch, limit=limit)
    facts = {name: value for outcome in outcomes for name, value in outcome.facts.items() if name != "detail"}
    return outcomes, facts


def _check_missing_gpu(
    request: SelfTestRequest, facts: Mapping[str, object], devices: Sequence[str]
) -> SelfTestOutcome | None:
    """A build for GPUs that sees none does not work, unless only the CPU was asked for."""
    if any(device != "cpu" for device in devices) or facts.get("devices"):
        return None
    kind = str(facts.get("kind"))
    if request.require_gpu:
        return SelfTestOutcome(_GPU_CASE, "fail", f"a GPU is required, and torch ({kind}) sees none")
    if kind != "cpu" and request.device != "cpu":
        message = f"torch is a build for {kind} and sees no GPU; --device cpu tests the CPU alone"
        return SelfTestOutcome(_GPU_CASE, "fail", message)
    return None


def _make_cache_variables(scratch: Path) -> dict[str, str]:
    """Have torch.compile compile, not find what it compiled last time."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }

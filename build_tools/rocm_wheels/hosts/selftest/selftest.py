"""Test the torch of one Python: find it, ask it for its devices, run the checks, judge."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.installed.environment import program_of
from rocm_wheels.hosts.selftest.cases import FIRST, GROUPS, LISTING, cases_of, chosen_devices
from rocm_wheels.hosts.selftest.outcome import Case, Outcome, Report
from rocm_wheels.hosts.selftest.running import run_cases

LIMIT = 300.0  # seconds a check: compiling kernels when they are first used takes minutes on some cards
NO_KERNELS = ("invalid device function", "no kernel image", "kernel image is invalid")
_GPU = Case("devices", "a GPU")


@dataclass(frozen=True)
class Asked:
    """What is to be tested: groups, devices (``auto``, ``all``, ``cpu`` or torch's name of one).

    ``python`` is None for the running one. ``require_gpu``: no GPU is a failure, even for a CPU build.
    ``limit`` is in seconds, for each check.
    """

    groups: Sequence[str] = GROUPS
    device: str = "auto"
    python: Path | None = None
    require_gpu: bool = False
    limit: float = LIMIT


def self_test(
    asked: Asked, env: Mapping[str, str], *, done: Callable[[Outcome], None] = lambda outcome: None
) -> Report:
    """Run the checks and return what came of each; a check that fails is no error of this function.

    Raises HostError when torch is not installed or the Python does not start, UsageError for a device that
    torch does not see, and for the CPU alone where a GPU is required.
    """
    if asked.require_gpu and asked.device == "cpu":
        raise UsageError("a GPU is required, and only the CPU is to be tested", tip="leave out one of them")
    python = Path(sys.executable) if asked.python is None else program_of(asked.python)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-test-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        within = {**env, **_own_caches(scratch)}
        found, facts = look_at_torch(python, within, scratch, limit=asked.limit, device=asked.device)
        shown = [one for one in found if one.case.group in asked.groups or one.state != "pass"]
        for one in shown:
            done(one)
        if any(one.state != "pass" for one in found):
            left = cases_of(asked.groups, ("",))
            reason = f"not tried: {found[-1].case} comes first"
            return Report(str(python), facts, (), (*shown, *(Outcome(case, "skip", reason) for case in left)))
        devices = chosen_devices(asked.device, facts)
        if (missing := _missing_gpu(asked, facts, devices)) is not None:
            shown.append(missing)
            done(missing)
        cases = cases_of(asked.groups, devices)
        shown += run_cases(cases, python, within, scratch, limit=asked.limit, done=done)
    return Report(str(python), facts, devices, tuple(shown))


def look_at_torch(
    python: Path, env: Mapping[str, str], scratch: Path, *, limit: float, device: str
) -> tuple[list[Outcome], dict[str, object]]:
    """Import torch, then have it list its devices unless only the CPU counts: the outcomes and the facts.

    The first one that fails is the last. Raises HostError when torch is not installed.
    """
    found = run_cases([FIRST], python, env, scratch, limit=limit)
    if found[0].missing == "torch":
        raise HostError(
            f"torch is not installed in {python}",
            tip="rocm-wheels install; or name the Python that has it: --python .venv/bin/python",
        )
    if found[0].state == "pass" and device != "cpu":
        found += run_cases([LISTING], python, env, scratch, limit=limit)
    facts = {name: value for one in found for name, value in one.facts.items() if name != "detail"}
    return found, facts


def _missing_gpu(asked: Asked, facts: Mapping[str, object], devices: Sequence[str]) -> Outcome | None:
    """A build for GPUs that sees none does not work, unless only the CPU was asked for."""
    if any(device != "cpu" for device in devices) or facts.get("devices"):
        return None
    kind = str(facts.get("kind"))
    if asked.require_gpu:
        return Outcome(_GPU, "fail", f"a GPU is required, and torch ({kind}) sees none")
    if kind != "cpu" and asked.device != "cpu":
        said = f"torch is a build for {kind} and sees no GPU; --device cpu tests the CPU alone"
        return Outcome(_GPU, "fail", said)
    return None


def _own_caches(scratch: Path) -> dict[str, str]:
    """Have torch.compile compile, not find what it compiled last time."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }

"""Which GPUs are tested: each in a session of pytest of its own, which sees that one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.core import UsageError
from rocm_wheels.gpus import Gpu
from rocm_wheels.models import strip_features

DevicePolicy = Literal["unique", "all", "first", "single"]
DEVICE_POLICIES: tuple[DevicePolicy, ...] = ("unique", "all", "first", "single")
HIP_VARIABLE = "HIP_VISIBLE_DEVICES"
PAIR_VARIABLE = "ROCM_SMOKE_PAIR"
_OPENCL_VARIABLE = "GPU_DEVICE_ORDINAL"


@dataclass(frozen=True)
class GpuSession:
    """One run of pytest: ``half`` of the tests, on the GPU of ``gfx`` that HIP numbers ``index``.

    ``pair`` are two GPUs of this target by HIP's numbers, for what needs two. Without ``gfx``, on the one
    ``device`` that torch names so (``cpu``, ``cuda:1``, ``xpu:0``), or on what is there, or (``hidden``) on
    no GPU at all.
    """

    half: Literal["both", "cpu", "gpu"]
    gfx: str | None = None
    index: int | None = None
    pair: tuple[int, int] | None = None
    numbered: bool = False
    hidden: bool = False
    device: str = ""

    @property
    def label(self) -> str:
        """What is put behind the name of its tests: the target, and the number where several are tested."""
        number = f"#{self.index}" if self.numbered else ""
        return f"{self.gfx}{number}" if self.gfx else ""

    def make_environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with this GPU alone in sight. What ROCR_VISIBLE_DEVICES hides stays hidden."""
        session_env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.hidden:
            session_env[HIP_VARIABLE] = "-1"
        if self.index is None:
            return session_env
        session_env.pop(_OPENCL_VARIABLE, None)
        session_env[HIP_VARIABLE] = str(self.index)
        if self.pair is not None:
            session_env[PAIR_VARIABLE] = ",".join(map(str, self.pair))
        return session_env


def choose_gpus(gpus: Sequence[Gpu], policy: DevicePolicy, targets: Sequence[str] | None) -> list[Gpu]:
    """Return the GPUs to test: the first of each target, all, or the first; of ``targets`` alone, if given.

    ``single`` is the peer's word for the first.

    Only those count that a program may use and HIP has a number for, in HIP's order.
    """
    numbered = [gpu for gpu in gpus if gpu.hip_index is not None and gpu.visible and gpu.gfx]
    ordered = sorted(numbered, key=lambda gpu: gpu.hip_index or 0)
    bases = None if targets is None else {strip_features(target) for target in targets}
    matching = [gpu for gpu in ordered if bases is None or strip_features(str(gpu.gfx)) in bases]
    if policy in ("first", "single"):
        return matching[:1]
    if policy == "unique":
        return list({str(gpu.gfx): gpu for gpu in reversed(matching)}.values())[::-1]
    return matching


def resolve_device_query(
    query: str, policy: DevicePolicy | None, *, together: bool
) -> tuple[DevicePolicy, bool]:
    """Return which GPUs are tested, and whether all of a target at once.

    ``query`` is what the peer calls the first stage: "unique" or "all" of the GPUs; then ``policy`` shows
    tests the first of them (``None``, single) or all. "auto" leaves it to the policy. ``together``: the
    suite's tests need all GPUs of a target.
    """
    if query == "auto":
        return ("all", True) if together and policy != "single" else (policy or "unique", False)
    if policy == "all" or (policy is None and together):
        return ("all", True) if query == "all" else ("unique", False)
    return policy or "single", False


def plan_sessions(chosen: Sequence[Gpu], gpus: Sequence[Gpu], *, hidden: bool = False) -> list[GpuSession]:
    """Return the sessions: the half of the CPU once, then that of the GPU for each; without one, both in one.

    ``hidden``: where none is chosen, none is to be seen.
    """
    if not chosen:
        return [GpuSession("both", hidden=hidden)]
    sessions = [GpuSession("cpu")]
    for gpu in chosen:
        if gpu.hip_index is None or gpu.gfx is None:
            raise UsageError(f"HIP has no number for {gpu.name or 'a GPU'}")
        alike = [other.hip_index for other in chosen if other.gfx == gpu.gfx]
        beside = [
            other.hip_index
            for other in gpus
            if other.gfx == gpu.gfx and other.visible and other.hip_index not in (None, gpu.hip_index)
        ]
        partner = next((number for number in beside if number is not None), None)
        pair = None if partner is None else (gpu.hip_index, partner)
        sessions.append(
            GpuSession("gpu", strip_features(gpu.gfx), gpu.hip_index, pair, numbered=len(alike) > 1)
        )
    return sessions

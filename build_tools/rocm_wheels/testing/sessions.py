"""Which GPUs are tested: each in a session of pytest of its own, which sees that one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.errors import UsageError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.model.gfx import base_target

Policy = Literal["unique", "all", "first", "single"]
POLICIES: tuple[Policy, ...] = ("unique", "all", "first", "single")
HIP = "HIP_VISIBLE_DEVICES"
PAIR = "ROCM_SMOKE_PAIR"
_OF_OPENCL = "GPU_DEVICE_ORDINAL"


@dataclass(frozen=True)
class Session:
    """One run of pytest: ``half`` of the tests, on the GPU of ``gfx`` that HIP numbers ``index``.

    ``pair`` are two GPUs of this target by HIP's numbers, for what needs two. Without ``gfx``, what is there,
    or (``hidden``) no GPU at all.
    """

    half: Literal["both", "cpu", "gpu"]
    gfx: str | None = None
    index: int | None = None
    pair: tuple[int, int] | None = None
    numbered: bool = False
    hidden: bool = False

    @property
    def label(self) -> str:
        """What is put behind the name of its tests: the target, and the number where several are tested."""
        number = f"#{self.index}" if self.numbered else ""
        return f"{self.gfx}{number}" if self.gfx else ""

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with this GPU alone in sight. What ROCR_VISIBLE_DEVICES hides stays hidden."""
        shown = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.hidden:
            shown[HIP] = "-1"
        if self.index is None:
            return shown
        shown.pop(_OF_OPENCL, None)
        shown[HIP] = str(self.index)
        if self.pair is not None:
            shown[PAIR] = ",".join(map(str, self.pair))
        return shown


def chosen_gpus(gpus: Sequence[Gpu], policy: Policy, targets: Sequence[str] | None) -> list[Gpu]:
    """Return the GPUs to test: the first of each target, all, or the first; of ``targets`` alone, if given.

    ``single`` is the peer's word for the first.

    Only those count that a program may use and HIP has a number for, in HIP's order.
    """
    numbered = [gpu for gpu in gpus if gpu.hip_index is not None and gpu.visible and gpu.gfx]
    ordered = sorted(numbered, key=lambda gpu: gpu.hip_index or 0)
    bases = None if targets is None else {base_target(one) for one in targets}
    found = [gpu for gpu in ordered if bases is None or base_target(str(gpu.gfx)) in bases]
    if policy in ("first", "single"):
        return found[:1]
    if policy == "unique":
        return list({str(gpu.gfx): gpu for gpu in reversed(found)}.values())[::-1]
    return found


def query_devices(query: str, policy: Policy | None, *, together: bool) -> tuple[Policy, bool]:
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


def planned_sessions(chosen: Sequence[Gpu], gpus: Sequence[Gpu], *, hidden: bool = False) -> list[Session]:
    """Return the sessions: the half of the CPU once, then that of the GPU for each; without one, both in one.

    ``hidden``: where none is chosen, none is to be seen.
    """
    if not chosen:
        return [Session("both", hidden=hidden)]
    sessions = [Session("cpu")]
    for gpu in chosen:
        if gpu.hip_index is None or gpu.gfx is None:
            raise UsageError(f"HIP has no number for {gpu.name or 'a GPU'}")
        alike = [one.hip_index for one in chosen if one.gfx == gpu.gfx]
        beside = [
            one.hip_index
            for one in gpus
            if one.gfx == gpu.gfx and one.visible and one.hip_index not in (None, gpu.hip_index)
        ]
        partner = next((number for number in beside if number is not None), None)
        pair = None if partner is None else (gpu.hip_index, partner)
        sessions.append(Session("gpu", base_target(gpu.gfx), gpu.hip_index, pair, numbered=len(alike) > 1))
    return sessions

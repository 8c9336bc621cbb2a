"""Choose the GPUs that tests run on, and what of them the tests see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.core import errors, log, shell
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.testing import installed_torch

DevicePolicy = Literal["unique", "all", "single"]
HIP_VARIABLE = "HIP_VISIBLE_DEVICES"
PAIR_VARIABLE = "ROCM_SMOKE_PAIR"
_OPENCL_VARIABLE = "GPU_DEVICE_ORDINAL"


@dataclass(frozen=True)
class GpuPlace:
    """Where tests run: the GPUs that they see are all in ``env``; without a ``gfx`` none is tested."""

    label: str
    gfx: str | None
    env: Mapping[str, str]


def choose_gpus(gpus: Sequence[Gpu], policy: DevicePolicy, targets: Sequence[str] | None) -> list[Gpu]:
    """Return the GPUs to test: the first of each target (``unique``), all, or the first (``single``).

    With ``targets``, of these alone. Only those count that a program may use and HIP has a number
    for, in HIP's order.
    """
    numbered = [gpu for gpu in gpus if gpu.hip_index is not None and gpu.visible and gpu.gfx]
    ordered = sorted(numbered, key=lambda gpu: gpu.hip_index or 0)
    bases = None if targets is None else {strip_features(target) for target in targets}
    matching = [gpu for gpu in ordered if bases is None or strip_features(str(gpu.gfx)) in bases]
    if policy == "single":
        return matching[:1]
    if policy == "unique":
        return list({str(gpu.gfx): gpu for gpu in reversed(matching)}.values())[::-1]
    return matching


def choose_tested_gpus(
    target: installed_torch.TargetPython,
    gpus: Sequence[Gpu],
    policy: DevicePolicy,
    targets: Sequence[str] | None,
    *,
    required: bool = False,
) -> list[Gpu]:
    """Return the GPUs that ``choose_gpus`` does, none of them for a torch that is no build for ROCm.

    Raises ChecksError for none where ``targets`` are named, or one is ``required``.
    """
    chosen = choose_gpus(gpus, policy, targets)
    if chosen and target.kind not in ("rocm", ""):
        named = ", ".join(str(gpu.gfx) for gpu in chosen)
        log.log_warning(f"torch {target.version} is a build for {target.kind}: {named} is not tested")
        chosen = []
    if not chosen and (targets is not None or required):
        of = f" of {', '.join(targets)}" if targets else ""
        unless = "without a family and --require-gpu" if required else "without a family"
        raise errors.ChecksError(
            f"no GPU{of} can be tested here",
            tip=f"`rocm-wheels doctor` lists the GPUs here; {unless}, the CPU is tested",
        )
    return chosen


def list_places(
    chosen: Sequence[Gpu],
    env: Mapping[str, str],
    *,
    together: bool = False,
    gpus: Sequence[Gpu] = (),
    hidden: bool = True,
) -> list[GpuPlace]:
    """Return a place for each chosen GPU, or one for all of a target, which are seen ``together``.

    Without any, the CPU; ``hidden``: no GPU is seen then.

    What ROCR_VISIBLE_DEVICES hides stays hidden. Of the ``gpus`` of the machine one more of the same target
    is named in a variable, for a test that needs two.
    """
    if not chosen:
        return [GpuPlace("cpu", None, {**env, HIP_VARIABLE: "-1"} if hidden else env)]
    base = {name: value for name, value in env.items() if name != _OPENCL_VARIABLE}
    by_target: dict[str, list[tuple[int, Mapping[str, str]]]] = {}
    for gpu in chosen:
        if gpu.hip_index is None or gpu.gfx is None:
            raise errors.UsageError(f"HIP has no number for {gpu.name or 'a GPU'}")
        gpu_env = {**base, HIP_VARIABLE: str(gpu.hip_index)}
        for other in gpus:
            if other.gfx == gpu.gfx and other.visible and other.hip_index not in (None, gpu.hip_index):
                gpu_env.setdefault(PAIR_VARIABLE, f"{gpu.hip_index},{other.hip_index}")
        by_target.setdefault(strip_features(gpu.gfx), []).append((gpu.hip_index, gpu_env))
    places = []
    for gfx, alike in by_target.items():
        if together:
            visible = ",".join(str(number) for number, _ in alike)
            places.append(GpuPlace(gfx, gfx, {**alike[0][1], HIP_VARIABLE: visible}))
        else:
            places += [
                GpuPlace(f"{gfx}-{number}" if alike[1:] else gfx, gfx, gpu_env) for number, gpu_env in alike
            ]
    return places


def refuse_unseen_gpus(chosen: Sequence[Gpu], target: installed_torch.TargetPython) -> None:
    """Raise ChecksError where torch does not see a GPU that is to be tested.

    Without it most tests are not even there, and thousands that need none would pass.
    """
    words = ["rocm-wheels", "doctor", "--python", str(target.python)]
    seen_targets = {strip_features(device) for device in target.devices}
    for gpu in chosen:
        if gpu.gfx is not None and strip_features(gpu.gfx) not in seen_targets:
            raise errors.ChecksError(
                f"torch {target.torch_version} does not see the {gpu.gfx} that is to be tested:"
                f" {', '.join(sorted(seen_targets)) or 'no GPU'} is what it sees",
                tip=f"`{shell.format_command(words)}` says why",
            )

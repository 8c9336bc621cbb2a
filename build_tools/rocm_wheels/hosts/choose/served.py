"""Which of a machine's GPUs a chosen wheel has kernels for, and how to hide the others."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.gpus.names import generic_of
from rocm_wheels.gpus.visible import HIP, ROCR

Served = tuple[tuple[Gpu, bool], ...]


def amd_gpus(hardware: Hardware) -> list[Gpu]:
    """Return the AMD GPUs that programs may use, those of unknown targets too."""
    return [gpu for gpu in hardware.gpus if gpu.vendor == "amd" and gpu.visible]


def served_by(targets: Sequence[str], hardware: Hardware) -> Served:
    """Tell of each GPU whether code for ``targets`` runs on it: for itself, or for its generic target."""
    spelled = {target.replace("-", "_") for target in targets}
    return tuple(
        (gpu, gpu.gfx is not None and not spelled.isdisjoint({gpu.gfx, generic_of(gpu.gfx)}))
        for gpu in amd_gpus(hardware)
    )


def visible_line(served: Served, hardware: Hardware) -> str | None:
    """Return ``HIP_VISIBLE_DEVICES=0,2`` that leaves the GPUs that are served; None when it hides nothing.

    HIP counts the devices that ``ROCR_VISIBLE_DEVICES`` leaves.
    """
    good = [gpu.index for gpu, is_served in served if is_served]
    if len(good) == len(served) or not good or None in good:
        return None
    left = [gpu.index for gpu in hardware.gpus if gpu.index is not None and gpu.hidden_by != ROCR]
    numbers = {index: number for number, index in enumerate(sorted(left))}
    shown = sorted(numbers[index] for index in good if index is not None)
    return f"{HIP}={','.join(map(str, shown))}"

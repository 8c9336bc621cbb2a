"""Which of a machine's GPUs a chosen wheel has kernels for, and how to hide the others."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_wheels.gpus.gpu import Gpu, Hardware
from rocm_wheels.gpus.names import find_generic_target
from rocm_wheels.gpus.visible import HIP_VISIBLE_DEVICES

ServedGpus = tuple[tuple[Gpu, bool], ...]


def list_amd_gpus(hardware: Hardware) -> list[Gpu]:
    """Return the AMD GPUs that programs may use, those of unknown targets too."""
    return [gpu for gpu in hardware.gpus if gpu.vendor == "amd" and gpu.visible]


def find_served_gpus(targets: Sequence[str], hardware: Hardware) -> ServedGpus:
    """Tell of each GPU whether code for ``targets`` runs on it: for itself, or for its generic target."""
    spelled = {target.replace("-", "_") for target in targets}
    return tuple(
        (gpu, gpu.gfx is not None and not spelled.isdisjoint({gpu.gfx, find_generic_target(gpu.gfx)}))
        for gpu in list_amd_gpus(hardware)
    )


def make_visible_line(served: ServedGpus) -> str | None:
    """Return ``HIP_VISIBLE_DEVICES=0,2`` that hides the GPUs without kernels; None when it hides nothing.

    HIP counts the devices that ``ROCR_VISIBLE_DEVICES`` leaves, in the order of that list. Stated GPUs are
    counted as they are stated. One whose target nobody knows is not hidden: it may well be served.
    """
    numbers = {gpu: gpu.index if gpu.hip_index is None else gpu.hip_index for gpu, _ in served}
    served_gpus = [gpu for gpu, is_served in served if is_served]
    visible_gpus = [gpu for gpu, is_served in served if is_served or gpu.gfx is None]
    hidden = [gpu for gpu, _ in served if gpu not in visible_gpus and numbers[gpu] is not None]
    if not served_gpus or not hidden or any(numbers[gpu] is None for gpu in served_gpus):
        return None
    indices = sorted(number for gpu in visible_gpus if (number := numbers[gpu]) is not None)
    return f"{HIP_VISIBLE_DEVICES}={','.join(map(str, indices))}"

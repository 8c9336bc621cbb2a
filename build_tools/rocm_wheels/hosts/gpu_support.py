"""Tell whether code for some targets runs on a GPU, by the rules of the HIP runtime, and hide GPUs without.

Source: LLVM, "User Guide for AMDGPU Backend": target IDs (a feature that is left out runs in either
setting), generic processors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.gpus import HIP_VISIBLE_DEVICES, Gpu, Hardware, find_generic_target
from rocm_wheels.variants import COMPILER_GENERICS
from rocm_wheels.wheels import TargetId

SupportKind = Literal["native", "generic", "portable", "setting", "no"]
_PORTABLE_PROCESSORS = ("amdgcnspirv", "spirv")
_XNACK_ALWAYS_ON = ("gfx125",)


@dataclass(frozen=True)
class KernelSupport:
    """How a GPU is served: ``native`` (code for it), ``generic`` (code for a generic target that it is one
    of), ``portable`` (SPIR-V, compiled at first use), ``setting`` (only with another XNACK or ECC setting
    than this process has), ``no``. ``by`` is the target ID of the code."""

    kind: SupportKind
    by: str = ""

    @property
    def runs(self) -> bool:
        """Tell whether kernels run as things are."""
        return self.kind in ("native", "generic", "portable")

    def describe_support(self, gfx: str) -> str:
        """Say it to people."""
        return {
            "native": f"yes, code for {self.by}",
            "generic": f"yes, by code for the generic target {self.by}",
            "portable": f"yes, by SPIR-V ({self.by}), which is compiled for {gfx} when it is first used",
            "setting": f"only code for {self.by}, which this process's setting does not load",
            "no": "no",
        }[self.kind]


def check_kernel_support(targets: Iterable[str], gfx: str, *, xnack: bool = False) -> KernelSupport:
    """Say how code for ``targets`` (target IDs) serves a GPU; ``xnack`` is the setting of the process.

    Only the very processor counts: code for gfx1100 does not run on gfx1101.
    """
    chip, *features = gfx.replace("_", "-").split(":")
    on = xnack or "xnack+" in features or chip.startswith(_XNACK_ALWAYS_ON)
    target_ids = [TargetId.parse(target) for target in targets]
    kinds: tuple[tuple[SupportKind, list[TargetId]], ...] = (
        ("native", [target for target in target_ids if target.processor == chip]),
        ("generic", [target for target in target_ids if chip in COMPILER_GENERICS.get(target.processor, ())]),
        ("portable", [target for target in target_ids if target.processor in _PORTABLE_PROCESSORS]),
    )
    for kind, codes in kinds:
        if fitting := next((target for target in codes if _can_load(target, on)), None):
            return KernelSupport(kind, str(fitting))
    blocked = next((target for _, codes in kinds for target in codes), None)
    return KernelSupport("setting", str(blocked)) if blocked else KernelSupport("no")


def _can_load(code: TargetId, xnack: bool) -> bool:
    """ECC is on where a GPU has it, unless somebody turned it off; XNACK is off unless HSA_XNACK=1."""
    return all(
        sign == ("+" if xnack else "-") if name == "xnack" else sign == "+" for name, sign in code.features
    )


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

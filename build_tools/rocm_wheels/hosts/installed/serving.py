"""Does code for some targets run on a GPU, and how: the rules of the HIP runtime.

Source: LLVM, "User Guide for AMDGPU Backend": target IDs (a feature that is left out runs in either
setting), generic processors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels.device_code.target_id import TargetId

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

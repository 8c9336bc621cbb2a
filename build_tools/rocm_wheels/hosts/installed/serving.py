"""Does code for some targets run on a GPU, and how: the rules of the HIP runtime.

Source: LLVM, "User Guide for AMDGPU Backend": target IDs (a feature that is left out runs in either
setting), generic processors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rocm_wheels.variants.targets import GENERICS
from rocm_wheels.wheels.device_code.target_id import TargetId

How = Literal["native", "generic", "portable", "setting", "no"]
_PORTABLE = ("amdgcnspirv", "spirv")
_XNACK_ALWAYS_ON = ("gfx125",)


@dataclass(frozen=True)
class Served:
    """How a GPU is served: ``native`` (code for it), ``generic`` (code for a generic target that it is one
    of), ``portable`` (SPIR-V, compiled at first use), ``setting`` (only with another XNACK or ECC setting
    than this process has), ``no``. ``by`` is the target ID of the code."""

    how: How
    by: str = ""

    @property
    def yes(self) -> bool:
        """Tell whether kernels run as things are."""
        return self.how in ("native", "generic", "portable")

    def said(self, gfx: str) -> str:
        """Say it to people."""
        return {
            "native": f"yes, code for {self.by}",
            "generic": f"yes, by code for the generic target {self.by}",
            "portable": f"yes, by SPIR-V ({self.by}), which is compiled for {gfx} when it is first used",
            "setting": f"only code for {self.by}, which this process's setting does not load",
            "no": "no",
        }[self.how]


def serve(targets: Iterable[str], gfx: str, *, xnack: bool = False) -> Served:
    """Say how code for ``targets`` (target IDs) serves a GPU; ``xnack`` is the setting of the process.

    Only the very processor counts: code for gfx1100 does not run on gfx1101.
    """
    chip, *features = gfx.replace("_", "-").split(":")
    on = xnack or "xnack+" in features or chip.startswith(_XNACK_ALWAYS_ON)
    found = [TargetId.parse(one) for one in targets]
    kinds: tuple[tuple[How, list[TargetId]], ...] = (
        ("native", [one for one in found if one.processor == chip]),
        ("generic", [one for one in found if chip in GENERICS.get(one.processor, ())]),
        ("portable", [one for one in found if one.processor in _PORTABLE]),
    )
    for how, codes in kinds:
        if fitting := next((one for one in codes if _loads(one, on)), None):
            return Served(how, str(fitting))
    other = next((one for _, codes in kinds for one in codes), None)
    return Served("setting", str(other)) if other else Served("no")


def _loads(code: TargetId, xnack: bool) -> bool:
    """ECC is on where a GPU has it, unless somebody turned it off; XNACK is off unless HSA_XNACK=1."""
    return all(
        sign == ("+" if xnack else "-") if name == "xnack" else sign == "+" for name, sign in code.features
    )

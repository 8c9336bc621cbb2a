"""Decide whether torch gets flash attention, which on AMD GPUs is aotriton.

aotriton's own build leaves out the targets that it has no kernels for, and stops when none is
left (ROCm/aotriton#169): one supported target is enough. At run time torch falls back to
other kernels on a GPU that aotriton does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import UsageError
from rocm_wheels.models.gfx import get_gfx_targets, strip_features
from rocm_wheels.models.project import Platform

_AOTRITON_PIN = Path("cmake/External/aotriton.cmake")
_OPTION = "--enable-pytorch-flash-attention"


@dataclass(frozen=True)
class FlashAttention:
    """The decision, and the reason in words."""

    on: bool
    reason: str


def decide_flash_attention(
    option: bool | None,
    *,
    platform: Platform,
    with_triton: bool,
    targets: Iterable[str],
    aotriton: str | None = None,
    why_not: str = "triton is not built",
) -> FlashAttention:
    """Decide: the option first; off on Linux without triton; else on if aotriton has a target.

    ``aotriton`` is the release that the sources use, or ``None`` when they do not say: then every
    release counts. ``why_not`` says why torch is without triton. Raises UsageError when flash attention is
    asked for on Linux without triton.
    """
    if option and platform == "linux" and not with_triton:
        raise UsageError(
            f"{_OPTION} needs triton on Linux, and {why_not}",
            tip="add --build-triton, or --triton-wheel FILE",
        )
    if option is not None:
        return FlashAttention(option, f"{_OPTION if option else '--no-' + _OPTION[2:]} was given")
    if platform == "linux" and not with_triton:
        return FlashAttention(False, why_not)
    served = [target for target in targets if has_aotriton_kernels(target, aotriton)]
    release = f"aotriton {aotriton}" if aotriton else "aotriton"
    if served:
        return FlashAttention(True, f"{release} has kernels for {', '.join(served)}")
    return FlashAttention(False, f"{release} has no kernels for any of the targets")


def has_aotriton_kernels(target: str, aotriton: str | None = None) -> bool:
    """Tell whether a release of aotriton (``None``: any) has kernels for a target."""
    record = get_gfx_targets().get(strip_features(target))
    if record is None or record.aotriton is None:
        return False
    return aotriton is None or _parse_release(record.aotriton) <= _parse_release(aotriton)


def read_aotriton_release(torch_source: Path) -> str | None:
    """Return the release of aotriton that a torch tree uses, or ``None`` when the tree does not say."""
    path = torch_source / _AOTRITON_PIN
    if not path.is_file():
        return None
    match = re.search(r'set\(__AOTRITON_VER\s+"([0-9][^"]*)"', path.read_text(encoding="utf-8"))
    return match.group(1) if match else None


def _parse_release(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])

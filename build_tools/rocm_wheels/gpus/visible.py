"""Which GPUs the variables of the ROCm runtime and of HIP leave to a program.

Two filters, one after the other. The runtime's (ROCR-Runtime, amd_filter_device.cpp) reads
``ROCR_VISIBLE_DEVICES``: set and empty, it leaves nothing. HIP's (clr, rocdevice.cpp) reads
``HIP_VISIBLE_DEVICES``, or ``CUDA_VISIBLE_DEVICES`` when that is not set or empty; its indices count what the
first filter left. Both stop at the first entry that they do not understand. ``GPU_DEVICE_ORDINAL`` is for
OpenCL only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .gpu import Gpu

ROCR = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
CUDA = "CUDA_VISIBLE_DEVICES"
ORDINAL = "GPU_DEVICE_ORDINAL"


def mark_visible(
    gpus: Sequence[Gpu], env: Mapping[str, str], *, windows: bool = False
) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs with those marked that a variable hides, and what is odd about the variables.

    Only GPUs with an ``index`` are filtered. Windows has no ROCm runtime below HIP, so no first filter.
    """
    numbered = sorted((gpu for gpu in gpus if gpu.index is not None), key=lambda gpu: gpu.index or 0)
    faults: list[str] = []
    counted = numbered if windows else _filtered(ROCR, env.get(ROCR), numbered, faults)
    variable = HIP if env.get(HIP) else CUDA
    left = _filtered(variable, env.get(variable) or None, counted, faults)
    if left and env.get(HIP) == "":
        faults.append(f"{HIP} is set and empty: HIP takes that for not set; -1 would hide every GPU")
    if left and env.get(ORDINAL):
        faults.append(f"{ORDINAL}={env[ORDINAL]} is for OpenCL; HIP does not read it")
    marked = []
    for gpu in gpus:
        number = counted.index(gpu) if gpu in counted else None
        hidden_by = ROCR if number is None else "" if gpu in left else variable
        seen = replace(gpu, visible=not hidden_by, hidden_by=hidden_by, hip_index=number)
        marked.append(gpu if gpu.index is None else seen)
    return marked, faults


def _filtered(variable: str, text: str | None, left: list[Gpu], faults: list[str]) -> list[Gpu]:
    if text is None:
        return left
    kept, fault = _kept(text, left, runtime=variable == ROCR)
    faults += [f"{variable}={text}: {fault}"] if fault and left else []
    return kept


def _kept(text: str, left: Sequence[Gpu], *, runtime: bool) -> tuple[list[Gpu], str]:
    """Return what one list leaves, in its order, and why it was not read to its end."""
    kept: list[Gpu] = []
    words = text.removesuffix(",").split(",") if text else []  # neither reads anything behind a last comma
    for word in words[: len(left)] if runtime else words:
        gpu = _runtime_choice(word.strip(), left) if runtime else _hip_choice(word, left)
        if gpu is None:
            odd = f"{word!r} is none of {_numbers(left)}: the list ends there"
            return kept, "" if word.strip() == "-1" else odd
        if gpu in kept:
            if runtime:
                return kept, f"{word!r} names a GPU a second time: the list ends there"
            continue
        kept.append(gpu)
    return kept, ""


def _runtime_choice(word: str, left: Sequence[Gpu]) -> Gpu | None:
    if word[:1] in {"G", "g"}:
        wanted = word.upper()
        same = [gpu for gpu in left if gpu.uuid and gpu.uuid.upper().startswith(wanted)]
        return same[0] if len(same) == 1 and 5 <= len(word) <= 20 else None
    number = _strtol(word)
    return left[number] if number is not None and 0 <= number < len(left) else None


def _hip_choice(word: str, left: Sequence[Gpu]) -> Gpu | None:
    if "GPU-" in word:
        return next((gpu for gpu in left if gpu.uuid and word in gpu.uuid), None)
    # compared as text with the number it is read as: " 1" and "01" are not understood
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", word) and int(word) < len(left):
        return left[int(word)]
    return None


def _strtol(word: str) -> int | None:
    """Read a number as C does with base 0: ``0x1f`` and ``017`` too."""
    if found := re.fullmatch(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", word):
        digits = found[2].lower()
        base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
        return int(digits, base) * (-1 if found[1] == "-" else 1)
    return None


def _numbers(left: Sequence[Gpu]) -> str:
    return f"the {len(left)} GPUs left, 0 to {len(left) - 1}" if len(left) > 1 else "the one GPU left, 0"

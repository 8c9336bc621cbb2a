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

ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL"


def mark_visible_gpus(
    gpus: Sequence[Gpu], env: Mapping[str, str], *, windows: bool = False
) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs with those marked that a variable hides, and what is odd about the variables.

    Only GPUs with an ``index`` are filtered. Windows has no ROCm runtime below HIP, so no first filter.
    """
    numbered = sorted((gpu for gpu in gpus if gpu.index is not None), key=lambda gpu: gpu.index or 0)
    faults: list[str] = []
    hip_gpus = (
        numbered
        if windows
        else _filter_by_variable(ROCR_VISIBLE_DEVICES, env.get(ROCR_VISIBLE_DEVICES), numbered, faults)
    )
    variable = HIP_VISIBLE_DEVICES if env.get(HIP_VISIBLE_DEVICES) else CUDA_VISIBLE_DEVICES
    remaining = _filter_by_variable(variable, env.get(variable) or None, hip_gpus, faults)
    if remaining and env.get(HIP_VISIBLE_DEVICES) == "":
        faults.append(
            f"{HIP_VISIBLE_DEVICES} is set and empty: HIP takes that for not set; -1 would hide every GPU"
        )
    if remaining and env.get(GPU_DEVICE_ORDINAL):
        faults.append(f"{GPU_DEVICE_ORDINAL}={env[GPU_DEVICE_ORDINAL]} is for OpenCL; HIP does not read it")
    marked = []
    for gpu in gpus:
        number = hip_gpus.index(gpu) if gpu in hip_gpus else None
        hidden_by = ROCR_VISIBLE_DEVICES if number is None else "" if gpu in remaining else variable
        marked_gpu = replace(gpu, visible=not hidden_by, hidden_by=hidden_by, hip_index=number)
        marked.append(gpu if gpu.index is None else marked_gpu)
    return marked, faults


def _filter_by_variable(variable: str, text: str | None, gpus: list[Gpu], faults: list[str]) -> list[Gpu]:
    if text is None:
        return gpus
    remaining, fault = _filter_by_list(text, gpus, runtime=variable == ROCR_VISIBLE_DEVICES)
    faults += [f"{variable}={text}: {fault}"] if fault and gpus else []
    return remaining


def _filter_by_list(text: str, gpus: Sequence[Gpu], *, runtime: bool) -> tuple[list[Gpu], str]:
    """Return what one list leaves, in its order, and why it was not read to its end."""
    remaining: list[Gpu] = []
    words = text.removesuffix(",").split(",") if text else []  # neither reads anything behind a last comma
    for word in words[: len(gpus)] if runtime else words:
        gpu = _find_runtime_gpu(word.strip(), gpus) if runtime else _find_hip_gpu(word, gpus)
        if gpu is None:
            fault_text = f"{word!r} is none of {_describe_indices(gpus)}: the list ends there"
            return remaining, "" if word.strip() == "-1" else fault_text
        if gpu in remaining:
            if runtime:
                return remaining, f"{word!r} names a GPU a second time: the list ends there"
            continue
        remaining.append(gpu)
    return remaining, ""


def _find_runtime_gpu(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if word[:1] in {"G", "g"}:
        uuid = word.upper()
        matching = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.upper().startswith(uuid)]
        return matching[0] if len(matching) == 1 and 5 <= len(word) <= 20 else None
    number = _parse_c_integer(word)
    return gpus[number] if number is not None and 0 <= number < len(gpus) else None


def _find_hip_gpu(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if "GPU-" in word:
        return next((gpu for gpu in gpus if gpu.uuid and word in gpu.uuid), None)
    # compared as text with the number it is read as: " 1" and "01" are not understood
    if re.fullmatch(r"0|[1-9][0-9]{0,8}", word) and int(word) < len(gpus):
        return gpus[int(word)]
    return None


def _parse_c_integer(word: str) -> int | None:
    """Read a number as C does with base 0: ``0x1f`` and ``017`` too."""
    if match := re.fullmatch(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", word):
        digits = match[2].lower()
        base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
        return int(digits, base) * (-1 if match[1] == "-" else 1)
    return None


def _describe_indices(gpus: Sequence[Gpu]) -> str:
    return f"the {len(gpus)} GPUs left, 0 to {len(gpus) - 1}" if len(gpus) > 1 else "the one GPU left, 0"

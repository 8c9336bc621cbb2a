"""Variables that hide or force GPUs, and the properties that a variant provider states of them.

Several tools read the same statement under different names. Whoever sets two of them means one thing: when
they say different things, nobody can know which, and the error names both.

GPUs are hidden by two filters, one after the other. The runtime's (ROCR-Runtime, amd_filter_device.cpp)
reads ``ROCR_VISIBLE_DEVICES``: set and empty, it leaves nothing. HIP's (clr, rocdevice.cpp) reads
``HIP_VISIBLE_DEVICES``, or ``CUDA_VISIBLE_DEVICES`` when that is not set or empty; its indices count what
the first filter left. Both stop at the first entry that they do not understand. ``GPU_DEVICE_ORDINAL`` is
for OpenCL only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from .gpu import (
    GENERIC_TARGETS,
    KNOWN_TARGETS,
    NEW_MARK,
    Gpu,
    Hardware,
    find_generic_target,
    parse_override_version,
    parse_stated_target,
)

_BOOTSTRAP_VARIABLE = "ROCM_BOOTSTRAP_FORCE_GFX_ARCH"
# ours, rocm-bootstrap's, uv's (for --torch-backend)
GFX_VARIABLES = ("ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH", _BOOTSTRAP_VARIABLE, "UV_AMD_GPU_ARCHITECTURE")
ROCM_VARIABLE = "ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION"
SANITIZER_VARIABLE = "ROCM_VARIANT_PROVIDER_SANITIZER"
DISABLE_VARIABLE = "ROCM_BOOTSTRAP_DISABLE_DETECTION"
OVERRIDE_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
_NO_HARDWARE = "none"
_MAJOR_MINOR = re.compile(r"([0-9]+)\.([0-9]+)(?![0-9])")


@dataclass(frozen=True)
class ForcedHardware:
    """What variables state: None where none does, () for "there is none".

    ``chips`` are targets, best first, one a GPU (two equal ones are two GPUs), ``chips_by`` the variable;
    ``rocm`` is the version in full; ``sanitizer``: "address" where its runtime is preloaded, else "".
    """

    chips: tuple[str, ...] | None = None
    chips_by: str = ""
    rocm: tuple[str, ...] | None = None
    sanitizer: str = ""


def read_forced_hardware(env: Mapping[str, str]) -> ForcedHardware:
    """Read the variables. ValueError for one that cannot be read and for two that contradict each other."""
    texts = " ".join(env.get(variable, "").lower() for variable in GFX_VARIABLES)
    new_chips = frozenset(re.findall(rf"{NEW_MARK}(\w+)", texts))
    stated = {
        name: _read_variable(env, name, lambda text: _parse_chips(text, new_chips)) for name in GFX_VARIABLES
    }
    agreed = {name: chips for name, chips in stated.items() if chips is not None}
    chips_by, chips = next(iter(agreed.items()), ("", None))
    for name, others in agreed.items():
        if list(dict.fromkeys(others)) != list(dict.fromkeys(chips or ())):
            raise ValueError(
                f"{chips_by}={env[chips_by]} and {name}={env[name]} contradict each other: unset one of them"
            )
    if env.get(DISABLE_VARIABLE, "").strip() == "1":
        if chips and chips_by != _BOOTSTRAP_VARIABLE:  # its own pair has an order: not looking comes first
            raise ValueError(
                f"{DISABLE_VARIABLE}=1 and {chips_by}={env[chips_by]} contradict "
                "each other: unset one of them"
            )
        chips_by, chips = DISABLE_VARIABLE, ()
    rocm = _read_variable(env, ROCM_VARIABLE, _parse_rocm_version)
    return ForcedHardware(chips, chips_by, rocm, read_sanitizer(env))


def read_sanitizer(env: Mapping[str, str]) -> str:
    """Return "address" where a user preloads its runtime, "" where nobody says so. ValueError for others."""
    if (sanitizer := env.get(SANITIZER_VARIABLE, "")) not in ("", "address"):
        raise ValueError(f"{SANITIZER_VARIABLE}={sanitizer!r} is none: address is")
    return sanitizer


def read_overrides(env: Mapping[str, str]) -> dict[int | None, str]:
    """Return the target that each node poses as; key None is for the nodes that have none of their own.

    ``HSA_OVERRIDE_GFX_VERSION_2`` is about node 2 of the driver's topology, where processors are nodes too
    (libhsakmt, topology.c). Blank ones are left out. ValueError for one that cannot be read.
    """
    overrides: dict[int | None, str] = {}
    for variable, text in env.items():
        node = variable.removeprefix(OVERRIDE_VARIABLE)
        if (
            not variable.startswith(OVERRIDE_VARIABLE)
            or not text.strip()
            or (node and not re.fullmatch(r"_\d+", node))
        ):
            continue
        try:
            overrides[int(node[1:]) if node else None] = parse_override_version(text)
        except ValueError as cause:
            raise ValueError(f"{variable}: {cause}") from None
    return overrides


def find_ineffective_variables(env: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that is set and does not do what it seems to."""
    messages = [
        f"{variable} is set and empty: the ROCm runtime refuses to start with it; unset it"
        for variable, text in sorted(env.items())
        if variable.startswith(OVERRIDE_VARIABLE) and not text.strip()
    ]
    if (text := env.get(DISABLE_VARIABLE, "").strip()) not in {"", "0", "1"}:
        messages.append(f"{DISABLE_VARIABLE}={text} disables nothing: only 1 does")
    return messages


def parse_major_minor(version: str) -> str:
    """Return ``7.2`` of ``7.2.0-43`` or ``7.2.0rc1``; ValueError for what has no two numbers."""
    match = _MAJOR_MINOR.match(version.strip())
    if not match:
        raise ValueError(f"{version.strip()!r} is not a version such as 7.2")
    return f"{int(match[1])}.{int(match[2])}"


def _read_variable(
    env: Mapping[str, str], variable: str, read: Callable[[str], tuple[str, ...]]
) -> tuple[str, ...] | None:
    """Return what a variable states, () for "there is none", None where it is not set."""
    text = env.get(variable, "").strip()
    if not text:
        return None
    try:
        return () if text.lower() == _NO_HARDWARE else read(text)
    except ValueError as cause:
        raise ValueError(f"{variable}: {cause}") from None


def _parse_chips(text: str, new_chips: Collection[str]) -> tuple[str, ...]:
    """Read targets; ``new_chips`` are those that one variable marks as new, as the other tools' cannot."""
    words = [word for word in re.split(r"[,;\s]+", text) if word]
    names = tuple(
        parse_stated_target(NEW_MARK + word if word.lower() in new_chips else word) for word in words
    )
    if not names:
        raise ValueError(f"{text!r} names no GPU; {_NO_HARDWARE} says that there is none")
    return names


def _parse_rocm_version(text: str) -> tuple[str, ...]:
    parse_major_minor(text)
    return (text,)


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
    rocr, hip = env.get(ROCR_VISIBLE_DEVICES), env.get(HIP_VISIBLE_DEVICES)
    hip_gpus = numbered if windows else _filter_gpus(ROCR_VISIBLE_DEVICES, rocr, numbered, faults)
    variable = HIP_VISIBLE_DEVICES if hip else CUDA_VISIBLE_DEVICES
    remaining = _filter_gpus(variable, env.get(variable) or None, hip_gpus, faults)
    if remaining and hip == "":
        faults.append(
            f"{HIP_VISIBLE_DEVICES} is set and empty: HIP takes that for not set; -1 would hide every GPU"
        )
    if remaining and env.get(GPU_DEVICE_ORDINAL):
        faults.append(f"{GPU_DEVICE_ORDINAL}={env[GPU_DEVICE_ORDINAL]} is for OpenCL; HIP does not read it")
    marked = []
    for gpu in gpus:
        if gpu.index is not None:
            number = hip_gpus.index(gpu) if gpu in hip_gpus else None
            hidden_by = ROCR_VISIBLE_DEVICES if number is None else "" if gpu in remaining else variable
            gpu = replace(gpu, visible=not hidden_by, hidden_by=hidden_by, hip_index=number)  # noqa: PLW2901
        marked.append(gpu)
    return marked, faults


def _filter_gpus(variable: str, text: str | None, gpus: list[Gpu], faults: list[str]) -> list[Gpu]:
    """Return what one list leaves, in its order: all, where it is not set; a fault says why it ends early."""
    if text is None:
        return gpus
    is_runtime = variable == ROCR_VISIBLE_DEVICES
    remaining: list[Gpu] = []
    words = text.removesuffix(",").split(",") if text else []  # neither reads anything behind a last comma
    for word in words[: len(gpus)] if is_runtime else words:
        gpu = _find_runtime_gpu(word.strip(), gpus) if is_runtime else _find_hip_gpu(word, gpus)
        if gpu is not None and gpu not in remaining:
            remaining.append(gpu)
        elif gpu is None or is_runtime:
            indices = (
                f"the {len(gpus)} GPUs left, 0 to {len(gpus) - 1}" if len(gpus) > 1 else "the one GPU left, 0"
            )
            why = "names a GPU a second time" if gpu else f"is none of {indices}"
            if gpus and word.strip() != "-1":
                faults.append(f"{variable}={text}: {word!r} {why}: the list ends there")
            break
    return remaining


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


GFX_ARCH_FEATURE = "gfx_arch"
ROCM_VERSION_FEATURE = "rocm_version"
SANITIZER_FEATURE = "sanitizer"
# those there are and those that may come, newest first
ROCM_VERSIONS = tuple(f"{major}.{minor}" for major in range(12, 5, -1) for minor in range(29, -1, -1))


def list_supported_features(hardware: Hardware) -> dict[str, tuple[str, ...]]:
    """Return the features that a machine supports, each with its values, most preferred first.

    ``gfx_arch``: the targets of the GPUs that programs may use, then the generic ones whose code runs on
    them: all of cards before any of graphics inside a processor. ``rocm_version``: major.minor of the ROCm
    that counts; ``sanitizer``: as the user says. A feature without a value is left out.
    """
    ordered: list[str] = []
    for integrated in (False, True):
        chips = [gpu.gfx for gpu in hardware.usable if gpu.gfx and (gpu.integrated is True) == integrated]
        ordered += [*chips, *(generic for chip in chips if (generic := find_generic_target(chip)))]
    values = tuple(dict.fromkeys(ordered))
    features = {GFX_ARCH_FEATURE: values} if values else {}
    if hardware.rocm:
        features[ROCM_VERSION_FEATURE] = (parse_major_minor(hardware.rocm[0].version),)
    if hardware.sanitizer:
        features[SANITIZER_FEATURE] = (hardware.sanitizer,)
    return features


def list_known_features(supported: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return all values that exist, those of this machine (``supported``) among them, however new it is."""
    chips = dict.fromkeys([*KNOWN_TARGETS, *GENERIC_TARGETS, *supported.get(GFX_ARCH_FEATURE, ())])
    versions = dict.fromkeys([*ROCM_VERSIONS, *supported.get(ROCM_VERSION_FEATURE, ())])
    features = {GFX_ARCH_FEATURE: tuple(chips), ROCM_VERSION_FEATURE: tuple(versions)}
    return {**features, SANITIZER_FEATURE: ("address",)}

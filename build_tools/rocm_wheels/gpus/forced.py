"""What variables say of the machine in place of a look at it, in every spelling that is published.

Several tools read the same statement under different names. Whoever sets two of them means one thing: when
they say different things, nobody can know which, and the error names both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from .names import read_name, read_version

# ours, amd-variant-provider's, rocm-bootstrap's, uv's (for --torch-backend)
CHIPS = (
    "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH",
    "AMD_VARIANT_PROVIDER_FORCE_GFX_ARCH",
    "ROCM_BOOTSTRAP_FORCE_GFX_ARCH",
    "UV_AMD_GPU_ARCHITECTURE",
)
ROCM = ("ROCM_VARIANT_PROVIDER_FORCE_ROCM_VERSION", "AMD_VARIANT_PROVIDER_FORCE_ROCM_VERSION")
DISABLE = "ROCM_BOOTSTRAP_DISABLE_DETECTION"
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# NVIDIA's provider, and uv in its place; the last one of its first versions alone
CUDA = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
SM = "NV_VARIANT_PROVIDER_FORCE_SM_ARCH"
KMD = "NV_VARIANT_PROVIDER_FORCE_KMD_DRIVER_VERSION"
_NONE = "none"
_BOOTSTRAP = "ROCM_BOOTSTRAP_FORCE_GFX_ARCH"
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?![0-9])")
_CUDA = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")


@dataclass(frozen=True)
class Forced:
    """What variables state: None where none does, () for "there is none".

    ``chips`` are targets, best first, one a GPU (two equal ones are two GPUs); ``rocm`` is the version in
    full; ``cuda`` the CUDA version of NVIDIA's driver; ``capability`` the one of the NVIDIA GPU. The
    ``_by`` name the variable.
    """

    chips: tuple[str, ...] | None = None
    chips_by: str = ""
    rocm: tuple[str, ...] | None = None
    rocm_by: str = ""
    cuda: str | None = None
    capability: str | None = None


def read_forced(env: Mapping[str, str]) -> Forced:
    """Read the variables. ValueError for one that cannot be read and for two that contradict each other."""
    chips_by, chips = _agreed(env, CHIPS, _chips, lambda found: tuple(dict.fromkeys(found)))
    if env.get(DISABLE, "").strip() == "1":
        if chips and chips_by != _BOOTSTRAP:  # its own pair has an order: not looking comes first
            raise ValueError(
                f"{DISABLE}=1 and {chips_by}={env[chips_by]} contradict each other: unset one of them"
            )
        chips_by, chips = DISABLE, ()
    rocm_by, rocm = _agreed(env, ROCM, _rocm, lambda found: tuple(map(major_minor, found)))
    return Forced(
        chips,
        chips_by,
        rocm,
        rocm_by,
        _matched(env, CUDA, _CUDA, "12.8"),
        _matched(env, SM, _CAPABILITY, "9.0"),
    )


def read_overrides(env: Mapping[str, str]) -> dict[int | None, str]:
    """Return the target that each node poses as; key None is for the nodes that have none of their own.

    ``HSA_OVERRIDE_GFX_VERSION_2`` is about node 2 of the driver's topology, where processors are nodes too
    (libhsakmt, topology.c). Blank ones are left out. ValueError for one that cannot be read.
    """
    found: dict[int | None, str] = {}
    for variable, text in env.items():
        node = variable.removeprefix(OVERRIDE)
        if (
            not variable.startswith(OVERRIDE)
            or not text.strip()
            or (node and not re.fullmatch(r"_\d+", node))
        ):
            continue
        try:
            found[int(node[1:]) if node else None] = read_version(text)
        except ValueError as cause:
            raise ValueError(f"{variable}: {cause}") from None
    return found


def without_effect(env: Mapping[str, str], vendors: Collection[str]) -> list[str]:
    """Return a sentence for each variable of ``vendors`` that is set and does not do what it seems to."""
    said = [
        f"{variable} is set and empty: the ROCm runtime refuses to start with it; unset it"
        for variable, text in sorted(env.items())
        if variable.startswith(OVERRIDE) and not text.strip()
    ]
    if (text := env.get(DISABLE, "").strip()) not in {"", "0", "1"}:
        said.append(f"{DISABLE}={text} disables nothing: only 1 does")
    if env.get(KMD) and "nvidia" in vendors:
        said.append(f"{KMD} is of an early provider and says nothing of CUDA: {CUDA} does")
    return said


def major_minor(version: str) -> str:
    """Return ``7.2`` of ``7.2.0-43`` or ``7.2.0rc1``; ValueError for what has no two numbers."""
    found = _VERSION.match(version.strip())
    if not found:
        raise ValueError(f"{version.strip()!r} is not a version such as 7.2")
    return f"{int(found[1])}.{int(found[2])}"


def _agreed(
    env: Mapping[str, str],
    variables: Sequence[str],
    read: Callable[[str], tuple[str, ...]],
    meaning: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> tuple[str, tuple[str, ...] | None]:
    stated: dict[str, tuple[str, ...]] = {}
    for variable in variables:
        text = env.get(variable, "").strip()
        if text:
            try:
                stated[variable] = () if text.lower() == _NONE else read(text)
            except ValueError as cause:
                raise ValueError(f"{variable}: {cause}") from None
    first = next(iter(stated), "")
    for variable, value in stated.items():
        if meaning(value) != meaning(stated[first]):
            raise ValueError(
                f"{first}={env[first]} and {variable}={env[variable]} contradict each other: "
                "unset one of them"
            )
    return first, stated.get(first)


def _chips(text: str) -> tuple[str, ...]:
    names = tuple(read_name(word) for word in re.split(r"[,;\s]+", text) if word)
    if not names:
        raise ValueError(f"{text!r} names no GPU; {_NONE} says that there is none")
    return names


def _rocm(text: str) -> tuple[str, ...]:
    major_minor(text)
    return (text,)


def _matched(env: Mapping[str, str], variable: str, form: re.Pattern[str], example: str) -> str | None:
    text = env.get(variable, "").strip()
    if text and not form.fullmatch(text):
        raise ValueError(f"{variable}: {text!r} is not a version such as {example}")
    return text or None

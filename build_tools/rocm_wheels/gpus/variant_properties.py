"""Convert hardware into what installers of wheel variants compare: the features of namespace ``amd``."""

from __future__ import annotations

from .gpu import Hardware
from .target_names import GENERIC_TARGETS, KNOWN_TARGETS, find_generic_target
from .variables import parse_major_minor

GFX_ARCH_FEATURE = "gfx_arch"
ROCM_VERSION_FEATURE = "rocm_version"
# those there are and those that may come, newest first
ROCM_VERSIONS = tuple(f"{major}.{minor}" for major in range(12, 5, -1) for minor in range(29, -1, -1))


def list_supported_features(hardware: Hardware) -> dict[str, tuple[str, ...]]:
    """Return the features that a machine supports, each with its values, most preferred first.

    ``gfx_arch``: the targets of the GPUs that programs may use, then the generic ones whose code runs on
    them; ``rocm_version``: major.minor of the ROCm that counts. A feature without a value is left out.
    """
    chips = list(dict.fromkeys(gpu.gfx for gpu in hardware.usable if gpu.gfx))
    generics = [generic for chip in chips if (generic := find_generic_target(chip))]
    values = tuple(dict.fromkeys([*chips, *generics]))
    features = {GFX_ARCH_FEATURE: values} if values else {}
    if hardware.rocm:
        features[ROCM_VERSION_FEATURE] = (parse_major_minor(hardware.rocm[0].version),)
    return features


def list_known_features(supported: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return all values that exist, those of this machine (``supported``) among them, however new it is."""
    chips = dict.fromkeys([*KNOWN_TARGETS, *GENERIC_TARGETS, *supported.get(GFX_ARCH_FEATURE, ())])
    versions = dict.fromkeys([*ROCM_VERSIONS, *supported.get(ROCM_VERSION_FEATURE, ())])
    return {GFX_ARCH_FEATURE: tuple(chips), ROCM_VERSION_FEATURE: tuple(versions)}

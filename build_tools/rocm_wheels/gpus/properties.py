"""From hardware to what installers of wheel variants compare: the features of namespace ``amd``."""

from __future__ import annotations

from .forced import major_minor
from .gpu import Hardware
from .names import GENERICS, KNOWN, generic_of

ARCH = "gfx_arch"
ROCM = "rocm_version"
# those there are and those that may come, newest first
ROCM_VERSIONS = tuple(f"{major}.{minor}" for major in range(12, 5, -1) for minor in range(29, -1, -1))


def supported(hardware: Hardware) -> dict[str, tuple[str, ...]]:
    """Return the features that a machine supports, each with its values, most preferred first.

    ``gfx_arch``: the targets of the GPUs that programs may use, then the generic ones whose code runs on
    them; ``rocm_version``: major.minor of the ROCm that counts. A feature without a value is left out.
    """
    chips = list(dict.fromkeys(gpu.gfx for gpu in hardware.usable if gpu.gfx))
    generics = [generic for chip in chips if (generic := generic_of(chip))]
    values = tuple(dict.fromkeys([*chips, *generics]))
    found = {ARCH: values} if values else {}
    if hardware.rocm:
        found[ROCM] = (major_minor(hardware.rocm[0].version),)
    return found


def known(here: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return all values that there are, those of this machine (``here``) among them, however new it is."""
    chips = dict.fromkeys([*KNOWN, *GENERICS, *here.get(ARCH, ())])
    versions = dict.fromkeys([*ROCM_VERSIONS, *here.get(ROCM, ())])
    return {ARCH: tuple(chips), ROCM: tuple(versions)}

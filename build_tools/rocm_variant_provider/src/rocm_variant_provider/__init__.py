"""A provider of wheel variants (PEP 850), namespace ``amd``: GPUs and ROCm of this machine.

The module itself is the plugin: installers call ``get_supported_configs`` and ``get_all_configs``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .detect import detect
from .names import GENERICS, KNOWN, ROCM_VERSIONS, generic_of

__all__ = ["FeatureConfig", "get_all_configs", "get_supported_configs"]


@dataclass(frozen=True)
class FeatureConfig:
    """A feature and its values, most preferred first; ``multi_value``: a wheel may have several."""

    name: str
    values: list[str]
    multi_value: bool


def get_supported_configs() -> list[FeatureConfig]:
    """Return what this machine has. ValueError for a variable that cannot be read."""
    machine = detect(os.environ, Path("/"))
    generics = [generic_of(chip) for chip in machine.chips]
    values = dict.fromkeys([*machine.chips, *(one for one in generics if one)])
    found = [FeatureConfig("gfx_arch", list(values), multi_value=True)] if values else []
    if machine.rocm_version:
        found.append(FeatureConfig("rocm_version", [machine.rocm_version], multi_value=False))
    return found


def get_all_configs() -> list[FeatureConfig]:
    """Return all values that there are; those of this machine are among them, however new it is."""
    here = {config.name: config.values for config in get_supported_configs()}
    chips = dict.fromkeys([*KNOWN, *GENERICS, *here.get("gfx_arch", [])])
    versions = dict.fromkeys([*ROCM_VERSIONS, *here.get("rocm_version", [])])
    return [
        FeatureConfig("gfx_arch", list(chips), multi_value=True),
        FeatureConfig("rocm_version", list(versions), multi_value=False),
    ]

"""A provider of wheel variants (PEP 850), namespace ``amd``: GPUs and ROCm of this machine.

The module itself is the plugin: installers call ``get_supported_configs`` and ``get_all_configs``. What finds
GPUs is in ``gpus``, which rocm-wheels shares; the build brings it along.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .gpus.detect import detect_hardware  # type: ignore[import-not-found]

# the build brings ``gpus`` along: in a checkout it is a part of rocm-wheels
from .gpus.gpu import Hardware  # type: ignore[import-not-found]
from .gpus.variables import list_known_features, list_supported_features  # type: ignore[import-not-found]

__all__ = ["FeatureConfig", "get_all_configs", "get_supported_configs"]


@dataclass(frozen=True)
class FeatureConfig:
    """A feature and its values, most preferred first; ``multi_value``: a wheel may have several."""

    name: str
    values: list[str]
    multi_value: bool


def get_supported_configs() -> list[FeatureConfig]:
    """Return what this machine has.

    ValueError for a variable that states something and cannot be read: who set it wants what it says, and
    any other wheel than the one it would give is the wrong one. Nothing else stops an installer: what could
    not be found out is said on stderr.
    """
    hardware = _detect_this_machine()
    for fault in hardware.faults:
        print(f"rocm-variant-provider: {fault}", file=sys.stderr)
    return _make_configs(list_supported_features(hardware))


def get_all_configs() -> list[FeatureConfig]:
    """Return all values that there are; those of this machine are among them, however new it is.

    ValueError as above; what could not be found out is left to the other function, which says it.
    """
    return _make_configs(list_known_features(list_supported_features(_detect_this_machine())))


def _detect_this_machine() -> Hardware:
    folders = dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib"))
    site_folders = [Path(folder) for folder in folders]
    return detect_hardware(os.environ, platform=sys.platform, site_packages=site_folders, vendors=("amd",))


def _make_configs(features: Mapping[str, tuple[str, ...]]) -> list[FeatureConfig]:
    return [FeatureConfig(name, list(values), name == "gfx_arch") for name, values in features.items()]

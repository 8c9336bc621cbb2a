"""Bring the package that detects GPUs into the distribution: it lives with rocm-wheels, and is shipped twice.

A checkout has it beside this project. A source distribution carries its own copy, so that what is built from
it is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KINDS = {".py", ".tsv"}


class RoomOfGpus(BuildHookInterface[Any]):
    """Adds ``rocm_wheels/gpus`` as ``rocm_variant_provider/gpus``."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files. FileNotFoundError when they are neither beside this project nor in it."""
        here = Path(self.root)
        packaged = here / "src" / "rocm_variant_provider" / "gpus"
        beside = here.parent / "rocm_wheels" / "gpus"
        if packaged.is_dir():
            return  # a source distribution, whose files are packaged as they lie
        files = sorted(path for path in beside.glob("*") if path.suffix in _KINDS)
        if not files:
            raise FileNotFoundError(
                f"neither {packaged} nor {beside} is there: build from a checkout or an sdist"
            )
        folder = (
            "rocm_variant_provider/gpus" if self.target_name == "wheel" else "src/rocm_variant_provider/gpus"
        )
        build_data["force_include"].update({str(path): f"{folder}/{path.name}" for path in files})

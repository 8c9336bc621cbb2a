"""A torch that is split as ROCm's packaging does it: a host wheel, and device wheels with archives."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from rocm_wheels.package import split

LIBRARY = "torch/lib/libtorch_hip.so"
ARCHIVE = "../.kpack/torch_@GFXARCH@.kpack"


def split_torch(wheel: Path, folder: Path) -> tuple[Path, dict[str, Path]]:
    """Write host and device wheels of a torch; return the first, and the others by target."""
    with ExitStack() as stack:
        wheels = split.write_split(split.plan_split(split.SplitRequest(wheel), stack), folder)
    return wheels.host, wheels.devices

"""Requests to build a project, of a ROCm that has all that one can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rocm_wheels.compile import build_request, sdk_tree
from rocm_wheels.models import project, project_names

ROOT = Path("/sdk")
BARE = sdk_tree.SdkTree("7.1.0", ROOT, ROOT / "lib/cmake", ROOT / "bin")
FULL = replace(
    BARE,
    sysdeps=ROOT / "lib/rocm_sysdeps",
    clang=ROOT / "lib/llvm/bin",
    bitcode=ROOT / "lib/llvm/amdgcn/bitcode",
    host_math=ROOT / "lib/host-math",
    roctracer=ROOT / "include/roctracer",
)

VERSION = "2.9.0+rocm7.1.0"


def request(name: str, platform: project_names.Platform = "linux", **more: Any) -> build_request.BuildRequest:
    """Return a request for two targets; ``more`` are other values of its fields."""
    values: dict[str, Any] = {
        "project": project.load_project(name),
        "source": Path("/src") / name,
        "platform": platform,
        "sdk": FULL,
        "targets": ("gfx942", "gfx1100"),
        "version": None if name == "triton" else VERSION,
        "suffix": "+rocm7.1.0",
    }
    if name == "pytorch":
        values |= {"flash_attention": True, "triton_requirement": "triton==3.7.0"}
    values["against"] = {pin.project: VERSION for pin in project.load_project(name).build.pins}
    return build_request.BuildRequest(**(values | more))

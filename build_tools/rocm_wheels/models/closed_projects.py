"""Closed projects: what holds code for GPUs comes from the index or folder that was chosen, and no other.

Anybody can register ``amd-torch-device-gfx942`` on PyPI, whose torch is a CUDA build of the same version.
"""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from rocm_wheels.models import project_names

_CLOSED_PROJECT = re.compile(
    r"torch|torchtext|aotriton"
    r"|triton|triton-.+|pytorch-triton.*|rocm|rocm-(?!bootstrap$).+|rocm\d.*|hip-.+|amd-.+|amdsmi|jax-rocm.*"
    r"|fbgemm-gpu.*"
)


def is_closed_project(project: str) -> bool:
    """Tell whether a project (normalized name) may come from the chosen index or folder alone."""
    if _CLOSED_PROJECT.fullmatch(project) is not None:
        return True
    return project in project_names.find_wheel_projects() and project not in project_names.find_open_wheels()


def list_closed_projects() -> tuple[str, ...]:
    """Return the closed projects that are known by name: what ROCm and torch are made of or require."""
    from rocm_wheels.models import gfx  # slow to import, and its table to read

    names = (
        "rocm rocm-sdk rocm-sdk-core rocm-sdk-devel rocm-sdk-libraries rocm-profiler amdsmi aotriton torch"
    )
    names += " torchtext triton triton-rocm pytorch-triton pytorch-triton-rocm fbgemm-gpu"
    targets = (*gfx.get_gfx_targets(), *gfx.get_gfx_families())
    parts = (f"rocm-sdk-{kind}-{target.lower()}" for target in targets for kind in ("libraries", "device"))
    wheels = project_names.find_wheel_projects().keys() - project_names.find_open_wheels()
    return tuple(sorted({*names.split(), *map(canonicalize_name, parts), *wheels}))

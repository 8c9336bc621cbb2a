"""The hooks of each project: what a recipe cannot say; one module a project, one line here."""

from __future__ import annotations

from rocm_wheels.compile.hooks.hook import NO_HOOKS, Hooks
from rocm_wheels.compile.hooks.pytorch import PYTORCH_HOOKS
from rocm_wheels.compile.hooks.triton import TRITON_HOOKS

PROJECT_HOOKS: dict[str, Hooks] = {
    "pytorch": PYTORCH_HOOKS,
    "triton": TRITON_HOOKS,
}


def find_hooks(project: str) -> Hooks:
    """Return a project's hooks; most projects have none."""
    return PROJECT_HOOKS.get(project, NO_HOOKS)

"""What a recipe cannot say: one module a project, one line in the table."""

from __future__ import annotations

from rocm_wheels.compile.hooks import pytorch, triton
from rocm_wheels.compile.hooks.hook import NO_HOOKS, Hooks

PROJECT_HOOKS: dict[str, Hooks] = {
    "pytorch": pytorch.PYTORCH_HOOKS,
    "triton": triton.TRITON_HOOKS,
}


def find_hooks(project: str) -> Hooks:
    """Return a project's hooks; most projects have none."""
    return PROJECT_HOOKS.get(project, NO_HOOKS)

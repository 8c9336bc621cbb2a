"""What a recipe cannot say: one module a project, one line in the table."""

from __future__ import annotations

from rocm_wheels.compile.hooks import pytorch, triton
from rocm_wheels.compile.hooks.hook import NO_HOOKS, Hooks

HOOKS: dict[str, Hooks] = {
    "pytorch": pytorch.HOOKS,
    "triton": triton.HOOKS,
}


def hooks_of(project: str) -> Hooks:
    """Return a project's hooks; most projects have none."""
    return HOOKS.get(project, NO_HOOKS)

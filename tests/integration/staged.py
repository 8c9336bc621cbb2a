"""What tests of staging share: the smallest set, and all that the command does in a store."""

from __future__ import annotations

from release_world import NOW, World, a_lock

from rocm_wheels.core import Store
from rocm_wheels.release import StagedSet, StagePlan, plan_stage, stage_set, update_listing


def stage(store: Store, plan: StagePlan, now: str = NOW) -> StagedSet:
    """All that the command does in a store."""
    staged = stage_set(store, plan, now=now)
    update_listing(store, plan.paths)
    return staged


def small_plan(world: World) -> StagePlan:
    """Return a set of one wheel, which has every kind of write."""
    wheels = [path for path in world.wheels if path.name.startswith("triton-")]
    locks = [a_lock(["triton"])]
    return plan_stage(wheels, locks, paths=world.places, layout="per-family", version="3.5.0")

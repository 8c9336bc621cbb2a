"""What tests of staging share: the smallest set, and all that the command does in a store."""

from __future__ import annotations

from release_world import NOW, World, a_lock

from rocm_wheels.release.overview import renew_listing
from rocm_wheels.release.staging.plan import StagePlan, plan_stage
from rocm_wheels.release.staging.sending import Staged, send
from rocm_wheels.stores import Store


def stage(store: Store, plan: StagePlan, now: str = NOW) -> Staged:
    """All that the command does in a store."""
    staged = send(store, plan, now=now)
    renew_listing(store, plan.places)
    return staged


def small_plan(world: World) -> StagePlan:
    """Return a set of one wheel, which has every kind of write."""
    wheels = [path for path in world.wheels if path.name.startswith("triton-")]
    locks = [a_lock(["triton"])]
    return plan_stage(wheels, locks, places=world.places, layout="per-family", version="3.5.0")

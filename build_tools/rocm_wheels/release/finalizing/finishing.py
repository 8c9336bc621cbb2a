"""The new set, staged: it names the old one, and nothing is known of it yet."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.finalizing.plan import FinalPlan
from rocm_wheels.release.finalizing.rewriting import Written, write_wheels
from rocm_wheels.release.layout import Places
from rocm_wheels.release.overview import renew_listing
from rocm_wheels.release.staging.plan import StagePlan, plan_stage
from rocm_wheels.release.staging.sending import Staged, send
from rocm_wheels.stores.store import AGAIN, Store
from rocm_wheels.workspace import copy_whole, exclusive


@dataclass(frozen=True)
class Finalized:
    """What was made: the wheels, the plan of their set, and what became of it in the store."""

    wheels: tuple[Written, ...]
    plan: StagePlan
    staged: Staged


def finalize(
    store: Store, places: Places, plan: FinalPlan, folder: Path, *, now: str, output: Path | None = None
) -> Finalized:
    """Write the wheels of a set anew and stage them as a set of their own. The folder is removed then.

    ``output`` is a folder for a copy of all wheels of the new set. Raises ReleaseError; the same call carries
    on afterwards, and one more changes nothing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ReleaseError(
            f"cannot make {folder}: {failure.strerror}", tip="name another --work-dir"
        ) from failure
    with exclusive(folder, what=f"finalizing {plan.document.id}", error=ReleaseError):
        written = tuple(write_wheels(store, places, plan, folder))
        staged_plan = stage_plan(places, plan, written)
        staged = send(store, staged_plan, now=now)
        renew_listing(store, places)
        if output is not None:
            for one in written:
                _copy(one.path, output / one.change.name)
    shutil.rmtree(folder)  # not while its lock is open: Windows removes no open file
    return Finalized(written, staged_plan, staged)


def _copy(wheel: Path, target: Path) -> None:
    try:
        copy_whole(wheel, target)
    except OSError as failure:
        tip = f"the set is staged; name another --output-dir, then {AGAIN}"
        raise ReleaseError(f"cannot write {target}: {failure.strerror or failure}", tip=tip) from failure


def stage_plan(places: Places, plan: FinalPlan, written: tuple[Written, ...]) -> StagePlan:
    """Return the new set as it will be staged: all of it is read and checked as any other."""
    return plan_stage(
        [one.path for one in written],
        plan.locks,
        places=places,
        layout=plan.document.layout,
        version=plan.version,
        origin=plan.document.id,
        renamed=plan.renamed,
        targets=plan.targets,
    )

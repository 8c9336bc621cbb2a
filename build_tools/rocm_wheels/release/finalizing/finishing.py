"""The new set, staged: it names the old one, and nothing is known of it yet."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.finalizing.plan import FinalPlan
from rocm_wheels.release.finalizing.rewriting import WrittenWheel, write_final_wheels
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.overview import update_listing
from rocm_wheels.release.staging.plan import StagePlan, plan_stage
from rocm_wheels.release.staging.sending import StagedSet, stage_set
from rocm_wheels.stores.store import RUN_AGAIN_TIP, Store
from rocm_wheels.workspace import copy_atomically, lock_folder


@dataclass(frozen=True)
class FinalizedSet:
    """What was made: the wheels, the plan of their set, and what became of it in the store."""

    wheels: tuple[WrittenWheel, ...]
    plan: StagePlan
    staged: StagedSet


def finalize_set(
    store: Store, paths: FamilyPaths, plan: FinalPlan, folder: Path, *, now: str, output: Path | None = None
) -> FinalizedSet:
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
    with lock_folder(folder, purpose=f"finalizing {plan.document.id}", error=ReleaseError):
        written = tuple(write_final_wheels(store, paths, plan, folder))
        staged_plan = plan_final_stage(paths, plan, written)
        staged = stage_set(store, staged_plan, now=now)
        update_listing(store, paths)
        if output is not None:
            for written_wheel in written:
                _copy_wheel(written_wheel.path, output / written_wheel.change.name)
    shutil.rmtree(folder)  # not while its lock is open: Windows removes no open file
    return FinalizedSet(written, staged_plan, staged)


def _copy_wheel(wheel: Path, target: Path) -> None:
    try:
        copy_atomically(wheel, target)
    except OSError as failure:
        tip = f"the set is staged; name another --output-dir, then {RUN_AGAIN_TIP}"
        raise ReleaseError(f"cannot write {target}: {failure.strerror or failure}", tip=tip) from failure


def plan_final_stage(paths: FamilyPaths, plan: FinalPlan, written: tuple[WrittenWheel, ...]) -> StagePlan:
    """Return the new set as it will be staged: all of it is read and checked as any other."""
    return plan_stage(
        [written_wheel.path for written_wheel in written],
        plan.locks,
        paths=paths,
        layout=plan.document.layout,
        version=plan.version,
        origin=plan.document.id,
        renamed=plan.renamed,
        targets=plan.targets,
    )

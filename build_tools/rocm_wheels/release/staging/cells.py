"""What a set should hold, by its locks, and what of it is missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rocm_wheels.model.gfx import base_target, gfx_families, parse_targets
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.project import Project
from rocm_wheels.release.sets import Cell, Kind, planned_cells
from rocm_wheels.release.staging.belonging import Sources, owner, projects_of
from rocm_wheels.release.staging.wheel import StagedWheel, accepts, python_of


@dataclass(frozen=True)
class Planned:
    """The cells of a set, and those that no wheel fills."""

    planned: tuple[Cell, ...]
    missing: tuple[Cell, ...]


def plan_cells(
    sources: Sources,
    family: str,
    layout: Kind,
    wheels: Sequence[StagedWheel],
    meant: Collection[str] = (),
) -> Planned:
    """Return what the set of its locks should hold. What a lock leaves open is as the wheels have it.

    Of targets, only the ``meant`` count where there are any.

    A target counts where the recipe has a library with code for all targets. A wheel whose code was moved out
    has the targets of its parts (``…-device-…``). Of several locks, each wants wheels for its own ROCm;
    one that serves any ROCm is enough for all.
    """
    planned: dict[Cell, None] = {}
    missing: dict[Cell, None] = {}
    for source in sources.all:
        rocm = (source.rocm or "") if sources.several else ""
        usable = [one for one in wheels if not rocm or one.file.for_any_rocm or sources.rocm_of(one) == rocm]
        own = sources.wheels_of(source, wheels)
        by_name = {
            str(canonicalize_name(project.distribution)): project for project in projects_of(source.lock)
        }
        for cell in _cells(source.lock, family, layout, wheels, own):
            if meant and cell.target and cell.target not in meant:
                continue
            found = cell.model_copy(update={"rocm": rocm})
            planned[found] = None
            if not _is_there(cell, by_name[cell.project], usable):
                missing[found] = None
    return Planned(tuple(planned), tuple(missing))


def _cells(
    lock: Lock, family: str, layout: Kind, wheels: Sequence[StagedWheel], own: Sequence[StagedWheel]
) -> tuple[Cell, ...]:
    targets = targets_for(lock, family, layout) or sorted(
        {one for wheel in own for one in wheel.file.targets}
    )
    pythons = lock.pythons or {python for wheel in wheels if (python := python_of(wheel.tags))}
    wanted = [(project.distribution, _for_all_targets(project, lock)) for project in projects_of(lock)]
    return planned_cells(wanted, sorted(pythons), targets)


def targets_for(lock: Lock, family: str, layout: Kind) -> list[str]:
    """Return the targets that a lock wants wheels of a set for; [] where it leaves that open."""
    said = parse_targets(",".join(lock.targets)) if lock.targets else ()
    bases = list(dict.fromkeys(base_target(target) for target in said))
    if layout != "per-family":
        return bases
    own = gfx_families()[family]
    return [target for target in bases if target in own] or ([] if bases else list(own))


def _for_all_targets(project: Project, lock: Lock) -> bool:
    return any(rule.expect == "all" and rule.required for rule in project.device_code(lock.platform))


def _is_there(cell: Cell, project: Project, wheels: Sequence[StagedWheel]) -> bool:
    for wheel in wheels:
        if wheel.file.project != cell.project or not accepts(wheel.tags, cell.python):
            continue
        parts = [wheel]
        if wheel.elsewhere:
            parts += [one for one in wheels if owner(one, [project]) and accepts(one.tags, cell.python)]
        if not cell.target or any(cell.target in part.file.targets for part in parts):
            return True
    return False

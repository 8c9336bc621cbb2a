"""What a set should hold, by its lock, and what of it is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rocm_wheels.model.gfx import base_target, gfx_families, parse_targets
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.project import Project, build_order, load_project
from rocm_wheels.release.sets import Cell, Kind, planned_cells
from rocm_wheels.release.staging.wheel import StagedWheel, accepts, python_of


@dataclass(frozen=True)
class Planned:
    """The cells of a set, and those that no wheel fills."""

    planned: tuple[Cell, ...]
    missing: tuple[Cell, ...]


def projects_of(lock: Lock) -> list[Project]:
    """Return the recipes of all that a lock builds on its platform, in the order of their builds."""
    known = build_order(load_project(name) for name in lock.projects)
    return [project for project in known if lock.platform in project.build.platforms]


def owner(wheel: StagedWheel, projects: Sequence[Project]) -> Project | None:
    """Return the recipe that a wheel is of: by its name, or as a part of it (``torch-device-gfx942``)."""
    for project in projects:
        name = canonicalize_name(project.distribution)
        if wheel.file.project == name or wheel.file.project.startswith(f"{name}-device-"):
            return project
    return None


def plan_cells(lock: Lock, family: str, layout: Kind, wheels: Sequence[StagedWheel]) -> Planned:
    """Return what the set of a lock should hold. What the lock leaves open is as the wheels have it.

    A target counts where the recipe has a library with code for all targets. A wheel whose code was moved out
    has the targets of its parts (``…-device-…``).
    """
    projects = projects_of(lock)
    targets = _targets(lock, family, layout) or sorted(
        {one for wheel in wheels for one in wheel.file.targets}
    )
    pythons = lock.pythons or {python for wheel in wheels if (python := python_of(wheel.tags))}
    wanted = [(project.distribution, _for_all_targets(project, lock)) for project in projects]
    planned = planned_cells(wanted, sorted(pythons), targets)
    by_name = {str(canonicalize_name(project.distribution)): project for project in projects}
    missing = tuple(cell for cell in planned if not _is_there(cell, by_name[cell.project], wheels))
    return Planned(planned, missing)


def _targets(lock: Lock, family: str, layout: Kind) -> list[str]:
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

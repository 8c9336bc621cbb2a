"""What a set should hold, by its locks, and what of it is missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rocm_wheels.model.gfx import strip_features, get_gfx_families, parse_targets
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.project import Project
from rocm_wheels.release.sets import SetCell, SetLayout, make_planned_cells
from rocm_wheels.release.staging.belonging import SetSources, find_wheel_recipe, list_lock_projects
from rocm_wheels.release.staging.wheel import StagedWheel, accepts_python, find_single_python


@dataclass(frozen=True)
class PlannedCells:
    """The cells of a set, and those that no wheel fills."""

    planned: tuple[SetCell, ...]
    missing: tuple[SetCell, ...]


def plan_cells(
    sources: SetSources,
    family: str,
    layout: SetLayout,
    wheels: Sequence[StagedWheel],
    only_targets: Collection[str] = (),
) -> PlannedCells:
    """Return what the set of its locks should hold. What a lock leaves open is as the wheels have it.

    Of targets, only the ``only_targets`` count where there are any.

    A target counts where the recipe has a library with code for all targets. A wheel whose code was moved out
    has the targets of its parts (``…-device-…``). Of several locks, each wants wheels for its own ROCm;
    one that serves any ROCm is enough for all.
    """
    planned: dict[SetCell, None] = {}
    missing: dict[SetCell, None] = {}
    for source in sources.all:
        rocm = (source.rocm or "") if sources.has_several else ""
        usable = [
            wheel for wheel in wheels if not rocm or wheel.file.for_any_rocm or sources.rocm_of(wheel) == rocm
        ]
        source_wheels = sources.wheels_of(source, wheels)
        by_name = {
            str(canonicalize_name(project.distribution)): project
            for project in list_lock_projects(source.lock)
        }
        for cell in _list_cells(source.lock, family, layout, wheels, source_wheels):
            if only_targets and cell.target and cell.target not in only_targets:
                continue
            rocm_cell = cell.model_copy(update={"rocm": rocm})
            planned[rocm_cell] = None
            if not _is_filled(cell, by_name[cell.project], usable):
                missing[rocm_cell] = None
    return PlannedCells(tuple(planned), tuple(missing))


def _list_cells(
    lock: Lock,
    family: str,
    layout: SetLayout,
    wheels: Sequence[StagedWheel],
    source_wheels: Sequence[StagedWheel],
) -> tuple[SetCell, ...]:
    targets = list_lock_targets(lock, family, layout) or sorted(
        {target for wheel in source_wheels for target in wheel.file.targets}
    )
    pythons = lock.pythons or {python for wheel in wheels if (python := find_single_python(wheel.tags))}
    expected_projects = [
        (project.distribution, _has_code_for_all_targets(project, lock))
        for project in list_lock_projects(lock)
    ]
    return make_planned_cells(expected_projects, sorted(pythons), targets)


def list_lock_targets(lock: Lock, family: str, layout: SetLayout) -> list[str]:
    """Return the targets that a lock wants wheels of a set for; [] where it leaves that open."""
    lock_targets = parse_targets(",".join(lock.targets)) if lock.targets else ()
    bases = list(dict.fromkeys(strip_features(target) for target in lock_targets))
    if layout != "per-family":
        return bases
    family_targets = get_gfx_families()[family]
    return [target for target in bases if target in family_targets] or ([] if bases else list(family_targets))


def _has_code_for_all_targets(project: Project, lock: Lock) -> bool:
    return any(
        rule.expect == "all" and rule.required for rule in project.list_device_code_rules(lock.platform)
    )


def _is_filled(cell: SetCell, project: Project, wheels: Sequence[StagedWheel]) -> bool:
    for wheel in wheels:
        if wheel.file.project != cell.project or not accepts_python(wheel.tags, cell.python):
            continue
        parts = [wheel]
        if wheel.elsewhere:
            parts += [
                candidate
                for candidate in wheels
                if find_wheel_recipe(candidate, [project]) and accepts_python(candidate.tags, cell.python)
            ]
        if not cell.target or any(cell.target in part.file.targets for part in parts):
            return True
    return False

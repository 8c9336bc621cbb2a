"""A lock brought up to date: the refs of some of its projects resolved again, the others left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.lock import Lock, LockedProject
from rocm_wheels.model.names import get_option_name
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.records import suggest_name
from rocm_wheels.sources.lock.look import CommitFiles
from rocm_wheels.sources.lock.resolve import ProjectToLock, resolve_projects
from rocm_wheels.sources.network.remote import is_commit
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet, choose_patch_set
from rocm_wheels.sources.pins.choose import Pin, find_pin
from rocm_wheels.sources.pins.files import TreeFiles

_OTHER_ORIGIN = "; origin: --"  # in `why`, where an option named the repository of a pinned commit


@dataclass(frozen=True)
class PinDrift:
    """A project whose pin in torch's new commit (``pin``) is another commit than the lock has."""

    name: str
    locked: str
    pin: Pin


@dataclass(frozen=True)
class UpdatedLock:
    """The new lock, and what torch's new commit pins otherwise than it."""

    lock: Lock
    drifts: tuple[PinDrift, ...]


def update_lock(
    lock: Lock,
    names: Sequence[str],
    *,
    torch: str,
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: Transport,
) -> UpdatedLock:
    """Resolve the refs of ``names`` again; ``torch`` is the project that pins others.

    A project that was pinned takes what the lock's torch pins, one that was locked by a ref what that
    ref is now. A patch set is read again from ``patches`` by its name. Raises UsageError for a project
    that is not in the lock, SourceError for a pin that is gone.
    """
    for name in names:
        if name not in lock.projects:
            raise UsageError(
                f"{name} is not in the lock{suggest_name(name, lock.projects)}",
                tip=f"it has: {', '.join(lock.projects)}",
            )
    items = [_plan_update(lock.projects[name], load_project(name), lock.platform, patches) for name in names]
    torch_item = next((item for item in items if item.project.name == torch), None) or _plan_locked_torch(
        lock, torch
    )
    if torch_item is None:
        if unpinned := [item.project.name for item in items if item.reads_torch]:
            raise UsageError(
                f"{' and '.join(unpinned)}: the lock has no {torch}, whose commit pinned them",
                tip=f"make the lock again, with --{get_option_name(unpinned[0])}-ref for a ref of your own",
            )
        torch_item = items[0]
    resolved = resolve_projects(
        items,
        torch_item,
        platform=lock.platform,
        checkouts=checkouts,
        env=env,
        transport=transport,
    )
    projects = {**lock.projects, **resolved.projects}
    named = projects[torch].version if lock.named_torch is not None and torch in names else lock.named_torch
    new = lock.model_copy(update={"projects": projects, "named_torch": named})
    moved = torch in names and new.projects[torch].commit != lock.projects[torch].commit
    return UpdatedLock(
        new, _list_drifts(new, names, resolved.torch) if moved and resolved.torch is not None else ()
    )


def _plan_update(locked: LockedProject, project: Project, platform: Platform, patches: Path) -> ProjectToLock:
    if not locked.pinned and is_commit(locked.ref):
        log.log_note(f"{project.name} stays: a commit was asked for ({locked.why})")
    choose = partial(_choose_updated_pin, locked, project, platform)
    return ProjectToLock(project, choose, locked.pinned, partial(_reread_patch_set, locked, project, patches))


def _plan_locked_torch(lock: Lock, torch: str) -> ProjectToLock | None:
    """Return torch as it is in the lock, to read its pins."""
    locked = lock.projects.get(torch)
    if locked is None:
        return None
    pin = Pin(locked.origin, locked.commit, "as locked")
    return ProjectToLock(load_project(torch), lambda _: pin, False, lambda _: None)


def _choose_updated_pin(
    locked: LockedProject, project: Project, platform: Platform, torch: TreeFiles | None
) -> Pin:
    if not locked.pinned:
        return Pin(locked.origin, locked.ref, locked.why)
    option = f"--{get_option_name(project.name)}-ref"
    pin, missing = find_pin(project.source.get_platform_source(platform), torch, option=option)
    if pin is None:
        raise SourceError(
            f"{project.name} is pinned in the lock, but no longer by torch: {missing}",
            tip=f"make the lock again, with {option} for a ref of your own",
        )
    _, separator, suffix = locked.why.rpartition(_OTHER_ORIGIN)
    if separator:
        return Pin(locked.origin, pin.ref, f"{pin.why}{separator}{suffix}", pinned=True)
    return pin


def _reread_patch_set(locked: LockedProject, project: Project, patches: Path, ref: str) -> PatchSet | None:
    if locked.patches is None:
        return None
    return choose_patch_set(project.name, ref, patches, name=locked.patches.name)


def _list_drifts(lock: Lock, names: Sequence[str], torch: CommitFiles) -> tuple[PinDrift, ...]:
    drifts = []
    for name, locked in lock.projects.items():
        if name not in names:
            pin, _ = find_pin(load_project(name).source.get_platform_source(lock.platform), torch)
            if pin is not None and pin.ref != locked.commit:
                drifts.append(PinDrift(name, locked.commit, pin))
    return tuple(drifts)

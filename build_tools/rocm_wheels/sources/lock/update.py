"""A lock brought up to date: the refs of some of its projects resolved again, the others left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.lock import Lock, LockedProject
from rocm_wheels.model.names import option_name
from rocm_wheels.model.project import Platform, Project, load_project
from rocm_wheels.records import did_you_mean
from rocm_wheels.sources.lock.look import CommitFiles
from rocm_wheels.sources.lock.resolve import Wanted, resolve
from rocm_wheels.sources.network.remote import is_commit
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet, choose_set
from rocm_wheels.sources.pins.choose import Pin, look_for_pin
from rocm_wheels.sources.pins.files import TreeFiles

_ANOTHER_PLACE = "; origin: --"  # in `why`, where an option named the repository of a pinned commit


@dataclass(frozen=True)
class Drift:
    """A project whose pin in torch's new commit (``pin``) is another commit than the lock has."""

    name: str
    locked: str
    pin: Pin


@dataclass(frozen=True)
class Updated:
    """The new lock, and what torch's new commit pins otherwise than it."""

    lock: Lock
    drifts: tuple[Drift, ...]


def update_lock(
    lock: Lock,
    names: Sequence[str],
    *,
    torch: str,
    checkouts: Path | None,
    patches: Path,
    env: Mapping[str, str],
    transport: Transport,
) -> Updated:
    """Resolve the refs of ``names`` again; ``torch`` is the project that pins others.

    A project that was pinned takes what the lock's torch pins, one that was locked by a ref what that
    ref is now. A patch set is read again from ``patches`` by its name. Raises UsageError for a project
    that is not in the lock, SourceError for a pin that is gone.
    """
    for name in names:
        if name not in lock.projects:
            raise UsageError(
                f"{name} is not in the lock{did_you_mean(name, lock.projects)}",
                tip=f"it has: {', '.join(lock.projects)}",
            )
    wanted = [_wanted(lock.projects[name], load_project(name), lock.platform, patches) for name in names]
    own = next((one for one in wanted if one.project.name == torch), None) or _as_locked(lock, torch)
    if own is None:
        if needy := [one.project.name for one in wanted if one.reads_torch]:
            raise UsageError(
                f"{' and '.join(needy)}: the lock has no {torch}, whose commit pinned them",
                tip=f"make the lock again, with --{option_name(needy[0])}-ref for a ref of your own",
            )
        own = wanted[0]
    found = resolve(
        wanted,
        own,
        platform=lock.platform,
        checkouts=checkouts,
        env=env,
        transport=transport,
    )
    projects = {**lock.projects, **found.projects}
    named = projects[torch].version if lock.named_torch is not None and torch in names else lock.named_torch
    new = lock.model_copy(update={"projects": projects, "named_torch": named})
    moved = torch in names and new.projects[torch].commit != lock.projects[torch].commit
    return Updated(new, _drifts(new, names, found.torch) if moved and found.torch is not None else ())


def _wanted(locked: LockedProject, project: Project, platform: Platform, patches: Path) -> Wanted:
    if not locked.pinned and is_commit(locked.ref):
        log.note(f"{project.name} stays: a commit was asked for ({locked.why})")
    choose = partial(_pin, locked, project, platform)
    return Wanted(project, choose, locked.pinned, partial(_patch_set, locked, project, patches))


def _as_locked(lock: Lock, torch: str) -> Wanted | None:
    """Return torch as it is in the lock, to read its pins."""
    locked = lock.projects.get(torch)
    if locked is None:
        return None
    pin = Pin(locked.origin, locked.commit, "as locked")
    return Wanted(load_project(torch), lambda _: pin, False, lambda _: None)


def _pin(locked: LockedProject, project: Project, platform: Platform, torch: TreeFiles | None) -> Pin:
    if not locked.pinned:
        return Pin(locked.origin, locked.ref, locked.why)
    option = f"--{option_name(project.name)}-ref"
    pin, missing = look_for_pin(project.source.on(platform), torch, option=option)
    if pin is None:
        raise SourceError(
            f"{project.name} is pinned in the lock, but no longer by torch: {missing}",
            tip=f"make the lock again, with {option} for a ref of your own",
        )
    _, marked, place = locked.why.rpartition(_ANOTHER_PLACE)
    if marked:
        return Pin(locked.origin, pin.ref, f"{pin.why}{marked}{place}", pinned=True)
    return pin


def _patch_set(locked: LockedProject, project: Project, patches: Path, ref: str) -> PatchSet | None:
    if locked.patches is None:
        return None
    return choose_set(project.name, ref, patches, name=locked.patches.name)


def _drifts(lock: Lock, names: Sequence[str], torch: CommitFiles) -> tuple[Drift, ...]:
    found = []
    for name, locked in lock.projects.items():
        if name not in names:
            pin, _ = look_for_pin(load_project(name).source.on(lock.platform), torch)
            if pin is not None and pin.ref != locked.commit:
                found.append(Drift(name, locked.commit, pin))
    return tuple(found)

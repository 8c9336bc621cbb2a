"""What a lock makes of a checkout: its pin, its patch set, and whether a tree is what the lock says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.lock import Lock, LockedProject
from rocm_wheels.model.project import Platform
from rocm_wheels.shell import shell_line
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.lock.file import read_lock
from rocm_wheels.sources.patches.sets import PatchSet, line_of, lines_of, read_patch_set
from rocm_wheels.sources.pins.choose import Pin
from rocm_wheels.sources.state import State

if TYPE_CHECKING:  # a build has a lock, and no use for all that a checkout needs
    from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult

_SHOWN = 3


@dataclass(frozen=True)
class LockFile:
    """A lock and the file that it was read from."""

    path: Path
    lock: Lock

    def project(self, name: str) -> LockedProject:
        """Return what the lock says of a project. Raises UsageError where it says nothing."""
        if name not in self.lock.projects:
            raise UsageError(
                f"{self.path} has no {name}; it has {', '.join(self.lock.projects)}",
                tip="make the lock with it (`rocm-wheels lock`), or leave the project out",
            )
        return self.lock.projects[name]

    def update(self, name: str) -> str:
        """Return the command that brings the lock up to date with a project."""
        return f"`{shell_line(['rocm-wheels', 'lock', 'update', self.path, name])}`"


def open_lock(path: Path, platform: Platform) -> LockFile:
    """Read a lock for use on ``platform``. Raises DataError, and UsageError for a lock of another one."""
    lock = read_lock(path)
    if lock.platform != platform:
        raise UsageError(
            f"{path} is a lock for {lock.platform}, and this is {platform}",
            tip=f"make one for {platform} with `rocm-wheels lock`",
        )
    return LockFile(path, lock)


def locked_pin(file: LockFile, name: str, *, origin: str | None = None) -> Pin:
    """Return the locked commit; ``origin``, the option's, is another place for it."""
    locked = file.project(name)
    why = f"lock {file.path}"
    if origin is not None:
        why += "; origin: --gitrepo-origin"
    return Pin(origin or locked.origin, locked.ref, why, locked.commit)


def locked_patches(file: LockFile, name: str, folder: Path) -> PatchSet | None:
    """Return the patch set that the lock names, ``None`` where it names none.

    ``folder`` holds a folder a project. Raises SourceError when the set is not the locked one.
    """
    locked = file.project(name)
    if locked.patches is None:
        if there := line_of(locked.ref if file.lock.line is None else file.lock.line, lines_of(name, folder)):
            log.note(f"no patches: {file.path} says so; {folder / name / there} is left out")
        return None
    found = read_patch_set(folder / name / locked.patches.name)
    if found.digest != locked.patches.digest:
        what = f"has the digest {found.digest}" if found.digest else "has no patches"
        raise SourceError(
            f"the patch set {found.folder} {what}, and {file.path} says {locked.patches.digest}",
            tip=f"bring the set back, or take it as it is now with {file.update(name)}",
        )
    return found


def check_checkout(
    file: LockFile, request: CheckoutRequest, result: CheckoutResult, *, env: Mapping[str, str]
) -> None:
    """Compare a tree that was just checked out with what the lock says of it.

    Raises SourceError: the commit is the locked one, so that it is the lock that is wrong.
    """
    locked, tree, found = file.project(request.project.name), result.tree, []
    if locked.tree is not None and tree is None:
        tree = Git(result.directory, env).text("rev-parse", f"{locked.commit}^{{tree}}")
    if locked.tree not in (None, tree):
        found.append(f"the files of {locked.commit[:12]} are the tree {tree}, not {locked.tree}")
    if request.submodules:
        found += _other_submodules(locked, result.state)
    elif locked.submodules:
        log.note(f"--no-submodules: the {len(locked.submodules)} in {file.path} are left out")
    if found:
        raise SourceError(
            f"{result.directory} is at the locked commit, but {file.path} says something else of it:"
            + "".join(f"\n  {line}" for line in found),
            tip=f"somebody changed the lock by hand; {file.update(request.project.name)} makes it right",
        )


def differences(locked: LockedProject, state: State | None) -> list[str]:
    """Say in what a tree is not what the lock says; ``state`` is its checkout's, if it is one of ours."""
    if state is None:
        return ["it was not checked out by rocm-wheels, and may be anything"]
    if state.operation is not None:
        return [f"its {state.operation} was interrupted"]
    if state.upstream != locked.commit:
        return [f"it is at {state.upstream}, not {locked.commit} ({locked.ref})"]
    found = []
    wanted = "" if locked.patches is None else locked.patches.digest
    if state.patches != wanted:
        found.append(f"its patches are {_patches(state)}, not {_locked_patches(locked)}")
    if not state.submodules and locked.submodules:
        found.append("it was checked out without its submodules")
    else:
        found += _other_submodules(locked, state)
    return found


def _patches(state: State) -> str:
    return f"{state.patch_set} ({state.patches[:12]})" if state.patches else "none"


def _locked_patches(locked: LockedProject) -> str:
    return "none" if locked.patches is None else f"{locked.patches.name} ({locked.patches.digest[:12]})"


def _other_submodules(locked: LockedProject, state: State) -> list[str]:
    """Say which submodules are at other commits; nothing where the lock does not name them."""
    if locked.submodules is None:
        return []
    there = {path: left.upstream for path, left in state.left.items() if path}
    wanted = {path: submodule.commit for path, submodule in locked.submodules.items()}
    lines = [
        f"submodule {path} is {there.get(path, 'not there')}, not {wanted.get(path, 'there')}"
        for path in sorted({*there, *wanted})
        if there.get(path) != wanted.get(path)
    ]
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more submodules"]

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
from rocm_wheels.shell import format_command
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.lock.file import read_lock
from rocm_wheels.sources.patches.sets import PatchSet, match_line, list_lines, read_patch_set
from rocm_wheels.sources.pins.choose import Pin
from rocm_wheels.sources.state import CheckoutState

if TYPE_CHECKING:  # a build has a lock, and no use for all that a checkout needs
    from rocm_wheels.sources.request import CheckoutRequest, CheckoutResult

_MOST_SHOWN = 3


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

    def update_command(self, name: str) -> str:
        """Return the command that brings the lock up to date with a project."""
        return f"`{format_command(['rocm-wheels', 'lock', 'update', self.path, name])}`"


def open_lock(path: Path, platform: Platform) -> LockFile:
    """Read a lock for use on ``platform``. Raises DataError, and UsageError for a lock of another one."""
    lock = read_lock(path)
    if lock.platform != platform:
        raise UsageError(
            f"{path} is a lock for {lock.platform}, and this is {platform}",
            tip=f"make one for {platform} with `rocm-wheels lock`",
        )
    return LockFile(path, lock)


def read_locked_pin(file: LockFile, name: str, *, origin: str | None = None) -> Pin:
    """Return the locked commit; ``origin``, the option's, is another place for it."""
    locked = file.project(name)
    why = f"lock {file.path}"
    if origin is not None:
        why += "; origin: --gitrepo-origin"
    return Pin(origin or locked.origin, locked.ref, why, locked.commit)


def read_locked_patches(file: LockFile, name: str, folder: Path) -> PatchSet | None:
    """Return the patch set that the lock names, ``None`` where it names none.

    ``folder`` holds a folder a project. Raises SourceError when the set is not the locked one.
    """
    locked = file.project(name)
    if locked.patches is None:
        if line := match_line(
            locked.ref if file.lock.line is None else file.lock.line, list_lines(name, folder)
        ):
            log.log_note(f"no patches: {file.path} says so; {folder / name / line} is left out")
        return None
    patch_set = read_patch_set(folder / name / locked.patches.name)
    if patch_set.digest != locked.patches.digest:
        fault = f"has the digest {patch_set.digest}" if patch_set.digest else "has no patches"
        raise SourceError(
            f"the patch set {patch_set.folder} {fault}, and {file.path} says {locked.patches.digest}",
            tip=f"bring the set back, or take it as it is now with {file.update_command(name)}",
        )
    return patch_set


def check_checkout(
    file: LockFile, request: CheckoutRequest, result: CheckoutResult, *, env: Mapping[str, str]
) -> None:
    """Compare a tree that was just checked out with what the lock says of it.

    Raises SourceError: the commit is the locked one, so that it is the lock that is wrong.
    """
    locked, tree, faults = file.project(request.project.name), result.tree, []
    if locked.tree is not None and tree is None:
        tree = Git(result.directory, env).text("rev-parse", f"{locked.commit}^{{tree}}")
    if locked.tree not in (None, tree):
        faults.append(f"the files of {locked.commit[:12]} are the tree {tree}, not {locked.tree}")
    if request.submodules:
        faults += _compare_submodules(locked, result.state)
    elif locked.submodules:
        log.log_note(f"--no-submodules: the {len(locked.submodules)} in {file.path} are left out")
    if faults:
        raise SourceError(
            f"{result.directory} is at the locked commit, but {file.path} says something else of it:"
            + "".join(f"\n  {line}" for line in faults),
            tip=f"somebody changed the lock by hand; {file.update_command(request.project.name)} makes it right",
        )


def compare_with_lock(locked: LockedProject, state: CheckoutState | None) -> list[str]:
    """Say in what a tree is not what the lock says; ``state`` is its checkout's, if it is one of ours."""
    if state is None:
        return ["it was not checked out by rocm-wheels, and may be anything"]
    if state.operation is not None:
        return [f"its {state.operation} was interrupted"]
    if state.upstream != locked.commit:
        return [f"it is at {state.upstream}, not {locked.commit} ({locked.ref})"]
    faults = []
    digest = "" if locked.patches is None else locked.patches.digest
    if state.patches != digest:
        faults.append(f"its patches are {_describe_patches(state)}, not {_describe_locked_patches(locked)}")
    if not state.submodules and locked.submodules:
        faults.append("it was checked out without its submodules")
    else:
        faults += _compare_submodules(locked, state)
    return faults


def _describe_patches(state: CheckoutState) -> str:
    return f"{state.patch_set} ({state.patches[:12]})" if state.patches else "none"


def _describe_locked_patches(locked: LockedProject) -> str:
    return "none" if locked.patches is None else f"{locked.patches.name} ({locked.patches.digest[:12]})"


def _compare_submodules(locked: LockedProject, state: CheckoutState) -> list[str]:
    """Say which submodules are at other commits; nothing where the lock does not name them."""
    if locked.submodules is None:
        return []
    actual = {path: recorded.upstream for path, recorded in state.left.items() if path}
    expected = {path: submodule.commit for path, submodule in locked.submodules.items()}
    lines = [
        f"submodule {path} is {actual.get(path, 'not there')}, not {expected.get(path, 'there')}"
        for path in sorted({*actual, *expected})
        if actual.get(path) != expected.get(path)
    ]
    more = len(lines) - _MOST_SHOWN
    return lines if more <= 0 else [*lines[:_MOST_SHOWN], f"and {more} more submodules"]

"""The folder that a checkout is made in.

A tree that is not there yet is made beside, in a hidden folder, and gets its name when it is whole. A run
that is killed leaves the hidden folder, with which the next one carries on. A folder that is there, though
empty, is somebody's (a mount, a shell's own): it is filled as it stands.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rocm_wheels.core import SourceError, UsageError, lock_folder, log_note
from rocm_wheels.sources.checkout_state import OWN_FOLDER
from rocm_wheels.sources.pins import ONE_PROJECT_OPTIONS

# without one of these git sees no repository: `git init` was killed
REPOSITORY_NAMES = frozenset({"HEAD", "objects", "refs"})


def find_existing_folder(directory: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(folder for folder in (directory, *directory.parents) if folder.is_dir())


def is_fresh_folder(directory: Path, option: str = ONE_PROJECT_OPTIONS.folder) -> bool:
    """Tell whether nothing is in the folder yet (or only a beginning of ours, killed at once)."""
    above = find_existing_folder(directory)
    if above != directory:
        missing = next(path for path in (directory, *directory.parents) if path.parent == above)
        if missing.is_dir():  # made by another checkout, this moment
            return is_fresh_folder(directory, option)
        if os.path.lexists(missing):
            raise SourceError(f"{missing} is not a folder", tip=f"name another one with {option}")
        return True
    names = {entry.name for entry in directory.iterdir()}
    if names <= {".git"}:
        inner = (
            {entry.name for entry in (directory / ".git").iterdir()}
            if (directory / ".git").is_dir()
            else set()
        )
        return not names or (OWN_FOLDER in inner and not inner >= REPOSITORY_NAMES)
    if ".git" not in names:
        raise SourceError(
            f"{directory} is not empty and not a git checkout",
            tip=f"name another folder with {option}, or move this one away",
        )
    return False


def locate_unfinished(directory: Path) -> Path:
    """Return the hidden folder in which a tree is while it is made for the first time."""
    return directory.parent / f".{directory.name}.unfinished"


@contextmanager
def hold_new_folder(directory: Path, *, purpose: str) -> Iterator[Path]:
    """Give the folder to check out into: ``directory`` where it is there, else one beside.

    That one gets the name of ``directory`` at the end. After a failure what has come stays in it. Raises
    UsageError while another run makes the same tree.
    """
    unfinished = locate_unfinished(directory)
    if os.path.lexists(directory):
        _remove_unfinished(unfinished)
        yield directory
        return
    created = [folder for folder in directory.parents if not os.path.lexists(folder)]
    tree = unfinished / directory.name
    try:
        with lock_folder(unfinished, purpose=purpose):
            try:
                if os.path.lexists(directory):  # another run has just made it
                    yield directory
                else:
                    yield tree
                    _rename_tree(tree, directory)
            finally:
                if not tree.exists():
                    shutil.rmtree(unfinished, ignore_errors=True)  # Windows keeps the lock's file
    except BaseException:
        if tree.exists():
            log_note(f"what has come is kept in {unfinished}; the same command carries on with it")
        raise
    finally:
        remove_empty_folders(created)


def _rename_tree(tree: Path, directory: Path) -> None:
    try:
        tree.rename(directory)
    except OSError as failure:
        raise SourceError(
            f"{directory} came into being while it was checked out ({failure.strerror})",
            tip="move it away, then run the same command again",
        ) from failure


def _remove_unfinished(unfinished: Path) -> None:
    """Remove what a killed run had begun, once its tree was made in another way."""
    if unfinished.is_dir():
        with suppress(UsageError), lock_folder(unfinished, purpose="removing it"):
            shutil.rmtree(unfinished)


def remove_empty_folders(folders: Sequence[Path]) -> None:
    """Remove folders, inner ones first, up to the first that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


@contextmanager
def ensure_folder(folder: Path) -> Iterator[None]:
    """Have a folder, and take it back when nothing has come into it.

    Those who work in it side by side must not find it gone because one of them failed.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    above = created[-1].parent if created else folder
    for path in (*created, above):
        if os.path.lexists(path) and not path.is_dir():
            raise SourceError(f"{path} is not a folder", tip="name another one with --repo")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        remove_empty_folders(created)

"""The folder of a checkout: is anything in it, and what becomes of one that was made for nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.state import OWN_FOLDER

# without one of these git sees no repository: `git init` was killed
REPOSITORY_NAMES = frozenset({"HEAD", "objects", "refs"})


def find_existing_folder(directory: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(folder for folder in (directory, *directory.parents) if folder.is_dir())


def is_fresh_folder(directory: Path) -> bool:
    """Tell whether nothing is in the folder yet (or only a beginning of ours, killed at once)."""
    above = find_existing_folder(directory)
    if above != directory:
        missing = next(path for path in (directory, *directory.parents) if path.parent == above)
        if missing.is_dir():  # made by another checkout, this moment
            return is_fresh_folder(directory)
        if os.path.lexists(missing):
            raise SourceError(f"{missing} is not a folder", tip="name another one with --checkout-dir")
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
            tip="name another folder with --checkout-dir, or move this one away",
        )
    return False


def make_repository_folder(git_dir: Path) -> list[Path]:
    """Make the folder of a new repository; return it and those above that were missing, inner ones first."""
    created = [git_dir, *(folder for folder in git_dir.parents if not os.path.lexists(folder))]
    (git_dir / OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    return created


def remove_created_folders(created: Sequence[Path], directory: Path) -> None:
    """Remove the folders made for a repository; those above its ``directory`` only while they are empty.

    Another checkout may have come into them meanwhile.
    """
    inside = [folder for folder in created if folder.is_relative_to(directory)]
    if inside:
        shutil.rmtree(inside[-1])
    for folder in created[len(inside) :]:
        try:
            folder.rmdir()
        except OSError:
            return

"""Where build trees wait for their turn: below the repository of the source that they were built in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.generated import ask_git, exclude_from_git

_HIDDEN_FOLDER = ".rocm-wheels"


def find_parking_folder(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; nothing is made there.

    It is on the source's file system: in git's own folder for this checkout (a worktree and a submodule
    have theirs), else in a hidden folder of the source: for a folder that is no checkout of its own,
    and where git's folder is on another file system.
    """
    answer = ask_git(source, env, "rev-parse", "--show-prefix", "--absolute-git-dir")
    prefix, _, git_folder = answer.partition("\n")
    if git_folder and not prefix and Path(git_folder).stat().st_dev == source.stat().st_dev:
        return Path(git_folder) / "rocm-wheels" / "trees"
    return source / _HIDDEN_FOLDER / "trees"


def prepare_parking_folder(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; git is told not to see it inside the source."""
    parking = find_parking_folder(source, env)
    if parking.is_relative_to(source / _HIDDEN_FOLDER):
        exclude_from_git(source, [f"{_HIDDEN_FOLDER}/"], env)
    return parking

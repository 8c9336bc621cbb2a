"""Where build trees wait for their turn: below the repository of the source that they were built in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.generated import ask_git, exclude

_HIDDEN = ".rocm-wheels"


def waiting_place(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; nothing is made there.

    It is on the source's file system: in git's own folder for this checkout (a worktree and a submodule
    have theirs), else in a hidden folder of the source: for a folder that is no checkout of its own,
    and where git's folder is on another file system.
    """
    said = ask_git(source, env, "rev-parse", "--show-prefix", "--absolute-git-dir")
    prefix, _, place = said.partition("\n")
    if place and not prefix and Path(place).stat().st_dev == source.stat().st_dev:
        return Path(place) / "rocm-wheels" / "trees"
    return source / _HIDDEN / "trees"


def trees_of(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; git is told not to see it inside the source."""
    place = waiting_place(source, env)
    if place.is_relative_to(source / _HIDDEN):
        exclude(source, [f"{_HIDDEN}/"], env)
    return place

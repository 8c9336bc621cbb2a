"""Where build trees wait for their turn: below the repository of the source that they were built in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.compile.generated import ask_git, exclude
from rocm_wheels.compile.trees.state import KEY_FILE, State
from rocm_wheels.errors import BuildError
from rocm_wheels.model.project import Project

_HIDDEN = ".rocm-wheels"
_GOING = ".going-"  # a tree that is being deleted


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


@dataclass(frozen=True)
class WaitingTree:
    """A build tree that waits. ``parts`` say what it was built for; ``used``: when it was last entered."""

    path: Path
    name: str
    parts: Mapping[str, str]
    used: float


def list_trees(source: Path, project: Project, env: Mapping[str, str]) -> tuple[WaitingTree, ...]:
    """Return the trees of a project that wait, the one used last first. Folders set aside are not among them.

    Hold the source while working with them: a build may take one of them back. Raises BuildError for a
    damaged key file.
    """
    found = []
    for path in sorted((waiting_place(source, env) / project.name).glob("*")):
        main = path / "trees" / project.build.trees[0]
        keys = [main, *(path / "trees" / folder / project.build.trees[0] for folder in project.build.folders)]
        main = next((key for key in keys if (key / KEY_FILE).is_file()), main)
        state = State.read(main) if not path.name.startswith(_GOING) else None
        if state is not None:
            used = (main / KEY_FILE).stat().st_mtime
            found.append(WaitingTree(path, path.name, state.parts, used))
    return tuple(sorted(found, key=lambda tree: tree.used, reverse=True))


def remove_tree(tree: WaitingTree) -> None:
    """Delete a tree that waits; killed in between, no half of it can be taken back. Raises BuildError."""
    going = tree.path.with_name(f"{_GOING}{tree.name}")
    try:
        if going.exists():
            shutil.rmtree(going)
        tree.path.rename(going)
        shutil.rmtree(going)
    except OSError as fault:
        raise BuildError(f"{tree.path} cannot be deleted: {fault.strerror}") from fault


def finish_removals(waiting: Path) -> None:
    """Delete what a killed run was deleting."""
    for place in waiting.glob(f"{_GOING}*"):
        shutil.rmtree(place)

"""Working trees of submodules whose repositories this run has made: what `git submodule update` would do.

It starts a dozen programs for each, one submodule after the other. Where nothing was there before, what it
leaves is documented (gitsubmodules(7), gitrepository-layout(5)), and one `git checkout` each is enough,
side by side. Where git has a choice, git is asked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.sources.git import Git, is_linked
from rocm_wheels.sources.network.prefetch import Arrived
from rocm_wheels.sources.trees import side_by_side
from rocm_wheels.workspace import write_whole


def populate(git: Git, place: Path, submodules: Sequence[Arrived]) -> bool:
    """Write the files of all ``submodules``, outer ones first; ``git`` and ``place`` are the root's.

    Returns whether it was done; else git's own command is to do what is left.
    """
    if is_linked(place):  # its configuration is elsewhere
        return False
    places = {"": place, **{one.path: one.folder for one in submodules}}
    waiting = list(submodules)
    while waiting:
        paths = {one.path for one in waiting}
        level = [one for one in waiting if one.parent not in paths]
        if not all(_is_blank(git.directory, one.path) for one in level):
            return False
        for parent in dict.fromkeys(one.parent for one in level):
            _register(places[parent] / "config", [one for one in level if one.parent == parent])
        side_by_side(lambda one: _write(git.at(git.directory / one.path), one), level)
        waiting = [one for one in waiting if one not in level]
    return True


def _is_blank(root: Path, path: str) -> bool:
    """Tell whether a path is an empty folder, as git leaves it for a submodule, to which no link leads."""
    directory = root / path
    real = directory.resolve() == root.resolve() / path and directory.is_dir()
    return real and not any(directory.iterdir())


def _register(config: Path, submodules: Sequence[Arrived]) -> None:
    """Note in a repository what `git submodule init` would."""
    _extend(
        config,
        "".join(
            f'[submodule "{_quoted(one.name)}"]\n\tactive = true\n\turl = "{_quoted(one.url)}"\n'
            for one in submodules
        ),
    )


def _write(git: Git, one: Arrived) -> None:
    """Connect a repository and its working tree by relative paths, as git does, and write the files."""
    files, folder = os.path.realpath(git.directory), os.path.realpath(one.folder)  # else .. leaves by a link
    worktree = _quoted(os.path.relpath(files, folder).replace(os.sep, "/"))
    _extend(one.folder / "config", f'[core]\n\tworktree = "{worktree}"\n')
    pointer = os.path.relpath(folder, files).replace(os.sep, "/")
    (git.directory / ".git").write_text(f"gitdir: {pointer}\n", encoding="utf-8", errors="surrogateescape")
    git.text("checkout", "--quiet", "--force", "--detach", one.commit)


def _extend(config: Path, lines: str) -> None:
    mode = config.stat().st_mode
    write_whole(config, config.read_bytes() + lines.encode("utf-8", "surrogateescape"))
    config.chmod(mode)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

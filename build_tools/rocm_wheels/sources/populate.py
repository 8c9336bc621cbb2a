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
from rocm_wheels.sources.network.prefetch import FetchedSubmodule
from rocm_wheels.sources.trees import run_side_by_side
from rocm_wheels.workspace import write_atomically


def write_submodules(git: Git, git_dir: Path, submodules: Sequence[FetchedSubmodule]) -> bool:
    """Write the files of all ``submodules``, outer ones first; ``git`` and ``git_dir`` are the root's.

    Returns whether it was done; else git's own command is to do what is left.
    """
    if is_linked(git_dir):  # its configuration is elsewhere
        return False
    git_dirs = {"": git_dir, **{submodule.path: submodule.folder for submodule in submodules}}
    waiting = list(submodules)
    while waiting:
        paths = {submodule.path for submodule in waiting}
        level = [submodule for submodule in waiting if submodule.parent not in paths]
        if not all(_is_blank(git.directory, submodule.path) for submodule in level):
            return False
        for parent in dict.fromkeys(submodule.parent for submodule in level):
            _register_submodules(
                git_dirs[parent] / "config", [submodule for submodule in level if submodule.parent == parent]
            )
        run_side_by_side(
            lambda submodule: _write_submodule(git.in_directory(git.directory / submodule.path), submodule),
            level,
        )
        waiting = [submodule for submodule in waiting if submodule not in level]
    return True


def _is_blank(root: Path, path: str) -> bool:
    """Tell whether a path is an empty folder, as git leaves it for a submodule, to which no link leads."""
    directory = root / path
    real = directory.resolve() == root.resolve() / path and directory.is_dir()
    return real and not any(directory.iterdir())


def _register_submodules(config: Path, submodules: Sequence[FetchedSubmodule]) -> None:
    """Note in a repository what `git submodule init` would."""
    _extend_config(
        config,
        "".join(
            f'[submodule "{_quote_config(submodule.name)}"]\n\tactive = true\n\turl = "{_quote_config(submodule.url)}"\n'
            for submodule in submodules
        ),
    )


def _write_submodule(git: Git, submodule: FetchedSubmodule) -> None:
    """Connect a repository and its working tree by relative paths, as git does, and write the files."""
    files, folder = (
        os.path.realpath(git.directory),
        os.path.realpath(submodule.folder),
    )  # else .. leaves by a link
    worktree = _quote_config(os.path.relpath(files, folder).replace(os.sep, "/"))
    _extend_config(submodule.folder / "config", f'[core]\n\tworktree = "{worktree}"\n')
    pointer = os.path.relpath(folder, files).replace(os.sep, "/")
    (git.directory / ".git").write_text(f"gitdir: {pointer}\n", encoding="utf-8", errors="surrogateescape")
    git.text("checkout", "--quiet", "--force", "--detach", submodule.commit)


def _extend_config(config: Path, lines: str) -> None:
    mode = config.stat().st_mode
    write_atomically(config, config.read_bytes() + lines.encode("utf-8", "surrogateescape"))
    config.chmod(mode)


def _quote_config(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

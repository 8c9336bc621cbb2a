"""Somebody's own work in a tree is refused or kept on a branch, never overwritten.

Own work is: a file that differs from what we left, a new file that is not ignored, staged
content, a commit that neither upstream nor we made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rocm_wheels import log
from rocm_wheels.errors import SourceError
from rocm_wheels.sources.commits import foreign_commits
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.fetch import SERVED
from rocm_wheels.sources.state import FETCHED_REF, State
from rocm_wheels.sources.trees import (
    GITLINK,
    Entry,
    Part,
    differences,
    is_populated,
    refuse_unborn,
    seed_index,
    seeing_all,
    side_by_side,
    stage_files,
    temporary_index,
)
from rocm_wheels.sources.unfinished import refuse_unfinished

_SHOWN = 12
_LETTERS = {"A": "new", "D": "removed", "M": "modified", "T": "modified", "U": "unmerged"}


def refuse_own_work(parts: Sequence[Part], state: State | None) -> None:
    """Raise SourceError, with a tip, when files of a tree hold work that a checkout would lose."""
    refuse_unfinished(parts)
    files = _files([part for part in parts if part.head], state)
    if files:
        raise SourceError(
            _listed(f"{parts[0].git.directory} has changes of yours", files),
            tip="keep them with `git stash -u` in that repository, or move the files away; "
            "or check out into another folder with --checkout-dir",
        )


def keep_commits(parts: Sequence[Part], state: State | None, target: str) -> None:
    """Have a branch for the commits of somebody's own that going to ``target`` leaves behind; name it.

    Without a state the tree is somebody's clone: commits that its remote has are nobody's work.
    """
    born = [part for part in parts if part.head]
    own = side_by_side(lambda part: own_commits(part, state, target), born)
    for part, commits in zip(born, own, strict=True):
        if not commits:
            continue
        head = part.head
        held = part.git.text("for-each-ref", f"--contains={head}", "--format=%(refname:short)", "refs/heads")
        branch = held.splitlines()[0] if held else f"kept-{head[:12]}"
        if not held:
            part.git.text("update-ref", f"refs/heads/{branch}", head)
        log.warn(
            _listed(f"commits of yours in {part.git.directory} are kept on its branch {branch}", commits)
            + f"\n`git switch {branch}` goes back to them"
        )


def refuse_uncommitted(parts: Sequence[Part], state: State | None) -> None:
    """Raise SourceError when files of somebody's own would get into our commit."""
    refuse_unfinished(parts)
    files = _files(parts, state, links=True)
    if files:
        raise SourceError(
            _listed(
                f"{parts[0].git.directory} has changes of yours, which the hipify commit would mix in", files
            ),
            tip="commit yours first, or hipify with --no-commit-hipify",
        )


def refuse_in_the_way(git: Git, target: str, ours: Sequence[str]) -> None:
    """Raise SourceError for files on disk that git ignores or does not know, where ``target`` has files."""
    if {entry.name for entry in os.scandir(git.directory)} <= {".git"}:
        return  # nothing is there
    # what index and target both have is in nobody's way
    other = differences(git, "diff-index", "--cached", target)
    wanted = [Entry(change.path, *change.before) for change in other if change.letter == "D"]
    known = set(ours) | {change.path for change in other if change.letter != "D"}
    folders = {str(parent) for path in known for parent in PurePosixPath(path).parents}
    found = set()
    for entry in wanted:
        if entry.path in known or entry.path in folders:
            continue
        above = reversed([str(parent) for parent in PurePosixPath(entry.path).parents if parent.parts])
        for place in (*above, entry.path):
            path = Path(git.directory, place)
            folder = path.is_dir() and not path.is_symlink()
            if not os.path.lexists(path) or (place in known and not (folder and not is_populated(path))):
                break  # nothing, or a link, a file, a submodule that is taken away with all that is below
            if place == entry.path:
                if not _is_as_in(git, entry):
                    found.add(place)
            elif not folder:
                found.add(place)
                break
    if found:
        raise SourceError(
            _listed(f"in {git.directory} these files are in the way of {target[:12]}", sorted(found)),
            tip="move them away; git ignores them, and the commit has files of the same names",
        )


def _is_as_in(git: Git, entry: Entry) -> bool:
    """Tell whether a path holds what a commit has there (an empty folder for a submodule)."""
    path = git.directory / entry.path
    if path.is_symlink() or not path.exists():
        return False
    if path.is_dir():
        return entry.mode == GITLINK and not any(path.iterdir())
    content = path.read_bytes()
    head = f"blob {len(content)}\0".encode("ascii")
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest() == entry.object


def changes(part: Part, state: State | None, *, links: bool = False) -> list[tuple[str, str]]:
    """List (what, path) of the work in one repository that is neither ours nor committed.

    ``links``: count submodules at another commit as well.
    """
    refuse_unborn(part)
    git, head, place = part.git, part.head, part.place
    with seeing_all(part) as whole_git:  # what is in submodules is theirs, and listed there
        if not whole_git.text(
            "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"
        ):
            return []
    left = state.left.get(part.path) if state is not None else None
    expected = [part.tree]
    if left is not None and left.uncommitted and left.head == head:
        expected.insert(0, left.tree)
    with temporary_index(git, seed_index(place, head, state, part.path), keep=False) as own:
        stage_files(own)
        now = own.text("write-tree")
        found = [_differences(own, "diff-tree", "-r", tree, now, links=links) for tree in expected]
    staged = [_differences(git, "diff-index", "--cached", tree, links=links) for tree in expected]
    words = {} if any(not one for one in found) else found[0]
    for path in set.intersection(*(set(one) for one in staged)):
        words.setdefault(path, f"staged ({staged[0][path]})")
    return sorted(((word, path) for path, word in words.items()), key=lambda item: item[1])


def own_commits(part: Part, state: State | None, target: str) -> list[str]:
    """List the commits of one repository that are somebody's own work.

    What the parent names counts as upstream's only in a clone that is not ours: somebody who commits in a
    submodule commits the move in its parent as well.
    """
    left = state.left.get(part.path) if state is not None else None
    known = [target] if not part.path else [FETCHED_REF if state is not None else part.link]
    if left is not None:
        known.append(left.upstream)
    if state is not None and not part.path:
        known.append(state.upstream)
    if part.head in known:
        return []
    return foreign_commits(part.git, *(commit for commit in known if commit), "--remotes", f"--glob={SERVED}")


def _files(parts: Sequence[Part], state: State | None, *, links: bool = False) -> list[str]:
    found = side_by_side(lambda part: changes(part, state, links=links), parts)
    return [
        f"{word} {part.inside(path)}" for part, some in zip(parts, found, strict=True) for word, path in some
    ]


def _differences(git: Git, *command: str, links: bool) -> dict[str, str]:
    """Return path → word for what a diff command finds; submodules' other commits only with ``links``."""
    return {
        change.path: _LETTERS.get(change.letter, "changed")
        for change in differences(git, *command)
        if links or not change.of_submodule
    }


def _listed(head: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return f"{head}:\n" + "\n".join(f"  {line!s}" for line in [*lines[:_SHOWN], *more])

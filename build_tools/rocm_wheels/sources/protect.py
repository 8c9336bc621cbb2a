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
from rocm_wheels.sources.commits import list_foreign_commits
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.fetch import SERVED_REFS
from rocm_wheels.sources.state import FETCHED_REF, CheckoutState
from rocm_wheels.sources.trees import (
    GITLINK,
    TreeEntry,
    TreePart,
    list_differences,
    is_populated,
    require_commit,
    choose_seed_index,
    show_hidden_files,
    run_side_by_side,
    stage_files,
    temporary_index,
)
from rocm_wheels.sources.unfinished import refuse_unfinished_operations

_MOST_SHOWN = 12
_CHANGE_WORDS = {"A": "new", "D": "removed", "M": "modified", "T": "modified", "U": "unmerged"}


def refuse_own_work(parts: Sequence[TreePart], state: CheckoutState | None) -> None:
    """Raise SourceError, with a tip, when files of a tree hold work that a checkout would lose."""
    refuse_unfinished_operations(parts)
    files = _list_changed_files([part for part in parts if part.head], state)
    if files:
        raise SourceError(
            _format_list(f"{parts[0].git.directory} has changes of yours", files),
            tip="keep them with `git stash -u` in that repository, or move the files away; "
            "or check out into another folder with --checkout-dir",
        )


def keep_commits(parts: Sequence[TreePart], state: CheckoutState | None, target: str) -> None:
    """Have a branch for the commits of somebody's own that going to ``target`` leaves behind; name it.

    Without a state the tree is somebody's clone: commits that its remote has are nobody's work.
    """
    born = [part for part in parts if part.head]
    results = run_side_by_side(lambda part: list_own_commits(part, state, target), born)
    for part, commits in zip(born, results, strict=True):
        if not commits:
            continue
        head = part.head
        branches = part.git.text(
            "for-each-ref", f"--contains={head}", "--format=%(refname:short)", "refs/heads"
        )
        branch = branches.splitlines()[0] if branches else f"kept-{head[:12]}"
        if not branches:
            part.git.text("update-ref", f"refs/heads/{branch}", head)
        log.log_warning(
            _format_list(f"commits of yours in {part.git.directory} are kept on its branch {branch}", commits)
            + f"\n`git switch {branch}` goes back to them"
        )


def refuse_uncommitted(parts: Sequence[TreePart], state: CheckoutState | None) -> None:
    """Raise SourceError when files of somebody's own would get into our commit."""
    refuse_unfinished_operations(parts)
    files = _list_changed_files(parts, state, links=True)
    if files:
        raise SourceError(
            _format_list(
                f"{parts[0].git.directory} has changes of yours, which the hipify commit would mix in", files
            ),
            tip="commit yours first, or hipify with --no-commit-hipify",
        )


def refuse_blocking_files(git: Git, target: str, ours: Sequence[str]) -> None:
    """Raise SourceError for files on disk that git ignores or does not know, where ``target`` has files."""
    if {entry.name for entry in os.scandir(git.directory)} <= {".git"}:
        return  # nothing is there
    # what index and target both have is in nobody's way
    other = list_differences(git, "diff-index", "--cached", target)
    new_entries = [TreeEntry(change.path, *change.before) for change in other if change.letter == "D"]
    known_paths = set(ours) | {change.path for change in other if change.letter != "D"}
    folders = {str(parent) for path in known_paths for parent in PurePosixPath(path).parents}
    blocking = set()
    for entry in new_entries:
        if entry.path in known_paths or entry.path in folders:
            continue
        above = reversed([str(parent) for parent in PurePosixPath(entry.path).parents if parent.parts])
        for relative in (*above, entry.path):
            path = Path(git.directory, relative)
            folder = path.is_dir() and not path.is_symlink()
            if not os.path.lexists(path) or (
                relative in known_paths and not (folder and not is_populated(path))
            ):
                break  # nothing, or a link, a file, a submodule that is taken away with all that is below
            if relative == entry.path:
                if not _matches_entry(git, entry):
                    blocking.add(relative)
            elif not folder:
                blocking.add(relative)
                break
    if blocking:
        raise SourceError(
            _format_list(f"in {git.directory} these files are in the way of {target[:12]}", sorted(blocking)),
            tip="move them away; git ignores them, and the commit has files of the same names",
        )


def _matches_entry(git: Git, entry: TreeEntry) -> bool:
    """Tell whether a path holds what a commit has there (an empty folder for a submodule)."""
    path = git.directory / entry.path
    if path.is_symlink() or not path.exists():
        return False
    if path.is_dir():
        return entry.mode == GITLINK and not any(path.iterdir())
    content = path.read_bytes()
    head = f"blob {len(content)}\0".encode("ascii")
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest() == entry.object


def list_own_changes(
    part: TreePart, state: CheckoutState | None, *, links: bool = False
) -> list[tuple[str, str]]:
    """List (what, path) of the work in one repository that is neither ours nor committed.

    ``links``: count submodules at another commit as well.
    """
    require_commit(part)
    git, head, git_dir = part.git, part.head, part.git_dir
    with show_hidden_files(part) as status_git:  # what is in submodules is theirs, and listed there
        if not status_git.text(
            "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"
        ):
            return []
    recorded = state.left.get(part.path) if state is not None else None
    expected = [part.tree]
    if recorded is not None and recorded.uncommitted and recorded.head == head:
        expected.insert(0, recorded.tree)
    with temporary_index(git, choose_seed_index(git_dir, head, state, part.path), keep=False) as index_git:
        stage_files(index_git)
        now = index_git.text("write-tree")
        by_tree = [
            _name_differences(index_git, "diff-tree", "-r", tree, now, links=links) for tree in expected
        ]
    staged = [_name_differences(git, "diff-index", "--cached", tree, links=links) for tree in expected]
    words = {} if any(not paths for paths in by_tree) else by_tree[0]
    for path in set.intersection(*(set(paths) for paths in staged)):
        words.setdefault(path, f"staged ({staged[0][path]})")
    return sorted(((word, path) for path, word in words.items()), key=lambda item: item[1])


def list_own_commits(part: TreePart, state: CheckoutState | None, target: str) -> list[str]:
    """List the commits of one repository that are somebody's own work.

    What the parent names counts as upstream's only in a clone that is not ours: somebody who commits in a
    submodule commits the move in its parent as well.
    """
    recorded = state.left.get(part.path) if state is not None else None
    expected = [target] if not part.path else [FETCHED_REF if state is not None else part.link]
    if recorded is not None:
        expected.append(recorded.upstream)
    if state is not None and not part.path:
        expected.append(state.upstream)
    if part.head in expected:
        return []
    return list_foreign_commits(
        part.git, *(commit for commit in expected if commit), "--remotes", f"--glob={SERVED_REFS}"
    )


def _list_changed_files(
    parts: Sequence[TreePart], state: CheckoutState | None, *, links: bool = False
) -> list[str]:
    results = run_side_by_side(lambda part: list_own_changes(part, state, links=links), parts)
    return [
        f"{word} {part.path_from_root(path)}"
        for part, items in zip(parts, results, strict=True)
        for word, path in items
    ]


def _name_differences(git: Git, *command: str, links: bool) -> dict[str, str]:
    """Return path → word for what a diff command finds; submodules' other commits only with ``links``."""
    return {
        change.path: _CHANGE_WORDS.get(change.letter, "changed")
        for change in list_differences(git, *command)
        if links or not change.of_submodule
    }


def _format_list(head: str, lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return f"{head}:\n" + "\n".join(f"  {line!s}" for line in [*lines[:_MOST_SHOWN], *more])

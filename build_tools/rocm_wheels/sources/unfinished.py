"""What somebody's own git has begun in a tree and not ended: a rebase, a merge, a commit being written."""

from __future__ import annotations

from collections.abc import Iterable

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.trees import TreePart

# What git leaves in a repository while something is under way (its wt-status.c and sequencer.c).
_OPERATION_SIGNS = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_LOCK_FILES = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock")


def refuse_unfinished_operations(parts: Iterable[TreePart], *, locks: bool = True) -> None:
    """Raise SourceError when something of somebody's is under way in one of the repositories.

    HEAD is then somewhere between: commits made or counted there would be wrong. ``locks``: a git that
    is at work, or was killed, counts too.
    """
    for part in parts:
        directory, git_dir = part.git.directory, part.git_dir
        if begun := next(
            (name for sign, name in _OPERATION_SIGNS.items() if (git_dir / sign).exists()), None
        ):
            ends = "`git bisect reset`" if begun == "bisect" else f"`git {begun} --continue` or `--abort`"
            raise SourceError(
                f"`git {begun}` is under way in {directory}", tip=f"end it with {ends}, then run this again"
            )
        if locked := next(
            (git_dir / name for name in _LOCK_FILES if locks and (git_dir / name).exists()), None
        ):
            raise SourceError(
                f"another git is at work in {directory}: there is {locked}",
                tip="wait for it to end; if there is none, remove that file",
            )

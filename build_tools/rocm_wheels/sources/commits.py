"""Commits and tags of ours: the same object for the same input, on any day and by anybody.

GitPython's object database stores them, in process: no hook runs, nothing is signed, no configured
name, date or encoding enters. (Its ``Repo`` would read the process's own environment.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git, find_objects_folder
from rocm_wheels.sources.state import (
    FETCHED_REF,
    HIPIFIED_REF,
    HIPIFY_MESSAGE,
    HIPIFY_TAG,
    LEFT_REF,
    UPSTREAM_TAG,
)
from rocm_wheels.sources.trees import temporary_index

if TYPE_CHECKING:
    from rocm_wheels.sources.files import FileStamp

_ABSENT_OBJECT = "0" * 40


def write_commit(git: Git, tree: str, parents: Sequence[str], message: str, *, dated_like: str | None) -> str:
    """Store a commit with our name and the dates (and time zones) of ``dated_like``; return its id.

    Without a model the dates are those of the epoch.
    """
    from gitdb import IStream, LooseObjectDB  # type: ignore[import-untyped]  # gitdb has no types

    authored, committed = _read_dates(git, dated_like)
    person = f"{OUR_NAME} <{OUR_EMAIL}>"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"author {person} {authored}", f"committer {person} {committed}", "", message, ""]
    data = "\n".join(lines).encode("utf-8")
    stored = LooseObjectDB(str(find_objects_folder(git))).store(IStream("commit", len(data), BytesIO(data)))
    return str(stored.hexsha.decode("ascii"))


def _read_dates(git: Git, commit: str | None) -> tuple[str, str]:
    """Return the dates (seconds and zone) of a commit's author and committer."""
    if commit is None:
        return "0 +0000", "0 +0000"
    dates = []
    head = git.text("cat-file", "commit", commit).split("\n\n", 1)[0]
    for role in ("author", "committer"):
        match = re.search(rf"^{role} .*> (\d+) ([+-])(\d\d)(\d\d)", head, re.MULTILINE)
        if match is None:
            raise SourceError(f"commit {commit} in {git.directory} has no date for its {role}")
        seconds, sign, hours, minutes = match.groups()
        off = 60 * int(hours) + int(minutes)
        dates.append(f"{seconds} {sign if off else '+'}{off // 60:02}{off % 60:02}")
    return dates[0], dates[1]


def build_tree(
    git: Git,
    base: str,
    changes: dict[str, FileStamp | None],
    links: dict[str, str],
    *,
    base_index: Path | None = None,
) -> str:
    """Return the tree ``base`` with files changed (``None``: removed) and submodules moved to commits.

    ``base_index``: an index that holds ``base``; it is not kept.
    """
    lines = [
        f"{entry.mode} {entry.object}\t{path}" if entry is not None else f"0 {_ABSENT_OBJECT}\t{path}"
        for path, entry in sorted(changes.items())
    ]
    lines += [f"160000 {commit}\t{path}" for path, commit in sorted(links.items())]
    if not lines:
        return git.text("rev-parse", f"{base}^{{tree}}")
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    if base_index is not None:
        index_git = git.with_variables(GIT_INDEX_FILE=str(base_index))
        index_git.text("update-index", "-z", "--index-info", stdin=data)
        return index_git.text("write-tree")
    with temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", base)
        index_git.text("update-index", "-z", "--index-info", stdin=data)
        return index_git.text("write-tree")


def commit_hipify(git: Git, head: str, tree: str, upstream: str, *, untagged: bool) -> str:
    """Commit ``tree`` on top of ``head``, move HEAD and the index there, and tag it; return the commit.

    ``untagged``: there is surely no such tag yet.
    """
    commit = write_commit(git, tree, [head], HIPIFY_MESSAGE, dated_like=upstream)
    moves = f"update HEAD {commit} {head}\n{_plan_tag_move(git, head, commit, untagged=untagged)}"
    git.text("update-ref", "-m", HIPIFY_MESSAGE, "--stdin", stdin=moves.encode("ascii"))
    git.text("reset", "--mixed", "--no-quiet")  # not quiet, it learns the files' new times as well
    return commit


def refresh_index(git: Git) -> None:
    """Let the index learn the files' new times, so that the next `git status` is quick."""
    git.succeeds("update-index", "-q", "--refresh")


def tag_upstream(git: Git, commit: str, *, hipified: bool, fetched: bool) -> None:
    """Tag the upstream commit, lightweight; what an earlier hipify is known by goes.

    ``hipified``: it is what hipify leaves, too, and is tagged as that. ``fetched``: the ref that a
    transfer left is no longer needed.
    """
    lines = [f"update refs/tags/{UPSTREAM_TAG} {commit}", f"delete {LEFT_REF}", f"delete {HIPIFIED_REF}"]
    lines.append(f"update refs/tags/{HIPIFY_TAG} {commit}" if hipified else f"delete refs/tags/{HIPIFY_TAG}")
    lines += [f"delete {FETCHED_REF}"] if fetched else []
    git.text("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode("ascii"))


def is_tagged(git: Git, upstream: str, *, hipified: bool) -> bool:
    """Tell whether our tags are there: `git fetch --prune-tags` takes them, another worktree moves them."""
    names = [f"refs/tags/{name}" for name in (UPSTREAM_TAG, HIPIFY_TAG)]
    lines = git.text("for-each-ref", "--format=%(refname) %(objectname)", *names).splitlines()
    tags = dict(line.split(" ") for line in lines)
    return tags.get(names[0]) == upstream and (not hipified or names[1] in tags)


def tag_unchanged(git: Git, head: str, *, untagged: bool) -> None:
    """Tag what hipify made where it changed nothing; ``untagged`` as in ``commit_hipify``."""
    if move := _plan_tag_move(git, head, head, untagged=untagged):
        git.text("update-ref", "--stdin", stdin=move.encode("ascii"))


def _plan_tag_move(git: Git, before: str, after: str, *, untagged: bool) -> str:
    """Return what moves the hipify tag to ``after``, for `git update-ref --stdin`.

    A tag that the history already holds stays: what came after it is somebody's work, and
    that work is what lies between the tag and HEAD.
    """
    name = f"refs/tags/{HIPIFY_TAG}"
    current = "" if untagged else git.text("for-each-ref", "--format=%(objectname)", name)
    if not current or (
        current != before and not git.succeeds("merge-base", "--is-ancestor", current, before)
    ):
        return f"update {name} {after}\n"
    return ""


def list_foreign_commits(git: Git, *excluded: str) -> list[str]:
    """List the commits (id and subject) of HEAD that neither upstream nor we made; newest first.

    Our committer marks ours, patches' too; a commit that somebody amends gets a committer of theirs.
    What is ``excluded`` and not there is left out.
    """
    options = ("-z", "--ignore-missing", "--no-show-signature", "--format=%ce%x09%h%x09%s")
    commits = []
    for line in git.fields("log", *options, "HEAD", "--not", *excluded, "--"):
        email, short, subject = line.split("\t", 2)
        if email != OUR_EMAIL:
            commits.append(f"{short} {subject}")
    return commits

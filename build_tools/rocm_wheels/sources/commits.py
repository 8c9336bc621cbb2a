"""Commits and tags of ours: the same object for the same input, on any day and by anybody.

GitPython writes the objects, in process: no hook runs, nothing is signed, no configured
name, date or encoding enters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git
from rocm_wheels.sources.state import HIPIFY_MESSAGE, HIPIFY_TAG, UPSTREAM_TAG
from rocm_wheels.sources.trees import temporary_index

if TYPE_CHECKING:
    from rocm_wheels.sources.files import Seen

_ABSENT = "0" * 40


def write_commit(git: Git, tree: str, parents: Sequence[str], message: str, *, dated_like: str | None) -> str:
    """Store a commit with our name and the dates (and time zones) of ``dated_like``; return its id.

    Without a model the dates are those of the epoch.
    """
    import git as gitpython
    from gitdb import IStream  # type: ignore[import-untyped]  # gitdb has no types

    (authored, author_zone), (committed, committer_zone) = _dates(git, dated_like)
    with gitpython.Repo(git.directory) as repository:
        person = gitpython.Actor(OUR_NAME, OUR_EMAIL)
        commit = gitpython.Commit(
            repository,
            gitpython.Commit.NULL_BIN_SHA,
            tree=gitpython.Tree(repository, bytes.fromhex(tree)),
            author=person,
            authored_date=authored,
            author_tz_offset=author_zone,
            committer=person,
            committed_date=committed,
            committer_tz_offset=committer_zone,
            message=message + "\n",
            parents=[gitpython.Commit(repository, bytes.fromhex(parent)) for parent in parents],
            encoding="UTF-8",
        )
        stream = BytesIO()
        commit._serialize(stream)
        size = stream.tell()
        stream.seek(0)
        return str(repository.odb.store(IStream("commit", size, stream)).hexsha.decode("ascii"))


def _dates(git: Git, commit: str | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (seconds, zone in seconds west) of author and committer.

    Read by our git: GitPython's would take the process's own environment.
    """
    if commit is None:
        return (0, 0), (0, 0)
    found = []
    head = git.text("cat-file", "commit", commit).split("\n\n", 1)[0]
    for role in ("author", "committer"):
        match = re.search(rf"^{role} .*> (\d+) ([+-])(\d\d)(\d\d)", head, re.MULTILINE)
        if match is None:
            raise SourceError(f"commit {commit} in {git.directory} has no date for its {role}")
        seconds, sign, hours, minutes = match.groups()
        east = 3600 * int(hours) + 60 * int(minutes or 0)
        found.append((int(seconds), -east if sign == "+" else east))
    return found[0], found[1]


def tree_with(git: Git, base: str, changes: dict[str, Seen | None], links: dict[str, str]) -> str:
    """Return the tree ``base`` with files changed (``None``: removed) and submodules moved to commits."""
    lines = [
        f"{seen.mode} {seen.object}\t{path}" if seen is not None else f"0 {_ABSENT}\t{path}"
        for path, seen in sorted(changes.items())
    ]
    lines += [f"160000 {commit}\t{path}" for path, commit in sorted(links.items())]
    if not lines:
        return git.text("rev-parse", f"{base}^{{tree}}")
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    with temporary_index(git, None, keep=True) as own:
        own.text("read-tree", base)
        own.text("update-index", "-z", "--index-info", stdin=data)
        return own.text("write-tree")


def commit_hipify(git: Git, head: str, tree: str, upstream: str) -> str:
    """Commit ``tree`` on top of ``head`` and move HEAD and the index there; return the commit."""
    commit = write_commit(git, tree, [head], HIPIFY_MESSAGE, dated_like=upstream)
    git.text("update-ref", "-m", HIPIFY_MESSAGE, "HEAD", commit, head)
    git.text("reset", "-q", "--mixed")
    refresh(git)
    return commit


def refresh(git: Git) -> None:
    """Let the index learn the files' new times, so that the next `git status` is quick."""
    git.succeeds("update-index", "-q", "--refresh")


def tag_upstream(git: Git, commit: str) -> None:
    """Tag the upstream commit, lightweight; the hipify tag of an earlier checkout goes."""
    git.text("update-ref", f"refs/tags/{UPSTREAM_TAG}", commit)
    git.text("update-ref", "-d", f"refs/tags/{HIPIFY_TAG}")


def tag_hipify(git: Git, before: str, after: str) -> None:
    """Tag what hipify made, also where it changed nothing.

    A tag that the history already holds stays: what came after it is somebody's work, and
    that work is what lies between the tag and HEAD.
    """
    name = f"refs/tags/{HIPIFY_TAG}"
    held = git.text("for-each-ref", "--format=%(objectname)", name)
    if not held or not git.succeeds("merge-base", "--is-ancestor", held, before):
        git.text("update-ref", name, after)


def foreign_commits(git: Git, *known: str) -> list[str]:
    """List the commits (id and subject) of HEAD that neither upstream nor we made; newest first.

    Our committer marks ours, patches' too; a commit that somebody amends gets a committer of theirs.
    """
    form = "--format=%ce%x09%h%x09%s"
    found = []
    for line in git.fields("log", "-z", "--no-show-signature", form, "HEAD", "--not", *known, "--"):
        email, short, subject = line.split("\t", 2)
        if email != OUR_EMAIL:
            found.append(f"{short} {subject}")
    return found

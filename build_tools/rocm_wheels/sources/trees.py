"""The files of a working tree as git trees, without touching the user's index.

A snapshot is made in a temporary copy of an index: its stat data make it cheap, and what
is ignored stays out. Submodules are repositories of their own, found through gitlinks.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.sources.git import Git
from rocm_wheels.sources.state import OWN_FOLDER, SIDE_INDEX, State

GITLINK = "160000"  # the mode of a submodule in trees and indexes


@dataclass(frozen=True)
class Entry:
    """A path of a tree or index: octal mode and object id."""

    path: str
    mode: str
    object: str


@dataclass(frozen=True)
class Part:
    """A repository of a source tree: its path from the root (``""``), and its commit in the parent."""

    path: str
    git: Git
    link: str

    def inside(self, path: str) -> str:
        """Return a path of this repository as seen from the root."""
        return f"{self.path}/{path}" if self.path else path


@contextmanager
def temporary_index(git: Git, seed: Path | None, *, keep: bool) -> Iterator[Git]:
    """Give a git whose index is a copy of ``seed`` (an empty one without), and that skips no file.

    The copy keeps the seed's time: git trusts entries that are older than their index.
    Objects go to the repository with ``keep``, else to a folder that is removed at the end.
    """
    objects = Path(git.directory, git.text("rev-parse", "--git-path", "objects"))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        index = Path(folder, "index")
        if seed is not None and seed.exists():
            shutil.copy2(seed, index)
        variables = {"GIT_INDEX_FILE": str(index)}
        if not keep:
            scratch = Path(folder, "objects")
            scratch.mkdir()
            variables["GIT_OBJECT_DIRECTORY"] = str(scratch)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(str(objects.resolve()))
        own = git.using(**variables)
        if hidden := _hidden(own):
            names = "".join(f"{path}\0" for path in hidden).encode("utf-8", "surrogateescape")
            for flag in ("--no-skip-worktree", "--no-assume-unchanged"):  # git does one at a time
                own.text("update-index", flag, "-z", "--stdin", stdin=names)
        yield own


@contextmanager
def seeing_all(git: Git, index: Path) -> Iterator[Git]:
    """Give a git that looks at files it was told not to look at, too; ``index`` is the repository's.

    TheRock's scripts mark the submodules of their checkouts so (skip-worktree).
    """
    if not _hidden(git):
        yield git
        return
    with temporary_index(git, index, keep=False) as own:
        yield own


def _hidden(git: Git) -> list[str]:
    """List what is marked skip-worktree or assume-unchanged and yet is on the disk."""
    marked = [line[2:] for line in git.fields("ls-files", "-v", "-z") if line[0] == "S" or line[0].islower()]
    return [path for path in marked if os.path.lexists(git.directory / path)]


def seed_index(place: Path, head: str, state: State | None, prefix: str) -> Path:
    """Choose the index that knows a tree best: our own after an uncommitted hipify, else the real one."""
    left = state.left.get(prefix) if state is not None else None
    side = place / OWN_FOLDER / SIDE_INDEX
    if left is not None and left.uncommitted and left.head == head and side.exists():
        return side
    return place / "index"


def snapshot(git: Git, seed: Path | None, *, keep: bool = False) -> str:
    """Return the tree id of the files as they are now: tracked, and untracked but not ignored."""
    with temporary_index(git, seed, keep=keep) as own:
        own.text("add", "-A", "--", ".")
        return own.text("write-tree")


def entries(git: Git, tree: str) -> list[Entry]:
    """List a tree's files and gitlinks, in the order of git."""
    return [_entry(field) for field in git.fields("ls-tree", "-r", "-z", "--full-tree", tree)]


def gitlinks(git: Git) -> list[Entry]:
    """List the submodules in the index, populated or not."""
    found = []
    for line in git.fields("ls-files", "-s", "-z"):
        if line.startswith(GITLINK):
            facts, path = line.split("\t", 1)
            found.append(Entry(path, GITLINK, facts.split(" ")[1]))
    return found


def repositories(git: Git) -> list[Part]:
    """List root and every populated submodule, recursively, outermost first."""
    found = [Part("", git, "")]
    waiting = list(found)
    while waiting:
        parent = waiting.pop()
        for link in gitlinks(parent.git):
            directory = parent.git.directory / link.path
            if is_populated(directory):
                waiting.append(Part(parent.inside(link.path), git.at(directory), link.object))
                found.append(waiting[-1])
    return sorted(found, key=lambda part: part.path.split("/") if part.path else [])


def holder(path: str, paths: Iterable[str]) -> str:
    """Return, of the repositories' ``paths``, the one that holds the submodule at ``path``."""
    return max((one for one in paths if one != path and (not one or path.startswith(f"{one}/"))), key=len)


def is_populated(directory: Path) -> bool:
    """Tell whether a submodule's folder has its repository (a clone that was cut leaves a dangling name)."""
    pointer = directory / ".git"
    if pointer.is_dir():
        return True
    if not pointer.is_file():
        return False
    place = pointer.read_text(encoding="utf-8", errors="surrogateescape").removeprefix("gitdir:").strip()
    return (directory / place / "HEAD").is_file()


def head_and_place(git: Git) -> tuple[str, Path]:
    """Return the commit that is checked out and the folder of the repository."""
    place, _, head = git.text("rev-parse", "--absolute-git-dir", "HEAD").rpartition("\n")
    return head, Path(place)


def has_commit(git: Git) -> bool:
    """Tell whether HEAD names a commit (a repository just made has none)."""
    return git.succeeds("rev-parse", "-q", "--verify", "HEAD^{commit}")


def has_object(git: Git, commit: str) -> bool:
    """Tell whether a commit is in the repository."""
    return bool(commit) and git.succeeds("cat-file", "-e", f"{commit}^{{commit}}")


def has_folders(git: Git, commit: str) -> bool:
    """Tell whether a commit's own listing can be read."""
    return git.succeeds("ls-tree", "-r", "-t", "--name-only", "--full-tree", commit)


def is_whole(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs.

    Git vouches for what a ref holds; a fetch that was killed leaves commits without their files.
    """
    if not has_object(git, commit):
        return False
    return bool(git.text("for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)"))


def _entry(field: str) -> Entry:
    facts, path = field.split("\t", 1)
    mode, _, oid = facts.split(" ")
    return Entry(path, mode, oid)


def _quoted(path: str) -> str:
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'

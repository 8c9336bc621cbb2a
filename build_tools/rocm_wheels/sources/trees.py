"""The files of a working tree as git trees, without touching the user's index.

A snapshot is made in a temporary copy of an index: its stat data make it cheap, and what
is ignored stays out. Submodules are repositories of their own, found through gitlinks.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.sources.git import Git, git_directory
from rocm_wheels.sources.state import OWN_FOLDER, SIDE_INDEX, State

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # of every repository with SHA-1
_GITLINK = "160000"


@dataclass(frozen=True)
class Entry:
    """A path of a tree or index: octal mode and object id."""

    path: str
    mode: str
    object: str


@contextmanager
def temporary_index(git: Git, seed: Path | None, *, keep: bool) -> Iterator[Git]:
    """Give a git whose index is a copy of ``seed`` (an empty one without).

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
        yield git.using(**variables)


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
        if line.startswith(_GITLINK):
            facts, path = line.split("\t", 1)
            found.append(Entry(path, _GITLINK, facts.split(" ")[1]))
    return found


def repositories(git: Git) -> list[tuple[str, Git]]:
    """List root (``""``) and every populated submodule, recursively, outermost first."""
    found: list[tuple[str, Git]] = [("", git)]
    waiting = [("", git)]
    while waiting:
        prefix, parent = waiting.pop()
        for link in gitlinks(parent):
            directory = parent.directory / link.path
            if (directory / ".git").exists():
                path = f"{prefix}/{link.path}" if prefix else link.path
                found.append((path, parent.at(directory)))
                waiting.append(found[-1])
    return sorted(found, key=lambda item: item[0].split("/") if item[0] else [])


def head_and_place(git: Git) -> tuple[str, Path]:
    """Return the commit that is checked out and the folder of the repository."""
    place, _, head = git.text("rev-parse", "--absolute-git-dir", "HEAD").rpartition("\n")
    return head, Path(place)


def has_commit(git: Git) -> bool:
    """Tell whether HEAD names a commit (a repository just made has none)."""
    return git.succeeds("rev-parse", "-q", "--verify", "HEAD^{commit}")


def own_folder(git: Git) -> Path:
    """Return the folder inside the repository that is ours."""
    return git_directory(git) / OWN_FOLDER


def _entry(field: str) -> Entry:
    facts, path = field.split("\t", 1)
    mode, _, oid = facts.split(" ")
    return Entry(path, mode, oid)


def _quoted(path: str) -> str:
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'

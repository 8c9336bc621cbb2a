"""The files of a working tree as git trees, without touching the user's index.

A snapshot is made in a temporary copy of an index: its stat data make it cheap, and what
is ignored stays out. Submodules are repositories of their own, found through gitlinks.

Starting git is what costs most where there are many submodules: a ``Part`` holds what is asked of a
repository again and again, and independent ones are looked at side by side.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from rocm_wheels.errors import SourceError
from rocm_wheels.parallel import each, spread
from rocm_wheels.sources.git import Git, objects_of, pointed_to
from rocm_wheels.sources.links import LINK, copied_links
from rocm_wheels.sources.state import OWN_FOLDER, SIDE_INDEX, Left, State

GITLINK = "160000"  # the mode of a submodule in trees and indexes
_ANSWER = re.compile(r"(.*?)(?:\n([0-9a-f]{40}))?(?:\n([0-9a-f]{40}))?", re.DOTALL)
_JOBS = min(2 * (os.cpu_count() or 1), 16)  # repositories of one tree at a time

T = TypeVar("T")
R = TypeVar("R")


class Entry(NamedTuple):
    """A path of a tree or index: octal mode and object id."""

    path: str
    mode: str
    object: str


@dataclass(frozen=True)
class Part:
    """A repository of a source tree: its path from the root (``""``), and its commit in the parent.

    As they were when it was listed: ``place``, its folder; ``head`` and ``tree``, the commit that is
    checked out and that commit's tree (empty before the first commit); ``hidden``, the files on the
    disk that git was told not to look at.
    """

    path: str
    git: Git
    link: str
    place: Path
    head: str
    tree: str
    hidden: tuple[str, ...] = ()

    def inside(self, path: str) -> str:
        """Return a path of this repository as seen from the root."""
        return f"{self.path}/{path}" if self.path else path


class Change(NamedTuple):
    """What a diff found at a path: git's letter for it, and modes and object before; after."""

    path: str
    letter: str
    before: tuple[str, str]
    after: tuple[str, str]

    @property
    def of_submodule(self) -> bool:
        """Tell whether there is or was a gitlink."""
        return GITLINK in (self.before[0], self.after[0])


@contextmanager
def temporary_index(git: Git, seed: Path | None, *, keep: bool) -> Iterator[Git]:
    """Give a git whose index is a copy of ``seed`` (an empty one without), and that skips no file.

    The copy keeps the seed's time: git trusts entries that are older than their index.
    Objects go to the repository with ``keep``, else to a folder that is removed at the end.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        index = Path(folder, "index")
        variables = {"GIT_INDEX_FILE": str(index)}
        if not keep:
            objects = objects_of(git)
            scratch = Path(folder, "objects")
            scratch.mkdir()
            variables["GIT_OBJECT_DIRECTORY"] = str(scratch)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(str(objects.resolve()))
        own = git.using(**variables)
        if seed is not None and seed.exists():
            shutil.copy2(seed, index)
            if hidden := _contents(own)[1]:
                names = "".join(f"{path}\0" for path in hidden).encode("utf-8", "surrogateescape")
                for flag in ("--no-skip-worktree", "--no-assume-unchanged"):  # git does one at a time
                    own.text("update-index", flag, "-z", "--stdin", stdin=names)
        yield own


@contextmanager
def seeing_all(part: Part) -> Iterator[Git]:
    """Give a git that looks at files it was told not to look at, too.

    TheRock's scripts mark the submodules of their checkouts so (skip-worktree).
    """
    if not part.hidden:
        yield part.git
        return
    with temporary_index(part.git, part.place / "index", keep=False) as own:
        yield own


def _contents(git: Git) -> tuple[list[Entry], tuple[str, ...]]:
    """List the gitlinks of an index, and what is marked skip-worktree or assume-unchanged and on the disk."""
    links, marked = [], []
    for field in git.fields("ls-files", "-s", "-v", "-z"):  # tag, mode, id and stage, then the path
        if field[2:8] == GITLINK:
            facts, path = field.split("\t", 1)
            links.append(Entry(path, GITLINK, facts.split(" ")[2]))
        if field[0] == "S" or field[0].islower():
            marked.append(field.split("\t", 1)[1])
    return links, tuple(path for path in marked if os.path.lexists(git.directory / path))


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
        stage_files(own)
        return own.text("write-tree")


def stage_files(own: Git) -> None:
    """Stage the files as they are now; a link that a build replaced by a copy is the link that it was."""
    links = copied_links(own)
    own.text("add", "-A", "--", ".")
    for link in links:
        own.text("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", link.path)
        own.text("update-index", "--add", "--cacheinfo", f"{LINK},{link.object},{link.path}")


def entries(git: Git, tree: str) -> list[Entry]:
    """List a tree's files and gitlinks, in the order of git."""
    return [_entry(field) for field in git.fields("ls-tree", "-r", "-z", "--full-tree", tree)]


def contents(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """Return files by their object ids. Raises SourceError for one that is not there."""
    asked = list(dict.fromkeys(oids))
    if not asked:
        return {}
    # the last question is none: what is at the very end of an answer may be cut
    stdin = "".join(f"{oid}\n" for oid in (*asked, "end")).encode("ascii")
    rest = git.text("cat-file", "--batch", stdin=stdin).encode("utf-8", "surrogateescape")
    files = {}
    for oid in asked:
        facts, _, rest = rest.partition(b"\n")
        if not facts.startswith(f"{oid} blob ".encode("ascii")):
            raise SourceError(f"{oid} is no file of {git.directory}: {facts.decode('utf-8', 'replace')}")
        size = int(facts.split(b" ")[2])
        files[oid], rest = rest[:size], rest[size + 1 :]
    return files


def blobs(git: Git, oids: Iterable[str]) -> dict[str, str]:
    """Return the text of files by their object ids, each without its last newline, as ``Git.text`` gives it.

    Raises SourceError for one that is not there.
    """
    return {
        oid: content.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
        for oid, content in contents(git, oids).items()
    }


def differences(git: Git, command: str, *arguments: str) -> list[Change]:
    """List what `git diff-tree` or `git diff-index` finds, submodules' other commits included."""
    options = ("--raw", "-z", "--no-renames", "--ignore-submodules=none")
    fields = git.fields(command, *options, *arguments)
    found = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old, new, old_object, new_object, letter = facts.lstrip(":").split(" ")
        found.append(Change(path, letter[:1], (old, old_object), (new, new_object)))
    return found


def gitlinks(git: Git) -> list[Entry]:
    """List the submodules in the index, populated or not."""
    return _contents(git)[0]


def repositories(git: Git) -> list[Part]:
    """List root and every populated submodule, recursively, outermost first, as they are now."""

    def look(found: tuple[str, Git, str]) -> tuple[Part, list[tuple[str, Git, str]]]:
        part, links = listed(*found)
        there = [one for one in links if is_populated(part.git.directory / one.path)]
        return part, [
            (part.inside(one.path), git.at(part.git.directory / one.path), one.object) for one in there
        ]

    parts = spread(look, [("", git, "")], jobs=_JOBS)
    return sorted(parts, key=lambda part: part.path.split("/") if part.path else [])


def listed(path: str, git: Git, link: str) -> tuple[Part, list[Entry]]:
    """Look at one repository; return it with its gitlinks."""
    links, hidden = _contents(git)
    # a revision that there is not yet is left out, without an error
    said = git.text("rev-parse", "--absolute-git-dir", "--revs-only", "HEAD^{commit}", "HEAD^{tree}")
    place, head, tree = _ANSWER.fullmatch(said).groups(default="")  # type: ignore[union-attr]
    return Part(path, git, link, Path(place), head, tree, hidden), links


def standing(parts: Sequence[Part], lefts: Mapping[str, Left]) -> list[Part]:
    """Return the repositories of a tree in which now ``lefts`` are checked out."""
    return [
        replace(part, head=left.head, tree=left.tree, link=left.head if part.path else "")
        if (left := lefts[part.path]).head != part.head
        else part
        for part in parts
    ]


def refuse_unborn(part: Part) -> None:
    """Raise SourceError, with git's own words, for a repository without a commit."""
    if not part.head:
        head_and_place(part.git)


def side_by_side(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return ``work(item)`` for every item, in their order; for what touches one repository each."""
    return each(work, items, jobs=_JOBS)


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
    return (pointed_to(pointer) / "HEAD").is_file()


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

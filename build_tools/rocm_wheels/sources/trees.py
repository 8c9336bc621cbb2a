"""The files of a working tree as git trees, without touching the user's index.

A snapshot is made in a temporary copy of an index: its stat data make it cheap, and what
is ignored stays out. Submodules are repositories of their own, found through gitlinks.

Starting git is what costs most where there are many submodules: a ``TreePart`` holds what is asked of a
repository again and again, and independent ones are looked at side by side.

A build may replace tracked links by copies of what they point to: ROCm/apex's setup.py does so with
``apex/csrc`` and ``apex/op_builder``, because wheels hold no links (ROCm/apex#291). Git calls that a removed
file; a tree with such copies and nothing else is unchanged.

What a tree holds right now has one id, by which the fingerprint of a build knows it.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.core.files import write_atomically
from rocm_wheels.sources import checkout_state
from rocm_wheels.sources.git import (
    OUR_EMAIL,
    Git,
    disable_private_filters,
    find_objects_folder,
    read_git_pointer,
)

SYMLINK_MODE = "120000"  # the mode of a symbolic link in trees and indexes


class CopiedLink(NamedTuple):
    """A tracked link, from the top of its repository: its object id, and what it points to."""

    path: str
    object: str
    target: str


def find_copied_links(git: Git) -> list[CopiedLink]:
    """List the tracked links at whose place is a copy of what they point to.

    A copy may lack files. Each that it has is as in the target, or as the commit has it there, or ignored by
    git; with any other file in it, it is somebody's own work, and not listed.
    """
    replaced = []
    for line in git.fields("ls-files", "-s", "-z"):
        facts, path = line.split("\t", 1)
        target = git.directory / path
        if facts.startswith(SYMLINK_MODE) and not target.is_symlink() and target.exists():
            link = facts.split(" ")[1]
            replaced.append(CopiedLink(path, link, git.text("cat-file", "blob", link)))
    return [link for link in replaced if _is_copied_link(git, link)]


def restore_links(directory: Path, env: Mapping[str, str]) -> None:
    """Put the links of a checkout back at whose place a build left copies; a plain folder is left alone."""
    if not (directory / ".git").exists():
        return
    links = find_copied_links(Git(directory, env))
    for link in links:
        target = directory / link.path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
        target.symlink_to(link.target)
    if links:
        names = ", ".join(link.path for link in links)
        log.log_note(f"the build had put copies in the place of links, which are links again: {names}")


def _is_copied_link(git: Git, link: CopiedLink) -> bool:
    base = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    if base.startswith(("/", "..")):
        return False
    copy, original = git.directory / link.path, git.directory / base
    if not copy.is_dir():
        return original.is_file() and filecmp.cmp(copy, original, shallow=False)
    strange = [name for name in _list_files(copy) if not _is_same_file(copy / name, original / name)]
    committed = _list_committed_blobs(git, base) if strange else {}
    strange = [name for name in strange if _hash_blob(copy / name) != committed.get(f"{base}/{name}")]
    return all(git.succeeds("check-ignore", "-q", "--", f"{link.path}/{name}") for name in strange)


def _list_files(folder: Path) -> Iterable[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _is_same_file(copy: Path, original: Path) -> bool:
    """Compare what readers of both see: a copy has no links."""
    return original.is_file() and copy.is_file() and filecmp.cmp(copy, original, shallow=False)


def _list_committed_blobs(git: Git, base: str) -> dict[str, str]:
    fields = git.fields("ls-tree", "-r", "-z", "--full-tree", "HEAD", "--", base)
    return {path: facts.split(" ")[2] for facts, path in (field.split("\t", 1) for field in fields)}


def _hash_blob(path: Path) -> str:
    content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


GITLINK = "160000"  # the mode of a submodule in trees and indexes
_REPOSITORY_ANSWER = re.compile(r"(.*?)(?:\n([0-9a-f]{40}))?(?:\n([0-9a-f]{40}))?", re.DOTALL)
CHECKOUT_TIP = (
    "run `checkout` first, or name the folder: --checkout-dir of the project's script, --pytorch-dir and the"
    " like of `rocm-wheels`"
)
_JOBS = min(2 * (os.cpu_count() or 1), 16)  # repositories of one tree at a time

_T = TypeVar("_T")
_R = TypeVar("_R")


IndexStamp = tuple[int, ...]  # of the file: inode, bytes, ns of its last write and of its last change


class TreeEntry(NamedTuple):
    """A path of a tree or index: octal mode and object id."""

    path: str
    mode: str
    object: str


@dataclass(frozen=True)
class TreePart:
    """A repository of a source tree: its path from the root (``""``), and its commit in the parent.

    As they were when it was listed: ``git_dir``, its folder; ``head`` and ``tree``, the commit that is
    checked out and that commit's tree (empty before the first commit); ``hidden``, the files on the
    disk that git was told not to look at; ``links``, the submodules in its index; ``index``, what tells
    whether that is still the same one (``stamp_index``; empty: not known).
    """

    path: str
    git: Git
    link: str
    git_dir: Path
    head: str
    tree: str
    hidden: tuple[str, ...] = ()
    links: tuple[TreeEntry, ...] = ()
    index: IndexStamp = ()

    def path_from_root(self, path: str) -> str:
        """Return a path of this repository as seen from the root."""
        return f"{self.path}/{path}" if self.path else path


class TreeChange(NamedTuple):
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
            objects = find_objects_folder(git)
            scratch = Path(folder, "objects")
            scratch.mkdir()
            variables["GIT_OBJECT_DIRECTORY"] = str(scratch)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quote_path(str(objects.resolve()))
        index_git = git.with_variables(**variables)
        if seed is not None and seed.exists():
            shutil.copy2(seed, index)
            if hidden := _read_index(index_git)[1]:
                names = "".join(f"{path}\0" for path in hidden).encode("utf-8", "surrogateescape")
                for flag in ("--no-skip-worktree", "--no-assume-unchanged"):  # git does one at a time
                    index_git.text("update-index", flag, "-z", "--stdin", stdin=names)
        yield index_git


@contextmanager
def show_hidden_files(part: TreePart) -> Iterator[Git]:
    """Give a git that looks at files it was told not to look at, too.

    TheRock's scripts mark the submodules of their checkouts so (skip-worktree).
    """
    if not part.hidden:
        yield part.git
        return
    with temporary_index(part.git, part.git_dir / "index", keep=False) as index_git:
        yield index_git


def _read_index(git: Git) -> tuple[list[TreeEntry], tuple[str, ...]]:
    """List the gitlinks of an index, and what is marked skip-worktree or assume-unchanged and on the disk."""
    links, marked = [], []
    for line in git.fields("ls-files", "-s", "-v", "-z"):  # tag, mode, id and stage, then the path
        if line[0] == "H" and line[2:8] != GITLINK:
            continue  # a file, as most are
        if line[2:8] == GITLINK:
            facts, path = line.split("\t", 1)
            links.append(TreeEntry(path, GITLINK, facts.split(" ")[2]))
        if line[0] == "S" or line[0].islower():
            marked.append(line.split("\t", 1)[1])
    return links, tuple(path for path in marked if os.path.lexists(git.directory / path))


def choose_seed_index(
    git_dir: Path, head: str, state: checkout_state.CheckoutState | None, prefix: str
) -> Path:
    """Choose the index that knows a tree best: our own after an uncommitted hipify, else the real one."""
    recorded = state.left.get(prefix) if state is not None else None
    side = git_dir / checkout_state.OWN_FOLDER / checkout_state.SIDE_INDEX
    if recorded is not None and recorded.uncommitted and recorded.head == head and side.exists():
        return side
    return git_dir / "index"


def write_snapshot(git: Git, seed: Path | None, *, keep: bool = False) -> str:
    """Return the tree id of the files as they are now: tracked, and untracked but not ignored."""
    with temporary_index(git, seed, keep=keep) as index_git:
        stage_files(index_git)
        return index_git.text("write-tree")


def stage_files(index_git: Git) -> None:
    """Stage the files as they are now; a link that a build replaced by a copy is the link that it was."""
    links = find_copied_links(index_git)
    index_git.text("add", "-A", "--", ".")
    for link in links:
        index_git.text("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", link.path)
        index_git.text("update-index", "--add", "--cacheinfo", f"{SYMLINK_MODE},{link.object},{link.path}")


def list_tree(git: Git, tree: str) -> list[TreeEntry]:
    """List a tree's files and gitlinks, in the order of git."""
    return [_parse_entry(field) for field in git.fields("ls-tree", "-r", "-z", "--full-tree", tree)]


def read_blobs(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """Return files by their object ids. Raises SourceError for one that is not there."""
    unique_oids = list(dict.fromkeys(oids))
    if not unique_oids:
        return {}
    # the last question is none: what is at the very end of an answer may be cut
    stdin = "".join(f"{oid}\n" for oid in (*unique_oids, "end")).encode("ascii")
    rest = git.text("cat-file", "--batch", stdin=stdin).encode("utf-8", "surrogateescape")
    files = {}
    for oid in unique_oids:
        facts, _, rest = rest.partition(b"\n")
        if not facts.startswith(f"{oid} blob ".encode("ascii")):
            kind = facts.decode("utf-8", "replace").split(" ")[1]
            raise errors.SourceError(
                f"{git.directory} lacks the object {oid}"
                if kind == "missing"
                else f"{oid} is a {kind} of {git.directory}, not a file",
                tip="`git fsck` in that repository says what it lacks; a new checkout has all of it",
            )
        size = int(facts.split(b" ")[2])
        files[oid], rest = rest[:size], rest[size + 1 :]
    return files


def read_blob_texts(git: Git, oids: Iterable[str]) -> dict[str, str]:
    """Return the text of files by their object ids, each without its last newline, as ``Git.text`` gives it.

    Raises SourceError for one that is not there.
    """
    return {
        oid: content.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
        for oid, content in read_blobs(git, oids).items()
    }


def list_differences(git: Git, command: str, *arguments: str) -> list[TreeChange]:
    """List what `git diff-tree` or `git diff-index` finds, submodules' other commits included."""
    options = ("--raw", "-z", "--no-renames", "--ignore-submodules=none")
    fields = git.fields(command, *options, *arguments)
    changes = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        changes.append(_parse_change(facts, path))
    return changes


def _parse_change(facts: str, path: str) -> TreeChange:
    old, new, old_object, new_object, letter = facts.lstrip(":").split(" ")
    return TreeChange(path, letter[:1], (old, old_object), (new, new_object))


class CommitComparison(NamedTuple):
    """The tree of a commit, and what differs in it from another one."""

    tree: str
    changes: list[TreeChange]


def compare_commits(git: Git, pairs: Iterable[tuple[str, str]]) -> list[CommitComparison]:
    """Compare the second commit of each pair with the first, all by one git."""
    stdin = "".join(f"{new} {old}\n" for old, new in pairs).encode("ascii")
    options = ("--raw", "-z", "--no-renames", "--ignore-submodules=none", "--always", "--format=%T")
    fields = iter(git.fields("diff-tree", "--stdin", "-r", *options, stdin=stdin))
    comparisons: list[CommitComparison] = []
    for facts in fields:
        if facts.startswith(("\n:", ":")):
            comparisons[-1].changes.append(_parse_change(facts.lstrip("\n"), next(fields)))
        else:
            comparisons.append(CommitComparison(facts, []))
    return comparisons


def borrow_objects(git: Git, lenders: Iterable[TreePart]) -> Git:
    """Return a git that sees the objects of other repositories of a tree as well."""
    folders = [_quote_path(str(find_objects_folder(part.git).resolve())) for part in lenders]
    return git.with_variables(GIT_ALTERNATE_OBJECT_DIRECTORIES=os.pathsep.join(folders))


def list_gitlinks(git: Git) -> list[TreeEntry]:
    """List the submodules in the index, populated or not."""
    return _read_index(git)[0]


def list_repositories(git: Git, state: checkout_state.CheckoutState | None = None) -> list[TreePart]:
    """List root and every populated submodule, recursively, outermost first, as they are now.

    ``state``: what we left in them, which need not be asked for again.
    """
    recorded = state.left if state is not None else {}
    notes = _read_index_notes(_locate_git_directory(git)) if state is not None else {}

    def look(location: tuple[str, Git, str]) -> tuple[TreePart, list[tuple[str, Git, str]]]:
        path = location[0]
        part = inspect_repository(*location, recorded.get(path), notes.get(path))
        populated = [entry for entry in part.links if is_populated(part.git.directory / entry.path)]
        return part, [
            (part.path_from_root(entry.path), git.in_directory(part.git.directory / entry.path), entry.object)
            for entry in populated
        ]

    parts = parallel.run_growing_work(look, [("", git, "")], jobs=_JOBS)
    return sorted(parts, key=lambda part: part.path.split("/") if part.path else [])


def inspect_repository(
    path: str,
    git: Git,
    link: str,
    recorded: checkout_state.RepositoryState | None = None,
    note: _IndexNote | None = None,
) -> TreePart:
    """Look at one repository, without those below it; ``recorded``: what we left in it.

    ``note``: what was in its index, which may be another one now.
    """
    git_dir = _locate_git_directory(git)
    index = stamp_index(git_dir)  # before it is read: one that comes meanwhile is another one
    if note is not None and note.stamp == index:
        links, hidden = note.links, tuple[str, ...]()
    else:
        links, hidden = _read_index(git)
    committed = recorded is not None and not recorded.uncommitted
    if recorded is not None and committed and read_detached_head(git_dir) == recorded.head:
        head, tree = recorded.head, recorded.tree
    else:
        # a revision that there is not yet is left out, without an error
        answer = git.text("rev-parse", "--absolute-git-dir", "--revs-only", "HEAD^{commit}", "HEAD^{tree}")
        answers = _REPOSITORY_ANSWER.fullmatch(answer).groups(default="")  # type: ignore[union-attr]
        git_dir, head, tree = Path(answers[0]), answers[1], answers[2]
    return TreePart(path, git, link, git_dir, head, tree, hidden, tuple(links), index)


class _IndexNote(NamedTuple):
    """An index in which no file is marked as one that git is not to look at, and its submodules."""

    stamp: IndexStamp
    links: list[TreeEntry]


def stamp_index(git_dir: Path) -> IndexStamp:
    """Return what changes whenever git writes a repository's index; empty where there is none."""
    try:
        status = (git_dir / "index").stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_index_notes(parts: Sequence[TreePart], git_dir: Path) -> None:
    """Note what is in indexes of a tree (its root is in ``git_dir``), for who lists its repositories next."""
    notes = {
        part.path: [part.index, part.links]
        for part in parts
        if part.index and not part.hidden and part.index == stamp_index(part.git_dir)
    }
    write_atomically(git_dir / checkout_state.OWN_FOLDER / checkout_state.INDEXES_FILE, json.dumps(notes))


def _read_index_notes(git_dir: Path) -> dict[str, _IndexNote]:
    path = git_dir / checkout_state.OWN_FOLDER / checkout_state.INDEXES_FILE
    if not path.is_file():
        return {}
    notes = json.loads(path.read_text(encoding="ascii"))
    return {
        name: _IndexNote(tuple(index), [TreeEntry(*link) for link in links])
        for name, (index, links) in notes.items()
    }


def _locate_git_directory(git: Git) -> Path:
    """Return a repository's own folder, by the name at the top of its working tree."""
    pointer = git.directory / ".git"
    return Path(os.path.realpath(read_git_pointer(pointer) if pointer.is_file() else pointer))


def read_detached_head(git_dir: Path) -> str:
    """Return the commit that is checked out without a branch; what else HEAD holds is none."""
    head = git_dir / "HEAD"
    return head.read_text(encoding="utf-8", errors="surrogateescape").strip() if head.is_file() else ""


def update_heads(
    parts: Sequence[TreePart], states: Mapping[str, checkout_state.RepositoryState]
) -> list[TreePart]:
    """Return the repositories of a tree in which now ``states`` are checked out."""
    return [
        replace(part, head=state.head, tree=state.tree, link=state.head if part.path else "")
        if (state := states[part.path]).head != part.head
        else part
        for part in parts
    ]


def require_commit(part: TreePart) -> None:
    """Raise SourceError, with git's own words, for a repository without a commit."""
    if not part.head:
        read_head_and_folder(part.git)


def list_missing_submodules(directory: Path, *, env: Mapping[str, str]) -> list[str]:
    """List the submodules of a tree, recursively, that its commits name and nobody fetched.

    None of a folder that is no checkout, or of a tree that was checked out without them.
    """
    if not (directory / ".git").exists():
        return []
    git = Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"})
    state = checkout_state.read_state(_locate_git_directory(git))
    if state is not None and not state.submodules:
        return []
    return select_missing_submodules(list_repositories(git, state))


def select_missing_submodules(tree: Iterable[TreePart]) -> list[str]:
    """Return the paths, from the root, of the submodules that the repositories of a tree name and lack."""
    return [
        part.path_from_root(link.path)
        for part in tree
        for link in part.links
        if not is_populated(part.git.directory / link.path)
    ]


def run_side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Return ``work(item)`` for every item, in their order; for what touches one repository each."""
    return parallel.run_in_parallel(work, items, jobs=_JOBS)


def find_holder(path: str, paths: Iterable[str]) -> str:
    """Return, of the repositories' ``paths``, the one that holds the submodule at ``path``."""
    return max(
        (
            candidate
            for candidate in paths
            if candidate != path and (not candidate or path.startswith(f"{candidate}/"))
        ),
        key=len,
    )


def is_populated(directory: Path) -> bool:
    """Tell whether a submodule's folder has its repository (a clone that was cut leaves a dangling name)."""
    pointer = directory / ".git"
    if pointer.is_dir():
        return True
    if not pointer.is_file():
        return False
    return (read_git_pointer(pointer) / "HEAD").is_file()


def read_head_and_folder(git: Git) -> tuple[str, Path]:
    """Return the commit that is checked out and the folder of the repository."""
    git_dir, _, head = git.text("rev-parse", "--absolute-git-dir", "HEAD").rpartition("\n")
    return head, Path(git_dir)


def has_head_commit(git: Git) -> bool:
    """Tell whether HEAD names a commit (a repository just made has none)."""
    return git.succeeds("rev-parse", "-q", "--verify", "HEAD^{commit}")


def has_object(git: Git, commit: str) -> bool:
    """Tell whether a commit is in the repository."""
    return bool(commit) and git.succeeds("cat-file", "-e", f"{commit}^{{commit}}")


def can_list_tree(git: Git, commit: str) -> bool:
    """Tell whether a commit's own listing can be read."""
    return git.succeeds("ls-tree", "-r", "-t", "--name-only", "--full-tree", commit)


def is_held_commit(git: Git, commit: str) -> bool:
    """Tell whether a ref holds a commit: git vouches for all that it needs, and keeps it."""
    try:
        return bool(git.text("for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)"))
    except (
        errors.SourceError
    ):  # git knows no such commit; whatever else it is, the fetch that follows says so
        return False


def has_whole_commit(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs.

    Git vouches for what a ref holds, and here looks at the rest, as `git fetch` does before it asks for
    anything: a fetch that was killed leaves commits without their files.
    """
    options = ("--objects", "--quiet", "--exclude-promisor-objects")
    # whatever else is wrong there, the fetch that follows says so
    return git.succeeds("rev-list", *options, f"{commit}^{{commit}}", "--not", "--all")


def _parse_entry(field: str) -> TreeEntry:
    facts, path = field.split("\t", 1)
    mode, _, oid = facts.split(" ")
    return TreeEntry(path, mode, oid)


def _quote_path(path: str) -> str:
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


_DIRTY_LETTERS = ("1", "2", "u", "?")  # the first letters of what counts in `git status --porcelain=2`


@dataclass(frozen=True)
class TreeIdentity:
    """``commit`` is HEAD, ``upstream`` the commit it was made from (``None`` when not known).

    ``tree`` changes with any file that is tracked, or untracked and not ignored, in the
    root and in every submodule. ``dirty``: somebody changed something since the commit;
    an uncommitted hipify of ours does not count. ``epoch``: the commit's date, seconds since 1970.
    ``source``: the newest commit that neither hipify nor we made: upstream's, or somebody's own on top.
    """

    commit: str
    upstream: str | None
    tree: str
    dirty: bool
    epoch: int
    source: str = field(default="", compare=False)


def identify_tree(directory: Path, *, env: Mapping[str, str]) -> TreeIdentity:
    """Identify the sources in ``directory``, the top of a git checkout. Nothing is written there.

    Raises SourceError when it is no checkout or has no commit.
    """
    if not (directory / ".git").exists():
        raise errors.SourceError(
            f"{directory} is not a git checkout",
            tip="check the sources out with repos/pytorch_<project>_repo.py checkout",
        )
    git = disable_private_filters(Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    part = inspect_repository("", git, "")
    require_commit(part)
    state = checkout_state.read_state(part.git_dir)
    tree, changed = hash_combined_tree(part, _list_links(part), state)
    upstream = state.upstream if state is not None else _read_upstream_tag(git)
    ours = state is not None and state.operation is None and state.identity == tree
    epoch = int(git.text("rev-list", "--timestamp", "-1", part.head, "--").split(" ")[0])
    source = _find_source_commit(git, part.head, upstream)
    return TreeIdentity(part.head, upstream or None, tree, changed and not ours, epoch, source)


def _find_source_commit(git: Git, head: str, upstream: str | None) -> str:
    if not upstream or upstream == head:
        return head
    form = "--format=%H%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--no-show-signature", form, f"{upstream}..{head}", "--"):
        commit, email, subject = line.split("\t", 2)
        if email != OUR_EMAIL and subject != checkout_state.HIPIFY_MESSAGE:
            return commit
    return upstream


def read_current_tree(git: Git, state: checkout_state.CheckoutState | None) -> tuple[str, str]:
    """Return the commit and the tree (as in ``TreeIdentity``) that are there now."""
    part = inspect_repository("", git, "")
    require_commit(part)
    return part.head, hash_combined_tree(part, _list_links(part), state)[0]


def hash_whole_tree(parts: Sequence[TreePart], state: checkout_state.CheckoutState | None) -> str:
    """Return the tree of all repositories of a tree (as in ``TreeIdentity``)."""
    paths = [part.path for part in parts]
    return hash_combined_tree(
        parts[0], [path for path in paths if path and not find_holder(path, paths)], state
    )[0]


def hash_combined_tree(
    part: TreePart, links: Iterable[str], state: checkout_state.CheckoutState | None
) -> tuple[str, bool]:
    """Return the id of a tree with its submodules (in ``links``), and whether it differs from its commit.

    It is git's own tree id where no submodule differs from its gitlink; else a SHA-1 over
    that and the ids of the submodules that do.
    """
    changed, modules = _find_changes(part, links)
    if not changed:
        return part.tree, False
    tree = write_snapshot(part.git, choose_seed_index(part.git_dir, part.head, state, part.path))

    def below(path: str) -> tuple[str, str]:
        git = replace(part.git, directory=part.git.directory / path)
        module = inspect_repository(part.path_from_root(path), git, "")
        require_commit(module)
        return path, hash_combined_tree(module, _list_links(module), state)[0]

    module_trees = run_side_by_side(below, sorted(modules))
    if not module_trees:
        return tree, tree != part.tree
    digest = hashlib.sha1(tree.encode("ascii"), usedforsecurity=False)
    for path, module_tree in module_trees:
        digest.update(b"\0" + path.encode("utf-8", "surrogateescape") + b"\0" + module_tree.encode("ascii"))
    return digest.hexdigest(), True


def _list_links(part: TreePart) -> list[str]:
    return [link.path for link in part.links]


def _find_changes(part: TreePart, links: Iterable[str]) -> tuple[bool, set[str]]:
    """Tell whether anything differs from the commit, and in which submodules files do.

    It is what `git status --ignore-submodules=none` says, which asks one submodule after the other by
    just this command (git's submodule.c, is_submodule_modified); here they are asked side by side.
    """
    modules = {path for path in links if is_populated(part.git.directory / path)}

    def ask(path: str) -> list[str]:
        if path:
            inside = replace(part.git, directory=part.git.directory / path).with_variables(GIT_DIR=".git")
            return [
                line
                for line in inside.text("status", "--porcelain=2").split("\n")
                if line[:1] in _DIRTY_LETTERS
            ]
        with show_hidden_files(part) as index_git:
            return index_git.fields(
                "status",
                "--porcelain=v2",
                "-z",
                "--untracked-files=normal",
                "--ignore-submodules=dirty",
                "--no-renames",
            )

    paths = ["", *sorted(modules)]
    statuses = dict(zip(paths, run_side_by_side(ask, paths), strict=True))
    unmerged = {record.split(" ", 10)[10] for record in statuses[""] if record.startswith("u ")}
    return any(statuses.values()), {path for path in modules - unmerged if statuses[path]}


def _read_upstream_tag(git: Git) -> str | None:
    tags = git.text("for-each-ref", "--format=%(objectname)", f"refs/tags/{checkout_state.UPSTREAM_TAG}")
    return tags or None

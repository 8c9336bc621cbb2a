"""The repositories of a working tree and what is in them, looked at without touching the user's index.

A snapshot is made in a temporary copy of an index: its stat data make it cheap, and what is ignored stays
out. Submodules are repositories of their own, found through gitlinks. What a tree holds right now has one id,
by which the fingerprint of a build knows it.

A build may replace tracked links by copies of what they point to: ROCm/apex's setup.py does so with
``apex/csrc`` and ``apex/op_builder``, because wheels hold no links (ROCm/apex#291). Git calls that a removed
file; a tree with such copies and nothing else is unchanged.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.sources import checkout_state
from rocm_wheels.sources.git import (
    OUR_EMAIL,
    Git,
    disable_private_filters,
    find_git_directory,
    find_objects_folder,
    read_git_pointer,
)

GITLINK = "160000"  # the mode of a submodule in trees and indexes
SYMLINK_MODE = "120000"  # the mode of a symbolic link there
CHECKOUT_TIP = (
    "run `checkout` first, or name another folder: --source-dir, or --checkout-dir of the project's script"
)
_COMMIT_ID = re.compile("[0-9a-f]{40}")
_JOBS = min(2 * (os.cpu_count() or 1), 16)  # repositories of one tree at a time

_T = TypeVar("_T")
_R = TypeVar("_R")


class TreeEntry(NamedTuple):
    """A path of a tree or index: octal mode and object id."""

    path: str
    mode: str
    object: str


@dataclass(frozen=True)
class TreePart:
    """A repository of a source tree: its path from the root (``""``), and its commit in the parent.

    As they were when it was listed: ``git_dir``, its folder; ``head``, the commit that is checked out (empty
    before the first one), and ``known_tree``, that commit's tree where it is known; ``hidden``, the files on
    the disk that git was told not to look at; ``links``, the submodules in its index.
    """

    path: str
    git: Git
    link: str
    git_dir: Path
    head: str
    known_tree: str = ""
    hidden: tuple[str, ...] = ()
    links: tuple[TreeEntry, ...] = ()

    @cached_property
    def tree(self) -> str:
        """The tree of the commit, empty where there is none."""
        return self.known_tree or (self.git.text("rev-parse", f"{self.head}^{{tree}}") if self.head else "")

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


def list_repositories(git: Git) -> list[TreePart]:
    """List root and every populated submodule, recursively, outermost first, as they are now."""

    def look(location: tuple[str, Git, str]) -> tuple[TreePart, list[tuple[str, Git, str]]]:
        part = inspect_repository(*location)
        return part, [
            (part.path_from_root(entry.path), git.in_directory(part.git.directory / entry.path), entry.object)
            for entry in part.links
            if is_populated(part.git.directory / entry.path)
        ]

    parts = parallel.run_growing_work(look, [("", git, "")], jobs=_JOBS)
    return sorted(parts, key=lambda part: part.path.split("/") if part.path else [])


def inspect_repository(path: str, git: Git, link: str) -> TreePart:
    """Look at one repository, without those below it."""
    git_dir = find_git_directory(git)
    links, hidden = _read_index(git)
    head = (git_dir / "HEAD").read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
    tree = ""
    if not _COMMIT_ID.fullmatch(head):
        # a branch; a revision that there is not yet is left out, without an error
        head, _, tree = git.text("rev-parse", "--revs-only", "HEAD^{commit}", "HEAD^{tree}").partition("\n")
    return TreePart(path, git, link, git_dir, head, tree, hidden, links)


def move_parts(
    parts: Iterable[TreePart], left: Mapping[str, checkout_state.RepositoryState]
) -> list[TreePart]:
    """Return the repositories of a tree at the commits that we left there."""
    return [
        part if state.head == part.head else replace(part, head=state.head, known_tree=state.tree)
        for part in parts
        for state in (left[part.path],)
    ]


def require_commit(part: TreePart) -> None:
    """Raise SourceError, with git's own words, for a repository without a commit."""
    if not part.head:
        part.git.text("rev-parse", "HEAD")


def list_missing_submodules(parts: Sequence[TreePart]) -> list[str]:
    """List the submodules of a tree, recursively, that its commits name and nobody fetched.

    None of a tree that was checked out without them.
    """
    state = checkout_state.read_state(parts[0].git_dir)
    return [] if state is not None and not state.submodules else select_missing_submodules(parts)


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


def is_on_branch(part: TreePart) -> bool:
    """Tell whether HEAD is a branch, which moves with what is committed."""
    return (part.git_dir / "HEAD").read_text(encoding="utf-8", errors="surrogateescape").startswith("ref:")


def read_tags(git: Git) -> tuple[str, str]:
    """Return the commits that the two tags of a repository name, upstream's and hipify's; "" for no tag."""
    names = [f"refs/tags/{name}" for name in (checkout_state.UPSTREAM_TAG, checkout_state.HIPIFY_TAG)]
    lines = git.text("for-each-ref", "--format=%(refname) %(objectname)", *names).splitlines()
    tags = dict(line.split(" ") for line in lines)
    return tags.get(names[0], ""), tags.get(names[1], "")


def has_head_commit(git: Git) -> bool:
    """Tell whether HEAD names a commit (a repository just made has none)."""
    return git.succeeds("rev-parse", "-q", "--verify", "HEAD^{commit}")


def has_object(git: Git, commit: str) -> bool:
    """Tell whether a commit is in the repository."""
    return bool(commit) and git.succeeds("cat-file", "-e", f"{commit}^{{commit}}")


def is_held_commit(git: Git, commit: str) -> bool:
    """Tell whether a ref holds a commit: git vouches for all that it needs, and keeps it."""
    try:
        return bool(git.text("for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)"))
    except errors.SourceError:
        return False  # git knows no such commit; whatever else it is, the fetch that follows says so


def has_whole_commit(git: Git, commit: str) -> bool:
    """Tell whether a commit is there with all that it needs.

    Git vouches for what a ref holds, and here looks at the rest, as `git fetch` does before it asks for
    anything: a fetch that was killed leaves commits without their files.
    """
    options = ("--objects", "--quiet", "--exclude-promisor-objects")
    # whatever else is wrong there, the fetch that follows says so
    return git.succeeds("rev-list", *options, f"{commit}^{{commit}}", "--not", "--all")


def list_tree(git: Git, tree: str) -> list[TreeEntry]:
    """List a tree's files and gitlinks, in the order of git."""
    entries = []
    for line in git.fields("ls-tree", "-r", "-z", "--full-tree", tree):
        facts, path = line.split("\t", 1)
        mode, _, oid = facts.split(" ")
        entries.append(TreeEntry(path, mode, oid))
    return entries


def read_objects(git: Git, names: Sequence[str]) -> list[tuple[str, str, bytes]]:
    """Return (id, kind, content) of objects by their names; the kind of one that is not there is missing."""
    # the last question is none: what is at the very end of an answer may be cut
    stdin = "".join(f"{name}\n" for name in (*names, "end")).encode("ascii")
    rest = git.text("cat-file", "--batch", stdin=stdin).encode("utf-8", "surrogateescape")
    objects = []
    for _ in names:
        facts, _, rest = rest.partition(b"\n")
        oid, kind, *size = facts.decode("utf-8", "replace").split(" ")
        end = int(size[0]) if size else -1
        objects.append((oid, kind, rest[: max(end, 0)]))
        rest = rest[end + 1 :]
    return objects


def read_blobs(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """Return files by their object ids. Raises SourceError for one that is not there."""
    unique_oids = list(dict.fromkeys(oids))
    files = {}
    for oid, kind, content in read_objects(git, unique_oids) if unique_oids else ():
        if kind != "blob":
            raise errors.SourceError(
                f"{git.directory} lacks the object {oid}"
                if kind == "missing"
                else f"{oid} is a {kind} of {git.directory}, not a file",
                tip="`git fsck` in that repository says what it lacks; a new checkout has all of it",
            )
        files[oid] = content
    return files


def list_differences(git: Git, command: str, *arguments: str) -> list[TreeChange]:
    """List what `git diff-tree` or `git diff-index` finds, submodules' other commits included."""
    options = ("--raw", "-z", "--no-renames", "--ignore-submodules=none")
    fields = git.fields(command, *options, *arguments)
    changes = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old, new, old_object, new_object, letter = facts.lstrip(":").split(" ")
        changes.append(TreeChange(path, letter[:1], (old, old_object), (new, new_object)))
    return changes


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


def _read_index(git: Git) -> tuple[tuple[TreeEntry, ...], tuple[str, ...]]:
    """List the gitlinks of the index, and what is marked skip-worktree or assume-unchanged and is there."""
    links, marked = [], []
    for line in git.fields("ls-files", "-s", "-v", "-z"):  # tag, mode, id and stage, then the path
        facts, path = line.split("\t", 1)
        if line[2:8] == GITLINK:
            links.append(TreeEntry(path, GITLINK, facts.split(" ")[2]))
        if (line[0] == "S" or line[0].islower()) and os.path.lexists(git.directory / path):
            marked.append(path)
    return tuple(links), tuple(marked)


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


def _quote_path(path: str) -> str:
    if ":" not in path and not path.startswith('"'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    copies = []
    for line in git.fields("ls-files", "-s", "-z"):
        facts, path = line.split("\t", 1)
        if not facts.startswith(SYMLINK_MODE):
            continue
        copy = git.directory / path
        if copy.exists() and not copy.is_symlink():
            link = facts.split(" ")[1]
            copies.append(CopiedLink(path, link, git.text("cat-file", "blob", link)))
    return [link for link in copies if _is_copied_link(git, link)]


def _is_copied_link(git: Git, link: CopiedLink) -> bool:
    base = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    if base.startswith(("/", "..")):
        return False
    copy, original = git.directory / link.path, git.directory / base
    if not copy.is_dir():
        return original.is_file() and filecmp.cmp(copy, original, shallow=False)
    for file in copy.rglob("*"):
        if file.is_dir() and not file.is_symlink():
            continue
        name = file.relative_to(copy).as_posix()
        source = original / name
        # readers of both see the same: a copy has no links
        if source.is_file() and file.is_file() and filecmp.cmp(file, source, shallow=False):
            continue
        content = os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
        committed = git.fields("ls-tree", "-z", "--full-tree", "HEAD", "--", f"{base}/{name}")
        if [line.split(" ")[2].split("\t")[0] for line in committed] == [hash_blob(content)]:
            continue
        if not git.succeeds("check-ignore", "-q", "--", f"{link.path}/{name}"):
            return False
    return True


def hash_blob(content: bytes) -> str:
    """Return the id that git gives a file's content (no filter, no change of line ends)."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


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


def open_tree(directory: Path, env: Mapping[str, str]) -> Git:
    """Return git in ``directory``, the top of a checkout, to look at it: nothing is written there.

    Raises SourceError when it is no checkout.
    """
    if not (directory / ".git").exists():
        raise errors.SourceError(
            f"{directory} is not a git checkout",
            tip="check the sources out with repos/pytorch_<project>_repo.py checkout",
        )
    return disable_private_filters(Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))


def identify_tree(directory: Path, *, env: Mapping[str, str]) -> TreeIdentity:
    """Identify the sources in ``directory``, the top of a git checkout. Nothing is written there.

    Raises SourceError when it is no checkout, has no commit, or a checkout there was cut.
    """
    return identify_parts(list_repositories(open_tree(directory, env)))


def identify_parts(parts: Sequence[TreePart]) -> TreeIdentity:
    """Identify the sources in the repositories of a tree; see ``identify_tree``."""
    part = parts[0]
    git, directory = part.git, part.git.directory
    require_commit(part)
    state = checkout_state.read_state(part.git_dir)
    if state is not None and state.operation == "checkout":
        raise errors.SourceError(
            f"the checkout in {directory} was interrupted", tip="run `checkout` again; it continues"
        )
    tree = hash_files(parts, state)
    upstream = state.upstream if state is not None else read_tags(git)[0]
    ours = state is not None and state.operation is None and state.identity == tree
    epoch = int(git.text("rev-list", "--timestamp", "-1", part.head, "--").split(" ")[0])
    source = _find_source_commit(git, part.head, upstream)
    return TreeIdentity(part.head, upstream or None, tree, tree != part.tree and not ours, epoch, source)


def _find_source_commit(git: Git, head: str, upstream: str) -> str:
    if not upstream or upstream == head:
        return head
    form = "--format=%H%x09%ce%x09%s"
    for line in git.fields("log", "-z", "--no-show-signature", form, f"{upstream}..{head}", "--"):
        commit, email, subject = line.split("\t", 2)
        if email != OUR_EMAIL and subject != checkout_state.HIPIFY_MESSAGE:
            return commit
    return upstream


def select_changed(parts: Iterable[TreePart]) -> list[TreePart]:
    """Return the repositories in which git finds a change; what is in submodules is theirs."""

    def look(part: TreePart) -> bool:
        require_commit(part)
        with show_hidden_files(part) as git:
            return bool(
                git.text("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty")
            )

    parts = list(parts)
    return [part for part, changed in zip(parts, run_side_by_side(look, parts), strict=True) if changed]


def hash_files(parts: Sequence[TreePart], state: checkout_state.CheckoutState | None) -> str:
    """Return the id of a whole tree, by its repositories (see ``hash_tree``)."""
    if all(part.head for part in parts) and not select_changed(parts):
        return parts[0].tree
    return hash_tree(parts[0], state)[0]


def hash_tree(part: TreePart, state: checkout_state.CheckoutState | None) -> tuple[str, bool]:
    """Return the id of a tree with its submodules, and whether it differs from its commit.

    It is git's own tree id where no submodule differs from its gitlink; else a SHA-1 over
    that and the ids of the submodules that do.
    """
    require_commit(part)
    with show_hidden_files(part) as git:
        options = ("-z", "--untracked-files=normal", "--ignore-submodules=none", "--no-renames")
        changes = git.fields("status", "--porcelain=v2", *options)
    if not changes:
        return part.tree, False
    tree = write_snapshot(part.git, choose_seed_index(part.git_dir, part.head, state, part.path))
    digest = hashlib.sha1(tree.encode("ascii"), usedforsecurity=False)
    # `1 XY S<commit><modified><untracked> mH mI mW hH hI path`: submodules with other files than their commit
    fields = [line.split(" ", 8) for line in changes if line.startswith("1 ")]
    modules = sorted(words[8] for words in fields if words[2][0] == "S" and words[2][2:] != "..")
    for path in modules:
        git = part.git.in_directory(part.git.directory / path)
        module_tree, _ = hash_tree(inspect_repository(part.path_from_root(path), git, ""), state)
        digest.update(b"\0" + path.encode("utf-8", "surrogateescape") + b"\0" + module_tree.encode("ascii"))
    return (digest.hexdigest(), True) if modules else (tree, tree != part.tree)


def read_current_tree(git: Git, state: checkout_state.CheckoutState | None) -> tuple[str, str]:
    """Return the commit and the tree (as in ``TreeIdentity``) that are there now."""
    parts = list_repositories(git)
    return parts[0].head, hash_files(parts, state)

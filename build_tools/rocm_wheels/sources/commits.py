"""Listings of the files in working trees, and commits and tags made of them.

A commit is the same object for the same input, on any day and by anybody: no hook runs, nothing is signed,
no configured name, date or encoding enters.

Files of equal content keep their time. Compilers' drivers go by times: a file that is written again with the
same content would be compiled again, and with it all that includes it (pytorch/pytorch#82190).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.core import errors
from rocm_wheels.core.files import write_atomically
from rocm_wheels.sources import checkout_state, network, trees
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git

_LARGEST_GENERATED = 8 * 2**20  # bytes; an untracked file above this is a build product, not a source


class FileStamp(NamedTuple):
    """A file at a moment: mode and object id as in git, time in ns, and what changes with any write."""

    mode: str
    object: str
    mtime_ns: int
    stamp: tuple[int, int]  # inode, ctime_ns


FileListing = dict[str, FileStamp]


class RepositoryListing(NamedTuple):
    """The files of one repository: ``sources``, by git's objects, and what git ``ignored``, by content."""

    sources: FileListing
    ignored: FileListing


@dataclass(frozen=True)
class RepositoryScan:
    """Lists the files of one repository, again and again, through an index of our own (a file).

    Only the project's ``.gitignore`` files decide what is a source: the user's own excludes must not change
    a commit. Objects of sources are stored. Submodules are not listed, nor new files above 8 MiB: what a
    build left there is no source. Ignored files are listed but for the folders ``skip`` (build trees).
    """

    git: Git
    index: Path
    skip: Sequence[str]

    @property
    def index_git(self) -> Git:
        """A git that uses the index."""
        return self.git.with_variables(GIT_INDEX_FILE=str(self.index))

    def list_files(self) -> RepositoryListing:
        """List the files as they are now."""
        directory, index_git = self.git.directory, self.index_git
        # what is tracked (H, with mode and id), of that what changed (C); what is not (?), folders as one
        lines = index_git.fields("ls-files", "-t", "-s", "-m", "-o", "--directory", "-z")
        others, new = [line[2:] for line in lines if line[0] == "?"], []
        if others:
            new = index_git.fields("ls-files", "-o", "-z", "--exclude-per-directory=.gitignore")
        changed = [line.split("\t", 1)[1] for line in lines if line[0] == "C"]
        changed += [
            path
            for path in new
            if (status := _lstat_or_none(directory / path)) is not None
            and not stat.S_ISDIR(status.st_mode)  # git lists a repository inside as a folder
            and status.st_size <= _LARGEST_GENERATED
        ]
        if changed:
            data = "".join(f"{path}\0" for path in changed).encode("utf-8", "surrogateescape")
            # hundreds of small files at once: zlib takes more time than all else of it
            storing = index_git.with_settings("core.looseCompression=0")
            storing.text("update-index", "--add", "--remove", "-z", "--stdin", stdin=data)
            lines = index_git.fields("ls-files", "-t", "-s", "-z")
        sources: FileListing = {}
        for line in lines:
            facts, _, path = line[2:].partition("\t")
            tracked = line[0] in "HS" and facts[:6] != trees.GITLINK
            if tracked and (status := _lstat_or_none(directory / path)) is not None:
                identity = (status.st_ino, status.st_ctime_ns)
                sources[path] = FileStamp(facts[:6], facts[7:47], status.st_mtime_ns, identity)
        ignored: FileListing = {}  # by content: generated sources are often ignored
        named = {path.rstrip("/") for path in new}
        for path in others:
            for name in _list_below(directory, path, (*self.skip, *named)):
                if name in named:
                    continue
                status = _lstat_or_none(directory / name)
                if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_GENERATED:
                    continue
                oid = hashlib.sha1((directory / name).read_bytes(), usedforsecurity=False).hexdigest()
                identity = (status.st_ino, status.st_ctime_ns)
                ignored[name] = FileStamp(oct(status.st_mode), oid, status.st_mtime_ns, identity)
        return RepositoryListing(sources, ignored)


def list_all_files(
    parts: Sequence[trees.TreePart], skip: Sequence[str], state: checkout_state.CheckoutState | None
) -> FileListing:
    """List all files of a tree, from its root, git-ignored ones too; ``skip``: build trees of the root."""

    def look(item: tuple[int, trees.TreePart]) -> FileListing:
        index, part = Path(folder, str(item[0])), item[1]
        seed = trees.choose_seed_index(part.git_dir, part.head, state, part.path)
        if seed.exists():
            shutil.copy2(seed, index)
        listing = RepositoryScan(part.git, index, () if part.path else skip).list_files()
        return {part.path_from_root(path): entry for files in listing for path, entry in files.items()}

    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        listings = trees.run_side_by_side(look, enumerate(part for part in parts if part.head))
    return {path: entry for listing in listings for path, entry in listing.items()}


def find_touched_files(before: FileListing, after: FileListing) -> dict[str, FileStamp | None]:
    """Return what was written, made or removed (``None``) in between, equal content included."""
    changes: dict[str, FileStamp | None] = {path: None for path in before if path not in after}
    for path, entry in after.items():
        old = before.get(path)
        if old is None or (old.mode, old.object, old.stamp) != (entry.mode, entry.object, entry.stamp):
            changes[path] = entry
    return changes


def restore_times(git: Git, before: FileListing, after: FileListing) -> list[str]:
    """Give files whose content is what it was their time back; return the files that did change."""
    changed, restored = [], False
    for path, entry in after.items():
        old = before.get(path)
        if old is None or (old.mode, old.object) != (entry.mode, entry.object):
            changed.append(path)
        elif old.mtime_ns != entry.mtime_ns:
            file = git.directory / path
            if not file.is_symlink():  # compilers see where it leads
                os.utime(file, ns=(file.stat().st_atime_ns, old.mtime_ns))
                restored = True
    if restored:
        # let the index learn the new times, so that the next `git status` is quick
        git.succeeds("update-index", "-q", "--refresh")
    return changed + [path for path in before if path not in after]


def save_times(path: Path, listing: FileListing) -> None:
    """Keep a listing on disk, for the run after a crash."""
    rows = [[name, entry.mode, entry.object, entry.mtime_ns] for name, entry in listing.items()]
    write_atomically(path, json.dumps(rows))


def load_times(path: Path) -> FileListing:
    """Read a listing that an interrupted run left; an empty one when there is none."""
    if not path.exists():
        return {}
    return {n: FileStamp(mode, oid, mtime, (0, 0)) for n, mode, oid, mtime in json.loads(path.read_text())}


def remove_files(root: Path, paths: Sequence[str]) -> None:
    """Remove files, and folders that are empty then; what is already gone is no error."""
    folders: set[Path] = set()
    for path in paths:
        file = root / path
        if _lstat_or_none(file) is not None and (file.is_symlink() or not file.is_dir()):
            file.unlink()
        folders.update(folder for folder in Path(path).parents if folder.parts)
    for folder in sorted(folders, key=lambda f: len(f.parts), reverse=True):
        target = root / folder
        if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
            target.rmdir()


def _list_below(root: Path, path: str, skip: Sequence[str]) -> Iterator[str]:
    """Yield the files of an entry of `git ls-files --directory`, relative to ``root``."""
    if any(path == f"{folder}/" or path.startswith(f"{folder}/") for folder in skip):
        return
    if not path.endswith("/"):
        yield path
        return
    for folder, folders, files in os.walk(root / path):
        relative_folder = Path(folder).relative_to(root).as_posix()
        folders[:] = sorted(f for f in folders if f != ".git" and f"{relative_folder}/{f}" not in skip)
        yield from (f"{relative_folder}/{name}" for name in sorted(files) if name != ".git")


def _lstat_or_none(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


_ABSENT_OBJECT = "0" * 40


def write_commit(git: Git, tree: str, parents: Sequence[str], message: str, *, dated_like: str | None) -> str:
    """Store a commit with our name and the dates (and time zones) of ``dated_like``; return its id.

    Without one the dates are those of the epoch.
    """
    dates = ["@0 +0000", "@0 +0000"]
    if dated_like is not None:
        form = "--format=%ad%n%cd"
        dates = git.text("show", "-s", "--no-show-signature", "--date=raw", form, dated_like).split("\n")
        dates = [f"@{date}" for date in dates]
    committing = git.with_settings("i18n.commitEncoding=UTF-8").with_variables(
        GIT_AUTHOR_NAME=OUR_NAME, GIT_AUTHOR_EMAIL=OUR_EMAIL, GIT_AUTHOR_DATE=dates[0],
        GIT_COMMITTER_NAME=OUR_NAME, GIT_COMMITTER_EMAIL=OUR_EMAIL, GIT_COMMITTER_DATE=dates[1],
    )  # fmt: skip
    words = [word for parent in parents for word in ("-p", parent)]
    return committing.text("commit-tree", tree, *words, stdin=f"{message}\n".encode())


def build_tree(git: Git, base: str, changes: Mapping[str, FileStamp | None], links: Mapping[str, str]) -> str:
    """Return the tree ``base`` with files changed (``None``: removed) and submodules moved to commits."""
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", base)
        return change_index(index_git, changes, links)


def change_index(git: Git, changes: Mapping[str, FileStamp | None], links: Mapping[str, str]) -> str:
    """Change files (``None``: removed) and submodules' commits in git's index; return the tree of that."""
    lines = [
        f"{entry.mode} {entry.object}\t{path}" if entry is not None else f"0 {_ABSENT_OBJECT}\t{path}"
        for path, entry in sorted(changes.items())
    ]
    lines += [f"{trees.GITLINK} {commit}\t{path}" for path, commit in sorted(links.items())]
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    git.text("update-index", "-z", "--index-info", stdin=data)
    return git.text("write-tree")


def commit_hipify(part: trees.TreePart, tree: str, upstream: str) -> str:
    """Commit ``tree``, which is the index's, on top of HEAD, and tag that; return the commit."""
    git, tag = part.git, f"refs/tags/{checkout_state.HIPIFY_TAG}"
    tagged = trees.read_tags(git)[1]
    message = checkout_state.HIPIFY_MESSAGE
    commit = write_commit(git, tree, [part.head], message, dated_like=upstream)
    moves = f"update HEAD {commit} {part.head}\n"
    if not tagged or not _holds_tag(git, tagged, part.head):
        moves += f"update {tag} {commit}\n"
    git.text("update-ref", "-m", message, "--stdin", stdin=moves.encode("ascii"))
    return commit


def tag_upstream_commits(
    parts: Sequence[trees.TreePart], *, hipified: bool
) -> dict[str, checkout_state.RepositoryState]:
    """Tag every repository's commit as upstream's, lightweight; return what lies there.

    What an earlier hipify is known by goes. ``hipified``: the commit is what hipify leaves, too.
    """
    hipify_tag = f"refs/tags/{checkout_state.HIPIFY_TAG}"

    def tag(part: trees.TreePart) -> tuple[str, checkout_state.RepositoryState]:
        trees.require_commit(part)
        lines = [
            f"update refs/tags/{checkout_state.UPSTREAM_TAG} {part.head}",
            f"update {hipify_tag} {part.head}" if hipified else f"delete {hipify_tag}",
            *(f"delete {ref}" for ref in (checkout_state.LEFT_REF, checkout_state.HIPIFIED_REF)),
            *([] if part.path else [f"delete {checkout_state.FETCHED_REF}"]),  # the tag holds what it did
        ]
        part.git.text("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode("ascii"))
        return part.path, checkout_state.RepositoryState(part.head, part.head, part.known_tree)

    return dict(trees.run_side_by_side(tag, parts))


def is_tagged(git: Git, upstream: str, *, hipified: bool) -> bool:
    """Tell whether our tags are there: `git fetch --prune-tags` takes them, another worktree moves them."""
    tags = trees.read_tags(git)
    return tags[0] == upstream and (not hipified or bool(tags[1]))


def tag_unchanged(git: Git, head: str) -> None:
    """Tag what hipify made where it changed nothing."""
    tagged = trees.read_tags(git)[1]
    if not tagged or not _holds_tag(git, tagged, head):
        git.text("update-ref", f"refs/tags/{checkout_state.HIPIFY_TAG}", head)


def _holds_tag(git: Git, tagged: str, head: str) -> bool:
    """Tell whether the history of a commit holds the hipify tag, which then stays.

    What came after it is somebody's work, and that work is what lies between the tag and HEAD.
    """
    return tagged == head or git.succeeds("merge-base", "--is-ancestor", tagged, head)


def require_tags(part: trees.TreePart) -> tuple[str, str]:
    """Return what the two tags of a repository name; the second is empty without that tag.

    Raises SourceError without upstream's, and where HEAD is not on top of that.
    """
    upstream, hipified = trees.read_tags(part.git)
    if not upstream:
        raise errors.SourceError(
            f"{part.git.directory} has no tag {checkout_state.UPSTREAM_TAG}",
            tip="`checkout` sets it, and `sources hipify` in a clone of yours",
        )
    require_below(part, checkout_state.UPSTREAM_TAG, upstream)
    return upstream, hipified


def require_below(part: trees.TreePart, tag: str, commit: str) -> None:
    """Raise SourceError where HEAD is not on top of what a tag names."""
    if not part.git.succeeds("merge-base", "--is-ancestor", commit, part.head):
        raise errors.SourceError(
            f"HEAD of {part.git.directory} is not on top of {tag}",
            tip=f"`git rebase --onto {tag} <where your work begins>`, or run `checkout` again",
        )


def check_branch_name(git: Git, branch: str) -> None:
    """Raise UsageError for what no branch can be named."""
    if branch.startswith("-") or not git.succeeds("check-ref-format", "--branch", branch):
        raise errors.UsageError(f"--branch {branch!r} is no name of a branch", tip="such as my-kernels")


def find_upstream_commit(git: Git, head: str) -> str:
    """Return the newest commit below HEAD that a remote has: what lies on it is somebody's own work.

    HEAD itself where no remote has any of its history.
    """
    options = ("--first-parent", "--boundary", "HEAD", "--not", "--remotes", f"--glob={network.SERVED_REFS}")
    below = [line[1:] for line in git.text("rev-list", *options).splitlines() if line.startswith("-")]
    return below[0] if below else head


def list_foreign_commits(git: Git, *excluded: str, tip: str = "HEAD") -> list[str]:
    """List the commits (id and subject) of a ``tip`` that neither upstream nor we made; newest first.

    Our committer marks ours, patches' too; a commit that somebody amends gets a committer of theirs.
    What is ``excluded`` and not there is left out.
    """
    options = ("-z", "--ignore-missing", "--no-show-signature", "--format=%ce%x09%h%x09%s")
    commits = []
    for line in git.fields("log", *options, tip, "--not", *excluded, "--"):
        email, short, subject = line.split("\t", 2)
        if email != OUR_EMAIL:
            commits.append(f"{short} {subject}")
    return commits

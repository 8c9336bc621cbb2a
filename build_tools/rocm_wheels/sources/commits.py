"""Listings of the files in working trees, and commits and tags made of them.

A commit is the same object for the same input, on any day and by anybody. GitPython's object database stores
it, in process: no hook runs, nothing is signed, no configured name, date or encoding enters. (Its ``Repo``
would read the process's own environment.)

Files of equal content keep their time. Compilers' drivers go by times: a file that is written again with the
same content would be compiled again, and with it all that includes it (pytorch/pytorch#82190).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.core import errors
from rocm_wheels.core.files import write_atomically
from rocm_wheels.sources import checkout_state, network, trees
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git, find_objects_folder

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


class RepositoryScan:
    """Lists the files of one repository, again and again, through an index of our own.

    Only the project's ``.gitignore`` files decide what is a source: the user's own excludes must not change
    a commit. Objects of sources are stored. Submodules are not listed, nor new files above 8 MiB: what a
    build left there is no source. Ignored files are listed but for the folders ``skip`` (build trees).

    ``index``: a file that is brought up to date. ``clean``: it is a copy of git's own, and git finds no
    change; after the first listing, also that it held all sources.
    """

    def __init__(self, git: Git, index: Path, skip: Sequence[str], *, clean: bool = False) -> None:
        self.git, self.index, self.skip, self.clean = git, index, skip, clean
        self.index_git = git.with_variables(GIT_INDEX_FILE=str(index))
        self._top = f"{git.directory}/"
        self._sources: FileListing | None = None
        self._alone = False  # there were no other files, not even ignored ones

    def list_files(self) -> RepositoryListing:
        """List the files as they are now."""
        first, last = self._sources is None, self._sources or {}
        same = {path: entry for path, entry in last.items() if self._is_as_listed(path, entry)}
        self._alone = (self.clean if first else self._alone and len(same) == len(last)) and not (
            self.index_git.fields("ls-files", "-o", "--directory", "-z")
        )
        if self._alone:
            self._sources = self._read_index({}) if first else last
            return RepositoryListing(self._sources, {})
        if first and not self.clean:
            self.index_git.text("add", "-u", "--", ".")
        new = self._list_new()
        self.clean = self.clean and not (first and new)
        if names := [*(path for path in last if path not in same), *new]:
            data = "".join(f"{path}\0" for path in names).encode("utf-8", "surrogateescape")
            self.index_git.text("update-index", "--add", "--remove", "-z", "--stdin", stdin=data)
        self._sources = self._read_index(same)
        return RepositoryListing(self._sources, self._list_ignored())

    def _read_index(self, same: FileListing) -> FileListing:
        """List what is in the index and on the disk; those that are the ``same`` are not looked at again."""
        listing: FileListing = {}
        for line in self.index_git.fields("ls-files", "-s", "-z"):
            facts, path = line.split("\t", 1)
            if path in same:
                listing[path] = same[path]
            elif facts[:6] != trees.GITLINK and (status := _lstat_or_none(self._top + path)) is not None:
                stamp = (status.st_ino, status.st_ctime_ns)
                listing[path] = FileStamp(facts[:6], facts[7:47], status.st_mtime_ns, stamp)
        return listing

    def _is_as_listed(self, path: str, entry: FileStamp) -> bool:
        status = _lstat_or_none(self._top + path)
        return status is not None and (status.st_ino, status.st_ctime_ns) == entry.stamp

    def _list_new(self) -> list[str]:
        """List sources that are not in the index."""
        paths = self.index_git.fields("ls-files", "-o", "-z", "--exclude-per-directory=.gitignore")
        return [path for path in paths if _may_be_source(self.git.directory / path)]

    def _list_ignored(self) -> FileListing:
        """List git-ignored files by content: generated sources are often ignored.

        Files above 8 MiB are taken for build products.
        """
        listing: FileListing = {}
        options = ("-i", "--directory", "--exclude-per-directory=.gitignore")
        for path in self.git.fields("ls-files", "-o", "-z", *options):
            for name in _list_below(self.git.directory, path, self.skip):
                file = self.git.directory / name
                status = _lstat_or_none(file)
                if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_GENERATED:
                    continue
                oid = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
                stamp = (status.st_ino, status.st_ctime_ns)
                listing[name] = FileStamp(oct(status.st_mode), oid, status.st_mtime_ns, stamp)
        return listing


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
        refresh_index(git)
    return changed + [path for path in before if path not in after]


def prefix_listing(prefix: str, listing: FileListing) -> FileListing:
    """Return a submodule's listing with paths from the root."""
    return {f"{prefix}/{path}" if prefix else path: entry for path, entry in listing.items()}


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


def _may_be_source(path: Path) -> bool:
    status = _lstat_or_none(path)  # git lists a repository inside as a folder
    return status is not None and not stat.S_ISDIR(status.st_mode) and status.st_size <= _LARGEST_GENERATED


def _lstat_or_none(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


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
            raise errors.SourceError(f"commit {commit} in {git.directory} has no date for its {role}")
        seconds, sign, hours, minutes = match.groups()
        off = 60 * int(hours) + int(minutes)
        dates.append(f"{seconds} {sign if off else '+'}{off // 60:02}{off % 60:02}")
    return dates[0], dates[1]


def move_submodules(index_git: Git, links: Mapping[str, str]) -> str:
    """Move submodules to commits in an index; return its tree."""
    if links:
        lines = "".join(f"{trees.GITLINK} {commit}\t{path}\0" for path, commit in sorted(links.items()))
        data = lines.encode("utf-8", "surrogateescape")
        index_git.text("update-index", "-z", "--index-info", stdin=data)
    return index_git.text("write-tree")


def build_tree(git: Git, base: str, changes: Mapping[str, FileStamp | None], links: Mapping[str, str]) -> str:
    """Return the tree ``base`` with files changed (``None``: removed) and submodules moved to commits."""
    lines = [
        f"{entry.mode} {entry.object}\t{path}" if entry is not None else f"0 {_ABSENT_OBJECT}\t{path}"
        for path, entry in sorted(changes.items())
    ]
    data = "".join(f"{line}\0" for line in lines).encode("utf-8", "surrogateescape")
    with trees.temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", base)
        index_git.text("update-index", "-z", "--index-info", stdin=data)
        return move_submodules(index_git, links)


def commit_hipify(
    part: trees.TreePart, tree: str, upstream: str, *, untagged: bool, index: Path | None
) -> str:
    """Commit ``tree`` on top of HEAD, move HEAD and the index there, and tag it; return the commit.

    ``untagged``: there is surely no such tag yet. ``index``: one that holds just that tree, if there is one.
    """
    git, head = part.git, part.head
    commit = write_commit(git, tree, [head], checkout_state.HIPIFY_MESSAGE, dated_like=upstream)
    moves = f"update HEAD {commit} {head}\n{_plan_tag_move(git, head, commit, untagged=untagged)}"
    git.text("update-ref", "-m", checkout_state.HIPIFY_MESSAGE, "--stdin", stdin=moves.encode("ascii"))
    if index is not None:
        _replace_index(part.git_dir, index)
    else:
        git.text("reset", "--mixed", "--no-quiet")  # not quiet, it learns the files' new times as well
    return commit


def _replace_index(git_dir: Path, index: Path) -> None:
    """Have git use another index, under the lock by which git itself replaces it."""
    lock = git_dir / "index.lock"
    try:
        with lock.open("xb") as file:
            file.write(index.read_bytes())
    except FileExistsError as cause:
        raise errors.SourceError(
            f"another git is at work in {git_dir.parent}: there is {lock}",
            tip="wait for it to end; if there is none, remove that file",
        ) from cause
    lock.chmod((git_dir / "index").stat().st_mode)
    lock.replace(git_dir / "index")


def refresh_index(git: Git) -> None:
    """Let the index learn the files' new times, so that the next `git status` is quick."""
    git.succeeds("update-index", "-q", "--refresh")


def tag_upstream(git: Git, commit: str, *, hipified: bool, fetched: bool) -> None:
    """Tag the upstream commit, lightweight; what an earlier hipify is known by goes.

    ``hipified``: it is what hipify leaves, too, and is tagged as that. ``fetched``: the ref that a
    transfer left is no longer needed.
    """
    lines = [
        f"update refs/tags/{checkout_state.UPSTREAM_TAG} {commit}",
        f"delete {checkout_state.LEFT_REF}",
        f"delete {checkout_state.HIPIFIED_REF}",
    ]
    lines.append(
        f"update refs/tags/{checkout_state.HIPIFY_TAG} {commit}"
        if hipified
        else f"delete refs/tags/{checkout_state.HIPIFY_TAG}"
    )
    lines += [f"delete {checkout_state.FETCHED_REF}"] if fetched else []
    git.text("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode("ascii"))


def is_tagged(git: Git, upstream: str, *, hipified: bool) -> bool:
    """Tell whether our tags are there: `git fetch --prune-tags` takes them, another worktree moves them."""
    names = [f"refs/tags/{name}" for name in (checkout_state.UPSTREAM_TAG, checkout_state.HIPIFY_TAG)]
    lines = git.text("for-each-ref", "--format=%(refname) %(objectname)", *names).splitlines()
    tags = dict(line.split(" ") for line in lines)
    return tags.get(names[0]) == upstream and (not hipified or names[1] in tags)


def has_tag_files(git_dir: Path, upstream: str, *, hipified: bool) -> bool:
    """Tell whether our tags of a commit are files in a repository; packed, or elsewhere, they are not."""
    names = (
        (checkout_state.UPSTREAM_TAG, checkout_state.HIPIFY_TAG)
        if hipified
        else (checkout_state.UPSTREAM_TAG,)
    )
    tags = [git_dir / "refs/tags" / name for name in names]
    return all(tag.is_file() and tag.read_bytes().strip() == upstream.encode("ascii") for tag in tags)


def tag_unchanged(git: Git, head: str, *, untagged: bool) -> None:
    """Tag what hipify made where it changed nothing; ``untagged`` as in ``commit_hipify``."""
    if move := _plan_tag_move(git, head, head, untagged=untagged):
        git.text("update-ref", "--stdin", stdin=move.encode("ascii"))


def _plan_tag_move(git: Git, before: str, after: str, *, untagged: bool) -> str:
    """Return what moves the hipify tag to ``after``, for `git update-ref --stdin`.

    A tag that the history already holds stays: what came after it is somebody's work, and
    that work is what lies between the tag and HEAD.
    """
    name = f"refs/tags/{checkout_state.HIPIFY_TAG}"
    current = "" if untagged else git.text("for-each-ref", "--format=%(objectname)", name)
    if not current or (
        current != before and not git.succeeds("merge-base", "--is-ancestor", current, before)
    ):
        return f"update {name} {after}\n"
    return ""


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

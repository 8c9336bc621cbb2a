"""What lies in the working trees, file by file, and the promise that equal content keeps its time.

Compilers' drivers go by times: a file that is written again with the same content would
be compiled again, and with it all that includes it (pytorch/pytorch#82190).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rocm_wheels.sources.commits import refresh_index
from rocm_wheels.sources.git import Git
from rocm_wheels.workspace import write_atomically

_GITLINK = "160000"
_LARGEST_GENERATED = 8 * 2**20  # bytes; an untracked file above this is a build product, not a source


class FileStamp(NamedTuple):
    """A file at a moment: mode and object id as in git, time in ns, and what changes with any write."""

    mode: str
    object: str
    mtime_ns: int
    stamp: tuple[int, int]  # inode, ctime_ns


FileListing = dict[str, FileStamp]


def scan_files(git: Git, index: Path) -> FileListing:
    """List one repository's files through ``index``, a file of our own that is brought up to date.

    Only the project's ``.gitignore`` files decide what is left out: the user's own excludes
    must not change a commit. Objects are stored. Submodules are not listed, nor untracked
    files above 8 MiB: what a build left there is no source.
    """
    index_git = git.with_variables(GIT_INDEX_FILE=str(index))
    index_git.text("add", "-u", "--", ".")
    # each with a letter in front: ? for a path that is not in the index
    listed = index_git.fields("ls-files", "-t", "-s", "-o", "-z", "--exclude-per-directory=.gitignore")
    new = [line[2:] for line in listed if line[0] == "?" and _may_be_source(git.directory / line[2:])]
    if new:
        names = "".join(f"{path}\0" for path in new).encode("utf-8", "surrogateescape")
        index_git.text("update-index", "--add", "-z", "--stdin", stdin=names)
        listed = index_git.fields("ls-files", "-t", "-s", "-z")
    listing: FileListing = {}
    for line in listed:
        if line[0] == "?":
            continue
        facts, path = line.split("\t", 1)
        _, mode, oid, _ = facts.split(" ")
        if mode != _GITLINK and (status := _lstat_or_none(f"{git.directory}/{path}")) is not None:
            listing[path] = FileStamp(mode, oid, status.st_mtime_ns, (status.st_ino, status.st_ctime_ns))
    return listing


def scan_ignored_files(git: Git, skip: Sequence[str]) -> FileListing:
    """List one repository's git-ignored files by content, but for the folders ``skip`` (build trees).

    Generated sources are often ignored. Files above 8 MiB are taken for build products.
    """
    listing: FileListing = {}
    for path in git.fields("ls-files", "-o", "-i", "-z", "--directory", "--exclude-per-directory=.gitignore"):
        for name in _list_below(git.directory, path, skip):
            status = _lstat_or_none(git.directory / name)
            if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_GENERATED:
                continue
            content = (git.directory / name).read_bytes()
            oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
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

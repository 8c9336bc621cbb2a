"""Tracked links that a build replaced by copies of what they point to.

ROCm/apex's setup.py does so with ``apex/csrc`` and ``apex/op_builder``, because wheels hold no links
(ROCm/apex#291). Git calls that a removed file; a tree with such copies and nothing else is unchanged.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rocm_wheels import log
from rocm_wheels.sources.git import Git

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
    for field in git.fields("ls-files", "-s", "-z"):
        facts, path = field.split("\t", 1)
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

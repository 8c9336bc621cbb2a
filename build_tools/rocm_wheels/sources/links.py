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

LINK = "120000"  # the mode of a symbolic link in trees and indexes


class CopiedLink(NamedTuple):
    """A tracked link, from the top of its repository: its object id, and what it points to."""

    path: str
    object: str
    target: str


def copied_links(git: Git) -> list[CopiedLink]:
    """List the tracked links at whose place is a copy of what they point to.

    A copy may lack files. Each that it has is as in the target, or as the commit has it there, or ignored by
    git; with any other file in it, it is somebody's own work, and not listed.
    """
    replaced = []
    for field in git.fields("ls-files", "-s", "-z"):
        facts, path = field.split("\t", 1)
        place = git.directory / path
        if facts.startswith(LINK) and not place.is_symlink() and place.exists():
            link = facts.split(" ")[1]
            replaced.append(CopiedLink(path, link, git.text("cat-file", "blob", link)))
    return [link for link in replaced if _is_copy(git, link)]


def restore_links(directory: Path, env: Mapping[str, str]) -> None:
    """Put the links of a checkout back at whose place a build left copies; a plain folder is left alone."""
    if not (directory / ".git").exists():
        return
    links = copied_links(Git(directory, env))
    for link in links:
        place = directory / link.path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        place.symlink_to(link.target)
    if links:
        names = ", ".join(link.path for link in links)
        log.note(f"the build had put copies in the place of links, which are links again: {names}")


def _is_copy(git: Git, link: CopiedLink) -> bool:
    base = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))
    if base.startswith(("/", "..")):
        return False
    place, original = git.directory / link.path, git.directory / base
    if not place.is_dir():
        return original.is_file() and filecmp.cmp(place, original, shallow=False)
    strange = [name for name in _files(place) if not _is_same(place / name, original / name)]
    committed = _committed(git, base) if strange else {}
    strange = [name for name in strange if _object(place / name) != committed.get(f"{base}/{name}")]
    return all(git.succeeds("check-ignore", "-q", "--", f"{link.path}/{name}") for name in strange)


def _files(folder: Path) -> Iterable[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _is_same(copy: Path, original: Path) -> bool:
    """Compare what readers of both see: a copy has no links."""
    return original.is_file() and copy.is_file() and filecmp.cmp(copy, original, shallow=False)


def _committed(git: Git, base: str) -> dict[str, str]:
    fields = git.fields("ls-tree", "-r", "-z", "--full-tree", "HEAD", "--", base)
    return {path: facts.split(" ")[2] for facts, path in (field.split("\t", 1) for field in fields)}


def _object(path: Path) -> str:
    content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

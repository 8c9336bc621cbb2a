"""How the pages of a channel, or of another index that changes, are exchanged.

In a folder of Linux or macOS the name of the index is a symbolic link: all pages are built beside, and
one rename points the link there. Elsewhere (S3, other stores, Windows, where links need a privilege and a
folder cannot be renamed over another) page after page is replaced, in an order in which pins hold.

Whatever serves such a folder must follow links, as servers do that are not told otherwise (Python's own was
tried). A copy of it keeps the promise where links stay links and come last: ``rsync -a --no-links``, then
``rsync -a --delete-after`` (not tried). What follows links, such as ``aws s3 sync``, writes pages in any
order: promote in the bucket instead.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.parallel import each
from rocm_wheels.release.promotion.rehearsal import Rehearsal
from rocm_wheels.stores.store import AGAIN, Changed, Exists, Missing, Store
from rocm_wheels.workspace import exclusive

_JOBS = 8
_PATIENCE = 60.0  # seconds; the lock is held while pages are written and one name changes
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


@dataclass(frozen=True)
class Exchange:
    """Pages that an index is to have; none: it is to go. ``adds`` when sets come.

    ``folder`` is where they are, ``builds`` a folder for them where all change at once. ``order`` are
    projects, dependencies first. ``check`` raises when the change is not ours any more: it is asked before
    each write that people see.
    """

    folder: str
    builds: str
    pages: Mapping[str, bytes]
    order: Sequence[str]
    adds: bool
    check: Callable[[], None]


def exchange(store: Store, change: Exchange) -> int:
    """Let an index have its pages and nothing else, and return how many were written or removed."""
    if is_one_rename(store, change.folder):
        return _by_rename(store, change)
    if store.folder is not None:
        log.note(f"{change.folder} is no link here: its pages are replaced one after the other")
    return _one_by_one(store, change)


def is_one_rename(store: Store, folder: str) -> bool:
    """Tell whether all pages change at once."""
    if store.folder is None or sys.platform == "win32":
        return False
    place = store.folder / folder
    return place.is_symlink() or not place.exists()


def _by_rename(store: Store, change: Exchange) -> int:
    """Build pages beside and point the name there, alone from the first page to the last that goes.

    One who was overtaken removes nothing: what looks left over may be what another is about to show.
    """
    wanted, build = _build(change)
    with contextlib.nullcontext() if isinstance(store, Rehearsal) else _alone(store):
        change.check()
        writes = sum(each(lambda item: _put(store, *item), wanted.items(), jobs=_JOBS))
        before = _target(store, change.folder)
        if before == (build if change.pages else None):
            return writes
        change.check()
        if change.pages:
            point(store, change.folder, build)
        else:
            unpoint(store, change.folder)
        # who has followed the link just now still reads what was there
        kept = (f"{build}/", f"{before}/") if change.pages else ()
        for listed in list(store.listing(change.builds)):
            if not listed.path.startswith(kept):
                store.remove(listed.path)
    return writes + 1


def _build(change: Exchange) -> tuple[dict[str, bytes], str]:
    """Return the pages by their paths in a folder that is named by what they are, and that folder."""
    hasher = hashlib.sha256()
    for path, content in sorted(change.pages.items()):
        hasher.update(f"{path}\0{len(content)}\0".encode() + content)
    build = f"{change.builds}/{hasher.hexdigest()[:16]}"
    skip = len(change.folder)
    return {build + path[skip:]: content for path, content in change.pages.items()}, build


def _target(store: Store, link: str) -> str | None:
    """Return the folder of a store that a link in it means, ``None`` where there is no link."""
    assert store.folder is not None
    place = store.folder / link
    if not place.is_symlink():
        return None
    return Path(os.path.relpath(place.parent / place.readlink(), store.folder)).as_posix()


def point(store: Store, link: str, target: str) -> None:
    """Have a name in a folder mean another folder: one rename, seen by nobody half done."""
    if isinstance(store, Rehearsal):
        store.would(f"point {link} to {target}")
        return
    assert store.folder is not None
    place = store.folder / link
    part = _state(store) / f"link-{secrets.token_hex(8)}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in part.parent.glob("link-*"):  # of runs that were killed: who is here is alone
            left.unlink(missing_ok=True)
        part.symlink_to(os.path.relpath(store.folder / target, place.parent))
        try:
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
        handle = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as failure:
        tip = f"free some space, then {AGAIN}" if failure.errno in _FULL else AGAIN
        if failure.errno in _NO_LINKS:
            tip = (
                f"this file system has no links; make it a folder, and pages change one by one: mkdir {place}"
            )
        raise ReleaseError(f"cannot point {place} to {target}", tip=tip) from failure


def unpoint(store: Store, link: str) -> None:
    """Have a name in a folder mean nothing any more, and drop the folders that this leaves empty."""
    if isinstance(store, Rehearsal):
        store.would(f"remove {link}")
        return
    assert store.folder is not None
    place = store.folder / link
    try:
        place.unlink(missing_ok=True)
    except OSError as failure:
        raise ReleaseError(f"cannot remove {place}", tip=AGAIN) from failure
    with contextlib.suppress(OSError):  # there is something else in it
        while (place := place.parent) != store.folder:
            place.rmdir()


def _state(store: Store) -> Path:
    assert store.folder is not None
    place = store.folder / ".store" / "channels"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _alone(store: Store) -> contextlib.AbstractContextManager[None]:
    return exclusive(_state(store), what="a change of pages", patience=_PATIENCE, error=ReleaseError)


def _one_by_one(store: Store, change: Exchange) -> int:
    """Replace pages, a project after the other: those that nothing is known of, then in order, root last."""
    order = list(change.order) if change.adds else list(reversed(change.order))
    there = {one.path for one in store.listing(change.folder)}
    rank = {project: number for number, project in enumerate(order)}
    known = {_project(path, change) for path in {*there, *change.pages}} - {""}
    writes = 0
    for project in sorted(known, key=lambda one: (rank.get(one, -1), one)):
        writes += _project_pages(store, change, project, there)
    for name in (JSON, HTML):
        if (path := f"{change.folder}/{name}") in change.pages:
            writes += _put(store, path, change.pages[path], change.check)
    for path in sorted(there - set(change.pages)):
        if store.head(path) is not None:
            change.check()
            store.remove(path)
            writes += 1
    return writes


def _project(path: str, change: Exchange) -> str:
    return path[len(change.folder) + 1 :].rpartition("/")[0].partition("/")[0]


def _project_pages(store: Store, change: Exchange, project: str, there: set[str]) -> int:
    folder = f"{change.folder}/{project}"
    own = [path for path in change.pages if path.startswith(f"{folder}/")]
    linked = [path for path in own if path not in (f"{folder}/{HTML}", f"{folder}/{JSON}")]
    writes = sum(_put(store, path, change.pages[path], change.check) for path in linked)
    for path in (f"{folder}/{JSON}", f"{folder}/{HTML}"):
        if path in change.pages:
            writes += _put(store, path, change.pages[path], change.check)
        elif path in there:
            change.check()
            store.remove(path)
            writes += 1
    return writes


def _put(store: Store, path: str, content: bytes, check: Callable[[], None] | None = None) -> bool:
    """Let a page have this content; tell whether it had not. Raises ReleaseError when somebody interferes."""
    tag = None
    try:
        found = store.read(path)
        if found.content == content:
            return False
        tag = found.tag
    except Missing:
        tag = None
    if check is not None:
        check()
    try:
        store.replace(path, content, tag)
    except (Changed, Exists) as cause:
        with contextlib.suppress(Missing):
            if store.read(path).content == content:  # another run does the same
                return False
        raise Changed(f"{path} was changed by somebody else meanwhile", tip=AGAIN) from cause
    return True

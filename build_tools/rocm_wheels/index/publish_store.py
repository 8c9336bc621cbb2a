"""Publish the pages of an index in a store: of a channel, or of another index that changes.

In a folder of Linux or macOS the name of the index is a symbolic link: all pages are built beside, and
one rename points the link there. Elsewhere (S3, other stores, Windows, where links need a privilege and a
folder cannot be renamed over another) page after page is replaced, in an order in which pins hold.

Whatever serves such a folder must follow links, as servers do that are not told otherwise (Python's own
was tried). A copy of it keeps the promise where links stay links and come last: ``rsync -a --no-links``,
then ``rsync -a --delete-after`` (not tried). What follows links, such as ``aws s3 sync``, writes pages in
any order: promote in the bucket instead.
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

from rocm_wheels.core import (
    RUN_AGAIN_TIP,
    AlreadyInStoreError,
    ChangedInStoreError,
    DryRunStore,
    NotInStoreError,
    ReleaseError,
    Store,
    lock_folder,
    log_note,
    run_in_parallel,
)
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE

_WRITE_JOBS = 8
_LOCK_PATIENCE = 60.0  # seconds; the lock is held while pages are written and one name changes
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_NO_LINK_ERRNOS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


@dataclass(frozen=True)
class PageExchange:
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


def exchange_pages(store: Store, change: PageExchange) -> int:
    """Let an index have its pages and nothing else, and return how many were written or removed."""
    if can_rename_at_once(store, change.folder):
        return _exchange_by_rename(store, change)
    if store.folder is not None:
        log_note(f"{change.folder} is no link here: its pages are replaced one after the other")
    return _exchange_one_by_one(store, change)


def can_rename_at_once(store: Store, folder: str) -> bool:
    """Tell whether all pages change at once."""
    if store.folder is None or sys.platform == "win32":
        return False
    place = store.folder / folder
    return place.is_symlink() or not place.exists()


def _exchange_by_rename(store: Store, change: PageExchange) -> int:
    """Build pages beside and point the name there, alone from the first page to the last that goes.

    One who was overtaken removes nothing: what looks left over may be what another is about to show.
    """
    pages, build = _plan_build(change)
    with contextlib.nullcontext() if isinstance(store, DryRunStore) else _lock_pages(store):
        change.check()
        writes = sum(run_in_parallel(lambda item: _put_page(store, *item), pages.items(), jobs=_WRITE_JOBS))
        before = _read_link(store, change.folder)
        if before == (build if change.pages else None):
            return writes
        change.check()
        if change.pages:
            point_link(store, change.folder, build)
        else:
            remove_link(store, change.folder)
        # who has followed the link just now still reads what was there
        kept_prefixes = (f"{build}/", f"{before}/") if change.pages else ()
        for listed in list(store.listing(change.builds)):
            if not listed.path.startswith(kept_prefixes):
                store.remove(listed.path)
    return writes + 1


def _plan_build(change: PageExchange) -> tuple[dict[str, bytes], str]:
    """Return the pages by their paths in a folder that is named by what they are, and that folder."""
    hasher = hashlib.sha256()
    for path, content in sorted(change.pages.items()):
        hasher.update(f"{path}\0{len(content)}\0".encode() + content)
    build = f"{change.builds}/{hasher.hexdigest()[:16]}"
    skip = len(change.folder)
    return {build + path[skip:]: content for path, content in change.pages.items()}, build


def _read_link(store: Store, link: str) -> str | None:
    """Return the folder of a store that a link in it means, ``None`` where there is no link."""
    assert store.folder is not None
    place = store.folder / link
    if not place.is_symlink():
        return None
    return Path(os.path.relpath(place.parent / place.readlink(), store.folder)).as_posix()


def point_link(store: Store, link: str, target: str) -> None:
    """Have a name in a folder mean another folder: one rename, seen by nobody half done."""
    if isinstance(store, DryRunStore):
        store.record_write(f"point {link} to {target}")
        return
    assert store.folder is not None
    link_path = store.folder / link
    part = _state_folder(store) / f"link-{secrets.token_hex(8)}"
    try:
        link_path.parent.mkdir(parents=True, exist_ok=True)
        for stale_link in part.parent.glob("link-*"):  # of runs that were killed: who is here is alone
            stale_link.unlink(missing_ok=True)
        part.symlink_to(os.path.relpath(store.folder / target, link_path.parent))
        try:
            os.replace(part, link_path)
        finally:
            part.unlink(missing_ok=True)
        handle = os.open(link_path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as failure:
        tip = (
            f"free some space, then {RUN_AGAIN_TIP}" if failure.errno in _DISK_FULL_ERRNOS else RUN_AGAIN_TIP
        )
        if failure.errno in _NO_LINK_ERRNOS:
            tip = (
                "this file system has no links; make it a folder, and pages change "
                f"one by one: mkdir {link_path}"
            )
        raise ReleaseError(f"cannot point {link_path} to {target}", tip=tip) from failure


def remove_link(store: Store, link: str) -> None:
    """Have a name in a folder mean nothing any more, and drop the folders that this leaves empty."""
    if isinstance(store, DryRunStore):
        store.record_write(f"remove {link}")
        return
    assert store.folder is not None
    place = store.folder / link
    try:
        place.unlink(missing_ok=True)
    except OSError as failure:
        raise ReleaseError(f"cannot remove {place}", tip=RUN_AGAIN_TIP) from failure
    with contextlib.suppress(OSError):  # there is something else in it
        while (place := place.parent) != store.folder:
            place.rmdir()


def _state_folder(store: Store) -> Path:
    assert store.folder is not None
    place = store.folder / ".store" / "channels"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _lock_pages(store: Store) -> contextlib.AbstractContextManager[None]:
    return lock_folder(
        _state_folder(store), purpose="a change of pages", patience=_LOCK_PATIENCE, error=ReleaseError
    )


def _exchange_one_by_one(store: Store, change: PageExchange) -> int:
    """Replace pages, a project after the other: those that nothing is known of, then in order, root last."""
    order = list(change.order) if change.adds else list(reversed(change.order))
    present = {item.path for item in store.listing(change.folder)}
    rank = {project: number for number, project in enumerate(order)}
    projects = {_project_of_path(path, change) for path in {*present, *change.pages}} - {""}
    writes = 0
    for project in sorted(projects, key=lambda item: (rank.get(item, -1), item)):
        writes += _exchange_project_pages(store, change, project, present)
    for name in (JSON_PAGE, HTML_PAGE):
        if (path := f"{change.folder}/{name}") in change.pages:
            writes += _put_page(store, path, change.pages[path], change.check)
    for path in sorted(present - set(change.pages)):
        if store.head(path) is not None:
            change.check()
            store.remove(path)
            writes += 1
    return writes


def _project_of_path(path: str, change: PageExchange) -> str:
    return path[len(change.folder) + 1 :].rpartition("/")[0].partition("/")[0]


def _exchange_project_pages(store: Store, change: PageExchange, project: str, present: set[str]) -> int:
    folder = f"{change.folder}/{project}"
    project_paths = [path for path in change.pages if path.startswith(f"{folder}/")]
    linked = [
        path for path in project_paths if path not in (f"{folder}/{HTML_PAGE}", f"{folder}/{JSON_PAGE}")
    ]
    writes = sum(_put_page(store, path, change.pages[path], change.check) for path in linked)
    for path in (f"{folder}/{JSON_PAGE}", f"{folder}/{HTML_PAGE}"):
        if path in change.pages:
            writes += _put_page(store, path, change.pages[path], change.check)
        elif path in present:
            change.check()
            store.remove(path)
            writes += 1
    return writes


def _put_page(store: Store, path: str, content: bytes, check: Callable[[], None] | None = None) -> bool:
    """Let a page have this content; tell whether it had not. Raises ReleaseError when somebody interferes."""
    tag = None
    try:
        stored = store.read(path)
        if stored.content == content:
            return False
        tag = stored.tag
    except NotInStoreError:
        tag = None
    if check is not None:
        check()
    try:
        store.replace(path, content, tag)
    except (ChangedInStoreError, AlreadyInStoreError) as cause:
        with contextlib.suppress(NotInStoreError):
            if store.read(path).content == content:  # another run does the same
                return False
        raise ChangedInStoreError(
            f"{path} was changed by somebody else meanwhile", tip=RUN_AGAIN_TIP
        ) from cause
    return True

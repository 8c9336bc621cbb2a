"""Publish the pages of a channel, or of a view of one, in a store.

Every such change goes the same way:

1. a document, written by its tag, says what is to change
2. steps are taken in their order, each on condition that the change is still ours and that the file is still
   as it was seen; what is as it should be stays untouched
3. the document says that it is done

Each step can be repeated: whoever comes after a run that was killed between 1 and 3 does 2 and 3. In a folder
pages are built beside, and one rename points a link there; elsewhere page after page is written, in an order
in which pins hold.

"In a folder" is Linux and macOS: on Windows links need a privilege, and a folder cannot be renamed over
another. Whatever serves such a folder must follow links, as servers do that are not told otherwise (Python's
own was tried). A copy of it keeps the promise where links stay links and come last: ``rsync -a --no-links``,
then ``rsync -a --delete-after`` (not tried). What follows links, such as ``aws s3 sync``, writes pages in any
order: promote in the bucket instead.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocm_wheels.core import errors, files, log, parallel
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE
from rocm_wheels.stores.store import RUN_AGAIN_TIP, ChangedInStoreError, DryRunStore, Store, put_file

_SYNC_JOBS = 16  # they wait for the disk
_WRITE_JOBS = 8
_LOCK_PATIENCE = 60.0  # seconds; the lock is held while pages are written and one name changes
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_NO_LINK_ERRNOS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

Check = Callable[[], None]  # raises when the change is not ours any more
PublishStep = Callable[[Check], bool]  # does its work where it is not done yet, and tells whether it did


def take_steps(steps: Iterable[PublishStep], check: Check) -> int:
    """Take steps in their order, each with a ``check`` before it acts; return how many were not done yet."""
    return sum(step(check) for step in steps)


@dataclass
class DocumentJournal:
    """A document of a store that says what is being changed: the change is ours while it has our ``tag``.

    ``make_error`` makes what is raised when somebody else has written it.
    """

    store: Store
    path: str
    tag: str | None
    make_error: Callable[[], ChangedInStoreError]

    def write(self, content: bytes) -> None:
        """Write down what is to change, or that it is done. Raises ChangedInStoreError when another wrote."""
        self.tag = self.store.replace(self.path, content, self.tag)

    def check(self) -> None:
        """Raise when the document is another than we wrote."""
        info = self.store.head(self.path)
        if (info.tag if info else None) != self.tag:
            raise self.make_error()


@dataclass(frozen=True)
class PageExchange:
    """Pages that an index is to have; none: it is to go. ``adds`` when sets come.

    ``folder`` is where they are, ``builds`` a folder for them where all change at once. ``order`` are
    projects, dependencies first. ``kept`` are paths that stay, though they are no pages of it.
    """

    folder: str
    builds: str
    pages: Mapping[str, bytes]
    order: Sequence[str]
    adds: bool
    kept: frozenset[str] = frozenset()


def exchange_pages(store: Store, change: PageExchange, check: Check) -> int:
    """Let an index have its pages and nothing else, and return how many were written or removed."""
    if can_rename_at_once(store, change.folder):
        return _exchange_by_rename(store, change, check)
    if store.folder is not None:
        log.log_note(f"{change.folder} is no link here: its pages are replaced one after the other")
    return take_steps(_list_page_steps(store, change), check)


def can_rename_at_once(store: Store, folder: str) -> bool:
    """Tell whether all pages change at once."""
    if store.folder is None or sys.platform == "win32":
        return False
    place = store.folder / folder
    return place.is_symlink() or not place.exists()


def _exchange_by_rename(store: Store, change: PageExchange, check: Check) -> int:
    """Build pages beside and point the name there, alone from the first page to the last that goes.

    One who was overtaken removes nothing: what looks left over may be what another is about to show.
    """
    pages, build = _place_in_build(change)
    with contextlib.nullcontext() if isinstance(store, DryRunStore) else _lock_pages(store):
        check()
        writes = sum(
            parallel.run_in_parallel(lambda item: put_file(store, *item), pages.items(), jobs=_WRITE_JOBS)
        )
        before, after = read_link(store, change.folder), build if change.pages else None
        if before == after:
            return writes
        check()
        if after is not None:
            point_link(store, change.folder, after)
        else:
            remove_link(store, change.folder)
        # who has followed the link just now still reads what was there
        kept_prefixes = (f"{after}/", f"{before}/") if after else ()
        for listed in list(store.listing(change.builds)):
            if not listed.path.startswith(kept_prefixes) and listed.path not in change.kept:
                store.remove(listed.path)
    return writes + 1


def find_build(change: PageExchange) -> str:
    """Return the folder that an index is a link to when it shows its pages, where all change at once."""
    return _place_in_build(change)[1]


def _place_in_build(change: PageExchange) -> tuple[dict[str, bytes], str]:
    """Return the pages by their paths in a folder that is named by what they are, and that folder."""
    hasher = hashlib.sha256()
    for path, content in sorted(change.pages.items()):
        hasher.update(f"{path}\0{len(content)}\0".encode() + content)
    build = f"{change.builds}/{hasher.hexdigest()[:16]}"
    skip = len(change.folder)
    return {build + path[skip:]: content for path, content in change.pages.items()}, build


def _list_page_steps(store: Store, change: PageExchange) -> Iterator[PublishStep]:
    """Yield the steps of one page after the other: projects of no known order, those in order, the root.

    In a project come what its pages link to, then its pages; what nothing links to any more goes last.
    """
    present = {item.path for item in store.listing(change.folder)} - change.kept
    order = list(change.order) if change.adds else list(reversed(change.order))
    rank = {project: number for number, project in enumerate(order)}
    projects = {_find_project(path, change) for path in {*present, *change.pages}} - {""}
    for project in sorted(projects, key=lambda name: (rank.get(name, -1), name)):
        folder = f"{change.folder}/{project}"
        index_pages = [f"{folder}/{JSON_PAGE}", f"{folder}/{HTML_PAGE}"]
        linked = [path for path in change.pages if path.startswith(f"{folder}/") and path not in index_pages]
        for path in [*linked, *index_pages]:
            if path in change.pages:
                yield partial(put_file, store, path, change.pages[path])
            elif path in present:
                yield partial(_remove_file, store, path)
    for path in (f"{change.folder}/{JSON_PAGE}", f"{change.folder}/{HTML_PAGE}"):
        if path in change.pages:
            yield partial(put_file, store, path, change.pages[path])
    for path in sorted(present - set(change.pages)):
        yield partial(_remove_file, store, path)


def _find_project(path: str, change: PageExchange) -> str:
    return path[len(change.folder) + 1 :].rpartition("/")[0].partition("/")[0]


def _remove_file(store: Store, path: str, check: Check) -> bool:
    if store.head(path) is None:
        return False
    check()
    store.remove(path)
    return True


def read_link(store: Store, link: str) -> str | None:
    """Return the folder of a store that a link in it means, ``None`` where there is no link."""
    place = store.folder / link if store.folder is not None else None
    if place is None or store.folder is None or not place.is_symlink():
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
        files.make_folders_like(link_path.parent, store.folder)
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
        raise errors.ReleaseError(f"cannot point {link_path} to {target}", tip=tip) from failure


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
        raise errors.ReleaseError(f"cannot remove {place}", tip=RUN_AGAIN_TIP) from failure
    with contextlib.suppress(OSError):  # there is something else in it
        while (place := place.parent) != store.folder:
            place.rmdir()


def _state_folder(store: Store) -> Path:
    assert store.folder is not None
    place = store.folder / ".store" / "channels"
    files.make_folders_like(place, store.folder)
    return place


def _lock_pages(store: Store) -> contextlib.AbstractContextManager[None]:
    return files.lock_folder(
        _state_folder(store), purpose="a change of pages", patience=_LOCK_PATIENCE, error=errors.ReleaseError
    )

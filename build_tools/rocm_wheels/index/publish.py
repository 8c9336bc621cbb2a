"""Publish the files of an index: in a folder, of a channel, of a view of a channel.

Every such change goes the same way:

1. a journal says what is to change; in a folder, after all of it is stored beside: a disk that is full is met
   before anything changed
2. steps are taken in their order, each on condition that the change is still ours and that the file is still
   as it was seen; what is as it should be stays untouched
3. the journal says that it is done

Each step can be repeated: whoever comes after a run that was killed between 1 and 3 does 2 and 3.

| index | steps | journal |
|---|---|---|
| in a folder (``update``) | files written beside get their names, by rank; others go | a note, under a lock |
| channel, view: in a folder | pages are built beside; one rename points a link there | a document, by tag |
| channel, view: elsewhere | page after page, in an order in which pins hold | likewise |

"In a folder" is Linux and macOS: on Windows links need a privilege, and a folder cannot be renamed over
another. Whatever serves such a folder must follow links, as servers do that are not told otherwise (Python's
own was tried). A copy of it keeps the promise where links stay links and come last: ``rsync -a --no-links``,
then ``rsync -a --delete-after`` (not tried). What follows links, such as ``aws s3 sync``, writes pages in any
order: promote in the bucket instead.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

from rocm_wheels.core import errors, files, log, parallel
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, STATE_FOLDER
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


# ---- an index in a folder


class PublishRank(IntEnum):
    """The order in which files get their names: what is linked before what links to it."""

    WHEEL = 0
    METADATA = 1
    STATE = 2
    VARIANTS = 3
    PROJECT = 4
    ROOT = 5


class FolderPublication:
    """New contents of files, kept in ``folder`` (on the same file system) until ``commit``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._staged: dict[Path, tuple[PublishRank, Path]] = {}
        self._removed: dict[Path, None] = {}
        self._number = 0

    @classmethod
    @contextlib.contextmanager
    def begin(cls, folder: Path) -> Iterator[FolderPublication]:
        """Give a publication; what is not committed at the end is gone."""
        if folder.exists():  # of a writer that was killed
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        try:
            yield cls(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_part(self) -> Path:
        """Return a path for a file in the making."""
        self._number += 1
        return self._folder / str(self._number)

    def stage_content(self, path: Path, content: bytes, rank: PublishRank) -> bool:
        """Stage the content of a file, unless it has it already; tell whether it changes."""
        self._removed.pop(path, None)
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            self._staged.pop(path, None)
            return False
        part = self.new_part()
        part.write_bytes(content)
        self._staged[path] = rank, part
        return True

    def stage_part(self, path: Path, part: Path, rank: PublishRank) -> None:
        """Stage a file that was written to ``new_part``, unless it is there already."""
        if path.is_file() and filecmp.cmp(part, path, shallow=False):
            part.unlink()
            return
        self._staged[path] = rank, part

    def stage_removal(self, path: Path) -> None:
        """Have a file removed after all others have got their names."""
        self._removed[path] = None

    def current_path(self, path: Path) -> Path:
        """Return where the content lies that a file will have."""
        return self._staged[path][1] if path in self._staged else path

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing changes."""
        return not self._staged and not self._removed

    def commit(self, note: Path, root: Path, *, projects: Sequence[str] = ()) -> None:
        """Give the files their names, by rank; then remove the others. ``note`` says so until it is done.

        Pages of ``projects`` change in their order, those of others before. Everything is on the disk before
        the note is, so that what is cut short can be carried on.
        """
        parallel.run_in_parallel(_sync_file, [part for _, part in self._staged.values()], jobs=_SYNC_JOBS)
        turns = {project: number for number, project in enumerate(projects, start=1)}
        order = sorted(self._staged.items(), key=lambda item: (item[1][0], turns.get(item[0].parent.name, 0)))
        names = [[_relative_to_root(root, part), _relative_to_root(root, path)] for path, (_, part) in order]
        plan = {"rename": names, "remove": [_relative_to_root(root, path) for path in self._removed]}
        files.write_atomically(note, json.dumps(plan, indent=1) + "\n")
        finish_publication(note, root)


def finish_publication(note: Path, root: Path) -> None:
    """Take the steps that are left of a change, then remove its note; DataError when that cannot be read.

    A lock keeps others away.
    """
    try:
        plan = json.loads(note.read_text(encoding="utf-8"))
        steps: list[PublishStep] = [
            partial(_rename_part, _resolve_in_root(root, part), _resolve_in_root(root, path))
            for part, path in plan["rename"]
        ]
        steps += [partial(_remove_path, _resolve_in_root(root, path)) for path in plan["remove"]]
    except (ValueError, KeyError, TypeError) as cause:
        tip = f"remove it and run `rocm-wheels index build {root}`"
        raise errors.DataError(f"{note} is damaged", tip=tip) from cause
    take_steps(steps, lambda: None)
    note.unlink()


def _rename_part(part: Path, path: Path, check: Check) -> bool:
    if not part.exists():  # it has its name already
        return False
    check()
    path.parent.mkdir(parents=True, exist_ok=True)
    if (mode := part.stat().st_mode) & 0o444 != 0o444:  # a web server is another user
        part.chmod(mode | 0o444)
    os.replace(part, path)
    return True


def _remove_path(path: Path, check: Check) -> bool:
    """Remove a file, and the folders that are empty then."""
    check()
    path.unlink(missing_ok=True)
    for folder in list(path.parents)[:3]:  # variants/<digest>, its folder, the project's
        if folder.name == STATE_FOLDER:
            break
        try:
            folder.rmdir()
        except OSError:
            break
    return True


def _resolve_in_root(root: Path, written: str) -> Path:
    """Return a path of a note; ValueError for one outside: an index may come from somebody else."""
    _relative_to_root(root, root / written)
    return root / written


def _relative_to_root(root: Path, path: Path) -> str:
    return Path(os.path.normpath(path)).relative_to(os.path.normpath(root)).as_posix()


def _sync_file(path: Path) -> None:
    with open(path, "rb+" if os.name == "nt" else "rb") as file:  # a linked wheel may be read-only
        os.fsync(file.fileno())


# ---- the pages of a channel or view, in a store


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

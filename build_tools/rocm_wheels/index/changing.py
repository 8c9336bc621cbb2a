"""One change of an index: all is written beside, then appears in an order that readers like.

The order: wheels and METADATA, what is known of them, variants files, project pages, root pages and the
pages for ``--find-links``; last what is no longer listed is removed. Before the first step a note of the
change is left, so that the next command finishes what a killed one began.
One writer at a time holds the lock (``flock``: on this machine, and on network drives that pass it on;
an object store has none, so there it must be one writer that uploads).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.index.entries import IndexEntry
from rocm_wheels.index.pages import REPOSITORY_VERSION
from rocm_wheels.index.staging import stage_project, stage_root_pages
from rocm_wheels.index.switching import PublishRank, FolderPublication, finish_publication
from rocm_wheels.index.views import (
    HTML_PAGE,
    PENDING_NOTE,
    STATE_FOLDER,
    IndexFolder,
    list_families,
    path_of_families,
    read_entries_file,
    write_entries,
)
from rocm_wheels.workspace import lock_folder

LOCK_PATIENCE = 600.0  # seconds for another writer to end


class IndexChange:
    """What a command changes. Projects are settled one after another; none is kept in memory."""

    def __init__(self, root: Path, publication: FolderPublication) -> None:
        self.root = root
        self._publication = publication
        self._names: dict[IndexFolder, set[str]] = {}
        self._keys: dict[tuple[str, str], None] = {}
        self._known = set(list_families(root))

    def read_entries(self, view: IndexFolder, project: str) -> dict[str, IndexEntry]:
        """Return a project's own wheels, as settled so far."""
        path = view.state_file(project)
        return read_entries_file(self._publication.current_path(path), path)

    def set_entries(self, view: IndexFolder, project: str, entries: dict[str, IndexEntry]) -> None:
        """Say what the own wheels of a project are from now on."""
        self._keys[view.family, project] = None
        path = view.state_file(project)
        if entries:
            self._publication.stage_content(path, write_entries(entries), PublishRank.STATE)
        elif path.exists():
            self._publication.stage_content(path, b"", PublishRank.STATE)
            self._publication.stage_removal(path)
        self._stage_project(view, project, entries)

    def place_wheel(self, target: Path, part: Path) -> None:
        """Have a wheel that was written to ``new_part`` appear as ``target``."""
        self._publication.stage_part(target, part, PublishRank.WHEEL)

    def put_metadata(self, target: Path, content: bytes) -> None:
        """Have the METADATA of a wheel lie at ``target``."""
        self._publication.stage_content(target, content, PublishRank.METADATA)

    def remove_file(self, path: Path) -> None:
        """Have a file removed when nothing links to it any more."""
        self._publication.stage_removal(path)

    def new_part(self) -> Path:
        """Return a path for a file in the making, on the file system of the index."""
        return self._publication.new_part()

    def _stage_project(self, view: IndexFolder, project: str, own_entries: dict[str, IndexEntry]) -> None:
        if view not in self._names:
            self._names[view] = set(view.list_projects())
        general_entries = self.read_entries(IndexFolder(self.root), project) if view.family else {}
        if stage_project(self._publication, view, project, own_entries, general_entries):
            self._names[view].add(project)
        else:
            self._names[view].discard(project)

    def finish(self, *, everything: bool = False) -> None:
        """Write what follows, and make it all appear; ``everything``: the root pages in any case."""
        self._stage_families()
        if everything:
            self._names.setdefault(IndexFolder(self.root), set(IndexFolder(self.root).list_projects()))
        every = sorted({*self._known, *(view.family for view in self._names)} - {""})
        for view, names in self._names.items():
            stage_root_pages(self._publication, view, sorted(names), [] if view.family else every)
        if not self._publication.is_empty:
            self._publication.commit(self.root / STATE_FOLDER / PENDING_NOTE, self.root)

    def _stage_families(self) -> None:
        """Stage the pages that follow: a wheel for everybody is on every family's pages."""
        general = [project for family, project in self._keys if not family]
        new = {family for family, _ in self._keys if family} - self._known
        for family in sorted(self._known | new):
            follow = {*general, *(IndexFolder(self.root).list_own_projects() if family in new else [])}
            for project in sorted(follow):
                if (family, project) not in self._keys or project in general:
                    view = IndexFolder(self.root, family)
                    self._stage_project(view, project, self.read_entries(view, project))
        if new:  # its name is on the root page
            listed = json.dumps(sorted(self._known | new)) + "\n"
            self._publication.stage_content(path_of_families(self.root), listed.encode(), PublishRank.STATE)
            self._names.setdefault(IndexFolder(self.root), set(IndexFolder(self.root).list_projects()))


@contextlib.contextmanager
def change_index(
    root: Path,
    *,
    action: str,
    create: bool = False,
    everything: bool = False,
    patience: float = LOCK_PATIENCE,
) -> Iterator[IndexChange]:
    """Hold an index and give a change to fill; it is made at the end, unless something is raised."""
    require_index(root, create=create)
    _require_own_page(root)
    with lock_folder(root / STATE_FOLDER, purpose=action, patience=patience):
        if (note := root / STATE_FOLDER / PENDING_NOTE).exists():
            log.log_note(f"{root}: finishing a change that was cut short")
            finish_publication(note, root)
        with FolderPublication.begin(root / STATE_FOLDER / "parts") as publication:
            change = IndexChange(root, publication)
            yield change
            change.finish(everything=everything)


def _require_own_page(root: Path) -> None:
    """Raise UsageError when the folder has a front page that is no index: it would be lost."""
    page = root / HTML_PAGE
    if page.is_file() and REPOSITORY_VERSION not in page.read_bytes():
        tip = "name another folder, or move that page away"
        raise UsageError(f"{page} is not the page of an index made here", tip=tip)


def require_index(root: Path, *, create: bool = False) -> None:
    """Raise UsageError unless a folder is an index, or with ``create`` can become one."""
    if create and (root.is_dir() or not root.exists()):
        return
    if not root.is_dir():
        state = "not a folder" if root.exists() else "not there"
        raise UsageError(f"{root} is {state}", tip="name the folder of the index")
    if not (root / STATE_FOLDER).is_dir():
        tip = f"`rocm-wheels index build {root}` makes one of the wheels in it"
        raise UsageError(f"{root} is not an index", tip=tip)

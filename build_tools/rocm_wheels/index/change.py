"""Change an index in a folder: stage the pages that follow from its entries, then publish all at once.

The order in which it appears: wheels and METADATA, the state files, variants files, project pages, root
pages and the pages for ``--find-links``; last what is no longer listed is removed. Before the first step
a note of the change is left, so that the next command finishes what a killed one began.

One writer at a time holds the lock (``flock``: on this machine, and on network drives that pass it on;
an object store has none, so there it must be one writer that uploads).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rocm_wheels.core import UsageError, lock_folder, log_note
from rocm_wheels.index.entry import IndexEntry, sort_entries
from rocm_wheels.index.folder import (
    HTML_PAGE,
    JSON_PAGE,
    LINKS_PAGE,
    PENDING_NOTE,
    STATE_FOLDER,
    VARIANTS_FOLDER,
    IndexFolder,
    combine_entries,
    list_families,
    path_of_families,
    read_entries_file,
    write_entries,
)
from rocm_wheels.index.pages import (
    PAGE_TAIL,
    REPOSITORY_VERSION,
    VariantsFile,
    make_links,
    make_page_head,
    make_project_html,
    make_project_json,
    make_root_html,
    make_root_json,
    make_variants_files,
)
from rocm_wheels.index.publish import FolderPublication, PublishRank, finish_publication

_FOLDERS_BESIDE = ("", "../")  # places of wheels whose folder somebody may name with --find-links


def stage_project(
    publication: FolderPublication,
    view: IndexFolder,
    project: str,
    own_entries: Mapping[str, IndexEntry],
    general_entries: Mapping[str, IndexEntry],
) -> bool:
    """Stage the pages of a project: its own wheels and those for everybody; tell whether it has any."""
    entries = sort_entries(combine_entries(view, project, dict(own_entries), dict(general_entries)))
    files = make_variants_files(project, entries)
    folder = view.project_folder(project)
    _stage_variants(publication, folder, entries, files)
    for path, content in make_project_pages(folder, project, entries, files).items():
        if entries:
            publication.stage_content(path, content, PublishRank.PROJECT)
        elif path.exists():
            publication.stage_removal(path)
    return bool(entries)


def make_project_pages(
    folder: Path, project: str, entries: Sequence[IndexEntry], files: Sequence[VariantsFile]
) -> dict[Path, bytes]:
    """Return the pages of a project."""
    return {
        folder / JSON_PAGE: make_project_json(project, entries, files),
        folder / HTML_PAGE: make_project_html(project, entries, files),
    }


def place_variants_files(
    folder: Path, entries: Iterable[IndexEntry], files: Sequence[VariantsFile]
) -> dict[Path, bytes]:
    """Return variants files with their content: one by its digest for the page, one beside the wheels."""
    places = sorted({e.place for e in entries if e.variant is not None and e.place in _FOLDERS_BESIDE})
    return {
        path: file.content
        for file in files
        for path in (folder / file.folder / file.name, *(folder / place / file.name for place in places))
    }


def _stage_variants(
    publication: FolderPublication, folder: Path, entries: Iterable[IndexEntry], files: Sequence[VariantsFile]
) -> None:
    """Stage variants files; those of the page before stay for one change more: somebody may be reading it."""
    if not files and not (folder / VARIANTS_FOLDER).is_dir():
        return
    new_files = place_variants_files(folder, entries, files)
    new = [
        path
        for path, content in new_files.items()
        if publication.stage_content(path, content, PublishRank.VARIANTS)
    ]
    page = folder / HTML_PAGE
    before = page.read_bytes() if new and page.is_file() else b""
    pattern = f"{folder.name.replace('-', '_')}-*-variants.json"
    for path in (*folder.glob(pattern), *(folder / "..").glob(pattern)):
        if path not in new_files:
            publication.stage_removal(path)
    for path in folder.glob(f"{VARIANTS_FOLDER}/*/*-variants.json"):
        if path not in new_files and path.parent.name.encode() not in before:
            publication.stage_removal(path)


def stage_root_pages(
    publication: FolderPublication, view: IndexFolder, names: Sequence[str], family_names: Sequence[str]
) -> None:
    """Stage the root pages and the page for ``--find-links``, which is put together a project at a time."""
    part = publication.new_part()
    with part.open("wb") as file:
        file.write(make_page_head("Links of all projects"))
        for project in names:
            page = publication.current_path(view.project_folder(project) / HTML_PAGE)
            file.write(make_links(project, page.read_bytes()))
        file.write(PAGE_TAIL)
    publication.stage_content(view.folder / JSON_PAGE, make_root_json(names), PublishRank.ROOT)
    publication.stage_part(view.folder / LINKS_PAGE, part, PublishRank.ROOT)
    publication.stage_content(view.folder / HTML_PAGE, make_root_html(names, family_names), PublishRank.ROOT)


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
            log_note(f"{root}: finishing a change that was cut short")
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

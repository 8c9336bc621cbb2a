"""The pages that follow from what is known, staged for an exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocm_wheels.index.entries import IndexEntry, sort_entries
from rocm_wheels.index.pages import (
    PAGE_TAIL,
    VariantsFile,
    make_links,
    make_page_head,
    make_project_html,
    make_project_json,
    make_root_html,
    make_root_json,
)
from rocm_wheels.index.releases import make_variants_files
from rocm_wheels.index.switching import PublishRank, FolderPublication
from rocm_wheels.index.views import (
    HTML_PAGE,
    JSON_PAGE,
    LINKS_PAGE,
    VARIANTS_FOLDER,
    IndexFolder,
    combine_entries,
)

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

"""Pages of a folder that are not what follows from the known wheels."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError, explain_error
from rocm_wheels.index.entries import sort_entries
from rocm_wheels.index.faults import IndexFinding
from rocm_wheels.index.pages import (
    PAGE_TAIL,
    make_links,
    make_page_head,
    make_project_html,
    make_root_html,
    make_root_json,
)
from rocm_wheels.index.releases import make_variants_files
from rocm_wheels.index.staging import make_project_pages, place_variants_files
from rocm_wheels.index.views import (
    HTML_PAGE,
    JSON_PAGE,
    LINKS_PAGE,
    PENDING_NOTE,
    STATE_FOLDER,
    IndexFolder,
    combine_entries,
    list_families,
)


def find_stale_pages(view: IndexFolder) -> Iterator[IndexFinding]:
    """Yield the pages of an index that differ from what would be written; none for a folder without state."""
    if not (view.root / STATE_FOLDER).is_dir():
        yield from _find_unlisted(view)
        return
    if (note := view.root / STATE_FOLDER / PENDING_NOTE).exists():
        detail = (
            "a change is being made, or was cut short: the next command that changes the index finishes it"
        )
        yield IndexFinding(str(note), "stale-page", detail)
    names = view.list_projects()
    links = [make_page_head("Links of all projects")]
    for project in names:
        own_entries = view.read_entries(project)
        general_entries = IndexFolder(view.root).read_entries(project) if view.family else {}
        try:
            entries = sort_entries(combine_entries(view, project, own_entries, general_entries))
            files = make_variants_files(project, entries)
        except DataError as wrong:
            yield IndexFinding(str(view.project_folder(project)), "stale-page", explain_error(wrong))
            continue
        folder = view.project_folder(project)
        pages = make_project_pages(folder, project, entries, files) | place_variants_files(
            folder, entries, files
        )
        links.append(make_links(project, make_project_html(project, entries, files)))
        for path, content in pages.items():
            if not path.is_file() or path.read_bytes() != content:
                yield IndexFinding(str(path), "stale-page", "is not what follows from the known wheels")
    family_names = [] if view.family else list_families(view.root)
    tops = {
        HTML_PAGE: make_root_html(names, family_names),
        JSON_PAGE: make_root_json(names),
        LINKS_PAGE: b"".join([*links, PAGE_TAIL]),
    }
    for name, content in tops.items():
        path = view.folder / name
        if not path.is_file() or path.read_bytes() != content:
            yield IndexFinding(str(path), "stale-page", "is not what follows from the known wheels")
    yield from _find_unlisted(view)


def _find_unlisted(view: IndexFolder) -> Iterator[IndexFinding]:
    page = view.folder / HTML_PAGE
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    skipped = set() if view.family else set(list_families(view.root))
    for path in sorted(view.folder.iterdir()):
        is_project = path.name not in skipped and canonicalize_name(path.name) == path.name
        if is_project and (path / HTML_PAGE).is_file() and f'href="{path.name}/"' not in text:
            yield IndexFinding(str(path / HTML_PAGE), "not-listed", "the root page has no link to it")

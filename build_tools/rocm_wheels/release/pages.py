"""The index of a set: pages that never change, with links to the bytes of its family."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from rocm_wheels.index.entries import IndexEntry, sort_entries
from rocm_wheels.index.pages import make_project_html, make_project_json, make_root_html, make_root_json
from rocm_wheels.index.releases import make_variants_files
from rocm_wheels.index.views import HTML_PAGE, JSON_PAGE
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.sets import SetFile


def make_set_pages(folder: str, paths: FamilyPaths, files: Iterable[tuple[SetFile, str]]) -> dict[str, bytes]:
    """Return the pages of an index in ``folder``, by their paths in the store: root pages last.

    ``files`` come with the time when they were staged; ``paths`` say where their bytes are.
    """
    projects: dict[str, dict[str, IndexEntry]] = {}
    for file, uploaded in files:
        page = f"{folder}/{file.project}"
        projects.setdefault(file.project, {})[file.name] = _make_entry(file, page, paths, uploaded)
    pages: dict[str, bytes] = {}
    for project in sorted(projects):
        pages.update(_make_project_pages(f"{folder}/{project}", project, projects[project]))
    pages[f"{folder}/{JSON_PAGE}"] = make_root_json(sorted(projects))
    pages[f"{folder}/{HTML_PAGE}"] = make_root_html(sorted(projects))
    return pages


def _make_project_pages(
    folder: str, project: str, entries_by_name: Mapping[str, IndexEntry]
) -> dict[str, bytes]:
    entries = sort_entries(entries_by_name)
    variants = make_variants_files(project, entries)
    return {
        **{f"{folder}/{file.folder}/{file.name}": file.content for file in variants},
        f"{folder}/{JSON_PAGE}": make_project_json(project, entries, variants),
        f"{folder}/{HTML_PAGE}": make_project_html(project, entries, variants),
    }


def _make_entry(file: SetFile, page: str, paths: FamilyPaths, uploaded: str) -> IndexEntry:
    file_folder = posixpath.dirname(paths.wheel_file(file.sha256, file.name))
    return IndexEntry(
        name=file.name,
        size=file.size,
        changed=0,
        sha256=file.sha256,
        uploaded=uploaded,
        metadata=file.metadata_sha256,
        requires_python=file.requires_python,
        variant=file.variant or None,
        place=posixpath.relpath(file_folder, page) + "/",
    )

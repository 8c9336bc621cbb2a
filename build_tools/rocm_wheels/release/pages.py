"""The index of a set: pages that never change, with links to the bytes of its family."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from rocm_wheels.index.entries import Entry, in_order
from rocm_wheels.index.pages import project_html, project_json, root_html, root_json
from rocm_wheels.index.releases import variants_files
from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.release.layout import Places
from rocm_wheels.release.sets import SetFile


def index_pages(folder: str, places: Places, files: Iterable[tuple[SetFile, str]]) -> dict[str, bytes]:
    """Return the pages of an index in ``folder``, by their paths in the store: root pages last.

    ``files`` come with the time when they were staged; ``places`` say where their bytes are.
    """
    projects: dict[str, dict[str, Entry]] = {}
    for file, uploaded in files:
        page = f"{folder}/{file.project}"
        projects.setdefault(file.project, {})[file.name] = _entry(file, page, places, uploaded)
    pages: dict[str, bytes] = {}
    for project in sorted(projects):
        pages.update(_project(f"{folder}/{project}", project, projects[project]))
    pages[f"{folder}/{JSON}"] = root_json(sorted(projects))
    pages[f"{folder}/{HTML}"] = root_html(sorted(projects))
    return pages


def _project(folder: str, project: str, found: Mapping[str, Entry]) -> dict[str, bytes]:
    entries = in_order(found)
    variants = variants_files(project, entries)
    return {
        **{f"{folder}/{file.folder}/{file.name}": file.content for file in variants},
        f"{folder}/{JSON}": project_json(project, entries, variants),
        f"{folder}/{HTML}": project_html(project, entries, variants),
    }


def _entry(file: SetFile, page: str, places: Places, uploaded: str) -> Entry:
    beside = posixpath.dirname(places.file(file.sha256, file.name))
    return Entry(
        name=file.name,
        size=file.size,
        changed=0,
        sha256=file.sha256,
        uploaded=uploaded,
        metadata=file.metadata_sha256,
        requires_python=file.requires_python,
        variant=file.variant or None,
        place=posixpath.relpath(beside, page) + "/",
    )

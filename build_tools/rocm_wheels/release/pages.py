"""Make the index pages of a set, which never change, and of a channel, which has all sets that it shows.

Links go to the bytes of the family; the same sets are the same bytes.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from rocm_wheels.core import parallel
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, IndexEntry, sort_entries
from rocm_wheels.index.pages import (
    PAGE_TAIL,
    make_project_html,
    make_project_json,
    make_root_html,
    make_root_json,
    make_variants_files,
)
from rocm_wheels.release import wheel_set
from rocm_wheels.release.channel import ChannelSet
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.stores.store import Store


def make_set_pages(
    folder: str, paths: FamilyPaths, files: Iterable[tuple[wheel_set.SetFile, str]]
) -> dict[str, bytes]:
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


def _make_entry(file: wheel_set.SetFile, page: str, paths: FamilyPaths, uploaded: str) -> IndexEntry:
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


_READ_JOBS = 16
_UNTESTED_KEY = "_untested"  # PEP 691 leaves keys that begin with _ to each index


def read_released_sets(store: Store, paths: FamilyPaths, ids: Sequence[str]) -> list[wheel_set.SetDocument]:
    """Return released sets."""
    layout, family = paths.layout, paths.family
    return parallel.run_in_parallel(
        lambda set_id: wheel_set.read_set(store, family, set_id, area="release", layout=layout),
        ids,
        jobs=_READ_JOBS,
    )


def make_channel_pages(
    paths: FamilyPaths,
    channel: str,
    channel_sets: Sequence[ChannelSet],
    documents: Sequence[wheel_set.SetDocument],
) -> dict[str, bytes]:
    """Return the pages by their paths. A wheel that several sets have is as old as the first of them."""
    files = [(file, document.created) for document in reversed(documents) for file in document.files]
    folder = paths.channel_pages(channel)
    pages = make_set_pages(folder, paths, files)
    untested = [pair for pair in zip(channel_sets, documents, strict=True) if pair[0].state != "tested"]
    for page in (folder, *(f"{folder}/{project}" for project in {file.project for file, _ in files})):
        project = page[len(folder) + 1 :]
        untested_here = [
            channel_set for channel_set, document in untested if not project or project in document.projects
        ]
        if untested_here:
            pages[f"{page}/{HTML_PAGE}"] = _add_notes_to_html(pages[f"{page}/{HTML_PAGE}"], untested_here)
            pages[f"{page}/{JSON_PAGE}"] = _add_notes_to_json(pages[f"{page}/{JSON_PAGE}"], untested_here)
    return pages


def _add_notes_to_html(page: bytes, untested: Sequence[ChannelSet]) -> bytes:
    lines = [
        f"<p>{escape('; '.join((f'{channel_set.set}: {channel_set.state}', *channel_set.told)))}</p>\n"
        for channel_set in untested
    ]
    return page.removesuffix(PAGE_TAIL) + "".join(lines).encode() + PAGE_TAIL


def _add_notes_to_json(page: bytes, untested: Sequence[ChannelSet]) -> bytes:
    notes = [
        {"set": channel_set.set, "state": channel_set.state, "told": list(channel_set.told)}
        for channel_set in untested
    ]
    return (
        json.dumps({_UNTESTED_KEY: notes})[:-1].encode() + b", " + page.lstrip().removeprefix(b"{").lstrip()
    )

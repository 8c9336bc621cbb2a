"""Make the index pages of sets, and exchange them in a store, one after the other.

Links go to the pool of the family; the same sets are the same bytes. Pages are exchanged in an order in
which exact pins hold: a wheel appears after all that it requires, and goes before it, so that installers
get the old sets or the new ones at any moment. Each write is made on condition that the change is still
ours, and that the page is still as it was seen; what is as it should be stays untouched.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, IndexEntry, sort_entries
from rocm_wheels.index.pages import (
    PAGE_TAIL,
    make_project_html,
    make_project_json,
    make_root_html,
    make_root_json,
    make_variants_files,
)
from rocm_wheels.release import view_selectors, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store, put_file

Check = Callable[[], None]  # raises when the change is not ours any more
_UNTESTED_KEY = "_untested"  # PEP 691 leaves keys that begin with _ to each index


@dataclass(frozen=True)
class SetNote:
    """What the pages of a channel tell of a set that is not tested everywhere: a word, and plain lines."""

    state: str
    lines: tuple[str, ...] = ()

    def with_lines(self, lines: Iterable[str]) -> SetNote:
        """Return it with more lines, each once."""
        return replace(self, lines=tuple(dict.fromkeys((*self.lines, *lines))))


def make_index_pages(
    folder: str,
    paths: FamilyPaths,
    documents: Iterable[wheel_set.SetDocument],
    targets: Collection[str] = (),
) -> dict[str, bytes]:
    """Return the pages of an index of sets in ``folder``, by their paths in the store: root pages last.

    A wheel that several sets have is as old as the first of them. An index for ``targets`` lists device
    selectors for these, where sets have device wheels, in place of those that bring nothing.
    """
    projects: dict[str, dict[str, IndexEntry]] = {}
    for document in documents:
        for file in document.files:
            page = f"{folder}/{file.project}"
            entry = _make_entry(file, page, paths, document.created)
            if selector := view_selectors.make_view_selector(document, file, targets):
                entry = replace(
                    entry,
                    name=selector.file,
                    size=len(selector.content),
                    sha256=hashlib.sha256(selector.content).hexdigest(),
                    metadata=hashlib.sha256(selector.metadata).hexdigest(),
                    place=posixpath.relpath(paths.selectors_folder(document.id), page) + "/",
                )
            projects.setdefault(file.project, {}).setdefault(entry.name, entry)
    pages: dict[str, bytes] = {}
    for project in sorted(projects):
        listed = sort_entries(projects[project])
        variants = make_variants_files(project, listed)
        pages |= {f"{folder}/{project}/{file.folder}/{file.name}": file.content for file in variants}
        pages[f"{folder}/{project}/{JSON_PAGE}"] = make_project_json(project, listed, variants)
        pages[f"{folder}/{project}/{HTML_PAGE}"] = make_project_html(project, listed, variants)
    pages[f"{folder}/{JSON_PAGE}"] = make_root_json(sorted(projects))
    pages[f"{folder}/{HTML_PAGE}"] = make_root_html(sorted(projects))
    return pages


def _make_entry(file: wheel_set.SetFile, page: str, paths: FamilyPaths, uploaded: str) -> IndexEntry:
    file_folder = posixpath.dirname(paths.pool_file(file.sha256, file.name))
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


def make_channel_pages(
    paths: FamilyPaths,
    channel: str,
    documents: Sequence[wheel_set.SetDocument],
    notes: Mapping[str, SetNote],
) -> dict[str, bytes]:
    """Return the pages of a channel that shows sets, oldest first; they tell of those that are not tested."""
    folder = paths.channel_pages(channel)
    pages = make_index_pages(folder, paths, documents)
    untested = [document for document in documents if notes[document.id].state != "tested"]
    for project in ("", *sorted({name for document in documents for name in document.projects})):
        told = {item.id: notes[item.id] for item in untested if not project or project in item.projects}
        if not told:
            continue
        html, text = (f"{folder}/{project}/{page}".replace("//", "/") for page in (HTML_PAGE, JSON_PAGE))
        lines = [
            f"<p>{escape('; '.join((f'{set_id}: {note.state}', *note.lines)))}</p>\n"
            for set_id, note in told.items()
        ]
        pages[html] = pages[html].removesuffix(PAGE_TAIL) + "".join(lines).encode() + PAGE_TAIL
        rows = [
            {"set": set_id, "state": note.state, "told": list(note.lines)} for set_id, note in told.items()
        ]
        rest = pages[text].lstrip().removeprefix(b"{").lstrip()  # what is said first is read first
        pages[text] = json.dumps({_UNTESTED_KEY: rows})[:-1].encode() + b", " + rest
    return pages


def exchange_pages(
    store: Store, folder: str, pages: Mapping[str, bytes], order: Sequence[str], check: Check, *, adds: bool
) -> int:
    """Let an index have these pages and nothing else; return how many were written or removed.

    ``order`` are projects, dependencies first; ``adds`` when sets come, else they go and the order is turned
    round. Projects of no known order come first. In a project comes what its pages link to, then its pages;
    then the root, and last goes what nothing links to any more. ``check`` is asked before each write.
    """
    present = {item.path for item in store.listing(folder)}
    rank = {project: number for number, project in enumerate(order if adds else reversed(order))}

    def find_turn(path: str) -> tuple[bool, int, str, bool, str]:
        parts = path[len(folder) + 1 :].split("/")
        project = parts[0] if len(parts) > 1 else ""
        is_page = parts[-1] in {HTML_PAGE, JSON_PAGE} and len(parts) <= 2
        return not project, rank.get(project, -1), project, is_page, "" if parts[-1] == JSON_PAGE else path

    writes, left = 0, set[str]()
    for path in sorted({*present, *pages}, key=find_turn):
        if path in pages:
            writes += put_file(store, path, pages[path], check)
        elif path.rpartition("/")[2] in {HTML_PAGE, JSON_PAGE}:
            check()
            store.remove(path)
            writes += 1
        else:
            left.add(path)
    for path in sorted(left):
        check()
        store.remove(path)
        writes += 1
    return writes

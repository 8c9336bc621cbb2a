"""The pages of a channel: all sets that it shows, in one index; the same sets are the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from rocm_wheels.index.pages import PAGE_TAIL
from rocm_wheels.index.views import HTML_PAGE, JSON_PAGE
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.pages import make_set_pages
from rocm_wheels.release.promotion.channel import ChannelSet
from rocm_wheels.release.sets import SetDocument, read_set
from rocm_wheels.stores.store import Store

_READ_JOBS = 16
_UNTESTED_KEY = "_untested"  # PEP 691 leaves keys that begin with _ to each index


def read_released_sets(store: Store, paths: FamilyPaths, ids: Sequence[str]) -> list[SetDocument]:
    """Return released sets."""
    layout, family = paths.layout, paths.family
    return run_in_parallel(
        lambda set_id: read_set(store, family, set_id, area="release", layout=layout), ids, jobs=_READ_JOBS
    )


def read_channel_pages(
    store: Store, paths: FamilyPaths, channel: str, channel_sets: Sequence[ChannelSet]
) -> dict[str, bytes]:
    """Return the pages by their paths."""
    return make_channel_pages(
        paths,
        channel,
        channel_sets,
        read_released_sets(store, paths, [channel_set.set for channel_set in channel_sets]),
    )


def make_channel_pages(
    paths: FamilyPaths, channel: str, channel_sets: Sequence[ChannelSet], documents: Sequence[SetDocument]
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

"""The pages of a channel: all sets that it shows, in one index; the same sets are the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from rocm_wheels.index.pages import TAIL
from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import Places
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.promotion.channel import Shown
from rocm_wheels.release.sets import SetDocument, read_set
from rocm_wheels.stores.store import Store

_JOBS = 16
_KEY = "_untested"  # PEP 691 leaves keys that begin with _ to each index


def documents_of(store: Store, places: Places, ids: Sequence[str]) -> list[SetDocument]:
    """Return released sets."""
    layout, family = places.layout, places.family
    return each(lambda one: read_set(store, family, one, area="release", layout=layout), ids, jobs=_JOBS)


def pages_of(store: Store, places: Places, channel: str, shown: Sequence[Shown]) -> dict[str, bytes]:
    """Return the pages by their paths."""
    return index_of(places, channel, shown, documents_of(store, places, [one.set for one in shown]))


def index_of(
    places: Places, channel: str, shown: Sequence[Shown], documents: Sequence[SetDocument]
) -> dict[str, bytes]:
    """Return the pages by their paths. A wheel that several sets have is as old as the first of them."""
    files = [(file, document.created) for document in reversed(documents) for file in document.files]
    folder = places.channel_pages(channel)
    pages = index_pages(folder, places, files)
    told = [pair for pair in zip(shown, documents, strict=True) if pair[0].state != "tested"]
    for page in (folder, *(f"{folder}/{project}" for project in {file.project for file, _ in files})):
        project = page[len(folder) + 1 :]
        own = [one for one, document in told if not project or project in document.projects]
        if own:
            pages[f"{page}/{HTML}"] = _in_html(pages[f"{page}/{HTML}"], own)
            pages[f"{page}/{JSON}"] = _in_json(pages[f"{page}/{JSON}"], own)
    return pages


def _in_html(page: bytes, told: Sequence[Shown]) -> bytes:
    lines = [f"<p>{escape('; '.join((f'{one.set}: {one.state}', *one.told)))}</p>\n" for one in told]
    return page.removesuffix(TAIL) + "".join(lines).encode() + TAIL


def _in_json(page: bytes, told: Sequence[Shown]) -> bytes:
    said = [{"set": one.set, "state": one.state, "told": list(one.told)} for one in told]
    return json.dumps({_KEY: said})[:-1].encode() + b", " + page.lstrip().removeprefix(b"{").lstrip()

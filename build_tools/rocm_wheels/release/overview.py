"""All sets of a store in a moment: a short listing a family, kept beside the sets.

The listing is a help and never the truth: a set is what its document says. Sets that it does not know are
read, those that are gone are dropped, and a listing that is lost or damaged is made again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels import log
from rocm_wheels.errors import DataError, explain
from rocm_wheels.model.project import Platform
from rocm_wheels.parallel import each
from rocm_wheels.records import Record
from rocm_wheels.release.gate.needed import platform_of
from rocm_wheels.release.layout import Layout, Places
from rocm_wheels.release.sets import SetDocument, families, parse_set
from rocm_wheels.stores.store import Changed, Missing, Store

_JOBS = 16


class Row(Record):
    """A set in a line. ``wheels`` and ``bytes`` count its files, ``planned`` and ``missing`` its cells.

    ``os`` is its platform, "" in a listing of before: then its document is read again.
    """

    id: str
    created: str
    version: str
    rocm: str | None
    family: str
    layout: str
    targets: tuple[str, ...]
    projects: tuple[str, ...]
    wheels: int
    bytes: int
    planned: int
    missing: int
    origin: str | None
    os: Platform | Literal[""] = ""


class _Listing(Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    sets: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Overview:
    """The sets of a family, newest first; ids of those not finished; what is wrong with damaged documents."""

    family: str
    rows: tuple[Row, ...]
    unfinished: tuple[str, ...]
    damaged: tuple[str, ...]


def overviews(store: Store, layout: Layout, *, family: str | None = None) -> list[Overview]:
    """Return the staged sets of every family, or of one."""
    named = families(store, layout=layout) if family is None else [family]
    return [_overview(store, Places(layout, one))[0] for one in named]


def renew_listing(store: Store, places: Places) -> None:
    """Write the listing anew where it is not up to date; another who does so at the same time is as good."""
    found, tag, kept = _overview(store, places)
    if found.rows == kept:
        return
    listing = _Listing(sets=found.rows).model_dump(mode="json", by_alias=True)
    try:
        store.replace(places.summary, (json.dumps(listing) + "\n").encode(), tag)
    except Changed:
        log.note(f"the listing of {places.family} was written by somebody else meanwhile")


def row_of(document: SetDocument) -> Row:
    """Return a set in a line."""
    return Row(
        id=document.id,
        created=document.created,
        version=document.version,
        rocm=document.rocm_in_words or None,
        family=document.family,
        layout=document.layout,
        targets=document.targets,
        projects=document.projects,
        wheels=len(document.files),
        bytes=sum(file.size for file in document.files),
        planned=len(document.planned),
        missing=len(document.missing),
        origin=document.origin,
        os=platform_of(document),
    )


def _overview(store: Store, places: Places) -> tuple[Overview, str | None, Sequence[Row]]:
    """Return the sets, the tag of the listing and what that holds."""
    ids = store.folders(places.sets)
    tag, kept = _kept(store, places)
    known = {row.id: row for row in kept if row.os}
    heads = each(lambda one: store.head(places.document(one)), ids, jobs=_JOBS)
    there = [one for one, head in zip(ids, heads, strict=True) if head is not None]
    new = [one for one in there if one not in known]
    read = each(lambda one: _read(store, places, one), new, jobs=_JOBS)
    rows = [known[one] for one in there if one in known] + [row for row in read if isinstance(row, Row)]
    rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    unfinished = tuple(sorted(set(ids) - set(there)))
    damaged = tuple(row for row in read if isinstance(row, str))
    return Overview(places.family, tuple(rows), unfinished, damaged), tag, kept


def _kept(store: Store, places: Places) -> tuple[str | None, Sequence[Row]]:
    try:
        found = store.read(places.summary)
    except Missing:
        return None, ()
    try:
        return found.tag, _Listing.model_validate_json(found.content).sets
    except ValidationError:
        return found.tag, ()


def _read(store: Store, places: Places, set_id: str) -> Row | str:
    """Return a set in a line, or what is wrong with its document."""
    path = places.document(set_id)
    try:
        return row_of(parse_set(store.read(path).content, where=store.url_of(path), expected=set_id))
    except (Missing, DataError) as wrong:
        return explain(wrong)

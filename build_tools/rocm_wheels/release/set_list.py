"""List the sets of a store and their last results: a short listing a family, kept beside the sets.

The listing is a help and never the truth: a set is what its document says. Sets that are not in it are
read, those that were removed are dropped, and a listing that is lost or damaged is made again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import (
    ChangedInStoreError,
    DataError,
    NotInStoreError,
    Record,
    Store,
    explain_error,
    log_note,
    run_in_parallel,
)
from rocm_wheels.models import Platform
from rocm_wheels.release.evidence.evidence import Evidence, parse_evidence
from rocm_wheels.release.layout import FamilyPaths, StoreLayout
from rocm_wheels.release.wheel_set import SetDocument, find_set_platform, list_families, parse_set

_READ_JOBS = 16


class SetRow(Record):
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


class _SetListing(Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    sets: tuple[SetRow, ...] = ()


@dataclass(frozen=True)
class FamilyOverview:
    """The sets of a family, newest first; ids of those not finished; what is wrong with damaged documents."""

    family: str
    rows: tuple[SetRow, ...]
    unfinished: tuple[str, ...]
    damaged: tuple[str, ...]


def list_sets(store: Store, layout: StoreLayout, *, family: str | None = None) -> list[FamilyOverview]:
    """Return the staged sets of every family, or of one."""
    family_names = list_families(store, layout=layout) if family is None else [family]
    return [_read_overview(store, FamilyPaths(layout, family_name))[0] for family_name in family_names]


def update_listing(store: Store, paths: FamilyPaths) -> None:
    """Write the listing anew where it is not up to date; another who does so at the same time is as good."""
    overview, tag, listed_rows = _read_overview(store, paths)
    if overview.rows == listed_rows:
        return
    listing = _SetListing(sets=overview.rows).model_dump(mode="json", by_alias=True)
    try:
        store.replace(paths.set_listing, (json.dumps(listing) + "\n").encode(), tag)
    except ChangedInStoreError:
        log_note(f"the listing of {paths.family} was written by another process in the meantime")


def make_set_row(document: SetDocument) -> SetRow:
    """Return a set in a line."""
    return SetRow(
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
        os=find_set_platform(document),
    )


def _read_overview(store: Store, paths: FamilyPaths) -> tuple[FamilyOverview, str | None, Sequence[SetRow]]:
    """Return the sets, the tag of the listing and what that holds."""
    ids = store.folders(paths.sets_folder)
    tag, listed_rows = _read_listing(store, paths)
    rows_by_id = {row.id: row for row in listed_rows if row.os}
    heads = run_in_parallel(lambda set_id: store.head(paths.set_document(set_id)), ids, jobs=_READ_JOBS)
    finished = [set_id for set_id, head in zip(ids, heads, strict=True) if head is not None]
    new = [set_id for set_id in finished if set_id not in rows_by_id]
    read = run_in_parallel(lambda set_id: _read_row(store, paths, set_id), new, jobs=_READ_JOBS)
    rows = [rows_by_id[set_id] for set_id in finished if set_id in rows_by_id] + [
        row for row in read if isinstance(row, SetRow)
    ]
    rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    unfinished = tuple(sorted(set(ids) - set(finished)))
    damaged = tuple(row for row in read if isinstance(row, str))
    return FamilyOverview(paths.family, tuple(rows), unfinished, damaged), tag, listed_rows


def _read_listing(store: Store, paths: FamilyPaths) -> tuple[str | None, Sequence[SetRow]]:
    try:
        stored = store.read(paths.set_listing)
    except NotInStoreError:
        return None, ()
    try:
        return stored.tag, _SetListing.model_validate_json(stored.content).sets
    except ValidationError:
        return stored.tag, ()


def _read_row(store: Store, paths: FamilyPaths, set_id: str) -> SetRow | str:
    """Return a set in a line, or what is wrong with its document."""
    path = paths.set_document(set_id)
    try:
        return make_set_row(parse_set(store.read(path).content, where=store.url_of(path), expected=set_id))
    except (NotInStoreError, DataError) as wrong:
        return explain_error(wrong)


_RESULT_JOBS = 8


def summarize_results(store: Store, layout: StoreLayout, family: str) -> dict[str, list[str]]:
    """Return, for each set with results, lines such as ``smoke on gfx942: pass``.

    One that cannot be read says so: it could be a failure. Whether signatures are those of people who count
    is up to the gate.
    """
    family_paths = FamilyPaths(layout, family)
    folder = f"{family_paths.family_folder}/{layout.evidence}"
    paths = [listed.path for listed in store.listing(folder)]
    read = run_in_parallel(lambda path: _read_result(store, path), paths, jobs=_RESULT_JOBS)
    last: dict[str, dict[str, str]] = {}
    for path, evidence in sorted(
        zip(paths, read, strict=True), key=lambda pair: pair[0]
    ):  # names begin with the time
        set_id = path.removeprefix(f"{folder}/").partition("/")[0]
        if evidence is None:
            last.setdefault(set_id, {})[path] = f"{path.rpartition('/')[2]} cannot be read"
        else:
            label = f"{evidence.kind} on {evidence.gfx}" if evidence.gfx else evidence.kind
            last.setdefault(set_id, {})[label] = f"{label}: {evidence.outcome}"
    return {set_id: list(evidence.values()) for set_id, evidence in last.items()}


def _read_result(store: Store, path: str) -> Evidence | None:
    try:
        content = store.read(path).content
        return parse_evidence(content, where=path, name=path.rpartition("/")[2].removesuffix(".json"))
    except (DataError, NotInStoreError):
        return None

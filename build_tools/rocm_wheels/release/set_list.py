"""The sets of a store: the list of those that are staged, and those that are released.

The listing is a help and never the truth: a set is what its document says. Sets that are not in it are
read, those that were removed are dropped, and a listing that is lost or damaged is made again.

Wheels are compared by the sha256 of their bytes before and after; a server (S3) copies those that were
read, by their ETag, and they are not read again. METADATA, locks and evidence are always read, and pages
are written anew: they follow from the document. What was released before was compared then. ``set.json``
is the last file: until it is there, nothing was released. Released sets never change: each is read once in
a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from pydantic import Field, ValidationError

from rocm_wheels.core import errors, log, parallel, records
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX
from rocm_wheels.models import project_names
from rocm_wheels.release import set_conflicts, set_log, stored_digests, wheel_set
from rocm_wheels.release.evidence.evidence import Evidence, parse_evidence
from rocm_wheels.release.layout import SET_FILE, FamilyPaths, StoreLayout
from rocm_wheels.release.pages import make_set_pages, read_released_sets
from rocm_wheels.stores.store import (
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    Store,
    create_or_read,
    put_file,
)
from rocm_wheels.wheels import statement

_READ_JOBS = 16


class SetRow(records.Record):
    """A set in a line. ``wheels`` and ``bytes`` count its files, ``planned`` and ``missing`` its cells.

    ``os`` is its platform.
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
    os: project_names.Platform


class _SetListing(records.Record):
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
    family_names = wheel_set.list_families(store, layout=layout) if family is None else [family]
    return [_read_overview(store, FamilyPaths(layout, family_name))[0] for family_name in family_names]


def update_listing(store: Store, paths: FamilyPaths) -> None:
    """Write the listing anew where it is not up to date; another who does so at the same time is as good."""
    overview, tag, listed_rows = _read_overview(store, paths)
    if overview.rows == listed_rows:
        return
    try:
        store.replace(paths.set_listing, _format_listing(overview.rows), tag)
    except ChangedInStoreError:
        log.log_note(f"the listing of {paths.family} was written by another process in the meantime")


def make_listing(documents: Iterable[wheel_set.SetDocument]) -> bytes:
    """Return the listing of sets, as it is when it is up to date."""
    rows = (make_set_row(document) for document in documents)
    return _format_listing(sorted(rows, key=_row_sort_key, reverse=True))


def _format_listing(rows: Sequence[SetRow]) -> bytes:
    listing = _SetListing(sets=tuple(rows)).model_dump(mode="json", by_alias=True)
    return (json.dumps(listing) + "\n").encode()


def _row_sort_key(row: SetRow) -> tuple[str, str]:
    return row.created, row.id


def make_set_row(document: wheel_set.SetDocument) -> SetRow:
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
        os=wheel_set.find_set_platform(document),
    )


def _read_overview(store: Store, paths: FamilyPaths) -> tuple[FamilyOverview, str | None, Sequence[SetRow]]:
    """Return the sets, the tag of the listing and what that holds."""
    ids = store.folders(paths.sets_folder)
    tag, listed_rows = _read_listing(store, paths)
    rows_by_id = {row.id: row for row in listed_rows}
    heads = parallel.run_in_parallel(
        lambda set_id: store.head(paths.set_document(set_id)), ids, jobs=_READ_JOBS
    )
    finished = [set_id for set_id, head in zip(ids, heads, strict=True) if head is not None]
    new = [set_id for set_id in finished if set_id not in rows_by_id]
    read = parallel.run_in_parallel(lambda set_id: _read_row(store, paths, set_id), new, jobs=_READ_JOBS)
    rows = [rows_by_id[set_id] for set_id in finished if set_id in rows_by_id] + [
        row for row in read if isinstance(row, SetRow)
    ]
    rows.sort(key=_row_sort_key, reverse=True)
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
    try:
        return make_set_row(wheel_set.read_set(store, paths.family, set_id, layout=paths.layout))
    except (errors.ReleaseError, errors.DataError) as wrong:
        return errors.explain_error(wrong)


_RESULT_JOBS = 8


def summarize_results(store: Store, layout: StoreLayout, family: str) -> dict[str, list[str]]:
    """Return, for each set with results, lines such as ``smoke on gfx942: pass``.

    One that cannot be read says so: it could be a failure. Whether signatures are those of people who count
    is up to the gate.
    """
    family_paths = FamilyPaths(layout, family)
    folder = f"{family_paths.family_folder}/{layout.evidence}"
    paths = [listed.path for listed in store.listing(folder)]
    read = parallel.run_in_parallel(lambda path: _read_result(store, path), paths, jobs=_RESULT_JOBS)
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
    except (errors.DataError, NotInStoreError):
        return None


class ReleasedSets:
    """The sets of a family, and what their wheels require."""

    def __init__(self, store: Store, paths: FamilyPaths) -> None:
        self.store, self.paths = store, paths
        self._documents: dict[str, wheel_set.SetDocument] = {}
        self._requires: dict[str, Sequence[Requirement]] = {}  # by file name, which belongs to its bytes

    def add_requirements(self, requires: set_conflicts.RequirementsByFile) -> None:
        """Take over what was read in staging, and compared when it was copied."""
        self._requires.update(requires)

    def read_documents(self, ids: Sequence[str]) -> list[wheel_set.SetDocument]:
        """Return sets by their ids. Raises ReleaseError for one that was not released."""
        new = [set_id for set_id in ids if set_id not in self._documents]
        self._documents.update(zip(new, read_released_sets(self.store, self.paths, new), strict=True))
        return [self._documents[set_id] for set_id in ids]

    def sort_projects(self, ids: Sequence[str]) -> list[str]:
        """Return the projects of sets, dependencies first."""
        documents = self.read_documents(ids)
        for document in documents:
            if any(file.name not in self._requires for file in document.files):
                self._requires.update(set_conflicts.read_requirements(self.store, self.paths, document))
        return set_conflicts.sort_by_dependencies(documents, self._requires)


_COPY_JOBS = 8
_STAGING_FILES = {"begun.json", SET_FILE}
_FileCopy = tuple[str, str, str]  # from, to, and the sha256 that it must have ("": that of the source)


def copy_to_release(
    store: Store,
    staging: FamilyPaths,
    release: FamilyPaths,
    document: wheel_set.SetDocument,
    digests: stored_digests.StoredDigests | None = None,
) -> int:
    """Copy a set and its evidence, and return how many files were new. Raises ReleaseError.

    What is there already stays and is compared; what is there and differs is refused. ``digests`` remember
    which bytes wheels have in staging.
    """
    known_digests = digests or stored_digests.StoredDigests()
    if taken := find_taken_names(store, release, document.files):
        raise _make_other_bytes_error(taken[0])
    presence = parallel.run_in_parallel(
        lambda file: _is_released(store, release, file), document.files, jobs=_COPY_JOBS
    )
    files = [file for file, present in zip(document.files, presence, strict=True) if not present]
    new = sum(
        parallel.run_in_parallel(
            lambda file: _copy_wheel(store, staging, release, file, known_digests), files, jobs=_COPY_JOBS
        )
    )
    # entries are listed before the results and copied after them: no log names what is not there
    log_numbers = set_log.list_log_numbers(store, staging, document.id).get(document.id, set())
    other_copies = _list_copies(store, staging, release, document)
    new += _write_set_pages(store, release, document)
    folders = [release.set_folder(document.id), release.evidence_folder(document.id)]
    present = {item.path for folder in folders for item in store.listing(folder)}
    new += sum(
        parallel.run_in_parallel(
            lambda item: _copy_file(store, *item, present=present), other_copies, jobs=_COPY_JOBS
        )
    )
    log_numbers -= set_log.list_log_numbers(store, release, document.id).get(document.id, set())
    new += set_log.copy_log_entries(store, staging, release, document.id, sorted(log_numbers))
    last = staging.set_document(document.id), release.set_document(document.id)
    return new + _copy_file(store, *last, "", present=present)


def _is_released(store: Store, release: FamilyPaths, file: wheel_set.SetFile) -> bool:
    """Tell whether a wheel was released, which is compared before its name is taken, and still lies there.

    Raises ReleaseError when its name belongs to other bytes.
    """
    try:
        name_content = store.read(release.name_claim(file.name)).content
    except NotInStoreError:
        return False
    _require_same_bytes(file, name_content)
    path = release.wheel_file(file.sha256, file.name)
    info = store.head(path)
    if info is None or info.size != file.size or info.sha256 not in (None, file.sha256):
        return False
    return store.head(path + METADATA_SUFFIX) is not None


def _copy_wheel(
    store: Store,
    staging: FamilyPaths,
    release: FamilyPaths,
    file: wheel_set.SetFile,
    digests: stored_digests.StoredDigests,
) -> int:
    """Copy a wheel and its METADATA, then have its name belong to it; return how many files were new."""
    source, target = staging.wheel_file(file.sha256, file.name), release.wheel_file(file.sha256, file.name)
    new = int(_copy_wheel_file(store, source, target, file, digests))
    new += _copy_file(store, source + METADATA_SUFFIX, target + METADATA_SUFFIX, file.metadata_sha256)
    for suffix in (
        (statement.STATEMENT_SUFFIX, statement.STATEMENT_SIGNATURE_SUFFIX) if file.statement else ()
    ):
        if store.head(source + suffix) is not None and store.head(target + suffix) is None:
            with contextlib.suppress(AlreadyInStoreError):
                store.copy(source + suffix, target + suffix)
                new += 1
    path = release.name_claim(file.name)
    name_content = create_or_read(store, path, f"{file.sha256}\n".encode())
    if name_content is None:
        return new + 1
    _require_same_bytes(file, name_content)
    return new


def _require_same_bytes(file: wheel_set.SetFile, name_content: bytes) -> None:
    if _parse_claim(name_content) != file.sha256:
        raise _make_other_bytes_error(file.name)


def _parse_claim(content: bytes) -> str:
    return content.decode(errors="replace").strip()


def _make_other_bytes_error(name: str) -> errors.ReleaseError:
    tip = "a name belongs to its bytes for good: give the new wheel a build tag and stage it"
    return errors.ReleaseError(f"{name} was released with other bytes", tip=tip)


def find_taken_names(store: Store, release: FamilyPaths, files: Sequence[wheel_set.SetFile]) -> list[str]:
    """Return the names of these wheels that were released with other bytes.

    The record of a name says it. Of a name without one the documents of all sets say it that were released,
    or are being: who deletes a record frees no name. Raises ReleaseError for a document that is gone or
    damaged.
    """

    def read_claim(file: wheel_set.SetFile) -> str:
        try:
            return _parse_claim(store.read(release.name_claim(file.name)).content)
        except NotInStoreError:
            return ""

    claims = parallel.run_in_parallel(read_claim, files, jobs=_READ_JOBS)
    if not all(claims):
        released = _read_released_names(store, release)
        claims = [claim or released.get(file.name, "") for file, claim in zip(files, claims, strict=True)]
    return [file.name for file, claim in zip(files, claims, strict=True) if claim not in {"", file.sha256}]


def _read_released_names(store: Store, release: FamilyPaths) -> dict[str, str]:
    """Return the sha256 of all released wheels by name; where sets differ, the oldest says it."""
    ids = {*store.folders(release.sets_folder), *store.folders(release.logs_folder)}
    documents = parallel.run_in_parallel(
        lambda set_id: _read_any_document(store, release, set_id), sorted(ids), jobs=_READ_JOBS
    )
    by_time = sorted(documents, key=lambda document: document.created, reverse=True)
    return {file.name: file.sha256 for document in by_time for file in document.files}


def _read_any_document(store: Store, release: FamilyPaths, set_id: str) -> wheel_set.SetDocument:
    """Return the document of a set that was released, or of which a promotion has begun.

    Where the release area has lost it, staging has it; it must be what the log in the release area states.
    """
    family, layout = release.family, release.layout
    try:
        if store.head(release.set_document(set_id)) is not None:
            return wheel_set.read_set(store, family, set_id, area="release", layout=layout)
        document = wheel_set.read_set(store, family, set_id, layout=layout)
        set_log.require_stated_document(store, release, set_id, document.digest)
    except (errors.ReleaseError, errors.DataError) as fault:
        damage = "damaged" if isinstance(fault, errors.DataError) else "gone"
        message = (
            f"the document of {set_id} is {damage}, and it was released: its wheels' names are not known"
        )
        tip = (
            f"put its document back: rocm-wheels store fsck {store.url} --repair, or from a copy of the store"
        )
        raise errors.ReleaseError(message, tip=tip) from None
    return document


def _write_set_pages(store: Store, release: FamilyPaths, document: wheel_set.SetDocument) -> int:
    """Write the pages of a set's own index; once it is released they stay as they are."""
    index, files = release.set_index(document.id), [(file, document.created) for file in document.files]
    released = store.head(release.set_document(document.id)) is not None
    present = {listed.path for listed in store.listing(index)}

    def put(item: tuple[str, bytes]) -> bool:
        path, content = item
        if released and path in present:
            return False
        return put_file(store, path, content)  # nobody has seen what another version of this tool left

    return sum(parallel.run_in_parallel(put, make_set_pages(index, release, files).items(), jobs=_COPY_JOBS))


def _list_copies(
    store: Store, staging: FamilyPaths, release: FamilyPaths, document: wheel_set.SetDocument
) -> list[_FileCopy]:
    """Return the locks, the statements, what else lies there, and evidence. ReleaseError for gaps."""
    folder, index = staging.set_folder(document.id), staging.set_index(document.id)
    bound = {f"{folder}/{item.path}": item.digest for item in document.locks}
    bound |= {
        staging.set_statement(document.id, file.name): file.statement
        for file in document.files
        if file.statement
    }
    staged_paths = [item.path for item in store.listing(folder)]
    pages = {"", *(f"{project}/" for project in document.projects)}
    needed = {f"{index}/{page}{name}" for page in pages for name in (HTML_PAGE, JSON_PAGE)}
    if lost := sorted((needed | set(bound)) - set(staged_paths)):
        raise errors.ReleaseError(
            f"{document.id} has lost files in staging: {', '.join(lost)}", tip=_LOST_FILES_TIP
        )
    copies = [
        (path, release.set_folder(document.id) + path[len(folder) :], bound.get(path, ""))
        for path in staged_paths
        if path[len(folder) + 1 :] not in _STAGING_FILES and not path.startswith(f"{index}/")
    ]
    target = release.evidence_folder(document.id)
    for listed in store.listing(staging.evidence_folder(document.id)):
        copies.append((listed.path, f"{target}/{listed.path.rpartition('/')[2]}", ""))
    return copies


_LOST_FILES_TIP = (
    "a set never changes: put the files back from a copy of the store, or stage the wheels again"
)


def _copy_file(store: Store, source: str, target: str, sha256: str, *, present: Collection[str] = ()) -> bool:
    """Copy a file unless it is there (``present`` are); tell whether it was not."""
    source_digest = _digest_content(store, source)
    if sha256:
        _require_tested_bytes(store, source, source_digest, sha256)
    new = False
    if target not in present:
        with contextlib.suppress(AlreadyInStoreError):
            store.copy(source, target)
            new = True
    _require_copied_bytes(store, source, target, _digest_content(store, target), source_digest)
    return new


def _copy_wheel_file(
    store: Store, source: str, target: str, file: wheel_set.SetFile, digests: stored_digests.StoredDigests
) -> bool:
    """Copy a wheel unless it is there; tell whether it was not.

    What a server itself has just copied, of the tag that was read, is not read once more.
    """
    source_digest, tag = digests.find_digest(store, source)
    _require_tested_bytes(store, source, source_digest, file.sha256)
    try:
        store.copy(source, target, tag=tag)
    except AlreadyInStoreError:
        new = False
    else:
        new = True
    info = store.head(target)
    if not new or store.folder is not None or info is None or info.size != file.size:
        _require_copied_bytes(store, source, target, store.digest(target), file.sha256)
    return new


def _require_tested_bytes(store: Store, path: str, digest: str, sha256: str) -> None:
    if digest != sha256:
        message = f"{store.url_of(path)} is not what was tested: its sha256 is {digest}"
        raise errors.ReleaseError(message, tip=_LOST_FILES_TIP)


def _require_copied_bytes(store: Store, source: str, target: str, digest: str, sha256: str) -> None:
    if digest != sha256:
        tip = "another process wrote it; what was released is never replaced: look who"
        raise errors.ReleaseError(f"{store.url_of(target)} is not {source}: its sha256 is {digest}", tip=tip)


def _digest_content(store: Store, path: str) -> str:
    return hashlib.sha256(store.read(path).content).hexdigest()

"""Prune a store: take staged sets away that a policy does not keep, and write down that they were there.

Only what is staged is touched: whatever a channel showed once lies in the release area, and stays. A set is
kept that a channel shows or is about to, that a view may show, that a kept set was made from, that is among
the newest of its line and platform, or too young. Of a set that goes stay its results, its log, the records
of its names, which belong to their bytes for good, and a record of who pruned it when.

``pruned/running.json`` is the claim of who prunes a family: written before anything is looked at a second
time, removed at the end. Whoever stages writes ``begun.json`` and then looks for the claim; whoever prunes
writes the claim and then looks for sets that are begun: one of both sees the other. A prune that was killed
is carried on by the next, which takes the claim over; one that lost its claim stops.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from packaging.version import Version
from pydantic import Field, ValidationError

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.core.records import Record
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.models import lock
from rocm_wheels.release import policy, set_list, wheel_set
from rocm_wheels.release.channel import read_channel, read_channel_status
from rocm_wheels.release.evidence.evidence import Evidence, parse_evidence
from rocm_wheels.release.layout import FamilyPaths, StoreLayout
from rocm_wheels.release.wheel_set import list_families
from rocm_wheels.stores.store import (
    RUN_AGAIN_TIP,
    AlreadyInStoreError,
    ChangedInStoreError,
    NotInStoreError,
    Store,
)

_JOBS = 8


class PrunedFile(Record):
    """A wheel that a pruned set had: its name belongs to these bytes."""

    name: str
    sha256: lock.Sha256Digest
    size: int


class PrunedSet(Record):
    """The record of a set that was pruned: by whom, when and why. ``digest`` is that of its document."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    set: wheel_set.SetId
    family: str
    version: str
    created: str
    digest: lock.Sha256Digest
    files: tuple[PrunedFile, ...]
    by: str
    when: str
    why: str

    def to_json(self) -> bytes:
        """Return its file."""
        return (json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()


class PruneClaim(Record):
    """Who prunes a family, and which sets."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    by: str
    when: str
    sets: tuple[wheel_set.SetId, ...]

    def to_json(self) -> bytes:
        """Return its file."""
        return (json.dumps(self.model_dump(mode="json", by_alias=True)) + "\n").encode()


@dataclass(frozen=True)
class KeptSet:
    """A set that stays, and why."""

    set_id: str
    reason: str


@dataclass(frozen=True)
class PrunePlan:
    """What goes of a family and what stays. ``freed``: the bytes of wheels that no other set has, by set.

    ``blocked`` says why nothing goes now, "" when it can.
    """

    family: str
    sets: tuple[wheel_set.SetDocument, ...]
    kept: tuple[KeptSet, ...]
    freed: Mapping[str, int]
    unfinished: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    blocked: str = ""

    @property
    def size(self) -> int:
        """The bytes of all wheels that go."""
        return sum(self.freed.values())


@dataclass(frozen=True)
class Pruner:
    """One who prunes a store, in whose name the records are. ``now`` in UTC."""

    store: Store
    layout: StoreLayout
    retention: policy.RetentionPolicy
    by: str
    now: datetime
    _documents: dict[tuple[str, str], wheel_set.SetDocument] = field(default_factory=dict)

    def list_families(self) -> list[str]:
        """Return the families that have staged sets."""
        return list_families(self.store, layout=self.layout)

    def plan(self, family: str) -> PrunePlan:
        """Return what would go of a family; nothing is written.

        Raises DataError for a document that cannot be read: what it names must not go.
        """
        paths = FamilyPaths(self.layout, family)
        documents = self._read_documents(family)
        unfinished = self._list_unfinished(paths, documents)
        claim = _read_claim(self.store, paths)
        left = tuple(set_id for set_id in (claim[0].sets if claim else ()) if set_id not in documents)
        reasons = self._find_reasons(family, documents)
        going = [document for set_id, document in documents.items() if set_id not in reasons]
        kept = tuple(KeptSet(set_id, reason) for set_id, reason in reasons.items())
        blocked = ""
        if unfinished and going:
            blocked = f"{unfinished[0]} is being staged, and may share wheels with what would go"
        return PrunePlan(
            family,
            tuple(going),
            kept,
            _count_freed(going, [documents[set_id] for set_id in reasons]),
            tuple(unfinished),
            left,
            blocked,
        )

    def prune(self, family: str) -> PrunePlan:
        """Prune a family, and return what went. What a killed prune has left goes too.

        Raises ReleaseError where another took over, or the store cannot be written.
        """
        paths = FamilyPaths(self.layout, family)
        first = self.plan(family)
        claim = _read_claim(self.store, paths)
        if claim is None and (first.blocked or not first.sets):
            return first
        tag = self._claim(paths, claim, [document.id for document in first.sets])
        plan = self.plan(family)  # again: what was promoted or begun before the claim is seen now
        records = self._write_records(paths, plan, tag)
        needed = self._list_needed_wheels(family, plan)
        for record in records:
            self._require_claim(paths, tag)
            self._remove_set(paths, record, needed, tag)
        set_list.update_listing(self.store, paths)
        self._require_claim(paths, tag)
        self.store.remove(paths.prune_claim)
        return plan

    # ---- what stays

    def _read_documents(self, family: str) -> dict[str, wheel_set.SetDocument]:
        """Return the staged sets of a family by id. Sets never change: each is read once."""
        set_ids = list(wheel_set.list_set_ids(self.store, family, layout=self.layout))
        new = [set_id for set_id in set_ids if (family, set_id) not in self._documents]
        read = parallel.run_in_parallel(
            lambda set_id: wheel_set.read_set(self.store, family, set_id, layout=self.layout), new, jobs=_JOBS
        )
        self._documents.update(zip([(family, set_id) for set_id in new], read, strict=True))
        return {set_id: self._documents[family, set_id] for set_id in set_ids}

    def _list_unfinished(self, paths: FamilyPaths, documents: Collection[str]) -> list[str]:
        """Return the sets that are being staged, as far as they were begun lately, or nobody knows when."""
        unfinished = []
        for set_id in self.store.folders(paths.sets_folder):
            if set_id in documents or self.store.head(paths.pruned_record(set_id)) is not None:
                continue
            begun = _read_moment(self.store, f"{paths.set_folder(set_id)}/begun.json")
            if begun is None or self.now - begun < self.retention.unfinished_for:
                unfinished.append(set_id)
        return unfinished

    def _find_reasons(self, family: str, documents: Mapping[str, wheel_set.SetDocument]) -> dict[str, str]:
        """Return why sets stay, by id."""
        reasons = self._find_channel_reasons(family, documents)
        groups: dict[tuple[str, str], list[wheel_set.SetDocument]] = {}
        for document in documents.values():
            key = find_retention_line(document), wheel_set.find_set_platform(document)
            groups.setdefault(key, []).append(document)
        for (line, platform), group in groups.items():
            newest = sorted(group, key=lambda document: (document.created, document.id), reverse=True)
            for document in newest[: self.retention.keep]:
                reason = f"one of the newest {self.retention.keep} of torch {line} on {platform}"
                reasons.setdefault(document.id, reason)
        for document in documents.values():
            if document.id not in reasons and (reason := self._find_age_reason(document)):
                reasons[document.id] = reason
        while added := dict(_find_ties(documents, reasons)):
            reasons |= added
        return reasons

    def _find_channel_reasons(self, family: str, documents: Collection[str]) -> dict[str, str]:
        """Return the sets that channels show, or are about to, and those that their views show."""
        paths = FamilyPaths(self.layout, family, "release")
        reasons: dict[str, str] = {}
        for name in policy.CHANNEL_NAMES:
            channel = read_channel(self.store, paths, name).channel
            pending = channel.pending
            views = read_channel_status(self.store, paths, name).document.views
            changing = [*pending.sets, *(item.set for item in pending.goal)] if pending is not None else []
            viewed = [set_id for view in views for set_id in (*view.shown, *view.was)]
            for ids, reason in (
                (channel.shown, f"{name} shows it"),
                (changing, f"{name} is being changed"),
                (viewed, f"a view of {name} shows it"),
            ):
                for set_id in ids:
                    if set_id in documents:
                        reasons.setdefault(set_id, reason)
        return reasons

    def _find_age_reason(self, document: wheel_set.SetDocument) -> str:
        age = self.now - _parse_moment(document.created, document.id)
        if age < self.retention.keep_for:
            return f"younger than {policy.format_age(self.retention.keep_for)}"
        if age < self.retention.keep_passed_for and self._has_passed(document):
            return f"it passed, and is younger than {policy.format_age(self.retention.keep_passed_for)}"
        return ""

    def _has_passed(self, document: wheel_set.SetDocument) -> bool:
        """Tell whether tests on GPUs passed, the last on each, and none failed."""
        paths = FamilyPaths(self.layout, document.family)
        listed = list(self.store.listing(paths.evidence_folder(document.id)))
        last: dict[tuple[str, str | None], Evidence] = {}
        for item in listed:  # names begin with the time
            name = item.path.rpartition("/")[2].removesuffix(".json")
            evidence = parse_evidence(self.store.read(item.path).content, where=item.path, name=name)
            if evidence.kind in {"smoke", "tests"}:
                last[evidence.kind, evidence.gfx] = evidence
        return bool(last) and all(evidence.passed for evidence in last.values())

    # ---- what goes

    def _claim(self, paths: FamilyPaths, claim: tuple[PruneClaim, str] | None, set_ids: Sequence[str]) -> str:
        """Write the claim, or take over that of a prune that was killed; return its tag."""
        when = f"{self.now:%Y-%m-%dT%H:%M:%SZ}"
        before = claim[0].sets if claim is not None else ()
        content = PruneClaim(by=self.by, when=when, sets=tuple(dict.fromkeys((*before, *set_ids)))).to_json()
        try:
            if claim is None:
                return self.store.create(paths.prune_claim, content)
            log.log_note(f"{paths.family}: carrying on what {claim[0].by} began {claim[0].when}")
            return self.store.replace(paths.prune_claim, content, claim[1])
        except (AlreadyInStoreError, ChangedInStoreError) as cause:
            raise self._make_lost_error(paths) from cause

    def _require_claim(self, paths: FamilyPaths, tag: str) -> None:
        info = self.store.head(paths.prune_claim)
        if info is None or info.tag != tag:
            raise self._make_lost_error(paths)

    def _make_lost_error(self, paths: FamilyPaths) -> errors.ReleaseError:
        return errors.ReleaseError(
            f"another process prunes {paths.family} now: this one stopped", tip="let one of them do it"
        )

    def _write_records(self, paths: FamilyPaths, plan: PrunePlan, tag: str) -> list[PrunedSet]:
        """Write the records of sets before they go, and return those of all whose removal is to be finished.

        A record of a set that stays after all is taken back: it is there, to the last byte.
        """
        staying = {kept.set_id for kept in plan.kept}
        for set_id in _list_recorded(self.store, paths):
            if set_id in staying:
                self._require_claim(paths, tag)
                self.store.remove(paths.pruned_record(set_id))
        records = []
        for document in () if plan.blocked else plan.sets:
            record = PrunedSet(
                set=document.id,
                family=document.family,
                version=document.version,
                created=document.created,
                digest=document.digest,
                files=tuple(
                    PrunedFile(name=file.name, sha256=file.sha256, size=file.size) for file in document.files
                ),
                by=self.by,
                when=f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
                why=self.retention.describe(),
            )
            self._require_claim(paths, tag)
            try:
                self.store.create(paths.pruned_record(document.id), record.to_json())
            except AlreadyInStoreError:
                record = self._complete_record(paths, record)
            records.append(record)
        for set_id in plan.leftovers:
            try:
                records.append(read_pruned_set(self.store, paths, set_id))
            except NotInStoreError:
                log.log_warning(f"{set_id} of {paths.family} went without a record; nothing of it is touched")
        return records

    def _complete_record(self, paths: FamilyPaths, record: PrunedSet) -> PrunedSet:
        """Return the record that is there, or ours in the place of half of one, whose set is there."""
        try:
            return read_pruned_set(self.store, paths, record.set)
        except errors.DataError:
            path = paths.pruned_record(record.set)
            self.store.replace(path, record.to_json(), self.store.read(path).tag)
            return record

    def _list_needed_wheels(self, family: str, plan: PrunePlan) -> set[tuple[str, str]]:
        """Return digest and name of the wheels that stay: those of sets that are there when this is over."""
        going = set() if plan.blocked else {document.id for document in plan.sets}
        documents = self._read_documents(family)
        return {
            (file.sha256, file.name)
            for set_id, document in documents.items()
            if set_id not in going
            for file in document.files
        }

    def _remove_set(
        self, paths: FamilyPaths, record: PrunedSet, needed: Collection[tuple[str, str]], tag: str
    ) -> None:
        """Remove a set: its document first, without which there is none, and its wheels last.

        The claim is looked at before each wheel: one who slept meanwhile must not take away what others,
        who finished for him, have let somebody stage again.
        """
        folder = paths.set_folder(record.set)
        self.store.remove(paths.set_document(record.set))
        rest = [item.path for item in self.store.listing(folder)]
        parallel.run_in_parallel(self.store.remove, rest, jobs=_JOBS)
        for file in record.files:
            if (file.sha256, file.name) in needed:
                continue
            self._require_claim(paths, tag)
            for path in list_wheel_paths(paths, file):
                self.store.remove(path)
        log.log_note(f"pruned {record.set} of {paths.family}")


def list_wheel_paths(paths: FamilyPaths, file: PrunedFile) -> list[str]:
    """Return a wheel and what lies beside it; the record of its name stays."""
    wheel = paths.wheel_file(file.sha256, file.name)
    return [
        wheel + METADATA_SUFFIX,
        paths.offered_statement_signature(file.sha256, file.name),
        paths.offered_statement(file.sha256, file.name),
        wheel,
    ]


def _find_ties(
    documents: Mapping[str, wheel_set.SetDocument], reasons: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield sets that kept ones need: they were made from them, or offer the statement of a shared wheel."""
    for kept in [document for set_id, document in documents.items() if set_id in reasons]:
        if kept.origin is not None and kept.origin in documents and kept.origin not in reasons:
            yield kept.origin, f"{kept.id} was made from it"
        files = {(file.sha256, file.name): file for file in kept.files}
        for document in documents.values():
            if document.id not in reasons and _offers_statement(document, files):
                yield document.id, f"the statement of a wheel that {kept.id} has, too, may be its own"


def _offers_statement(
    document: wheel_set.SetDocument, kept_files: Mapping[tuple[str, str], wheel_set.SetFile]
) -> bool:
    shared = [
        (file, kept_files[file.sha256, file.name])
        for file in document.files
        if (file.sha256, file.name) in kept_files
    ]
    return any(file.statement and file.statement != kept.statement for file, kept in shared)


def _count_freed(
    going: Sequence[wheel_set.SetDocument], kept: Sequence[wheel_set.SetDocument]
) -> dict[str, int]:
    """Return the bytes that go with each set; of a wheel of several that go, with the last of them."""
    taken = {(file.sha256, file.name) for document in kept for file in document.files}
    freed = {}
    for document in reversed(going):
        files = [file for file in document.files if (file.sha256, file.name) not in taken]
        freed[document.id] = sum(file.size for file in files)
        taken |= {(file.sha256, file.name) for file in files}
    return freed


def find_retention_line(document: wheel_set.SetDocument) -> str:
    """Return the torch line of a set as its version says it: ``2.13``; of a pre-release ``2.15a``."""
    version = Version(document.version)
    return f"{version.major}.{version.minor}{version.pre[0] if version.pre else ''}"


def read_pruned_set(store: Store, paths: FamilyPaths, set_id: str) -> PrunedSet:
    """Return the record of a pruned set. Raises NotInStoreError, and DataError for one that is damaged."""
    path = paths.pruned_record(set_id)
    content = store.read(path).content
    try:
        record = PrunedSet.model_validate_json(content)
    except ValidationError:
        record = None
    if record is None or record.set != set_id:
        raise errors.DataError(f"{store.url_of(path)} is not the record of {set_id}, which was pruned")
    return record


def list_pruned_sets(store: Store, paths: FamilyPaths) -> dict[str, PrunedSet]:
    """Return the records of all sets of a family that were pruned, by id. Raises DataError."""
    set_ids = _list_recorded(store, paths)
    records = parallel.run_in_parallel(
        lambda set_id: read_pruned_set(store, paths, set_id), set_ids, jobs=_JOBS
    )
    return dict(zip(set_ids, records, strict=True))


def _list_recorded(store: Store, paths: FamilyPaths) -> list[str]:
    """Return the ids of the sets that have a record."""
    folder = f"{paths.pruned_folder}/"
    listed = [item.path for item in store.listing(paths.pruned_folder) if item.path != paths.prune_claim]
    return [path.removeprefix(folder).removesuffix(".json") for path in listed]


def refuse_pruned(store: Store, paths: FamilyPaths, set_id: str) -> None:
    """Raise ReleaseError for a set that was pruned, and while a family is being pruned."""
    if (claim := _read_claim(store, paths)) is not None:
        raise errors.ReleaseError(
            f"{claim[0].by} prunes {paths.family} since {claim[0].when}",
            tip=f"{RUN_AGAIN_TIP}; where that was killed, `rocm-wheels store prune {store.url}"
            f" --family {paths.family}` finishes it",
        )
    try:
        record = read_pruned_set(store, paths, set_id)
    except NotInStoreError:
        return
    raise errors.ReleaseError(
        f"{set_id} of {paths.family} was pruned {record.when} by {record.by}",
        tip="its names stay with its bytes: build another set, or give its wheels a build tag"
        " (rocm-wheels wheel retag)",
    )


def _read_claim(store: Store, paths: FamilyPaths) -> tuple[PruneClaim, str] | None:
    try:
        stored = store.read(paths.prune_claim)
    except NotInStoreError:
        return None
    try:
        return PruneClaim.model_validate_json(stored.content), stored.tag
    except ValidationError:  # half of it, where a write is not one step: then nothing was removed by it
        return PruneClaim(by="somebody", when="before", sets=()), stored.tag


def _read_moment(store: Store, path: str) -> datetime | None:
    try:
        return _parse_moment(str(json.loads(store.read(path).content)["when"]), path)
    except (NotInStoreError, ValueError, LookupError, TypeError, errors.DataError):
        return None


def _parse_moment(text: str, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise errors.DataError(f"{where} does not say when it was made: {text!r}")
    return moment

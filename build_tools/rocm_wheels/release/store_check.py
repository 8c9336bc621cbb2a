"""Look at a store once more: compare all that lies in it with its sets, and with what follows from them.

Of each area one listing is made. Where that tells enough (a size, an ETag that is the MD5 of what must be
there) a file is not asked for; small files are read. Wheels are read only when their bytes are to be
hashed: a listing can tell that one is gone or cut short, not that it has other bytes.

What others change meanwhile is no fault: a claimed channel and views that are being exchanged are left out
and named, sets that are not finished are notes, and what seems to be damaged is looked at twice. Nothing
here writes; ``store_repair`` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rocm_wheels.core import parallel, process
from rocm_wheels.core.errors import DataError, Finding, ReleaseError, explain_error
from rocm_wheels.index import publish, reader
from rocm_wheels.index.folder import HTML_PAGE, JSON_PAGE, METADATA_SUFFIX
from rocm_wheels.index.pages import HTML_TYPE, JSON_TYPE
from rocm_wheels.index.snapshot import SNAPSHOT_SUFFIX, Snapshot, SnapshotMemory, verify_snapshot
from rocm_wheels.release import policy, prune, set_audit, set_list, set_log, snapshots, wheel_set
from rocm_wheels.release.channel import Channel, ChannelStatus, read_channel
from rocm_wheels.release.evidence import evidence
from rocm_wheels.release.layout import Area, FamilyPaths, StoreLayout
from rocm_wheels.release.pages import make_channel_pages, make_set_pages
from rocm_wheels.release.views import derive_support, derive_whole_support, make_view_pages, read_public
from rocm_wheels.stores.store import ListedFile, NotInStoreError, Store

STORE_CHECKS = {
    "missing-file": "a wheel, METADATA, statement, signature or lock of a set is gone",
    "cut-file": "a wheel is shorter than its set says",
    "other-bytes": "a file has other bytes than its set says (of wheels: with --hash)",
    "missing-set": "a channel, a view or the other area has a set whose document is gone",
    "damaged-document": "a document of a set, channel or evidence cannot be read, or says what it is not",
    "sets-differ": "the document of a set is another one in staging than where it was released",
    "missing-name": "nothing says any more which bytes a file name belongs to",
    "wrong-name": "a file name is said to belong to other bytes than a set has",
    "missing-page": "a page of an index is gone",
    "broken-page": "a page of an index cannot be read",
    "page-link": "a page names a file that is not there",
    "page-digest": "a page gives a file another digest than its set",
    "forms-differ": "HTML and JSON of a page do not say the same",
    "edited-page": "a page is not what follows from the sets",
    "broken-link": "the name of an index leads nowhere, or to other pages than its own",
    "wrong-history": "the history of a channel does not lead to what it shows",
    "stale-status": "what is written down of the sets of a channel is not about those that it shows",
    "stale-support": "support.json is not what follows from channels and views",
    "damaged-log": "the log of a set does not say any more what it said, or lacks entries",
    "unsigned": "a channel or support.json has no signed snapshot, where others have or keys were named",
    "wrong-snapshot": "a snapshot cannot be read, was changed, or nobody who is trusted has signed it",
    "expired-snapshot": "the time is over that a snapshot was signed for: `set refresh` signs the next one",
    "old-state": "a channel, or all that is signed of it, is older than what was signed: it was put back",
    "unsigned-file": "a document or page is not what the snapshot says",
    "lost-evidence-set": "there is evidence about a set that is not there",
    "unknown-file": "nothing says what a file is (a note)",
    "stray-file": "a file that a killed or running command left (a note)",
    "unfinished-set": "a set is being staged or promoted, or that was killed (a note)",
    "pending-prune": "sets are being pruned, or that was killed (a note: `store prune` finishes it)",
    "pending-change": "a channel or view is being changed, or that was killed (a note)",
    "stale-listing": "the list of staged sets is behind (a note: the next command writes it)",
}
_AREAS: tuple[Area, ...] = ("staging", "release")
_READ_JOBS = 16
_FOLLOW_TIME = timedelta(minutes=15)  # in which views and support.json follow a change of a channel
_LOOK_AGAIN_SECONDS = (1.0,)
_RESTORE_TIP = "put it back from a copy of the store"
_PAGE_NAMES = (JSON_PAGE, HTML_PAGE)

FileKind = Literal["wheel", "audit", "METADATA", "statement", "signature", "lock", "name", "page", "document"]


@dataclass(frozen=True)
class ExpectedFile:
    """A file that must be there: its digest, its size where a document says it, its content where it follows.

    ``copies`` are paths in the store where the same bytes may lie.
    """

    path: str
    kind: FileKind
    set_id: str
    sha256: str
    size: int | None = None
    content: bytes | None = None
    copies: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexPages:
    """An index whose pages must be these. ``channel`` and ``gfx`` say which one is a channel's or a view."""

    folder: str
    family: str
    pages: Mapping[str, bytes]
    set_id: str = ""
    channel: str = ""
    gfx: str = ""


@dataclass(frozen=True)
class DerivedDocument:
    """A document that follows from others: ``what`` says how it is made again, for a family ("": for all)."""

    what: Literal["status", "support"]
    family: str = ""
    channel: str = ""
    sound_sets: tuple[str, ...] = ()


Remedy = ExpectedFile | IndexPages | DerivedDocument


@dataclass(frozen=True)
class StoreFinding(Finding):
    """What is wrong; ``subject`` is a path in the store, ``remedy`` what must be there, where it is known."""

    set_id: str = ""
    sha256: str = ""
    remedy: Remedy | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What a finding is told from others by."""
        return self.check, self.subject


@dataclass
class StoreReport:
    """What was looked at, and what is wrong. ``hashed`` are bytes of wheels that were read."""

    families: tuple[str, ...] = ()
    sets: int = 0
    files: int = 0
    size: int = 0
    hashed: int = 0
    findings: list[StoreFinding] = field(default_factory=list)

    @property
    def errors(self) -> tuple[StoreFinding, ...]:
        """The findings that are damage."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


@dataclass(frozen=True)
class StoreCheck:
    """A look at a store. ``hash_wheels``: read every byte; ``areas`` and ``families`` say where (all).

    ``pauses`` are the seconds after which what seems damaged is looked at again. ``signers`` are the public
    keys, by name, of whom snapshots must be (None: of anybody), ``memory`` those that were seen before.
    """

    store: Store
    layout: StoreLayout
    now: datetime
    hash_wheels: bool = False
    jobs: int = 4
    areas: tuple[Area, ...] = _AREAS
    families: tuple[str, ...] | None = None
    pauses: Sequence[float] = _LOOK_AGAIN_SECONDS
    signers: Mapping[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    memory: SnapshotMemory | None = None
    on_hash: Callable[[int, int], None] = lambda _done, _all: None

    def run(self) -> StoreReport:
        """Return what is wrong. Raises ReleaseError where the store cannot be read."""
        look = _Look(self)
        report = look.compare()
        for pause in self.pauses:
            if not report.errors:
                break
            process.wait_or_stop(pause)
            again = {finding.key for finding in _Look(self).compare().findings}
            report.findings = [
                finding for finding in report.findings if finding.severity != "error" or finding.key in again
            ]
        if self.hash_wheels:
            damaged = {finding.subject for finding in report.errors}
            wheels = [wheel for wheel in look.list_wheels() if wheel.path not in damaged]
            report.findings += self._hash_wheels(report, wheels)
        report.findings.sort(key=_sort_key)
        return report

    def _hash_wheels(self, report: StoreReport, wheels: Sequence[ExpectedFile]) -> list[StoreFinding]:
        """Read the bytes of wheels, each once, whoever has it."""
        total = sum(wheel.size or 0 for wheel in wheels)

        def read(wheel: ExpectedFile) -> StoreFinding | None:
            try:
                digest = self.store.digest(wheel.path)
            except NotInStoreError:
                return None  # gone since it was listed: the next look tells
            report.hashed += wheel.size or 0
            self.on_hash(report.hashed, total)
            return None if digest == wheel.sha256 else _make_file_finding("other-bytes", wheel, digest)

        return [item for item in parallel.run_in_parallel(read, wheels, jobs=self.jobs) if item is not None]


def has_bytes(store: Store, expected: ExpectedFile, path: str = "") -> bool:
    """Tell whether a file of the store, by default the one at its place, has the bytes: all of it is read."""
    try:
        return store.digest(path or expected.path) == expected.sha256
    except NotInStoreError:
        return False


def _sort_key(finding: StoreFinding) -> tuple[bool, int, str]:
    return finding.severity != "error", list(STORE_CHECKS).index(finding.check), finding.subject


def _make_file_finding(check: str, expected: ExpectedFile, digest: str = "") -> StoreFinding:
    what = {
        "missing-file": "is gone",
        "cut-file": "is cut short",
        "other-bytes": "has other bytes",
        "missing-name": "is gone: the name could be given to other bytes",
        "wrong-name": "names other bytes",
    }[check]
    owner = f" of {expected.set_id}" if expected.set_id else ""
    digest_note = f", its sha256 is {digest[:12]}…" if digest else ""
    message = f"{expected.kind}{owner} {what}{digest_note}"
    return StoreFinding(
        "error",
        message,
        tip=_make_tip(expected),
        subject=expected.path,
        check=check,
        set_id=expected.set_id,
        sha256=expected.sha256,
        remedy=expected,
    )


def _make_tip(expected: ExpectedFile) -> str:
    if expected.kind == "wheel":
        return "where no good copy is left: `set stage` the build's wheels again, or --repair --from DIR"
    if expected.kind in ("statement", "signature", "lock"):
        return f"where the other area has lost it, too: {_RESTORE_TIP}, or `set stage` the wheels again"
    return ""


class _Look:
    """One look at a store: its listing, and all that it is compared with."""

    def __init__(self, check: StoreCheck) -> None:
        self.check, self.store, self.layout = check, check.store, check.layout
        self.report = StoreReport()
        self.files: dict[str, ListedFile] = {}
        for area in _AREAS:
            folder = self.layout.staging if area == "staging" else self.layout.release
            self.files |= {listed.path: listed for listed in self.store.listing(folder)}
        self.explained: set[str] = set()
        self.documents: dict[tuple[Area, str], dict[str, wheel_set.SetDocument]] = {}
        self.logs: dict[str, set_log.SetLog] = {}
        self.pruned: dict[str, dict[str, prune.PrunedSet]] = {}
        self.lost_sets: dict[tuple[Area, str], set[str]] = {}
        self.channels: dict[tuple[str, str], Channel | str] = {}
        self.snapshots: dict[str, Snapshot | None] = {}
        self._read_channels()
        self._read_pruned()
        self._read_sets()

    def compare(self) -> StoreReport:
        """Return what is wrong but for the bytes of wheels."""
        expected, indexes = list[ExpectedFile](), list[IndexPages]()
        for paths in self.list_areas():
            expected += self._expect_files(paths)
            indexes += self._expect_set_indexes(paths)
            self._compare_evidence(paths)
            self._compare_logs(paths)
        for family in self.list_families("release") if "release" in self.check.areas else ():
            indexes += self._compare_channels(FamilyPaths(self.layout, family, "release"))
        if "release" in self.check.areas:
            self._compare_whole_support()
        self.explained |= {file.path for file in expected}
        found = parallel.run_in_parallel(self._compare_file, expected, jobs=_READ_JOBS)
        self.report.findings += [finding for finding in found if finding is not None]
        for index in indexes:
            self._compare_index(index)
        self._list_unknown()
        self.report.families = tuple(sorted({paths.family for paths in self.list_areas()}))
        self.report.sets = len({key for by_id in self.documents.values() for key in by_id})
        self.report.files = len(self.files)
        self.report.size = sum(listed.size for listed in self.files.values())
        return self.report

    def list_families(self, area: Area) -> list[str]:
        """Return the families that have files in an area."""
        folder = f"{self.layout.staging if area == 'staging' else self.layout.release}/"
        below = {path[len(folder) :] for path in self.files if path.startswith(folder)}
        names = {path.partition("/")[0] for path in below if "/" in path}
        chosen = self.check.families
        return sorted(name for name in names if chosen is None or name in chosen)

    def list_areas(self) -> list[FamilyPaths]:
        """Return the places that are looked at."""
        return [
            FamilyPaths(self.layout, family, area)
            for area in self.check.areas
            for family in self.list_families(area)
        ]

    def list_wheels(self) -> list[ExpectedFile]:
        """Return the wheels that are there, as long as they must be."""
        wheels = {
            file.path: file
            for paths in self.list_areas()
            for file in self._expect_files(paths)
            if file.kind == "wheel"
        }
        return [
            wheel
            for path, wheel in wheels.items()
            if path in self.files and self.files[path].size == wheel.size
        ]

    def _add(
        self,
        check: str,
        path: str,
        message: str,
        *,
        tip: str = "",
        set_id: str = "",
        remedy: Remedy | None = None,
        note: bool = False,
    ) -> None:
        severity: Literal["info", "error"] = "info" if note else "error"
        self.report.findings.append(
            StoreFinding(severity, message, tip, path, check, set_id=set_id, remedy=remedy)
        )

    # ---- sets

    def _read_sets(self) -> None:
        """Read the documents of sets in both areas: each tells what the other must have."""
        places = [
            (area, family, set_id)
            for area in _AREAS
            for family in self.list_families(area)
            for set_id in self._list_set_folders(FamilyPaths(self.layout, family, area))
        ]
        for area, family, _ in places:
            self.documents.setdefault((area, family), {})

        def read(place: tuple[Area, str, str]) -> wheel_set.SetDocument | str | None:
            paths = FamilyPaths(self.layout, place[1], place[0])
            path = paths.set_document(place[2])
            content = self._read(path) if path in self.files else None
            if content is None:
                return None
            try:
                document = wheel_set.parse_set(content, where=path, expected=place[2])
                if self._read_log(paths, document.id).document in {"", document.digest}:
                    return document
                return "it was changed after the set was staged: its log states another one"
            except DataError as fault:
                return explain_error(fault)

        documents = parallel.run_in_parallel(read, places, jobs=_READ_JOBS)
        faults = {}
        for (area, family, set_id), document in zip(places, documents, strict=True):
            if isinstance(document, wheel_set.SetDocument):
                self.documents[area, family][set_id] = document
            else:
                faults[area, family, set_id] = document
        for (area, family, set_id), fault in faults.items():
            self._tell_lost_set(area, family, set_id, fault)
        for family in self.list_families("release"):
            for set_id in sorted(self._list_released_ids(family)):
                known = self.documents.setdefault(("release", family), {})
                if set_id not in known and ("release", family, set_id) not in faults:
                    self._tell_lost_set("release", family, set_id, None)
        for family in self.list_families("staging"):
            released = self.documents.get(("release", family), {})
            for set_id, document in self.documents["staging", family].items():
                if set_id in released and released[set_id] != document:
                    path = FamilyPaths(self.layout, family, "release").set_document(set_id)
                    self._add("sets-differ", path, f"{set_id} is not as it was staged", set_id=set_id)

    def _read_pruned(self) -> None:
        """Read the records of sets that were pruned: their names stay theirs."""
        for family in self.list_families("staging"):
            paths = FamilyPaths(self.layout, family)
            folder = f"{paths.pruned_folder}/"
            self.pruned[family] = {}
            is_running = paths.prune_claim in self.files
            for path in sorted(path for path in self.files if path.startswith(folder)):
                self.explained.add(path)
                if path == paths.prune_claim:
                    self._add("pending-prune", path, f"sets of {family} are being pruned", note=True)
                    continue
                set_id = path.removeprefix(folder).removesuffix(".json")
                try:
                    record = self.pruned[family][set_id] = prune.read_pruned_set(self.store, paths, set_id)
                except DataError as fault:
                    self._add("damaged-document", path, explain_error(fault), tip=_RESTORE_TIP)
                    continue
                for file in record.files if is_running else ():  # some are there yet
                    self.explained |= {*prune.list_wheel_paths(paths, file)}

    def _list_set_folders(self, paths: FamilyPaths) -> list[str]:
        folder = f"{paths.sets_folder}/"
        below = (path[len(folder) :] for path in self.files if path.startswith(folder))
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def _read_channels(self) -> None:
        """Read the documents of channels; of one that cannot be read, why."""
        for family in self.list_families("release"):
            paths = FamilyPaths(self.layout, family, "release")
            for name in policy.CHANNEL_NAMES:
                if paths.channel_document(name) in self.files:
                    try:
                        self.channels[family, name] = read_channel(self.store, paths, name).channel
                    except DataError as fault:
                        self.channels[family, name] = explain_error(fault)

    def _list_released_ids(self, family: str) -> set[str]:
        """Return the sets that channels of a family show or showed."""
        released: set[str] = set()
        for (owner, _), channel in self.channels.items():
            if owner == family and isinstance(channel, Channel):
                released |= {*channel.shown, *channel.demoted}
        return released

    def _tell_lost_set(self, area: Area, family: str, set_id: str, fault: str | None) -> None:
        """Say of a set without a document that it is damaged, or that it is not finished."""
        paths = FamilyPaths(self.layout, family, area)
        path, other = paths.set_document(set_id), FamilyPaths(self.layout, family, _other_area(area))
        copy = self.documents.get((other.area, family), {}).get(set_id)
        remedy = None
        if copy is not None:
            content = copy.to_json()
            digest = hashlib.sha256(content).hexdigest()
            remedy = ExpectedFile(path, "document", set_id, digest, len(content), content)
        self.lost_sets.setdefault((area, family), set()).add(set_id)
        if area not in self.check.areas:
            return
        if area == "staging" and fault is None and set_id in self.pruned.get(family, {}):
            message = f"{set_id} is being pruned, or that was killed: `store prune` finishes it"
            self._add("pending-prune", paths.set_folder(set_id), message, set_id=set_id, note=True)
            return
        tip = "" if remedy else f"{_RESTORE_TIP}, or `set stage` its wheels again"
        needed = (area == "staging" and copy is not None) or (
            area == "release" and set_id in self._list_released_ids(family)
        )
        if fault is not None:
            self._add("damaged-document", path, fault, tip=tip, set_id=set_id, remedy=remedy)
        elif needed:
            message = f"{set_id} has no document, and was {'staged' if area == 'staging' else 'released'}"
            self._add("missing-set", path, message, tip=tip, set_id=set_id, remedy=remedy)
        elif any(name.startswith(f"{paths.set_folder(set_id)}/") for name in self.files):
            word = "staged" if area == "staging" else "promoted"
            message = f"{set_id} is being {word}, or that was killed: the same command finishes it"
            self._add("unfinished-set", paths.set_folder(set_id), message, set_id=set_id, note=True)

    def _expect_files(self, paths: FamilyPaths) -> list[ExpectedFile]:
        """Return the files of the sets of a family, apart from pages."""
        documents = list(self.documents.get((paths.area, paths.family), {}).values())
        other = FamilyPaths(self.layout, paths.family, _other_area(paths.area))
        expected: dict[str, ExpectedFile] = {}
        digests_by_name: dict[str, set[str]] = {}
        for document in documents:
            self.explained |= {
                paths.set_document(document.id),
                f"{paths.set_folder(document.id)}/begun.json",
            }
            for lock in document.locks:
                path, copy = (f"{area.set_folder(document.id)}/{lock.path}" for area in (paths, other))
                expected[path] = ExpectedFile(path, "lock", document.id, lock.digest, copies=(copy,))
            for item in self._expect_audit(paths, other, document):
                expected[item.path] = item
            for file in document.files:
                digests_by_name.setdefault(file.name, set()).add(file.sha256)
                for item in self._expect_wheel(paths, other, document, file):
                    expected.setdefault(item.path, item)
        for document in documents:
            for file in document.files:
                for item in self._expect_offered(paths, documents, file):
                    expected.setdefault(item.path, item)
        for record in self.pruned.get(paths.family, {}).values() if paths.area == "staging" else ():
            for pruned_file in record.files:
                digests_by_name.setdefault(pruned_file.name, set()).add(pruned_file.sha256)
                claim = f"{pruned_file.sha256}\n".encode()
                item = _expect_content(paths.name_claim(pruned_file.name), "name", record.set, claim)
                expected.setdefault(item.path, item)
        self._require_one_owner(paths, digests_by_name)
        return list(expected.values())

    def _expect_wheel(
        self, paths: FamilyPaths, other: FamilyPaths, document: wheel_set.SetDocument, file: wheel_set.SetFile
    ) -> Iterator[ExpectedFile]:
        path, copy = (area.wheel_file(file.sha256, file.name) for area in (paths, other))
        yield ExpectedFile(path, "wheel", document.id, file.sha256, file.size, copies=(copy,))
        metadata, digest = path + METADATA_SUFFIX, file.metadata_sha256
        yield ExpectedFile(metadata, "METADATA", document.id, digest, copies=(copy + METADATA_SUFFIX,))
        yield _expect_content(paths.name_claim(file.name), "name", document.id, f"{file.sha256}\n".encode())
        if not file.statement:
            return
        path, copy = (area.set_statement(document.id, file.name) for area in (paths, other))
        yield ExpectedFile(path, "statement", document.id, file.statement, copies=(copy,))
        path, copy = (area.set_statement_signature(document.id, file.name) for area in (paths, other))
        self.explained.add(path)
        is_lost = path not in self.files and document.id in self._documents_of(other)
        content = self._read(copy) if is_lost and copy in self.files else None
        if content is not None:
            yield _expect_content(path, "signature", document.id, content)

    def _expect_audit(
        self, paths: FamilyPaths, other: FamilyPaths, document: wheel_set.SetDocument
    ) -> Iterator[ExpectedFile]:
        """Yield the audit of a set that is gone and that the other area has: no document has its digest."""
        for name in (set_audit.AUDIT_FILE, set_audit.AUDIT_PAGE):
            path, copy = (f"{area.set_folder(document.id)}/{name}" for area in (paths, other))
            self.explained.add(path)
            if path in self.files or copy not in self.files or document.id not in self._documents_of(other):
                continue
            if (content := self._read(copy)) is not None:
                yield _expect_content(path, "audit", document.id, content)

    def _documents_of(self, paths: FamilyPaths) -> Mapping[str, wheel_set.SetDocument]:
        return self.documents.get((paths.area, paths.family), {})

    def _expect_offered(
        self, paths: FamilyPaths, documents: Sequence[wheel_set.SetDocument], file: wheel_set.SetFile
    ) -> Iterator[ExpectedFile]:
        """Yield the statement beside a wheel, and its signature: those of one of the sets that have it.

        Of a wheel that a set has without a statement there may be none: which set came first is not known.
        """
        owners = [
            (document.id, item.statement)
            for document in documents
            for item in document.files
            if item.sha256 == file.sha256 and item.name == file.name
        ]
        path = paths.offered_statement(file.sha256, file.name)
        signature_path = paths.offered_statement_signature(file.sha256, file.name)
        stated = [(set_id, digest) for set_id, digest in owners if digest]
        if not stated:
            return
        self.explained |= {path, signature_path}
        content = self._read(path) if path in self.files else None
        digest = hashlib.sha256(content).hexdigest() if content is not None else ""
        matching = [set_id for set_id, statement in stated if statement == digest]
        set_id = matching[0] if matching else stated[0][0]
        if content is not None or len(stated) == len(owners):
            copies = tuple(paths.set_statement(owner, file.name) for owner, _ in stated)
            yield ExpectedFile(path, "statement", set_id, dict(stated)[set_id], copies=copies)
        signed = [
            text
            for owner in matching or [set_id]
            if (place := paths.set_statement_signature(owner, file.name)) in self.files
            and (text := self._read(place)) is not None
        ]
        if signed and (len(signed) == len(matching or [set_id]) or signature_path in self.files):
            present = self._read(signature_path) if signature_path in self.files else None
            yield _expect_content(
                signature_path, "signature", set_id, present if present in signed else signed[0]
            )

    def _require_one_owner(self, paths: FamilyPaths, digests_by_name: Mapping[str, set[str]]) -> None:
        for name in sorted(name for name, digests in digests_by_name.items() if len(digests) > 1):
            digests = ", ".join(digest[:12] for digest in sorted(digests_by_name[name]))
            message = f"{name} has several bytes in the sets of {paths.family}: {digests}"
            self._add("wrong-name", paths.name_claim(name), message, tip="demote one of these sets")

    def _compare_file(self, expected: ExpectedFile) -> StoreFinding | None:
        listed, is_name = self.files.get(expected.path), expected.kind == "name"
        if listed is None:
            return _make_file_finding("missing-name" if is_name else "missing-file", expected)
        if expected.content is not None:
            if self._has_content(listed, expected.content):
                return None
            return _make_file_finding("wrong-name" if is_name else "other-bytes", expected)
        if expected.kind == "wheel":
            if listed.size == expected.size:
                return None
            return _make_file_finding(
                "cut-file" if listed.size < (expected.size or 0) else "other-bytes", expected
            )
        content = self._read(expected.path)
        if content is None:
            return _make_file_finding("missing-file", expected)
        digest = hashlib.sha256(content).hexdigest()
        return None if digest == expected.sha256 else _make_file_finding("other-bytes", expected, digest)

    def _has_content(self, listed: ListedFile, content: bytes) -> bool:
        """Tell whether a listed file has these bytes: an ETag that is their MD5 says so without a request."""
        if listed.size != len(content):
            return False
        if listed.tag.strip('"') == hashlib.md5(content, usedforsecurity=False).hexdigest():
            return True
        return self._read(listed.path) == content

    def _read(self, path: str) -> bytes | None:
        """Return a small file, b"" of one that has other bytes than the store keeps a sum of."""
        try:
            return self.store.read(path).content
        except NotInStoreError:
            return None
        except ReleaseError:
            self.store.digest(path)  # the store cannot be reached: raises; else the file alone is damaged
            return b""

    # ---- indexes

    def _expect_set_indexes(self, paths: FamilyPaths) -> list[IndexPages]:
        indexes = []
        for set_id, document in self.documents.get((paths.area, paths.family), {}).items():
            folder = paths.set_index(set_id)
            files = [(file, document.created) for file in document.files]
            pages = make_set_pages(folder, paths, files)
            indexes.append(IndexPages(folder, paths.family, pages, set_id))
        return indexes

    def _compare_index(self, index: IndexPages) -> None:
        """Compare the pages of an index with what follows from its sets."""
        self.explained |= set(index.pages)
        different = [
            path
            for path, content in index.pages.items()
            if path not in self.files or not self._has_content(self.files[path], content)
        ]
        self._tell_unsigned_pages(index, [path for path in index.pages if path not in different])
        if not different:
            return
        if fault := self._find_link_fault(index):
            name = index.folder.rpartition("/")[2]
            self._add("broken-link", index.folder, f"{name} {fault}", remedy=index, set_id=index.set_id)
            return
        contents = {path: self._read(path) if path in self.files else None for path in different}
        for path in different:
            check, message = self._classify_page(index, path, contents)
            self._add(check, path, message, set_id=index.set_id, remedy=index)

    def _tell_unsigned_pages(self, index: IndexPages, paths: Sequence[str]) -> None:
        """Tell of pages that follow from sets, and are not those of the snapshot of their channel."""
        family_folder = FamilyPaths(self.layout, index.family, "release").family_folder
        remedy = DerivedDocument("status", index.family, index.channel)
        for path in paths if index.channel and f"{family_folder}/{index.channel}" in self.snapshots else ():
            if self._tell_unsigned(path, family_folder, index.channel, remedy):
                return

    def _find_link_fault(self, index: IndexPages) -> str:
        """Return what is wrong with the link that shows an index, "" where it is none or the right one."""
        folder = self.store.folder
        if folder is None or not index.channel:
            return ""
        leads = publish.read_link(self.store, index.folder)
        if leads is None:
            return "" if (folder / index.folder).exists() or not self._has_builds(index) else "is gone"
        build = publish.find_build(_make_exchange(self.layout, index))
        if leads == build and any(path.startswith(f"{build}/") for path in self.files):
            return ""
        return f"leads to {leads}" if (folder / leads).exists() else f"leads to {leads}, which is not there"

    def _has_builds(self, index: IndexPages) -> bool:
        builds = f"{_make_exchange(self.layout, index).builds}/"
        return any(path.startswith(builds) for path in self.files)

    def _classify_page(
        self, index: IndexPages, path: str, contents: Mapping[str, bytes | None]
    ) -> tuple[str, str]:
        """Return the check that names what is wrong with a page, and what that is."""
        folder, _, name = path.rpartition("/")
        content = contents[path]
        if content is None:
            return "missing-page", "is gone"
        if name not in _PAGE_NAMES:
            return "edited-page", "is not what follows from the variants of the set"
        try:
            links, expected = (_read_links(text, path) for text in (content, index.pages[path]))
        except DataError as fault:
            return "broken-page", explain_error(fault)
        if folder != index.folder:
            for url, link in links.items():
                place = url.removeprefix("/")
                if url not in expected and place not in self.files:
                    return "page-link", f"names {link.name}, which is not there"
            for url, link in links.items():
                if url in expected and link.sha256 != expected[url].sha256:
                    return "page-digest", f"gives {link.name} another digest than its set"
        sibling = f"{folder}/{HTML_PAGE if name == JSON_PAGE else JSON_PAGE}"
        other = contents.get(sibling, index.pages.get(sibling)) or b""
        try:
            if _list_facts(links) != _list_facts(_read_links(other, sibling)):
                return "forms-differ", f"does not say what {sibling.rpartition('/')[2]} beside it says"
        except DataError:
            return "edited-page", "is not what follows from the set, and the page beside it is broken"
        if _list_facts(links) == _list_facts(expected):
            reason = "edited by hand, or written by another version of rocm-wheels"
            return "edited-page", f"names the right files in other bytes: {reason}"
        return "edited-page", "does not name the files of its sets"

    # ---- channels

    def _compare_channels(self, paths: FamilyPaths) -> list[IndexPages]:
        indexes, is_quiet = list[IndexPages](), True
        for name in policy.CHANNEL_NAMES:
            document = paths.channel_document(name)
            self.explained |= {document, paths.channel_status(name)}
            channel = self.channels.get((paths.family, name))
            snapshot = self._read_snapshot(
                snapshots.keep_channel_snapshot(self.store, paths, name, None), document
            )
            if snapshot is not None and self._tell_unsigned_channel(paths, snapshot, channel):
                self._explain_folder(paths.channel_pages(name))
                self._explain_views(paths, name)
                is_quiet = False
                continue
            if channel is None:
                present = (paths.channel_status(name), f"{paths.channel_pages(name)}/{HTML_PAGE}")
                if any(path in self.files for path in present):
                    message = f"{name} of {paths.family} has pages, and nothing says what it shows"
                    self._add("damaged-document", document, message, tip=_RESTORE_TIP)
                continue
            if isinstance(channel, str):
                self._add("damaged-document", document, channel, tip=_RESTORE_TIP)
                self._explain_folder(paths.channel_pages(name))
                self._explain_views(paths, name)
                is_quiet = False
                continue
            if fault := channel.find_history_fault():
                message = f"the history of {name} of {paths.family} does not add up: {fault}"
                tip = "put it back from a copy of the store: it says what people get"
                self._add("wrong-history", document, message, tip=tip)
            shown = [self.documents.get(("release", paths.family), {}).get(item) for item in channel.shown]
            documents = [item for item in shown if item is not None]
            if channel.pending is not None:
                self._tell_pending(document, f"{name} of {paths.family} is being changed: {channel.pending}")
                self._explain_folder(paths.channel_pages(name))
                self._explain_views(paths, name)
                is_quiet = False
                continue
            if len(documents) < len(shown):  # told where sets are read
                self._explain_folder(paths.channel_pages(name))
            else:
                pages = make_channel_pages(paths, name, channel.sets, documents)
                folder = paths.channel_pages(name)
                indexes.append(IndexPages(folder, paths.family, pages, channel=name))
            if snapshot is not None and not snapshot.settled:
                message = f"{name} of {paths.family} was changed, and is not signed in the end yet"
                self._tell_pending(paths.channel_snapshot(name), message)
            status = self._compare_status(paths, channel)
            if status is None:
                self._explain_views(paths, name)
                is_quiet = False
            else:
                view_indexes, settled = self._expect_views(paths, status)
                indexes += view_indexes
                is_quiet = is_quiet and settled
        self.explained.add(paths.support_document)
        self._read_snapshot(snapshots.keep_support_snapshot(self.store, paths, None), paths.support_document)
        if is_quiet and self._read_public_safely():
            content = derive_support(self.store, paths)
            self._compare_support(paths.support_document, content, paths.family)
        return indexes

    def _read_snapshot(self, keeper: snapshots.SnapshotKeeper, about: str) -> Snapshot | None:
        """Return a snapshot that is signed; tell of others, and of none for what it must be ``about``."""
        path = keeper.path
        self.explained.add(path)
        content = self._read(path) if path in self.files else None
        if content is None:
            others = any(item.endswith(SNAPSHOT_SUFFIX) for item in self.files)
            if about in self.files and (others or self.check.signers is not None):
                message = f"nobody has signed {keeper.title}"
                self._add("unsigned", about, message, tip=snapshots.ANEW_TIP)
            return None
        try:
            verified = verify_snapshot(content, "it", self.check.signers, self.check.env)
        except DataError as fault:
            self._add("wrong-snapshot", path, fault.message, tip=fault.tip or snapshots.RESTORE_TIP)
            return None
        snapshot = verified.snapshot
        if (snapshot.family, snapshot.name) != (keeper.family, keeper.name):
            message = f"is of {snapshot.name} of {snapshot.family}"
            self._add("wrong-snapshot", path, message, tip=snapshots.RESTORE_TIP)
            return None
        memory, where = self.check.memory, self.store.url_of(path)
        if memory is not None and (fault_text := memory.find_fault(where, verified)):
            self._add("old-state", path, fault_text, tip=snapshots.OLD_STATE_TIP)
        elif (
            memory is not None and self.check.signers is not None
        ):  # else a stranger's would hold up the next
            memory.remember(where, verified)
        if fault_text := snapshot.find_time_fault(self.check.now):
            self._add("expired-snapshot", path, fault_text, tip=snapshots.ANEW_TIP)
        self.snapshots[keeper.folder + "/" + keeper.name] = snapshot
        return snapshot

    def _tell_unsigned_channel(
        self, paths: FamilyPaths, snapshot: Snapshot, channel: Channel | str | None
    ) -> bool:
        """Tell of a channel whose document is not one that was signed; return whether it is none."""
        path = paths.channel_document(snapshot.name)
        if isinstance(channel, str):
            return False  # told as damaged
        content = self._read(path) if path in self.files else None
        shown = channel if channel is not None else Channel(family=paths.family, channel=snapshot.name)
        name = path.removeprefix(f"{paths.family_folder}/")
        if fault := snapshots.find_channel_fault(snapshot, name, shown, content):
            check = "old-state" if shown.revision < snapshot.revision else "unsigned-file"
            self._add(check, path, f"the document of {snapshot.name} {fault}", tip=snapshots.RESTORE_TIP)
        return bool(fault)

    def _tell_unsigned(self, path: str, family_folder: str, name: str, remedy: Remedy) -> bool:
        """Tell of a document that is not what the snapshot called ``name`` says; return whether it is not."""
        snapshot = self.snapshots.get(f"{family_folder}/{name}")
        if snapshot is None:
            return False
        content = self._read(path) if path in self.files else None
        if snapshot.states_content(path.removeprefix(f"{family_folder}/"), content):
            return False
        tip = "`rocm-wheels set refresh STORE --sign-with KEY` or --repair --sign-with KEY makes it anew"
        self._add("unsigned-file", path, "is not what was signed", tip=tip, remedy=remedy)
        return True

    def _tell_pending(self, path: str, message: str) -> None:
        tip = "while that run works nothing is to be done; of one that was killed, run the same command again"
        self._add("pending-change", path, message, tip=tip, note=True)

    def _explain_folder(self, folder: str) -> None:
        self.explained |= {path for path in self.files if path.startswith(f"{folder}/")}

    def _explain_views(self, paths: FamilyPaths, channel: str) -> None:
        views = f"{paths.family_folder}/{self.layout.views}/"
        self.explained |= {
            path
            for path in self.files
            if path.startswith(views) and path[len(views) :].partition("/")[2].startswith(f"{channel}/")
        }

    def _compare_status(self, paths: FamilyPaths, channel: Channel) -> ChannelStatus | None:
        """Return what is written down of a channel, where it is about the sets that the channel shows."""
        path, name = paths.channel_status(channel.channel), f"{channel.channel} of {paths.family}"
        status, message, sound = None, f"what is known of the sets of {name} is gone", tuple[str, ...]()
        if path in self.files:
            try:
                status = ChannelStatus.model_validate_json(self._read(path) or b"")
                message = ""
            except ValidationError:
                message = f"what is known of the sets of {name} cannot be read"
        if status is not None:
            sound = self._list_sound_statuses(paths, status)
            remedy = DerivedDocument("status", paths.family, channel.channel)
            if self._tell_unsigned(path, paths.family_folder, channel.channel, remedy):
                return None
            if [item.set for item in status.sets] != list(channel.shown):
                message = f"what is known of the sets of {name} is not about those that it shows"
            elif len(sound) < len(status.sets):
                message = f"what is known of the sets of {name} names other wheels than they have"
        if not message:
            return status
        since = max((event.when for event in channel.history), default="")
        if (status is None or len(sound) == len(status.sets)) and self._has_just_changed(since):
            self._tell_pending(path, f"{name} was changed {since}: its views and support.json follow")
        else:
            remedy = DerivedDocument("status", paths.family, channel.channel, sound)
            tip = "`rocm-wheels set refresh STORE` makes it again by the policy that you promote by"
            self._add("stale-status", path, message, tip=tip, remedy=remedy)
        return None

    def _list_sound_statuses(self, paths: FamilyPaths, status: ChannelStatus) -> tuple[str, ...]:
        documents = self.documents.get(("release", paths.family), {})
        sound = []
        for item in status.sets:
            document = documents.get(item.set)
            files = {(wheel.file, wheel.sha256) for wheel in item.wheels}
            if document is None or files == {
                (file.name, file.sha256) for file in document.files if file.project == item.project
            }:
                sound.append(item.set)
        return tuple(sound)

    def _has_just_changed(self, since: str) -> bool:
        try:
            moment = datetime.fromisoformat(since.replace("Z", "+00:00"))
        except ValueError:
            return False
        return moment <= self.check.now < moment + _FOLLOW_TIME

    def _expect_views(self, paths: FamilyPaths, status: ChannelStatus) -> tuple[list[IndexPages], bool]:
        """Return the views of a channel that are settled, and whether all are."""
        indexes, settled = list[IndexPages](), True
        documents = self.documents.get(("release", paths.family), {})
        shown = {item.set for item in status.sets}
        for view in status.views:
            folder = paths.view_pages(view.gfx, status.channel)
            if not view.settled:
                settled = False
                self._tell_pending(folder, f"the view of {view.gfx} in {status.channel} is being exchanged")
                self._explain_folder(folder)
                continue
            if lost := [item for item in view.shown if item not in shown]:
                path = paths.channel_status(status.channel)
                message = f"the view of {view.gfx} shows {', '.join(lost)}, which {status.channel} does not"
                sound = tuple(item.set for item in status.sets)
                remedy = DerivedDocument("status", paths.family, status.channel, sound)
                self._add("stale-status", path, message, remedy=remedy)
                self._explain_folder(folder)
                continue
            view_documents = [documents[item] for item in view.shown if item in documents]
            if len(view_documents) < len(view.shown):
                self._explain_folder(folder)
            elif view_documents:
                pages = make_view_pages(paths, folder, view_documents)
                indexes.append(IndexPages(folder, paths.family, pages, "", status.channel, view.gfx))
        return indexes, settled

    def _read_public_safely(self) -> bool:
        path = f"{self.layout.release}/{self.layout.public}"
        try:
            read_public(self.store, self.layout)
        except DataError as fault:
            if not any(finding.subject == path for finding in self.report.findings):
                self._add("damaged-document", path, explain_error(fault))
            return False
        return True

    def _compare_support(self, path: str, content: bytes | None, family: str) -> None:
        listed = self.files.get(path)
        folder, remedy = path.rpartition("/")[0], DerivedDocument("support", family)
        if self._tell_unsigned(path, folder, "support", remedy):
            return
        if content is None or (listed is not None and self._has_content(listed, content)):
            return
        word = "is gone" if listed is None else "is not what follows from channels and views"
        tip = "`rocm-wheels set refresh STORE` or --repair writes it"
        self._add("stale-support", path, word, tip=tip, remedy=remedy)

    def _compare_whole_support(self) -> None:
        path = f"{self.layout.release}/{self.layout.support}"
        public_path = f"{self.layout.release}/{self.layout.public}"
        self.explained |= {path, public_path}
        if self.check.families is None:
            snapshot = self._read_snapshot(snapshots.keep_whole_snapshot(self.store, self.layout, None), path)
            public = self._read(public_path) if snapshot is not None and public_path in self.files else None
            if snapshot is not None and not snapshot.states_content(self.layout.public, public):
                self._add("unsigned-file", public_path, "is not what was signed", tip=snapshots.RESTORE_TIP)
                return
        families = [FamilyPaths(self.layout, family, "release") for family in self.list_families("release")]
        if self.check.families is None and any(item.support_document in self.files for item in families):
            kinds = {"stale-support", "stale-status", "unsigned-file"}
            stale = {finding.check for finding in self.report.findings} & kinds
            if not stale and self._read_public_safely():
                try:
                    whole = derive_whole_support(self.store, self.layout)
                except ReleaseError:
                    return  # that of a family is damaged, which is told
                self._compare_support(path, whole, "")

    # ---- what else lies there

    def _compare_evidence(self, paths: FamilyPaths) -> None:
        """See that evidence can be read, and is about a set that is there."""
        folder = f"{paths.family_folder}/{self.layout.evidence}/"
        documents = self.documents.get((paths.area, paths.family), {})
        listed = [path for path in self.files if path.startswith(folder)]
        self.explained |= set(listed)
        other = FamilyPaths(self.layout, paths.family, _other_area(paths.area))
        for set_id in sorted({path[len(folder) :].partition("/")[0] for path in listed}):
            if set_id in self.pruned.get(paths.family, {}):
                continue
            if set_id not in documents and set_id not in self.lost_sets.get((paths.area, paths.family), ()):
                if paths.area == "release" and set_id in self._documents_of(other):
                    continue  # it is being promoted: evidence goes before the document
                message = f"there is evidence about {set_id}, and no such set"
                tip = f"{_RESTORE_TIP}, or `set stage` its wheels again"
                self._add("lost-evidence-set", f"{folder}{set_id}", message, tip=tip, set_id=set_id)

        def read(path: str) -> str:
            name, content = path.rpartition("/")[2].removesuffix(".json"), self._read(path)
            try:
                if content is not None:
                    evidence.parse_evidence(content, where=path, name=name)
            except DataError as fault:
                return explain_error(fault)
            return ""

        for path, fault in zip(listed, parallel.run_in_parallel(read, listed, jobs=_READ_JOBS), strict=True):
            if fault:
                copy = other.family_folder + path[len(paths.family_folder) :]
                self._add("damaged-document", path, fault, remedy=self._copy_evidence(path, copy))

    def _compare_logs(self, paths: FamilyPaths) -> None:
        """See that the log of each set is whole, and that every result is there that it names."""
        folder = f"{paths.family_folder}/{self.layout.log}/"
        other = FamilyPaths(self.layout, paths.family, _other_area(paths.area))
        listed = {path for path in self.files if path.startswith(folder)}
        self.explained |= listed
        for set_id in sorted({path.removeprefix(folder).partition("/")[0] for path in listed}):
            log = self._read_log(paths, set_id)
            for fault in log.faults:
                self._add("damaged-log", f"{folder}{set_id}", fault, tip=set_log.LOST_LOG_TIP, set_id=set_id)
            for result in log.results:
                path, copy = (f"{area.evidence_folder(set_id)}/{result}.json" for area in (paths, other))
                if path not in self.files:
                    message = f"evidence of {set_id} is gone, and its log names it"
                    remedy = self._copy_evidence(path, copy)
                    self._add(
                        "missing-file", path, message, tip=set_log.LOST_LOG_TIP, set_id=set_id, remedy=remedy
                    )

    def _read_log(self, paths: FamilyPaths, set_id: str) -> set_log.SetLog:
        folder = f"{paths.log_folder(set_id)}/"
        if folder not in self.logs:
            names = sorted(path.removeprefix(folder) for path in self.files if path.startswith(folder))
            self.logs[folder] = set_log.read_set_log(self.store, paths, set_id, names)
        return self.logs[folder]

    def _copy_evidence(self, path: str, copy: str) -> ExpectedFile | None:
        """Return the good copy of an evidence in the other area, if there is one."""
        content = self._read(copy) if copy in self.files else None
        if content is None:
            return None
        try:
            evidence.parse_evidence(content, where=copy, name=path.rpartition("/")[2].removesuffix(".json"))
        except DataError:
            return None
        return _expect_content(path, "document", path.rpartition("/")[0].rpartition("/")[2], content)

    def _list_unknown(self) -> None:
        """Note what nothing explains: it is never touched."""
        for paths in self.list_areas():
            if paths.area == "staging":
                self._compare_listing(paths)
            for set_id in self.lost_sets.get((paths.area, paths.family), ()):
                self._explain_folder(paths.set_folder(set_id))
        looked_at = tuple(f"{paths.family_folder}/" for paths in self.list_areas())
        hidden_builds: dict[str, set[str]] = {}
        for path in sorted(self.files):
            if path in self.explained or not path.startswith(looked_at):
                continue
            builds, build = self._find_build_of(path)
            if not build:
                self._add("unknown-file", path, "nothing says what it is", note=True)
            elif not self._is_shown(builds, build):
                hidden_builds.setdefault(builds, set()).add(build)
        for builds, names in hidden_builds.items():
            for name in sorted(names) if len(names) > 1 else ():  # the one before is kept for who reads it
                self._note_stray(f"{builds}/{name}", "pages of a change that was killed")
        for listed in self.store.listing("probe"):
            self._note_stray(listed.path, "left by a try of conditional writes")
        if self.store.folder is not None:
            self._list_hidden(self.store.folder)

    def _find_build_of(self, path: str) -> tuple[str, str]:
        """Return the folder of builds that a page lies in, and the name of its build; "" for others."""
        start, _, rest = path.partition(f"/{self.layout.channels}/")
        name, _, inner = rest.partition(".pages/")
        if not inner or "/" in name:
            return "", ""
        return f"{start}/{self.layout.channels}/{name}.pages", inner.partition("/")[0]

    def _is_shown(self, builds: str, build: str) -> bool:
        """Tell whether a link shows a build: its files are those of the index."""
        paths = next(item for item in self.list_areas() if builds.startswith(f"{item.family_folder}/"))
        channel, _, gfx = builds.rpartition("/")[2].removesuffix(".pages").partition(".")
        folder = paths.view_pages(gfx, channel) if gfx else paths.channel_pages(channel)
        return publish.read_link(self.store, folder) == f"{builds}/{build}"

    def _note_stray(self, path: str, message: str) -> None:
        if not any(finding.subject == path for finding in self.report.findings):
            self._add("stray-file", path, message, note=True)

    def _list_hidden(self, folder: Path) -> None:
        state = folder / ".store"
        for pattern in ("parts/*", "channels/link-*"):
            for path in sorted(state.glob(pattern)):
                place = path.relative_to(folder).as_posix()
                self._note_stray(place, "being written, or left by a command that was killed")

    def _compare_listing(self, paths: FamilyPaths) -> None:
        path, documents = paths.set_listing, self._documents_of(paths)
        self.explained.add(path)
        if not documents:
            return
        remedy = _expect_content(path, "document", "", set_list.make_listing(documents.values()))
        if path not in self.files or not self._has_content(self.files[path], remedy.content or b""):
            message = f"the list of sets of {paths.family} is behind"
            self._add("stale-listing", path, message, remedy=remedy, note=True)


def _other_area(area: Area) -> Area:
    return "release" if area == "staging" else "staging"


def _expect_content(path: str, kind: FileKind, set_id: str, content: bytes) -> ExpectedFile:
    digest = hashlib.sha256(content).hexdigest()
    return ExpectedFile(path, kind, set_id, digest, len(content), content)


def _make_exchange(layout: StoreLayout, index: IndexPages) -> publish.PageExchange:
    paths = FamilyPaths(layout, index.family, "release")
    name = f"{index.channel}.{index.gfx}" if index.gfx else index.channel
    return publish.PageExchange(index.folder, paths.build_folder(name), index.pages, (), adds=True)


def _read_links(content: bytes, path: str) -> dict[str, reader.IndexLink]:
    """Return the links of a page by their paths in the store, with a slash before."""
    kind = JSON_TYPE if path.endswith(JSON_PAGE) else HTML_TYPE
    page = reader.parse_page(content, kind, f"file:///{path}")
    return {str(reader.path_of_url(link.url) or link.url): link for link in page.links}


def _list_facts(links: Mapping[str, reader.IndexLink]) -> list[tuple[object, ...]]:
    return sorted(
        (url, link.name, link.sha256, link.metadata, link.requires_python, link.yanked)
        for url, link in links.items()
    )

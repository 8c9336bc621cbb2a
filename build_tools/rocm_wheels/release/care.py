"""Take care of a store: compare all that lies in it with its documents, and remove what nobody needs.

``check_store`` answers three questions: is every file that a document names there, and right? Is every page
what follows from the documents? And what lies there that nothing knows? ``Pruner`` removes sets by a
policy, their documents first, and then files that no set names, as ``git gc`` does: those that are older than
a set takes to be staged. ``stage`` looks again, after its document is written, at what it found present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from packaging.version import Version

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import channel as channels
from rocm_wheels.release import pages, policy, refresh, set_audit, support, wheel_set
from rocm_wheels.release.evidence.evidence import Evidence, parse_evidence
from rocm_wheels.release.store_paths import SET_FILE, SUPPORT_FILE, FamilyPaths
from rocm_wheels.stores.store import ListedFile, NotInStoreError, Store, create_or_read, put_file
from rocm_wheels.wheels import statement

STORE_CHECKS = {
    "missing-file": "a file that a document names is gone",
    "other-bytes": "a file has another size than its document says or, with --hash, other bytes",
    "damaged-document": "a document cannot be read, or says what it is not",
    "wrong-page": "a page or support.json is not what follows from the documents (--repair writes it)",
    "unknown-file": "nothing says what a file is (a note)",
}
_ERRORS = frozenset(STORE_CHECKS) - {"unknown-file"}


@dataclass(frozen=True)
class StoreFinding:
    """What is wrong with a path of a store; ``content`` is what must be there, where that follows."""

    check: str
    path: str
    message: str
    content: bytes | None = field(default=None, repr=False)

    @property
    def is_error(self) -> bool:
        """Whether it is damage."""
        return self.check in _ERRORS


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
    def errors(self) -> list[StoreFinding]:
        """The findings that are damage."""
        return [finding for finding in self.findings if finding.is_error]


@dataclass(frozen=True)
class _NamedFile:
    path: str
    sha256: str
    size: int | None = None
    is_wheel: bool = False


def check_store(
    store: Store,
    families: Collection[str] | None = None,
    *,
    hash_wheels: bool = False,
    jobs: int = 4,
    on_hash: Callable[[int, int], None] = lambda _done, _all: None,
) -> StoreReport:
    """Compare a store, or some families of it, with its documents.

    Without ``hash_wheels`` no wheel is read: one that is gone or cut short is found, not one with other bytes
    of the same size. ``on_hash`` is told how many bytes of how many were read. What others change meanwhile
    may show up as damage: a channel that is being changed is left out.
    """
    names = [name for name in wheel_set.list_families(store) if families is None or name in families]
    report = StoreReport(tuple(names))
    for family in names:
        _check_family(store, FamilyPaths(family), report, hash_wheels=hash_wheels, jobs=jobs, on_hash=on_hash)
    if families is None and names:
        public, tag = support.read_document(store, SUPPORT_FILE)
        derived = refresh.derive_whole_support(store, public)
        content = derived.to_json() if tag is not None or derived.releases else b""
        if (store.read(SUPPORT_FILE).content if tag is not None else b"") != content:
            message = "it is not what those of the families say" if tag is not None else "it is gone"
            report.findings.append(StoreFinding("wrong-page", SUPPORT_FILE, message, content))
    report.findings.sort(key=lambda finding: (not finding.is_error, finding.path))
    return report


def _check_family(
    store: Store,
    paths: FamilyPaths,
    report: StoreReport,
    *,
    hash_wheels: bool,
    jobs: int,
    on_hash: Callable[[int, int], None],
) -> None:
    listed = {item.path: item for item in store.listing(paths.family)}
    report.files += len(listed)
    report.size += sum(item.size for item in listed.values())
    known = {paths.support_document, *(paths.channel_manifest(name) for name in policy.CHANNEL_NAMES)}
    findings, documents = report.findings, dict[str, wheel_set.SetDocument]()

    def note(check: str, path: str, message: str, content: bytes | None = None) -> None:
        findings.append(StoreFinding(check, path, message, content))

    sets = wheel_set.read_family_sets(store, paths.family)
    documents = {document.id: document for document in sets.documents}
    report.sets += len(documents)
    free: list[str] = []  # folders of which nothing follows: a document is damaged, or is being changed
    for path in listed:
        if path.startswith(f"{paths.sets_folder}/") and path.endswith(f"/{SET_FILE}"):
            known.add(path)
            set_id = path.split("/")[2]
            if set_id not in documents:
                faults = [damage for damage in sets.damaged if f"/{set_id}/" in damage]
                note("damaged-document", path, faults[0] if faults else "it was written meanwhile")
                free += [paths.set_folder(set_id), paths.pool]

    # files that documents name
    named = {
        item.path: item for document in documents.values() for item in _list_named_files(paths, document)
    }
    known |= _add_signatures(named)
    for path, item in named.items():
        if path not in listed:
            note("missing-file", path, "it is gone: stage the same wheels again")
        elif item.size is not None and listed[path].size != item.size:
            note("other-bytes", path, f"it has {listed[path].size} bytes and not {item.size}")
    wrong = {finding.path for finding in findings}
    to_read = [
        item for path, item in named.items() if path not in wrong and (hash_wheels or not item.is_wheel)
    ]
    total = sum(item.size or 0 for item in to_read if item.is_wheel)

    def read(item: _NamedFile) -> None:
        try:
            digest = store.digest(item.path)
        except NotInStoreError:
            note("missing-file", item.path, "it is gone")
            return
        if item.is_wheel:
            report.hashed += item.size or 0
            on_hash(report.hashed, total)
        if digest != item.sha256:
            note("other-bytes", item.path, f"its sha256 is {digest}, and not {item.sha256}")

    parallel.run_in_parallel(read, to_read, jobs=jobs)

    # evidence, which outlives its set
    stated: dict[str, set[str]] = {}  # the digests of documents of sets, by those who looked at them
    for path in [path for path in listed if path.startswith(f"{paths.evidence_folder()}/")]:
        known.add(path)
        name = path.rpartition("/")[2].removesuffix(".json")
        try:
            evidence = parse_evidence(store.read(path).content, where=store.url_of(path), name=name)
            if paths.evidence_folder(evidence.set) != path.rpartition("/")[0]:
                note("damaged-document", path, f"it is about {evidence.set}")
            elif evidence.about:
                stated.setdefault(evidence.set, set()).add(evidence.about)
        except NotInStoreError:
            continue
        except errors.DataError as fault:
            note("damaged-document", path, errors.explain_error(fault))

    # what channels show
    shown_channels: list[channels.Channel] = []
    for name in policy.CHANNEL_NAMES:
        path = paths.channel_document(name)
        if path not in listed:
            continue
        known.add(path)
        try:
            channel = channels.read_channel(store, paths, name).channel
        except errors.DataError as fault:
            note("damaged-document", path, errors.explain_error(fault))
            free.append(paths.channel_pages(name))
            continue
        shown_channels.append(channel)
        for entry in channel.sets:
            stated.setdefault(entry.set, set()).add(entry.document)
            if (path := paths.set_document(entry.set)) not in listed and path not in wrong:
                wrong.add(path)
                note("missing-file", path, f"it is gone, and {name} shows the set")
    known |= {f"{paths.set_folder(set_id)}/{name}" for set_id in documents for name in set_audit.AUDIT_FILES}
    for set_id, digests in stated.items():
        if set_id in documents and digests != {documents[set_id].digest}:
            message = "it was edited: results or a channel say so"
            note("damaged-document", paths.set_document(set_id), message)
            del documents[set_id]
            free.append(paths.set_index(set_id))

    # pages
    expected: dict[str, bytes] = {}
    for document in documents.values():
        expected |= pages.make_index_pages(paths.set_index(document.id), paths, [document])
    told, _ = support.read_document(store, paths.support_document)
    for told_channel in told.channels:
        if (path := paths.channel_document(told_channel.channel)) not in listed:
            note("missing-file", path, "it is gone: put it back from a copy, it says what people get")
            free += [paths.channel_pages(told_channel.channel), paths.views_folder]
    for channel in shown_channels:
        name = channel.channel
        shown = [documents[entry.set] for entry in channel.sets if entry.set in documents]
        notes = support.read_notes(store, paths, name)
        untold = [entry.set for entry in channel.sets if entry.set not in notes]
        if channel.pending is not None or len(shown) < len(channel.sets) or untold:
            free += [paths.channel_pages(name), paths.views_folder]
            if untold and channel.pending is None:
                message = f"it does not tell of {untold[0]} on {name}: `set refresh` makes it again"
                note("wrong-page", paths.support_document, message)
            continue
        entries = {entry.set: notes[entry.set].with_lines(entry.notes) for entry in channel.sets}
        expected |= pages.make_channel_pages(paths, name, shown, entries)
        for view in told.views:
            members = [documents[item.set] for item in view.sets if item.set in documents]
            if view.channel == name and members:
                expected |= pages.make_index_pages(paths.view_pages(view.gfx, name), paths, members)
    for path, content in expected.items():
        known.add(path)
        if path not in listed:
            note("wrong-page", path, "it is gone", content)
        elif listed[path].size != len(content) or store.read(path).content != content:
            note("wrong-page", path, "it is not what follows from the documents", content)

    for path in sorted(set(listed) - known):
        if not path.startswith(tuple(f"{folder}/" for folder in free)):
            note("unknown-file", path, "nothing names it")


def _list_named_files(paths: FamilyPaths, document: wheel_set.SetDocument) -> Iterator[_NamedFile]:
    for file in document.files:
        wheel = paths.pool_file(file.sha256, file.name)
        yield _NamedFile(wheel, file.sha256, file.size, is_wheel=True)
        yield _NamedFile(wheel + METADATA_SUFFIX, file.metadata_sha256)
        if file.statement:
            yield _NamedFile(wheel + statement.STATEMENT_SUFFIX, file.statement)
    for lock in document.locks:
        yield _NamedFile(paths.lock_file(lock.digest), lock.digest)


def _add_signatures(paths: Iterable[str]) -> set[str]:
    """Return paths of files, and those of the signatures that statements among them may have."""
    listed = set(paths)
    suffix = statement.STATEMENT_SIGNATURE_SUFFIX.removeprefix(statement.STATEMENT_SUFFIX)
    return listed | {path + suffix for path in listed if path.endswith(statement.STATEMENT_SUFFIX)}


def repair_pages(store: Store, report: StoreReport) -> list[StoreFinding]:
    """Write the pages that are not what follows from the documents; return those that were written."""
    repaired = [finding for finding in report.errors if finding.content is not None]
    for finding in repaired:
        put_file(store, finding.path, finding.content or b"")
    report.findings = [finding for finding in report.findings if finding not in repaired]
    return repaired


# ---- what goes


@dataclass(frozen=True)
class PrunePlan:
    """What goes of a family and what stays: why, by the id of the set.

    ``freed``: the bytes of wheels that no other set has, by set. ``files`` are paths in the pool that no set
    names, and that are old enough.
    """

    family: str
    sets: tuple[wheel_set.SetDocument, ...]
    kept: Mapping[str, str]
    freed: Mapping[str, int]
    files: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all wheels that go with sets."""
        return sum(self.freed.values())


@dataclass(frozen=True)
class Pruner:
    """One who prunes a store. ``now`` in UTC."""

    store: Store
    retention: policy.RetentionPolicy
    now: datetime

    def plan(self, family: str) -> PrunePlan:
        """Return what would go of a family; nothing is written.

        Raises DataError for a document that cannot be read: what it names must not go.
        """
        sets = self._read_sets(family)
        reasons = self._find_reasons(family, {document.id: document for document in sets})
        going = tuple(document for document in sets if document.id not in reasons)
        staying = [document for document in sets if document.id in reasons]
        taken = {(file.sha256, file.name) for document in staying for file in document.files}
        freed = {}
        for document in reversed(going):  # of a wheel of several that go, with the oldest
            files = [file for file in document.files if (file.sha256, file.name) not in taken]
            freed[document.id] = sum(file.size for file in files)
            taken |= {(file.sha256, file.name) for file in files}
        unnamed = tuple(self._list_unnamed(FamilyPaths(family), sets))
        return PrunePlan(family, going, reasons, freed, unnamed)

    def prune(self, family: str) -> PrunePlan:
        """Remove what goes: documents of sets first, then what they alone named."""
        paths, plan = FamilyPaths(family), self.plan(family)
        for document in plan.sets:
            self.store.remove(paths.set_document(document.id))
            log.log_note(f"pruned {document.id} of {family}")
        shown = self._list_shown(paths)
        for document in plan.sets:
            if document.id in shown:  # somebody has promoted it meanwhile
                create_or_read(self.store, paths.set_document(document.id), document.to_json())
        # read again: whoever stages meanwhile writes his document, and then looks at the files once more
        sets = self._read_sets(family)
        present = {document.id for document in sets}
        going = [document for document in plan.sets if document.id not in present]
        gone = {document.id for document in going}
        left = [
            item.path
            for item in list(self.store.listing(paths.sets_folder))
            if (set_id := item.path.split("/")[2]) not in present
            and not item.path.endswith(f"/{SET_FILE}")
            and (set_id in gone or self._is_old(item))
        ]
        owned = _add_signatures(
            item.path for document in going for item in _list_named_files(paths, document)
        )
        kept = _add_signatures(item.path for document in sets for item in _list_named_files(paths, document))
        removed = dict.fromkeys([*left, *sorted(owned - kept), *self._list_unnamed(paths, sets)])
        parallel.run_in_parallel(self.store.remove, removed)
        for document in self._read_sets(family):  # its stage looked before its files went
            names = {item.path for item in _list_named_files(paths, document)}
            names |= pages.make_index_pages(paths.set_index(document.id), paths, [document]).keys()
            if document.id not in present and names.intersection(removed):
                raise errors.ReleaseError(
                    f"{document.id} was staged while files of it were pruned",
                    tip="stage the same wheels again: what is gone is sent",
                )
        return plan

    def _read_sets(self, family: str) -> tuple[wheel_set.SetDocument, ...]:
        sets = wheel_set.read_family_sets(self.store, family)
        if sets.damaged:
            raise errors.DataError(
                sets.damaged[0], tip="put it back from a copy of the store: what it names must not go"
            )
        return sets.documents

    def _list_unnamed(self, paths: FamilyPaths, sets: Sequence[wheel_set.SetDocument]) -> Iterator[str]:
        """Yield files of the pool that none of these sets names, and that nobody can be about to name."""
        named = _add_signatures(item.path for document in sets for item in _list_named_files(paths, document))
        for item in list(self.store.listing(paths.pool)):
            if item.path not in named and self._is_old(item):
                yield item.path

    def _is_old(self, item: ListedFile) -> bool:
        info = self.store.head(item.path)
        if info is None or info.changed is None:
            return False
        changed = datetime.fromtimestamp(info.changed, timezone.utc)
        return self.now - changed > self.retention.unfinished_for

    def _find_reasons(self, family: str, documents: Mapping[str, wheel_set.SetDocument]) -> dict[str, str]:
        """Return why sets stay, by their ids. ``documents`` are the newest first."""
        reasons: dict[str, str] = {}
        paths = FamilyPaths(family)
        views = support.read_document(self.store, paths.support_document)[0].views
        reasons |= self._list_shown(paths)
        for view in views:
            for item in view.sets:
                reasons.setdefault(item.set, f"a view of {view.channel} shows it")
        counts: dict[tuple[str, str], int] = {}
        for document in documents.values():
            group = find_retention_line(document), wheel_set.find_set_platform(document)
            counts[group] = counts.get(group, 0) + 1
            if counts[group] <= self.retention.keep:
                reasons.setdefault(
                    document.id, f"one of the newest {self.retention.keep} of torch {group[0]} on {group[1]}"
                )
            elif document.id not in reasons and (reason := self._find_age_reason(document)):
                reasons[document.id] = reason
        for document in documents.values():  # a set is newer than the one that it was made from
            if document.id in reasons and document.origin in documents:
                reasons.setdefault(document.origin or "", f"{document.id} was made from it")
        return {set_id: reason for set_id, reason in reasons.items() if set_id in documents}

    def _list_shown(self, paths: FamilyPaths) -> dict[str, str]:
        """Return the sets that channels show, or are about to, and why they stay."""
        reasons: dict[str, str] = {}
        for name, channel in channels.read_channels(self.store, paths).items():
            going = [entry.set for entry in channel.pending.goal] if channel.pending is not None else []
            reasons |= dict.fromkeys((*channel.shown, *going), f"{name} shows it")
        return reasons

    def _find_age_reason(self, document: wheel_set.SetDocument) -> str:
        try:
            created = datetime.fromisoformat(document.created.replace("Z", "+00:00"))
            age = self.now - created
        except (ValueError, TypeError):
            raise errors.DataError(
                f"{document.id} does not say when it was made: {document.created!r}"
            ) from None
        if age < self.retention.keep_for:
            return f"younger than {policy.format_age(self.retention.keep_for)}"
        if age < self.retention.keep_passed_for and self._has_passed(document):
            return f"it passed, and is younger than {policy.format_age(self.retention.keep_passed_for)}"
        return ""

    def _has_passed(self, document: wheel_set.SetDocument) -> bool:
        """Tell whether tests on GPUs passed, the last on each, and none failed."""
        folder = FamilyPaths(document.family).evidence_folder(document.id)
        last: dict[tuple[str, str | None], Evidence] = {}
        for item in list(self.store.listing(folder)):  # names begin with the time
            name = item.path.rpartition("/")[2].removesuffix(".json")
            evidence = parse_evidence(self.store.read(item.path).content, where=item.path, name=name)
            if evidence.kind in {"smoke", "tests"}:
                last[evidence.kind, evidence.gfx] = evidence
        return bool(last) and all(evidence.passed for evidence in last.values())


def find_retention_line(document: wheel_set.SetDocument) -> str:
    """Return the torch line of a set as its version says it: ``2.13``; of a pre-release ``2.15a``."""
    version = Version(document.version)
    return f"{version.major}.{version.minor}{version.pre[0] if version.pre else ''}"

"""Compare all that lies in a store with its documents, as `store fsck` and the end of `set refresh` do.

Three questions: is every file that a document names there, and right? Is every page what follows from the
documents? And what lies there that nothing knows?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from rocm_wheels.core import errors, parallel
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import channel as channels
from rocm_wheels.release import pages, policy, refresh, support, view_selectors, wheel_set
from rocm_wheels.release.evidence.evidence import parse_evidence
from rocm_wheels.release.store_paths import SET_FILE, SUPPORT_FILE, FamilyPaths
from rocm_wheels.stores.store import NotInStoreError, Store, put_file, read_files
from rocm_wheels.wheels import statement

_NOTES = {"other-document", "unknown-file"}  # the first, for anybody may say so


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
        return self.check not in _NOTES


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


def check_store(
    store: Store,
    *,
    hash_wheels: bool = False,
    on_hash: Callable[[int, int], None] = lambda _done, _all: None,
) -> StoreReport:
    """Compare a store with its documents.

    Without ``hash_wheels`` no wheel is read: one that is gone or cut short is found, not one with other bytes
    of the same size. ``on_hash`` is told how many bytes of how many were read. What others change meanwhile
    may show up as damage: a channel that is being changed is left out.
    """
    names = wheel_set.list_families(store)
    report = StoreReport(tuple(names))
    for family in names:
        checked = _FamilyCheck(store, FamilyPaths(family), report)
        checked.check_sets()
        checked.check_files(hash_wheels=hash_wheels, on_hash=on_hash)
        checked.check_evidence()
        checked.check_channels()
        checked.check_pages()
        checked.note_unknown_files()
    if names:
        public, tag = support.read_document(store, SUPPORT_FILE)
        derived = refresh.derive_whole_support(store, public)
        content = derived.to_json() if tag is not None or derived.releases else b""
        if (store.read(SUPPORT_FILE).content if tag is not None else b"") != content:
            message = "it is not what those of the families say" if tag is not None else "it is gone"
            report.findings.append(StoreFinding("wrong-page", SUPPORT_FILE, message, content))
    report.findings.sort(key=lambda finding: (not finding.is_error, finding.path))
    return report


class _FamilyCheck:
    """What lies in a store of a family, beside what its documents say; each check finds more of it.

    ``known`` are paths that something names. Of folders in ``free`` nothing follows: a document is damaged or
    is being changed. ``stated`` are digests of documents of sets, as channels have them.
    """

    def __init__(self, store: Store, paths: FamilyPaths, report: StoreReport) -> None:
        self.store, self.paths, self.report = store, paths, report
        self.listed = {item.path: item for item in store.listing(paths.family)}
        report.files += len(self.listed)
        report.size += sum(item.size for item in self.listed.values())
        manifests = (paths.channel_manifest(name) for name in policy.CHANNEL_NAMES)
        self.known = {paths.support_document, *manifests}
        self.free: list[str] = []
        self.documents: dict[str, wheel_set.SetDocument] = {}
        self.channels: list[channels.Channel] = []
        self.stated: dict[str, set[str]] = {}

    def note(self, check: str, path: str, message: str, content: bytes | None = None) -> None:
        """Note what is wrong with a path."""
        self.report.findings.append(StoreFinding(check, path, message, content))

    def check_sets(self) -> None:
        """Read the documents of sets."""
        sets = wheel_set.read_family_sets(self.store, self.paths.family)
        self.documents = {document.id: document for document in sets.documents}
        self.report.sets += len(self.documents)
        for path in self.listed:
            if path.startswith(f"{self.paths.sets_folder}/") and path.endswith(f"/{SET_FILE}"):
                self.known.add(path)
                set_id = path.split("/")[2]
                if set_id not in self.documents:
                    faults = [damage for damage in sets.damaged if f"/{set_id}/" in damage]
                    message = faults[0] if faults else "it was written meanwhile"
                    self.note("damaged-document", path, message)
                    self.free += [self.paths.set_folder(set_id), self.paths.pool]

    def check_files(self, *, hash_wheels: bool, on_hash: Callable[[int, int], None]) -> None:
        """Compare all files that sets name: sizes as they are listed, and digests."""
        named = list_named_files(self.paths, self.documents.values())
        self.known |= add_signatures(named)
        to_read = []
        for path, (_, size) in named.items():
            if path not in self.listed:
                self.note("missing-file", path, "it is gone: stage the same wheels again")
            elif size is not None and self.listed[path].size != size:
                fault = f"it has {self.listed[path].size} bytes and not {size}"
                self.note("other-bytes", path, f"{fault}: {_remove_first(path)}")
            elif hash_wheels or size is None:
                to_read.append(path)
        total = sum(named[path][1] or 0 for path in to_read)

        def read(path: str) -> None:
            sha256, size = named[path]
            try:
                digest = self.store.digest(path)
            except NotInStoreError:
                self.note("missing-file", path, "it is gone")
                return
            if size is not None:
                self.report.hashed += size
                on_hash(self.report.hashed, total)
            if digest != sha256:
                fault = f"its sha256 is {digest}, and not {sha256}"
                self.note("other-bytes", path, f"{fault}: {_remove_first(path)}")

        parallel.run_in_parallel(read, to_read, jobs=4)

    def check_evidence(self) -> None:
        """Read all evidence, which outlives its set.

        That it was made of another document is a note: the gate, which knows who signs, weighs it.
        """
        digests = {set_id: document.digest for set_id, document in self.documents.items()}
        paths = [path for path in self.listed if path.startswith(f"{self.paths.evidence_folder()}/")]
        self.known |= set(paths)
        for path, content in read_files(self.store, paths).items():
            folder, _, name = path.removesuffix(".json").rpartition("/")
            try:
                if content is None:  # somebody removed it meanwhile
                    continue
                evidence = parse_evidence(content, where=self.store.url_of(path), name=name)
            except errors.DataError as fault:
                self.note("damaged-document", path, errors.explain_error(fault))
                continue
            if self.paths.evidence_folder(evidence.set) != folder:
                self.note("damaged-document", path, f"it is about {evidence.set}")
            elif evidence.about and evidence.about != digests.get(evidence.set, evidence.about):
                self.note("other-document", path, f"it is of another document of {evidence.set}")

    def check_channels(self) -> None:
        """Read the documents of channels, and find sets that were edited, or that channels show no more."""
        for name in policy.CHANNEL_NAMES:
            path = self.paths.channel_document(name)
            if path not in self.listed:
                continue
            self.known.add(path)
            try:
                channel = channels.read_channel(self.store, self.paths, name).channel
            except errors.DataError as fault:
                self.note("damaged-document", path, errors.explain_error(fault))
                self.free.append(self.paths.channel_pages(name))
                continue
            self.channels.append(channel)
            for entry in channel.sets:
                self.stated.setdefault(entry.set, set()).add(entry.document)
        for set_id in sorted({set_id for channel in self.channels for set_id in channel.shown}):
            if (path := self.paths.set_document(set_id)) not in self.listed:
                shows = next(channel.channel for channel in self.channels if set_id in channel.shown)
                self.note("missing-file", path, f"it is gone, and {shows} shows the set")
        for set_id in self.documents.keys() & self.stated.keys():
            if self.stated[set_id] != {self.documents[set_id].digest}:
                message = "it was edited: a channel says so"
                self.note("damaged-document", self.paths.set_document(set_id), message)
                del self.documents[set_id]
                self.free.append(self.paths.set_folder(set_id))

    def check_pages(self) -> None:
        """Compare pages with what follows from documents."""
        paths, expected = self.paths, dict[str, bytes]()
        for document in self.documents.values():
            expected |= pages.make_index_pages(paths.set_index(document.id), paths, [document])
            expected |= view_selectors.make_earlier_files(paths, document, self.listed)
        told, _ = support.read_document(self.store, paths.support_document)
        for index in told.channels:
            if (path := paths.channel_document(index.channel)) not in self.listed:
                self.note(
                    "missing-file", path, "it is gone: put it back from a copy, it says what people get"
                )
                self.free += [paths.channel_pages(index.channel), paths.views_folder]
        for channel in self.channels:
            name, notes = channel.channel, support.read_notes(self.store, paths, channel.channel)
            shown = [self.documents[set_id] for set_id in channel.shown if set_id in self.documents]
            untold = [set_id for set_id in channel.shown if set_id not in notes]
            if channel.pending is not None or len(shown) < len(channel.sets) or untold:
                self.free += [paths.channel_pages(name), paths.views_folder]
                if untold and channel.pending is None:
                    message = f"it does not tell of {untold[0]} on {name}: `set refresh` makes it again"
                    self.note("wrong-page", paths.support_document, message)
                continue
            entries = {entry.set: notes[entry.set].with_lines(entry.notes) for entry in channel.sets}
            expected |= pages.make_channel_pages(paths, name, shown, entries)
            for view in told.views:
                named = (*(item.set for item in view.sets), *view.beside)
                members = [self.documents[set_id] for set_id in named if set_id in self.documents]
                if view.channel == name and members:
                    folder = paths.view_pages(view.gfx, name)
                    expected |= pages.make_index_pages(folder, paths, members, view.targets)
                    expected |= view_selectors.make_selector_files(paths, members, view.targets)
        self.known |= expected.keys()
        present = read_files(self.store, expected.keys() & self.listed.keys())
        for path, content in expected.items():
            if path not in self.listed:
                self.note("wrong-page", path, "it is gone", content)
            elif present[path] != content:
                self.note("wrong-page", path, "it is not what follows from the documents", content)

    def note_unknown_files(self) -> None:
        """Note what nothing names."""
        free = tuple(f"{folder}/" for folder in self.free)
        for path in sorted(self.listed.keys() - self.known):
            if not path.startswith(free):
                self.note("unknown-file", path, "nothing names it")


def _remove_first(path: str) -> str:
    return f"remove {path}, then stage the same wheels again"


def list_named_files(
    paths: FamilyPaths, documents: Iterable[wheel_set.SetDocument]
) -> dict[str, tuple[str, int | None]]:
    """Return the paths that sets name, with their sha256 and, of wheels, their sizes."""
    named: dict[str, tuple[str, int | None]] = {}
    for document in documents:
        for file in document.files:
            wheel = paths.pool_file(file.sha256, file.name)
            named[wheel] = file.sha256, file.size
            named[wheel + METADATA_SUFFIX] = file.metadata_sha256, None
            if file.statement:
                named[wheel + statement.STATEMENT_SUFFIX] = file.statement, None
        named |= {paths.lock_file(lock.digest): (lock.digest, None) for lock in document.locks}
    return named


def add_signatures(paths: Collection[str]) -> set[str]:
    """Return paths of files, and those of the signatures that statements among them may have."""
    suffix = statement.STATEMENT_SIGNATURE_SUFFIX.removeprefix(statement.STATEMENT_SUFFIX)
    return {*paths, *(path + suffix for path in paths if path.endswith(statement.STATEMENT_SUFFIX))}


def repair_pages(store: Store, report: StoreReport) -> list[StoreFinding]:
    """Write the pages that are not what follows from the documents; return those that were written."""
    repaired = [finding for finding in report.errors if finding.content is not None]
    for finding in repaired:
        put_file(store, finding.path, finding.content or b"")
    report.findings = [finding for finding in report.findings if finding not in repaired]
    return repaired

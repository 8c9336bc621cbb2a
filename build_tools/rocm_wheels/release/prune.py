"""Remove sets that nobody needs from a store, by the retention of a policy.

Their documents go first, and then files that no set names, as ``git gc`` does: those that are older than a
set takes to be staged. ``stage`` looks again, after its document is written, at what it found present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from packaging.version import Version

from rocm_wheels.core import errors, log, parallel, records
from rocm_wheels.release import channel as channels
from rocm_wheels.release import fsck, pages, policy, support, wheel_set
from rocm_wheels.release.evidence.store import read_all_evidence
from rocm_wheels.release.store_paths import SET_FILE, FamilyPaths
from rocm_wheels.stores.store import ListedFile, Store, create_or_read


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
        return PrunePlan(family, going, reasons, freed, self._list_unnamed(FamilyPaths(family), sets))

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
        owned = fsck.add_signatures(fsck.list_named_files(paths, going))
        kept = fsck.add_signatures(fsck.list_named_files(paths, sets))
        removed = dict.fromkeys([*left, *sorted(owned - kept), *self._list_unnamed(paths, sets)])
        parallel.run_in_parallel(self.store.remove, removed)
        for document in self._read_sets(family):  # its stage looked before its files went
            own_pages = pages.make_index_pages(paths.set_index(document.id), paths, [document])
            names = fsck.list_named_files(paths, [document]).keys() | own_pages.keys()
            if document.id not in present and names & removed.keys():
                raise errors.ReleaseError(
                    f"{document.id} was staged while files of it were pruned",
                    tip="stage the same wheels again: what is gone is sent",
                )
        return plan

    def _read_sets(self, family: str) -> tuple[wheel_set.SetDocument, ...]:
        sets = wheel_set.read_family_sets(self.store, family)
        if sets.damaged:
            tip = "put it back from a copy of the store: what it names must not go"
            raise errors.DataError(sets.damaged[0], tip=tip)
        return sets.documents

    def _list_unnamed(self, paths: FamilyPaths, sets: Sequence[wheel_set.SetDocument]) -> tuple[str, ...]:
        """Return files of the pool that none of these sets names, and that nobody can be about to name."""
        named = fsck.add_signatures(fsck.list_named_files(paths, sets))
        listed = [item for item in self.store.listing(paths.pool) if item.path not in named]
        old = parallel.run_in_parallel(self._is_old, listed)
        return tuple(item.path for item, is_old in zip(listed, old, strict=True) if is_old)

    def _is_old(self, item: ListedFile) -> bool:
        info = self.store.head(item.path)
        if info is None or info.changed is None:
            return False
        changed = datetime.fromtimestamp(info.changed, timezone.utc)
        return self.now - changed > self.retention.unfinished_for

    def _find_reasons(self, family: str, documents: Mapping[str, wheel_set.SetDocument]) -> dict[str, str]:
        """Return why sets stay, by their ids. ``documents`` are the newest first."""
        paths = FamilyPaths(family)
        reasons = self._list_shown(paths)
        for view in support.read_document(self.store, paths.support_document)[0].views:
            for set_id in (*(item.set for item in view.sets), *view.beside):
                reasons.setdefault(set_id, f"a view of {view.channel} shows it")
        counts: dict[tuple[str, str], int] = {}
        for document in documents.values():
            group = find_retention_line(document), wheel_set.find_set_platform(document)
            counts[group] = counts.get(group, 0) + 1
            if counts[group] <= self.retention.keep:
                reasons.setdefault(
                    document.id, f"one of the newest {self.retention.keep} of {group[0]} on {group[1]}"
                )
            elif document.id not in reasons and (reason := self._find_age_reason(document)):
                reasons[document.id] = reason
        return {set_id: reason for set_id, reason in reasons.items() if set_id in documents}

    def _list_shown(self, paths: FamilyPaths) -> dict[str, str]:
        """Return the sets that channels show, or are about to, and why they stay."""
        reasons: dict[str, str] = {}
        for name, channel in channels.read_channels(self.store, paths).items():
            going = [entry.set for entry in channel.pending.goal] if channel.pending is not None else []
            reasons |= dict.fromkeys((*channel.shown, *going), f"{name} shows it")
        return reasons

    def _find_age_reason(self, document: wheel_set.SetDocument) -> str:
        age = self.now - document.moment
        if age < self.retention.keep_for:
            return f"younger than {records.format_age(self.retention.keep_for)}"
        if age < self.retention.keep_passed_for and self._has_passed(document):
            return f"it passed, and is younger than {records.format_age(self.retention.keep_passed_for)}"
        return ""

    def _has_passed(self, document: wheel_set.SetDocument) -> bool:
        """Tell whether tests on GPUs passed, the last on each, and none failed."""
        last = {
            (evidence.kind, evidence.gfx): evidence.passed
            for evidence in read_all_evidence(self.store, document)
            if evidence.kind in {"smoke", "tests"}
        }
        return bool(last) and all(last.values())


def find_retention_line(document: wheel_set.SetDocument) -> str:
    """Return the torch line of a set, by its version: ``torch 2.13``, for a pre-release ``torch 2.15a``.

    Companions alone have lines of their own: ``torchaudio 2.13``.
    """
    version, projects = Version(document.version), ", ".join(document.main_projects)
    return f"{projects} {version.major}.{version.minor}{version.pre[0] if version.pre else ''}"

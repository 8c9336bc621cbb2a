"""Refresh a channel: what is told of released sets, their views and support.json follow today's evidence.

In this order; each step begins by reading what it may replace, and evidence after that:

1. evidence that came since is copied to the release area
2. the channel's document and pages tell of it (a change like a promotion: claimed, made, cleared); the
   document keeps the policy by which that was found, as long as nobody has it keep another
3. the status of the sets, and which views are to change, is written down; their pages are exchanged; that
   is cleared
4. support.json of the family, then that of all
5. with a key, snapshots of the channel and of support.json are signed (``snapshots``)
6. what was released is looked at: files by their sizes, pages as they follow from sets, and no wheel is read

Whoever comes after a run that was killed does the rest. What is as it should be is not written, and a set
is only looked at again when there is more evidence of it, or another policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from rocm_wheels.core import parallel
from rocm_wheels.core.log import log_note
from rocm_wheels.index import publish
from rocm_wheels.models import project_names
from rocm_wheels.release import kept_policy, promote, set_list, set_log, snapshots, store_check, wheel_set
from rocm_wheels.release.channel import (
    Channel,
    ChannelRecord,
    ChannelSet,
    ChannelStatus,
    ChannelView,
    SetStatus,
    StoredStatus,
    compute_policy_digest,
    compute_status_digest,
    drop_age_limits,
    make_set_status,
    read_channel,
    read_channel_status,
)
from rocm_wheels.release.evidence.store import copy_evidence, list_evidence_ids, read_released_evidence
from rocm_wheels.release.layout import FamilyPaths, StoreLayout
from rocm_wheels.release.pages import make_channel_pages
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.views import (
    PlatformConflicts,
    find_view_sets,
    list_view_states,
    list_view_targets,
    make_view_pages,
    plan_views,
    publish_view,
    write_support,
    write_whole_support,
)
from rocm_wheels.stores.store import RUN_AGAIN_TIP, ChangedInStoreError, Store, change_documents

_STATUS_JOBS = 8
ViewChange = tuple[str, str | None, str | None, project_names.Platform]


@dataclass(frozen=True)
class RefreshResult:
    """What was done for a channel.

    ``retold`` are the sets of which its pages tell something else now, ``views`` those that changed: (target,
    set before, set now, their platform), ``None`` for none. ``evidence`` counts copied results, ``pages``
    pages that were written or removed; ``signed``: its snapshot was. ``other_change`` says who is changing
    the channel: then nothing was done. ``failing`` are sets that it shows although something failed since.
    """

    family: str
    channel: str
    retold: tuple[str, ...] = ()
    views: tuple[ViewChange, ...] = ()
    evidence: int = 0
    pages: int = 0
    other_change: str = ""
    failing: tuple[SetStatus, ...] = ()
    signed: bool = False


@dataclass(frozen=True)
class _KnownResults:
    """The ids of the results of a set, in staging or released, and how many entries its log has."""

    ids: frozenset[str]
    logged: int


@dataclass(frozen=True)
class Refresher:
    """One who refreshes. ``policy`` is what he has for all channels, ``now`` the time in UTC.

    A channel is judged by the policy that it keeps, as ``PolicyUse`` says: ``named`` and ``change_policy``
    are of that. ``again``: sets are judged again where there is something new; otherwise those stay as they
    were of which something is known. ``signer`` signs what is shown, last of all.
    """

    store: Store
    layout: StoreLayout
    policy: Policy
    by: str
    now: datetime
    env: Mapping[str, str]
    again: bool = True
    signer: snapshots.ReleaseSigner | None = None
    named: bool = True
    change_policy: bool = False

    @cached_property
    def _digest(self) -> str:
        return compute_policy_digest(self.policy)

    @cached_property
    def _ageless(self) -> Policy:
        return drop_age_limits(self.policy)

    def refresh_channel(self, family: str, channel: str) -> RefreshResult | None:
        """Refresh a channel and the documents about it; ``None`` when nothing was ever promoted to it.

        Raises ReleaseError; the same call carries on afterwards.
        """
        return change_documents(
            lambda: self._refresh_once(family, channel), description=f"{channel} of {family}"
        )

    def refresh_support(self, families: Sequence[str]) -> list[str]:
        """Bring support.json of families, then that of all, to what is known; return those that changed."""
        paths = [FamilyPaths(self.layout, item, "release") for item in families]
        changed = [item.support_document for item in paths if write_support(self.store, item, self.signer)]
        if write_whole_support(self.store, self.layout, self.signer):
            changed.append(f"{self.layout.release}/{self.layout.support}")
        return changed

    def check_released(self, family: str | None) -> store_check.StoreReport:
        """Look at what is released of a family, or of all, and return what is damaged; nothing is repaired.

        Raises ReleaseError where the store cannot be read.
        """
        families = None if family is None else (family,)
        signers = self.signer.trusted if self.signer is not None else None
        check = store_check.StoreCheck(
            self.store, self.layout, self.now, areas=("release",), families=families
        )
        return replace(check, signers=signers, env=self.env).run()

    def _refresh_once(self, family: str, channel: str) -> RefreshResult | None:
        promoter = self._make_promoter(family, channel)
        stored = read_channel_status(self.store, promoter.release, channel)
        record = read_channel(self.store, promoter.release, channel)
        if record.tag is None:
            return None
        if record.channel.pending is not None:
            if record.channel.pending.action != "refresh":
                return RefreshResult(family, channel, other_change=str(record.channel.pending))
            promoter.retell(record, ())
            raise ChangedInStoreError(
                f"an earlier refresh of {channel} of {family} was not finished; now it is"
            )
        promoter.require_signed(record)
        use = kept_policy.PolicyUse(self.policy, self.now.date(), self.named, self.change_policy)
        policy, new_policy = use.choose(record.channel)
        judge = replace(self, policy=policy)
        return judge._refresh_settled(promoter, stored, record, new_policy if self.again else None)

    def _refresh_settled(
        self,
        promoter: promote.Promoter,
        stored: StoredStatus,
        record: ChannelRecord,
        new_policy: Mapping[str, Any] | None,
    ) -> RefreshResult:
        """Refresh a channel that nothing is pending on; ``new_policy`` is what it is to keep."""
        if self.signer is not None:
            stored = self._forget_unsigned(promoter, stored)
            self._begin_snapshot(promoter, record)
        known, brought = self._bring_evidence(promoter, record.channel)
        sets = self._find_statuses(record.channel, stored, known, promoter.released)
        retold, pages_written = self._retell_channel(promoter, record, sets, new_policy)
        views, exchanged = self._publish_views(promoter, stored, sets)
        signed = self.signer is not None and change_documents(
            lambda: self._sign_channel(promoter), description=promoter.snapshot.path
        )
        return RefreshResult(
            promoter.release.family,
            promoter.channel,
            retold,
            views,
            brought,
            pages_written + exchanged,
            failing=tuple(status for status in sets if status.is_failing),
            signed=signed,
        )

    def _make_promoter(self, family: str, channel: str) -> promote.Promoter:
        actor = promote.ChannelActor(self.by, f"{self.now:%Y-%m-%dT%H:%M:%SZ}")
        return promote.Promoter(
            self.store, FamilyPaths(self.layout, family), channel, actor, signer=self.signer
        )

    def _forget_unsigned(self, promoter: promote.Promoter, stored: StoredStatus) -> StoredStatus:
        """Return what is known of sets where it is signed, else nothing: then they are judged anew."""
        keeper, path = promoter.snapshot, promoter.release.channel_status(promoter.channel)
        snapshot = keeper.read().snapshot
        if stored.tag is None or keeper.vouches(snapshot, path, stored.content):
            return stored
        if snapshot is not None:
            log_note(f"{self.store.url_of(path)} is not what was signed: its sets are judged anew")
        empty = ChannelStatus(family=promoter.release.family, channel=promoter.channel)
        return StoredStatus(empty, stored.tag)

    def _begin_snapshot(self, promoter: promote.Promoter, record: ChannelRecord) -> None:
        """Sign the document of a channel that has no snapshot that holds, before anything that follows."""
        if promoter.snapshot.read().snapshot is None:
            path = promoter.release.channel_document(promoter.channel)
            promoter.snapshot.add({path: (record.content,)}, channel_document=record.content)

    def _sign_channel(self, promoter: promote.Promoter) -> bool:
        """Sign what a channel and its views show, unless they are being changed; tell whether it was new.

        All that is signed follows from its documents, and from those of sets.
        """
        paths, channel, snapshot = promoter.release, promoter.channel, promoter.snapshot
        signed, record = snapshot.read(), promoter.read_channel_record()
        status = read_channel_status(self.store, paths, channel)
        is_settled = record.channel.pending is None and all(view.settled for view in status.document.views)
        if not is_settled or status.tag is None:
            return False  # whoever changes it signs it then
        promoter.require_signed(record)
        snapshot.require_content(paths.channel_status(channel), status.content)
        contents = {
            paths.channel_document(channel): record.content,
            paths.channel_status(channel): status.content,
        }
        documents = promoter.released.read_documents(record.channel.shown)
        contents |= make_channel_pages(paths, channel, record.channel.sets, documents)
        for view in status.document.views:
            folder = paths.view_pages(view.gfx, channel)
            contents |= make_view_pages(paths, folder, promoter.released.read_documents(view.shown))
        revision = record.channel.revision
        return snapshot.settle(signed, contents, channel_document=record.content, revision=revision)

    def _bring_evidence(
        self, promoter: promote.Promoter, channel: Channel
    ) -> tuple[dict[str, _KnownResults], int]:
        """Bring the evidence of the sets that are shown; return what there is, and how many were new.

        Logs are listed before results and copied after them: no log names what is not there.
        """
        staging, release = promoter.staging, promoter.release
        staged_numbers = set_log.list_log_numbers(self.store, staging)
        numbers = set_log.list_log_numbers(self.store, release)
        staged = list_evidence_ids(self.store, staging)
        present = list_evidence_ids(self.store, release)
        staged_ids = {set_id: staged.get(set_id, set()) for set_id in channel.shown}
        brought = copy_evidence(self.store, staging, release, present, staged_ids)
        known = {}
        for set_id in channel.shown:
            logged = numbers.get(set_id, set())
            new = staged_numbers.get(set_id, set()) - logged
            set_log.copy_log_entries(self.store, staging, release, set_id, sorted(new))
            ids = staged_ids[set_id] | present.get(set_id, set())
            known[set_id] = _KnownResults(frozenset(ids), len(logged | new))
        return known, brought

    def _find_statuses(
        self,
        channel: Channel,
        stored: StoredStatus,
        known: Mapping[str, _KnownResults],
        released: set_list.ReleasedSets,
    ) -> tuple[SetStatus, ...]:
        """Return what is known of all sets that are shown; those of which nothing changed as they were."""
        before = {status.set: status for status in stored.document.sets}

        def of(channel_set: ChannelSet) -> SetStatus:
            ids, logged = known[channel_set.set].ids, known[channel_set.set].logged
            digest = self._compute_digest(channel_set, ids, logged)
            old = before.get(channel_set.set)
            if old is not None and (old.of == digest or not self.again):
                return old
            (document,), signers = released.read_documents([channel_set.set]), self.policy.signers
            results, log = read_released_evidence(
                self.store, self.layout, document, signers=signers, env=self.env
            )
            ids, logged = frozenset(result.id for result in results), len(log.entries)
            return make_set_status(
                document,
                results,
                channel_set,
                policy=self._ageless,
                channel=channel.channel,
                now=self.now,
                digest=self._compute_digest(channel_set, ids, logged),
                log=log,
                stated=old.log if old is not None else None,
            )

        return tuple(parallel.run_in_parallel(of, channel.sets, jobs=_STATUS_JOBS))

    def _compute_digest(self, channel_set: ChannelSet, ids: Iterable[str], logged: int) -> str:
        return compute_status_digest(
            self.policy, self._digest, channel_set, sorted(ids), self.now, logged=logged
        )

    def _retell_channel(
        self,
        promoter: promote.Promoter,
        record: ChannelRecord,
        sets: Sequence[SetStatus],
        new_policy: Mapping[str, Any] | None,
    ) -> tuple[tuple[str, ...], int]:
        """Have the channel tell what is known; return the sets of which it told something else, and pages."""
        goal = tuple(
            channel_set.model_copy(update={"state": status.state, "told": status.told})
            for channel_set, status in zip(record.channel.sets, sets, strict=True)
        )
        if not goal or (goal == record.channel.sets and new_policy is None):
            return (), 0
        retold = tuple(new.set for new, old in zip(goal, record.channel.sets, strict=True) if new != old)
        return retold, promoter.retell(record, goal, new_policy).pages

    def _publish_views(
        self, promoter: promote.Promoter, stored: StoredStatus, sets: tuple[SetStatus, ...]
    ) -> tuple[tuple[ViewChange, ...], int]:
        """Have views show what they are to show; return those that changed, and how many pages did."""
        released, channel = promoter.released, promoter.channel
        paths = released.paths
        present = list_view_targets(self.store, paths, channel)
        ids_by_target = find_view_sets(sets, channel, PlatformConflicts(released).have_conflict)
        planned = plan_views(stored, ids_by_target, present)
        policy = self._digest if self.again else stored.document.policy or self._digest
        goal = ChannelStatus(family=paths.family, channel=channel, policy=policy, sets=sets, views=planned)
        message = f"views of {channel} of {paths.family} were changed by another process"
        journal = publish.DocumentJournal(
            self.store,
            paths.channel_status(channel),
            stored.tag,
            lambda: ChangedInStoreError(message, tip=RUN_AGAIN_TIP),
        )
        settled = goal.settle_views()
        changing = [view for view in planned if not view.settled]
        contents: dict[str, tuple[bytes, ...]] = {}
        for view in changing if self.signer is not None else ():
            contents |= list_view_states(released, channel, view)
        contents[paths.channel_status(channel)] = (goal.to_json(), settled.to_json())
        folders = [paths.view_pages(view.gfx, channel) for view in changing]
        promoter.snapshot.add(contents, folders=folders)
        if goal.to_json() != stored.content:
            journal.write(goal.to_json())
            promoter.snapshot.add(contents, folders=folders)  # another may have settled it before we claimed
        pages = sum(publish_view(released, channel, view, journal.check) for view in changing)
        if changing:
            journal.write(settled.to_json())
        return tuple(_list_view_changes(stored.document, sets, changing)), pages


def _list_view_changes(
    before: ChannelStatus, sets: Sequence[SetStatus], changing: Sequence[ChannelView]
) -> Iterator[ViewChange]:
    """Yield for each platform what became of a view; all that it shows where its pages alone were not right.

    Before it began to change it showed the last of those that it ``was`` at.
    """
    platforms = {item.set: item.os for item in (*before.sets, *sets)}
    views = {item.gfx: item for item in before.views}
    for view in changing:
        was = views.get(view.gfx, ChannelView(gfx=view.gfx, set=None))
        changes = []
        for platform in wheel_set.PLATFORM_ORDER:

            def select_platform_ids(
                ids: Sequence[str], platform: project_names.Platform = platform
            ) -> list[str]:
                return [
                    set_id for set_id in ids if platforms.get(set_id, wheel_set.PLATFORM_ORDER[0]) == platform
                ]

            old, new = (
                select_platform_ids(was.was)[-1:] or select_platform_ids(was.shown),
                select_platform_ids(view.shown),
            )
            changes.append((view.gfx, next(iter(old), None), next(iter(new), None), platform))
        changed = [item for item in changes if item[1] != item[2]]
        yield from changed or [item for item in changes if item[2]] or changes[:1]

"""Promote and demote sets, abandon a change, retell: claim the channel, change its pages, clear the claim.

1. a set that its gate lets pass is copied to the release area; nobody has a link to it yet
2. the channel's document says what is to change: of two who say so, one is told of the other
3. pages change, by what the document says; every write can be repeated
4. the document says that it is done

Whoever comes after a run that was killed between 2 and 4 does 3 and 4, or puts the old sets back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rocm_wheels.core import errors, process, tables
from rocm_wheels.index import publish
from rocm_wheels.release import (
    kept_policy,
    layout,
    set_conflicts,
    set_list,
    snapshots,
    stored_digests,
    wheel_set,
)
from rocm_wheels.release.channel import (
    Channel,
    ChannelAction,
    ChannelRecord,
    ChannelSet,
    PendingChange,
    read_channel,
)
from rocm_wheels.release.pages import make_channel_pages
from rocm_wheels.release.policy import Verdict, make_shown_state
from rocm_wheels.stores.store import RUN_AGAIN_TIP, ChangedInStoreError, Store

if TYPE_CHECKING:
    from pydantic import JsonValue


def require_shown(channel: Channel, set_id: str) -> None:
    """Raise ReleaseError for a set that a channel does not show."""
    if set_id in channel.shown:
        return
    listed = ", ".join(reversed(channel.shown)) or "no sets"
    message = f"{set_id} is not on {channel.channel} of {channel.family}"
    raise errors.ReleaseError(
        f"{message}{tables.suggest_name(set_id, channel.shown)}", tip=f"it shows {listed}"
    )


def resolve_set_id(channel: Channel, begins: str) -> str:
    """Return the set that is meant, by its id or how that begins, of those that a channel shows or showed.

    What nothing begins with is returned as it is. Raises ReleaseError that lists what it could be.
    """
    known_ids = {*channel.shown, *channel.demoted, *(channel.pending.sets if channel.pending else ())}
    matches = (
        [begins]
        if begins in known_ids
        else sorted(set_id for set_id in known_ids if begins and set_id.startswith(begins))
    )
    if len(matches) > 1:
        raise errors.ReleaseError(f"{begins} could be {', '.join(matches)}", tip="give the whole id")
    return matches[0] if matches else begins


def require_pass(verdict: Verdict, store: Store, begun_channel: Channel | None = None) -> Verdict:
    """Return what a gate said. Raises ReleaseError when it holds the set, also one whose change of
    ``begun_channel`` has begun.
    """
    if verdict.passed:
        return verdict
    reasons = "\n".join(f"{rule.title}: {rule.why}" for rule in verdict.failures)
    tip = verdict.next_step.replace(" STORE ", f" {store.url} ") or None
    if begun_channel is not None:
        reasons += f"\nan earlier run had passed and was killed: {begun_channel.pending}"
        tip = (
            f"{tip}; or undo what it did: {_undo_command(begun_channel)}"
            if tip
            else f"undo what it did: {_undo_command(begun_channel)}"
        )
    raise errors.ReleaseError(f"{verdict.set} cannot go to {verdict.channel}:\n{reasons}", tip=tip)


def require_same_change(channel: Channel, action: ChannelAction, sets: Sequence[str] | None) -> None:
    """Raise ReleaseError that names what is pending, where that is something else."""
    pending = channel.pending
    assert pending is not None
    if pending.action != action or (sets is not None and set(sets) != set(pending.sets)):
        raise make_pending_error(channel)


def make_pending_error(channel: Channel) -> errors.ReleaseError:
    """Return what to say when another change was begun."""
    pending = channel.pending
    assert pending is not None
    tip = f"wait for it; if that run is gone, run it again to finish it, or undo it: {_undo_command(channel)}"
    if pending.action == "abandon":
        tip = f"wait for it; if that run is gone, finish it: {_undo_command(channel)}"
    if pending.action == "refresh":
        tip = "wait for it; if that run is gone, `rocm-wheels set refresh STORE` finishes it"
    return errors.ReleaseError(f"{channel.channel} of {channel.family} is being changed: {pending}", tip=tip)


def make_overtaken_error(channel: Channel) -> ChangedInStoreError:
    """Return what to say to one who was overtaken."""
    last = channel.pending or (channel.history[-1] if channel.history else "it has no history")
    tip = "look at it, then run the same command again: it sees to the pages, too"
    return ChangedInStoreError(
        f"{channel.channel} was changed by another process in the meantime: {last}", tip=tip
    )


def make_busy_error(channel: Channel) -> errors.ReleaseError:
    """Return what to say when others are always faster."""
    return errors.ReleaseError(f"{channel.channel} is changed by others all the time", tip=RUN_AGAIN_TIP)


def _undo_command(channel: Channel) -> str:
    assert channel.pending is not None
    options = f"--channel {channel.channel} --family {channel.family} --set {channel.pending.sets[0]}"
    return f"rocm-wheels set promote STORE {options} --abandon"


_CLAIM_ATTEMPTS = 5
_WAIT_SECONDS: Sequence[float] = (0.2, 0.5, 1, 2, 5)  # seconds in which another finishes what it has begun


@dataclass(frozen=True)
class ChannelActor:
    """Who changes a channel, and when (UTC, ISO 8601)."""

    by: str
    now: str


@dataclass(frozen=True)
class ChannelChange:
    """What was done: to which sets, how many files were copied, how many pages changed.

    ``finished`` says that an earlier run had begun it; ``channel`` is as it is now. With nothing to do,
    ``action`` is ``None``.
    """

    action: ChannelAction | None
    sets: tuple[str, ...]
    channel: Channel
    copied: int = 0
    pages: int = 0
    finished: bool = False


@dataclass(frozen=True)
class Promoter:
    """One who changes a channel. ``staging`` are the places where the family's sets are staged.

    ``digests`` remember the bytes of wheels, which the gate has read.

    ``allow_unpinned``: wheels that do not pin each other are shown, and the pages say so.
    ``allow_fewer_targets``: so is a set for all GPUs without code for some that people get code for now; what
    is told of it says so. ``signer`` signs what is about to be shown; ``refresh`` then what is shown.
    ``policy`` is what the channel is to keep, where it keeps none.
    """

    store: Store
    staging: layout.FamilyPaths
    channel: str
    actor: ChannelActor
    digests: stored_digests.StoredDigests = field(default_factory=stored_digests.StoredDigests)
    allow_unpinned: bool = False
    allow_fewer_targets: bool = False
    signer: snapshots.ReleaseSigner | None = None
    policy: kept_policy.PolicyUse | None = None

    @property
    def release(self) -> layout.FamilyPaths:
        """The places of what was released."""
        return layout.FamilyPaths(self.staging.layout, self.staging.family, "release")

    @cached_property
    def released(self) -> set_list.ReleasedSets:
        """The sets that were released."""
        return set_list.ReleasedSets(self.store, self.release)

    @cached_property
    def snapshot(self) -> snapshots.SnapshotKeeper:
        """What is signed of the channel."""
        return snapshots.keep_channel_snapshot(self.store, self.release, self.channel, self.signer)

    def read_channel_record(self) -> ChannelRecord:
        """Return the channel as it is now."""
        return read_channel(self.store, self.release, self.channel)

    def require_signed(self, record: ChannelRecord) -> None:
        """Raise ReleaseError where it is not what was signed, UsageError where a change needs a key."""
        self.snapshot.require_channel(self.release.channel_document(self.channel), record)

    def promote(self, document: wheel_set.SetDocument, ask_gate: Callable[[], Verdict]) -> ChannelChange:
        """Show a staged set. Raises ReleaseError; the same call carries on afterwards.

        ``ask_gate`` is asked before anything is copied, and again before people see anything: results may
        have come meanwhile, also in the days since a run was killed.
        """
        copied, requires = 0, None
        for record in self._attempt_changes():
            channel = record.channel
            policy = self.policy.choose(channel)[1] if self.policy is not None else None
            if channel.pending is not None:
                require_same_change(channel, "promote", (document.id,))
                require_pass(ask_gate(), self.store, channel)
                return self._complete_pending(record, copied, finished=True)
            if document.id in channel.shown:
                return self.renew_pages(record)
            verdict = require_pass(ask_gate(), self.store)
            if requires is None:
                requires = set_conflicts.read_requirements(self.store, self.staging, document)
                self._require_compatible(document, requires, channel)
                copied = set_list.copy_to_release(
                    self.store, self.staging, self.release, document, self.digests
                )
                self.released.add_requirements(requires)
                verdict = require_pass(ask_gate(), self.store)
            allowed_notes = self._require_compatible(document, requires, channel)
            state = make_shown_state(verdict)
            by, now = self.actor.by, self.actor.now
            new_set = ChannelSet(
                set=document.id,
                when=now,
                by=by,
                state=state.word,
                told=(*state.lines, *allowed_notes),
                log=verdict.log,
            )
            goal = (*channel.sets, new_set)
            claimed = self._claim_channel(record, "promote", (document.id,), goal, policy=policy)
            if claimed is not None:
                return self._complete_pending(claimed, copied)
        raise make_busy_error(self.read_channel_record().channel)

    def demote(self, set_ids: Sequence[str] | None) -> ChannelChange:
        """Take sets away, by default the newest. Raises ReleaseError; the same call carries on afterwards.

        Their files stay where they are: what people have locked can be installed from each set's own index.
        """
        for record in self._attempt_changes():
            channel = record.channel
            if channel.pending is not None:
                require_same_change(channel, "demote", set_ids)
                return self._complete_pending(record, finished=True)
            if set_ids is None and not channel.sets:
                raise errors.ReleaseError(f"{self.channel} of {channel.family} shows no sets")
            sets = channel.shown[-1:] if set_ids is None else tuple(set_ids)
            if all(item in channel.demoted for item in sets):
                return self.renew_pages(record)
            for item in sets:
                require_shown(channel, item)
            goal = tuple(item for item in channel.sets if item.set not in sets)
            claimed = self._claim_channel(record, "demote", sets, goal)
            if claimed is not None:
                return self._complete_pending(claimed)
        raise make_busy_error(self.read_channel_record().channel)

    def _attempt_changes(self) -> Iterator[ChannelRecord]:
        """Yield the channel as it is now, for each attempt to change it; a refresh is completed before."""
        for _ in range(_CLAIM_ATTEMPTS):
            record = self.read_channel_record()
            self.require_signed(record)
            pending = record.channel.pending
            if pending is not None and pending.action == "refresh":
                self._complete_pending(record)
            else:
                yield record

    def retell(
        self,
        record: ChannelRecord,
        goal: tuple[ChannelSet, ...],
        policy: Mapping[str, JsonValue] | None = None,
    ) -> ChannelChange:
        """Have the pages tell what is known now of the sets that they show; complete it where it was begun.

        With ``policy`` the channel keeps that; of its sets all are told of then.

        Raises ChangedInStoreError when somebody else changed the channel meanwhile.
        """
        self.require_signed(record)
        pending = record.channel.pending
        if pending is not None:
            require_same_change(record.channel, "refresh", None)
            return self._complete_pending(record, finished=True)
        changed_ids = tuple(
            new.set
            for new, old in zip(goal, record.channel.sets, strict=True)
            if new != old or policy is not None
        )
        claimed = self._claim_channel(record, "refresh", changed_ids, goal, policy=policy)
        if claimed is None:
            raise make_overtaken_error(self.read_channel_record().channel)
        return self._complete_pending(claimed)

    def abandon(self, set_id: str) -> ChannelChange:
        """Put back what the channel showed before a change of a set was begun.

        Raises ReleaseError when there is none.
        """
        for _ in range(_CLAIM_ATTEMPTS):
            record = self.read_channel_record()
            self.require_signed(record)
            pending = record.channel.pending
            if pending is None:
                message = f"nothing is pending on {self.channel} of {record.channel.family}"
                raise errors.ReleaseError(
                    message, tip="to take away what was promoted: rocm-wheels set demote"
                )
            if set_id not in pending.sets:
                raise make_pending_error(record.channel)
            if pending.action == "abandon":
                return self._complete_pending(record, finished=True)
            claimed = self._claim_channel(
                record, "abandon", pending.sets, record.channel.sets, adds=not pending.adds
            )
            if claimed is not None:
                return self._complete_pending(claimed)
        raise make_busy_error(self.read_channel_record().channel)

    def _claim_channel(
        self,
        record: ChannelRecord,
        action: ChannelAction,
        sets: tuple[str, ...],
        goal: tuple[ChannelSet, ...],
        *,
        adds: bool | None = None,
        policy: Mapping[str, JsonValue] | None = None,
    ) -> ChannelRecord | None:
        """Write down what is to change; ``None`` when somebody else wrote meanwhile.

        That a channel is to keep another policy is signed before: who cannot sign cannot have it do so.
        """
        comes = action == "promote" if adds is None else adds
        by, now = self.actor.by, self.actor.now
        pending = PendingChange(
            action=action, sets=sets, by=by, began=now, goal=goal, adds=comes, policy=policy
        )
        channel, journal = record.channel.with_pending(pending), self._open_journal(record)
        if policy is not None:
            path = self.release.channel_document(self.channel)
            before = record.content if record.tag is not None else None
            self.snapshot.add({path: (before, channel.to_json())})
        try:
            journal.write(channel.to_json())
        except ChangedInStoreError:
            return None
        return ChannelRecord(channel, journal.tag, channel.to_json())

    def _open_journal(self, record: ChannelRecord) -> publish.DocumentJournal:
        """Return the document of the channel as the journal of what is done by a record of it."""
        return publish.DocumentJournal(
            self.store,
            self.release.channel_document(self.channel),
            record.tag,
            lambda: make_overtaken_error(self.read_channel_record().channel),
        )

    def _complete_pending(
        self, record: ChannelRecord, copied: int = 0, *, finished: bool = False
    ) -> ChannelChange:
        """Do what is pending, and say so in the document."""
        pending = record.channel.pending
        assert pending is not None
        sets = () if pending.action == "refresh" else pending.sets  # links stay: any order will do
        settled, pages, journal = record.channel.finish_pending(), 0, self._open_journal(record)
        try:
            documents = (record.content, settled.to_json())
            pages = self._exchange_pages(journal, pending.goal, sets, adds=pending.adds, documents=documents)
            journal.write(settled.to_json())
        except ChangedInStoreError:
            latest = self._wait_until_quiet(record)
            if latest.tag == record.tag:
                raise  # the change is ours; somebody has laid hands on a page
            if latest.channel.pending is None:
                self.renew_pages(latest)  # our last write may have come after the other's look at that page
            if settled.history[-1] not in latest.channel.history:
                raise make_overtaken_error(latest.channel) from None
            settled = latest.channel  # another run did the same, and was faster
        return ChannelChange(pending.action, pending.sets, settled, copied, pages, finished)

    def _wait_until_quiet(self, record: ChannelRecord) -> ChannelRecord:
        """Return the channel when what others have begun is done, or they seem to be gone."""
        for pause in _WAIT_SECONDS:
            latest = self.read_channel_record()
            if latest.tag == record.tag or latest.channel.pending is None:
                return latest
            process.wait_or_stop(pause)
        return self.read_channel_record()

    def renew_pages(self, record: ChannelRecord, kept: frozenset[str] = frozenset()) -> ChannelChange:
        """See to it that the pages are what the document says: as a rule nothing is written.

        ``kept`` are paths that stay beside them.
        """
        if self.signer is not None:
            self.require_signed(record)
        channel, journal = record.channel, self._open_journal(record)
        documents = (record.content,) if record.tag is not None else ()
        pages = self._exchange_pages(
            journal, channel.sets, channel.shown[-1:], adds=True, kept=kept, documents=documents
        )
        return ChannelChange(None, (), channel, 0, pages)

    def _exchange_pages(
        self,
        journal: publish.DocumentJournal,
        goal: Sequence[ChannelSet],
        sets: Sequence[str],
        *,
        adds: bool,
        kept: frozenset[str] = frozenset(),
        documents: tuple[bytes, ...] = (),
    ) -> int:
        """Have the pages show sets; before, they are signed, and the ``documents`` that it will have."""
        sets_shown = self.released.read_documents([channel_set.set for channel_set in goal])
        folder, builds = self.release.channel_pages(self.channel), self.release.build_folder(self.channel)
        pages = make_channel_pages(self.release, self.channel, goal, sets_shown)
        contents: dict[str, tuple[bytes, ...]] = {path: (content,) for path, content in pages.items()}
        if documents:
            contents[self.release.channel_document(self.channel)] = documents
        self.snapshot.add(contents, folders=(folder,), channel_document=documents[-1] if documents else None)
        order = [] if publish.can_rename_at_once(self.store, folder) else self.released.sort_projects(sets)
        change = publish.PageExchange(folder, builds, pages, order, adds, kept)
        return publish.exchange_pages(self.store, change, journal.check)

    def _require_compatible(
        self, document: wheel_set.SetDocument, requires: set_conflicts.RequirementsByFile, channel: Channel
    ) -> tuple[str, ...]:
        """Raise ReleaseError for a set that people should not get; return what is allowed nevertheless.

        That is: installers would mix it with others, or it takes GPUs from people.
        """
        shown_documents = self.released.read_documents(channel.shown)
        fewer_notes = set_conflicts.require_no_lost_targets(
            document, shown_documents, self.channel, allow=self.allow_fewer_targets
        )
        set_conflicts.refuse_overlaps(document, shown_documents)
        allow = self.allow_unpinned
        unpinned_notes = set_conflicts.require_pins(document, requires, allow=allow)
        return (
            *unpinned_notes,
            *set_conflicts.require_ties(document, requires, shown_documents, allow=allow),
            *fewer_notes,
        )


def list_newer_sets(channel: Channel, set_id: str) -> tuple[str, ...]:
    """Return the sets that came to a channel after one, which it shows. Raises ReleaseError.

    While they are being taken away, they are those of the pending change.
    """
    pending = channel.pending
    if (
        pending is not None
        and pending.action == "demote"
        and [channel_set.set for channel_set in pending.goal[-1:]] == [set_id]
    ):
        return pending.sets
    require_shown(channel, set_id)
    return channel.shown[channel.shown.index(set_id) + 1 :]

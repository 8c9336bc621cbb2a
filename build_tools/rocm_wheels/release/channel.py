"""A channel: the sets that people get, and the one change of them that is being made.

Its document is the only file of a store that is exchanged and decides something. It is replaced by tag
alone, so that of two who begin a change one is told. A change goes:

1. the gate lets the set pass, and nothing on the channels of the family stands against it
2. claim: the document says what is to change
3. pages change, by what the document says; every write can be repeated
4. clear: the document says that it is done

Whoever comes after a run that was killed between 2 and 4 does 3 and 4, or puts the old sets back. With a
key the manifest is signed between 3 and 4.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from packaging.requirements import Requirement
from pydantic import Field, model_validator

from rocm_wheels.core import errors, parallel, process, records, tables
from rocm_wheels.index import signing
from rocm_wheels.models import lock
from rocm_wheels.release import (
    document_seal,
    next_step,
    pages,
    set_conflicts,
    set_needs,
    support,
    verdict_text,
    wheel_set,
)
from rocm_wheels.release.policy import CHANNEL_NAMES
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.release.verdict import Verdict
from rocm_wheels.stores.store import (
    ChangedInStoreError,
    Store,
    change_documents,
    read_or_none,
)

ChannelAction = Literal["promote", "demote", "abandon"]


class ChannelSet(records.Record):
    """A set on a channel: since when, by whom, the sha256 of its document, and what was allowed for it."""

    set: wheel_set.SetId
    document: lock.Sha256Digest
    when: str
    by: str
    notes: tuple[str, ...] = ()


class _Change(records.Record):
    """A change of a channel; ``policy`` is the digest of the policy by which sets came."""

    action: ChannelAction
    sets: tuple[wheel_set.SetId, ...] = Field(min_length=1)
    by: str
    policy: str = ""


class PendingChange(_Change):
    """A change that was begun. ``goal`` is what the channel shows when it is done, oldest first.

    ``adds`` says whether ``sets`` come or go: that decides which pages change first.
    """

    began: str
    goal: tuple[ChannelSet, ...]
    adds: bool

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, begun {self.began}"


class ChannelEvent(_Change):
    """A change that was made."""

    when: str
    revision: int

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.action} of {', '.join(self.sets)} by {self.by}, {self.when}"


class Channel(records.Record):
    """A channel of a family. ``sets`` are those that it shows, in the order in which they came."""

    schema_version: Literal[2] = Field(default=2, alias="schema")
    family: str
    channel: str
    revision: int = 0
    sets: tuple[ChannelSet, ...] = ()
    pending: PendingChange | None = None
    history: tuple[ChannelEvent, ...] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Channel:
        for channel_sets in (self.sets, self.pending.goal if self.pending else ()):
            if len({channel_set.set for channel_set in channel_sets}) < len(channel_sets):
                raise ValueError("a set is there twice")
        if self.pending is not None:
            change, kept = self.pending, self.sets
            if change.action == "promote":
                new = change.goal[-1:]
                kept = (*kept, *new) if tuple(entry.set for entry in new) == change.sets else ()
            elif change.action == "demote":
                kept = tuple(entry for entry in kept if entry.set not in change.sets)
            if change.goal != kept:
                raise ValueError(f"its goal is not what {change.action} makes of its sets")
        return self

    @property
    def current(self) -> str | None:
        """The id of the set that came last."""
        return self.sets[-1].set if self.sets else None

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the sets that it shows."""
        return tuple(channel_set.set for channel_set in self.sets)

    @property
    def policies(self) -> frozenset[str]:
        """The digests of the policies by which the sets came that it shows, or is about to show."""
        last = {set_id: event.policy for event in self.history if event.policy for set_id in event.sets}
        came = {last[set_id] for set_id in self.shown if set_id in last}
        return frozenset(came | {self.pending.policy} if self.pending is not None else came)

    @property
    def demoted(self) -> frozenset[str]:
        """The ids of the sets that it showed once."""
        demoted_ids = {set_id for event in self.history if event.action == "demote" for set_id in event.sets}
        return frozenset(demoted_ids - set(self.shown))

    @property
    def named(self) -> frozenset[str]:
        """The ids of all sets that it shows, has shown, or is about to show."""
        ids = {*self.shown, *(set_id for event in self.history for set_id in event.sets)}
        return frozenset(ids | {entry.set for entry in (self.pending.goal if self.pending else ())})

    @property
    def change_id(self) -> str:
        """The id of the pending change, or of the last one ("": none); who undoes a change keeps its id."""
        change = self.pending or (self.history[-1] if self.history else None)
        if change is None:
            return ""
        claimed = self.revision if self.pending else self.revision - 1
        words = (self.family, self.channel, str(claimed), *change.sets)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]

    def with_pending(self, pending: PendingChange) -> Channel:
        """Return it as it is while a change is being made."""
        return self.model_copy(update={"pending": pending, "revision": self.revision + 1})

    def without_pending(self) -> Channel:
        """Return it as it was before the pending change was begun."""
        return self.model_copy(update={"pending": None, "revision": self.revision - 1})

    def finish_pending(self) -> Channel:
        """Return it as it is when the pending change is made."""
        change, revision = self.pending, self.revision + 1
        if change is None:
            return self
        made = {name: getattr(change, name) for name in _Change.model_fields}
        event = ChannelEvent(**made, when=change.began, revision=revision)
        history = (*self.history, event)
        update = {"revision": revision, "sets": change.goal, "pending": None, "history": history}
        return self.model_copy(update=update)

    def to_json(self) -> bytes:
        """Return its file, which ends in a seal."""
        return document_seal.seal_record(self)


@dataclass(frozen=True)
class ChannelRecord:
    """A channel as it was read or written, with the tag of its document (``None``: there is none yet)."""

    channel: Channel
    tag: str | None


def read_channel(store: Store, paths: FamilyPaths, name: str) -> ChannelRecord:
    """Return a channel; one that nothing was promoted to is empty. DataError for a damaged document."""
    path = paths.channel_document(name)
    stored = read_or_none(store, path)
    if stored is None:
        return ChannelRecord(Channel(family=paths.family, channel=name), None)
    tip = "put it back from a copy of the store: it says what people get"
    channel = document_seal.parse_sealed(
        stored.content, Channel, where=store.url_of(path), title="the document of a channel", tip=tip
    )
    if (channel.family, channel.channel) != (paths.family, name):
        message = f"{store.url_of(path)} is of {channel.channel} of {channel.family}"
        raise errors.DataError(message, tip=tip)
    return ChannelRecord(channel, stored.tag)


def read_channels(store: Store, paths: FamilyPaths) -> dict[str, Channel]:
    """Return the channels of a family to which something was promoted, by name."""
    read = parallel.run_in_parallel(lambda name: read_channel(store, paths, name), CHANNEL_NAMES)
    return {record.channel.channel: record.channel for record in read if record.tag is not None}


def read_shown_sets(
    store: Store, paths: FamilyPaths, channel_sets: Sequence[ChannelSet]
) -> list[wheel_set.SetDocument]:
    """Return the sets of entries of a channel.

    Raises ReleaseError for one whose document is gone, DataError where it is another than then.
    """

    def read(entry: ChannelSet) -> wheel_set.SetDocument:
        document = wheel_set.read_stored_set(store, paths.family, entry.set)
        where = store.url_of(paths.set_document(entry.set))
        if document is None:
            message = (
                f"there is no set {entry.set} of {paths.family}, and a channel shows it: {where} is gone"
            )
            raise errors.ReleaseError(message, tip=wheel_set.DAMAGED_TIP)
        if document.digest != entry.document:
            message = f"{where} was changed after the set was promoted"
            raise errors.DataError(message, tip=wheel_set.DAMAGED_TIP)
        return document

    return parallel.run_in_parallel(read, channel_sets)


def read_remaining_sets(
    store: Store, paths: FamilyPaths, ids: Iterable[str], *, damaged_too: bool = True
) -> list[wheel_set.SetDocument]:
    """Return those of sets of which a document is left that can be read: of others no page can be made.

    With ``damaged_too`` off one that is damaged is a DataError.
    """

    def read(set_id: str) -> wheel_set.SetDocument | None:
        try:
            return wheel_set.read_stored_set(store, paths.family, set_id)
        except errors.DataError:
            if not damaged_too:
                raise
            return None

    return [document for document in parallel.run_in_parallel(read, ids) if document is not None]


def sort_projects(
    store: Store,
    paths: FamilyPaths,
    coming: Sequence[wheel_set.SetDocument],
    going: Sequence[wheel_set.SetDocument],
) -> list[str]:
    """Return the projects of sets that come to an index, and of those that go, dependencies first.

    Raises ReleaseError where METADATA of a set are gone that comes; one that goes may have lost files.
    """
    requires: dict[str, Sequence[Requirement]] = {}
    known = []
    for document in (*coming, *going):
        try:
            requires |= set_conflicts.read_all_requirements(store, paths, document)
            known.append(document)
        except (errors.ReleaseError, errors.DataError):
            if document in coming:
                raise
    # a companion alone comes after the torch of another set, and goes before it
    projects = {project for document in known for project in document.projects}
    own = set_conflicts.select_own_requirements(projects, requires)
    return set_conflicts.sort_by_dependencies(known, own)


class NameTakenError(errors.ReleaseError):
    """A file name of a set belongs to other bytes."""


def require_own_names(store: Store, document: wheel_set.SetDocument, channels: Mapping[str, Channel]) -> None:
    """Raise NameTakenError where a file name of a set belongs to other bytes.

    A name belongs to its bytes in all channels of a store for good: it is in people's lock files. So all sets
    are looked at that a channel shows or has shown; of one that was pruned nothing is known any more.
    """
    ids = sorted({set_id for channel in channels.values() for set_id in channel.named} - {document.id})
    own = {file.name: file.sha256 for file in document.files}
    others = read_remaining_sets(store, FamilyPaths(document.family), ids, damaged_too=False)
    taken = [
        (file.name, other.id)
        for other in others
        for file in other.files
        if own.get(file.name, file.sha256) != file.sha256
    ]
    if taken:
        name, set_id = taken[0]
        more = f" and {tables.format_count(len(taken) - 1, 'other')}" if len(taken) > 1 else ""
        raise NameTakenError(
            f"{name}{more} of {document.id} has other bytes in {set_id}, which people got",
            tip="a name belongs to its bytes for good, for it is in people's lock files: build the set with"
            f" another version; or demote {set_id} where it is shown, and stage these wheels with a build"
            " tag: rocm-wheels wheel retag --build-tag 1 WHEELS",
        )


def find_upgrade_faults(
    store: Store, paths: FamilyPaths, document: wheel_set.SetDocument, channel: Channel
) -> list[str]:
    """Return what people run into who upgrade to a set from those that a channel shows."""
    shown = read_shown_sets(store, paths, channel.sets)
    requires = set_conflicts.read_all_requirements(store, paths, document)
    return set_conflicts.find_upgrade_faults(document, requires, shown)


# ---- what may stand in the way of a change


def require_shown(channel: Channel, set_id: str) -> None:
    """Raise ReleaseError for a set that a channel does not show."""
    if set_id in channel.shown:
        return
    listed = ", ".join(reversed(channel.shown)) or "no sets"
    near = tables.suggest_name(set_id, channel.shown)
    raise errors.ReleaseError(
        f"{set_id} is not on {channel.channel} of {channel.family}{near}", tip=f"it shows {listed}"
    )


def _list_demands(
    store: Store,
    document: wheel_set.SetDocument,
    requires: set_conflicts.RequirementsByFile,
    channel: Channel,
    channels: Mapping[str, Channel],
    *,
    allow_fewer_targets: bool = False,
    other_indexes: Sequence[str] = (),
) -> tuple[Callable[[], tuple[str, ...] | None], ...]:
    """Return what must hold of a set that people are to get from a channel as it is now.

    Each raises ReleaseError where it does not: names belong to other bytes (``channels`` are all of its
    family, by name), installers would mix it with what is shown, it takes GPUs from people, or nobody brings
    what it requires. What is allowed nevertheless is returned, to be shown with the set.
    """
    own = set_conflicts.select_own_requirements(document.projects, requires)
    shown = read_shown_sets(store, FamilyPaths(document.family), channel.sets)
    return (  # a name belongs to its bytes in all channels alike
        partial(require_own_names, store, document, {**channels, channel.channel: channel}),
        partial(
            set_conflicts.require_no_lost_targets, document, shown, channel.channel, allow=allow_fewer_targets
        ),
        partial(set_conflicts.refuse_asan_mixture, document, shown),
        partial(set_conflicts.refuse_overlaps, document, shown),
        partial(set_conflicts.require_pins, document, own),
        partial(set_conflicts.require_ties, document, own, shown),
        partial(set_needs.require_exact_builds, document, requires),
        partial(
            set_needs.require_needs,
            set_needs.list_needs(document, requires),
            document,
            shown,
            other_indexes,
        ),
    )


def find_refusals(
    store: Store,
    document: wheel_set.SetDocument,
    names: Iterable[str] = CHANNEL_NAMES,
    *,
    other_indexes: Sequence[str] = (),
) -> dict[str, list[errors.ReleaseError | errors.DataError]]:
    """Return what promotions of a set would refuse as things are, whatever the gate says, by channel.

    Without what may be allowed (``allow_fewer_targets``). A channel that shows the set refuses nothing; a
    document that is damaged is refused, too: nothing is promoted until it is mended.
    """
    paths = FamilyPaths(document.family)
    refusals: dict[str, list[errors.ReleaseError | errors.DataError]] = {name: [] for name in names}
    try:
        present = read_channels(store, paths)
        requires = set_conflicts.read_all_requirements(store, paths, document)
    except (errors.ReleaseError, errors.DataError) as fault:
        return {name: [fault] for name in refusals}
    for name, found in refusals.items():
        channel = present.get(name, Channel(family=document.family, channel=name))
        if document.id in channel.shown:
            continue
        try:
            demands = _list_demands(store, document, requires, channel, present, other_indexes=other_indexes)
        except (errors.ReleaseError, errors.DataError) as fault:
            found.append(fault)
            continue
        for demand in demands:
            try:
                demand()
            except (errors.ReleaseError, errors.DataError) as refusal:
                found.append(refusal)
        if channel.pending is not None and document.id not in channel.pending.sets:
            found.append(make_pending_error(store, channel))
    return refusals


def find_sets_on(store: Store, name: str, begins: Iterable[str]) -> tuple[FamilyPaths, tuple[str, ...]]:
    """Return the family whose channel of this name shows, or showed, sets, and their whole ids.

    ``begins`` are ids, or how they begin. Raises ReleaseError for what no channel has and what could be
    several, UsageError for sets of several families.
    """
    families: dict[str, str] = {}  # by the ids that channels know
    damaged: errors.DataError | None = None
    for family in wheel_set.list_families(store):
        try:
            channel = read_channel(store, FamilyPaths(family), name).channel
        except errors.DataError as fault:  # of another family, perhaps
            damaged = damaged or fault
            continue
        changing = channel.pending.sets if channel.pending is not None else ()
        families |= dict.fromkeys((*channel.shown, *channel.demoted, *changing), family)
    chosen = []
    for begin in begins:
        matches = [set_id for set_id in families if set_id.startswith(begin)]
        matches = [begin] if begin in families else matches
        if len(matches) > 1 and begin:
            listed = ", ".join(sorted(matches))
            raise errors.ReleaseError(f"{begin} could be {listed}", tip="give more of the id")
        if not matches or not begin:
            if damaged is not None:
                raise damaged
            near = tables.suggest_name(begin, families)
            tip = f"`rocm-wheels set list {shlex.quote(store.url)} --channel {name}` lists what it shows"
            raise errors.ReleaseError(f"{begin or 'a set without a name'} is not on {name}{near}", tip=tip)
        chosen += matches
    paths = {families[set_id] for set_id in chosen}
    if len(paths) > 1:
        raise errors.UsageError(
            f"{', '.join(chosen)} are of {' and '.join(sorted(paths))}", tip="take away those of one family"
        )
    return FamilyPaths(paths.pop()), tuple(dict.fromkeys(chosen))


def require_pass(verdict: Verdict, store: Store, begun: Channel | None = None) -> Verdict:
    """Return what a gate said. Raises ReleaseError when it holds the set; ``begun`` is a channel in which a
    run that was killed has begun to show it.
    """
    if verdict.passed:
        return verdict
    reasons = "\n".join(f"{rule.title}: {verdict_text.describe_rule(rule)}" for rule in verdict.failures)
    tip = next_step.find_next_step(verdict, next_step.CommandWords(store.url))
    if begun is not None:
        reasons += f"\nan earlier run had passed and was killed: {begun.pending}"
        undo = f"undo what it did: {_format_undo_command(store, begun)}"
        tip = f"{tip}; or {undo}" if tip else undo
    raise errors.ReleaseError(f"{verdict.set} cannot go to {verdict.channel}:\n{reasons}", tip=tip or None)


def _format_undo_command(store: Store, channel: Channel) -> str:
    return shlex.join(["rocm-wheels", "set", "promote", store.url, "--abandon", channel.change_id])


def make_pending_error(store: Store, channel: Channel) -> errors.ReleaseError:
    """Return the error of who finds that a channel is being changed by another."""
    undo = _format_undo_command(store, channel)
    tip = f"wait for it; if that run is gone, run it again to finish it, or undo it: {undo}"
    if channel.pending is not None and channel.pending.action == "abandon":
        tip = f"wait for it; if that run is gone, finish it: {undo}"
    message = f"{channel.channel} of {channel.family} is being changed: {channel.pending}"
    return errors.ReleaseError(message, tip=tip)


def _make_overtaken_error(channel: Channel) -> ChangedInStoreError:
    last = channel.pending or (channel.history[-1] if channel.history else "it has no history")
    return ChangedInStoreError(
        f"{channel.channel} was changed by another process in the meantime: {last}",
        tip="look at it, then run the same command again: it sees to the pages, too",
    )


def find_change(store: Store, change_id: str) -> tuple[FamilyPaths, str]:
    """Return the family and the channel of a change that is pending, or was the last one there.

    Raises ReleaseError for an id that no channel of the store knows.
    """
    damaged: errors.DataError | None = None
    for paths in map(FamilyPaths, wheel_set.list_families(store)):
        for name in CHANNEL_NAMES:
            try:
                channel = read_channel(store, paths, name).channel
            except errors.DataError as fault:  # of another channel, perhaps
                damaged = damaged or fault
                continue
            if change_id and channel.change_id == change_id:
                return paths, name
    if damaged is not None:
        raise damaged
    raise errors.ReleaseError(
        f"no change {change_id} is pending in {store.url}",
        tip=f"`rocm-wheels set list {shlex.quote(store.url)} --channel NAME` says which one is",
    )


# ---- changes

_WAIT_SECONDS: Sequence[float] = (0.2, 0.5, 1, 2, 5)  # seconds in which another finishes what it has begun


@dataclass(frozen=True)
class ChannelActor:
    """Who changes a channel, and when (UTC, ISO 8601)."""

    by: str
    now: str


@dataclass(frozen=True)
class ChannelChange:
    """What was done: to which sets, and how many pages changed.

    ``finished`` says that an earlier run had begun it; ``channel`` is as it is now. With nothing to do,
    ``action`` is ``None``.
    """

    action: ChannelAction | None
    sets: tuple[str, ...]
    channel: Channel
    pages: int = 0
    finished: bool = False


@dataclass(frozen=True)
class _Claim:
    """A channel in which a change is pending that is ours to make; with none there is nothing to do.

    ``verdict`` tells what is known of a new set; ``resumed``: an earlier run had begun the change.
    """

    record: ChannelRecord
    verdict: Verdict | None = None
    resumed: bool = False


@dataclass(frozen=True)
class Promoter:
    """One who changes a channel of a family. ``signer`` signs what is shown.

    ``other_indexes`` are where people find what the channel has not. What a change raises is a ReleaseError;
    the same call carries on afterwards.
    """

    store: Store
    paths: FamilyPaths
    channel: str
    actor: ChannelActor
    signer: signing.ReleaseSigner | None = None
    other_indexes: Sequence[str] = ()

    @cached_property
    def manifest(self) -> signing.ManifestKeeper:
        """What is signed of the channel."""
        path = self.paths.channel_manifest(self.channel)
        return signing.ManifestKeeper(self.store, path, self.paths.family, self.channel, self.signer)

    def read_channel_record(self) -> ChannelRecord:
        """Return the channel as it is now."""
        return read_channel(self.store, self.paths, self.channel)

    def read_signed(self) -> ChannelRecord:
        """Return it as it is now.

        Raises ReleaseError where it is not what was signed, UsageError where a change needs a key.
        """
        record = self.read_channel_record()
        channel = record.channel
        before = channel.without_pending() if channel.pending is not None else channel
        possible = {before.to_json(), channel.to_json(), channel.finish_pending().to_json()}
        is_new = before == Channel(family=channel.family, channel=channel.channel)
        self.manifest.require_channel(possible, is_new=is_new)
        return record

    def promote(
        self,
        document: wheel_set.SetDocument,
        ask_gate: Callable[[], Verdict],
        *,
        allow_fewer_targets: bool = False,
    ) -> ChannelChange:
        """Show a staged set.

        ``ask_gate`` is asked first, and again before people see anything: results may have come meanwhile,
        also in the days since a run was killed. ``allow_fewer_targets``: a set for all GPUs is shown without
        code for some that people get code for now; what is told of it says so.
        """

        def claim() -> _Claim:
            record = self.read_signed()
            channel = record.channel
            if channel.pending is not None:
                self._require_same_change(channel, "promote", (document.id,))
                verdict = require_pass(ask_gate(), self.store, channel)
                self._require_names_still_own(record, document)  # that run may not have come so far
                return _Claim(record, verdict, resumed=True)
            if document.id in channel.shown:
                return _Claim(record)
            require_pass(ask_gate(), self.store)
            demands = _list_demands(
                self.store,
                document,
                set_conflicts.read_all_requirements(self.store, self.paths, document),
                channel,
                self._read_other_channels(),
                allow_fewer_targets=allow_fewer_targets,
                other_indexes=self.other_indexes,
            )
            notes = tuple(note for demand in demands for note in demand() or ())
            verdict = require_pass(ask_gate(), self.store)
            entry = ChannelSet(
                set=document.id,
                document=document.digest,
                when=self.actor.now,
                by=self.actor.by,
                notes=notes,
            )
            claimed = self._claim(record, "promote", (document.id,), (*channel.sets, entry), verdict.policy)
            self._require_names_still_own(claimed, document)
            return _Claim(claimed, verdict)

        return self._make_change(claim)

    def demote(self, set_ids: Sequence[str]) -> ChannelChange:
        """Take sets away.

        Their files stay where they are: what people have locked can be installed from each set's own index.
        """

        def claim() -> _Claim:
            record = self.read_signed()
            channel = record.channel
            if channel.pending is not None:
                self._require_same_change(channel, "demote", set_ids)
                return _Claim(record, resumed=True)
            if all(set_id in channel.demoted for set_id in set_ids):
                return _Claim(record)
            for set_id in set_ids:
                require_shown(channel, set_id)
            goal = tuple(entry for entry in channel.sets if entry.set not in set_ids)
            staying = read_shown_sets(self.store, self.paths, goal)  # what cannot be shown is not begun
            self._require_kept_needs(staying, set_ids)
            return _Claim(self._claim(record, "demote", tuple(set_ids), goal))

        return self._make_change(claim)

    def abandon(self, change_id: str) -> ChannelChange:
        """Put back what the channel showed before the pending change was begun, which has this id."""

        def claim() -> _Claim:
            record = self.read_signed()
            channel, pending, history = record.channel, record.channel.pending, record.channel.history
            if pending is None and channel.change_id == change_id and history[-1].action == "abandon":
                return _Claim(record)
            if pending is None:
                raise errors.ReleaseError(
                    f"nothing is pending on {self.channel} of {channel.family}",
                    tip="to take away what was promoted: rocm-wheels set demote",
                )
            if channel.change_id != change_id:
                raise make_pending_error(self.store, channel)
            if pending.action == "abandon":
                return _Claim(record, resumed=True)
            self.manifest.begin_change(channel.without_pending().to_json())
            return _Claim(self._claim(record, "abandon", pending.sets, channel.sets))

        return self._make_change(claim)

    def _require_kept_needs(self, staying: Sequence[wheel_set.SetDocument], going: Sequence[str]) -> None:
        """Raise ReleaseError where sets are to go that a companion needs, which stays."""
        before = [*staying, *read_remaining_sets(self.store, self.paths, going)]
        for document in (item for item in staying if item.torch_line is None):
            needs = set_needs.read_needs(self.store, self.paths, document) or ()
            met = [need for need in needs if not set_needs.find_lack(need, document, before)]
            try:
                set_needs.require_needs(met, document, staying, self.other_indexes)
            except errors.ReleaseError as lack:
                raise errors.ReleaseError(
                    f"{document.id} would stay without what it needs: {lack.message}",
                    tip=f"take it away as well: --set {document.id}",
                ) from None

    def _require_names_still_own(self, record: ChannelRecord, document: wheel_set.SetDocument) -> None:
        """Raise NameTakenError where names of a claimed set belong to others; the claim is taken back.

        Who claims another channel sees our claim, or we see that one, before any page is written. Where it
        cannot be read what others have, the claim stays: the same command looks again.
        """
        try:
            require_own_names(self.store, document, self._read_other_channels())
        except NameTakenError:
            before = record.channel.without_pending().to_json()
            self._exchange_pages(record, record.channel.sets, (document.id,), adds=False)
            self.manifest.begin_change(before)  # it may state what was to be
            self.store.replace(self.paths.channel_document(self.channel), before, record.tag)
            raise

    def _require_same_change(self, channel: Channel, action: ChannelAction, sets: Sequence[str]) -> None:
        pending = channel.pending
        if pending is None or pending.action != action or set(sets) != set(pending.sets):
            raise make_pending_error(self.store, channel)

    def _claim(
        self,
        record: ChannelRecord,
        action: ChannelAction,
        sets: tuple[str, ...],
        goal: tuple[ChannelSet, ...],
        policy: str = "",
    ) -> ChannelRecord:
        """Write down what is to change. Raises ChangedInStoreError when somebody else wrote meanwhile."""
        before, undone, adds = record.channel, record.channel.pending, action == "promote"
        if undone is not None:  # an abandoned change goes back to what was before it
            before, adds = before.without_pending(), not undone.adds
        pending = PendingChange(
            action=action,
            sets=sets,
            by=self.actor.by,
            began=self.actor.now,
            goal=goal,
            adds=adds,
            policy=policy,
        )
        claimed = before.with_pending(pending)
        tag = self.store.replace(self.paths.channel_document(self.channel), claimed.to_json(), record.tag)
        return ChannelRecord(claimed, tag)

    def _make_change(self, claim: Callable[[], _Claim]) -> ChannelChange:
        """Claim the channel, again where others were faster, and make the change."""
        claimed = change_documents(claim, description=f"{self.channel} of {self.paths.family}")
        if claimed.record.channel.pending is None:
            return ChannelChange(None, (), claimed.record.channel)
        return self._complete_pending(claimed.record, claimed.verdict, finished=claimed.resumed)

    def _complete_pending(
        self, record: ChannelRecord, verdict: Verdict | None = None, *, finished: bool = False
    ) -> ChannelChange:
        """Do what is pending, and say so in the document; ``verdict`` tells what is known of a new set."""
        pending = record.channel.pending
        assert pending is not None
        settled, count = record.channel.finish_pending(), 0
        try:
            count = self._exchange_pages(record, pending.goal, pending.sets, verdict, adds=pending.adds)
            self.manifest.begin_change(settled.to_json())
            self.store.replace(self.paths.channel_document(self.channel), settled.to_json(), record.tag)
        except ChangedInStoreError:
            latest = self._wait_until_quiet(record)
            if latest.tag == record.tag:
                raise  # the change is ours; somebody has laid hands on a page
            if latest.channel.pending is None:
                # our last write may have come after the other's look at that page
                shown = latest.channel.shown[-1:]
                self._exchange_pages(latest, latest.channel.sets, shown, verdict, adds=True)
            if settled.history[-1] not in latest.channel.history:
                raise _make_overtaken_error(latest.channel) from None
            settled = latest.channel  # another run did the same, and was faster
        return ChannelChange(pending.action, pending.sets, settled, count, finished)

    def _wait_until_quiet(self, record: ChannelRecord) -> ChannelRecord:
        """Return the channel when what others have begun is done, or they seem to be gone."""
        for pause in _WAIT_SECONDS:
            latest = self.read_channel_record()
            if latest.tag == record.tag or latest.channel.pending is None:
                return latest
            process.wait_or_stop(pause)
        return self.read_channel_record()

    def _exchange_pages(
        self,
        record: ChannelRecord,
        goal: Sequence[ChannelSet],
        sets: Sequence[str],
        verdict: Verdict | None = None,
        *,
        adds: bool,
    ) -> int:
        """Have the pages show sets, those of ``sets`` by the order of their dependencies."""
        documents = read_shown_sets(self.store, self.paths, goal)
        coming = [document for document in documents if adds and document.id in sets]
        going = [] if adds else read_remaining_sets(self.store, self.paths, sets)
        order = sort_projects(self.store, self.paths, coming, going)
        folder = self.paths.channel_pages(self.channel)
        notes = support.read_notes(self.store, self.paths, self.channel)
        if verdict is not None:
            notes[verdict.set] = pages.SetNote(verdict.state, verdict_text.list_shown_lines(verdict))
        notes = {
            entry.set: notes.get(entry.set, pages.SetNote("untested")).with_lines(entry.notes)
            for entry in goal
        }
        wanted = pages.make_channel_pages(self.paths, self.channel, documents, notes)

        def check() -> None:
            info = self.store.head(self.paths.channel_document(self.channel))
            if (info.tag if info else None) != record.tag:
                raise _make_overtaken_error(self.read_channel_record().channel)

        return pages.exchange_pages(self.store, folder, wanted, order, check, adds=adds)

    def _read_other_channels(self) -> dict[str, Channel]:
        channels = read_channels(self.store, self.paths)
        return {name: channel for name, channel in channels.items() if name != self.channel}

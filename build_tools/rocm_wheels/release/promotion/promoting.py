"""Promote, demote, abandon, tell anew: claim the channel, change its pages, clear the claim.

1. a set that its gate lets pass is copied to the release area; nobody has a link to it yet
2. the channel's document says what is to change: of two who say so, one is told of the other
3. pages change, by what the document says; every write can be repeated
4. the document says that it is done

Whoever comes after a run that was killed between 2 and 4 does 3 and 4, or puts the old sets back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rocm_wheels import ending
from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.gate.verdict import Verdict, shown_state
from rocm_wheels.release.layout import Places
from rocm_wheels.release.promotion.channel import (
    Action,
    Channel,
    Held,
    Pending,
    Shown,
    read_channel,
    write_channel,
)
from rocm_wheels.release.promotion.copying import copy_set
from rocm_wheels.release.promotion.fewer import require_targets
from rocm_wheels.release.promotion.objections import (
    busy,
    lost,
    other_change,
    require_pass,
    require_same,
    require_shown,
)
from rocm_wheels.release.promotion.overlaps import refuse_overlaps
from rocm_wheels.release.promotion.pages import index_of
from rocm_wheels.release.promotion.released import Released
from rocm_wheels.release.promotion.switching import Exchange, exchange, is_one_rename
from rocm_wheels.release.promotion.ties import Requires, require_pins, require_tied, requires_of
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.stores.store import Changed, Store

_ATTEMPTS = 5
_PATIENCE: Sequence[float] = (0.2, 0.5, 1, 2, 5)  # seconds in which another finishes what it has begun


@dataclass(frozen=True)
class Actor:
    """Who changes a channel, and when (UTC, ISO 8601)."""

    by: str
    now: str


@dataclass(frozen=True)
class Done:
    """What was done: to which sets, how many files were copied, how many pages changed.

    ``finished`` says that an earlier run had begun it; ``channel`` is as it is now. With nothing to do,
    ``action`` is ``None``.
    """

    action: Action | None
    sets: tuple[str, ...]
    channel: Channel
    copied: int = 0
    pages: int = 0
    finished: bool = False


@dataclass(frozen=True)
class Promoter:
    """One who changes a channel. ``staging`` are the places where the family's sets are staged.

    ``allow_unpinned``: wheels that do not pin each other are shown, and the pages say so.
    ``allow_fewer_targets``: so is a set for all GPUs without code for some that people get code for now; what
    is told of it says so.
    """

    store: Store
    staging: Places
    channel: str
    actor: Actor
    allow_unpinned: bool = False
    allow_fewer_targets: bool = False

    @property
    def release(self) -> Places:
        """The places of what was released."""
        return Places(self.staging.layout, self.staging.family, "release")

    @cached_property
    def released(self) -> Released:
        """The sets that were released."""
        return Released(self.store, self.release)

    def held(self) -> Held:
        """Return the channel as it is now."""
        return read_channel(self.store, self.release, self.channel)

    def promote(self, document: SetDocument, judge: Callable[[], Verdict]) -> Done:
        """Show a staged set. Raises ReleaseError; the same call carries on afterwards.

        ``judge`` is asked before anything is copied, and again before people see anything: results may have
        come meanwhile, also in the days since a run was killed.
        """
        copied, requires = 0, None
        for held in self._attempts():
            channel = held.channel
            if channel.pending is not None:
                require_same(channel, "promote", (document.id,))
                require_pass(judge(), self.store, channel)
                return self._complete(held, copied, finished=True)
            if document.id in channel.shown:
                return self._renew(held)
            verdict = require_pass(judge(), self.store)
            if requires is None:
                requires = requires_of(self.store, self.staging, document)
                self._require_fitting(document, requires, channel)
                copied = copy_set(self.store, self.staging, self.release, document)
                self.released.learn(requires)
                verdict = require_pass(judge(), self.store)
            loose = self._require_fitting(document, requires, channel)
            state = shown_state(verdict)
            by, now = self.actor.by, self.actor.now
            shown = Shown(set=document.id, when=now, by=by, state=state.word, told=(*state.lines, *loose))
            claimed = self._claim(held, "promote", (document.id,), (*channel.sets, shown))
            if claimed is not None:
                return self._complete(claimed, copied)
        raise busy(self.held().channel)

    def demote(self, wanted: Sequence[str] | None) -> Done:
        """Take sets away, by default the newest. Raises ReleaseError; the same call carries on afterwards.

        Their files stay where they are: what people have locked can be installed from each set's own index.
        """
        for held in self._attempts():
            channel = held.channel
            if channel.pending is not None:
                require_same(channel, "demote", wanted)
                return self._complete(held, finished=True)
            if wanted is None and not channel.sets:
                raise ReleaseError(f"{self.channel} of {channel.family} shows no sets")
            sets = channel.shown[-1:] if wanted is None else tuple(wanted)
            if all(one in channel.demoted for one in sets):
                return self._renew(held)
            for one in sets:
                require_shown(channel, one)
            goal = tuple(one for one in channel.sets if one.set not in sets)
            claimed = self._claim(held, "demote", sets, goal)
            if claimed is not None:
                return self._complete(claimed)
        raise busy(self.held().channel)

    def _attempts(self) -> Iterator[Held]:
        """Yield the channel as it is now, for each attempt to change it; a refresh is completed before."""
        for _ in range(_ATTEMPTS):
            held = self.held()
            pending = held.channel.pending
            if pending is not None and pending.action == "refresh":
                self._complete(held)
            else:
                yield held

    def tell(self, held: Held, goal: tuple[Shown, ...]) -> Done:
        """Have the pages tell what is known now of the sets that they show; complete it where it was begun.

        Raises Changed when somebody else changed the channel meanwhile.
        """
        pending = held.channel.pending
        if pending is not None:
            require_same(held.channel, "refresh", None)
            return self._complete(held, finished=True)
        told = tuple(new.set for new, old in zip(goal, held.channel.sets, strict=True) if new != old)
        claimed = self._claim(held, "refresh", told, goal)
        if claimed is None:
            raise lost(self.held().channel)
        return self._complete(claimed)

    def abandon(self, set_id: str) -> Done:
        """Put back what the channel showed before a change of a set was begun.

        Raises ReleaseError when there is none.
        """
        for _ in range(_ATTEMPTS):
            held = self.held()
            pending = held.channel.pending
            if pending is None:
                what = f"nothing is pending on {self.channel} of {held.channel.family}"
                raise ReleaseError(what, tip="to take away what was promoted: rocm-wheels demote")
            if set_id not in pending.sets:
                raise other_change(held.channel)
            if pending.action == "abandon":
                return self._complete(held, finished=True)
            claimed = self._claim(held, "abandon", pending.sets, held.channel.sets, adds=not pending.adds)
            if claimed is not None:
                return self._complete(claimed)
        raise busy(self.held().channel)

    def _claim(
        self,
        held: Held,
        action: Action,
        sets: tuple[str, ...],
        goal: tuple[Shown, ...],
        *,
        adds: bool | None = None,
    ) -> Held | None:
        """Write down what is to change; ``None`` when somebody else wrote meanwhile."""
        comes = action == "promote" if adds is None else adds
        by, now = self.actor.by, self.actor.now
        pending = Pending(action=action, sets=sets, by=by, began=now, goal=goal, adds=comes)
        try:
            return write_channel(self.store, self.release, held.channel.with_pending(pending), held.tag)
        except Changed:
            return None

    def _complete(self, held: Held, copied: int = 0, *, finished: bool = False) -> Done:
        """Do what is pending, and say so in the document."""
        pending = held.channel.pending
        assert pending is not None
        sets = () if pending.action == "refresh" else pending.sets  # links stay: any order will do
        settled, pages = held.channel.settled(), 0
        try:
            pages = self._exchange(held, pending.goal, sets, adds=pending.adds)
            write_channel(self.store, self.release, settled, held.tag)
        except Changed:
            found = self._when_quiet(held)
            if found.tag == held.tag:
                raise  # the change is ours; somebody has laid hands on a page
            if found.channel.pending is None:
                self._renew(found)  # our last write may have come after the other's look at that page
            if settled.history[-1] not in found.channel.history:
                raise lost(found.channel) from None
            settled = found.channel  # another run did the same, and was faster
        return Done(pending.action, pending.sets, settled, copied, pages, finished)

    def _when_quiet(self, held: Held) -> Held:
        """Return the channel when what others have begun is done, or they seem to be gone."""
        for pause in _PATIENCE:
            found = self.held()
            if found.tag == held.tag or found.channel.pending is None:
                return found
            ending.pause(pause)
        return self.held()

    def _renew(self, held: Held) -> Done:
        """See to it that the pages are what the document says: as a rule nothing is written."""
        pages = self._exchange(held, held.channel.sets, held.channel.shown[-1:], adds=True)
        return Done(None, (), held.channel, 0, pages)

    def _exchange(self, held: Held, goal: Sequence[Shown], sets: Sequence[str], *, adds: bool) -> int:
        def check() -> None:
            found = self.store.head(self.release.channel(self.channel))
            if (found.tag if found else None) != held.tag:
                raise lost(self.held().channel)

        documents = self.released.documents([one.set for one in goal])
        pages = index_of(self.release, self.channel, goal, documents)
        folder, builds = self.release.channel_pages(self.channel), self.release.builds(self.channel)
        order = [] if is_one_rename(self.store, folder) else self.released.in_order(sets)
        return exchange(self.store, Exchange(folder, builds, pages, order, adds, check))

    def _require_fitting(
        self, document: SetDocument, requires: Requires, channel: Channel
    ) -> tuple[str, ...]:
        """Raise ReleaseError for a set that people should not get; return what is allowed nevertheless.

        That is: installers would mix it with others, or it takes GPUs from people.
        """
        shown = self.released.documents(channel.shown)
        fewer = require_targets(document, shown, self.channel, allow=self.allow_fewer_targets)
        refuse_overlaps(document, shown)
        allow = self.allow_unpinned
        loose = require_pins(document, requires, allow=allow)
        return (*loose, *require_tied(document, requires, shown, allow=allow), *fewer)


def newer_than(channel: Channel, set_id: str) -> tuple[str, ...]:
    """Return the sets that came to a channel after one, which it shows. Raises ReleaseError.

    While they are being taken away, they are those of the pending change.
    """
    pending = channel.pending
    if (
        pending is not None
        and pending.action == "demote"
        and [one.set for one in pending.goal[-1:]] == [set_id]
    ):
        return pending.sets
    require_shown(channel, set_id)
    return channel.shown[channel.shown.index(set_id) + 1 :]

"""Promote, demote, abandon, tell anew: claim the channel, change its pages, clear the claim.

1. a set that its gate lets pass is copied to the release area; nobody has a link to it yet
2. the channel's document says what is to change: of two who say so, one is told of the other
3. pages change, by what the document says; every write can be repeated
4. the document says that it is done

Whoever comes after a run that was killed between 2 and 4 does 3 and 4, or puts the old sets back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from rocm_wheels.errors import ReleaseError
from rocm_wheels.records import did_you_mean
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
from rocm_wheels.release.promotion.pages import documents_of, pages_of
from rocm_wheels.release.promotion.switching import Exchange, exchange
from rocm_wheels.release.promotion.ties import (
    dependencies_first,
    refuse_overlaps,
    require_pins,
    requires_of,
)
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.release.stores.store import AGAIN, Changed, Store

_ATTEMPTS = 5


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
    """

    store: Store
    staging: Places
    channel: str
    actor: Actor
    allow_unpinned: bool = False

    @property
    def release(self) -> Places:
        """The places of what was released."""
        return Places(self.staging.layout, self.staging.family, "release")

    def held(self) -> Held:
        """Return the channel as it is now."""
        return read_channel(self.store, self.release, self.channel)

    def promote(self, document: SetDocument, judge: Callable[[], Verdict]) -> Done:
        """Show a staged set. Raises ReleaseError; the same call carries on afterwards.

        ``judge`` is asked unless the gate was passed when this was begun.
        """
        copied, verdict = 0, None
        loose: tuple[str, ...] = ()
        for _ in range(_ATTEMPTS):
            held = self.held()
            if held.channel.pending is not None:
                if held.channel.pending.action == "refresh":
                    self._complete(held)
                    continue
                _require_same(held.channel, "promote", (document.id,))
                return self._complete(held, copied, finished=True)
            if document.id in held.channel.shown:
                return self._renew(held)
            if verdict is None:
                verdict = judge()
                _require_pass(verdict, self.store)
                requires = requires_of(self.store, self.staging, document)
                loose = require_pins(document, requires, allow=self.allow_unpinned)
                refuse_overlaps(document, documents_of(self.store, self.release, held.channel.shown))
                copied = copy_set(self.store, self.staging, self.release, document)
            refuse_overlaps(document, documents_of(self.store, self.release, held.channel.shown))
            state = shown_state(verdict)
            by, now = self.actor.by, self.actor.now
            shown = Shown(set=document.id, when=now, by=by, state=state.word, told=(*state.lines, *loose))
            claimed = self._claim(held, "promote", (document.id,), (*held.channel.sets, shown))
            if claimed is not None:
                return self._complete(claimed, copied)
        raise self._busy()

    def demote(self, wanted: Sequence[str] | None) -> Done:
        """Take sets away, by default the newest. Raises ReleaseError; the same call carries on afterwards.

        Their files stay where they are: what people have locked can be installed from each set's own index.
        """
        for _ in range(_ATTEMPTS):
            held = self.held()
            channel = held.channel
            if channel.pending is not None:
                if channel.pending.action == "refresh":
                    self._complete(held)
                    continue
                _require_same(channel, "demote", wanted)
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
        raise self._busy()

    def tell(self, held: Held, goal: tuple[Shown, ...]) -> Done:
        """Have the pages tell what is known now of the sets that they show; complete it where it was begun.

        Raises Changed when somebody else changed the channel meanwhile.
        """
        pending = held.channel.pending
        if pending is not None:
            _require_same(held.channel, "refresh", None)
            return self._complete(held, finished=True)
        told = tuple(new.set for new, old in zip(goal, held.channel.sets, strict=True) if new != old)
        claimed = self._claim(held, "refresh", told, goal)
        if claimed is None:
            raise _lost(self.held().channel)
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
                raise _other(held.channel)
            if pending.action == "abandon":
                return self._complete(held, finished=True)
            claimed = self._claim(held, "abandon", pending.sets, held.channel.sets, adds=not pending.adds)
            if claimed is not None:
                return self._complete(claimed)
        raise self._busy()

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
        pages = self._exchange(held, pending.goal, sets, adds=pending.adds)
        settled = held.channel.settled()
        try:
            write_channel(self.store, self.release, settled, held.tag)
        except Changed:
            found = self.held().channel
            if settled.history[-1] not in found.history:
                raise _lost(found) from None
            settled = found  # another run did the same, and was faster
        return Done(pending.action, pending.sets, settled, copied, pages, finished)

    def _renew(self, held: Held) -> Done:
        """See to it that the pages are what the document says: as a rule nothing is written."""
        pages = self._exchange(held, held.channel.sets, held.channel.shown[-1:], adds=True)
        return Done(None, (), held.channel, 0, pages)

    def _exchange(self, held: Held, goal: Sequence[Shown], sets: Sequence[str], *, adds: bool) -> int:
        def check() -> None:
            found = self.store.head(self.release.channel(self.channel))
            if (found.tag if found else None) != held.tag:
                raise _lost(self.held().channel)

        documents = documents_of(self.store, self.release, sets)
        requires: dict[str, Sequence[Requirement]] = {}
        for document in documents:
            requires.update(requires_of(self.store, self.release, document))
        pages = pages_of(self.store, self.release, self.channel, goal)
        order = dependencies_first(documents, requires)
        folder, builds = self.release.channel_pages(self.channel), self.release.builds(self.channel)
        return exchange(self.store, Exchange(folder, builds, pages, order, adds, check))

    def _busy(self) -> ReleaseError:
        return ReleaseError(f"{self.channel} is changed by others all the time", tip=AGAIN)


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


def require_shown(channel: Channel, set_id: str) -> None:
    """Raise ReleaseError for a set that a channel does not show."""
    if set_id in channel.shown:
        return
    shown = ", ".join(reversed(channel.shown)) or "no sets"
    what = f"{set_id} is not on {channel.channel} of {channel.family}"
    raise ReleaseError(f"{what}{did_you_mean(set_id, channel.shown)}", tip=f"it shows {shown}")


def _require_pass(verdict: Verdict, store: Store) -> None:
    if verdict.passed:
        return
    held = "\n".join(f"{one.title}: {one.why}" for one in verdict.failures)
    tip = verdict.next_step.replace(" STORE ", f" {store.url} ") or None
    raise ReleaseError(f"{verdict.set} may not go to {verdict.channel}:\n{held}", tip=tip)


def _require_same(channel: Channel, action: Action, sets: Sequence[str] | None) -> None:
    """Raise ReleaseError that names what is pending, where that is something else."""
    pending = channel.pending
    assert pending is not None
    if pending.action != action or (sets is not None and set(sets) != set(pending.sets)):
        raise _other(channel)


def _other(channel: Channel) -> ReleaseError:
    pending = channel.pending
    assert pending is not None
    named = f"--channel {channel.channel} --family {channel.family} --set {pending.sets[0]}"
    back = f"rocm-wheels promote STORE {named} --abandon"
    tip = f"wait for it; if that run is gone, run it again to finish it, or undo it: {back}"
    if pending.action == "abandon":
        tip = f"wait for it; if that run is gone, finish it: {back}"
    if pending.action == "refresh":
        tip = "wait for it; if that run is gone, `rocm-wheels refresh STORE` finishes it"
    return ReleaseError(f"{channel.channel} of {channel.family} is being changed: {pending}", tip=tip)


def _lost(found: Channel) -> Changed:
    last = found.pending or (found.history[-1] if found.history else "nothing is known of it")
    tip = "look at it, then run the same command again: it sees to the pages, too"
    return Changed(f"{found.channel} was changed by somebody else meanwhile: {last}", tip=tip)

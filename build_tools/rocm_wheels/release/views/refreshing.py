"""Refresh: what is told of released sets, their views and support.json follow what is known now.

For a channel, in this order; each step begins by reading what it may replace, and evidence after that:

1. evidence that came since is copied to the release area
2. the channel's document and pages tell of it (a change like a promotion: claimed, made, cleared)
3. what is known, and which views are to change, is written down; their pages are exchanged; that is cleared
4. support.json of the family, then that of all

Whoever comes after a run that was killed does the rest. What is as it should be is not written, and a set is
only looked at again when there is more evidence of it, or another policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.project import Platform
from rocm_wheels.parallel import each
from rocm_wheels.release.evidence_store import evidence_of
from rocm_wheels.release.gate.policy import Policy
from rocm_wheels.release.layout import Layout, Places
from rocm_wheels.release.newest import PLATFORMS
from rocm_wheels.release.promotion.channel import Channel, Held, Shown, read_channel
from rocm_wheels.release.promotion.promoting import Actor, Promoter
from rocm_wheels.release.promotion.released import Released
from rocm_wheels.release.views.evidence import bring_evidence, evidence_names
from rocm_wheels.release.views.known import Kept, Known, KnownSets, View, read_known
from rocm_wheels.release.views.platforms import Apart
from rocm_wheels.release.views.showing import (
    planned_views,
    show,
    targets_with_pages,
    wanted_views,
)
from rocm_wheels.release.views.support import write_support, write_support_of_all
from rocm_wheels.release.views.telling import digest_of, digest_of_all, known_of, without_age
from rocm_wheels.stores.store import AGAIN, Changed, Store

_ATTEMPTS = 5
_JOBS = 8
Moved = tuple[str, str | None, str | None, Platform]


@dataclass(frozen=True)
class Refreshed:
    """What was done for a channel.

    ``told`` are the sets of which its pages tell something else now, ``views`` those that changed: (target,
    set before, set now, their platform), ``None`` for none. ``evidence`` counts copied results, ``pages``
    pages that were written or removed. ``left`` says who is changing the channel: then nothing was done.
    ``failing`` are sets that it shows although something failed since.
    """

    family: str
    channel: str
    told: tuple[str, ...] = ()
    views: tuple[Moved, ...] = ()
    evidence: int = 0
    pages: int = 0
    left: str = ""
    failing: tuple[Known, ...] = ()
    other_policy: bool = False


@dataclass(frozen=True)
class Refresher:
    """One who refreshes. ``policy`` is that of all channels, ``now`` the time in UTC.

    ``again``: sets are judged again where there is something new; otherwise those stay as they were of which
    something is known, because nobody said by which policy.
    """

    store: Store
    layout: Layout
    policy: Policy
    by: str
    now: datetime
    env: Mapping[str, str]
    again: bool = True
    _digest: str = field(init=False)
    _ageless: Policy = field(init=False)

    def __post_init__(self) -> None:
        """Find out once what every set needs."""
        object.__setattr__(self, "_digest", digest_of(self.policy))
        object.__setattr__(self, "_ageless", without_age(self.policy))

    def channel(self, family: str, channel: str) -> Refreshed | None:
        """Refresh a channel and the documents about it; ``None`` when nothing was ever promoted to it.

        Raises ReleaseError; the same call carries on afterwards.
        """
        last: Changed | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._once(family, channel)
            except Changed as cause:
                last = cause
        raise ReleaseError(f"{channel} of {family} is changed by others all the time", tip=AGAIN) from last

    def support(self, families: Sequence[str]) -> list[str]:
        """Bring support.json of families, then that of all, to what is known; return those that changed."""
        places = [Places(self.layout, one, "release") for one in families]
        changed = [one.support for one in places if write_support(self.store, one)]
        if write_support_of_all(self.store, self.layout):
            changed.append(f"{self.layout.release}/{self.layout.support}")
        return changed

    def _once(self, family: str, channel: str) -> Refreshed | None:
        promoter = self._promoter(family, channel)
        kept = read_known(self.store, promoter.release, channel)
        held = read_channel(self.store, promoter.release, channel)
        if held.tag is None:
            return None
        if held.channel.pending is not None:
            if held.channel.pending.action != "refresh":
                return Refreshed(family, channel, left=str(held.channel.pending))
            promoter.tell(held, ())
            raise Changed(f"an earlier refresh of {channel} of {family} was not finished; now it is")
        names, brought = self._evidence(promoter, held.channel)
        sets = self._known(held.channel, kept, names, promoter.released)
        told, more = self._tell(promoter, held, sets)
        views, exchanged = self._show(promoter.released, channel, kept, sets)
        return Refreshed(
            family,
            channel,
            told,
            views,
            brought,
            more + exchanged,
            failing=tuple(one for one in sets if one.is_failing),
            other_policy=self.again and kept.document.policy not in {"", self._digest},
        )

    def _promoter(self, family: str, channel: str) -> Promoter:
        actor = Actor(self.by, f"{self.now:%Y-%m-%dT%H:%M:%SZ}")
        return Promoter(self.store, Places(self.layout, family), channel, actor)

    def _evidence(self, promoter: Promoter, channel: Channel) -> tuple[dict[str, set[str]], int]:
        """Bring the evidence of the sets that are shown; return the ids of all, and how many were new."""
        staged = evidence_names(self.store, promoter.staging)
        there = evidence_names(self.store, promoter.release)
        wanted = {one: staged.get(one, set()) for one in channel.shown}
        brought = bring_evidence(self.store, promoter.staging, promoter.release, there, wanted)
        return {one: wanted[one] | there.get(one, set()) for one in channel.shown}, brought

    def _known(
        self, channel: Channel, kept: Kept, names: Mapping[str, set[str]], released: Released
    ) -> tuple[Known, ...]:
        """Return what is known of all sets that are shown; those of which nothing changed as they were."""
        before = {one.set: one for one in kept.document.sets}

        def of(shown: Shown) -> Known:
            digest = digest_of_all(self.policy, self._digest, shown, sorted(names[shown.set]), self.now)
            old = before.get(shown.set)
            if old is not None and (old.of == digest or not self.again):
                return old
            (document,), signers = released.documents([shown.set]), self.policy.signers
            found = evidence_of(
                self.store, self.layout, document, signers=signers, env=self.env, area="release"
            )
            results = [one for one in found if one.id in names[shown.set]]  # another may be copying more
            return known_of(
                document,
                results,
                shown,
                policy=self._ageless,
                channel=channel.channel,
                now=self.now,
                digest=digest,
            )

        return tuple(each(of, channel.sets, jobs=_JOBS))

    def _tell(self, promoter: Promoter, held: Held, sets: Sequence[Known]) -> tuple[tuple[str, ...], int]:
        """Have the channel tell what is known; return the sets of which it told something else, and pages."""
        goal = tuple(
            shown.model_copy(update={"state": one.state, "told": one.told})
            for shown, one in zip(held.channel.sets, sets, strict=True)
        )
        if goal == held.channel.sets:
            return (), 0
        told = tuple(new.set for new, old in zip(goal, held.channel.sets, strict=True) if new != old)
        return told, promoter.tell(held, goal).pages

    def _show(
        self, released: Released, channel: str, kept: Kept, sets: tuple[Known, ...]
    ) -> tuple[tuple[Moved, ...], int]:
        """Have views show what they are to show; return those that changed, and how many pages did."""
        places = released.places
        there = targets_with_pages(self.store, places, channel)
        wanted = wanted_views(sets, channel, Apart(released).clash)
        planned = planned_views(kept, wanted, there)
        policy = self._digest if self.again else kept.document.policy or self._digest
        goal = KnownSets(family=places.family, channel=channel, policy=policy, sets=sets, views=planned)
        tag, pages = kept.tag, 0
        if goal != kept.document or tag is None:
            tag = self._write(places, goal, tag)

        def check() -> None:
            found = self.store.head(places.known(channel))
            if (found.tag if found else None) != tag:
                raise Changed(
                    f"views of {channel} of {places.family} were changed by somebody else", tip=AGAIN
                )

        changing = [one for one in planned if not one.settled]
        for view in changing:
            pages += show(released, channel, view, check)
        if changing:
            self._write(places, goal.settled(), tag)
        return tuple(_moved(kept.document, sets, changing)), pages

    def _write(self, places: Places, document: KnownSets, tag: str | None) -> str:
        return self.store.replace(places.known(document.channel), document.to_json(), tag)


def _moved(before: KnownSets, sets: Sequence[Known], changing: Sequence[View]) -> Iterator[Moved]:
    """Yield for each platform what became of a view; all that it shows where its pages alone were not right.

    Before it began to change it showed the last of those that it ``was`` at.
    """
    platforms = {one.set: one.os for one in (*before.sets, *sets)}
    views = {one.gfx: one for one in before.views}
    for view in changing:
        was = views.get(view.gfx, View(gfx=view.gfx, set=None))
        found = []
        for platform in PLATFORMS:

            def own(ids: Sequence[str], platform: Platform = platform) -> list[str]:
                return [one for one in ids if platforms.get(one, PLATFORMS[0]) == platform]

            old, new = own(was.was)[-1:] or own(was.shown), own(view.shown)
            found.append((view.gfx, next(iter(old), None), next(iter(new), None), platform))
        changed = [one for one in found if one[1] != one[2]]
        yield from changed or [one for one in found if one[2]] or found[:1]

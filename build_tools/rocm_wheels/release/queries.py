"""What people ask a store: what does a channel show, which set is the newest that is good on a GPU target.

Answers are of ``standing``'s making, for each platform by itself; here it is read what they need, and no
more: newest sets first, and of sets of which nothing is known not even their documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.model.gfx import base_target, gfx_families, gfx_targets
from rocm_wheels.model.project import Platform
from rocm_wheels.records import did_you_mean
from rocm_wheels.release.evidence_store import evidence_of
from rocm_wheels.release.gate.policy import CHANNELS, Policy
from rocm_wheels.release.gate.verdict import TargetState
from rocm_wheels.release.layout import Area, Layout, Places
from rocm_wheels.release.newest import PLATFORMS, Rank, rank
from rocm_wheels.release.overview import Row, overviews, row_of
from rocm_wheels.release.promotion.channel import Channel, Shown, read_channel
from rocm_wheels.release.sets import SetDocument, families, read_set
from rocm_wheels.release.standing import Candidate, TestKind, newest_passed
from rocm_wheels.release.views.known import Known
from rocm_wheels.release.views.public import Public, read_public
from rocm_wheels.release.views.telling import known_of, without_age
from rocm_wheels.shell import shell_line
from rocm_wheels.stores.store import Store
from rocm_wheels.words import counted


@dataclass(frozen=True)
class Inquiry:
    """What is asked, by which policy, at which moment; ``family``: of this one alone."""

    store: Store
    layout: Layout
    policy: Policy
    now: datetime
    env: Mapping[str, str]
    family: str | None = None


@dataclass(frozen=True)
class ShownNow:
    """A set on a channel: what its pages tell of its tests, and what is known now, as `refresh` tells it."""

    shown: Shown
    document: SetDocument
    index: str
    now: Known


@dataclass(frozen=True)
class ChannelNow:
    """A channel of a family as it is now; ``sets`` are the newest first."""

    channel: Channel
    index: str
    sets: tuple[ShownNow, ...]


@dataclass(frozen=True)
class Answer:
    """The set that was looked for on a target; ``None``: there is none. ``why`` says what speaks for it.

    ``newer`` are sets that go before it, or all there are, each with why it is not the one. ``index`` is
    that of the set alone, which never changes, and ``install`` a command that takes it from there. ``os`` is
    the platform, ``None`` where no set is for the target.
    """

    gfx: str
    found: Row | None
    why: str
    index: str = ""
    install: str = ""
    newer: tuple[tuple[Row, str], ...] = ()
    os: Platform | None = None


def require_target(text: str) -> str:
    """Return the target that is meant, without features. Raises UsageError for none."""
    target = base_target(text)
    if target in gfx_targets():
        return target
    if target in gfx_families():
        members = ", ".join(gfx_families()[target])
        raise UsageError(f"{text} is a GPU family, no target", tip=f"name one of its targets: {members}")
    raise UsageError(f"{text} is no GPU target{did_you_mean(target, gfx_targets())}", tip="such as gfx942")


def families_asked(inquiry: Inquiry) -> list[str]:
    """Return the families to look at. Raises ReleaseError for one that the store does not have."""
    store, layout = inquiry.store, inquiry.layout
    areas: tuple[Area, ...] = ("staging", "release")
    known = sorted({one for area in areas for one in families(store, area=area, layout=layout)})
    if inquiry.family is None:
        return known
    if inquiry.family not in known:
        what = f"there are no sets of {inquiry.family} in {inquiry.store.url}"
        have = f"it has {', '.join(known)}" if known else "rocm-wheels stage puts sets there"
        raise ReleaseError(f"{what}{did_you_mean(inquiry.family, known)}", tip=have)
    return [inquiry.family]


def channels_now(inquiry: Inquiry, name: str) -> list[ChannelNow]:
    """Return what a channel shows, for each family for which anything ever came to it."""
    store, layout = inquiry.store, inquiry.layout
    public = read_public(store, layout)
    found = []
    for family in families_asked(inquiry):
        places = Places(layout, family, "release")
        held = read_channel(store, places, name)
        if held.tag is None:
            continue
        sets = []
        for shown in reversed(held.channel.sets):
            document = read_set(store, family, shown.set, area="release", layout=layout)
            known = _known(inquiry, document, shown, name)
            sets.append(ShownNow(shown, document, _index(inquiry, document, "release", public), known))
        index = public.address(store, f"{places.channel_pages(name)}/")
        found.append(ChannelNow(held.channel, index, tuple(sets)))
    return found


def newest_that_passed(
    inquiry: Inquiry, gfx: str, *, channel: str | None = None, kind: TestKind | None = None
) -> list[Answer]:
    """Return the newest set that passed on a target: of those that a channel shows, or of all staged.

    That is an answer for each platform that any of them is for, at least one, what was found first.
    """
    return _Search(inquiry, channel).answers(gfx, kind=kind)


def last_good(inquiry: Inquiry, gfx: Sequence[str] = (), *, channel: str | None = None) -> list[Answer]:
    """Return the last known good set on each of these targets, by default on all that the sets are for."""
    search = _Search(inquiry, channel)
    return [answer for one in gfx or search.targets for answer in search.answers(one, good=True)]


def install_command(document: SetDocument, index: str, gfx: str, others: Sequence[str] = ()) -> str:
    """Return a command that installs all projects of a set; the rest comes from other indexes, then PyPI.

    uv looks for each project in the first index that has it: what the set has comes from nowhere else. Of
    variants ours takes the one for the GPU.
    """
    versions = {file.project: file.version for file in document.files}
    pins = []
    for project in sorted(versions):
        if "-device-" not in project:
            kernels = f"[device-{gfx}]" if f"{project}-device-{gfx}" in versions else ""
            pins.append(f"{project}{kernels}=={versions[project]}")
    if document.layout == "variants":  # uv does not ask what GPU there is
        rocm = [word for one in others[:1] for word in ("--rocm-index", one)]
        return shell_line(["rocm-wheels", "install", "--index", index, *rocm, "--gfx", gfx, *pins])
    indexes = [word for one in (index, *others) for word in ("--index", one)]
    return shell_line(["uv", "pip", "install", *indexes, *pins])


@dataclass(frozen=True)
class _Entry:
    """A set to look at, and where; with nothing known of it, it cannot have passed."""

    row: Row
    area: Area
    known: bool
    document: SetDocument | None = None

    def is_for(self, gfx: str) -> bool:
        targets = {base_target(one) for one in self.row.targets}
        return gfx in (targets or gfx_families().get(self.row.family, ()))


@dataclass
class _Search:
    """Looks for sets, and reads each once."""

    inquiry: Inquiry
    channel: str | None
    entries: list[_Entry] = field(init=False)
    public: Public = field(init=False)
    taken_back: dict[str, str] = field(default_factory=dict)
    read: dict[tuple[str, str], Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.public = read_public(self.inquiry.store, self.inquiry.layout)
        found: list[_Entry] = []
        for family in families_asked(self.inquiry):
            found += self._of_family(family)
        self.entries = sorted(found, key=self._rank, reverse=True)

    @property
    def targets(self) -> list[str]:
        """All targets that the sets are for, sorted."""
        return sorted(gfx for gfx in gfx_targets() if any(one.is_for(gfx) for one in self.entries))

    def answers(self, gfx: str, *, kind: TestKind | None = None, good: bool = False) -> list[Answer]:
        """Return the newest set that passed on a target, or the last known good one, of each platform."""
        there = {one.row.os for one in self.entries if one.is_for(gfx)}
        found = [self._answer(gfx, one, kind=kind, good=good) for one in PLATFORMS if one in there]
        return sorted(found, key=lambda one: one.found is None) or [Answer(gfx, None, "no set is for it")]

    def _answer(self, gfx: str, platform: Platform, *, kind: TestKind | None, good: bool) -> Answer:
        seen: list[_Entry] = []
        back = self.taken_back if good else {}
        policy, now = self.inquiry.policy, self.inquiry.now
        looked = newest_passed(
            self._offered(seen, platform), gfx, policy, now, channel=self.channel, kind=kind, taken_back=back
        )
        states = {one.document.id: state for one, state in looked.passed_over}
        passed_over = seen[:-1] if looked.found else seen
        newer = tuple(
            (one.row, back.get(one.row.id) or _why_not(states.get(one.row.id), gfx))
            for one in passed_over
            if one.is_for(gfx)
        )
        if looked.found is None or looked.state is None:
            return Answer(gfx, None, f"none of {counted(len(newer), 'set')} for it", newer=newer, os=platform)
        entry, document = seen[-1], looked.found.document
        index = _index(self.inquiry, document, entry.area, self.public)
        install = install_command(document, index, gfx, self.public.other_indexes)
        return Answer(gfx, entry.row, _said(looked.state), index, install, newer, platform)

    def _rank(self, entry: _Entry) -> Rank:
        row = entry.row
        return rank(row.projects, row.version, row.created, row.id, channel=self.channel)

    def _of_family(self, family: str) -> Iterator[_Entry]:
        store, layout = self.inquiry.store, self.inquiry.layout
        known = set(store.folders(f"{Places(layout, family).root}/{layout.evidence}"))
        released = Places(layout, family, "release")
        if self.channel is not None:
            held = read_channel(store, released, self.channel).channel
            self._take_back(held.demoted, held)
            for name in held.shown:
                document = read_set(store, family, name, area="release", layout=layout)
                yield _Entry(row_of(document), "release", name in known, document)
            return
        channels = [read_channel(store, released, name).channel for name in CHANNELS]
        shown = {name for one in channels for name in one.shown}
        for one in channels:
            self._take_back(one.demoted - shown, one)
        (overview,) = overviews(store, layout, family=family)
        if overview.damaged:
            raise ReleaseError(
                "\n".join(overview.damaged), tip="put the document back from a copy of the store"
            )
        for row in overview.rows:
            yield _Entry(row, "staging", row.id in known)

    def _take_back(self, demoted: frozenset[str], channel: Channel) -> None:
        self.taken_back.update(dict.fromkeys(demoted, f"demoted from {channel.channel}"))
        pending = channel.pending
        if pending is not None and not pending.adds:
            going = f"being taken from {channel.channel}"
            self.taken_back.update({name: going for name in pending.sets if name in channel.shown})

    def _offered(self, seen: list[_Entry], platform: Platform) -> Iterator[Candidate]:
        for one in self.entries:
            if one.row.os != platform:
                continue
            seen.append(one)
            if one.known:
                yield self._candidate(one)

    def _candidate(self, entry: _Entry) -> Candidate:
        place = (entry.row.family, entry.row.id)
        if place not in self.read:
            asked, layout = self.inquiry, self.inquiry.layout
            document = entry.document or read_set(asked.store, *place, area=entry.area, layout=layout)
            signers = asked.policy.signers
            known = evidence_of(asked.store, layout, document, signers=signers, env=asked.env)
            self.read[place] = Candidate(document, tuple(known))
        return self.read[place]


def _why_not(state: TargetState | None, gfx: str) -> str:
    return f"{'tests failed' if state and state.state == 'failed' else 'untested'} on {gfx}"


def _said(state: TargetState) -> str:
    pythons = f" with Python {', '.join(state.pythons)}" if any(state.pythons) else ""
    return f"{' and '.join(state.by)} passed on {state.gfx}{pythons}, {state.when}"


def _known(inquiry: Inquiry, document: SetDocument, shown: Shown, channel: str) -> Known:
    policy, env = inquiry.policy, inquiry.env
    results = evidence_of(inquiry.store, inquiry.layout, document, signers=policy.signers, env=env)
    ageless = without_age(policy)
    return known_of(document, results, shown, policy=ageless, channel=channel, now=inquiry.now, digest="")


def _index(inquiry: Inquiry, document: SetDocument, area: Area, public: Public) -> str:
    """Return the address of a set's own index, as people see it: the released one, where it was released."""
    released = Places(inquiry.layout, document.family, "release")
    there = area == "release" or inquiry.store.head(released.document(document.id)) is not None
    places = released if there else Places(inquiry.layout, document.family)
    return public.address(inquiry.store, f"{places.index(document.id)}/")

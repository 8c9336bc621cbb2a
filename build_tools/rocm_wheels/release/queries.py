"""What people ask a store: what does a channel show, which set is the newest that is good on a GPU target.

Answers are of ``standing``'s making, for each platform by itself; here it is read what they need, and no
more: newest sets first, and of sets of which nothing is known not even their documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.model.gfx import strip_features, get_gfx_families, get_gfx_targets
from rocm_wheels.model.project import Platform
from rocm_wheels.records import suggest_name
from rocm_wheels.release.evidence_store import read_evidence
from rocm_wheels.release.gate.policy import CHANNEL_NAMES, Policy
from rocm_wheels.release.gate.verdict import TargetState
from rocm_wheels.release.layout import Area, StoreLayout, FamilyPaths
from rocm_wheels.release.newest import PLATFORM_ORDER, SetRank, rank_set
from rocm_wheels.release.overview import SetRow, list_sets, make_set_row
from rocm_wheels.release.promotion.channel import Channel, ChannelSet, read_channel
from rocm_wheels.release.sets import SetDocument, list_families, read_set
from rocm_wheels.release.standing import SetCandidate, TestKind, find_newest_passed
from rocm_wheels.release.views.known import SetStatus
from rocm_wheels.release.views.public import PublicLocation, read_public
from rocm_wheels.release.views.telling import make_set_status, drop_age_limits
from rocm_wheels.shell import format_command
from rocm_wheels.stores.store import Store
from rocm_wheels.words import format_count


@dataclass(frozen=True)
class StoreQuery:
    """What is asked, by which policy, at which moment; ``family``: of this one alone."""

    store: Store
    layout: StoreLayout
    policy: Policy
    now: datetime
    env: Mapping[str, str]
    family: str | None = None


@dataclass(frozen=True)
class ChannelSetNow:
    """A set on a channel: what its pages tell of its tests, and what is known now, as `refresh` tells it."""

    channel_set: ChannelSet
    document: SetDocument
    index: str
    now: SetStatus


@dataclass(frozen=True)
class ChannelNow:
    """A channel of a family as it is now; ``sets`` are the newest first."""

    channel: Channel
    index: str
    sets: tuple[ChannelSetNow, ...]


@dataclass(frozen=True)
class QueryAnswer:
    """The set that was looked for on a target; ``None``: there is none. ``why`` says what speaks for it.

    ``newer`` are sets that go before it, or all there are, each with why it is not the one. ``index`` is
    that of the set alone, which never changes, and ``install`` a command that takes it from there. ``os`` is
    the platform, ``None`` where no set is for the target.
    """

    gfx: str
    row: SetRow | None
    why: str
    index: str = ""
    install: str = ""
    newer: tuple[tuple[SetRow, str], ...] = ()
    os: Platform | None = None


def resolve_target(name: str) -> str:
    """Return the target that is meant, without features. Raises UsageError for none."""
    target = strip_features(name)
    if target in get_gfx_targets():
        return target
    if target in get_gfx_families():
        members = ", ".join(get_gfx_families()[target])
        raise UsageError(f"{name} is a GPU family, no target", tip=f"name one of its targets: {members}")
    raise UsageError(
        f"{name} is no GPU target{suggest_name(target, get_gfx_targets())}", tip="such as gfx942"
    )


def list_queried_families(query: StoreQuery) -> list[str]:
    """Return the families to look at. Raises ReleaseError for one that the store does not have."""
    store, layout = query.store, query.layout
    areas: tuple[Area, ...] = ("staging", "release")
    present = sorted({family for area in areas for family in list_families(store, area=area, layout=layout)})
    if query.family is None:
        return present
    if query.family not in present:
        message = f"there are no sets of {query.family} in {query.store.url}"
        tip = f"it has {', '.join(present)}" if present else "rocm-wheels stage puts sets there"
        raise ReleaseError(f"{message}{suggest_name(query.family, present)}", tip=tip)
    return [query.family]


def read_channels_now(query: StoreQuery, name: str) -> list[ChannelNow]:
    """Return what a channel shows, for each family for which anything ever came to it."""
    store, layout = query.store, query.layout
    public = read_public(store, layout)
    channels = []
    for family in list_queried_families(query):
        paths = FamilyPaths(layout, family, "release")
        record = read_channel(store, paths, name)
        if record.tag is None:
            continue
        sets = []
        for channel_set in reversed(record.channel.sets):
            document = read_set(store, family, channel_set.set, area="release", layout=layout)
            status = _make_status(query, document, channel_set, name)
            sets.append(
                ChannelSetNow(
                    channel_set, document, _find_index_address(query, document, "release", public), status
                )
            )
        index = public.address_of(store, f"{paths.channel_pages(name)}/")
        channels.append(ChannelNow(record.channel, index, tuple(sets)))
    return channels


def query_newest_passed(
    query: StoreQuery, gfx: str, *, channel: str | None = None, kind: TestKind | None = None
) -> list[QueryAnswer]:
    """Return the newest set that passed on a target: of those that a channel shows, or of all staged.

    That is an answer for each platform that any of them is for, at least one, what was found first.
    """
    return _SetSearch(query, channel).find_answers(gfx, kind=kind)


def query_last_good(
    query: StoreQuery, gfx: Sequence[str] = (), *, channel: str | None = None
) -> list[QueryAnswer]:
    """Return the last known good set on each of these targets, by default on all that the sets are for."""
    search = _SetSearch(query, channel)
    return [answer for target in gfx or search.targets for answer in search.find_answers(target, good=True)]


def make_install_command(
    document: SetDocument, index: str, gfx: str, other_indexes: Sequence[str] = ()
) -> str:
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
        rocm = [word for address in other_indexes[:1] for word in ("--rocm-index", address)]
        return format_command(["rocm-wheels", "install", "--index", index, *rocm, "--gfx", gfx, *pins])
    indexes = [word for address in (index, *other_indexes) for word in ("--index", address)]
    return format_command(["uv", "pip", "install", *indexes, *pins])


@dataclass(frozen=True)
class _SearchEntry:
    """A set to look at, and where; with nothing known of it, it cannot have passed."""

    row: SetRow
    area: Area
    has_evidence: bool
    document: SetDocument | None = None

    def is_for(self, gfx: str) -> bool:
        targets = {strip_features(target) for target in self.row.targets}
        return gfx in (targets or get_gfx_families().get(self.row.family, ()))


@dataclass
class _SetSearch:
    """Looks for sets, and reads each once."""

    query: StoreQuery
    channel: str | None
    entries: list[_SearchEntry] = field(init=False)
    public: PublicLocation = field(init=False)
    taken_back: dict[str, str] = field(default_factory=dict)
    candidates: dict[tuple[str, str], SetCandidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.public = read_public(self.query.store, self.query.layout)
        entries: list[_SearchEntry] = []
        for family in list_queried_families(self.query):
            entries += self._list_entries(family)
        self.entries = sorted(entries, key=self._rank_entry, reverse=True)

    @property
    def targets(self) -> list[str]:
        """All targets that the sets are for, sorted."""
        return sorted(gfx for gfx in get_gfx_targets() if any(entry.is_for(gfx) for entry in self.entries))

    def find_answers(
        self, gfx: str, *, kind: TestKind | None = None, good: bool = False
    ) -> list[QueryAnswer]:
        """Return the newest set that passed on a target, or the last known good one, of each platform."""
        platforms = {item.row.os for item in self.entries if item.is_for(gfx)}
        answers = [
            self._find_answer(gfx, item, kind=kind, good=good) for item in PLATFORM_ORDER if item in platforms
        ]
        return sorted(answers, key=lambda item: item.row is None) or [
            QueryAnswer(gfx, None, "no set is for it")
        ]

    def _find_answer(self, gfx: str, platform: Platform, *, kind: TestKind | None, good: bool) -> QueryAnswer:
        passed_entries: list[_SearchEntry] = []
        taken_back = self.taken_back if good else {}
        policy, now = self.query.policy, self.query.now
        result = find_newest_passed(
            self._offer_candidates(passed_entries, platform),
            gfx,
            policy,
            now,
            channel=self.channel,
            kind=kind,
            taken_back=taken_back,
        )
        states = {item.document.id: state for item, state in result.passed_over}
        passed_over = passed_entries[:-1] if result.candidate else passed_entries
        newer = tuple(
            (item.row, taken_back.get(item.row.id) or _explain_passed_over(states.get(item.row.id), gfx))
            for item in passed_over
            if item.is_for(gfx)
        )
        if result.candidate is None or result.state is None:
            return QueryAnswer(
                gfx, None, f"none of {format_count(len(newer), 'set')} for it", newer=newer, os=platform
            )
        entry, document = passed_entries[-1], result.candidate.document
        index = _find_index_address(self.query, document, entry.area, self.public)
        install = make_install_command(document, index, gfx, self.public.other_indexes)
        return QueryAnswer(gfx, entry.row, _describe_state(result.state), index, install, newer, platform)

    def _rank_entry(self, entry: _SearchEntry) -> SetRank:
        row = entry.row
        return rank_set(row.projects, row.version, row.created, row.id, channel=self.channel)

    def _list_entries(self, family: str) -> Iterator[_SearchEntry]:
        store, layout = self.query.store, self.query.layout
        ids_with_evidence = set(
            store.folders(f"{FamilyPaths(layout, family).family_folder}/{layout.evidence}")
        )
        released = FamilyPaths(layout, family, "release")
        if self.channel is not None:
            channel = read_channel(store, released, self.channel).channel
            self._note_demoted(channel.demoted, channel)
            for name in channel.shown:
                document = read_set(store, family, name, area="release", layout=layout)
                yield _SearchEntry(make_set_row(document), "release", name in ids_with_evidence, document)
            return
        channels = [read_channel(store, released, name).channel for name in CHANNEL_NAMES]
        shown_ids = {name for item in channels for name in item.shown}
        for item in channels:
            self._note_demoted(item.demoted - shown_ids, item)
        (overview,) = list_sets(store, layout, family=family)
        if overview.damaged:
            raise ReleaseError(
                "\n".join(overview.damaged), tip="put the document back from a copy of the store"
            )
        for row in overview.rows:
            yield _SearchEntry(row, "staging", row.id in ids_with_evidence)

    def _note_demoted(self, demoted: frozenset[str], channel: Channel) -> None:
        self.taken_back.update(dict.fromkeys(demoted, f"demoted from {channel.channel}"))
        pending = channel.pending
        if pending is not None and not pending.adds:
            going = f"being taken from {channel.channel}"
            self.taken_back.update({name: going for name in pending.sets if name in channel.shown})

    def _offer_candidates(
        self, passed_entries: list[_SearchEntry], platform: Platform
    ) -> Iterator[SetCandidate]:
        for entry in self.entries:
            if entry.row.os != platform:
                continue
            passed_entries.append(entry)
            if entry.has_evidence:
                yield self._read_candidate(entry)

    def _read_candidate(self, entry: _SearchEntry) -> SetCandidate:
        place = (entry.row.family, entry.row.id)
        if place not in self.candidates:
            query, layout = self.query, self.query.layout
            document = entry.document or read_set(query.store, *place, area=entry.area, layout=layout)
            signers = query.policy.signers
            evidence = read_evidence(query.store, layout, document, signers=signers, env=query.env)
            self.candidates[place] = SetCandidate(document, tuple(evidence))
        return self.candidates[place]


def _explain_passed_over(state: TargetState | None, gfx: str) -> str:
    return f"{'tests failed' if state and state.state == 'failed' else 'untested'} on {gfx}"


def _describe_state(state: TargetState) -> str:
    pythons = f" with Python {', '.join(state.pythons)}" if any(state.pythons) else ""
    return f"{' and '.join(state.by)} passed on {state.gfx}{pythons}, {state.when}"


def _make_status(
    query: StoreQuery, document: SetDocument, channel_set: ChannelSet, channel: str
) -> SetStatus:
    policy, env = query.policy, query.env
    results = read_evidence(query.store, query.layout, document, signers=policy.signers, env=env)
    ageless = drop_age_limits(policy)
    return make_set_status(
        document, results, channel_set, policy=ageless, channel=channel, now=query.now, digest=""
    )


def _find_index_address(query: StoreQuery, document: SetDocument, area: Area, public: PublicLocation) -> str:
    """Return the address of a set's own index, as people see it: the released one, where it was released."""
    released = FamilyPaths(query.layout, document.family, "release")
    is_released = area == "release" or query.store.head(released.set_document(document.id)) is not None
    paths = released if is_released else FamilyPaths(query.layout, document.family)
    return public.address_of(query.store, f"{paths.set_index(document.id)}/")

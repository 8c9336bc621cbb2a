"""Answer queries about a store: what a channel shows, the newest set that passed, the last known good.

By the gate's rule of what counts, and no other (``release.gate.find_target_state``):

- *tested* on a target: results of one kind at least (smoke tests, full tests) pass there, however old,
  signed by signers of the policy, and no failure of any kind stands. *reported, unsigned*: it would be, by
  results that nobody known signed. *failed*: a failure stands, whatever passed. *untested*: none of these.
- A set has *passed* on a target when it is tested there, or reported and a channel takes that; of one kind
  (``smoke``, ``tests``) when it would be by the results of that kind alone. A set that is not for a target
  has not passed on it.
- The *newest* is that of the newest torch, of those one that is tested before those that are reported, and
  of those the one that was created last (``wheel_set``); each platform has its own.
- The *last known good* is the newest that passed on a target, of those that nobody took back. Why a set
  was demoted is written nowhere, so each one that was demoted is taken back: for a channel, those that it
  showed once and does not show; where no channel is asked for, those that no channel shows any more.

For a channel its own demands hold (signatures, passes after a failure, how many tests a run has). Where
none is asked for, a set is tested on a target when it is so for one channel of the policy, and failed
when it is so for any.

No more is read than is needed: newest sets first, and of sets without evidence not even their documents.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Literal, get_args

from rocm_wheels.core import (
    ReleaseError,
    Store,
    UsageError,
    format_command,
    format_count,
    log_warning,
    suggest_name,
)
from rocm_wheels.models import Platform, get_gfx_families, get_gfx_targets, strip_features
from rocm_wheels.release.channel import (
    Channel,
    ChannelSet,
    SetStatus,
    drop_age_limits,
    make_set_status,
    read_channel,
)
from rocm_wheels.release.evidence.store import StoredEvidence, find_doubt, read_all_evidence
from rocm_wheels.release.gate import GateCase, find_target_state
from rocm_wheels.release.kept_policy import find_kept_policy
from rocm_wheels.release.layout import Area, FamilyPaths, StoreLayout
from rocm_wheels.release.policy import CHANNEL_NAMES, REPORTED, Policy, TargetState
from rocm_wheels.release.set_list import SetRow, list_sets, make_set_row
from rocm_wheels.release.views import PublicLocation, read_public
from rocm_wheels.release.wheel_set import (
    PLATFORM_ORDER,
    SetDocument,
    SetRank,
    find_host_project,
    list_families,
    list_set_targets,
    make_device_extras,
    rank_set,
    read_set,
)

TestKind = Literal["smoke", "tests"]


@dataclass(frozen=True)
class SetCandidate:
    """A set and all that is known of it. ``doubt`` says why that cannot be believed: results are gone."""

    document: SetDocument
    evidence: tuple[StoredEvidence, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class SearchResult:
    """The set that was looked for, with what is known of it on the target; ``None``: there is none.

    ``passed_over`` are those that are newer: ``None`` for what was taken back, or is not for the target.
    """

    candidate: SetCandidate | None
    state: TargetState | None
    passed_over: tuple[tuple[SetCandidate, TargetState | None], ...] = ()


def list_target_states(
    document: SetDocument,
    evidence: Sequence[StoredEvidence],
    policy: Policy,
    now: datetime,
    *,
    channel: str | None = None,
    kind: TestKind | None = None,
) -> tuple[TargetState, ...]:
    """Return what is known of a set on each of its targets, sorted; ``kind``: by such results alone.

    Pure. Raises KeyError for a channel that the policy does not have.
    """
    cases = _make_cases(document, evidence, policy, now, channel=channel, kind=kind)
    return tuple(
        _join_states(find_target_state(case, gfx) for case in cases) for gfx in list_set_targets(document)
    )


def find_state_on(
    document: SetDocument,
    evidence: Sequence[StoredEvidence],
    gfx: str,
    policy: Policy,
    now: datetime,
    *,
    channel: str | None = None,
    kind: TestKind | None = None,
) -> TargetState | None:
    """Return what is known of a set on one target (its features, ``:xnack-``, do not matter).

    ``None``: it is not for that target.
    """
    target = strip_features(gfx)
    if target not in list_set_targets(document):
        return None
    cases = _make_cases(document, evidence, policy, now, channel=channel, kind=kind)
    results = [stored.evidence for stored in evidence if stored.evidence.kind in get_args(TestKind)]
    if not any(stored.gfx in {target, None} for stored in results):
        cases = cases[:1]  # nothing is known of it, whichever channel is asked
    return _join_states(find_target_state(case, target) for case in cases)


def sort_newest_first(documents: Iterable[SetDocument], *, channel: str | None = None) -> list[SetDocument]:
    """Return sets, of one platform, in the order in which the newest is looked for."""

    def key(document: SetDocument) -> SetRank:
        return rank_set(document.projects, document.version, document.created, document.id, channel=channel)

    return sorted(documents, key=key, reverse=True)


def find_newest_passed(
    sets: Iterable[SetCandidate],
    gfx: str,
    policy: Policy,
    now: datetime,
    *,
    channel: str | None = None,
    kind: TestKind | None = None,
    taken_back: Container[str] = frozenset(),
) -> SearchResult:
    """Look for the first of ``sets`` (newest first) that passed on a target; the rest is not taken.

    One that is reported gives way to one of its version that is tested. With the ids of those that were
    taken back it is the last known good one.
    """
    channels = policy.channels if channel is None else [channel]
    takes_reports = any(policy.takes_reports(name) for name in channels)
    passed_over: list[tuple[SetCandidate, TargetState | None]] = []
    reported: SearchResult | None = None
    for candidate in sets:
        if reported is not None and not _is_of_version(candidate, reported.candidate):
            break
        state = None
        if candidate.document.id not in taken_back and not candidate.doubt:
            state = find_state_on(
                candidate.document, candidate.evidence, gfx, policy, now, channel=channel, kind=kind
            )
        if state is not None and state.state == "tested":
            return SearchResult(candidate, state, tuple(passed_over))
        if state is not None and state.state == REPORTED and takes_reports and reported is None:
            reported = SearchResult(candidate, state, tuple(passed_over))
            if not policy.signers:  # none can be tested, and the rest need not be read
                break
        passed_over.append((candidate, state))
    return reported or SearchResult(None, None, tuple(passed_over))


def _is_of_version(candidate: SetCandidate, other: SetCandidate | None) -> bool:
    """Tell whether two sets are of one version."""
    return other is not None and candidate.document.version == other.document.version


def _make_cases(
    document: SetDocument,
    evidence: Sequence[StoredEvidence],
    policy: Policy,
    now: datetime,
    *,
    channel: str | None,
    kind: TestKind | None,
) -> list[GateCase]:
    """Return the set before the channel, or before each one."""
    if channel is not None and channel not in policy.channels:
        raise KeyError(channel)
    counted = tuple(stored for stored in evidence if kind is None or stored.evidence.kind == kind)
    moment = now.astimezone(timezone.utc)
    names = policy.channels if channel is None else [channel]
    return [GateCase(policy, name, document, counted, moment) for name in names]


def _join_states(states: Iterable[TargetState]) -> TargetState:
    """Return what several channels come to; once it failed for one, the rest is not asked."""
    known_states = []
    for state in states:
        if state.state == "failed":
            return state
        known_states.append(state)
    tested = [state for state in known_states if state.state == "tested"]
    tested = tested or [state for state in known_states if state.state == REPORTED]
    if not tested:
        return known_states[0]
    by = sorted({word for state in tested for word in state.by}, reverse=True)  # smoke tests, full tests
    pythons = {word for state in tested for word in state.pythons}
    in_order = sorted(pythons, key=lambda word: (word.endswith("t"), len(word), word))
    return TargetState(
        tested[0].gfx, tested[0].state, tuple(by), tuple(in_order), max(state.when for state in tested)
    )


@dataclass(frozen=True)
class StoreQuery:
    """What is asked, by which policy, at which moment; ``family``: of this one alone.

    ``named``: somebody named the policy; else what a channel shows is judged by the one that it keeps.
    """

    store: Store
    layout: StoreLayout
    policy: Policy
    now: datetime
    env: Mapping[str, str]
    family: str | None = None
    named: bool = True


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
        tip = f"it has {', '.join(present)}" if present else "rocm-wheels set stage puts sets there"
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
        judge = query
        if not query.named:
            kept = find_kept_policy(record.channel, query.policy, query.now.date())
            judge = replace(query, policy=kept)
        sets = []
        for channel_set in reversed(record.channel.sets):
            document = read_set(store, family, channel_set.set, area="release", layout=layout)
            status = _make_status(judge, document, channel_set, name)
            sets.append(
                ChannelSetNow(
                    channel_set, document, _find_index_address(query, document, "release", public), status
                )
            )
        index = public.address_of(store, f"{paths.channel_pages(name)}/")
        channels.append(ChannelNow(record.channel, index, tuple(sets)))
    return channels


def list_open_sets(query: StoreQuery, name: str, within: timedelta) -> list[SetRow]:
    """Return the staged sets that a channel may get yet, of so long ago, those of one family after another.

    They were made for it: their local version begins with its name, ``2.13.0+nightly20261122.17.1.rocm10.1``.
    Of a torch on a platform that is the newest, unless the channel shows it or took it back.
    """
    open_rows = []
    for overview in list_sets(query.store, query.layout, family=query.family):
        channel = read_channel(
            query.store, FamilyPaths(query.layout, overview.family, "release"), name
        ).channel
        newest: dict[tuple[str, str], SetRow] = {}
        for row in sorted(overview.rows, key=lambda row: (row.created, row.id)):
            torch, _, local = row.version.partition("+")
            if local.startswith(name):
                newest[torch, row.os] = row
        for row in newest.values():
            created = datetime.fromisoformat(row.created.replace("Z", "+00:00"))
            if row.id not in {*channel.shown, *channel.demoted} and query.now - created <= within:
                open_rows.append(row)
    return open_rows


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
        if find_host_project(project) is None:
            kernels = make_device_extras(document, project, [gfx])
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
        ids = [item.row.id for item in passed_entries]
        position = ids.index(result.candidate.document.id) if result.candidate else len(ids)
        passed_over = passed_entries[:position]
        doubts = {item.document.id: item.doubt for item, _ in result.passed_over if item.doubt}
        why = {**doubts, **taken_back}
        newer = tuple(
            (item.row, why.get(item.row.id) or _explain_passed_over(states.get(item.row.id), gfx))
            for item in passed_over
            if item.is_for(gfx)
        )
        if result.candidate is None or result.state is None:
            return QueryAnswer(
                gfx, None, f"none of {format_count(len(newer), 'set')} for it", newer=newer, os=platform
            )
        entry, document = passed_entries[position], result.candidate.document
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
            evidence, log = read_all_evidence(query.store, layout, document, signers=signers, env=query.env)
            doubt = find_doubt(evidence, log)
            if doubt:
                log_warning(f"{document.id} has passed nowhere until this is mended: {doubt}")
            self.candidates[place] = SetCandidate(document, tuple(evidence), doubt)
        return self.candidates[place]


def _explain_passed_over(state: TargetState | None, gfx: str) -> str:
    words = {"failed": "tests failed", REPORTED: REPORTED}
    return f"{words.get(state.state, 'untested') if state else 'untested'} on {gfx}"


def _describe_state(state: TargetState) -> str:
    pythons = f" with Python {', '.join(state.pythons)}" if any(state.pythons) else ""
    unsigned = f" ({REPORTED})" if state.state == REPORTED else ""
    return f"{' and '.join(state.by)} passed on {state.gfx}{pythons}, {state.when}{unsigned}"


def _make_status(
    query: StoreQuery, document: SetDocument, channel_set: ChannelSet, channel: str
) -> SetStatus:
    policy, env = query.policy, query.env
    results, log = read_all_evidence(query.store, query.layout, document, signers=policy.signers, env=env)
    ageless = drop_age_limits(policy)
    return make_set_status(
        document, results, channel_set, policy=ageless, channel=channel, now=query.now, digest="", log=log
    )


def _find_index_address(query: StoreQuery, document: SetDocument, area: Area, public: PublicLocation) -> str:
    """Return the address of a set's own index, as people see it: the released one, where it was released."""
    released = FamilyPaths(query.layout, document.family, "release")
    is_released = area == "release" or query.store.head(released.set_document(document.id)) is not None
    paths = released if is_released else FamilyPaths(query.layout, document.family)
    return public.address_of(query.store, f"{paths.set_index(document.id)}/")

"""Filters over the sets of a store: what a channel shows, what it may get yet, what passed on a target.

By the gate's rule of what counts, and no other (``release.gate.find_target_state``): a set is *tested* on a
target when results of one kind at least (smoke tests, full tests) pass there, however old, signed by signers
of the policy, and no failure of any kind stands; *reported, unsigned*: it would be, by results that nobody
known signed. It has *passed* when it is tested, or reported and a channel takes that. A staged set is tested
when it is so for one channel of the policy, and failed when it is so for any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from rocm_wheels.core import errors, tables
from rocm_wheels.core.log import log_warning
from rocm_wheels.models.gfx import get_gfx_families, get_gfx_targets, strip_features
from rocm_wheels.release import gate, kept_policy, set_list, views, wheel_set
from rocm_wheels.release.channel import (
    Channel,
    ChannelSet,
    SetStatus,
    drop_age_limits,
    make_set_status,
    read_channel,
)
from rocm_wheels.release.evidence.store import StoredEvidence, find_doubt, read_all_evidence
from rocm_wheels.release.layout import Area, FamilyPaths, StoreLayout
from rocm_wheels.release.policy import REPORTED, Policy, TargetState
from rocm_wheels.stores.store import Store


def find_state_on(
    document: wheel_set.SetDocument,
    evidence: Sequence[StoredEvidence],
    gfx: str,
    policy: Policy,
    now: datetime,
) -> TargetState | None:
    """Return what is known of a set on one target (its features, ``:xnack-``, do not matter).

    ``None``: it is not for that target.
    """
    target = strip_features(gfx)
    if target not in wheel_set.list_set_targets(document):
        return None
    moment = now.astimezone(timezone.utc)
    cases = (gate.GateCase(policy, name, document, tuple(evidence), moment) for name in policy.channels)
    return _join_states(gate.find_target_state(case, target) for case in cases)


def _join_states(states: Iterable[TargetState]) -> TargetState:
    """Return what several channels come to; once it failed for one, the rest is not asked."""
    known_states: dict[str, TargetState] = {}
    for state in states:
        if state.state == "failed":
            return state
        known_states.setdefault(state.state, state)
    return known_states.get("tested") or known_states.get(REPORTED) or known_states["untested"]


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
    document: wheel_set.SetDocument
    index: str
    now: SetStatus


@dataclass(frozen=True)
class ChannelNow:
    """A channel of a family as it is now; ``sets`` are the newest first."""

    channel: Channel
    index: str
    sets: tuple[ChannelSetNow, ...]


def resolve_target(name: str) -> str:
    """Return the target that is meant, without features. Raises UsageError for none."""
    target = strip_features(name)
    if target in get_gfx_targets():
        return target
    if target in get_gfx_families():
        members = ", ".join(get_gfx_families()[target])
        raise errors.UsageError(
            f"{name} is a GPU family, no target", tip=f"name one of its targets: {members}"
        )
    raise errors.UsageError(
        f"{name} is no GPU target{tables.suggest_name(target, get_gfx_targets())}", tip="such as gfx942"
    )


def list_queried_families(query: StoreQuery) -> list[str]:
    """Return the families to look at. Raises ReleaseError for one that the store does not have."""
    store, layout = query.store, query.layout
    areas: tuple[Area, ...] = ("staging", "release")
    present = sorted(
        {family for area in areas for family in wheel_set.list_families(store, area=area, layout=layout)}
    )
    if query.family is None:
        return present
    if query.family not in present:
        message = f"there are no sets of {query.family} in {query.store.url}"
        tip = f"it has {', '.join(present)}" if present else "rocm-wheels set stage puts sets there"
        raise errors.ReleaseError(f"{message}{tables.suggest_name(query.family, present)}", tip=tip)
    return [query.family]


def read_channels_now(query: StoreQuery, name: str, gfx: str | None = None) -> list[ChannelNow]:
    """Return what a channel shows, for each family for which anything ever came to it.

    ``gfx``: of its sets only those that passed on this target, and no family without one.
    """
    store, layout = query.store, query.layout
    public = views.read_public(store, layout)
    channels = []
    for family in list_queried_families(query):
        paths = FamilyPaths(layout, family, "release")
        record = read_channel(store, paths, name)
        if record.tag is None:
            continue
        judge = query
        if not query.named:
            kept = kept_policy.find_kept_policy(record.channel, query.policy, query.now.date())
            judge = replace(query, policy=kept)
        sets = []
        for channel_set in reversed(record.channel.sets):
            document = wheel_set.read_set(store, family, channel_set.set, area="release", layout=layout)
            status = _make_status(judge, document, channel_set, name)
            if gfx is not None and not status.passed_on(gfx):
                continue
            sets.append(
                ChannelSetNow(
                    channel_set,
                    document,
                    public.address_of(store, f"{paths.set_index(document.id)}/"),
                    status,
                )
            )
        if gfx is not None and not sets:
            continue
        index = public.address_of(store, f"{paths.channel_pages(name)}/")
        channels.append(ChannelNow(record.channel, index, tuple(sets)))
    return channels


def list_open_sets(query: StoreQuery, name: str, within: timedelta) -> list[set_list.SetRow]:
    """Return the staged sets that a channel may get yet, of so long ago, those of one family after another.

    They were made for it: their local version begins with its name, ``2.13.0+nightly20261122.17.1.rocm10.1``.
    Of a torch on a platform that is the newest, unless the channel shows it or took it back.
    """
    open_rows = []
    for overview in set_list.list_sets(query.store, query.layout, family=query.family):
        channel = read_channel(
            query.store, FamilyPaths(query.layout, overview.family, "release"), name
        ).channel
        newest: dict[tuple[str, str], set_list.SetRow] = {}
        for row in sorted(overview.rows, key=lambda row: (row.created, row.id)):
            torch, _, local = row.version.partition("+")
            if local.startswith(name):
                newest[torch, row.os] = row
        for row in newest.values():
            created = datetime.fromisoformat(row.created.replace("Z", "+00:00"))
            if row.id not in {*channel.shown, *channel.demoted} and query.now - created <= within:
                open_rows.append(row)
    return open_rows


def list_passed_sets(query: StoreQuery, rows: Iterable[set_list.SetRow], gfx: str) -> list[set_list.SetRow]:
    """Return those of staged sets that passed on a target, in their order."""
    return [row for row in rows if _has_passed(query, row, gfx)]


def _has_passed(query: StoreQuery, row: set_list.SetRow, gfx: str) -> bool:
    targets = {strip_features(target) for target in row.targets} or get_gfx_families().get(row.family, ())
    if gfx not in targets:
        return False
    policy, layout = query.policy, query.layout
    document = wheel_set.read_set(query.store, row.family, row.id, layout=layout)
    evidence, log = read_all_evidence(query.store, layout, document, signers=policy.signers, env=query.env)
    if doubt := find_doubt(evidence, log):
        log_warning(f"{document.id} has passed nowhere until this is mended: {doubt}")
        return False
    state = find_state_on(document, evidence, gfx, policy, query.now)
    takes_reports = any(policy.takes_reports(name) for name in policy.channels)
    return state is not None and (state.state == "tested" or (state.state == REPORTED and takes_reports))


def _make_status(
    query: StoreQuery, document: wheel_set.SetDocument, channel_set: ChannelSet, channel: str
) -> SetStatus:
    policy, env = query.policy, query.env
    results, log = read_all_evidence(query.store, query.layout, document, signers=policy.signers, env=env)
    ageless = drop_age_limits(policy)
    return make_set_status(
        document, results, channel_set, policy=ageless, channel=channel, now=query.now, digest="", log=log
    )

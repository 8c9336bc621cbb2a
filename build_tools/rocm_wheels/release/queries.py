"""Filters over the sets of a store: what a channel shows, what it may get yet, what passed on a target.

By the gate's rule of what counts, and no other (``release.gate.find_target_state``): a set is *tested* on a
target when results of one kind at least (smoke tests, full tests) pass there, however old, signed by signers
of the policy, and no failure of any kind stands; *reported, unsigned*: it would be, by results that nobody
known signed. It has *passed* when it is tested, or reported and a channel takes that. A staged set is tested
when it is so for one channel of the policy, and failed when it is so for any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from rocm_wheels.core import errors, log, parallel
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release import channel as channels
from rocm_wheels.release import gate, pages, refresh, support, wheel_set
from rocm_wheels.release.evidence.store import StoredEvidence, read_evidence
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.release.verdict import REPORTED, TargetState
from rocm_wheels.stores.store import Store


def make_set_row(document: wheel_set.SetDocument) -> dict[str, Any]:
    """Return a set as ``set list --json`` has it.

    ``wheels`` and ``bytes`` count its files, ``planned`` and ``missing`` its cells; ``os`` is its platform.
    """
    return {
        "id": document.id,
        "created": document.created,
        "version": document.version,
        "rocm": document.rocm_in_words or None,
        "family": document.family,
        "layout": document.layout,
        "targets": list(document.targets),
        "projects": list(document.projects),
        "wheels": len(document.files),
        "bytes": sum(file.size for file in document.files),
        "planned": len(document.planned),
        "missing": len(document.missing),
        "os": wheel_set.find_set_platform(document),
    }


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
    by_state: dict[str, TargetState] = {}
    for name in policy.channels:
        case = gate.GateCase(policy, name, document, tuple(evidence), moment)
        state = gate.find_target_state(case, target)
        if state.state == "failed":
            return state
        by_state.setdefault(state.state, state)
    return by_state.get("tested") or by_state.get(REPORTED) or by_state["untested"]


_OPEN_FOR = timedelta(days=3)  # a weekend without machines


@dataclass(frozen=True)
class StoreQuery:
    """What is asked, by which policy, at which moment."""

    store: Store
    policy: Policy
    now: datetime
    env: Mapping[str, str]


def require_families(store: Store) -> list[str]:
    """Return the families of a store. Raises ReleaseError where it has none."""
    if not (families := wheel_set.list_families(store)):
        raise errors.ReleaseError(
            f"nothing was staged in {store.url}",
            tip="correct the address; or `rocm-wheels set stage` makes sets of wheels",
        )
    return families


def read_channels_now(query: StoreQuery, name: str, gfx: str | None = None) -> list[dict[str, Any]]:
    """Return what a channel shows, as ``set list --json`` has it, for each family that has the channel.

    Of each set, the newest first: what its pages tell (``then``), and what is known (``now``). With ``gfx``
    only sets that passed on this target, and no family without one.
    """
    store, public = query.store, support.read_public(query.store)
    judge = refresh.Refresher(store, query.policy, "", query.now, query.env)
    shown_channels = []
    for paths in map(FamilyPaths, wheel_set.list_families(query.store)):
        record = channels.read_channel(store, paths, name)
        if record.tag is None:
            continue
        channel, pending = record.channel, record.channel.pending
        try:
            gate.require_own_policy(query.policy, channel)
        except errors.UsageError as other:  # what is known now may be less than what that one says
            log.log_warning(errors.explain_error(other))
        documents = channels.read_shown_sets(store, paths, channel.sets)
        notes, sets = support.read_notes(store, paths, name), []
        for entry, document, status in zip(
            channel.sets, documents, judge.judge_sets(channel, documents), strict=True
        ):
            note = notes.get(document.id, pages.SetNote("untested"))
            targets = status.model_dump(mode="json", include={"targets"})["targets"]
            shown = {
                "set": entry.set,
                "version": document.version,
                "rocm": document.rocm_in_words or None,
                "os": status.os,
                "since": entry.when,
                "by": entry.by,
                "index": public.address_of(store, f"{paths.set_index(document.id)}/"),
                "then": {"state": note.state, "told": list(note.lines)},
                "now": {"state": status.state, "told": list(status.told), "targets": targets},
            }
            sets += [shown] if gfx is None or status.passed_on(gfx) else []
        change = pending and {
            "id": channel.change_id,
            "action": pending.action,
            "sets": list(pending.sets),
            "by": pending.by,
            "began": pending.began,
        }
        shown_channel = {
            "family": paths.family,
            "channel": name,
            "revision": channel.revision,
            "index": public.address_of(store, f"{paths.channel_pages(name)}/"),
            "pending": change,
            "sets": sets[::-1],
        }
        shown_channels += [shown_channel] if gfx is None or sets else []
    return shown_channels


def list_open_sets(query: StoreQuery, name: str) -> list[wheel_set.SetDocument]:
    """Return the staged sets of the last three days that a channel may get yet, family by family.

    They were made for it: their local version begins with its name, ``2.13.0+nightly20261122.17.1.rocm10.1``.
    Of a torch, or of a companion alone, on a platform that is the newest, unless the channel shows it or
    took it back.
    """
    open_sets = []
    for family in wheel_set.list_families(query.store):
        channel = channels.read_channel(query.store, FamilyPaths(family), name).channel
        newest: dict[tuple[object, ...], wheel_set.SetDocument] = {}
        for document in reversed(wheel_set.read_family_sets(query.store, family).documents):
            release, _, local = document.version.partition("+")
            if local.startswith(name):
                platform = wheel_set.find_set_platform(document)
                newest[document.main_projects, release, platform] = document
        for document in newest.values():
            age = query.now - document.moment
            if document.id not in {*channel.shown, *channel.demoted} and age <= _OPEN_FOR:
                open_sets.append(document)
    return open_sets


def list_passed_sets(
    query: StoreQuery, documents: Iterable[wheel_set.SetDocument], gfx: str
) -> list[wheel_set.SetDocument]:
    """Return those of staged sets that passed on a target, in their order."""
    policy = query.policy
    takes_reports = any(policy.takes_reports(name) for name in policy.channels)

    def has_passed(document: wheel_set.SetDocument) -> bool:
        if gfx not in wheel_set.list_set_targets(document):
            return False
        evidence = read_evidence(query.store, document, signers=policy.signers, env=query.env)
        state = find_state_on(document, evidence, gfx, policy, query.now)
        return state is not None and (state.state == "tested" or (state.state == REPORTED and takes_reports))

    listed = list(documents)
    passed = parallel.run_in_parallel(has_passed, listed)
    return [document for document, has_it in zip(listed, passed, strict=True) if has_it]

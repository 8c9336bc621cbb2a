"""What is known of sets on each GPU target, and which of several is the newest that is good there.

By the gate's rule of what counts, and no other (``gate.on_gpus.state_of``):

- *tested* on a target: results of one kind at least (smoke tests, full tests) pass there, however old, and no
  failure of any kind stands. *failed*: a failure stands, whatever passed. *untested*: neither.
- A set has *passed* on a target when it is tested there; of one kind (``smoke``, ``tests``) when it would be
  by the results of that kind alone. A set that is not for a target has not passed on it.
- The *newest* is that of the newest torch, and of those the one that was created last (``release.newest``);
  each platform has its own.
- The *last known good* is the newest that passed on a target, of those that nobody took back. Why a set was
  demoted is written nowhere, so each one that was demoted is taken back: for a channel, those that it
  showed once and does not show; where no channel is asked for, those that no channel shows any more.

For a channel its own demands hold (signatures, passes after a failure, how many tests a run has). Where none
is asked for, a set is tested on a target when it is so for one channel of the policy, and failed when it is
so for any.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, get_args

from rocm_wheels.model.gfx import strip_features
from rocm_wheels.release.evidence_store import StoredEvidence
from rocm_wheels.release.gate.case import GateCase
from rocm_wheels.release.gate.needed import list_set_targets
from rocm_wheels.release.gate.on_gpus import find_target_state
from rocm_wheels.release.gate.policy import Policy
from rocm_wheels.release.gate.verdict import TargetState
from rocm_wheels.release.newest import SetRank, rank_set
from rocm_wheels.release.sets import SetDocument

TestKind = Literal["smoke", "tests"]


@dataclass(frozen=True)
class SetCandidate:
    """A set and all that is known of it."""

    document: SetDocument
    evidence: tuple[StoredEvidence, ...] = ()


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

    With the ids of those that were taken back it is the last known good one.
    """
    passed_over: list[tuple[SetCandidate, TargetState | None]] = []
    for candidate in sets:
        state = None
        if candidate.document.id not in taken_back:
            state = find_state_on(
                candidate.document, candidate.evidence, gfx, policy, now, channel=channel, kind=kind
            )
        if state is not None and state.state == "tested":
            return SearchResult(candidate, state, tuple(passed_over))
        passed_over.append((candidate, state))
    return SearchResult(None, None, tuple(passed_over))


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
    if not tested:
        return known_states[0]
    by = sorted({word for state in tested for word in state.by}, reverse=True)  # smoke tests, full tests
    pythons = {word for state in tested for word in state.pythons}
    in_order = sorted(pythons, key=lambda word: (word.endswith("t"), len(word), word))
    return TargetState(
        known_states[0].gfx, "tested", tuple(by), tuple(in_order), max(state.when for state in tested)
    )

"""Weigh several results about the same wheels: when a later one takes the place of an earlier one.

Results of one kind about one wheel on one target are put in line for each kind of machine.

- A failure holds, until so many passes in a row came after it on the same kind of machine. Passes on
  another kind of machine leave it standing: a wheel that works on one and not on another does not work.
- A failure counts from when it was written down (never earlier than it was found), a pass from when it
  was found. So a machine whose clock is behind cannot put its failure before an older pass.
- A pass that is too old, unsigned where that is needed, from the future or about other wheels is none. A
  failure about any wheel of the set is one, whatever else is wrong with it.
- A failure that no GPU had a part in (the interpreter did not start, the CPU half failed) holds for every
  target, until passes on any target came after it.
- A failure that passes made good is shown beside the pass, always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from rocm_wheels.core import format_count
from rocm_wheels.release.evidence.evidence import CLOCK_SKEW, Evidence
from rocm_wheels.release.evidence.store import StoredEvidence
from rocm_wheels.release.wheel_set import SetDocument

_MachineAndWheel = tuple[str, str]  # kind of machine, sha256


@dataclass(frozen=True)
class EvidenceMeasure:
    """How a channel looks at results: how old, how many passes after a failure, signed, of how many.

    ``selections``: also those count of which not all tests were run.
    """

    document: SetDocument
    now: datetime
    fresh: timedelta
    passes_after_failure: int = 1
    signed: bool = False
    at_least: int = 1
    selections: bool = False

    @cached_property
    def hashes(self) -> frozenset[str]:
        """The sha256 of the set's wheels."""
        return self.document.hashes


@dataclass(frozen=True)
class WeighedEvidence:
    """What results of a kind on a target come to.

    ``covered`` are the sha256 that they speak for, ``passing`` the results that do; ``failing`` those that
    hold, ``overcome`` those that do not any more, ``stale`` passes that are too old, ``few`` those in which
    too few tests passed, or only some were run.
    """

    covered: frozenset[str] = frozenset()
    passing: tuple[StoredEvidence, ...] = ()
    failing: tuple[StoredEvidence, ...] = ()
    overcome: tuple[StoredEvidence, ...] = ()
    stale: tuple[StoredEvidence, ...] = ()
    few: tuple[StoredEvidence, ...] = ()


def explain_ignored(stored: StoredEvidence, measure: EvidenceMeasure) -> str:
    """Return why a result says nothing about the set, however old it is; "" when it does."""
    evidence = stored.evidence
    if not evidence.passed:
        return "" if measure.hashes & set(evidence.hashes) else "none of its wheels are in the set"
    if stored.trouble:
        return stored.trouble
    if evidence.set != measure.document.id:
        return f"it is about {evidence.set}"
    if other_count := len(set(evidence.hashes) - measure.hashes):
        return f"{other_count} of its {format_count(len(evidence.hashes), 'wheel')} not in the set"
    if max(evidence.when, evidence.added) - measure.now > CLOCK_SKEW:
        return f"it is from the future: {max(evidence.when, evidence.added):%Y-%m-%d %H:%M} UTC"
    if measure.signed and not stored.signer:
        return "no signer listed by the policy has signed it"
    return ""


def explain_too_few(stored: StoredEvidence, measure: EvidenceMeasure) -> str:
    """Return why a pass is one of too few tests; "" when it is not."""
    evidence = stored.evidence
    if evidence.selected and not measure.selections:
        return f"only a selection of the tests ran ({evidence.selected})"
    if evidence.counts.passed < measure.at_least:
        return (
            f"only {format_count(evidence.counts.passed, 'test')} passed: at least {measure.at_least} needed"
        )
    return ""


def weigh_evidence(
    kind: str, gfx: str | None, evidence: Sequence[StoredEvidence], measure: EvidenceMeasure
) -> WeighedEvidence:
    """Return what the results of a kind come to: on a target, or (None) where no target matters.

    Of the latter the machine does not matter either: whoever looks at a file sees the same.
    """
    relevant = [
        stored for stored in evidence if stored.evidence.kind == kind and not explain_ignored(stored, measure)
    ]
    few = {stored.id for stored in relevant if stored.evidence.passed and explain_too_few(stored, measure)}
    counted = [stored for stored in relevant if stored.id not in few]
    if gfx is None:
        return _weigh_lines(counted, measure, lambda _: "")
    on_target = _weigh_lines(
        [stored for stored in counted if stored.evidence.gfx == gfx], measure, _get_machine_kind
    )
    without_gpu = [stored for stored in counted if stored.evidence.passed or stored.evidence.gfx is None]
    on_any_target = _weigh_lines(without_gpu, measure, _get_machine_kind)
    return replace(
        on_target,
        failing=_sort_evidence([*on_target.failing, *on_any_target.failing]),
        overcome=_sort_evidence([*on_target.overcome, *on_any_target.overcome]),
        few=_sort_evidence(
            [stored for stored in relevant if stored.id in few and stored.evidence.gfx == gfx]
        ),
    )


def _get_machine_kind(evidence: Evidence) -> str:
    return evidence.host.kind


def _weigh_lines(
    evidence: Sequence[StoredEvidence], measure: EvidenceMeasure, machine: Callable[[Evidence], str]
) -> WeighedEvidence:
    lines: dict[_MachineAndWheel, list[StoredEvidence]] = defaultdict(list)
    for stored in sorted(evidence, key=_evidence_sort_key):
        for sha256 in measure.hashes.intersection(stored.evidence.hashes):
            lines[machine(stored.evidence), sha256].append(stored)
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)  # most wheels have the same results
    for (_, sha256), line in lines.items():
        alike[tuple(stored.id for stored in line)].add(sha256)
    by_id = {stored.id: stored for stored in evidence}
    covered, passing, failing, overcome, stale = set[str](), [], [], [], []
    for ids, wheels in alike.items():
        line = [by_id[name] for name in ids]
        last = max((i for i, stored in enumerate(line) if not stored.evidence.passed), default=-1)
        failed = [stored for stored in line[: last + 1] if not stored.evidence.passed]
        after = line[last + 1 :]
        if failed and _count_findings(after) < measure.passes_after_failure:
            failing += failed
            continue
        overcome += failed
        newest = after[-1]
        if measure.now - newest.evidence.when > measure.fresh:
            stale.append(newest)
        else:
            covered |= wheels
            passing.append(newest)
    return WeighedEvidence(
        frozenset(covered),
        _sort_evidence(passing),
        _sort_evidence(failing),
        _sort_evidence(overcome),
        _sort_evidence(stale),
    )


def _count_findings(passes: Sequence[StoredEvidence]) -> int:
    """Return how often something was found to pass: what is handed in twice was found once."""
    return len({stored.evidence.claim for stored in passes})


def _evidence_sort_key(stored: StoredEvidence) -> tuple[datetime, bool, str]:
    evidence = stored.evidence
    counts_from = evidence.when if evidence.passed else max(evidence.when, evidence.added)
    return counts_from, not evidence.passed, stored.id


def _sort_evidence(evidence: Sequence[StoredEvidence]) -> tuple[StoredEvidence, ...]:
    """Return each once, the newest first."""
    return tuple(
        sorted({stored.id: stored for stored in evidence}.values(), key=_evidence_sort_key, reverse=True)
    )

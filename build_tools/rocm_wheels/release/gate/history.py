"""What several results come to: the rule by which a later one takes the place of an earlier one.

Results of one kind about one wheel on one target are put in line for each kind of machine.

- A failure holds, until so many passes in a row came after it on the same kind of machine. Passes on another
  kind of machine leave it standing: a wheel that works on one and not on another does not work.
- A failure counts from when it was written down (never earlier than it was found), a pass from when it was
  found. So a machine whose clock is behind cannot put its failure before an older pass.
- A pass that is too old, unsigned where that is needed, from the future or about other wheels is none.
  A failure about any wheel of the set is one, whatever else is wrong with it.
- A failure that no GPU had a part in (the interpreter did not start, the CPU half failed) holds for every
  target, until passes on any target came after it.
- A failure that passes made good is shown beside the pass, always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rocm_wheels.release.evidence import SKEW, Evidence
from rocm_wheels.release.evidence_store import Known
from rocm_wheels.release.sets import SetDocument

_Slot = tuple[str, str]  # kind of machine, sha256


@dataclass(frozen=True)
class Measure:
    """How a channel looks at results: how old, how many passes after a failure, signed, of how many tests."""

    now: datetime
    fresh: timedelta
    passes_after_failure: int = 1
    signed: bool = False
    at_least: int = 1


@dataclass(frozen=True)
class Come:
    """What results of a kind on a target come to.

    ``covered`` are the sha256 that they speak for, ``passing`` the results that do; ``failing`` those that
    hold, ``overcome`` those that do not any more, ``stale`` passes that are too old, ``few`` those in which
    too few tests passed.
    """

    covered: frozenset[str] = frozenset()
    passing: tuple[Known, ...] = ()
    failing: tuple[Known, ...] = ()
    overcome: tuple[Known, ...] = ()
    stale: tuple[Known, ...] = ()
    few: tuple[Known, ...] = ()


def why_ignored(known: Known, document: SetDocument, measure: Measure) -> str:
    """Return why a pass cannot speak for the set, however old it is; "" when it can."""
    evidence = known.evidence
    if known.trouble:
        return known.trouble
    if evidence.set != document.id:
        return f"it is about {evidence.set}"
    if others := len(set(evidence.hashes) - document.hashes):
        return f"{others} of its {len(evidence.hashes)} wheels are not in the set"
    if max(evidence.when, evidence.added) - measure.now > SKEW:
        return f"it is from the future: {max(evidence.when, evidence.added):%Y-%m-%d %H:%M} UTC"
    if measure.signed and not known.signer:
        return "nobody whom the policy lists has signed it"
    return ""


def come_to(
    kind: str, gfx: str | None, document: SetDocument, evidence: Sequence[Known], measure: Measure
) -> Come:
    """Return what the results of a kind come to: on a target, or (None) where no target matters.

    Of the latter the machine does not matter either: whoever looks at a file sees the same.
    """
    mine = [one for one in evidence if one.evidence.kind == kind]
    passes = [one for one in mine if one.evidence.passed and not why_ignored(one, document, measure)]
    good = [one for one in passes if one.evidence.counts.passed >= measure.at_least]
    bad = [one for one in mine if not one.evidence.passed and document.hashes & set(one.evidence.hashes)]
    if gfx is None:
        return _weigh(document, good, bad, measure, lambda _: "")
    here = _weigh(
        document,
        [one for one in good if one.evidence.gfx == gfx],
        [one for one in bad if one.evidence.gfx == gfx],
        measure,
        _machine,
    )
    anywhere = _weigh(document, good, [one for one in bad if one.evidence.gfx is None], measure, _machine)
    return Come(
        here.covered,
        here.passing,
        _ordered([*here.failing, *anywhere.failing]),
        _ordered([*here.overcome, *anywhere.overcome]),
        here.stale,
        _ordered([one for one in passes if one not in good and one.evidence.gfx == gfx]),
    )


def _machine(evidence: Evidence) -> str:
    return evidence.host.kind


def _weigh(
    document: SetDocument,
    good: Sequence[Known],
    bad: Sequence[Known],
    measure: Measure,
    machine: Callable[[Evidence], str],
) -> Come:
    slots: dict[_Slot, list[Known]] = defaultdict(list)
    for known in (*good, *bad):
        for sha256 in document.hashes & set(known.evidence.hashes):
            slots[machine(known.evidence), sha256].append(known)
    covered, passing, failing, overcome, stale = set[str](), [], [], [], []
    for (_, sha256), line in slots.items():
        line.sort(key=_place)
        last = max((i for i, one in enumerate(line) if not one.evidence.passed), default=-1)
        failed = [one for one in line[: last + 1] if not one.evidence.passed]
        after = line[last + 1 :]
        if failed and _found(after) < measure.passes_after_failure:
            failing += failed
            continue
        overcome += failed
        newest = after[-1]
        if measure.now - newest.evidence.when > measure.fresh:
            stale.append(newest)
        else:
            covered.add(sha256)
            passing.append(newest)
    return Come(frozenset(covered), _ordered(passing), _ordered(failing), _ordered(overcome), _ordered(stale))


def _found(passes: Sequence[Known]) -> int:
    """Return how often something was found to pass: what two people hand in was found once."""
    return len({one.evidence.claim for one in passes})


def _place(known: Known) -> tuple[datetime, bool, str]:
    evidence = known.evidence
    counts_from = evidence.when if evidence.passed else max(evidence.when, evidence.added)
    return counts_from, not evidence.passed, known.id


def _ordered(known: Sequence[Known]) -> tuple[Known, ...]:
    """Return each once, the newest first."""
    return tuple(sorted({one.id: one for one in known}.values(), key=_place, reverse=True))

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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from rocm_wheels.release.evidence import SKEW, Evidence
from rocm_wheels.release.evidence_store import Known
from rocm_wheels.release.sets import SetDocument

_Slot = tuple[str, str]  # kind of machine, sha256


@dataclass(frozen=True)
class Measure:
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
class Come:
    """What results of a kind on a target come to.

    ``covered`` are the sha256 that they speak for, ``passing`` the results that do; ``failing`` those that
    hold, ``overcome`` those that do not any more, ``stale`` passes that are too old, ``few`` those in which
    too few tests passed, or only some were run.
    """

    covered: frozenset[str] = frozenset()
    passing: tuple[Known, ...] = ()
    failing: tuple[Known, ...] = ()
    overcome: tuple[Known, ...] = ()
    stale: tuple[Known, ...] = ()
    few: tuple[Known, ...] = ()


def why_ignored(known: Known, measure: Measure) -> str:
    """Return why a result says nothing about the set, however old it is; "" when it does."""
    evidence = known.evidence
    if not evidence.passed:
        return "" if measure.hashes & set(evidence.hashes) else "none of its wheels are in the set"
    if known.trouble:
        return known.trouble
    if evidence.set != measure.document.id:
        return f"it is about {evidence.set}"
    if others := len(set(evidence.hashes) - measure.hashes):
        return f"{others} of its {len(evidence.hashes)} wheels are not in the set"
    if max(evidence.when, evidence.added) - measure.now > SKEW:
        return f"it is from the future: {max(evidence.when, evidence.added):%Y-%m-%d %H:%M} UTC"
    if measure.signed and not known.signer:
        return "nobody whom the policy lists has signed it"
    return ""


def why_few(known: Known, measure: Measure) -> str:
    """Return why a pass is one of too few tests; "" when it is not."""
    evidence = known.evidence
    if evidence.selected and not measure.selections:
        return f"a run of a selection is none ({evidence.selected})"
    if evidence.counts.passed < measure.at_least:
        return f"a run of {evidence.counts.passed} tests is none: {measure.at_least} are needed"
    return ""


def come_to(kind: str, gfx: str | None, evidence: Sequence[Known], measure: Measure) -> Come:
    """Return what the results of a kind come to: on a target, or (None) where no target matters.

    Of the latter the machine does not matter either: whoever looks at a file sees the same.
    """
    mine = [one for one in evidence if one.evidence.kind == kind and not why_ignored(one, measure)]
    few = {one.id for one in mine if one.evidence.passed and why_few(one, measure)}
    counted = [one for one in mine if one.id not in few]
    if gfx is None:
        return _weigh(counted, measure, lambda _: "")
    here = _weigh([one for one in counted if one.evidence.gfx == gfx], measure, _machine)
    lost = [one for one in counted if one.evidence.passed or one.evidence.gfx is None]
    anywhere = _weigh(lost, measure, _machine)
    return replace(
        here,
        failing=_ordered([*here.failing, *anywhere.failing]),
        overcome=_ordered([*here.overcome, *anywhere.overcome]),
        few=_ordered([one for one in mine if one.id in few and one.evidence.gfx == gfx]),
    )


def _machine(evidence: Evidence) -> str:
    return evidence.host.kind


def _weigh(known: Sequence[Known], measure: Measure, machine: Callable[[Evidence], str]) -> Come:
    lines: dict[_Slot, list[Known]] = defaultdict(list)
    for one in sorted(known, key=_place):
        for sha256 in measure.hashes.intersection(one.evidence.hashes):
            lines[machine(one.evidence), sha256].append(one)
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)  # most wheels have the same results
    for (_, sha256), line in lines.items():
        alike[tuple(one.id for one in line)].add(sha256)
    by_id = {one.id: one for one in known}
    covered, passing, failing, overcome, stale = set[str](), [], [], [], []
    for ids, wheels in alike.items():
        line = [by_id[name] for name in ids]
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
            covered |= wheels
            passing.append(newest)
    return Come(frozenset(covered), _ordered(passing), _ordered(failing), _ordered(overcome), _ordered(stale))


def _found(passes: Sequence[Known]) -> int:
    """Return how often something was found to pass: what is handed in twice was found once."""
    return len({one.evidence.claim for one in passes})


def _place(known: Known) -> tuple[datetime, bool, str]:
    evidence = known.evidence
    counts_from = evidence.when if evidence.passed else max(evidence.when, evidence.added)
    return counts_from, not evidence.passed, known.id


def _ordered(known: Sequence[Known]) -> tuple[Known, ...]:
    """Return each once, the newest first."""
    return tuple(sorted({one.id: one for one in known}.values(), key=_place, reverse=True))

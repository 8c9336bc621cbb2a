"""The judge: each rule of a channel, one after the other, by the evidence.

Nothing is looked at but arguments, and there is an answer for all of them: what cannot be judged fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from rocm_wheels.model.gfx import strip_features
from rocm_wheels.release.evidence import EvidenceKind
from rocm_wheels.release.evidence_store import StoredEvidence
from rocm_wheels.release.gate.case import (
    GateCase,
    list_overcome_ids,
    list_deciding_ids,
    describe_staleness,
    describe_failures,
    describe_past_failures,
)
from rocm_wheels.release.gate.history import weigh_evidence, explain_ignored
from rocm_wheels.release.gate.needed import compute_needs_digest, list_wheel_pythons, list_set_targets
from rocm_wheels.release.gate.on_gpus import judge_on_gpus, find_target_state
from rocm_wheels.release.gate.policy import FreshRule, Policy
from rocm_wheels.release.gate.verdict import RuleResult, Verdict
from rocm_wheels.release.sets import SetCell, SetDocument
from rocm_wheels.words import format_count

_MOST_CELLS_SHOWN = 5
_FILE_CHECK_COMMANDS = {
    "verify": ("rocm-wheels verify --json WHEELS > RESULTS", ""),
    "resolver": (
        "rocm-wheels resolve-check INDEX WHEELS --json > RESULTS",
        " --wheels WHEELS",
    ),  # no hashes in it
}


def judge_set(
    policy: Policy, channel: str, document: SetDocument, evidence: Sequence[StoredEvidence], now: datetime
) -> Verdict:
    """Return what a channel's rules come to for a set. ``now`` is a moment with its time zone.

    Pure and total. More failures, or fewer passes, never make a better verdict; waivers that have ended
    never count.
    """
    now = now.astimezone(timezone.utc)
    if channel not in policy.channels:
        why = f"the policy says nothing of {channel}, so nothing may go there"
        refused = RuleResult("hashes", "fail", why, tip=f"add {channel} to the channels of the policy")
        return Verdict(document.id, document.family, channel, now, (refused,))
    case = GateCase(policy, channel, document, tuple(evidence), now)
    rules = policy.rules_for(channel, document.family)
    results = [_judge_hashes(case), *_judge_lost_evidence(case), _judge_files(case, "verify", rules.verify)]
    if rules.complete is not None:
        results.append(_judge_completeness(case))
    if rules.resolver is not None:
        results.append(_judge_files(case, "resolver", rules.resolver))
    if rules.smoke is not None:
        results += judge_on_gpus(case, "smoke", rules.smoke)
    if rules.tests is not None:
        results += judge_on_gpus(case, "tests", rules.tests)
    measure = case.make_measure(timedelta.max)
    return Verdict(
        set=document.id,
        family=document.family,
        channel=channel,
        when=now,
        rules=tuple(results),
        targets=tuple(find_target_state(case, gfx) for gfx in list_set_targets(document)),
        ignored=tuple((stored.id, why) for stored in evidence if (why := explain_ignored(stored, measure))),
        notes=tuple(case.describe_ended_waivers(results)),
    )


def _judge_hashes(case: GateCase) -> RuleResult:
    document, needs = case.document, compute_needs_digest(case.document)
    own_evidence = [
        stored for stored in case.evidence if stored.evidence.set == document.id and not stored.trouble
    ]
    other = [stored.id for stored in own_evidence if stored.evidence.about not in {"", needs}]
    computed_id = document.computed_id
    if computed_id == document.id and other:
        why = f"the document says other targets or cells than when {other[0]} was written"
        tip = "put set.json back from a copy of the store"
        return RuleResult("hashes", "fail", why, evidence=(other[0],), tip=tip)
    if computed_id == document.id:
        locks = "its lock" if len(document.sources) == 1 else f"its {len(document.sources)} locks"
        return RuleResult(
            "hashes",
            "pass",
            f"the id is that of its {format_count(len(document.files), 'wheel')} and {locks}",
        )
    why = f"what it lists is {computed_id}: the document was changed, or is of another set"
    return RuleResult("hashes", "fail", why, tip="stage the wheels again")


def _judge_lost_evidence(case: GateCase) -> list[RuleResult]:
    """Return a failure where results are gone that others name: they did not pass when those were written."""
    present_ids = {stored.id for stored in case.evidence}
    naming_evidence = {name: stored for stored in reversed(case.evidence) for name in stored.evidence.beside}
    lost = sorted(set(naming_evidence) - present_ids)
    if not lost:
        return []
    witness = naming_evidence[lost[0]].id
    summary = f"{len(lost)} results that others name are gone" if len(lost) > 1 else "a result is gone"
    why = f"{summary}: {lost[0]}, which did not pass, is named by {witness}"
    tip = "put it back from a copy of the store; where there is none, build the wheels again, as another set"
    return [RuleResult("evidence", "fail", why, evidence=(witness,), tip=tip)]


def _judge_completeness(case: GateCase) -> RuleResult:
    document = case.document
    planned = f"{len(document.planned)} planned cells"
    missing_cells = [cell for cell in document.planned if not _has_wheel_for_cell(cell, document)]
    missing_cells += [cell for cell in document.missing if cell not in missing_cells]
    if missing_cells:
        listed = ", ".join(map(str, missing_cells[:_MOST_CELLS_SHOWN])) + (
            " and others" if len(missing_cells) > _MOST_CELLS_SHOWN else ""
        )
        why = f"{len(missing_cells)} of {planned} are missing: {listed}"
        return case.apply_waivers(
            RuleResult("complete", "fail", why, tip="build them, and stage the whole set")
        )
    if not document.planned:
        why = "nobody said what should be in the set, so nothing says that all of it is"
        tip = "stage it with a lock that names its Pythons and targets"
        return case.apply_waivers(RuleResult("complete", "fail", why, tip=tip))
    return RuleResult("complete", "pass", f"all {planned} (project × Python × target) are there")


def _has_wheel_for_cell(cell: SetCell, document: SetDocument) -> bool:
    """Tell whether a wheel fills a cell; its device code may be in parts of it (``torch-device-gfx942``)."""
    files = [item for item in document.files if document.fits_cell(item, cell)]
    usable = [
        item for item in files if not (pythons := list_wheel_pythons(item.name)) or cell.python in pythons
    ]
    wheels = [file for file in usable if file.project == cell.project]
    parts = [file for file in usable if file.project.startswith(f"{cell.project}-device-")]
    targets = {strip_features(item) for file in (*wheels, *parts) for item in file.targets}
    return bool(wheels) and (not cell.target or strip_features(cell.target) in targets)


def _judge_files(case: GateCase, kind: EvidenceKind, rule: FreshRule) -> RuleResult:
    """Judge a rule about files, which no GPU has a part in: each must be covered.

    Variants are left out where the resolver is asked: they are not chosen by version alone.
    """
    document, measure = case.document, case.make_measure(rule.fresh)
    files = [file for file in document.files if kind != "resolver" or not file.label]
    weighed = weigh_evidence(kind, None, case.evidence, measure)
    result = RuleResult(kind, "fail", "", "", list_deciding_ids(weighed), list_overcome_ids(weighed))
    command, more = _FILE_CHECK_COMMANDS[kind]
    tip = f"{command}, then: rocm-wheels evidence add STORE --set {document.id} --from RESULTS{more}"
    uncovered = [file.name for file in files if file.sha256 not in weighed.covered]
    if weighed.failing:
        why = describe_failures(weighed)
    elif uncovered:
        why = f"no evidence for {len(uncovered)} of {format_count(len(files), 'wheel')}: {uncovered[0]}"
        why += f"{' and others' if len(uncovered) > 1 else ''}{describe_staleness(weighed, measure)}"
    elif not files:
        return RuleResult(kind, "pass", "all wheels are variants, which are not chosen by version alone")
    else:
        why = f"{format_count(len(files), 'wheel')} passed{describe_past_failures(weighed)}"
        return RuleResult(kind, "pass", why, "", result.evidence, result.overcome)
    return case.apply_waivers(RuleResult(kind, "fail", why, "", result.evidence, result.overcome, tip))

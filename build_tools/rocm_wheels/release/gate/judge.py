"""The judge: each rule of a channel, one after the other, by the evidence.

Nothing is looked at but arguments, and there is an answer for all of them: what cannot be judged fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from rocm_wheels.model.gfx import base_target
from rocm_wheels.release.evidence import Kind
from rocm_wheels.release.evidence_store import Known
from rocm_wheels.release.gate.case import (
    Case,
    made_good,
    rests_on,
    said_of_age,
    said_of_failures,
    said_of_past,
)
from rocm_wheels.release.gate.history import come_to, why_ignored
from rocm_wheels.release.gate.needed import digest_of_needs, pythons_of, targets_of
from rocm_wheels.release.gate.on_gpus import judge_on_gpus, state_of
from rocm_wheels.release.gate.policy import Fresh, Policy
from rocm_wheels.release.gate.verdict import RuleResult, Verdict
from rocm_wheels.release.sets import Cell, SetDocument
from rocm_wheels.words import counted

_SHOWN = 5
_COMMAND = {
    "verify": ("rocm-wheels verify --json WHEELS > RESULTS", ""),
    "resolver": (
        "rocm-wheels resolve-check INDEX WHEELS --json > RESULTS",
        " --wheels WHEELS",
    ),  # no hashes in it
}


def judge(
    policy: Policy, channel: str, document: SetDocument, evidence: Sequence[Known], now: datetime
) -> Verdict:
    """Return what a channel's rules come to for a set. ``now`` is a moment with its time zone.

    Pure and total. More failures, or fewer passes, never make a better verdict; waivers that have ended
    never count.
    """
    now = now.astimezone(timezone.utc)
    if channel not in policy.channels:
        why = f"the policy says nothing of {channel}, so nothing may go there"
        held = RuleResult("hashes", "fail", why, tip=f"add {channel} to the channels of the policy")
        return Verdict(document.id, document.family, channel, now, (held,))
    case = Case(policy, channel, document, tuple(evidence), now)
    rules = policy.rules(channel, document.family)
    results = [_hashes(case), *_lost(case), _files(case, "verify", rules.verify)]
    if rules.complete is not None:
        results.append(_complete(case))
    if rules.resolver is not None:
        results.append(_files(case, "resolver", rules.resolver))
    if rules.smoke is not None:
        results += judge_on_gpus(case, "smoke", rules.smoke)
    if rules.tests is not None:
        results += judge_on_gpus(case, "tests", rules.tests)
    measure = case.measure(timedelta.max)
    return Verdict(
        set=document.id,
        family=document.family,
        channel=channel,
        when=now,
        rules=tuple(results),
        targets=tuple(state_of(case, gfx) for gfx in targets_of(document)),
        ignored=tuple((one.id, why) for one in evidence if (why := why_ignored(one, measure))),
        notes=tuple(case.ended_waivers(results)),
    )


def _hashes(case: Case) -> RuleResult:
    document, needs = case.document, digest_of_needs(case.document)
    mine = [one for one in case.evidence if one.evidence.set == document.id and not one.trouble]
    other = [one.id for one in mine if one.evidence.about not in {"", needs}]
    own = document.computed_id
    if own == document.id and other:
        why = f"the document says other targets or cells than when {other[0]} was written"
        tip = "put set.json back from a copy of the store"
        return RuleResult("hashes", "fail", why, evidence=(other[0],), tip=tip)
    if own == document.id:
        locks = "its lock" if len(document.sources) == 1 else f"its {len(document.sources)} locks"
        return RuleResult(
            "hashes", "pass", f"the id is that of its {counted(len(document.files), 'wheel')} and {locks}"
        )
    why = f"what it lists is {own}: the document was changed, or is of another set"
    return RuleResult("hashes", "fail", why, tip="stage the wheels again")


def _lost(case: Case) -> list[RuleResult]:
    """Return a failure where results are gone that others name: they did not pass when those were written."""
    known = {one.id for one in case.evidence}
    named = {name: one for one in reversed(case.evidence) for name in one.evidence.beside}
    lost = sorted(set(named) - known)
    if not lost:
        return []
    who = named[lost[0]].id
    many = f"{len(lost)} results that others name are gone" if len(lost) > 1 else "a result is gone"
    why = f"{many}: {lost[0]}, which did not pass, is named by {who}"
    tip = "put it back from a copy of the store; where there is none, build the wheels again, as another set"
    return [RuleResult("evidence", "fail", why, evidence=(who,), tip=tip)]


def _complete(case: Case) -> RuleResult:
    document = case.document
    planned = f"{len(document.planned)} planned cells"
    lacking = [cell for cell in document.planned if not _is_there(cell, document)]
    lacking += [cell for cell in document.missing if cell not in lacking]
    if lacking:
        shown = ", ".join(map(str, lacking[:_SHOWN])) + (" and others" if len(lacking) > _SHOWN else "")
        why = f"{len(lacking)} of {planned} are missing: {shown}"
        return case.settle(RuleResult("complete", "fail", why, tip="build them, and stage the whole set"))
    if not document.planned:
        why = "nobody said what should be in the set, so nothing says that all of it is"
        tip = "stage it with a lock that names its Pythons and targets"
        return case.settle(RuleResult("complete", "fail", why, tip=tip))
    return RuleResult("complete", "pass", f"all {planned} (project × Python × target) are there")


def _is_there(cell: Cell, document: SetDocument) -> bool:
    """Tell whether a wheel fills a cell; its device code may be in parts of it (``torch-device-gfx942``)."""
    files = [one for one in document.files if document.may_fill(one, cell)]
    usable = [one for one in files if not (own := pythons_of(one.name)) or cell.python in own]
    wheels = [file for file in usable if file.project == cell.project]
    parts = [file for file in usable if file.project.startswith(f"{cell.project}-device-")]
    targets = {base_target(one) for file in (*wheels, *parts) for one in file.targets}
    return bool(wheels) and (not cell.target or base_target(cell.target) in targets)


def _files(case: Case, kind: Kind, rule: Fresh) -> RuleResult:
    """Judge a rule about files, which no GPU has a part in: each must be covered.

    Variants are left out where the resolver is asked: they are not chosen by version alone.
    """
    document, measure = case.document, case.measure(rule.fresh)
    files = [file for file in document.files if kind != "resolver" or not file.label]
    come = come_to(kind, None, case.evidence, measure)
    result = RuleResult(kind, "fail", "", "", rests_on(come), made_good(come))
    command, more = _COMMAND[kind]
    tip = f"{command}, then: rocm-wheels evidence add STORE --set {document.id} --from RESULTS{more}"
    lacking = [file.name for file in files if file.sha256 not in come.covered]
    if come.failing:
        why = said_of_failures(come)
    elif lacking:
        why = f"no evidence for {len(lacking)} of {counted(len(files), 'wheel')}: {lacking[0]}"
        why += f"{' and others' if len(lacking) > 1 else ''}{said_of_age(come, measure)}"
    elif not files:
        return RuleResult(kind, "pass", "all wheels are variants, which are not chosen by version alone")
    else:
        why = f"{counted(len(files), 'wheel')} passed{said_of_past(come)}"
        return RuleResult(kind, "pass", why, "", result.evidence, result.overcome)
    return case.settle(RuleResult(kind, "fail", why, "", result.evidence, result.overcome, tip))

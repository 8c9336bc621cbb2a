"""What is told of a set by all that is known now.

A gate asks how old evidence is; once a set is out, its users are told what was found, and when. So age does
not matter here. Waivers and named exceptions are told as they are today: those that ended are gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from rocm_wheels import __version__
from rocm_wheels.model.ci import ci_table
from rocm_wheels.model.gfx import base_target, gfx_families
from rocm_wheels.release.evidence import SKEW
from rocm_wheels.release.evidence_store import Known as Result
from rocm_wheels.release.gate.judge import judge
from rocm_wheels.release.gate.needed import platform_of, pythons_of, targets_of
from rocm_wheels.release.gate.policy import Policy
from rocm_wheels.release.gate.verdict import Verdict, shown_state
from rocm_wheels.release.promotion.channel import Shown, State
from rocm_wheels.release.promotion.fewer import FEWER
from rocm_wheels.release.promotion.ties import LOOSE
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.release.views.known import Known, Target, Wheel
from rocm_wheels.wheels.names import parse_wheel_name

_RULES = ("verify", "resolver", "smoke", "tests")  # those with an age
_ANY_AGE = timedelta(days=36500)
_FORM = 3  # of what is told: another one is another digest


def without_age(policy: Policy) -> Policy:
    """Return a policy for which evidence of any age is fresh."""

    def of(rules: object) -> dict[str, object]:
        found = ((name, getattr(rules, name)) for name in _RULES)
        return {name: one.model_copy(update={"fresh": _ANY_AGE}) for name, one in found if one is not None}

    channels = {
        name: one.model_copy(update={"rules": one.rules.model_copy(update=of(one.rules))})
        for name, one in policy.channels.items()
    }
    families = {
        name: one.model_copy(
            update={"channels": {key: own.model_copy(update=of(own)) for key, own in one.channels.items()}}
        )
        for name, one in policy.families.items()
    }
    return policy.model_copy(update={"channels": channels, "families": families})


def digest_of(policy: Policy) -> str:
    """Return the digest of all that is told by: a policy, the data of families, and who reads them."""
    said = json.dumps(policy.model_dump(mode="json"), sort_keys=True)
    data = repr((sorted(ci_table().families.items()), sorted(gfx_families().items())))
    return hashlib.sha256(f"{_FORM} {__version__}\0{said}\0{data}".encode()).hexdigest()[:16]


def digest_of_all(policy: Policy, told_by: str, shown: Shown, evidence: Sequence[str], now: datetime) -> str:
    """Return the digest of what the told state of a set is found from; ``evidence`` are ids.

    The id of an evidence holds the hash of what it says. Of the time all that matters is which waivers ended.
    """
    ended = [now.date() > one.expires for one in policy.waivers]
    said = (told_by, ended, shown.set, shown.when, _loose(shown), sorted(evidence))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def known_of(
    document: SetDocument,
    results: Sequence[Result],
    shown: Shown,
    *,
    policy: Policy,
    channel: str,
    now: datetime,
    digest: str,
) -> Known:
    """Return what is known of a set on a channel. ``policy`` is one without age."""
    verdict = judge(policy, channel, document, results, now)
    failed = _failed_checks(verdict, results)
    lines = [*shown_state(verdict).lines, *(f"{rule}: failed" for rule in failed), *verdict.notes]
    project = "torch" if "torch" in document.projects else document.projects[0]
    wheels = [file for file in document.files if file.project == project]
    ahead = any(max(one.evidence.when, one.evidence.added) > now + SKEW for one in results)
    return Known(
        set=document.id,
        created=document.created,
        promoted=shown.when,
        project=project,
        version=wheels[0].version,
        rocm=document.rocm,
        os=platform_of(document),
        kind=document.layout,
        origin=document.origin,
        state=_state(verdict, failed),
        told=(*lines, *_loose(shown)),
        failed_checks=failed,
        targets=tuple(
            Target(gfx=one.gfx, state=one.state, by=one.by, pythons=one.pythons, when=one.when)
            for one in verdict.targets
        ),
        wheels=tuple(_wheel(file, document) for file in wheels),
        of="" if ahead else digest,
    )


def _loose(shown: Shown) -> list[str]:
    """Return the lines that are of the wheels, not of what is known of them: they stay."""
    return [line for line in shown.told if line.startswith((*LOOSE, FEWER))]


def _failed_checks(verdict: Verdict, results: Sequence[Result]) -> tuple[str, ...]:
    """Return the rules about files that fail, not for want of evidence, but by a failure or a change."""
    bad = {one.id for one in results if not one.evidence.passed}
    return tuple(
        one.rule
        for one in verdict.failures
        if one.rule in {"hashes", "evidence"}
        or (one.rule in {"verify", "resolver"} and bad.intersection(one.evidence))
    )


def _state(verdict: Verdict, failed: Sequence[str]) -> State:
    word = shown_state(verdict).word
    return "checks failed" if failed and word != "tests failed" else word


def _wheel(file: SetFile, document: SetDocument) -> Wheel:
    """Return a wheel; one whose device code is in other wheels of the set is for all its targets."""
    own = sorted({base_target(one) for one in file.targets})
    return Wheel(
        file=file.name,
        sha256=file.sha256,
        pythons=tuple(sorted(pythons_of(file.name), key=_by_number)),
        platforms=tuple(sorted({tag.platform for tag in parse_wheel_name(file.name).tags})),
        gfx=tuple(own) or targets_of(document),
        label=file.label,
        rocm=document.rocm_of(file),
    )


def _by_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python

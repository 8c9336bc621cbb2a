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
from rocm_wheels.model.ci import load_ci_table
from rocm_wheels.model.gfx import strip_features, get_gfx_families
from rocm_wheels.release.evidence import CLOCK_SKEW
from rocm_wheels.release.evidence_store import StoredEvidence as Result
from rocm_wheels.release.gate.judge import judge_set
from rocm_wheels.release.gate.needed import find_set_platform, list_wheel_pythons, list_set_targets
from rocm_wheels.release.gate.policy import Policy
from rocm_wheels.release.gate.verdict import Verdict, make_shown_state
from rocm_wheels.release.promotion.channel import ChannelSet, ShownTestState
from rocm_wheels.release.promotion.fewer import FEWER_TARGETS_PREFIX
from rocm_wheels.release.promotion.ties import UNPINNED_PREFIXES
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.release.views.known import SetStatus, TargetStatus, WheelStatus
from rocm_wheels.wheels.names import parse_wheel_name

_RULES_WITH_AGE = ("verify", "resolver", "smoke", "tests")  # those with an age
_ANY_STATUS_AGE = timedelta(days=36500)
_DIGEST_FORM = 3  # of what is told: another one is another digest


def drop_age_limits(policy: Policy) -> Policy:
    """Return a policy for which evidence of any age is fresh."""

    def of(rules: object) -> dict[str, object]:
        named_rules = ((name, getattr(rules, name)) for name in _RULES_WITH_AGE)
        return {
            name: rule.model_copy(update={"fresh": _ANY_STATUS_AGE})
            for name, rule in named_rules
            if rule is not None
        }

    channels = {
        name: policy_part.model_copy(
            update={"rules": policy_part.rules.model_copy(update=of(policy_part.rules))}
        )
        for name, policy_part in policy.channels.items()
    }
    families = {
        name: policy_part.model_copy(
            update={
                "channels": {
                    key: rules.model_copy(update=of(rules)) for key, rules in policy_part.channels.items()
                }
            }
        )
        for name, policy_part in policy.families.items()
    }
    return policy.model_copy(update={"channels": channels, "families": families})


def compute_policy_digest(policy: Policy) -> str:
    """Return the digest of all that is told by: a policy, the data of families, and who reads them."""
    policy_json = json.dumps(policy.model_dump(mode="json"), sort_keys=True)
    data = repr((sorted(load_ci_table().families.items()), sorted(get_gfx_families().items())))
    return hashlib.sha256(f"{_DIGEST_FORM} {__version__}\0{policy_json}\0{data}".encode()).hexdigest()[:16]


def compute_status_digest(
    policy: Policy, policy_digest: str, channel_set: ChannelSet, evidence: Sequence[str], now: datetime
) -> str:
    """Return the digest of what the told state of a set is found from; ``evidence`` are ids.

    The id of an evidence holds the hash of what it says. Of the time all that matters is which waivers ended.
    """
    ended = [now.date() > waiver.expires for waiver in policy.waivers]
    facts = (
        policy_digest,
        ended,
        channel_set.set,
        channel_set.when,
        _list_wheel_notes(channel_set),
        sorted(evidence),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def make_set_status(
    document: SetDocument,
    results: Sequence[Result],
    channel_set: ChannelSet,
    *,
    policy: Policy,
    channel: str,
    now: datetime,
    digest: str,
) -> SetStatus:
    """Return what is known of a set on a channel. ``policy`` is one without age."""
    verdict = judge_set(policy, channel, document, results, now)
    failed = _list_failed_checks(verdict, results)
    lines = [*make_shown_state(verdict).lines, *(f"{rule}: failed" for rule in failed), *verdict.notes]
    project = "torch" if "torch" in document.projects else document.projects[0]
    wheels = [file for file in document.files if file.project == project]
    ahead = any(max(item.evidence.when, item.evidence.added) > now + CLOCK_SKEW for item in results)
    return SetStatus(
        set=document.id,
        created=document.created,
        promoted=channel_set.when,
        project=project,
        version=wheels[0].version,
        rocm=document.rocm,
        os=find_set_platform(document),
        kind=document.layout,
        origin=document.origin,
        state=_find_state(verdict, failed),
        told=(*lines, *_list_wheel_notes(channel_set)),
        failed_checks=failed,
        targets=tuple(
            TargetStatus(gfx=item.gfx, state=item.state, by=item.by, pythons=item.pythons, when=item.when)
            for item in verdict.targets
        ),
        wheels=tuple(_make_wheel_status(file, document) for file in wheels),
        of="" if ahead else digest,
    )


def _list_wheel_notes(channel_set: ChannelSet) -> list[str]:
    """Return the lines that are of the wheels, not of what is known of them: they stay."""
    return [line for line in channel_set.told if line.startswith((*UNPINNED_PREFIXES, FEWER_TARGETS_PREFIX))]


def _list_failed_checks(verdict: Verdict, results: Sequence[Result]) -> tuple[str, ...]:
    """Return the rules about files that fail, not for want of evidence, but by a failure or a change."""
    bad = {item.id for item in results if not item.evidence.passed}
    return tuple(
        item.rule
        for item in verdict.failures
        if item.rule in {"hashes", "evidence"}
        or (item.rule in {"verify", "resolver"} and bad.intersection(item.evidence))
    )


def _find_state(verdict: Verdict, failed: Sequence[str]) -> ShownTestState:
    word = make_shown_state(verdict).word
    return "checks failed" if failed and word != "tests failed" else word


def _make_wheel_status(file: SetFile, document: SetDocument) -> WheelStatus:
    """Return a wheel; one whose device code is in other wheels of the set is for all its targets."""
    targets = sorted({strip_features(target) for target in file.targets})
    return WheelStatus(
        file=file.name,
        sha256=file.sha256,
        pythons=tuple(sorted(list_wheel_pythons(file.name), key=_python_number)),
        platforms=tuple(sorted({tag.platform for tag in parse_wheel_name(file.name).tags})),
        gfx=tuple(targets) or list_set_targets(document),
        label=file.label,
        rocm=document.rocm_of(file),
    )


def _python_number(python: str) -> tuple[int, str]:
    return int(python[2:].rstrip("t") or 0), python

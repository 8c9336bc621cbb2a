"""``rocm-wheels gate``: may a set go to a channel?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.evidence import ChosenSet, now, set_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import ReleaseError

if TYPE_CHECKING:
    from rocm_wheels.release.evidence_store import Known
    from rocm_wheels.release.gate.verdict import RuleResult, Verdict

_WORDS = {"pass": "pass", "fail": "FAIL", "waived": "waived", "bypassed": "bypassed"}


@click.command("gate")
@set_options
@click.option("--channel", required=True, metavar="CHANNEL", help="nightly, prerelease or stable.")
@click.option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@click.option("--explain", is_flag=True, help="Print every rule with the evidence that it rests on.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def command(chosen: ChosenSet, channel: str, policy: Path | None, explain: bool, as_json: bool) -> None:
    """Judge a staged set by its evidence: may it go to a channel?

    The exit code is 15 when it may not, with what to do next. Nothing is changed.
    """
    from rocm_wheels.release.gate.asking import ask_gate
    from rocm_wheels.release.gate.policy import load_policy

    rules = load_policy(policy)
    store, layout, document = chosen.find()
    verdict, known = ask_gate(store, layout, document, channel, policy=rules, now=now(), env=environment())
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=1))
    else:
        click.echo("\n".join(_lines(verdict, {one.id: one for one in known}, explain=explain)))
    if not verdict.passed:
        many = "1 rule does" if len(verdict.failures) == 1 else f"{len(verdict.failures)} rules do"
        raise ReleaseError(
            f"{verdict.set} may not go to {channel}: {many} not pass",
            tip=verdict.next_step.replace(" STORE ", f" {chosen.store} ") or None,
        )


def _lines(verdict: Verdict, known: dict[str, Known], *, explain: bool) -> list[str]:
    from rocm_wheels.release.gate.verdict import shown_state

    state = shown_state(verdict)
    may = "may go to" if verdict.passed else "may not go to"
    lines = [f"{verdict.set} of {verdict.family} {may} {verdict.channel} ({state.word})"]
    width = max(len(one.title) for one in verdict.rules)
    for one in verdict.rules:
        lines.append(f"  {_WORDS[one.outcome]:8}  {one.title:{width}}  {one.why}")
        if explain:
            lines += _evidence_lines(one, verdict, known)
    lines += [f"  note: {note}" for note in verdict.notes]
    if explain:
        lines += [f"  does not count: {name}: {why}" for name, why in verdict.ignored]
        lines += [f"  users see: {line}" for line in state.lines]
    return lines


def _evidence_lines(rule: RuleResult, verdict: Verdict, known: dict[str, Known]) -> list[str]:
    from rocm_wheels.release.evidence import describe
    from rocm_wheels.release.gate.case import in_words

    lines = []
    for label, names in (("evidence", rule.evidence), ("made good", rule.overcome)):
        for name in names:
            one = known[name]
            age = in_words(verdict.when - one.evidence.when)
            signed = f", signed by {one.signer}" if one.signer else ""
            kind = f" ({one.evidence.host.kind})" if one.evidence.host.kind != "any" else ""
            said = f"{describe(one.evidence)}{kind}, {age} ago"
            lines.append(f"      {label}: {name}  {said}, by {one.evidence.by}{signed}")
            lines += [f"        failed: {test}" for test in one.evidence.failed[:3]]
    return lines

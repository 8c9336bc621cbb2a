"""``rocm-wheels gate``: may a set go to a channel?"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.evidence import ChosenSet, evidence_as_json, current_time, set_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import ReleaseError
from rocm_wheels.shell import format_command

if TYPE_CHECKING:
    from rocm_wheels.release.evidence_store import StoredEvidence
    from rocm_wheels.release.gate.verdict import RuleResult, Verdict

_OUTCOME_WORDS = {
    "fail": "FAIL",
    "waived": "waived",
    "bypassed": "bypassed",
    "pass": "pass",
}  # what holds it comes first
_MOST_RESULTS = 4  # results, and failed tests of each, under a rule


@click.command("gate")
@set_options
@click.option("--channel", required=True, metavar="CHANNEL", help="nightly, prerelease or stable.")
@click.option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@click.option("--explain", is_flag=True, help="Print every rule with the evidence that it rests on.")
@click.option("--json", "in_json", is_flag=True, help="Print the verdict, and all evidence, as JSON.")
def gate_command(chosen: ChosenSet, channel: str, policy: Path | None, explain: bool, in_json: bool) -> None:
    """Judge a staged set by its evidence: may it go to a channel?

    What holds it is printed first. The exit code is 15 when it may not go, with what to do next. Nothing is
    changed.
    """
    from rocm_wheels.release.gate.asking import judge_staged_set
    from rocm_wheels.release.gate.policy import load_policy

    rules = load_policy(policy)
    store, layout, document = chosen.open_set()
    verdict, evidence = judge_staged_set(
        store, layout, document, channel, policy=rules, now=current_time(), env=read_environment()
    )
    step = _fill_in_store(verdict.next_step, chosen)
    if in_json:
        report = {**verdict.as_json(), "policy": str(policy) if policy else None, "next": step}
        click.echo(
            json.dumps({**report, "evidence": [evidence_as_json(entry) for entry in evidence]}, indent=1)
        )
    else:
        click.echo(
            "\n".join(
                _describe_verdict(chosen, verdict, {entry.id: entry for entry in evidence}, explain=explain)
            )
        )
    if not verdict.passed:
        many = "1 rule does" if len(verdict.failures) == 1 else f"{len(verdict.failures)} rules do"
        raise ReleaseError(f"{verdict.set} may not go to {channel}: {many} not pass", tip=step or None)


def _fill_in_store(step: str, chosen: ChosenSet) -> str:
    """Return what is to be done next with the words that were used here, as they can be pasted."""
    words = [chosen.store]
    words += ["--store-layout", str(chosen.layout)] if chosen.layout else []
    words += ["--family", chosen.family] if chosen.family else []
    return step.replace(" STORE ", f" {format_command(words)} ")


def _format_evidence_command(chosen: ChosenSet, verdict: Verdict, subcommand: str, last: str = "") -> str:
    return _fill_in_store(
        f"rocm-wheels evidence {subcommand} STORE --set {verdict.set} {last}", chosen
    ).rstrip()


def _describe_verdict(
    chosen: ChosenSet, verdict: Verdict, evidence: dict[str, StoredEvidence], *, explain: bool
) -> list[str]:
    from rocm_wheels.release.gate.verdict import make_shown_state

    state = make_shown_state(verdict)
    may = "may go to" if verdict.passed else "may not go to"
    blocked = f": {len(verdict.failures)} of {len(verdict.rules)} rules hold it" if verdict.failures else ""
    lines = [f"{verdict.set} of {verdict.family} {may} {verdict.channel} ({state.word}){blocked}"]
    width = max(len(result.title) for result in verdict.rules)
    for result in sorted(verdict.rules, key=lambda rule: list(_OUTCOME_WORDS).index(rule.outcome)):
        why = _shorten_reason(result, evidence) if explain else result.why
        lines.append(f"  {_OUTCOME_WORDS[result.outcome]:8}  {result.title:{width}}  {why}")
        if explain:
            lines += _describe_results(chosen, "", result.evidence, verdict, evidence)
            lines += _describe_results(chosen, "made good: ", result.overcome, verdict, evidence)
    lines += [f"  note: {note}" for note in verdict.notes]
    if explain:
        lines += _describe_ignored(verdict)
        lines += [f"  users see: {line}" for line in state.lines]
    return lines


def _shorten_reason(rule: RuleResult, evidence: dict[str, StoredEvidence]) -> str:
    """Return why a rule is what it is without the failed tests, which are told below."""
    failed = evidence[rule.evidence[0]].evidence.failed if rule.evidence else ()
    return rule.why.partition(f": {failed[0][:40]}")[0] if failed and rule.outcome != "pass" else rule.why


def _describe_results(
    chosen: ChosenSet,
    label: str,
    names: tuple[str, ...],
    verdict: Verdict,
    evidence: dict[str, StoredEvidence],
) -> list[str]:
    """Return what a rule rests on, a line each; the newest, where there are many."""
    from rocm_wheels.release.gate.case import format_age

    lines = []
    for entry in [evidence[name] for name in names[:_MOST_RESULTS]]:
        result = entry.evidence
        kind = f" ({result.host.kind})" if result.host.kind != "any" else ""
        signed = f", signed by {entry.signer}" if entry.signer else ""
        outcome = f"{result.outcome} ({result.counts}), {format_age(verdict.when - result.when)} ago"
        who = f"on {result.host.short}{kind}, by {result.by}{signed}"
        lines.append(f"      {label}{entry.id}  {outcome} {who}")
        lines += [f"        failed: {test}" for test in result.failed[:_MOST_RESULTS]]
        if len(result.failed) > _MOST_RESULTS:
            lines.append(
                f"        all of them: {_format_evidence_command(chosen, verdict, 'show', entry.id)}"
            )
    if len(names) > _MOST_RESULTS:
        rest = f"{label}and {len(names) - _MOST_RESULTS} older"
        lines.append(f"      {rest}: {_format_evidence_command(chosen, verdict, 'list')}")
    return lines


def _describe_ignored(verdict: Verdict) -> list[str]:
    """Return what does not count, by the reason."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, why in verdict.ignored:
        names_by_reason[why].append(name)
    return [
        f"  does not count: {', '.join(names[:2])}{f' and {len(names) - 2} more' * (len(names) > 2)}: {why}"
        for why, names in names_by_reason.items()
    ]

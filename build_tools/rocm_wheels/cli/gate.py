"""``rocm-wheels gate``: may a set go to a channel?"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.evidence import ChosenSet, evidence_json, now, set_options
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import ReleaseError
from rocm_wheels.shell import shell_line

if TYPE_CHECKING:
    from rocm_wheels.release.evidence_store import Known
    from rocm_wheels.release.gate.verdict import RuleResult, Verdict

_WORDS = {
    "fail": "FAIL",
    "waived": "waived",
    "bypassed": "bypassed",
    "pass": "pass",
}  # what holds it comes first
_SHOWN = 4  # results, and failed tests of each, under a rule


@click.command("gate")
@set_options
@click.option("--channel", required=True, metavar="CHANNEL", help="nightly, prerelease or stable.")
@click.option("--policy", type=GivenPath(), help="What channels need [default: data/release_policy.yaml].")
@click.option("--explain", is_flag=True, help="Print every rule with the evidence that it rests on.")
@click.option("--json", "in_json", is_flag=True, help="Print the verdict, and all evidence, as JSON.")
def command(chosen: ChosenSet, channel: str, policy: Path | None, explain: bool, in_json: bool) -> None:
    """Judge a staged set by its evidence: may it go to a channel?

    What holds it is printed first. The exit code is 15 when it may not go, with what to do next. Nothing is
    changed.
    """
    from rocm_wheels.release.gate.asking import ask_gate
    from rocm_wheels.release.gate.policy import load_policy

    rules = load_policy(policy)
    store, layout, document = chosen.find()
    verdict, known = ask_gate(store, layout, document, channel, policy=rules, now=now(), env=environment())
    step = _filled(verdict.next_step, chosen)
    if in_json:
        said = {**verdict.as_json(), "policy": str(policy) if policy else None, "next": step}
        click.echo(json.dumps({**said, "evidence": [evidence_json(one) for one in known]}, indent=1))
    else:
        click.echo("\n".join(_lines(chosen, verdict, {one.id: one for one in known}, explain=explain)))
    if not verdict.passed:
        many = "1 rule does" if len(verdict.failures) == 1 else f"{len(verdict.failures)} rules do"
        raise ReleaseError(f"{verdict.set} may not go to {channel}: {many} not pass", tip=step or None)


def _filled(step: str, chosen: ChosenSet) -> str:
    """Return what is to be done next with the words that were used here, as they can be pasted."""
    words = [chosen.store]
    words += ["--store-layout", str(chosen.layout)] if chosen.layout else []
    words += ["--family", chosen.family] if chosen.family else []
    return step.replace(" STORE ", f" {shell_line(words)} ")


def _about(chosen: ChosenSet, verdict: Verdict, what: str, last: str = "") -> str:
    return _filled(f"rocm-wheels evidence {what} STORE --set {verdict.set} {last}", chosen).rstrip()


def _lines(chosen: ChosenSet, verdict: Verdict, known: dict[str, Known], *, explain: bool) -> list[str]:
    from rocm_wheels.release.gate.verdict import shown_state

    state = shown_state(verdict)
    may = "may go to" if verdict.passed else "may not go to"
    held = f": {len(verdict.failures)} of {len(verdict.rules)} rules hold it" if verdict.failures else ""
    lines = [f"{verdict.set} of {verdict.family} {may} {verdict.channel} ({state.word}){held}"]
    width = max(len(one.title) for one in verdict.rules)
    for one in sorted(verdict.rules, key=lambda rule: list(_WORDS).index(rule.outcome)):
        why = _without_names(one, known) if explain else one.why
        lines.append(f"  {_WORDS[one.outcome]:8}  {one.title:{width}}  {why}")
        if explain:
            lines += _evidence_lines(chosen, "", one.evidence, verdict, known)
            lines += _evidence_lines(chosen, "made good: ", one.overcome, verdict, known)
    lines += [f"  note: {note}" for note in verdict.notes]
    if explain:
        lines += _ignored_lines(verdict)
        lines += [f"  users see: {line}" for line in state.lines]
    return lines


def _without_names(rule: RuleResult, known: dict[str, Known]) -> str:
    """Return why a rule is what it is without the failed tests, which are told below."""
    failed = known[rule.evidence[0]].evidence.failed if rule.evidence else ()
    return rule.why.partition(f": {failed[0][:40]}")[0] if failed and rule.outcome != "pass" else rule.why


def _evidence_lines(
    chosen: ChosenSet, label: str, names: tuple[str, ...], verdict: Verdict, known: dict[str, Known]
) -> list[str]:
    """Return what a rule rests on, a line each; the newest, where there are many."""
    from rocm_wheels.release.gate.case import in_words

    lines = []
    for one in [known[name] for name in names[:_SHOWN]]:
        found = one.evidence
        kind = f" ({found.host.kind})" if found.host.kind != "any" else ""
        signed = f", signed by {one.signer}" if one.signer else ""
        said = f"{found.outcome} ({found.counts}), {in_words(verdict.when - found.when)} ago"
        who = f"on {found.host.short}{kind}, by {found.by}{signed}"
        lines.append(f"      {label}{one.id}  {said} {who}")
        lines += [f"        failed: {test}" for test in found.failed[:_SHOWN]]
        if len(found.failed) > _SHOWN:
            lines.append(f"        all of them: {_about(chosen, verdict, 'show', one.id)}")
    if len(names) > _SHOWN:
        rest = f"{label}and {len(names) - _SHOWN} older"
        lines.append(f"      {rest}: {_about(chosen, verdict, 'list')}")
    return lines


def _ignored_lines(verdict: Verdict) -> list[str]:
    """Return what does not count, by the reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, why in verdict.ignored:
        found[why].append(name)
    return [
        f"  does not count: {', '.join(names[:2])}{f' and {len(names) - 2} more' * (len(names) > 2)}: {why}"
        for why, names in found.items()
    ]

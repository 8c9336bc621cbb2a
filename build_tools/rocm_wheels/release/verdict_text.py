"""Make sentences of a verdict: why each rule came out as it did, and what users see.

The one place that does, for the command line, the summary of a job, the pages of channels and errors.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocm_wheels.core import tables
from rocm_wheels.release.evidence.evidence import OutcomeCounts, name_subject, summarize_evidence
from rocm_wheels.release.evidence.store import StoredEvidence
from rocm_wheels.release.verdict import Reason, ReasonCode, RuleResult, TargetState, Verdict

_LONGEST_TEST_NAME = 80
_MOST_CELLS = 5
_TEST_NAMES = {"smoke": "the smoke tests", "tests": "torch's own tests"}
_FILE_FAULTS: tuple[ReasonCode, ...] = ("gone", "other-size", "other-bytes", "changing", "bad-statement")


class _FactFormatter(string.Formatter):
    """Fills a template with facts: ``{age:age}``, ``{files:some}``, ``{wheels:wheel}`` for a count."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a fact as its specification says; a number with its noun, where that is a noun."""
        if format_spec == "age":
            return tables.format_duration(value)
        if format_spec == "minute":
            return f"{value:%Y-%m-%d %H:%M} UTC"
        if format_spec == "counts":
            return str(OutcomeCounts(**value))
        if format_spec == "list":
            return ", ".join(map(str, value))
        if format_spec == "some":  # the first, and how many more
            rest = f" and {tables.format_count(len(value) - 1, 'other')}" if len(value) > 1 else ""
            return f"{value[0]}{rest}"
        if format_spec and isinstance(value, int):
            noun, _, plural = format_spec.partition("/")
            return tables.format_count(value, noun, plural)
        return str(value)


def _with_pythons(pythons: Sequence[str]) -> str:
    return f" with Python {', '.join(pythons)}" if pythons else ""


def _describe_failed(facts: Mapping[str, Any]) -> str:
    text = _FactFormatter().format("{result} ({counts:counts}), {when:minute} on {host}", **facts)
    if facts["before_gpu"]:
        text = f"before it saw a GPU: {text}"
    if facts["tests"]:
        text += f": {', '.join(name[:_LONGEST_TEST_NAME] for name in facts['tests'])}"
    elif facts["detail"]:
        text += f" ({facts['detail']})"
    if facts["others"]:
        text += f", and {tables.format_count(facts['others'], 'other result')}"
    return text


def _describe_missing_cells(facts: Mapping[str, Any]) -> str:
    cells = facts["cells"]
    rest = " and others" if len(cells) > _MOST_CELLS else ""
    # cells that nobody planned may be missing, too
    count = tables.count_part(len(cells), max(facts["planned"], len(cells)), "planned cell")
    return f"missing {count}: {', '.join(cells[:_MOST_CELLS])}{rest}"


def _describe_missing_shards(facts: Mapping[str, Any]) -> str:
    verb = "is" if len(facts["missing"]) == 1 else "are"
    return f"of {facts['shards']} shards {', '.join(map(str, facts['missing']))} {verb} not there"


def _describe_exception(facts: Mapping[str, Any]) -> str:
    state = "not tested enough" if facts["tested"] else "untested"
    source = f"{facts['owner']}: {facts['why']}" if facts["owner"] else "the data of families names it"
    return f"{state}: {facts['family']} is a named exception ({source})"


def _describe_slower(facts: Mapping[str, Any]) -> str:
    slowest, *others = facts["slower"]
    rest = f", and {tables.format_count(len(others), 'other')} too slow" if others else ""
    return f"{_describe_speed(slowest, facts)}{rest}; at least {_format_part(facts['limit'])} needed"


def _describe_speed(compared: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    name = compared["name"].partition(":")[2]
    speed, before = (
        f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
        for number in (compared["speed"], compared["before"])
    )
    part = f"{_format_part(compared['ratio'])} of the {before} of {facts['set']}"
    return f"{name} on {facts['machine']}: {speed} TFLOP/s, {part}"


def _format_part(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _describe_first_measured(facts: Mapping[str, Any]) -> str:
    if not facts["machines"]:
        return "nothing was measured, and of no earlier set was anything: nothing to compare"
    count = tables.format_count(facts["speeds"], "speed")
    return f"{count} on {' and '.join(facts['machines'])}, the first there: nothing to compare with"


def _describe_lacks_measurements(facts: Mapping[str, Any]) -> str:
    names = [name.partition(":")[2] for name in facts["names"]]
    rest = f" and {tables.format_count(len(names) - 1, 'other')}" if names[1:] else ""
    return f"{names[0]}{rest} not measured on {facts['machine']}, as for {facts['set']}"


def _describe_files(lack: str, noun: str = "wheel") -> Callable[[Mapping[str, Any]], str]:
    def describe(facts: Mapping[str, Any]) -> str:
        files = facts["files"]
        count = tables.count_part(len(files), facts["wheels"], noun)
        rest = " and others" if len(files) > 1 else ""
        signers = " or ".join(facts.get("signers", ()))
        return f"{lack.format(count=count, signers=signers)}: {files[0]}{rest}"

    return describe


_REASONS: dict[ReasonCode, str | Callable[[Mapping[str, Any]], str]] = {
    "no-channel": "the policy says nothing of {channel}, so nothing may go there",
    "no-signers": "evidence must be signed, and the policy names nobody under `signers`",
    "whole": "the id is that of its {wheels:wheel} and {locks:lock}",
    "bytes-read": "their bytes are those",
    "other-id": "what it lists is {id}: the document was changed, or is of another set",
    "other-document": "the document says other things than when {evidence} was written",
    "gone": "{file} is gone",
    "other-size": "{file} has {size:byte} and not {expected}",
    "other-bytes": "{file} has other bytes: their sha256 is {sha256}",
    "changing": "{file} was written to while it was read",
    "complete": "{planned:planned cell} (project × Python × target), none missing",
    "missing-cells": _describe_missing_cells,
    "no-plan": "the set has no list of planned cells: its completeness is unknown",
    "statements": lambda facts: (
        f"{tables.format_count(facts['wheels'], 'wheel')} with a statement"
        + (f", signed by {' or '.join(facts['signers'])}" if facts["signers"] else "")
    ),
    "no-statement": _describe_files("no statement for {count}"),
    "unsigned-statement": _describe_files("{count} not signed by {signers}", "statement"),
    "bad-statement": "{fault}",
    "reproduced": "{wheels:wheel} built again with the same bytes, by {by:list}",
    "own-build": "{signers:list} built the wheels, and cannot reproduce them as well",
    "unlisted": "{passes:pass/passes} not signed by {by:list}",
    "passed": lambda facts: (
        f"passed{_with_pythons(facts['pythons'])} "
        + _FactFormatter().format("({counts:counts}; {age:age} ago on {host}, by {by})", **facts)
    ),
    "all-passed": "{wheels:wheel} passed",
    "overcome": "after {failures:failure} on the same wheels",
    "variants-only": "all wheels are variants, which are not chosen by version alone",
    "failed": _describe_failed,
    "uncovered": _describe_files("no evidence for {count}"),
    "no-pass": "no evidence that {tests} pass",
    "partial-pass": lambda facts: (
        f"{facts['tests']} passed, but not{_with_pythons(facts['pythons'])}: "
        + _FactFormatter().format("{files:some}", **facts)
    ),
    "unsigned": "{passes:pass/passes} not signed by a signer that the policy lists",
    "too-old": "the newest is {age:age} old, and may be {limit:age}",
    "selection": "only a selection of the tests ran ({selected})",
    "too-few": "only {passed:test} passed: at least {needed} needed",
    "too-flaky": "{flaky:test} failed and passed when tried again: at most {allowed} may",
    "missing-shards": _describe_missing_shards,
    "fast-enough": lambda facts: (
        f"{tables.format_count(facts['speeds'], 'speed')} compared, the worst"
        f" {_describe_speed(facts['least'], facts)}"
    ),
    "slower": _describe_slower,
    "first-measured": _describe_first_measured,
    "not-measured": "not measured, and {set} was, on {machines:list}",
    "lacks-measurements": _describe_lacks_measurements,
    "other-machine": "measured on {machines:list}, and {set} on {earlier:list}: nothing to compare",
    "no-wheels": lambda facts: (
        f"the set has no wheels of {', '.join(facts['projects']) or 'any project'} "
        f"with code for {facts['gfx']}"
    ),
    "no-targets": "neither the set nor its family names its GPU targets",
    "any-target": "one of {targets:list} is enough, and there is none",
    "exception": _describe_exception,
    "exception-refused": "that {family} is a named exception does not count here",
    "no-runner": "no runner has a {gfx}, which excuses nothing",
    "waived": "{owner} answers for it until {until}: {why}",
    "accepted": "nothing that people get stands against it",
    "refused": "{fault}",
    "lost-gpu": "its GPU got lost, which says nothing of the wheels",
    "not-in-set": "none of its wheels are in the set",
    "trouble": "{fault}",
    "other-set": "it is about {set}",
    "other-wheels": lambda facts: (
        f"{tables.count_part(facts['count'], facts['wheels'], 'wheel').replace('the only', 'its only')} "
        "not in the set"
    ),
    "future": "it is from the future: {when:minute}",
    "not-signed": "no signer that the policy lists has signed it",
    "waiver-ended": "{title}: the waiver of {owner} ended on {until}",
    "waiver-too-long": "{title}: the waiver of {owner} is to hold until {until}: none counts for more than"
    " {days} days",
    "upgrade": "{fault}",
}


def describe_reason(reason: Reason, rule: str = "") -> str:
    """Return a reason as a clause; ``rule`` is the one that it is of."""
    template = _REASONS[reason.code]
    facts = {**reason.facts, "tests": reason.facts.get("tests", _TEST_NAMES.get(rule, rule))}
    return template(facts) if callable(template) else _FactFormatter().format(template, **facts)


def describe_rule(result: RuleResult, *, tests: bool = True) -> str:
    """Return why a rule came out as it did, in a line; of many damaged files the first is named.

    ``tests``: tests that failed are named, too.
    """
    damaged = [item for item in result.reasons if item.code in _FILE_FAULTS]
    if len(damaged) > 1:
        return f"{describe_reason(damaged[0])}, and {tables.format_count(len(damaged) - 1, 'other file')}"
    reasons = [item if tests else _without_tests(item) for item in result.reasons]
    if result.outcome == "bypassed":  # the exception says so
        reasons = [item for item in reasons if item.code != "no-pass"]
    clauses = [describe_reason(item, result.rule) for item in reasons]
    if result.outcome == "waived":
        return f"{clauses[0]}; without that: {'; '.join(clauses[1:])}"
    return "; ".join(clauses)


def _without_tests(reason: Reason) -> Reason:
    """Return a failure as if no test was named in it; others as they are."""
    if reason.code != "failed" or not reason.facts["tests"]:
        return reason
    return Reason(reason.code, {**reason.facts, "tests": (), "detail": ""})


def list_shown_lines(verdict: Verdict) -> tuple[str, ...]:
    """Return what the pages of a set tell of its tests, beside its state: plain text, a line each, no markup.

    What was bypassed or waived is told with who named it; a target that nobody tested is never left out.
    """
    lines = [_describe_target(target) for target in verdict.targets]
    lines += [
        f"{rule.title}: {describe_rule(rule)}"
        for rule in verdict.rules
        if rule.outcome in {"bypassed", "waived"}
    ]
    return tuple(lines)


def _describe_target(target: TargetState) -> str:
    if target.state == "failed":
        return f"{target.gfx}: tests failed"
    if target.state == "untested":
        return f"{target.gfx}: untested"
    by = f"{' and '.join(target.by)}{_with_pythons(target.pythons)}, {target.when}"
    return f"{target.gfx}: {target.state} ({by})"


def format_headline(verdict: Verdict) -> str:
    """Return what became of the set, in a line."""
    may = "can go to" if verdict.passed else "cannot go to"
    return f"{verdict.set} {may} {verdict.channel}"


def format_markdown(verdict: Verdict, evidence: Sequence[StoredEvidence], next_step: str) -> str:
    """Return the summary of a job at GitHub: what is known of each target, what holds the set, what failed.

    Every failed test is named, of the newest result first. ``next_step`` is a command, "" when there is
    nothing to do.
    """
    escape = tables.escape_markdown
    lines = [f"### {escape(format_headline(verdict))}", ""]
    if verdict.targets:
        lines += ["| GPU | state | by |", "|---|---|---|"]
    for target in verdict.targets:
        told = filter(None, [" and ".join(target.by), " ".join(target.pythons), target.when])
        lines.append(f"| {' | '.join(map(escape, (target.gfx, target.state, '; '.join(told))))} |")
    lines += ["", "| | rule | why |", "|---|---|---|"]
    for rule in verdict.rules_by_outcome:
        lines.append(f"| {' | '.join(map(escape, (rule.outcome, rule.title, describe_rule(rule))))} |")
    for result in [stored.evidence for stored in reversed(evidence) if not stored.evidence.passed]:
        summary = f"{summarize_evidence(result)}{f': {result.detail}' if result.detail else ''}"
        lines += ["", f"**{escape(name_subject(result))}**: {escape(summary)}"]
        lines += [f"- `{' '.join(name.replace('`', '').splitlines())}`" for name in result.failed]
    if next_step:
        lines += ["", "Next:", tables.fence_markdown(next_step).rstrip()]
    return "\n".join([*lines, "", ""])

"""Say which command of a release is next: stage, check, smoke tests, gate, promote, refresh.

The one place that does, for the command line, the page of a set and errors. A line has what the command
before it was given filled in, so that it can be pasted.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocm_wheels.core import shell
from rocm_wheels.models import torch_tests
from rocm_wheels.release import wheel_set
from rocm_wheels.release.verdict import ReasonCode, RuleResult, Verdict


@dataclass(frozen=True)
class CommandWords:
    """What the next command is given, too, because this one was: the store, a policy."""

    store: str = "STORE"
    policy: str | None = None

    def format_line(self, command: str, set_id: str = "", *options: str) -> str:
        """Return a command about the store, or a set in it, as it can be pasted."""
        named = ["--set", set_id] if set_id else []
        return shell.format_command(["rocm-wheels", *command.split(), self.store, *named, *options])

    @property
    def policy_options(self) -> list[str]:
        """Return ``--policy FILE`` where one was given."""
        return ["--policy", self.policy] if self.policy else []


_NO_WORDS = CommandWords()


def format_tests(document: wheel_set.SetDocument, words: CommandWords) -> str:
    """Return what follows when all is known that needs no GPU: tests on one, where it has device code."""
    if not document.targets:
        return words.format_line("set gate", document.id, "--channel", "nightly", "--explain")
    family = ["--family", document.family] if document.layout == "per-family" else []
    return words.format_line("test smoke --store", document.id, *family)


def find_next_step(verdict: Verdict, words: CommandWords = _NO_WORDS, *, is_shown: bool = False) -> str:
    """Return the one thing to do next: of the first rule that holds the set, else its promotion.

    ``is_shown``: the channel shows it already, so that its pages may follow.
    """
    if verdict.passed and is_shown:
        return words.format_line("set refresh", "", *words.policy_options)
    if verdict.passed:
        channel = ["--channel", verdict.channel]
        return words.format_line("set promote", verdict.set, *channel, *words.policy_options)
    return next((find_step(verdict, rule, words) for rule in verdict.failures), "")


def find_step(verdict: Verdict, result: RuleResult, words: CommandWords = _NO_WORDS) -> str:
    """Return what to do about a rule that failed."""
    facts = {item.code: item.facts for item in result.reasons}
    sign = ["--sign-with", "KEY"] if verdict.signed else []
    if result.rule == "channel":
        return str(facts["refused"]["tip"]) or words.format_line("store fsck")
    for code, step in _STEPS.items():
        if code in facts:
            return step.format(channel=verdict.channel)
    if result.rule in {"audit", "resolver"}:
        check = words.format_line("set check", verdict.set, *sign)
        if "failed" in facts:
            return f"mend it, which makes another set; or, where it was not the wheels, look again: {check}"
        return check
    if result.rule == "reproduced" and "failed" not in facts:
        build = words.format_line("set reproduce", verdict.set, "--sign-with", "KEY")
        return f"on another machine than the builder's: {build}"
    if "failed" in facts:
        failed = facts["failed"]
        passes = "a pass" if failed["passes"] == 1 else f"{failed['passes']} passes in a row"
        where = f" on machines of the kind {failed['machine']}" if failed["machine"] != "any" else ""
        since = f"found after {failed['since']:%Y-%m-%d %H:%M} UTC"
        show = f"show with {passes}{where}, {since}, that it was not the wheels"
        return f"mend it, which makes another set; or {show}"
    gfx = result.gfx or facts["any-target"]["targets"][0]
    machine = result.runner or f"a machine with a {gfx}"
    if "other-machine" in facts:
        machine = f"a machine with {facts['other-machine']['earlier'][0]}"
    if result.rule in {"smoke", "speed"}:
        options = ["--family", gfx, "--output-dir", "smoke"]
        run = words.format_line("test smoke --store", verdict.set, *options)
        results = "smoke/results.json"
    else:
        suite = "" if result.suite == torch_tests.SUITE_NAMES[0] else f" --suite {result.suite}"
        run = f"rocm-wheels test torch --family {gfx} --wheels WHEELS{suite} --output-dir torch"
        results = "torch"
    add = words.format_line("set evidence add", verdict.set, "--from", results, *sign)
    step = f"on {machine}: {run}; then: {add}"
    return f"mend it, which makes another set; or measure again, {step}" if "slower" in facts else step


_OTHER_BYTES_TIP = (
    "`rocm-wheels store fsck --hash` names the file: remove it, then `rocm-wheels set stage` with the same"
    " wheels sends it again"
)
_STEPS: dict[ReasonCode, str] = {
    "no-channel": "add {channel} to the channels of the policy",
    "no-signers": "rocm-wheels set key NAME --policy POLICY makes a key and names it; add results with"
    " --sign-with KEY",
    "other-id": "stage the wheels again",
    "other-document": "put set.json back from a copy of the store",
    "gone": "put it back: `rocm-wheels set stage` with the same wheels; or build them again",
    "other-size": _OTHER_BYTES_TIP,
    "other-bytes": _OTHER_BYTES_TIP,
    "changing": "run the same command again",
    "missing-cells": "build them, and stage the whole set",
    "no-plan": "stage it with a lock that names its Pythons and targets",
    "bad-statement": "put the file back from a copy of the store",
    "no-statement": "stage wheels with the statements that `rocm-wheels build` wrote beside them"
    " (.intoto.json)",
    "unsigned-statement": "where they were built: rocm-wheels provenance sign WHEELS --sign-with KEY; then"
    " stage them again",
    "no-targets": "stage the wheels of a GPU family",
    "no-wheels": "build them, and stage the whole set; or waive the rule there",
}

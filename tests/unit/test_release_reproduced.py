"""The rule `reproduced`: who counts, for which wheels, how long, and what excuses that it is not so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from documents import NOW, SET, policy, said

from rocm_wheels.release import gate, set_statements, verdict
from rocm_wheels.release.evidence.store import StoredEvidence

pytestmark = pytest.mark.contract

KEYS = {
    name: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 43}"
    for name, letter in (("ann", "A"), ("lab", "B"))
}
RULE = "{fresh: 90d, by: [lab]}"
TEXT = (
    "channels: {{stable: {{rules: {{audit: {{fresh: 99d}}, reproduced: {rule}}}}}}}\nsigners: {keys}\n{more}"
)
PART = SET.files[0]


def judge(
    *known: StoredEvidence,
    rule: str = RULE,
    builder: str = "ann",
    earlier: frozenset[str] = frozenset(),
    more: str = "",
) -> verdict.RuleResult:
    """What the rule comes to for a set whose statements one signed, and those of earlier wheels others."""
    keys = f"{{{', '.join(f'{name}: {key}' for name, key in KEYS.items())}}}"
    rules = policy(TEXT.format(rule=rule, keys=keys, more=more))
    made = set_statements.StoredStatement(builder, earlier=earlier)
    statements = {file.sha256: made for file in SET.files}
    judged = gate.judge_set(rules, "stable", SET, (said("audit"), *known), NOW, statements=statements)
    (result,) = [item for item in judged.rules if item.rule == "reproduced"]
    assert judged.passed == (result.outcome != "fail")
    return result


def by_lab(outcome: str = "pass", **more: object) -> StoredEvidence:
    return said("reproduced", outcome, **{"signer": "lab", **more})  # type: ignore[arg-type]


def test_another_signer_that_the_rule_names_is_enough() -> None:
    result = judge(by_lab())
    assert (result.outcome, result.codes) == ("pass", ("reproduced",))
    assert result.facts_of("reproduced") == {"wheels": len(SET.files), "by": ("lab",)}


@pytest.mark.parametrize(
    ("known", "codes"),
    [
        ((), ("uncovered",)),
        ((by_lab(signer=""),), ("uncovered", "unlisted")),
        ((by_lab(signer="bob"),), ("uncovered", "unlisted")),  # a signer, and not for this
        ((by_lab(signer="ann"),), ("uncovered", "own-build")),
        ((by_lab(hours=24 * 91),), ("uncovered", "too-old")),
        ((by_lab(hashes=(PART.sha256,)),), ("uncovered",)),
        ((said("audit", signer="lab"), said("resolver", signer="lab")), ("uncovered",)),
        ((by_lab(trouble="its signature is not of what it says"),), ("uncovered",)),
        ((by_lab(hours=3), by_lab("fail", hours=2)), ("failed",)),
        ((by_lab(hours=3), by_lab("fail", hours=2, signer="")), ("failed",)),
    ],
)
def test_what_is_not_enough(known: tuple[StoredEvidence, ...], codes: tuple[verdict.ReasonCode, ...]) -> None:
    result = judge(*known)
    assert (result.outcome, result.codes) == ("fail", codes)


def test_who_built_a_wheel_does_not_reproduce_it_whatever_the_policy_says() -> None:
    """Also where the policy asks for no signed statements, so that it cannot tell."""
    assert judge(by_lab(), builder="lab").codes == ("uncovered", "own-build")
    assert judge(by_lab(), builder="").outcome == "pass"
    assert judge(by_lab(), earlier=frozenset({"lab"})).codes == ("uncovered", "own-build")


def test_several_may_share_the_wheels_and_a_failure_is_made_good() -> None:
    parts = [by_lab(hashes=(file.sha256,), hours=hours) for hours, file in enumerate(SET.files, 2)]
    assert judge(*parts).outcome == "pass"
    assert judge(*parts[1:]).facts_of("uncovered")["files"] == (PART.name,)
    failed = by_lab("fail", hashes=(PART.sha256,), hours=9)
    assert judge(*parts, failed).codes == ("reproduced", "overcome")


def test_projects_limit_it_to_their_wheels() -> None:
    some = [file.sha256 for file in SET.files if file.project == "torch"]
    assert 0 < len(some) < len(SET.files)
    result = judge(by_lab(hashes=tuple(sorted(some))), rule=RULE.replace("90d,", "90d, projects: [torch],"))
    assert result.facts_of("reproduced")["wheels"] == len(some)
    none = judge(by_lab(), rule=RULE.replace("90d,", "90d, projects: [nothing],"))
    assert none.codes == ("uncovered",)


def test_a_waiver_of_the_set_is_told() -> None:
    waiver = (
        "{rule: reproduced, channels: [stable], set: ID, owner: bob, reason: an old compiler, expires: DAY}"
    )
    day = str((NOW + timedelta(days=9)).date())
    more = f"waivers: [{waiver.replace('ID', SET.id).replace('DAY', day)}]"
    assert judge(more=more).outcome == judge(by_lab("fail"), more=more).outcome == "waived"
    assert judge(more=more.replace(SET.id, "2.9.1-000000000000")).outcome == "fail"

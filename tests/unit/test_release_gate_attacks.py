"""What somebody could try who wants a set released that was not tested, or meets by accident."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import pytest
from documents import EVERY, NOW, ONE, SET, a_set, judged, outcomes, said, sha, wheel

from rocm_wheels.release import wheel_set
from rocm_wheels.release.evidence import store
from rocm_wheels.release.evidence.evidence import OutcomeCounts, TestedSuite
from rocm_wheels.release.policy import load_policy
from rocm_wheels.release.verdict import ReasonCode, RuleResult, Verdict, reason

pytestmark = pytest.mark.contract

KEY = f"AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"
EVERY_TARGET = ONE.replace("targets: one", "targets: every")


def rule_of(verdict: Verdict, title: str) -> RuleResult:
    (found,) = (one for one in verdict.rules if one.title == title)
    return found


def why(verdict: Verdict, title: str) -> tuple[str, ReasonCode]:
    """What came of a rule, and what decided."""
    found = rule_of(verdict, title)
    return found.outcome, found.codes[0]


def of(document: wheel_set.SetDocument, *names: str, **more: Any) -> store.StoredEvidence:
    """A smoke test of those wheels of a set whose names begin so."""
    hashes = tuple(sorted(f.sha256 for f in document.files if f.name.startswith(names)))
    return said(document=document, hashes=hashes, **more)


def test_what_a_set_is_called_makes_no_gpu_an_exception():
    document = a_set(wheel("torch", targets=("gfx942",)), family="gfx110X-all")
    verdict = judged(ONE, said("audit", document=document), document=document)
    assert why(verdict, "smoke on gfx942") == ("fail", "no-pass")
    own = "\nfamilies: {gfx110X-all: {bypass_tests_for_releases: true, owner: eve, reason: no card}}"
    assert not judged(ONE + own, said("audit", document=document), document=document).passed


def test_a_run_of_what_has_no_device_code_tests_no_gpu():
    """Only triton, without device code, is there for Python 3.13 and for gfx1031."""
    files = [
        wheel("torch", targets=("gfx1030",)),
        *(wheel("triton", python, targets=()) for python in ("312", "313")),
    ]
    document = a_set(*files, planned=(wheel_set.SetCell(project="torch", python="3.12", target="gfx1031"),))
    seen = [said("audit", document=document), of(document, "triton", gfx="gfx1030")]
    seen.append(of(document, "triton", gfx="gfx1031"))
    verdict = judged(ONE, *seen, document=document)
    facts = rule_of(verdict, "smoke").facts_of("partial-pass")
    assert facts["pythons"] == ("3.12",) and facts["files"][0].startswith("torch-")
    assert {one.state for one in verdict.targets} == {"untested"}
    every = judged(EVERY_TARGET, *seen, document=document)
    lacking = rule_of(every, "smoke on gfx1031")
    assert lacking.outcome == "fail"
    assert lacking.reasons == (reason("no-wheels", projects=(), gfx="gfx1031"),)
    whole = [*seen, of(document, "torch", "triton-2.9.1+rocm7.1.0-cp312", gfx="gfx1030")]
    assert judged(ONE, *whole, document=document).passed


def test_a_python_that_lacks_a_project_stands_for_no_other():
    files = [wheel("torch", "311"), *(wheel(project, "312") for project in ("torch", "torchvision"))]
    document = a_set(*files)
    verified = said("audit", document=document)
    lesser = said(document=document, python="311")
    assert not judged(ONE, verified, lesser, document=document).passed
    assert judged(ONE, verified, said(document=document, python="312"), document=document).passed


def test_a_python_is_told_as_tested_when_all_that_it_gets_was():
    files = [wheel("torch", python) for python in ("311", "312")]
    pure = wheel("pure", name="pure-1-py3-none-any.whl", sha256=sha("p"), targets=())
    document = a_set(*files, pure)
    seen = of(document, "torch-2.9.1+rocm7.1.0-cp312", "pure")
    verdict = judged(ONE, said("audit", document=document), seen, document=document)
    assert [(one.gfx, one.pythons) for one in verdict.targets] == [("gfx1030", ("3.12",)), ("gfx1031", ())]


def test_the_machine_of_a_gpu_does_not_get_the_variant_for_every_machine_too():
    null = {"name": "torch-1-cp312-cp312-linux_x86_64-null.whl", "sha256": sha("n"), "label": "null"}
    own = {"name": "torch-1-cp312-cp312-linux_x86_64-a.whl", "sha256": sha("a"), "label": "a"}
    files = [wheel("torch", targets=(), **null), wheel("torch", targets=("gfx1030",), **own)]
    document = a_set(*files, layout="variants", planned=())
    seen = [said("audit", document=document), said(document=document, hashes=(sha("a"),))]
    assert judged(ONE, *seen, document=document).passed


def test_tests_of_a_project_are_of_its_parts_with_device_code_too():
    part = {"name": "torch_device_gfx1030-1-cp312-cp312-linux_x86_64.whl", "sha256": sha("d")}
    files = [wheel("torch", targets=()), wheel("torch-device-gfx1030", targets=("gfx1030",), **part)]
    document = a_set(*files, planned=())
    text = ONE.replace("smoke:", "tests:").replace("pythons: one", "pythons: one, projects: [torch]")
    seen = [said("audit", document=document), of(document, "torch-2.9.1", kind="tests")]
    verdict = judged(text, *seen, document=document)
    facts = rule_of(verdict, "tests (default) on gfx1030").facts_of("partial-pass")
    assert facts["pythons"] == ("3.12",) and facts["files"][0].startswith("torch_device_gfx1030")


def test_a_wheel_without_device_code_is_not_the_one_that_was_planned_for_a_gpu():
    text = ONE.replace("rules: {", "rules: {complete: {}, ")
    document = a_set(
        wheel("torch", targets=()),
        planned=(wheel_set.SetCell(project="torch", python="3.12", target="gfx1030"),),
    )
    found = rule_of(judged(text, said("audit", document=document), document=document), "complete")
    missing = reason("missing-cells", cells=("torch for Python 3.12 and gfx1030",), planned=1)
    assert (found.outcome, found.reasons) == ("fail", (missing,))


def test_a_wheel_of_the_stable_abi_is_not_for_every_python():
    """Not for earlier ones, nor for those without a GIL: there it is no part of what is tested."""
    files = [
        wheel("torch", "310"),
        wheel("torch", "313"),
        wheel("torch", name="torch-2.9.1+rocm7.1.0-cp313-cp313t-linux_x86_64.whl"),
        wheel("torchvision", name="torchvision-2.9.1+rocm7.1.0-cp311-abi3-linux_x86_64.whl"),
    ]
    cells = [
        wheel_set.SetCell(project="torchvision", python=python)
        for python in ("3.10", "3.12", "3.13t", "3.13")
    ]
    document = a_set(*files, planned=tuple(cells))
    groups = wheel_set.list_installed_wheels(document, "gfx1030")
    told = {group.python: (len(group.files), group.full) for group in groups}
    assert told == {"3.10": (1, False), "3.13": (2, True), "3.13t": (1, False)}
    text = ONE.replace("rules: {", "rules: {complete: {}, ")
    found = rule_of(judged(text, said("audit", document=document), document=document), "complete")
    missing = ("torchvision for Python 3.10", "torchvision for Python 3.13t")
    assert found.reasons == (reason("missing-cells", cells=missing, planned=4),)
    # what no Python of the others takes has to be tested all the same
    document = a_set(files[0], files[3], planned=())
    alone = wheel_set.list_installed_wheels(document, "gfx1030")
    assert [(group.python, len(group.files)) for group in alone] == [("3.10", 1), ("", 1)]
    seen = [said("audit", document=document), of(document, "torch-", "torchvision-")]
    target = judged(ONE, *seen, document=document).targets[0]
    assert (target.state, target.pythons) == ("tested", ("3.10",))


def test_a_run_of_chosen_tests_is_none_unless_the_policy_says_so():
    chosen = said(selected="-k versions, 200 left out")
    verdict = judged(ONE, said("audit"), chosen)
    facts = rule_of(verdict, "smoke").facts_of("selection")
    assert facts == {"selected": "-k versions, 200 left out"}
    assert verdict.targets[0].state == "untested"
    allowed = ONE.replace("pythons: one", "pythons: one, selections: count")
    assert judged(allowed, said("audit"), chosen).passed
    # it makes no failure good, and its own failure is one
    failed = said(outcome="fail", hours=2)
    assert not judged(ONE, said("audit"), failed, chosen).passed
    assert judged(ONE, said("audit"), failed, said()).passed
    assert not judged(ONE, said("audit"), said(hours=2), said(outcome="fail", selected="-k one")).passed


@pytest.mark.parametrize("more", [{"selected": "-k one"}, {"counts": OutcomeCounts(failed=1, flaky=9)}])
def test_a_shard_that_failed_holds_the_set_whichever_of_its_tests_ran(more: dict[str, Any]):
    text = ONE.replace("smoke:", "tests:").replace("pythons: one", "pythons: one, flaky: 1")

    def shard(number: int, **found: Any) -> store.StoredEvidence:
        return said("tests", suite=TestedSuite(name="default", shard=number, shards=2, plan="p"), **found)

    passed = [said("audit"), shard(1, hours=3), shard(2, hours=3)]
    assert judged(text, *passed).passed
    failed = shard(2, outcome="fail", hours=2, **more)
    assert not judged(text, *passed, failed).passed
    assert judged(text, *passed, failed, shard(2)).passed  # that shard, whole and without a fault
    flaky = {"selected": "-k one"} if "selected" in more else {"counts": OutcomeCounts(passed=3, flaky=9)}
    assert not judged(text, *passed, failed, shard(2, **flaky)).passed


def test_a_failure_of_another_set_holds_none_that_only_has_its_wheels_where_signers_are_needed():
    """Anybody may write a file; one that names this set counts, whoever wrote it, and is named."""
    signed = ONE.replace("signed: false", "signed: true") + f"\nsigners: {{ann: ssh-ed25519 {KEY}}}"
    passed = [said("audit"), said()]
    unsigned = {"outcome": "fail", "hours": 0.5, "signer": ""}
    elsewhere = said(set="2.9.1-rocm7.1.0-000000000000", **unsigned)
    verdict = judged(signed, *passed, elsewhere)
    assert verdict.passed and {target.state for target in verdict.targets} == {"tested", "untested"}
    assert verdict.ignored == ((elsewhere.id, reason("other-set", set=elsewhere.evidence.set)),)
    assert not judged(ONE, *passed, elsewhere).passed  # a channel that takes reports takes this one, too
    by_signer = said(set="2.9.1-rocm7.1.0-000000000000", **{**unsigned, "signer": "ann"})
    assert not judged(signed, *passed, by_signer).passed
    assert not judged(signed, *passed, said(**unsigned)).passed


def test_what_nobody_signed_says_nothing_of_the_document_where_signers_are_needed():
    signed = ONE.replace("signed: false", "signed: true") + f"\nsigners: {{ann: ssh-ed25519 {KEY}}}"
    passed = [said("audit", about=SET.digest), said(about=SET.digest)]
    other = said(about=sha("x"), signer="")
    assert judged(signed, *passed, other).passed and not judged(ONE, *passed, other).passed
    assert why(judged(signed, *passed, said(about=sha("x"))), "hashes") == ("fail", "other-document")


def test_one_run_handed_in_twice_makes_no_failure_good():
    others = (said("audit"), said(gfx="gfx1031"))
    bad, source = said(outcome="fail", hours=5), sha("results")
    again = [said(hours=hours, source=source, by=by) for hours, by in ((3, "ann"), (2, "bob"))]
    assert not judged(EVERY, *others, bad, *again).passed
    assert judged(EVERY, *others, bad, again[0], said(hours=2, source=sha("others"))).passed


def test_what_is_told_of_an_exception_is_no_lie_where_there_are_old_tests():
    own = "\nfamilies: {gfx103X-all: {bypass_tests_for_releases: true, owner: eve, reason: no card}}"
    found = rule_of(judged(ONE + own, said("audit"), said(hours=24 * 8)), "smoke on gfx1030")
    facts = {"family": "gfx103X-all", "owner": "eve", "why": "no card", "tested": True}
    assert (found.outcome, found.facts_of("exception")) == ("bypassed", facts)
    assert found.facts_of("too-old") == {"age": 8 * 86400, "limit": 7 * 86400}


def test_a_document_that_was_changed_after_the_tests_is_held():
    """Its id says nothing of targets and cells: with fewer of them fewer tests would be needed."""
    files = tuple(file.model_copy(update={"targets": ("gfx1030",)}) for file in SET.files)
    for change in ({"files": files}, {"planned": ()}, {"family": "gfx110X-all"}):
        changed = SET.model_copy(update=change)
        about = SET.digest
        seen = [said(kind, about=about) for kind in ("audit", "smoke")]
        assert judged(EVERY_TARGET, *seen, said(gfx="gfx1031", about=about)).passed
        verdict = judged(EVERY_TARGET, *seen, document=changed)
        other = "other-id" if "family" in change else "other-document"
        assert why(verdict, "hashes") == ("fail", other)


WAIVER = "{rule: smoke, channels: [nightly], family: gfx103X-all, owner: bob, reason: known, expires: DAY}"


@pytest.mark.parametrize(
    ("day", "holds"), [("2027-11-22", True), ("2027-11-23", False), ("9999-12-31", False)]
)
def test_a_waiver_ends_within_a_year(day: str, holds: bool):
    verdict = judged(f"{ONE}\nwaivers: [{WAIVER.replace('DAY', day)}]", said("audit"))
    assert verdict.passed == holds
    notes = [(note.code, note.facts["owner"], note.facts["until"]) for note in verdict.notes]
    assert notes == ([] if holds else [("waiver-too-long", "bob", day)] * len(verdict.failures))


def test_a_waiver_holds_to_the_end_of_its_day_in_utc_wherever_the_gate_is_asked():
    text = f"{ONE}\nwaivers: [{WAIVER.replace('DAY', '2026-11-21')}]"
    midnight = NOW.replace(hour=23, minute=59)
    fresh = said("audit")
    for hours in (-11, 0, 14):
        there = timezone(timedelta(hours=hours))
        assert judged(text, fresh, now=midnight.astimezone(there)).passed
        assert not judged(text, fresh, now=(midnight + timedelta(minutes=1)).astimezone(there)).passed


def test_what_only_the_data_of_families_excuses_goes_to_no_stable_channel_of_ours():
    own = load_policy()
    assert [own.channels[name].bypasses for name in own.channels] == ["count", "count", "own"]
    document = a_set(family="gfx120X-all", *[wheel("torch", targets=("gfx1200",))])  # noqa: B026
    fine, text = said("audit", document=document), ONE.replace("nightly: {", "nightly: {bypasses: own, ")
    assert outcomes(judged(text, fine, document=document))["smoke on gfx1200"] == "fail"
    named = "\nfamilies: {gfx120X-all: {bypass_tests_for_releases: true, owner: eve, reason: no card}}"
    verdict = judged(text + named, fine, document=document)
    assert outcomes(verdict)["smoke on gfx1200"] == "bypassed"
    assert verdict.state == "untested"
    crashed = said(outcome="crash", gfx="gfx1200", document=document)
    assert not judged(text + named, fine, crashed, document=document).passed


def test_a_set_of_two_machines_kinds_waits_for_the_one_that_failed():
    others = (said("audit"), said(gfx="gfx1031"))
    bad = said(outcome="fail", hours=9, machine="mi300x")
    there = [said(hours=hours, machine="mi325x") for hours in (3, 2, 1)]
    verdict = judged(EVERY, *others, bad, *there)
    facts = rule_of(verdict, "smoke on gfx1030").facts_of("failed")
    assert (facts["machine"], facts["passes"]) == ("mi300x", 2)
    here = [said(hours=hours, machine="mi300x") for hours in (3, 2)]
    assert not judged(EVERY, *others, bad, *there, here[0]).passed
    assert judged(EVERY, *others, bad, *there, *here).passed
    assert SET.is_complete

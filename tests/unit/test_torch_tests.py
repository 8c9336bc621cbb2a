"""Torch's own tests: the table of what is known, what a choice comes to, and what results are evidence of."""

from __future__ import annotations

import random
import re
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from documents import NOW, SET, judged, said
from packaging.version import Version
from pydantic import ValidationError

from rocm_wheels.cli.torch_tests import _choose_places, torch_tests_command
from rocm_wheels.cli.torch_tests import tests_script as therock_script
from rocm_wheels.core import errors, records
from rocm_wheels.gpus import gpu
from rocm_wheels.models import gfx, project_names, torch_tests
from rocm_wheels.models.test_results import Results, Suite, TestResult
from rocm_wheels.release import next_step, policy
from rocm_wheels.release.evidence import store
from rocm_wheels.release.evidence.evidence import Evidence, EvidenceSubmission, OutcomeCounts, TestedSuite
from rocm_wheels.release.evidence.results import read_results
from rocm_wheels.release.verdict import RuleResult
from rocm_wheels.testing import installed_torch, pytest_words, runner, summary, tested_gpus, torch_test_plan
from rocm_wheels.testing.journal import note, read_journal
from rocm_wheels.testing.results import write_results
from rocm_wheels.testing.torch_test_plan import read_durations, share_out

TABLE = """
sources: {here: {url: "https://example.org", retrieved: 2026-11-22}}
waiting: {test_minutes: 1, file_minutes: 2, source: here, kind: tested}
suites: {default: {about: all, fact: {source: here, kind: tested}, groups: [{files: [test_a, nn/test_b]}]}}
known:
  - {tests: ["test_a.py::test_print"], effect: fails,
     source: here, kind: tested, torch: "==2.13.*", reason: r, MORE}
  - {tests: ["test_a.py::TestA::test_print"], effect: hangs,
     reason: r, source: here, kind: tested, targets: [gfx942], MORE}
  - {tests: ["test_a.py::test_w"], effect: crashes,
     reason: r, source: here, kind: tested, platforms: [windows], pythons: ["3.11"], MORE}
  - {tests: ["dynamo/*.py::test_f"], effect: crashes,
     reason: r, source: here, kind: tested, MORE}
""".replace("MORE", "owner: ann, issue: 'https://example.org/1', expires: 2026-11-30")
DAY = date(2026, 11, 30)


def table(text: str = TABLE) -> torch_tests.TorchTestTable:
    return records.parse_record(text, torch_tests.TorchTestTable, name="t.yaml")


def known_on(
    torch: str, gfx: str, platform: str, python: str = "3.12", today: date = DAY
) -> torch_tests.KnownTests:
    return torch_tests.select_known_tests(table().known, torch, gfx, platform, python, today=today)  # type: ignore[arg-type]


def test_what_is_known_is_known_of_exact_names_in_one_place() -> None:
    here = known_on("2.13.0a0+rocm7.1", "gfx942", "linux")
    assert here.find_test("test_a.py::TestB::test_print").effect == "fails"  # type: ignore[union-attr]
    assert here.find_test("test_a.py::TestA::test_print").effect == "hangs"  # type: ignore[union-attr]
    for other in ("test_a.py::TestB::test_print_cuda", "test_b.py::TestB::test_print", "test_a.py", "pytest"):
        assert here.find_test(other) is None
    assert here.list_names("", skipped=True) == ["test_a.py::TestA::test_print", "dynamo/*.py::test_f"]
    assert here.list_names("test_a.py", skipped=True) == ["test_a.py::TestA::test_print"]
    elsewhere = known_on("2.14.0", "gfx1100", "windows", "3.11")
    assert elsewhere.find_test("test_a.py::TestB::test_print") is None
    assert elsewhere.list_names("test_a.py", skipped=True) == ["test_a.py::test_w"]
    for file in ("dynamo/test_x.py", "dynamo/deep/test_y.py"):
        assert here.find_test(f"{file}::T::test_f") is not None
        assert here.list_names(file, skipped=True) == [f"{file}::test_f"] == here.list_names(file)
    assert here.find_test("inductor/test_x.py::T::test_f") is None
    assert here.list_names("test_b.py", skipped=True) == []


def test_what_is_known_counts_up_to_a_day_and_says_then_what_it_was() -> None:
    here = known_on("2.13.0", "gfx942", "linux", today=DAY + timedelta(days=1))
    assert here.find_test("test_a.py::TestB::test_print") is None and here.list_names("", skipped=True) == []
    row = here.find_expired("test_a.py::TestB::test_print")
    assert row is not None and row.reason == "r"


def test_the_table_names_each_test_once_where_it_holds() -> None:
    rows = torch_tests.load_torch_tests().known
    assert {row.effect for row in rows} == {"fails", "hangs", "crashes"}
    for python, platform, torch in (("3.11", "windows", "2.12.0"), ("3.14", "linux", "2.13.0")):
        holding = [row for row in rows if row.applies_to(Version(torch), "gfx950", platform, python)]  # type: ignore[arg-type]
        names = [(test, row.effect) for row in holding for test in row.tests]
        assert len({name for name, _ in names}) == len({*names}), "one test, one effect"


def test_the_suites_of_the_table_can_be_run() -> None:
    tables = torch_tests.load_torch_tests()
    assert tables.suites.keys() == {*torch_tests.SUITE_NAMES}
    for suite in tables.suites.values():
        files = [file for group in suite.groups for file in group.files]
        assert len(files) == len({*files}) and all(re.fullmatch(r"[\w/-]+", file) for file in files)
        for group in suite.groups:
            assert bool(group.files) != bool(group.listed_by)
            assert group.run_by == "run_test" or not group.words
    targets = {target for row in tables.known for target in row.targets}
    assert targets <= gfx.get_gfx_targets().keys()
    path = project_names.get_data_folder() / "therock_known_tests.yaml"
    imported = records.load_record(path, torch_tests.KnownTestTable)
    entries = [entry for group in imported.groups for entry in group.entries]
    assert all((entry.issue is None) != (entry.line is None) for entry in entries)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("expires: 2026-11-30", "expires: soon", "expires"),
        ("https://example.org/1", "#1", "the address of where it is tracked"),
        ("test_a.py::test_w", "test_a.py", r"t.yaml:10:14: .*tests.0: it must be a test, FILE.py::"),
        ("test_a.py::test_w", "test_a.py::test w", "it must be a test, FILE.py::"),
        ("==2.13.*", "2.13", "'2.13' is not a version specifier"),
    ],
)
def test_a_table_with_a_mistake(old: str, new: str, says: str) -> None:
    with pytest.raises(errors.DataError, match=says):
        table(TABLE.replace(old, new))


def test_files_are_chosen_and_shared_out(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    for name in ("test_a", "nn/test_b", "test_c"):
        (tmp_path / f"{name}.py").touch()
    suite = table().suites["default"]

    def files(**chosen: Any) -> list[str]:
        selection = torch_test_plan.TorchTestSelection(**chosen)
        planned = torch_test_plan.plan_test_files(suite, selection, tmp_path, Path("x"), {})
        return [part.name for part in planned.files]

    assert files() == ["test_a", "nn/test_b"]
    assert files(exclude=("test_a",)) == ["nn/test_b"]
    assert files(include=("test_c",)) == ["test_c"]
    assert files(shard=2, shards=2) == ["nn/test_b"]
    for chosen, says in (
        ({"include": ("test_cc",)}, r"--include names test_cc, .*did you mean test_c\?"),
        ({"exclude": ("test_x",)}, "--exclude names test_x"),
        ({"shard": 3, "shards": 3}, "no file of tests is left"),
    ):
        with pytest.raises(errors.UsageError, match=says):
            files(**chosen)
    (tmp_path / "test_a.py").unlink()
    with pytest.raises(errors.UsageError, match="the suite default names test_a"):
        files()


@pytest.mark.contract
def test_files_are_shared_out_by_how_long_they_took_the_longest_first(tmp_path: Path) -> None:
    names = [f"test_{letter}" for letter in "abcdefg"]
    for name in names:
        (tmp_path / f"{name}.py").touch()
    took = {"test_a": 10.0, "test_c": 700.0, "test_d": 400.0, "test_e": 350.0, "test_g": 20.0}

    def plan(shard: int, shards: int = 2, **durations: float) -> torch_test_plan.TorchTestPlan:
        share = {"include": tuple(names), "shard": shard, "shards": shards}
        chosen = torch_test_plan.TorchTestSelection(**share, durations=durations)  # type: ignore[arg-type]
        return torch_test_plan.plan_test_files(table().suites["default"], chosen, tmp_path, Path("x"), {})

    first, second = ([file.file for file in plan(shard, **took).files] for shard in (1, 2))
    assert first == ["test_c", "test_b", "test_g", "test_a"] and second == ["test_d", "test_e", "test_f"]
    assert plan(1, **took).digest == plan(2, **took).digest != plan(1).digest
    assert (plan(1, 1).digest, [file.file for file in plan(1, 1).files]) == ("", names)
    alike = [file.file for shard in range(1, 8) for file in plan(shard, 7).files]
    assert alike == names, "nothing is recorded: each takes as long"

    long = [file.name for shard in (1, 2) for file in plan(shard, test_a=4000.0, test_b=10.0).files]
    assert sorted(long) == sorted([*(f"test_a {n}/3" for n in (1, 2, 3)), *names[1:]]), "a long one is cut"
    assert plan(1, 1, test_a=4000.0).files[0].name == "test_a 1/3"

    rng = random.Random(7)
    for _ in range(200):
        seconds = [rng.choice([1.0, 5.0, 300.0, 900.0]) * rng.random() for _ in range(rng.randrange(1, 40))]
        shards = rng.randrange(1, 9)
        shared = share_out(seconds, shards)
        assert sorted(number for shard in shared for number in shard) == [*range(len(seconds))]
        loads = [sum(seconds[number] for number in shard) for shard in shared]
        assert max(loads) <= sum(seconds) / shards + max(seconds), "no list is longer than it must be"


def test_durations_are_those_of_the_newest_whole_results_of_the_suite(tmp_path: Path) -> None:
    new = NOW + timedelta(days=1)
    results(tmp_path / "night" / "1", when=new, files={"test_a": 40.0})
    results(tmp_path / "night" / "2", files={"test_a": 99.0})
    results(tmp_path / "half", files={})
    results(tmp_path / "other", suite=Suite(name="inductor"), files={"test_a": 7.0})
    results(tmp_path / "smoke", kind="smoke", suite=None, files={"smoke": 5.0})
    assert read_durations([tmp_path], "full") == {"test_a": 40.0}
    assert read_durations([tmp_path / "other" / "results.json"], "inductor") == {"test_a": 7.0}
    for number in (1, 2):
        cut = results(tmp_path / "cut" / f"{number}", when=new, files={f"test_a {number}/2": 30.0})
        durations = read_durations([cut.parent], "full")
        assert durations == ({"test_a": 60.0} if number == 2 else {}), "the whole file, of all its shares"
    for path, says in (("nowhere", "there is no"), ("smoke", "no results of torch's tests")):
        with pytest.raises(errors.UsageError, match=says):
            read_durations([tmp_path / path], "full")
    for content in ("5", "null", "[]", "{}"):
        (tmp_path / "half" / "results.json").write_text(content)
        with pytest.raises(errors.DataError, match="holds no results"):
            read_durations([tmp_path], "full")
    endless = results(tmp_path / "endless", files={"test_a": 1e300})
    with pytest.raises(errors.DataError, match="more than a week"):
        read_durations([endless], "full")
    strange = [results(tmp_path / f"of {n}", files={f"test_a {n}/2": 3.0}) for n in (7, 9)]
    assert "test_a" not in read_durations(strange, "full"), "there are no shares of these numbers"


def test_what_was_written_when_a_process_died_is_read(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text(
        '{"process": true}\n{"planned": ["a", "b", "c"], "left_out": ["d"], "unchosen": 1}\n{"begun": "a"}\n'
        '{"name": "a", "outcome": "passed", "seconds": 1}\n5\n{"begun": "b"}\n{"name": "b", "outc'
    )
    found = read_journal(path)
    assert (found.begun, [*found.results], [*found.left_out], found.finished) == ("b", ["a"], ["d"], False)
    assert found.missing == ["b", "c"]
    note(path, process=True)
    assert path.read_text().endswith('{"begun": "b"}\n{"process": true}\n'), "what was torn is cut off"
    assert read_journal(path).begun == "", "what a process before was at is no fault of this one's"


TORCH = next(file for file in SET.files if file.project == "torch" and "cp312" in file.name)


def results(folder: Path, *failed: str, flaky: tuple[str, ...] = (), **more: Any) -> Path:
    """Write the results of a run in which two tests passed and these failed, as the command does."""
    folder.mkdir(parents=True)
    here = known_on("2.13.0", "gfx1030", "linux")
    tests = [TestResult(name=f"test_a.py::T::{name}", outcome="passed", seconds=0.1) for name in ("x", "y")]
    for name in failed:
        row = here.find_test(f"test_a.py::T::{name}")
        known = "" if row is None else runner.describe_known(row)
        tests.append(TestResult(name=f"test_a.py::T::{name}", outcome="failed", detail="r", known=known))
    tests += [TestResult(name=f"test_a.py::T::{name}", outcome="passed", tries=2) for name in flaky]
    found: dict[str, Any] = {"kind": "tests", "tool": "rocm-wheels 1 tests", "when": NOW}
    found["subject"] = "torch 2.9.1+rocm7.1.0, Python 3.12, tests of 111111111111"
    found |= {"host": "runner-1 (Linux)", "gfx": "gfx1030", "wheels": {TORCH.name: TORCH.sha256}}
    found |= {"suite": Suite(name="full"), "files": {"test_a": 1.0}, "tests": tests}
    write_results(folder, Results.model_validate({**found, **more}))
    return folder


def evidence_in(*paths: Path) -> list[Evidence]:
    return read_results(paths, EvidenceSubmission(document=SET, by="ann", added=NOW, here="here"))


RULES = (
    "channels: {stable: {signed: false, rules: {audit: {fresh: 14d}, "
    "tests: {fresh: 7d, targets: one, pythons: one, projects: [torch], at_least: 2, "
    "suites: [full], flaky: 1}}}}"
)


def stored(evidence: Evidence) -> store.StoredEvidence:
    return store.StoredEvidence(evidence.id, evidence, "", "")


def gate(*found: Evidence, rules: str = RULES) -> tuple[str, RuleResult]:
    """What came of the rule about torch's tests."""
    results = [one for one in judged(rules, said("audit"), *map(stored, found)).rules if one.rule == "tests"]
    rule = next((one for one in results if one.outcome != "pass"), results[0])
    return rule.outcome, rule


def test_whole_results_satisfy_the_gate_and_known_failures_are_none(tmp_path: Path) -> None:
    (one,) = evidence_in(results(tmp_path / "gfx1030", "test_print").parent)
    found = (one.kind, one.outcome, str(one.counts), one.gfx)
    assert found == ("tests", "pass", "2 passed, 1 skipped", "gfx1030")
    assert (one.hashes, one.selected) == ((TORCH.sha256,), "")
    subject = "torch 2.9.1+rocm7.1.0, Python 3.12, tests of 111111111111"
    assert one.detail == f"suite full; {subject}; 1 failure was known"
    outcome, why = gate(one)
    facts = why.facts_of("passed")
    assert outcome == "pass" and facts["pythons"] == ("3.12",)
    assert facts["counts"] == {"passed": 2, "skipped": 1}
    (bad,) = evidence_in(results(tmp_path / "bad", "test_new"))
    assert (bad.outcome, bad.failed) == ("fail", ("test_a.py::T::test_new: r",))
    assert gate(one, bad)[0] == "fail"


def test_without_evidence_the_gate_says_what_to_type() -> None:
    verdict = judged(RULES, said("audit"))
    (rule,) = verdict.failures
    assert "no-pass" in rule.codes
    step = next_step.find_next_step(verdict)
    run = "rocm-wheels test torch --family gfx1030 --wheels WHEELS --suite full --output-dir torch"
    assert f": {run}; " in step
    assert step.endswith(f"rocm-wheels set evidence add STORE --set {SET.id} --from torch")


@pytest.mark.parametrize(
    ("chosen", "doubt", "selected"),
    [
        ({"words": ("-k", "conv", "-v")}, "", "-k conv"),
        ({"include": ("test_a",), "exclude": ("b",)}, "", "only test_a; without b"),
        ({}, "the tests are of another commit", "the tests are of another commit"),
        ({"words": ("-p", "no:unittest")}, "", "no:unittest"),
        ({"variables": {"PYTORCH_TEST_SKIP_FAST": "1"}}, "", "PYTORCH_TEST_SKIP_FAST=1"),
        ({"words": ("-v", "-x", "--tb=short")}, "", ""),
    ],
)
def test_a_run_of_some_tests_or_of_others_does_not_stand_for_all(
    tmp_path: Path, chosen: dict[str, Any], doubt: str, selected: str
) -> None:
    described = torch_test_plan.TorchTestSelection("full", **chosen).describe(doubt)
    (one,) = evidence_in(results(tmp_path / "r", selected=described))
    assert (one.outcome, one.selected) == ("pass", selected)
    assert gate(one)[0] == ("fail" if selected else "pass")


def test_a_half_run_is_no_pass(tmp_path: Path) -> None:
    missing = TestResult(name="test_b", outcome="missing", detail="not run to its end")
    tests = [TestResult(name="test_a.py::x", outcome="passed"), missing]
    (one,) = evidence_in(results(tmp_path / "half", tests=tests))
    assert one.outcome == "missing" and "not run: test_b" in one.detail
    (one,) = evidence_in(results(tmp_path / "lost", tests=tests, lost_gpu="gfx1030, at test_b: a sum hangs"))
    assert one.outcome == "lost" and "lost gfx1030, at test_b" in one.detail and gate(one)[0] == "fail"
    # a lost GPU says nothing of the wheels: once the rest was run the set may pass, whenever that is
    later = one.model_copy(update={"added": NOW + timedelta(minutes=1)})
    (resumed,) = evidence_in(results(tmp_path / "resumed"))
    assert resumed.when == later.when < later.added and gate(later, resumed)[0] == "pass"
    crashed = later.model_copy(update={"counts": later.counts.model_copy(update={"crashed": 1})})
    assert gate(crashed, resumed)[0] == "fail"


def test_a_share_of_a_file_without_end_is_a_missing_one(tmp_path: Path) -> None:
    (one,) = evidence_in(results(tmp_path / "share", files={"test_a 1/9999": 1.0}))
    assert one.outcome == "missing" and "test_a 2/9999 is not there" in one.detail


def a_shard(folder: Path, number: int, *names: str, plan: str = "p", later: int = 0, **more: Any) -> Path:
    """Write results of one shard of two; each holds a file of its own."""
    suite = Suite(name="full", shard=number, shards=2, plan=plan)
    when = NOW - timedelta(hours=9 - later)
    return results(folder, *names, suite=suite, when=when, files={f"test_{number}": 1.0}, **more)


def test_a_suite_passed_when_every_shard_of_one_plan_did(tmp_path: Path) -> None:
    """Each shard is a result of its own; one that failed is made good by itself."""
    first, second = (a_shard(tmp_path / f"{number}", number) for number in (1, 2))
    one, two = evidence_in(first, second)
    assert one.outcome == "pass" and one.suite == TestedSuite(name="full", shard=1, shards=2, plan="p")
    assert evidence_in(tmp_path) == [one, two], "folders in a folder"
    outcome, why = gate(one)
    assert outcome == "fail" and why.facts_of("missing-shards") == {"shards": 2, "missing": (2,)}
    assert gate(one, two)[0] == "pass" and gate(one, two)[1].facts_of("passed")["counts"] == {"passed": 4}
    assert gate(one, two, rules=RULES.replace("at_least: 2", "at_least: 4"))[0] == "pass"
    assert gate(one, two, rules=RULES.replace("at_least: 2", "at_least: 5"))[0] == "fail"
    (other_plan,) = evidence_in(a_shard(tmp_path / "other", 2, plan="q"))
    assert gate(one, other_plan)[0] == "fail", "shards of two plans may hold one file twice"
    (bad,) = evidence_in(a_shard(tmp_path / "bad", 2, "test_new"))
    bad = bad.model_copy(update={"added": bad.when})
    (again,) = evidence_in(a_shard(tmp_path / "again", 2, later=1))
    assert bad.outcome == "fail" and gate(one, bad)[0] == "fail"
    assert gate(one, bad, again)[0] == "pass", "the shard that failed passed after it"
    twice = RULES.replace("{stable: {", "{stable: {passes_after_failure: 2, ")
    (third,) = evidence_in(a_shard(tmp_path / "third", 2, later=2))
    assert gate(one, bad, again, rules=twice)[0] == "fail"
    assert gate(one, bad, again, third, rules=twice)[0] == "pass"
    later = [*evidence_in(*(a_shard(tmp_path / f"q{n}", n, plan="q", later=3) for n in (1, 2)))]
    assert gate(bad, *later)[0] == "pass", "the whole suite passed after it, shared out another way"


def test_a_summary_tells_of_shards_that_do_not_fit_together(tmp_path: Path) -> None:
    for number in (1, 2):
        a_shard(tmp_path / "same" / f"test-reports-full-{number}-2", number)
        a_shard(tmp_path / "other" / f"test-reports-full-{number}-2", number, plan=f"p{number}")
        a_shard(tmp_path / "twice" / f"test-reports-full-{number}-2", 1)
    assert summary.read_shards(tmp_path / "same") == ([], [])
    ((row,), _) = summary.read_shards(tmp_path / "other")
    assert (row.config, row.where, row.outcome) == ("full", "full", "not whole")
    assert "shared out in several ways" in row.reason
    ((row,), _) = summary.read_shards(tmp_path / "twice")
    assert (row.shard, row.outcome, row.reason) == ("2/2", "not whole", "it is of shard 1/2")


def test_each_suite_that_a_channel_asks_for_must_have_passed(tmp_path: Path) -> None:
    (full,) = evidence_in(results(tmp_path / "full"))
    both = RULES.replace("suites: [full]", "suites: [full, distributed]")
    assert gate(full, rules=both)[0] == "fail"
    (distributed,) = evidence_in(results(tmp_path / "distributed", suite=Suite(name="distributed")))
    assert gate(full, distributed, rules=both)[0] == "pass"
    (failed,) = evidence_in(results(tmp_path / "bad", "test_new", suite=Suite(name="distributed")))
    assert gate(full, failed)[0] == "fail", "nobody asked for it, and it failed"
    with pytest.raises(errors.DataError, match=r"suites.*distributed"):
        gate(full, rules=RULES.replace("suites: [full]", "suites: [all]"))
    stable = policy.load_policy().channels["stable"].rules.tests
    assert stable is not None
    assert {*stable.suites} == {*torch_tests.load_torch_tests().suites} == {*torch_tests.SUITE_NAMES}


def test_a_waiver_may_be_of_one_suite(tmp_path: Path) -> None:
    """Whoever has no machine with several GPUs says so, and the other suites are asked for all the same."""
    both = RULES.replace("suites: [full]", "suites: [full, distributed]")
    waiver = "{rule: tests, channels: [stable], family: gfx103X-all, suite: distributed, owner: bob"
    waived = f"{both}\nwaivers: [{waiver}, reason: one card a machine, expires: 2026-12-24}}]"
    (full,) = evidence_in(results(tmp_path / "full"))
    states = {rule.suite: rule.outcome for rule in judged(waived, said("audit"), stored(full)).rules}
    assert (states["full"], states["distributed"]) == ("pass", "waived")
    (failed,) = evidence_in(results(tmp_path / "bad", "test_new"))
    assert gate(failed, rules=waived)[0] == "fail" and gate(rules=waived)[0] == "fail"
    ended = judged(waived.replace("2026-12-24", "2026-11-01"), said("audit"), stored(full))
    assert not ended.passed and "waiver-ended" in [note.code for note in ended.notes]
    with pytest.raises(errors.DataError, match="suite"):
        gate(full, rules=waived.replace("rule: tests", "rule: smoke"))


def test_a_policy_says_how_many_tests_may_be_flaky(tmp_path: Path) -> None:
    (one,) = evidence_in(results(tmp_path / "1", flaky=("test_new",)))
    assert (one.outcome, str(one.counts)) == ("pass", "3 passed, 1 flaky")
    assert one.flaky == ("test_a.py::T::test_new",) and gate(one)[0] == "pass"
    (two,) = evidence_in(results(tmp_path / "2", flaky=("test_new", "test_other")))
    outcome, why = gate(two)
    assert outcome == "fail" and why.facts_of("too-flaky") == {"flaky": 2, "allowed": 1}
    assert gate(one, rules=RULES.replace(", flaky: 1", ""))[0] == "fail", "without a word none may"


def test_a_flaky_smoke_test_is_no_pass_unless_the_policy_says_so() -> None:
    """One that failed was no pass before it was tried again, too."""
    smoke = "smoke: {fresh: 7d, targets: one, MORE}"
    rules = f"channels: {{nightly: {{signed: false, rules: {{audit: {{fresh: 14d}}, {smoke}}}}}}}"
    flaky = said("smoke", counts=OutcomeCounts(passed=3, flaky=1))

    def outcome(more: str) -> str:
        verdict = judged(rules.replace("MORE", more), said("audit"), flaky)
        return next(one.outcome for one in verdict.rules if one.rule == "smoke")

    assert outcome("pythons: one") == "fail" and outcome("pythons: one, flaky: 1") == "pass"


NAMED = torch_tests.load_torch_tests().suites["default"].named_files


@pytest.mark.parametrize(
    ("more", "suite", "outcome", "says"),
    [
        ({"selected": "3 tests left out"}, "full", "pass", "3 tests left out"),
        ({"files": {"test_a 1/2": 1.0}}, "full", "missing", "test_a 2/2 is not there"),
        ({"files": {"test_a 1/2": 1.0, "test_a 2/2": 1.0}}, "full", "pass", ""),
        ({"files": {"test_nn": 1.0}}, "default", "missing", "test_torch was not run"),
        ({}, "inductor", "missing", "test_modules was not run"),
        ({}, "of another version", "pass", "only the suite of another version"),
        ({"files": dict.fromkeys(NAMED, 1.0)}, "default", "missing", "test_cuda: none of its tests passed"),
    ],
)
def test_what_was_not_tested_is_no_pass_though_every_test_passed(
    tmp_path: Path, more: dict[str, Any], suite: str, outcome: str, says: str
) -> None:
    (one,) = evidence_in(results(tmp_path / "r", suite=Suite(name=suite), **more))
    assert one.outcome == outcome and says in f"{one.detail}; {one.selected}"
    assert gate(one)[0] == ("fail" if says else "pass")


def test_a_file_of_a_suite_in_which_nothing_passed_is_none_in_a_shard_too(tmp_path: Path) -> None:
    tests = [TestResult(name=f"{name}.py::t", outcome="passed") for name in NAMED]
    more = {"suite": Suite(name="default"), "files": dict.fromkeys(NAMED, 1.0)}
    default = RULES.replace("[full]", "[default]")
    assert gate(*evidence_in(results(tmp_path / "whole", tests=tests, **more)), rules=default)[0] == "pass"
    tests[2] = tests[2].model_copy(update={"outcome": "skipped"})
    for number, suite in enumerate((Suite(name="default"), Suite(name="default", shard=1, shards=2))):
        (one,) = evidence_in(results(tmp_path / f"{number}", tests=tests, **{**more, "suite": suite}))
        assert f"{NAMED[2]}: none of its tests passed" in one.detail and one.outcome == "missing"
        assert gate(one, rules=default)[0] == "fail"


def test_a_gpu_that_torch_does_not_see_is_not_tested() -> None:
    """Without it most tests are not even there, and thousands that need none would pass."""
    gpus = [gpu.Gpu("amd", gfx=gfx, hip_index=number) for number, gfx in enumerate(("gfx942", "gfx1100"))]
    target = installed_torch.TargetPython(Path("x"), (), version="2.13", devices=("gfx942:sramecc+",))
    tested_gpus.refuse_unseen_gpus(gpus[:1], target)
    with pytest.raises(
        errors.ChecksError, match=r"does not see the gfx1100 .*: gfx942 is what it"
    ) as refused:
        tested_gpus.refuse_unseen_gpus(gpus, target)
    assert refused.value.tip == "`rocm-wheels doctor --python x` says why"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["0", "2"]),
        (["--gpu-policy", "all"], ["0", "1", "2"]),
        (["--gpu-policy", "single"], ["0"]),
        (["--suite", "distributed"], ["0,1", "2"]),
        (["--suite", "distributed", "--gpu-policy", "single"], ["0"]),
    ],
)
def test_which_gpus_are_tested_and_which_together(words: list[str], shown: list[str]) -> None:
    cards = enumerate(("gfx942", "gfx942", "gfx1100"))
    gpus = tuple(gpu.Gpu("amd", gfx=gfx, hip_index=number) for number, gfx in cards)
    target = installed_torch.TargetPython(Path("x"), (), version="2.13", devices=("gfx942", "gfx1100"))
    with therock_script.make_context("run-pytorch-tests", words) as context:
        found = _choose_places(context.params, target, {}, gpu.Hardware(gpus))
    assert [place.env["HIP_VISIBLE_DEVICES"] for place in found] == shown


@pytest.mark.parametrize("word", ["-n", "-n4", "--dist=loadfile", "--numprocesses"])
def test_pytest_is_told_words_but_not_to_run_tests_side_by_side(word: str) -> None:
    told = pytest_words.join_pytest_arguments("-x", "a or b", ["-rs", "--co"])
    assert told == ("-x", "-k", "a or b", "-rs", "--co")
    with pytest.raises(errors.UsageError, match=f"{word}: tests run one by one"):
        pytest_words.join_pytest_arguments("", "", ["-v", word])
    with pytest.raises(errors.UsageError, match=r"PYTEST_ADDOPTS=-k 'a or b: No closing quotation"):
        pytest_words.join_pytest_arguments("-k 'a or b", "", [])


def test_the_environment_may_choose_among_tests_too() -> None:
    ours = torch_tests.load_torch_tests().environment
    choosing = {"PYTORCH_TESTING_DEVICE_EXCEPT_FOR": "cuda", "SLOW_TESTS_FILE": "x"}
    assert torch_test_plan.find_choosing_variables({**choosing, "HOME": "/", **ours}, ours) == choosing


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--shard", "2"], "--shard and --num-shards go together"),
        (["--shard", "3", "--num-shards", "2"], "--shard 3: there are 2, numbered from 1"),
        (["--suite", "defalt"], "there is no suite defalt; did you mean default?"),
        (["--family", "gfx94Y"], "gfx94Y"),
    ],
)
def test_what_is_wrong_whatever_torch_is_there_is_said_before_it_is_asked(
    words: list[str], says: str
) -> None:
    python = sys.executable  # without torch, which would be said next
    done = CliRunner().invoke(torch_tests_command, ["--python", python, *words], standalone_mode=False)
    assert isinstance(done.exception, errors.UsageError) and says in str(done.exception)


def test_no_run_is_of_more_shards_than_can_be_counted() -> None:
    """Whoever puts them together counts to the number that each of them states."""
    assert CliRunner().invoke(torch_tests_command, ["--shard", "1", "--num-shards", "1001"]).exit_code == 2
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        TestedSuite(name="full", shard=1, shards=10**12)

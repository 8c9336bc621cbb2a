"""Torch's own tests: the table of what is known, what a choice comes to, and what results are evidence of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from judged_sets import NOW, SET, judged, said

from rocm_wheels.ci import MatrixSelection as CiSelection
from rocm_wheels.ci import Prices, make_rows, plan_matrix
from rocm_wheels.cli.torch_tests import _choose_places, torch_tests_command
from rocm_wheels.core import ChecksError, DataError, UsageError, hash_file, parse_record
from rocm_wheels.gpus import Gpu, Hardware
from rocm_wheels.models import TorchTestTable, load_ci_table, load_torch_tests, select_known_tests
from rocm_wheels.pipeline import History
from rocm_wheels.release import Evidence, EvidenceSubmission, StoredEvidence, read_results
from rocm_wheels.testing import (
    ChosenTests,
    FileOutcomes,
    OutcomeVerdict,
    TargetPython,
    TestResult,
    TorchResults,
    TorchTestSelection,
    TorchUnderTest,
    cut_torn_line,
    find_choosing_variables,
    join_pytest_arguments,
    list_places,
    make_file_result,
    plan_test_files,
    read_outcomes,
    refuse_unseen_gpus,
    write_torch_junit,
    write_torch_results,
)
from rocm_wheels.testing import judge_results as told
from rocm_wheels.testing.torch_test_run import _judge_end

TABLE = """
sources: {here: {url: "https://example.org", retrieved: 2026-11-22}}
waiting: {test_minutes: 1, file_minutes: 2, source: here, kind: tested}
suites: {default: {about: all, fact: {source: here, kind: tested}, groups: [{files: [test_a, nn/test_b]}]}}
known:
  - {tests: ["test_a.py::test_print"], effect: fails,
     source: here, kind: tested, torch: "==2.13.*", reason: r}
  - {tests: ["test_a.py::TestA::test_print"], effect: hangs,
     reason: r, source: here, kind: tested, targets: [gfx942]}
  - {tests: ["test_a.py::test_w"], effect: crashes,
     reason: r, source: here, kind: tested, platforms: [windows], pythons: ["3.11"]}
"""


def table(text: str = TABLE) -> TorchTestTable:
    return parse_record(text, TorchTestTable, name="t.yaml")


def test_what_is_known_is_known_of_exact_names_in_one_place() -> None:
    here = select_known_tests(table().known, "2.13.0a0+rocm7.1", "gfx942", "linux", "3.12")
    assert here.find_test("test_a.py::TestB::test_print").effect == "fails"  # type: ignore[union-attr]
    assert here.find_test("test_a.py::TestA::test_print").effect == "hangs"  # type: ignore[union-attr]
    for other in ("test_a.py::TestB::test_print_cuda", "test_b.py::TestB::test_print", "test_a.py", "pytest"):
        assert here.find_test(other) is None
    assert here.list_skipped() == ["test_a.py::TestA::test_print"]
    elsewhere = select_known_tests(table().known, "2.14.0", "gfx1100", "windows", "3.11")
    assert elsewhere.find_test("test_a.py::TestB::test_print") is None
    assert elsewhere.list_skipped() == ["test_a.py::test_w"]


def test_the_table_names_each_test_once_where_it_holds() -> None:
    rows = load_torch_tests().known
    assert {row.effect for row in rows} == {"fails", "hangs", "crashes"}
    for python, platform, torch in (("3.11", "windows", "2.12.0"), ("3.14", "linux", "2.13.0")):
        holding = [row for row in rows if row.applies_to(_version(torch), "gfx950", platform, python)]  # type: ignore[arg-type]
        names = [(test, row.effect) for row in holding for test in row.tests]
        assert len({name for name, _ in names}) == len({*names}), "one test, one effect"


def _version(text: str) -> Any:
    from packaging.version import Version

    return Version(text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("test_a.py::test_w", "test_a.py", "t.yaml:10:14: .*tests.0: .* is no test: FILE.py::"),
        ("test_a.py::test_w", "test_a.py::test w", "is no test: FILE.py::"),
        ("==2.13.*", "2.13", "'2.13' is no version specifier"),
        ("gfx942", "gfx942x", "gfx942x is no GPU target; did you mean"),
        ("nn/test_b", "test_b.py", "is no file of test/ without .py"),
        ("nn/test_b", "test_a", "test_a is in two|in two groups"),
        ("{files: [test_a, nn/test_b]}", "{}", "either names `files`"),
        ("suites: {default", "suites: {other", "there must be a suite `default`"),
        (
            "source: here, kind: tested, torch",
            "source: there, kind: tested, torch",
            "source 'there' is not among",
        ),
    ],
)
def test_a_table_with_a_mistake(old: str, new: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        table(TABLE.replace(old, new))


def test_files_are_chosen_and_shared_out(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    for name in ("test_a", "nn/test_b", "test_c"):
        (tmp_path / f"{name}.py").touch()
    suite = table().suites["default"]

    def files(**chosen: Any) -> list[str]:
        return [
            part.name
            for part in plan_test_files(suite, TorchTestSelection(**chosen), tmp_path, Path("x"), {})[0]
        ]

    assert files() == ["test_a", "nn/test_b"]
    assert files(exclude=("test_a",)) == ["nn/test_b"]
    assert files(include=("test_c",)) == ["test_c"]
    assert files(shard=2, shards=2) == ["nn/test_b"]
    for chosen, says in (
        ({"include": ("test_cc",)}, r"--include names test_cc, .*did you mean test_c\?"),
        ({"exclude": ("test_x",)}, "--exclude names test_x"),
        ({"shard": 3, "shards": 3}, "no file of tests is left"),
    ):
        with pytest.raises(UsageError, match=says):
            files(**chosen)
    (tmp_path / "test_a.py").unlink()
    with pytest.raises(UsageError, match="the suite default names test_a"):
        files()


def test_what_was_written_when_a_process_died_is_read(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text(
        '{"process": true}\n{"planned": ["a", "b", "c"], "left_out": ["d"], "unchosen": 1}\n{"begun": "a"}\n'
        '{"name": "a", "outcome": "passed", "seconds": 1, "reason": ""}\n{"begun": "b"}\n{"name": "b", "outc'
    )
    found = read_outcomes(path)
    assert (found.begun, found.done, found.left_out, found.finished) == ("b", ["a"], ("d",), False)
    assert [(one.name, one.outcome) for one in found.list_all_results("why")] == [
        ("a", "passed"),
        ("b", "missing"),
        ("c", "missing"),
    ]
    cut_torn_line(path)
    assert path.read_text().endswith('{"begun": "b"}\n')
    path.write_text(path.read_text() + '{"process": true}\n')
    assert read_outcomes(path).begun == "", "what a process before was at is no fault of this one's"


TORCH = next(file for file in SET.files if file.project == "torch" and "cp312" in file.name)


def results(folder: Path, *names: str, **more: Any) -> Path:
    """Write the results of a run in which so many tests passed, as the command does."""
    (folder / "junit").mkdir(parents=True)
    here = select_known_tests(table().known, "2.13.0", "gfx1030", "linux", "3.12")
    tests = [TestResult(name=f"test_a.py::T::{n}", outcome="passed", seconds=0.1) for n in ("x", "y")]
    tests += [TestResult(name=f"test_a.py::T::{n}", outcome="failed", seconds=0, reason="r") for n in names]
    verdicts: list[OutcomeVerdict] = told(tests, here)
    report = folder / "junit" / "test_a.xml"
    write_torch_junit(report, "test_a", verdicts, when=NOW.isoformat(), host="runner-1")
    part = make_file_result(
        "test_a", verdicts, (), complete=True, fault="", unchosen=0, devices=("gfx1030:xnack-",)
    )
    part = part.model_copy(update={"report": "junit/test_a.xml", "sha256": hash_file(report)})
    found: Mapping[str, Any] = {
        "schema": 1,
        "tool": "rocm-wheels 1 torch tests",
        "when": NOW.isoformat(),
        "host": "runner-1 (Linux)",
        "inputs": "x",
        "of": TorchUnderTest(torch="2.9.1+rocm7.1.0", python="3.12", commit="1" * 40, sources="2.9.1a0"),
        "gfx": "gfx1030",
        "files": {TORCH.name: TORCH.sha256},
        "chosen": ChosenTests(suite="full"),
        "parts": (part,),
    }
    write_torch_results(folder, TorchResults(**{**found, **more}))
    return folder


def evidence_in(*paths: Path) -> list[Evidence]:
    return read_results(paths, EvidenceSubmission(document=SET, by="ann", added=NOW, here="here"))


RULES = (
    "channels: {stable: {rules: {verify: {fresh: 14d}, "
    "tests: {fresh: 7d, targets: one, pythons: one, projects: [torch], at_least: 2}}}}"
)


def gate(*found: Evidence) -> tuple[str, str]:
    """What the rule about torch's tests says of a set, and what is to be done."""
    known = [StoredEvidence(one.id, one, "", "") for one in found]
    rule, *_ = [one for one in judged(RULES, said("verify"), *known).rules if one.rule == "tests"]
    return rule.outcome, f"{rule.why}; {rule.tip}"


def of_torch(**more: Any) -> TorchUnderTest:
    found = {"torch": "2.9.1+rocm7.1.0", "python": "3.12", "commit": "1" * 40, "sources": "2.9.1a0"}
    return TorchUnderTest(**{**found, **more})


def test_whole_results_satisfy_the_gate_and_known_failures_are_none(tmp_path: Path) -> None:
    (one,) = evidence_in(results(tmp_path / "gfx1030", "test_print").parent)
    assert (one.kind, one.outcome, str(one.counts), one.gfx) == (
        "tests",
        "pass",
        "2 passed, 1 skipped",
        "gfx1030",
    )
    assert (one.hashes, one.selected) == ((TORCH.sha256,), "")
    assert one.detail == "suite full; tests of 111111111111; 1 failures were known"
    outcome, why = gate(one)
    assert outcome == "pass" and "passed with Python 3.12 (2 passed, 1 skipped" in why
    (bad,) = evidence_in(results(tmp_path / "bad", "test_new"))
    assert (bad.outcome, bad.failed) == ("fail", ("test_a.py::T::test_new",))
    assert gate(one, bad)[0] == "fail"


def test_without_evidence_the_gate_says_what_to_type() -> None:
    outcome, why = gate()
    assert outcome == "fail" and "no evidence that torch's own tests pass" in why
    assert "(build_tools/run_pytorch_tests.py --family gfx1030 --wheels WHEELS), then: " in why
    assert why.endswith(f"rocm-wheels set evidence add STORE --set {SET.id} --from torch-test-results")


@pytest.mark.parametrize(
    ("more", "selected"),
    [
        ({"chosen": ChosenTests(suite="full", pytest_args=("-k", "conv", "-v"))}, "-k conv"),
        ({"chosen": ChosenTests(suite="full", files=("test_a",), exclude=("b",))}, "only test_a; without b"),
        ({"of": of_torch(doubt="the tests are of another commit")}, "the tests are of another commit"),
        ({"chosen": ChosenTests(suite="full", pytest_args=("-p", "no:unittest"))}, "no:unittest"),
        (
            {"chosen": ChosenTests(suite="full", variables={"PYTORCH_TEST_SKIP_FAST": "1"})},
            "PYTORCH_TEST_SKIP_FAST=1",
        ),
        ({"chosen": ChosenTests(suite="full", changes=("--debug",))}, "--debug"),
    ],
)
def test_a_run_of_some_tests_or_of_others_does_not_stand_for_all(
    tmp_path: Path, more: dict[str, Any], selected: str
) -> None:
    (one,) = evidence_in(results(tmp_path / "r", **more))
    assert (one.outcome, one.selected) == ("pass", selected)
    assert gate(one)[0] == "fail"


def test_a_half_run_is_no_pass_nor_is_one_shard_of_two(tmp_path: Path) -> None:
    whole = results(tmp_path / "whole")
    record = json.loads((whole / "results.json").read_text())
    record["parts"].append({"name": "test_b", "complete": False, "counts": {}})
    (whole / "results.json").write_text(json.dumps(record))
    (one,) = evidence_in(whole)
    assert one.outcome == "missing" and "1 file did not finish: test_b" in one.detail
    first = results(tmp_path / "1", chosen=ChosenTests(suite="full", shard=1, shards=2))
    second = results(tmp_path / "2", chosen=ChosenTests(suite="full", shard=2, shards=2))
    (one,) = evidence_in(first, second)
    assert one.outcome == "missing" and "test_a is there twice" in one.detail
    edited(second, name="test_b")
    (one,) = evidence_in(first)
    assert one.outcome == "missing" and "shards 2 of 2 are not there" in one.detail
    (one,) = evidence_in(first, second)
    assert (one.outcome, str(one.counts)) == ("pass", "4 passed") and gate(one)[0] == "pass"
    assert [one.outcome for one in evidence_in(first, first, second)] == ["pass", "missing"]


def edited(folder: Path, **part: Any) -> Path:
    """Change what the record says of its only file, or add files (``parts``), without its report."""
    path = folder / "results.json"
    record = json.loads(path.read_text())
    record["parts"] = [{**record["parts"][0], **one} for one in part.pop("parts", [{}])]
    record["parts"][0].update(part)
    for number, one in enumerate(record["parts"][1:]):
        if one["report"] == record["parts"][0]["report"]:
            one["report"] = f"junit/{number}.xml"
            shutil.copy(folder / record["parts"][0]["report"], folder / one["report"])
    path.write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize(
    ("part", "suite", "outcome", "says"),
    [
        ({"devices": []}, "full", "missing", "the tests used no GPU, not the gfx1030"),
        ({"devices": ["gfx1030", "gfx942:sramecc+"]}, "full", "missing", "used gfx1030, gfx942, not the"),
        ({"unchosen": 3}, "full", "pass", "3 tests left out"),
        ({"name": "test_a 1/2"}, "full", "missing", "test_a 2/2 is not there"),
        ({"parts": [{"name": f"test_a {n}/2"} for n in (1, 2)]}, "full", "pass", ""),
        ({"name": "test_nn"}, "default", "missing", "test_torch was not run"),
        ({}, "inductor", "missing", "test_modules was not run"),
        ({}, "distributed", "pass", "only the suite distributed"),
        ({}, "of another version", "pass", "only the suite of another version"),
    ],
)
def test_what_was_not_tested_is_no_pass_though_every_test_passed(
    tmp_path: Path, part: dict[str, Any], suite: str, outcome: str, says: str
) -> None:
    (one,) = evidence_in(edited(results(tmp_path / "r", chosen=ChosenTests(suite=suite)), **part))
    assert one.outcome == outcome and says in f"{one.detail}; {one.selected}"
    assert gate(one)[0] == ("fail" if says else "pass")


def test_a_file_of_a_suite_in_which_nothing_passed_is_none_and_so_is_a_shard_of_other_tests(
    tmp_path: Path,
) -> None:
    names = load_torch_tests().suites["default"].named_files
    parts = {"parts": [{"name": name} for name in names]}
    whole = edited(results(tmp_path / "whole", chosen=ChosenTests(suite="default")), **parts)
    assert gate(*evidence_in(whole))[0] == "pass"
    whole = edited(results(tmp_path / "some", chosen=ChosenTests(suite="default")), **parts)
    record = json.loads((whole / "results.json").read_text())
    report = whole / "junit" / "none.xml"
    write_torch_junit(report, "test_cuda", [], when=NOW.isoformat(), host="x")
    record["parts"][2] |= {"counts": {}, "report": "junit/none.xml", "sha256": hash_file(report)}
    (whole / "results.json").write_text(json.dumps(record))
    (one,) = evidence_in(whole)
    assert names[2] == "test_cuda" and "test_cuda: none of its tests passed" in one.detail
    assert gate(one)[0] == "fail"
    first = results(tmp_path / "1", chosen=ChosenTests(suite="full", shard=1, shards=2))
    chosen = ChosenTests(suite="full", shard=2, shards=2)
    second = results(tmp_path / "2", chosen=chosen, of=of_torch(doubt="files were changed"))
    edited(second, name="test_b")
    (one,) = evidence_in(first, second)
    assert one.selected == "files were changed" and gate(one)[0] == "fail"


@pytest.mark.parametrize("counts", [{}, {"passed": 2}, {"passed": 3, "failed": 1, "crashed": -1}, {"x": 3}])
def test_a_failure_cannot_be_taken_out_of_the_record_alone(tmp_path: Path, counts: dict[str, int]) -> None:
    with pytest.raises(DataError, match=r"is not what .* speaks of|parts.0.counts"):
        evidence_in(edited(results(tmp_path / "one", "test_new"), counts=counts))
    twice = edited(results(tmp_path / "twice"), parts=[{}, {"name": "test_b"}])
    (twice / "results.json").write_text((twice / "results.json").read_text().replace("/0.xml", "/test_a.xml"))
    with pytest.raises(DataError, match="names a report for two files"):
        evidence_in(twice)


def test_a_record_that_its_reports_contradict_is_none(tmp_path: Path) -> None:
    one = results(tmp_path / "one", "test_new")
    report = one / "junit" / "test_a.xml"
    report.write_text(report.read_text().replace("failure", "system-out"))
    with pytest.raises(DataError, match=r"is not what .* speaks of"):
        evidence_in(one)
    report.unlink()
    with pytest.raises(DataError, match="the report of test_a is not there"):
        evidence_in(one)
    other = results(tmp_path / "other", files={"torch-1.0-py3-none-any.whl": "0" * 64})
    with pytest.raises(Exception, match=r"has other bytes|is not in|names no wheel"):
        evidence_in(other)


def test_rows_say_where_torchs_own_tests_run_and_how_long() -> None:
    nowhere = next(
        one
        for one in load_ci_table().families
        if not load_ci_table().families[one].get_platform("linux").runners
    )
    chosen = CiSelection("nightly", ("gfx94X-dcgpu", nowhere), lines=("2.13",), platforms=("linux",))
    cells = plan_matrix(load_ci_table(), chosen).built
    prices = Prices(load_ci_table(), History())
    (row, *_), tested = make_rows(cells, prices, "torch_tested"), make_rows(cells, prices, "tested")
    assert {one["family"] for one in tested} == {"gfx94X-dcgpu"}, "and none without a machine"
    assert (row["test_minutes"], row["torch_test_minutes"], row["torch_step_minutes"]) == (60, 270, 245)
    push = plan_matrix(load_ci_table(), CiSelection("presubmit", ("gfx94X-dcgpu",))).built
    assert make_rows(push, prices, "torch_tested") == []


def test_gpus_are_tested_one_by_one_or_all_of_a_target_at_once() -> None:
    gpus = [
        Gpu("amd", gfx=gfx, hip_index=number) for number, gfx in enumerate(("gfx942", "gfx942", "gfx1100"))
    ]
    target = TargetPython(Path("x"), (), version="2.13", devices=("gfx942:sramecc+", "gfx942"))
    refuse_unseen_gpus(gpus[:2], target)
    with pytest.raises(ChecksError, match=r"does not see the gfx1100 .*: gfx942 is what it sees"):
        refuse_unseen_gpus(gpus, target)
    env = {"GPU_DEVICE_ORDINAL": "7"}
    alone = list_places(gpus, env, every=False)
    assert [(one.label, one.env["HIP_VISIBLE_DEVICES"]) for one in alone] == [
        ("gfx942-0", "0"),
        ("gfx942-1", "1"),
        ("gfx1100", "2"),
    ]
    assert all("GPU_DEVICE_ORDINAL" not in one.env for one in alone)
    at_once = list_places(gpus, env, every=True)
    assert [(one.label, one.env["HIP_VISIBLE_DEVICES"]) for one in at_once] == [
        ("gfx942", "0,1"),
        ("gfx1100", "2"),
    ]
    (cpu,) = list_places([], env, every=False)
    assert (cpu.label, cpu.gfx, cpu.env["HIP_VISIBLE_DEVICES"]) == ("cpu", None, "-1")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["0", "2"]),
        (["--gpu-policy", "all"], ["0", "1", "2"]),
        (["--gpu-policy", "single"], ["0"]),
        (["--device-query", "unique"], ["0"]),
        (["--device-query", "all", "--gpu-policy", "single"], ["0"]),
        (["--device-query", "unique", "--gpu-policy", "all"], ["0", "2"]),
        (["--device-query", "all", "--gpu-policy", "all"], ["0,1", "2"]),
        (["--suite", "distributed"], ["0,1", "2"]),
        (["--suite", "distributed", "--gpu-policy", "single"], ["0"]),
        (["--suite", "distributed", "--device-query", "unique"], ["0", "2"]),
        (["--suite", "distributed", "--gpu-policy", "single", "--device-query", "all"], ["0"]),
    ],
)
def test_gpus_are_queried_then_shown(words: list[str], shown: list[str]) -> None:
    gpus = tuple(
        Gpu("amd", gfx=gfx, hip_index=number) for number, gfx in enumerate(("gfx942", "gfx942", "gfx1100"))
    )
    target = TargetPython(Path("x"), (), version="2.13", devices=("gfx942", "gfx1100"))
    with torch_tests_command.make_context("run-pytorch-tests", words) as context:
        found = _choose_places(context.params, target, {}, Hardware(gpus))
    assert [place.env["HIP_VISIBLE_DEVICES"] for place in found] == shown


@pytest.mark.parametrize("word", ["-n", "-n4", "--dist=loadfile", "--numprocesses"])
def test_pytest_is_told_words_but_not_to_run_tests_side_by_side(word: str) -> None:
    assert join_pytest_arguments(["-x"], "a or b", ["-rs", "--co"]) == (
        "-x",
        "-k",
        "a or b",
        "-rs",
        "--co",
    )
    with pytest.raises(UsageError, match=f"{word}: torch's tests run one by one"):
        join_pytest_arguments([], "", ["-v", word])


def test_the_environment_may_choose_among_tests_too() -> None:
    ours = load_torch_tests().environment
    env = {"PYTORCH_TESTING_DEVICE_EXCEPT_FOR": "cuda", "SLOW_TESTS_FILE": "x", "HOME": "/", **ours}
    assert find_choosing_variables(env, ours) == {
        "PYTORCH_TESTING_DEVICE_EXCEPT_FOR": "cuda",
        "SLOW_TESTS_FILE": "x",
    }


def test_torchs_own_tests_come_after_good_smoke_tests(tmp_path: Path) -> None:
    smoke = {"tool": "x", "when": "x", "host": "x", "torch": "2.13", "gfx": [], "files": {}, "schema": 1}
    tests = [{"name": "a", "outcome": "failed", "seconds": 1}]
    (tmp_path / "r.json").write_text(json.dumps({**smoke, "tests": tests, "counts": {"failed": 1}}))
    done = CliRunner().invoke(
        torch_tests_command, ["--after", str(tmp_path / "r.json")], standalone_mode=False
    )
    assert isinstance(done.exception, ChecksError) and "did not pass: 1 failed" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--shard", "2"], "--shard and --num-shards belong together"),
        (["--shard", "3", "--num-shards", "2"], "--shard 3: there are 2, numbered from 1"),
        (["--pytorch-version", "newest"], "--torch newest is no version of torch"),
        (["--suite", "defalt"], "there is no suite defalt; did you mean default?"),
        (["--family", "gfx94Y"], "gfx94Y"),
    ],
)
def test_what_is_wrong_whatever_torch_is_there_is_said_before_it_is_asked(
    words: list[str], says: str
) -> None:
    done = CliRunner().invoke(torch_tests_command, ["--python", "no-python", *words], standalone_mode=False)
    assert isinstance(done.exception, UsageError) and says in str(done.exception)


OLD, FAILED = (TestResult(name=name, outcome="failed", seconds=0) for name in ("old", "new"))
ENDS: list[tuple[int, FileOutcomes, str, tuple[str, str] | None]] = [
    (0, FileOutcomes((OLD,), finished=True), "1 passed", None),
    (1, FileOutcomes((OLD, FAILED), finished=True), "1 failed", None),
    (
        1,
        FileOutcomes((OLD,), finished=True),
        "x",
        ("crashed", "ended with exit code 1, and no test failed\n  | x"),
    ),
    (1, FileOutcomes((OLD,)), "x", ("crashed", "ended with exit code 1 in the middle\n  | x")),
    (0, FileOutcomes(), "x", ("crashed", "ended with exit code 0 in the middle\n  | x")),
    (-11, FileOutcomes(), "x", ("crashed", "crashed with SIGSEGV\n  | x")),
    (
        1,
        FileOutcomes(),
        "Timeout (0:00:07)!\nThread 0x7 (first):\nx",
        ("timeout", "was stopped after 7 s in it\n  | x"),
    ),
]


@pytest.mark.parametrize(("code", "after", "printed", "how"), ENDS)
def test_a_process_ended_well_only_where_pytest_and_its_outcomes_agree(
    code: int, after: FileOutcomes, printed: str, how: tuple[str, str] | None
) -> None:
    assert _judge_end(code, FileOutcomes((OLD,)), after, printed.splitlines(), 7.0) == how

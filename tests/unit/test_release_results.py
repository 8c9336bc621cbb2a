"""Results in the one form for all that tests wheels, and the evidence that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documents import NOW, SET
from pydantic import ValidationError

from rocm_wheels.core import errors
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.release.evidence import evidence as evidence_files
from rocm_wheels.release.evidence.evidence import Evidence, EvidenceSubmission
from rocm_wheels.release.evidence.results import read_results
from rocm_wheels.release.evidence.store import add_evidence, summarize_results
from rocm_wheels.stores.folder import FolderStore

WHEELS = {file.name: file.sha256 for file in SET.files}
FIRST, SECOND = list(WHEELS)[:2]
SHARD = {"name": "full", "shard": 2, "shards": 6}


def results(*tests: TestResult, **more: Any) -> Results:
    known = {"kind": "smoke", "tool": "a tool", "when": NOW, "host": "runner-1", "gfx": "gfx1030"}
    return Results.model_validate({**known, "wheels": WHEELS, "tests": tests, **more})


def test_of(name: str, outcome: str = "passed", **more: Any) -> TestResult:
    return TestResult.model_validate({"name": name, "outcome": outcome, **more})


test_of.__test__ = False  # type: ignore[attr-defined]


def evidence(tmp_path: Path, document: Results) -> list[Evidence]:
    path = tmp_path / "results.json"
    path.write_bytes(document.to_json())
    return read_results([path], EvidenceSubmission(SET, "ann", NOW, "here"))


def test_a_run_is_one_evidence_with_all_that_is_known(tmp_path: Path) -> None:
    (one,) = evidence(
        tmp_path,
        results(
            test_of("a", seconds=2.5, measurements={"tflops:gemm": 431.5, "tflops:conv2d": 9}),
            test_of("b", tries=2, measurements={"tflops:gemm": 402.25}),  # another GPU of the target
            test_of("c", "failed", known="numpy 3, by ann, until 2027-01-01", measurements={"tflops:x": 1}),
            test_of("d", "skipped"),
            suite={"name": "default", "shard": 2, "shards": 3, "plan": "x"},
        ),
    )
    assert (one.kind, one.outcome, one.gfx) == ("smoke", "pass", "gfx1030")
    assert (one.counts.passed, one.counts.skipped, one.counts.flaky, one.flaky) == (2, 2, 1, ("b",))
    assert one.measurements == {"tflops:gemm": 402.25, "tflops:conv2d": 9.0}
    assert str(one.suite) == "default 2/3"
    assert evidence_files.parse_evidence(one.to_json(), where="it", name=one.id) == one
    assert set(one.hashes) == SET.hashes and one.host.name == "runner-1"


def test_measurements_of_a_test_are_numbers_and_nothing_else() -> None:
    measured = test_of("a", measurements={"tflops:gemm f16": 431.5, "n": 3})
    again = Results.model_validate_json(results(measured).to_json())
    assert again.tests[0].measurements == {"tflops:gemm f16": 431.5, "n": 3.0}
    for value in ("fast", float("nan"), None):
        with pytest.raises(ValidationError):
            test_of("a", measurements={"tflops": value})


@pytest.mark.parametrize("outcome", ["failed", "crashed", "timeout", "missing"])
def test_what_did_not_pass_is_no_pass(outcome: str, tmp_path: Path) -> None:
    (one,) = evidence(tmp_path, results(test_of("a"), test_of("b", outcome, detail="why")))
    assert not one.passed and set(one.hashes) == SET.hashes
    assert one.failed == (() if outcome == "missing" else ("b: why",))
    assert evidence(tmp_path, results())[0].outcome == "missing"  # nothing ran


def test_of_wheels_that_no_test_is_about_nothing_is_known(tmp_path: Path) -> None:
    tests = [test_of("x", "failed", wheels=(FIRST,)), test_of("x", wheels=(SECOND,))]
    found = evidence(tmp_path, results(*tests, kind="audit", gfx=None))
    assert {one.hashes: one.passed for one in found} == {(WHEELS[SECOND],): True, (WHEELS[FIRST],): False}


def test_results_of_other_wheels_and_of_no_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="which was not tested"):
        results(test_of("a", wheels=("other.whl",)))
    with pytest.raises(errors.ReleaseError, match="other bytes than in the set"):
        evidence(tmp_path, results(test_of("a"), wheels={FIRST: "0" * 64}))
    path = tmp_path / "broken.json"
    path.write_bytes(results(test_of("a")).to_json().replace(b'"passed"', b'"good"'))
    with pytest.raises(errors.DataError):
        read_results([path], EvidenceSubmission(SET, "ann", NOW, "here"))


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({}, ""),
        ({"selected": "-k conv"}, "a part, chosen tests: -k conv"),
        ({"suite": SHARD}, "a part, shard 2 of 6"),
        ({"suite": SHARD, "selected": "-k conv"}, "a part, shard 2 of 6; chosen tests: -k conv"),
    ],
)
def test_evidence_of_a_part_of_the_tests_is_named_as_such(
    more: dict[str, Any], part: str, tmp_path: Path
) -> None:
    (one,) = evidence(tmp_path, results(test_of("a"), kind="tests", **more))
    assert one.part == part
    suite = " (full)" if "suite" in more else ""
    subject = f"tests{suite} on gfx1030{f' ({part})' if part else ''}"
    assert evidence_files.describe_evidence(one).startswith(f"{subject}: pass (1 passed), ")
    store = FolderStore(tmp_path / "store")
    add_evidence(store, SET, one)
    assert summarize_results(store, SET.family) == {SET.id: [f"{subject}: pass"]}


HUGE = {"name": "full", "shard": 1, "shards": 10**15, "plan": "p"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"suite": HUGE}, "suite.shards"),
        ({"when": "9999-12-31T23:59:59-14:00"}, "there is no such time in UTC"),
        ({"when": "0001-01-01T00:00:00+14:00"}, "there is no such time in UTC"),
        ({"when": "soon"}, "when"),
        ({"suite": {"name": ""}}, "suite: "),
        ({"suite": {"name": "full", "shard": 3, "shards": 2}}, "suite: "),
        ({"suite": {"name": "a\nb"}}, "suite: "),
        ({"suite": {"name": "a", "plan": "x" * 2000}}, "suite: "),
    ],
)
def test_what_evidence_cannot_hold_is_an_error_with_the_file(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**json.loads(results(test_of("a"), kind="tests").to_json()), **change}))
    with pytest.raises(errors.DataError, match=r"results\.json") as caught:
        read_results([path], EvidenceSubmission(SET, "ann", NOW, "here"))
    assert says in str(caught.value)


def test_evidence_in_a_store_cannot_have_shards_without_end(tmp_path: Path) -> None:
    (one,) = evidence(tmp_path, results(test_of("a"), kind="tests", suite={**HUGE, "shards": 2}))
    content = one.to_json().replace(b'"shards": 2', b'"shards": 1000000000000000')
    with pytest.raises(errors.DataError, match="cannot be read as evidence"):
        evidence_files.parse_evidence(content, where="it", name=one.id)


def test_the_form_on_the_page_is_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/pages/how-to/release.md").read_text(encoding="utf-8")
    form = json.loads(page.partition("```json\n")[2].partition("```")[0])
    known = Results.model_validate(form)
    assert [test.is_bad for test in known.tests] == [False, False]
    (one,) = evidence(tmp_path, Results.model_validate({**form, "wheels": WHEELS, "gfx": "gfx1030"}))
    assert (one.kind, one.outcome, one.counts.flaky, one.counts.skipped) == ("smoke", "pass", 1, 1)

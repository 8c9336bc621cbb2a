"""Evidence: what it is made of, how it is named and kept, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from documents import BAD, CASE, ERROR, NOW, SET, SKIP, WHOLE, a_set, junit, put_set, said, sha, wheel
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rocm_wheels.core import errors
from rocm_wheels.release import store_paths
from rocm_wheels.release.evidence import evidence as evidence_of
from rocm_wheels.release.evidence.evidence import Evidence, OutcomeCounts, parse_evidence, read_junit_run
from rocm_wheels.release.evidence.store import StoredEvidence, add_evidence, read_evidence
from rocm_wheels.stores import folder


def a_store(place: Path) -> folder.FolderStore:
    """A store with the set, and nothing known of it."""
    store = folder.FolderStore(place)
    put_set(store, SET)
    return store


def known_in(store: folder.FolderStore) -> list[StoredEvidence]:
    return read_evidence(store, SET, signers={}, env={})


def files_of(store: folder.FolderStore) -> list[str]:
    return [one.path for one in store.listing(store_paths.FamilyPaths(SET.family).evidence_folder(SET.id))]


def test_evidence_is_added_once_and_stays(tmp_path: Path):
    store, one = a_store(tmp_path), said().evidence
    assert add_evidence(store, SET, one)
    later = one.model_copy(update={"added": one.added + timedelta(minutes=3)})
    assert (later.id, add_evidence(store, SET, later)) == (one.id, False)
    assert [known.evidence for known in known_in(store)] == [one]
    assert files_of(store) == [f"{SET.family}/evidence/{SET.id}/{one.id}.json"]
    assert one.id.startswith("20261121T110000Z-")


def test_who_hands_it_in_makes_another_evidence_of_the_same_claim():
    one, other = said().evidence, said(by="bob").evidence
    assert one.id != other.id
    assert one.claim == other.claim
    assert one.claim != said(outcome="fail").evidence.claim


@pytest.mark.parametrize(
    ("evidence", "error", "says"),
    [
        (said(hours=-1, added=NOW), errors.UsageError, "is from the future: 2026-11-21 13:00 UTC; here"),
        (said(document=a_set(wheel("torch"))), errors.ReleaseError, "the evidence is of 2.9.1-rocm7.1.0-"),
        (said(hashes=(sha("x"),)), errors.ReleaseError, "speaks of 1 wheel outside 2.9.1-rocm7.1.0-"),
    ],
)
def test_evidence_that_cannot_be_of_the_set_is_refused(
    tmp_path: Path, evidence: StoredEvidence, error: type[Exception], says: str
):
    store = a_store(tmp_path)
    with pytest.raises(error, match=says):
        add_evidence(store, SET, evidence.evidence)
    assert files_of(store) == []


def test_clocks_may_differ_a_little(tmp_path: Path):
    assert add_evidence(a_store(tmp_path), SET, said(hours=-0.05, added=NOW).evidence)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('"fail"', '"pass"'), "it cannot have passed: 3 failed"),
        (lambda text: text.replace('"failed": 3', '"failed": 2'), "was changed after it was written"),
        (lambda text: text[:-40], "cannot be read as evidence"),
        (lambda text: "", "cannot be read as evidence"),
        (lambda text: text.replace('"schema": 2', '"schema": 3'), "schema: Input should be 2"),
    ],
)
def test_evidence_that_was_changed_is_never_passed_over(tmp_path: Path, change: Any, says: str):
    store, one = a_store(tmp_path), said(outcome="fail").evidence
    add_evidence(store, SET, one)
    place = tmp_path / files_of(store)[0]
    place.chmod(0o644)
    place.write_text(change(place.read_text()))
    with pytest.raises(errors.DataError, match=says) as refused:
        known_in(store)
    assert "it may have said that a test failed" in str(refused.value.tip)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hashes": ()}, "at least 1 item"),
        ({"hashes": tuple(sorted((sha("b"), sha("a")), reverse=True))}, "hashes must be sorted"),
        ({"counts": OutcomeCounts()}, "it cannot have passed: nothing ran"),
        ({"counts": OutcomeCounts(skipped=7)}, "it cannot have passed: 7 skipped"),
        ({"gfx": "gfx94X-dcgpu"}, "it must be a GPU target such as gfx942"),
        ({"when": NOW.replace(tzinfo=None)}, "timezone info"),
        ({"tool": "a\nb"}, "it must be one printable line"),
        ({"more": 1}, "Extra inputs"),
    ],
)
def test_what_is_no_evidence(wrong: dict[str, Any], says: str):
    with pytest.raises(ValidationError, match=says):
        said(**wrong)


@given(st.integers(0, 23), st.text(max_size=30).filter(str.isprintable), st.integers(-14, 14))
def test_a_file_gives_back_what_was_written(hour: int, detail: str, zone: int):
    when = NOW.replace(hour=hour, tzinfo=timezone(timedelta(hours=zone)))
    one = said(when=when, added=when, detail=detail).evidence
    assert parse_evidence(one.to_json(), where="x", name=one.id) == one
    assert Evidence.model_validate(json.loads(one.to_json())).id == one.id


@pytest.mark.parametrize(
    ("text", "outcome", "numbers", "fault"),
    [
        (WHOLE, "pass", (1, 0), ""),
        (junit(CASE, BAD, tests=2, failures=1), "fail", (1, 1), ""),
        (junit(CASE, ERROR, tests=2, errors=1), "fail", (1, 1), ""),
        (junit(CASE, tests=1, failures=2), "fail", (1, 2), ""),  # says of itself that more failed
        (WHOLE[:-30], "crash", (0, 0), "truncated or no XML"),
        ("", "crash", (0, 0), "is empty"),
        ("<html>Bad gateway</html>", "crash", (0, 0), "it is <html>"),
        (junit(tests=0), "crash", (0, 0), "has no test in it"),
        ("<testsuites/>", "crash", (0, 0), "has no test in it"),
        (junit(SKIP, tests=1), "missing", (0, 0), ""),
        (junit(CASE, tests=900), "crash", (1, 0), "says 900 tests and lists 1"),
        (junit(CASE, CASE, tests=3, errors=1), "fail", (2, 1), ""),  # an error of what cleans up
        ('{"tests": []}', "crash", (0, 0), "truncated or no XML"),
    ],
)
def test_only_a_whole_report_of_tests_that_ran_is_a_pass(
    tmp_path: Path, text: str, outcome: str, numbers: tuple[int, int], fault: str
):
    (tmp_path / "r.xml").write_text(text)
    found = read_junit_run([tmp_path / "r.xml"])
    assert (found.outcome, (found.counts.passed, found.counts.failed)) == (outcome, numbers)
    assert fault in " ".join(found.faults)
    assert bool(fault) == bool(found.faults)


def test_a_shard_that_left_no_report_is_missed(tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"shard-{number}.xml").write_text(WHOLE.replace("test_conv", f"test_{number}"))
    with pytest.raises(errors.UsageError, match="a shard that died left no file in it"):
        evidence_of.list_report_files([tmp_path], None)
    assert read_junit_run(evidence_of.list_report_files([tmp_path], 2), 2).outcome == "pass"
    found = read_junit_run(evidence_of.list_report_files([tmp_path], 3), 3)
    assert (found.outcome, found.faults) == ("missing", ("2 of 3 reports are there",))


def test_reports_say_when_and_where(tmp_path: Path):
    (tmp_path / "r.xml").write_text(WHOLE)
    found = read_junit_run([tmp_path / "r.xml"])
    assert found.when is not None
    assert found.when.astimezone(timezone.utc).isoformat() == "2026-11-21T08:00:00+00:00"
    assert found.hosts == ("runner-7",)

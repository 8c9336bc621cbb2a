"""JUnit files as runners write them, and as they are when somebody or something broke them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from rocm_wheels.core import errors, junit
from rocm_wheels.release.evidence import evidence

pytestmark = pytest.mark.contract

# what pytest 9.1 with pytest-xdist and pytest-timeout wrote of a few tests, without texts and times
REAL = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest"
 errors="4" failures="5" skipped="2" tests="20"
 timestamp="2026-11-21T22:16:22.798344+00:00" hostname="runner-7">
<testcase classname="" name="t.test_b"><error message="collection failure">no module</error></testcase>
<testcase classname="t" name="test_slow">
<failure message="Failed: Timeout (&gt;1.0s) from pytest-timeout."/></testcase>
<testcase classname="t" name="test_ok" />
<testcase classname="t" name="test_bad"><failure message="assert 1"/></testcase>
<testcase classname="t" name="test_skip"><skipped type="pytest.skip" message="no">t.py:6</skipped></testcase>
<testcase classname="t" name="test_both"><failure message="assert 0">assert 0</failure></testcase>
<testcase classname="t" name="test_both">
<error message="failed on teardown with &quot;RuntimeError&quot;"/></testcase>
<testcase classname="t" name="test_end">
<error message="failed on teardown with &quot;RuntimeError&quot;"/></testcase>
<testcase classname="t" name="test_xf"><skipped type="pytest.xfail" message="" /></testcase>
<testcase classname="t" name="test_xp"><failure message="[XPASS(strict)] ">x</failure></testcase>
<testcase classname="t" name="test_many[0]" /><testcase classname="t" name="test_many[1]" />
<testcase classname="t" name="test_many[2]" /><testcase classname="t" name="test_many[3]" />
<testcase classname="t" name="test_many[4]" /><testcase classname="t" name="test_die">
<error
 message="failed on setup with &quot;worker 'gw0' crashed while running 't.py::test_die'&quot;"/></testcase>
<testcase classname="t.T" name="test_sub"><failure message="assert 1 != 1">x</failure></testcase>
</testsuite></testsuites>
"""
CASES = '<testcase name="a"/><testcase name="b"/>'


def read(tmp_path: Path, text: str, name: str = "r.xml") -> junit.JunitReport:
    (tmp_path / name).write_text(text)
    return junit.read_junit_report(tmp_path / name)


def test_what_pytest_writes_is_counted_as_it_was(tmp_path: Path):
    found = read(tmp_path, REAL)
    assert found.counts == {"passed": 6, "failed": 7, "crashed": 1, "timeout": 1, "skipped": 2}
    assert [*found.reasons] == [
        "t.test_b",
        *(f"t::test_{one}" for one in ("slow", "bad", "both", "end", "xp", "die")),
        "t.T::test_sub",
    ]
    assert (found.fault, found.hosts, found.when and found.when.hour) == ("", ("runner-7",), 22)


BOMB = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'<!DOCTYPE x [<!ENTITY a0 "ha">{BOMB}]><testsuites>&a11;</testsuites>', "has a document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', "has a document type"),
        (f'<testsuite tests="{"1" * 5000}">{CASES}</testsuite>', "tests of a suite is no number: 1111"),
        (f'<testsuite tests="2" failures="-1">{CASES}</testsuite>', "failures of a suite is no number: -1"),
        (f'<testsuite tests="2">{CASES}</testsuite><testsuite/>', "truncated or no XML"),
        ("<a>" * 100_000, "it is <a>"),
        ("\x00" * 100, "truncated or no XML"),
    ],
)
def test_what_no_runner_writes_is_a_crash(tmp_path: Path, text: str, says: str):
    (tmp_path / "r.xml").write_text(text)
    found = evidence.read_junit_run([tmp_path / "r.xml"])
    assert (found.outcome, says in " ".join(found.faults)) == ("crash", True), found.faults


def test_tests_that_say_that_they_were_not_run_did_not_pass(tmp_path: Path):
    """As GoogleTest and CTest write them."""
    cases = "".join(f'<testcase name="{one}" status="{one}"/>' for one in ("notrun", "run", "disabled"))
    found = read(tmp_path, f'<testsuites><testsuite tests="3">{cases}</testsuite></testsuites>')
    assert found.counts == {"passed": 1, "skipped": 2}


def test_a_suite_in_a_suite_is_counted_once(tmp_path: Path):
    inner = f'<testsuite tests="2" failures="0">{CASES}</testsuite>'
    assert read(tmp_path, f'<testsuite tests="2">{inner}</testsuite>').fault == ""
    assert (
        read(tmp_path, f'<testsuites><testsuite tests="2">{inner}</testsuite></testsuites>').counts["passed"]
        == 2
    )
    less = read(tmp_path, f'<testsuites tests="9"><testsuite tests="3">{inner}</testsuite></testsuites>')
    assert less.fault == "r.xml says 3 tests and lists 2"


def test_a_run_is_as_old_as_its_oldest_shard_and_each_counts_once(tmp_path: Path):
    for number, day in ((1, "01"), (2, "20")):
        suite = (
            f'<testsuite name="s{number}" tests="2" timestamp="2026-11-{day}T10:00:00">{CASES}</testsuite>'
        )
        (tmp_path / f"{number}.xml").write_text(suite)
    (tmp_path / "3.xml").write_bytes((tmp_path / "1.xml").read_bytes())
    files = sorted(tmp_path.glob("*.xml"))
    found = evidence.read_junit_run(files[:2], 2)
    assert (found.outcome, found.when and found.when.day) == ("pass", 1)
    twice = evidence.read_junit_run(files, 3)
    assert (twice.outcome, twice.counts.passed, twice.faults) == (
        "missing",
        4,
        ("3.xml is the same as 1.xml",),
    )


def test_smoke_tests_are_refused_also_among_others(tmp_path: Path):
    suites = f'<testsuite name="pytest">{CASES}</testsuite><testsuite name="smoke gfx942">{CASES}</testsuite>'
    with pytest.raises(errors.UsageError, match="is a report of the smoke tests"):
        read(tmp_path, f"<testsuites>{suites}</testsuites>")


def test_a_hundred_thousand_tests_need_no_more_memory_than_a_few(tmp_path: Path):
    with (tmp_path / "r.xml").open("w") as file:
        file.write('<testsuite tests="100000" failures="20000">')
        for number in range(100_000):
            bad = f'<failure message="x">{"long " * 20}</failure>' if number % 5 == 0 else ""
            file.write(f'<testcase classname="test.TestNN" name="test_{number}">{bad}</testcase>')
        file.write("</testsuite>")
    tracemalloc.start()
    found = junit.read_junit_report(tmp_path / "r.xml")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.counts == {"passed": 80_000, "failed": 20_000}
    assert (len(found.reasons), found.fault) == (1000, "")
    assert peak < 4_000_000

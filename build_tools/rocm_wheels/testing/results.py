"""Write, read and show what came of a run of tests: ``results.json``, ``junit.xml``, tables for people.

The document is ``models.test_results.Results``. JUnit XML, which CI systems show, is written by us, so that
lost tests are in it.
"""

from __future__ import annotations

import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from rocm_wheels import __version__
from rocm_wheels.core import errors, files, junit, records, shell, tables
from rocm_wheels.models.test_results import VERDICTS, ResultKind, Results, Suite, TestResult, Verdict
from rocm_wheels.models.tested_machine import TestedMachine
from rocm_wheels.testing.journal import LONGEST_TEXT

RESULTS_FILE, JUNIT_FILE = "results.json", "junit.xml"
BAD_VERDICTS: tuple[Verdict, ...] = ("failed", "crashed", "timeout", "missing")
_JUNIT_TAGS: dict[Verdict, junit.JunitTag] = {
    "failed": "failure",
    "crashed": "error",
    "timeout": "error",
    "missing": "error",
    "skipped": "skipped",
    "known": "skipped",
    "left out": "skipped",
    "flaky": "flakyFailure",
}
# what tells two failures by one error apart: addresses and numbers
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
_LINES, _NAMES = 6, 30


def start_results(
    kind: ResultKind,
    *,
    wheels: Mapping[str, str],
    machine: TestedMachine | None = None,
    suite: Suite | None = None,
    subject: str = "",
    selected: str = "",
    remarks: Sequence[str] = (),
) -> Results:
    """Return the results of a run on this machine that has not begun; ``wheels`` by sha256."""
    return Results(
        kind=kind,
        tool=f"rocm-wheels {__version__} tests",
        when=datetime.now(timezone.utc).replace(microsecond=0),
        host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
        wheels=wheels,
        machine=machine,
        tests=(),
        suite=suite,
        subject=subject,
        selected=selected[:LONGEST_TEXT],
        remarks=tuple(remark[:LONGEST_TEXT] for remark in remarks),
    )


def write_results(folder: Path, results: Results) -> None:
    """Write ``results.json`` into a folder, whole or not at all."""
    files.write_atomically(folder / RESULTS_FILE, results.to_json())


def read_results(path: Path) -> Results:
    """Read ``results.json``. Raises DataError for what is none."""
    tip = "name a results.json of `rocm-wheels test smoke` or `test torch`"
    value = records.read_json_file(path, complaint="holds no results", tip=tip)
    try:
        return Results.model_validate(value)
    except ValidationError as cause:
        faults = records.summarize_faults(cause, Results)
        raise errors.DataError(f"{path} holds no results: {faults}", tip=tip) from None


def write_junit(path: Path, results: Results) -> None:
    """Write a suite for each file of tests, whole or not at all. An expected failure is a skipped test."""
    title = junit.SMOKE_SUITE if results.kind == "smoke" else "torch"
    suites: dict[str, list[junit.JunitCase]] = defaultdict(list)
    for test in results.tests:
        file, _, rest = test.name.partition("::")
        group, _, function = rest.rpartition("::")
        module = file.removesuffix(".py").replace("/", ".")
        reason = f"Timeout: {test.detail}" if test.outcome == "timeout" else test.detail
        case = junit.JunitCase(
            classname=".".join(filter(None, [module, group.replace("::", ".")])),
            name=function or test.name,
            seconds=test.seconds or 0.0,
            tag=_JUNIT_TAGS.get(test.verdict, ""),
            kind=test.verdict,
            reason=f"known: {test.known}\n{test.detail}" if test.known else reason,
        )
        suites[" ".join(filter(None, [title, results.gfx, file.removesuffix(".py")]))].append(case)
    junit.write_junit_file(path, suites.items(), when=results.when.isoformat(), host=results.host)


def group_failures(tests: Iterable[TestResult]) -> list[tuple[TestResult, int]]:
    """Return the first test of each error, and how many others have the same; numbers in it may differ."""
    groups: dict[tuple[str, str], list[TestResult]] = defaultdict(list)
    for test in tests:
        groups[test.outcome, _VARYING.sub("#", test.detail) or test.name].append(test)
    return [(first, len(others)) for first, *others in groups.values()]


def describe_others(number: int) -> str:
    """Say how many more tests ended so: ``and 87 more of the same error``."""
    return f"and {number} more of the same error" if number else ""


def format_table(results: Results) -> str:
    """Return the table for a terminal: a row a file of tests, what is wrong, what is to be known."""
    lines = [tables.format_table(_HEADER, _make_rows(results), right=range(1, len(_HEADER)))]
    failures = group_failures(test for test in results.tests if test.verdict in BAD_VERDICTS)
    for test, others in failures[:_NAMES]:
        detail = test.detail.splitlines()[:_LINES] or ["without a word"]
        lines += ["", f"{test.outcome}: {test.name}", *(f"  {line}" for line in detail)]
        lines += [f"  {describe_others(others)}"] if others else []
    if len(failures) > _NAMES:
        more = tables.format_count(len(failures) - _NAMES, "other error")
        lines += ["", f"and {more}: see {RESULTS_FILE}"]

    def add_list(title: str, entries: Sequence[str]) -> None:
        if entries:
            more = [f"and {tables.format_count(len(entries) - _NAMES, 'other')}"] if entries[_NAMES:] else []
            lines.extend(["", f"{title}:", *(f"  {entry}" for entry in (*entries[:_NAMES], *more))])

    by_verdict: dict[Verdict, list[str]] = defaultdict(list)
    for test in results.tests:
        by_verdict[test.verdict].append(f"{test.name}: {test.known or test.detail.partition(chr(10))[0]}")
    add_list("flaky: failed, and passed when tried again", by_verdict["flaky"])
    add_list("known failures, which are none of these wheels", by_verdict["known"])
    add_list("known to hang or crash, and not run", by_verdict["left out"])
    passed = [test.name for test in results.tests if test.known and test.outcome == "passed"]
    add_list("known to fail, and passed: their rows in data/torch_tests.yaml may go", passed)
    skips = [test.detail for test in results.tests if test.verdict == "skipped"]
    counted = Counter(detail.partition("\n")[0] or "without a reason" for detail in skips).most_common()
    add_list("skipped", tables.align_rows([(str(number), why) for why, number in counted], right=[0]))
    add_list("to be known", [*results.remarks, *([f"lost {results.lost_gpu}"] if results.lost_gpu else [])])
    if results.selected:
        lines += ["", f"chosen tests: {results.selected}"]
    return "\n".join([*lines, "", describe_results(results)])


def format_page(results: Results) -> str:
    """Return the table as Markdown, for a GitHub step summary."""
    lines = [f"### {tables.escape_markdown(describe_results(results))}", ""]
    lines.append(tables.format_markdown_table(_HEADER, _make_rows(results)).rstrip())
    failures = group_failures(test for test in results.tests if test.verdict in BAD_VERDICTS)
    for test, others in failures[:_NAMES]:
        detail = "\n".join(test.detail.splitlines()[:_LINES])
        lines += [
            "",
            f"**{test.outcome}** {tables.escape_markdown(test.name)} {describe_others(others)}".rstrip(),
        ]
        lines += ["", tables.fence_markdown(detail).rstrip()] if detail else []
    remarks = [f"lost {results.lost_gpu}"] if results.lost_gpu else []
    lines += [f"\n* {tables.escape_markdown(remark)}" for remark in (*results.remarks, *remarks)]
    return "\n".join(lines) + "\n"


def describe_results(results: Results) -> str:
    """Say in a line what was tested where, and what came of it."""
    where = f"{results.gfx or 'the CPU'}, {results.host}"
    return f"{results.subject or results.kind} on {where}: {results.summarize()}"


def describe_next_command(results: Results, folder: Path) -> str:
    """Return what is to be typed to hand the results in as evidence."""
    if not results.wheels:
        return "the results name no wheel, so they are evidence for none: --wheels says what is installed"
    if not results.counts:
        return "no evidence: no test was run"
    words = ["rocm-wheels", "set", "evidence", "add", "STORE", "--set", "ID", "--from", str(folder)]
    line = f"evidence: {shell.format_command(words)}"
    return f"a gate takes them for no whole run: {results.selected}\n{line}" if results.selected else line


_HEADER = ("tests", *VERDICTS, "seconds")


def _make_rows(results: Results) -> list[tuple[str, ...]]:
    groups: dict[str, list[TestResult]] = defaultdict(list)
    for test in results.tests:
        groups[test.name.partition("::")[0]].append(test)
    rows = []
    for name, tests in groups.items():
        counts = Counter(test.verdict for test in tests)
        seconds = sum(test.seconds or 0.0 for test in tests)
        rows.append((name, *(str(counts[verdict] or "") for verdict in VERDICTS), f"{seconds:.1f}"))
    return rows

"""Results of the tests of an installed torch: the file ``results.json``, JUnit XML, and tables for people.

A planned test that was not run is ``missing``, and that is no pass: a run that was interrupted never
looks like a whole one. Results are written again and again while tests run: they are there whatever ends
the run. JUnit XML, which CI systems show, is written by us, so that lost tests are in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationError, model_validator

from rocm_wheels.core import (
    SMOKE_SUITE,
    DataError,
    JunitCase,
    JunitSuite,
    JunitTag,
    Record,
    align_rows,
    format_markdown_table,
    format_table,
    read_json_file,
    summarize_faults,
    write_json_file,
    write_junit_file,
)

TestOutcome = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]
OUTCOMES: tuple[TestOutcome, ...] = get_args(TestOutcome)
BAD_OUTCOMES: tuple[TestOutcome, ...] = ("failed", "crashed", "timeout", "missing")


class TestResult(Record):
    """One test: ``reason`` says why it failed or was skipped, or what was measured."""

    __test__ = False  # pytest takes classes of this name for tests

    name: str
    outcome: TestOutcome
    seconds: float = Field(ge=0)
    reason: str = ""


class ResultSelection(Record):
    """Which tests were to be run: what pytest was told, and how many tests that left out.

    ``pytest_args`` has the words of PYTEST_ADDOPTS in front; files that were not even read are in no number.
    """

    pytest_args: tuple[str, ...] = ()
    deselected: int = Field(default=0, ge=0)


class Results(Record):
    """``results.json``: the tests of one torch on one machine.

    ``when`` is in UTC (ISO 8601), ``gfx`` the targets of the GPUs that were tested, ``files`` the wheels that
    were installed, with their sha256: results are evidence for those alone.
    """

    schema_: Literal[1] = Field(alias="schema")
    tool: str
    when: str
    host: str
    torch: str
    gfx: tuple[str, ...]
    files: Mapping[str, str]
    selection: ResultSelection = ResultSelection()
    tests: tuple[TestResult, ...]
    counts: Mapping[TestOutcome, int]

    @property
    def bad(self) -> tuple[TestResult, ...]:
        """Those that failed, crashed, were stopped or were not run."""
        return tuple(test for test in self.tests if test.outcome in BAD_OUTCOMES)

    def summarize(self) -> str:
        """Count them: ``164 passed, 7 failed, 37 skipped``."""
        words = {"timeout": "stopped"}
        parts = [
            f"{self.counts[outcome]} {words.get(outcome, outcome)}"
            for outcome in OUTCOMES
            if self.counts.get(outcome)
        ]
        return ", ".join(parts) or "no tests"

    @model_validator(mode="after")
    def _counts_match(self) -> Results:
        stated = {name: number for name, number in self.counts.items() if number}
        if stated != dict(Counter(test.outcome for test in self.tests)):
            raise ValueError("the counts are not those of the tests")
        return self


def count_outcomes(tests: Iterable[TestResult]) -> dict[TestOutcome, int]:
    """Return how many tests came out in which way, every way named."""
    counts = Counter(test.outcome for test in tests)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def write_results(path: Path, results: Results) -> None:
    """Write ``results.json``, whole or not at all."""
    write_json_file(path, results.model_dump(mode="json", by_alias=True))


def read_results(path: Path) -> Results:
    """Read ``results.json``. Raises DataError for what is none, or does not count its own tests."""
    data = read_json_file(path, complaint="holds no results")
    try:
        return Results.model_validate(data)
    except ValidationError as cause:
        raise DataError(f"{path} holds no results: {summarize_faults(cause, Results)}") from None


_GPU_SEPARATOR = " @"
JUNIT_TAGS: Mapping[TestOutcome, JunitTag] = {
    "failed": "failure",
    "crashed": "error",
    "timeout": "error",
    "missing": "error",
    "skipped": "skipped",
}


def write_junit(path: Path, results: Results) -> None:
    """Write a suite for what needed no GPU and one for each GPU, whole or not at all."""
    suites: dict[str, list[JunitCase]] = defaultdict(list)
    for test in results.tests:
        name, _, label = test.name.partition(_GPU_SEPARATOR)
        file, _, function = name.rpartition("::")
        suite = f"{SMOKE_SUITE} {label}".strip()
        case = JunitCase(
            classname=".".join([*suite.split(), file.removesuffix(".py")]).rstrip("."),
            name=function,
            seconds=test.seconds,
            tag=JUNIT_TAGS.get(test.outcome, ""),
            kind=test.outcome,
            reason=test.reason,
        )
        suites[suite].append(case)
    junit_suites = [JunitSuite(name, tuple(cases)) for name, cases in suites.items()]
    write_junit_file(path, junit_suites, when=results.when, host=results.host)


_MAX_REASON_LINES = 6


def format_smoke_table(results: Results) -> str:
    """Return the table for a terminal: a row a file of tests (and GPU), what is wrong, what was skipped."""
    header = ("tests", *OUTCOMES, "seconds")
    lines = [format_table(header, _make_rows(results), right=range(1, len(header)))]
    for test in results.bad:
        reason_lines = test.reason.splitlines()[:_MAX_REASON_LINES] or ["without a word"]
        lines += ["", f"{test.outcome}: {test.name}", *(f"  {line}" for line in reason_lines)]
    if skipped := _count_skips(results):
        rows = align_rows([(str(number), why) for why, number in skipped], right=[0])
        lines += ["", "skipped:", *(f"  {row}" for row in rows)]
    return "\n".join(
        [*lines, "", f"torch {results.torch} on {_describe_machine(results)}: {results.summarize()}"]
    )


def format_smoke_markdown(results: Results) -> str:
    """Return the table for a GitHub step summary."""
    lines = [
        f"### Smoke tests of torch {results.torch} on {_describe_machine(results)}: {results.summarize()}",
        "",
    ]
    lines.append(format_markdown_table(("tests", *OUTCOMES, "seconds"), _make_rows(results)).rstrip())
    for test in results.bad:
        reason = "\n".join(test.reason.splitlines()[:_MAX_REASON_LINES])
        lines += ["", f"**{test.outcome}** `{test.name}`", "", *_fence_text(reason)]
    if skipped := _count_skips(results):
        rows = [(str(number), why) for why, number in skipped]
        lines += ["", format_markdown_table(("skipped", "why"), rows).rstrip()]
    return "\n".join(lines) + "\n"


def _make_rows(results: Results) -> list[tuple[str, ...]]:
    groups: dict[str, list[TestResult]] = defaultdict(list)
    for item in results.tests:
        name, _, label = item.name.partition(_GPU_SEPARATOR)
        groups[name.partition("::")[0] + (f"{_GPU_SEPARATOR}{label}" if label else "")].append(item)
    rows = []
    for name, tests in groups.items():
        counts = Counter(item.outcome for item in tests)
        seconds = sum(item.seconds for item in tests)
        rows.append((name, *(str(counts[item] or "") for item in OUTCOMES), f"{seconds:.1f}"))
    return rows


def _count_skips(results: Results) -> list[tuple[str, int]]:
    reasons = Counter(
        test.reason.splitlines()[0] if test.reason else "without a reason"
        for test in results.tests
        if test.outcome == "skipped"
    )
    return reasons.most_common()


def _describe_machine(results: Results) -> str:
    return f"{' '.join(results.gfx) or 'no GPU'}, {results.host}"


def _fence_text(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence]

"""What came of every test of an installed torch: the file ``results.json``, and how it is counted.

A planned test that was not run is ``missing``, and that is no pass: a run that was interrupted never looks
like a whole one. Results are written again and again while tests run: they are there whatever ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationError, model_validator

from rocm_wheels.errors import DataError
from rocm_wheels.records import Record, read_json_file, summarize_faults
from rocm_wheels.workspace import write_json_file

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

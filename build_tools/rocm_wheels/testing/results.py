"""Results of the tests of an installed torch: the file ``results.json``, JUnit XML, and tables for people.

A planned test that was not run is ``missing``, and that is no pass: a run that was interrupted never
looks like a whole one. Results are written again and again while tests run: they are there whatever ends
the run. JUnit XML, which CI systems show, is written by us, so that lost tests are in it.
Results of torch's own tests say of what, on what, what came of each file, and whether that is all.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from rocm_wheels.core import errors, junit, records, shell, tables
from rocm_wheels.core.files import write_json_file
from rocm_wheels.models import tested_machine, torch_tests

TestOutcome = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing", "flaky"]
# of smoke tests, which are not tried again
OUTCOMES: tuple[TestOutcome, ...] = tuple(name for name in get_args(TestOutcome) if name != "flaky")
BAD_OUTCOMES: tuple[TestOutcome, ...] = ("failed", "crashed", "timeout", "missing")


class TestResult(records.Record):
    """One test: ``reason`` says why it failed or was skipped, ``measurements`` are what it recorded."""

    __test__ = False  # pytest takes classes of this name for tests

    name: str
    outcome: TestOutcome
    seconds: float = Field(ge=0)
    reason: str = ""
    measurements: Mapping[str, float] = {}


class ResultSelection(records.Record):
    """Which tests were to be run: what pytest was told, and how many tests that left out.

    ``pytest_args`` has the words of PYTEST_ADDOPTS in front; files that were not even read are in no number.
    ``from_environment``: variables that options were read from.
    """

    pytest_args: tuple[str, ...] = ()
    deselected: int = Field(default=0, ge=0)
    from_environment: Mapping[str, str] = {}


class Results(records.Record):
    """``results.json``: the tests of one torch on one machine.

    ``when`` is in UTC (ISO 8601), ``gfx`` the targets of the GPUs that were tested, ``files`` the wheels that
    were installed, with their sha256: results are evidence for those alone. ``seconds`` is how long the whole
    run took.
    """

    schema_: Literal[1] = Field(alias="schema")
    tool: str
    when: str
    host: str
    torch: str
    gfx: tuple[str, ...]
    files: Mapping[str, str]
    selection: ResultSelection = ResultSelection()
    machine: tested_machine.TestedMachine | None = None
    seconds: float = Field(default=0, ge=0)
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
    data = records.read_json_file(path, complaint="holds no results")
    try:
        return Results.model_validate(data)
    except ValidationError as cause:
        raise errors.DataError(
            f"{path} holds no results: {records.summarize_faults(cause, Results)}"
        ) from None


_GPU_SEPARATOR = " @"
_SOURCE_SEPARATOR = " @"  # what stands behind it says for which backend run_test.py ran a test
JUNIT_TAGS: Mapping[TestOutcome, junit.JunitTag] = {
    "failed": "failure",
    "crashed": "error",
    "timeout": "error",
    "missing": "error",
    "skipped": "skipped",
    "flaky": "flakyFailure",
}


def write_junit(path: Path, results: Results) -> None:
    """Write a suite for what needed no GPU and one for each GPU, whole or not at all."""
    suites: dict[str, list[junit.JunitCase]] = defaultdict(list)
    for test in results.tests:
        name, _, label = test.name.partition(_GPU_SEPARATOR)
        file, _, function = name.rpartition("::")
        suite = f"{junit.SMOKE_SUITE} {label}".strip()
        case = junit.JunitCase(
            classname=".".join([*suite.split(), file.removesuffix(".py")]).rstrip("."),
            name=function,
            seconds=test.seconds,
            tag=JUNIT_TAGS.get(test.outcome, ""),
            kind=test.outcome,
            reason=test.reason,
        )
        suites[suite].append(case)
    junit_suites = [junit.JunitSuite(name, tuple(cases)) for name, cases in suites.items()]
    junit.write_junit_file(path, junit_suites, when=results.when, host=results.host)


_MAX_REASON_LINES = 6


def format_smoke_table(results: Results) -> str:
    """Return the table for a terminal: a row a file of tests (and GPU), what is wrong, what was skipped."""
    header = ("tests", *OUTCOMES, "seconds")
    lines = [tables.format_table(header, _make_rows(results), right=range(1, len(header)))]
    for test in results.bad:
        reason_lines = test.reason.splitlines()[:_MAX_REASON_LINES] or ["without a word"]
        lines += ["", f"{test.outcome}: {test.name}", *(f"  {line}" for line in reason_lines)]
    if skipped := _count_skips(results):
        rows = tables.align_rows([(str(number), why) for why, number in skipped], right=[0])
        lines += ["", "skipped:", *(f"  {row}" for row in rows)]
    return "\n".join(
        [*lines, "", f"torch {results.torch} on {_describe_machine(results)}: {results.summarize()}"]
    )


def format_smoke_markdown(results: Results) -> str:
    """Return the table for a GitHub step summary."""
    title = f"Smoke tests of torch {results.torch} on {_describe_machine(results)}: {results.summarize()}"
    lines = [f"### {tables.escape_markdown(title)}", ""]
    lines.append(tables.format_markdown_table(("tests", *OUTCOMES, "seconds"), _make_rows(results)).rstrip())
    for test in results.bad:
        reason = "\n".join(test.reason.splitlines()[:_MAX_REASON_LINES])
        lines += [
            "",
            f"**{test.outcome}** {tables.escape_markdown(test.name)}",
            "",
            tables.fence_markdown(reason).rstrip(),
        ]
    if skipped := _count_skips(results):
        rows = [(str(number), why) for why, number in skipped]
        lines += ["", tables.format_markdown_table(("skipped", "why"), rows).rstrip()]
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


BAD_TORCH_OUTCOMES = ("failed", "crashed", "timeout", "missing")


@dataclass(frozen=True)
class OutcomeVerdict:
    """A test, and the ``known_reason`` why it does not pass here ("": none is known)."""

    test: TestResult
    known_reason: str = ""

    @property
    def is_new(self) -> bool:
        """Tell whether it is bad, and nobody knew."""
        return self.test.outcome in BAD_TORCH_OUTCOMES and not (
            self.known_reason and self.test.outcome == "failed"
        )

    @property
    def passes_again(self) -> bool:
        """Tell whether it passes although it is known to fail."""
        return self.test.outcome == "passed" and bool(self.known_reason)


@dataclass(frozen=True)
class FileOutcomes:
    """What is known of a file: ``begun`` is the test that has no end; ``file_end``, how the last process
    ended. ``finished``: pytest itself said that it was through.

    ``planned`` are names that pytest was about to run, over all processes, ``left_out`` those that it was
    told not to, ``unchosen`` how many tests ``-k`` and the like took away. ``devices`` are
    the GPUs that torch used. ``seconds`` is how long its processes took, as far as that is known,
    ``begun_at`` when the test that has no end began (seconds since 1970), ``alone`` what was tried again.
    """

    results: tuple[TestResult, ...] = ()
    planned: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unchosen: int = 0
    begun: str = ""
    file_end: str | None = None
    finished: bool = False
    devices: tuple[str, ...] = ()
    seconds: float = 0.0
    begun_at: float | None = None
    alone: tuple[str, ...] = ()

    @property
    def done(self) -> list[str]:
        """Return the names of tests with an outcome."""
        return [result.name for result in self.results]

    def list_all_results(self, why_missing: str) -> tuple[TestResult, ...]:
        """Return all results, those of tests that were planned and not run included."""
        done_names = set(self.done)
        lost = [name for name in dict.fromkeys(self.planned) if name not in done_names]
        return (*self.results, *(_make_result(name, "missing", why_missing) for name in lost))


def read_outcomes(path: Path) -> FileOutcomes:
    """Read what was written so far; a last line that is not whole was not written.

    Of two outcomes of a test the later counts: a run that was resumed began it anew, or run_test.py tried it
    again; one that passes then is flaky.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    results: dict[str, TestResult] = {}
    planned: dict[str, None] = {}
    left_out: dict[str, None] = {}
    devices: dict[str, None] = {}
    alone: dict[str, None] = {}
    begun, file_end, unchosen, finished, read, seconds = "", None, 0, False, False, 0.0
    begun_at: float | None = None
    for line in text[: text.rfind("\n") + 1].splitlines():
        entry: dict[str, Any] = _parse_line(line)
        if "planned" in entry:
            if begun:  # run_test.py went on after it
                reason = "its process ended in it, and run_test.py began another one"
                results[begun] = _make_result(begun, "crashed", reason)
                begun = ""
            planned.update(dict.fromkeys(entry["planned"]))
            left_out.update(dict.fromkeys(entry["left_out"]))
            unchosen = (
                unchosen if read else entry["unchosen"]
            )  # a later one of run_test.py tries one test again
            read = True
        elif "process" in entry:
            begun, file_end, finished, read = "", None, False, False
        elif "devices" in entry:
            devices.update(dict.fromkeys(entry["devices"]))
        elif "finished" in entry:
            finished = read  # one that was ended before it had read its tests knows of none
        elif "begun" in entry:
            begun, begun_at = entry["begun"], entry.get("at")
        elif "took" in entry:
            seconds += entry["took"]
        elif "over" in entry:
            file_end = entry["over"]
        elif "alone" in entry:
            alone[entry["alone"]] = None
            if entry["passed"] and entry["alone"] in results:
                failed = results[entry["alone"]]
                reason = f"failed, then passed alone: {failed.reason}"
                results[failed.name] = failed.model_copy(update={"outcome": "flaky", "reason": reason})
        elif "name" in entry:
            result, earlier = TestResult.model_validate(entry), results.get(entry["name"])
            if (
                earlier is not None
                and earlier.outcome in {"failed", "crashed"}
                and result.outcome == "passed"
            ):
                reason = f"{earlier.outcome}, then passed in another process: {earlier.reason}"
                result = result.model_copy(update={"outcome": "flaky", "reason": reason})
            results[result.name] = result
            begun = "" if begun == entry["name"] else begun
    seconds = max(
        seconds, sum(result.seconds for result in results.values())
    )  # one that was killed took some
    return FileOutcomes(
        tuple(results.values()),
        tuple(planned),
        tuple(left_out),
        unchosen,
        begun,
        file_end,
        finished,
        tuple(devices),
        seconds,
        begun_at,
        tuple(alone),
    )


def note_outcome(path: Path, name: str, outcome: TestOutcome, reason: str, seconds: float = 0.0) -> None:
    """Write down what came of a test that could not do so itself."""
    _append_line(path, _make_result(name, outcome, reason, seconds).model_dump(mode="json"))


def note_alone(path: Path, name: str, *, passed: bool) -> None:
    """Write down that a test which failed was tried again, alone in a fresh process."""
    _append_line(path, {"alone": name, "passed": passed})


def note_duration(path: Path, seconds: float) -> None:
    """Write down how long a process took: to start, to read its tests, to run them, to end."""
    _append_line(path, {"took": round(seconds, 3)})


def note_process(path: Path) -> None:
    """Write down that a process begins: what one before it was at is no concern of its."""
    _append_line(path, {"process": True})


def note_end(path: Path, how: str) -> None:
    """Write down that there is no more to do with the file, and how it ended ("" is: well)."""
    _append_line(path, {"over": how})


def cut_torn_line(path: Path) -> None:
    """Cut off a last line that is not whole, so that what is appended stands by itself."""
    if path.is_file():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def judge_results(results: Sequence[TestResult], known_here: torch_tests.KnownTests) -> list[OutcomeVerdict]:
    """Return results with what is known of each; a failure that was known until some day says so."""
    verdicts = []
    for result in results:
        name = result.name.partition(_SOURCE_SEPARATOR)[0]
        row = known_here.find_test(name)
        expired = known_here.find_expired(name) if row is None else None
        if expired is not None and result.outcome in BAD_TORCH_OUTCOMES:
            words = f"known until {expired.expires}, and expired ({expired.owner}, {expired.issue})"
            reason = f"{words}: {expired.reason}\n{result.reason}"
            verdicts.append(OutcomeVerdict(result.model_copy(update={"reason": reason})))
            continue
        known_reason = "" if row is None else f"{row.effect}: {row.reason} ({row.owner}, {row.issue})"
        verdicts.append(OutcomeVerdict(result, known_reason))
    return verdicts


def _append_line(path: Path, line: dict[str, Any]) -> None:
    cut_torn_line(path)
    with path.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(line) + "\n")


def _parse_line(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}  # two processes wrote at once as one was ended: what it said is missing, not passed
    return entry if isinstance(entry, dict) else {}


def _make_result(name: str, outcome: TestOutcome, reason: str, seconds: float = 0.0) -> TestResult:
    return TestResult(name=name, outcome=outcome, seconds=round(max(seconds, 0.0), 3), reason=reason)


CountedOutcome = Literal[
    "passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out", "flaky"
]
RESULTS_FILE = "results.json"
_MAX_BAD_TESTS = 200
_NO_RECORD = "is no record of torch's tests"


class TorchUnderTest(records.Record):
    """What is tested: torch, the Python it is in, and the sources of the tests; "" is what nobody says."""

    __test__ = False  # pytest takes classes of this name for tests

    torch: str
    python: str
    commit: str
    sources: str
    doubt: str = ""


class ChosenTests(records.Record):
    """Which tests: the suite, and what people chose of it. ``files`` are named instead of its own.

    ``variables`` of the environment may choose among tests, too; ``changes`` are options that do. ``plan`` is
    the digest of how all files were shared out, "" for one shard: those of two plans do not fit together.
    ``from_environment``: variables that options were read from.
    """

    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = 1
    shards: int = 1
    plan: str = ""
    pytest_args: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    changes: tuple[str, ...] = ()
    from_environment: Mapping[str, str] = {}


class BadTest(records.Record):
    """A test that is not as it should be."""

    name: str
    outcome: str
    reason: str = ""


class FileResult(records.Record):
    """What came of a file. ``complete``: there is no more to run; ``fault``: how it ended, where not well.

    ``seconds`` is how long its processes took, their start and the reading of its tests included. ``report``
    is its JUnit file, beside, with its sha256; none before it is complete. ``devices`` are the targets of the
    GPUs that torch used, as it names them.
    """

    name: str
    complete: bool = False
    fault: str = ""
    seconds: float = Field(default=0, ge=0)
    counts: Mapping[CountedOutcome, int] = {}
    unchosen: int = 0
    devices: tuple[str, ...] = ()
    report: str = ""
    sha256: str = ""
    bad: tuple[BadTest, ...] = ()
    flaky: tuple[BadTest, ...] = ()
    known: tuple[BadTest, ...] = ()
    again: tuple[str, ...] = ()


class TorchResults(records.Record):
    """The whole file. ``inputs`` is the same for runs that may carry each other on.

    ``gfx`` is the target of the GPU, None where there was none; ``files`` are the wheels that were installed,
    by sha256; ``parts`` are all that are planned, ``left_out`` those of the suite that its table leaves out.
    ``lost_gpus`` says which GPUs got lost and where, ``lost`` is the last one where none is left to go on.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    tool: str
    when: str
    host: str
    inputs: str
    of: TorchUnderTest
    gfx: str | None
    files: Mapping[str, str]
    chosen: ChosenTests
    machine: tested_machine.TestedMachine | None = None
    parts: tuple[FileResult, ...]
    left_out: Mapping[str, str] = {}
    lost: str = ""
    lost_gpus: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Tell whether every file was run to its end."""
        return all(part.complete for part in self.parts)

    @property
    def counts(self) -> dict[CountedOutcome, int]:
        """Return how many tests came out in which way, over all files."""
        total = Counter[CountedOutcome]()
        for part in self.parts:
            total.update(part.counts)
        return dict(total)

    @property
    def good(self) -> bool:
        """Tell whether all were run, and none is bad that nobody knew of."""
        return self.complete and not any(part.bad or part.fault for part in self.parts)


def make_file_result(
    name: str,
    verdicts: Sequence[OutcomeVerdict],
    left_out: Iterable[str],
    *,
    complete: bool,
    fault: str,
    unchosen: int,
    seconds: float,
    devices: Sequence[str] = (),
) -> FileResult:
    """Return what came of a file, by its tests; its processes took so many ``seconds``."""
    counts = Counter[CountedOutcome]()
    for verdict in verdicts:
        failed_as_known = verdict.known_reason and verdict.test.outcome == "failed"
        counts["known" if failed_as_known else verdict.test.outcome] += 1
    counts["left_out"] = len(list(left_out))
    return FileResult(
        name=name,
        complete=complete,
        fault=fault,
        seconds=round(seconds, 3),
        counts={key: number for key, number in counts.items() if number},
        unchosen=unchosen,
        devices=tuple(devices),
        bad=_list_bad_tests([verdict for verdict in verdicts if verdict.is_new]),
        flaky=_list_bad_tests([verdict for verdict in verdicts if verdict.test.outcome == "flaky"]),
        known=tuple(
            BadTest(name=verdict.test.name, outcome="failed", reason=verdict.known_reason)
            for verdict in verdicts
            if verdict.known_reason and verdict.test.outcome == "failed"
        ),
        again=tuple(verdict.test.name for verdict in verdicts if verdict.passes_again),
    )


def write_torch_results(folder: Path, results: TorchResults) -> None:
    """Write ``results.json`` into a folder, whole or not at all."""
    values = results.model_dump(mode="json", by_alias=True, exclude_defaults=False)
    write_json_file(folder / RESULTS_FILE, {**values, "complete": results.complete, "counts": results.counts})


def read_torch_results(folder: Path) -> TorchResults | None:
    """Read ``results.json`` of a folder, None where there is none. DataError for what is none of ours."""
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    tip = "name another folder, or start over: --fresh"
    data = records.read_json_file(path, complaint=_NO_RECORD, tip=tip)
    try:
        fields = {key: value for key, value in data.items() if key not in ("complete", "counts")}
        return TorchResults.model_validate(fields)
    except ValidationError as cause:
        raise errors.DataError(
            f"{path} {_NO_RECORD}: {records.summarize_faults(cause, TorchResults)}", tip=tip
        ) from None
    except AttributeError:  # no table
        raise errors.DataError(f"{path} {_NO_RECORD}", tip=tip) from None


def _list_bad_tests(verdicts: Sequence[OutcomeVerdict]) -> tuple[BadTest, ...]:
    return tuple(
        BadTest(name=verdict.test.name, outcome=verdict.test.outcome, reason=verdict.test.reason)
        for verdict in verdicts[:_MAX_BAD_TESTS]
    )


_KNOWN_PREFIX = "known: "


def write_torch_junit(
    path: Path, name: str, verdicts: Sequence[OutcomeVerdict], *, when: str, host: str
) -> None:
    """Write one suite. A failure that is known is a test that was skipped, for a stated reason."""
    suite = junit.JunitSuite(f"torch {name}", tuple(_make_junit_case(verdict) for verdict in verdicts))
    junit.write_junit_file(path, [suite], when=when, host=host)


def _make_junit_case(verdict: OutcomeVerdict) -> junit.JunitCase:
    test = verdict.test
    file, _, rest = test.name.partition("::")
    group, _, function = rest.rpartition("::")
    module = file.removesuffix(".py").replace("/", ".")
    is_known = verdict.known_reason and test.outcome == "failed"
    return junit.JunitCase(
        classname=".".join(filter(None, [module, group.replace("::", ".")])),
        name=function or test.name,
        seconds=test.seconds,
        tag="skipped" if is_known else JUNIT_TAGS.get(test.outcome, ""),
        kind=test.outcome,
        reason=_make_junit_reason(verdict),
    )


def _make_junit_reason(verdict: OutcomeVerdict) -> str:
    if verdict.known_reason and verdict.test.outcome == "failed":
        return f"{_KNOWN_PREFIX}{verdict.known_reason}\n{verdict.test.reason}"
    return f"Timeout: {verdict.test.reason}" if verdict.test.outcome == "timeout" else verdict.test.reason


_OUTCOME_COLUMNS: tuple[CountedOutcome, ...] = (
    "passed",
    "failed",
    "crashed",
    "timeout",
    "missing",
    "flaky",
    "known",
    "skipped",
    "left_out",
)
_COLUMN_WORDS: dict[CountedOutcome, str] = {"left_out": "left out"}
_LINES, _NAMES = 3, 30


def summarize_torch_results(results: TorchResults) -> str:
    """Count all tests: ``30123 passed, 2 failed, 5 known``; known are failures that are no news."""
    parts = [
        f"{results.counts[outcome]} {_COLUMN_WORDS.get(outcome, outcome)}"
        for outcome in _OUTCOME_COLUMNS
        if results.counts.get(outcome)
    ]
    return ", ".join(parts) or "no tests"


def format_torch_table(results: TorchResults) -> str:
    """Return the table for a terminal."""
    head = ("file", *(_COLUMN_WORDS.get(item, item) for item in _OUTCOME_COLUMNS), "seconds")
    rows = [_make_row(part) for part in results.parts]
    lines = [tables.format_table(head, rows, right=range(1, len(head)))]
    for part in results.parts:
        if part.fault:
            lines += ["", f"{part.name} did not end well: {_cut_first_line(part.fault)}"]
        lines += [line for item in part.bad[:_NAMES] for line in ("", *_format_bad_test(item))]
        if len(part.bad) > _NAMES:
            lines += [
                "",
                f"and {tables.format_count(len(part.bad) - _NAMES, 'other')} of {part.name}: see "
                "results.json",
            ]
    lines += _format_list("flaky: failed, and passed when tried again", _list_flaky_tests(results))
    lines += _format_list("known failures, which are none of these wheels", _list_known_failures(results))
    lines += _format_list(
        "known to fail, and passed: their rows in data/torch_tests.yaml may go",
        [name for part in results.parts for name in part.again],
    )
    lines += _format_list(
        "files that the suite leaves out", [f"{item}: {why}" for item, why in results.left_out.items()]
    )
    if unfinished := [part.name for part in results.parts if not part.complete]:
        lines += ["", f"not run to the end: {', '.join(unfinished)}; the same command continues"]
    lines += _format_list("lost GPUs", results.lost_gpus)
    return "\n".join(
        [
            *lines,
            "",
            f"torch {results.of.torch} on {results.gfx or 'the CPU'}: {summarize_torch_results(results)}",
        ]
    )


def format_torch_markdown(results: TorchResults) -> str:
    """Return the table for a GitHub step summary."""
    head = ("file", *(_COLUMN_WORDS.get(item, item) for item in _OUTCOME_COLUMNS), "seconds")
    where = results.gfx or "the CPU"
    lines = [f"### Torch's own tests: {results.of.torch} on {where}: {summarize_torch_results(results)}", ""]
    lines.append(tables.format_markdown_table(head, [_make_row(part) for part in results.parts]).rstrip())
    lines += [f"\n**lost**: {tables.escape_markdown(_cut_first_line(fault))}" for fault in results.lost_gpus]
    bad = [item for part in results.parts for item in (*part.bad, *part.flaky)]
    for item in bad[:_NAMES]:
        reason = tables.escape_markdown(_cut_first_line(item.reason))
        lines.append(f"\n**{item.outcome}** {tables.escape_markdown(item.name)}: {reason}")
    return "\n".join(lines) + "\n"


def describe_next_command(results: TorchResults, folder: Path) -> str:
    """Return what is to be typed to hand the results in as evidence."""
    if not results.files:
        return "the results name no wheel, so they are evidence for none: --wheels says what is installed"
    if not results.counts:
        return "no evidence: no test was run"
    words = ["rocm-wheels", "set", "evidence", "add", "STORE", "--set", "ID", "--from", str(folder)]
    line = f"evidence: {shell.format_command(words)}"
    return f"a gate takes them for no whole run: {results.of.doubt}\n{line}" if results.of.doubt else line


def _make_row(part: FileResult) -> tuple[str, ...]:
    name = part.name if part.complete else f"{part.name} (not done)"
    return (
        name,
        *(str(part.counts.get(outcome) or "") for outcome in _OUTCOME_COLUMNS),
        f"{part.seconds:.1f}",
    )


def _format_bad_test(test: BadTest) -> list[str]:
    return [f"{test.outcome}: {test.name}", *(f"  {line}" for line in test.reason.splitlines()[:_LINES])]


def _list_flaky_tests(results: TorchResults) -> list[str]:
    return [f"{test.name}: {_cut_first_line(test.reason)}" for part in results.parts for test in part.flaky]


def _list_known_failures(results: TorchResults) -> list[str]:
    return [f"{test.name}: {test.reason}" for part in results.parts for test in part.known]


def _format_list(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {tables.format_count(len(names) - _NAMES, 'other')}"] if len(names) > _NAMES else []
    return ["", f"{title}:", *(f"  {name}" for name in names[:_NAMES]), *more]


def _cut_first_line(text: str) -> str:
    return text.partition("\n")[0]

"""Read results and make evidence of them: audit, resolve-check, smoke tests, torch's own tests, JUnit.

What is in a file tells what it is of. What the record of torch's tests says is compared with its reports,
and with the files of its suite. A run that was ended, that is one shard of several, of chosen tests, or of
tests of another torch is written down as what it is: none of them stands for the whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from rocm_wheels.core import junit, log, shell, tables
from rocm_wheels.core.errors import DataError, UsageError
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.records import summarize_faults
from rocm_wheels.models import lock, test_results, tested_machine, torch_tests
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.release import wheel_set
from rocm_wheels.release.evidence.evidence import (
    NO_GPU_WORD,
    Evidence,
    EvidenceOutcome,
    EvidenceSubmission,
    OutcomeCounts,
    TestedSuite,
    list_report_files,
    read_junit_run,
)
from rocm_wheels.wheels import dist_info

ResultModel = TypeVar("ResultModel")
_MOST_NAMES_SHOWN = 3
_AUDIT_TOOL = "rocm-wheels audit"


class _AuditFinding(BaseModel):
    severity: Literal["error", "warning", "info"]
    what: str
    check: str = ""


class _WheelReport(BaseModel):
    wheel: str
    passed: bool
    sha256: lock.Sha256Digest
    device_wheels_sha256: Mapping[str, lock.Sha256Digest] = {}  # of those that were read with it
    recipe: str = ""
    findings: tuple[_AuditFinding, ...] = ()
    ignored: tuple[_AuditFinding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    when: AwareDatetime | None = None
    tool: str = ""


class _AuditedSetReport(BaseModel):
    origin: str
    passed: bool
    wheels: Mapping[str, lock.Sha256Digest]
    findings: tuple[_AuditFinding, ...] = ()
    ignored: tuple[_AuditFinding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    when: AwareDatetime | None = None
    tool: str = ""


class _ResolverCheck(BaseModel):
    requirement: str
    python: str
    tool: str
    fault: str
    picked: str = ""


class _ResolverResult(BaseModel):
    checks: tuple[_ResolverCheck, ...] = Field(min_length=1)
    when: AwareDatetime | None = None
    tool: str = ""


def _make_report_evidence(
    reports: Sequence[_WheelReport], source: Path, submission: EvidenceSubmission
) -> list[Evidence]:
    if not reports:
        raise DataError(f"{source} has no report in it", tip="audit the wheels of the set")
    evidence, passed = [], dict[str, str]()
    checks: Counter[str] = Counter()
    whens = [report.when for report in reports if report.when is not None]
    earliest = min(whens) if len(whens) == len(reports) else None
    make = partial(
        submission.make_evidence,
        "audit",
        source=source,
        tool=next((report.tool for report in reports if report.tool), _AUDIT_TOOL),
        when=earliest,
        digest=hash_file(source) if earliest else "",
    )
    for report in reports:
        wheels = {report.wheel: report.sha256, **report.device_wheels_sha256}
        hashes = submission.require_set_hashes(wheels, source)
        named = (*report.findings, *report.ignored)  # what is let pass is not let pass here
        errors = [f"{f.check}: {f.what}" for f in named if f.severity == "error"]
        if report.passed and not errors and report.ran:
            passed.update(wheels)
            checks.update(passed=len(report.ran), skipped=len(report.skipped))
            continue
        problems = errors or ["no check ran"]
        counts = OutcomeCounts(
            passed=max(len(report.ran) - len(problems), 0), failed=len(problems), skipped=len(report.skipped)
        )
        evidence.append(make(counts, hashes, detail=f"{report.wheel}: {problems[0]}"))
    if passed:
        evidence.append(
            make(OutcomeCounts(**checks), passed.values(), detail=tables.format_count(len(passed), "wheel"))
        )
    return evidence


def make_audit_evidence(
    value: dict[str, Any], source: Path, submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what ``audit --json`` found: one of all wheels that passed, one of each that did not.

    UsageError for a wheel that was held to no recipe. What the checks of a set found counts for every wheel
    of it. Wheels of the audited set that are not of the staged one (ROCm packages) are left out; device
    wheels need no recipe beside their host.
    """
    origin = {key: value[key] for key in ("tool", "when") if key in value}
    raw_reports = [{**report, **origin} if isinstance(report, dict) else report for report in value["wheels"]]
    reports = list(parse_result(tuple[_WheelReport, ...], raw_reports, source))
    of_set: _AuditedSetReport | None = None
    if (raw_set := value.get("set")) is not None:
        dated_set = {**raw_set, **origin} if isinstance(raw_set, dict) else raw_set
        of_set = parse_result(_AuditedSetReport, dated_set, source)
        reports = _leave_out_others(reports, of_set, source, submission)
    parts = {sha256 for report in reports if report.recipe for sha256 in report.device_wheels_sha256.values()}
    for report in reports:
        if not report.recipe and report.sha256 not in parts:
            raise UsageError(
                f"{source}: {report.wheel} was audited without its recipe, which says what it must be",
                tip="hold each to its recipe: rocm-wheels audit --by-recipe --json",
            )
    if of_set is not None:
        reports = _add_set_findings(reports, of_set, submission)
    return _make_report_evidence(reports, source, submission)


def _leave_out_others(
    reports: Sequence[_WheelReport],
    of_set: _AuditedSetReport,
    source: Path,
    submission: EvidenceSubmission,
) -> list[_WheelReport]:
    """Return the reports of wheels of the staged set; others of the audited one (ROCm's) are named."""
    names = {file.name for file in submission.document.files}
    hashes = submission.document.hashes
    others = {
        report.wheel
        for report in reports
        if report.sha256 not in hashes and report.wheel not in names and report.wheel in of_set.wheels
    }
    if others:
        log.log_note(f"{source}: also there, and not of this set: {', '.join(sorted(others))}")
    return [report for report in reports if report.wheel not in others]


def _add_set_findings(
    reports: Sequence[_WheelReport], of_set: _AuditedSetReport, submission: EvidenceSubmission
) -> list[_WheelReport]:
    """Return the reports with the checks of the set in each; where it failed, of all its wheels."""
    findings = [
        finding.model_copy(update={"check": f"set: {finding.check}"})
        for finding in (*of_set.findings, *of_set.ignored)
    ]
    if not of_set.passed and not any(finding.severity == "error" for finding in findings):
        findings.append(_AuditFinding(severity="error", what="it failed", check="set"))
    failed = any(finding.severity == "error" for finding in findings)
    changed = []
    for report in reports:
        if of_set.wheels.get(report.wheel) == report.sha256:
            changes = {
                "findings": (*report.findings, *findings),
                "passed": report.passed and not failed,
                "ran": (*report.ran, *(f"set: {name}" for name in of_set.ran)),
                "skipped": {**report.skipped, **{f"set: {n}": why for n, why in of_set.skipped.items()}},
            }
            report = report.model_copy(update=changes)  # noqa: PLW2901 - the same report, with more in it
        changed.append(report)
    reported = {report.sha256 for report in reports}
    for name, sha256 in of_set.wheels.items():
        if failed and sha256 in submission.document.hashes - reported:
            alone = _WheelReport(
                wheel=name,
                passed=False,
                sha256=sha256,
                findings=tuple(findings),
                ran=of_set.ran,
                skipped=of_set.skipped,
                when=of_set.when,
                tool=of_set.tool,
            )
            changed.append(alone)
    return changed


def make_resolver_evidence(value: object, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what ``resolve-check --json`` found, of those of the given wheels that it speaks of.

    It speaks of those that a check picked; when a check failed, of all whose projects were asked for.
    """
    result = parse_result(_ResolverResult, value, source)
    checks, failed = result.checks, any(check.fault for check in result.checks)
    requested = {
        (parse_project(check.requirement, str(source)), check.python, "" if failed else check.picked)
        for check in checks
    }
    submission.require_given_hashes(source, "of `resolve-check`")
    about = {name: sha for name, sha in submission.wheels.items() if covers_wheel(requested, name)}
    if uncovered := sorted(set(submission.wheels) - set(about)):
        log.log_note(
            f"{source} says nothing of "
            f"{', '.join(uncovered[:_MOST_NAMES_SHOWN])}"
            f"{' and others' * (len(uncovered) > _MOST_NAMES_SHOWN)}"
        )
    if not about:
        raise UsageError(
            f"{source} speaks of none of the wheels that were given: what was picked are others",
            tip="check the wheels of the set: rocm-wheels index resolve-check INDEX WHEELS --json",
        )
    bad = [
        f"{check.requirement}, Python {check.python}, {check.tool}: {(check.fault.splitlines() or [''])[0]}"
        for check in checks
        if check.fault
    ]
    counts = OutcomeCounts(passed=len(checks) - len(bad), failed=len(bad))
    return [
        submission.make_evidence(
            "resolver",
            counts,
            submission.require_set_hashes(about, source),
            source=source,
            tool=result.tool or "rocm-wheels index resolve-check",
            when=result.when,
            digest=hash_file(source) if result.when else "",
            detail=tables.format_count(len(about), "wheel"),
            failed=bad,
        )
    ]


def covers_wheel(requested: set[tuple[str, str, str]], name: str) -> bool:
    """Tell whether questions (project, Python, version that was picked or "") are about a wheel."""
    project, pythons, version = (
        project_of_wheel(name),
        wheel_set.list_wheel_pythons(name),
        dist_info.parse_wheel_name(name).version,
    )
    return any(
        project == requested_project
        and (not pythons or python in pythons)
        and (not picked or _is_version(version, picked))
        for requested_project, python, picked in requested
    )


def _is_version(version: Version, picked: str) -> bool:
    try:
        return Version(picked) == version
    except InvalidVersion:
        return False


def project_of_wheel(name: str) -> str:
    """Return the project (normalized) of a wheel by its file name."""
    return canonicalize_name(dist_info.split_wheel_name(name).distribution)


def find_tested_hashes(
    files: Mapping[str, str], source: Path, submission: EvidenceSubmission, *, tip: str
) -> list[str]:
    """Return the digests of the set's wheels that were tested, of ``files`` (sha256 by name) that were there.

    Others are named. Raises DataError with ``tip`` where none is of the set.
    """
    projects = {file.project for file in submission.document.files}
    tested = {name: sha for name, sha in files.items() if project_of_wheel(name) in projects}
    if other_files := sorted(set(files) - set(tested)):
        log.log_note(f"{source}: also there, and not of this set: {', '.join(other_files)}")
    if not tested:
        raise DataError(f"{source} names no wheel of {submission.document.id}", tip=tip)
    return submission.require_set_hashes(tested, source)


def parse_project(requirement: str, source: str = "the question") -> str:
    """Return the project (normalized) of a requirement. DataError for what is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        raise DataError(f"{source}: {requirement!r} is no requirement") from None


def parse_result(model: type[ResultModel], value: object, source: Path) -> ResultModel:
    """Read JSON into a model. Raises DataError with the places of mistakes."""
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as wrong:
        tip = "it is not whole, or of another version"
        raise DataError(f"{source}: {summarize_faults(wrong, model)}", tip=tip) from None


_LONGEST_TOOL_SHOWN = 60
_GPU_TEST_NAME = re.compile(r"[\[-]gpu[\]-]| @gfx")  # in the name of a smoke test that ran on one
# what changes how results are shown, and not which tests are run; a test that -x kept from running is missing
# (without the plugin unittest none of its tests would be found)
_HARMLESS_ARGUMENT = re.compile(
    r"--|-p|no:(?:cacheprovider|faulthandler|logging|randomly|random_order|sugar|terminal|timeout|warnings|xdist)"
    r"|-[vqsxl]+|-r[A-Za-z]+|--exitfirst|--verbose|--quiet|--showlocals|--full-trace|--no-header|--no-summary"
    r"|--(?:tb|color|durations|durations-min|capture|junitxml|junit-xml|show-capture|maxfail)=\S*"
)


class _SmokeTest(BaseModel):
    name: str
    outcome: Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]


class _SmokeSelection(BaseModel):
    pytest_args: tuple[str, ...] = ()
    deselected: int = 0


class _SmokeResult(BaseModel):
    schema_version: Literal[1] = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    gfx: tuple[str, ...]
    files: Mapping[str, lock.Sha256Digest]
    tests: tuple[_SmokeTest, ...]
    counts: Mapping[str, int]
    selection: _SmokeSelection | None = None
    machine: tested_machine.TestedMachine | None = None


def make_smoke_evidence(value: object, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what the smoke tests found, on the GPUs of one target or on none."""
    result = parse_result(_SmokeResult, value, source)
    actual_counts = Counter[str](test.outcome for test in result.tests)
    if (stated_counts := Counter({k: n for k, n in result.counts.items() if n})) != actual_counts:
        raise DataError(
            f"{source} counts {_format_counts(stated_counts)}, and lists {_format_counts(actual_counts)}",
            tip="it is not whole: run again",
        )
    counts = OutcomeCounts(**actual_counts)
    _refuse_other_tools(result, counts, source)
    tip = "run the smoke tests where the wheels of the set are installed, from its own index"
    hashes = find_tested_hashes(result.files, source, submission, tip=tip)
    bad = [test.name for test in result.tests if test.outcome not in {"passed", "skipped"}]
    return [
        submission.make_evidence(
            "smoke",
            counts,
            hashes,
            source=source,
            tool=result.tool,
            when=result.when,
            host=result.host,
            gfx=_find_smoke_target(result.gfx, counts, source, submission),
            failed=bad,
            selected=_describe_smoke_selection(result),
            digest=hash_file(source),
            machine=result.machine,
        )
    ]


def _refuse_other_tools(result: _SmokeResult, counts: OutcomeCounts, source: Path) -> None:
    """Raise DataError for results that are not of our smoke tests, or name a GPU that no test passed on."""
    if not (result.tool.startswith("rocm-wheels ") and " smoke tests" in result.tool):
        raise DataError(
            f"{source} is of another tool ({result.tool[:_LONGEST_TOOL_SHOWN]})",
            tip="run build_tools/run_pytorch_smoke_tests.py; of other tests, hand in the JUnit files",
        )
    on_gpu = any(_GPU_TEST_NAME.search(test.name) and test.outcome == "passed" for test in result.tests)
    if result.gfx and counts.decide_outcome() == "pass" and not on_gpu:
        raise DataError(f"{source} names {', '.join(result.gfx)}, and no test passed on a GPU")


def find_selecting_words(words: Iterable[str]) -> list[str]:
    """Return the words that may choose among tests, of those that pytest was given."""
    return [word for word in words if not _HARMLESS_ARGUMENT.fullmatch(word)]


def _describe_smoke_selection(result: _SmokeResult) -> str:
    """Return how tests were chosen; "" where all were run, or those left out failed to run.

    Of the words that pytest was given those are known that choose nothing; any other may.
    """
    if result.selection is None:  # of a version that put the words behind its name
        return result.tool.partition(" smoke tests")[2].strip(" ()")
    words = find_selecting_words(result.selection.pytest_args)
    left_out = f"{result.selection.deselected} left out" if result.selection.deselected else ""
    return ", ".join(filter(None, [shell.format_command(words) if words else "", left_out]))


def _find_smoke_target(
    target_names: tuple[str, ...], counts: OutcomeCounts, source: Path, submission: EvidenceSubmission
) -> str | None:
    """Return the target that a result is of; what people say must agree, or explain a failure."""
    targets = sorted({strip_features(target_name) for target_name in target_names})
    if len(targets) > 1:
        raise UsageError(
            f"{source} is of {' and '.join(targets)} together: one may have skipped what another passed",
            tip=f"add those that are beside it: results-{targets[0]}.json and the others",
        )
    target = targets[0] if targets else None
    if submission.gfx in {None, target} or (submission.gfx == NO_GPU_WORD and target is None):
        return target
    if target is not None or counts.decide_outcome() == "pass":
        raise UsageError(
            f"{source} {f'ran on {target}' if target else 'saw no GPU'}, not on {submission.gfx}"
        )
    return submission.gfx  # it died before it had seen the GPU


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"


TORCH_RECORD_FILE = "results.json"
_MOST_FILES_SHOWN = 3
_TorchCount = Literal[
    "passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out", "flaky"
]
_FAILED_COUNTS: tuple[_TorchCount, ...] = ("failed", "crashed", "timeout", "missing")
_TORCH_WHEELS_TIP = "run torch's tests where the wheels of the set are installed, and name them: --wheels DIR"
_NonNegative = Annotated[int, Field(ge=0)]


class _TorchFailure(BaseModel):
    name: str


class _TorchPart(BaseModel):
    name: str
    complete: bool
    fault: str = ""
    counts: Mapping[_TorchCount, _NonNegative] = {}
    unchosen: int = 0
    devices: tuple[str, ...] = ()
    report: str = ""
    sha256: str = ""
    bad: tuple[_TorchFailure, ...] = ()
    flaky: tuple[_TorchFailure, ...] = ()


class _TorchSelection(BaseModel):
    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = Field(ge=1)
    shards: int = Field(ge=1, le=test_results.MOST_SHARDS)
    plan: str = ""
    pytest_args: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    changes: tuple[str, ...] = ()


class _TorchBuild(BaseModel):
    torch: str
    python: str
    commit: str = ""
    doubt: str = ""


class _TorchRun(BaseModel):
    schema_version: int = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    of: _TorchBuild
    gfx: str | None
    files: Mapping[str, lock.Sha256Digest]
    chosen: _TorchSelection
    machine: tested_machine.TestedMachine | None = None
    parts: tuple[_TorchPart, ...] = Field(min_length=1)
    counts: Mapping[str, int]
    lost: str = ""
    lost_gpus: tuple[str, ...] = ()


def is_torch_record(value: Any) -> bool:
    """Tell whether JSON is a record of torch's own tests."""
    return isinstance(value, dict) and "parts" in value and "chosen" in value


def list_torch_records(folder: Path) -> list[Path]:
    """Return the records in a folder: its own, or those of folders in it (a GPU), or in these (a shard)."""
    record = folder / TORCH_RECORD_FILE
    if record.is_file():
        return [record]
    return sorted([*folder.glob(f"*/{TORCH_RECORD_FILE}"), *folder.glob(f"*/*/{TORCH_RECORD_FILE}")])


def make_torch_evidence(
    records: Sequence[tuple[Path, Any]], submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what torch's tests found: all shards of one run are one result, each GPU target another.

    Where some shards are not among the records, each is a result of its own: the gate puts them together.
    Raises DataError for records that their reports contradict, or that are of no wheel of the set.
    """
    groups: dict[tuple[object, ...], list[tuple[Path, _TorchRun]]] = {}
    shards = Counter[object]()
    for path, value in records:
        run = parse_result(_TorchRun, value, path)
        reports = [part.report for part in run.parts if part.complete]
        if len(reports) != len(set(reports)):
            tip = "run again, and do not change it"
            raise DataError(f"{path} names a report for two files of tests", tip=tip)
        chosen = run.chosen.model_dump(exclude={"shard"})
        key = (run.gfx, run.of.torch, run.of.python, run.of.commit, repr(chosen), *sorted(run.files.items()))
        repetition = shards[key, run.chosen.shard]  # another GPU of the same kind: a run of its own
        shards[key, run.chosen.shard] += 1
        groups.setdefault((repetition, *key), []).append((path, run))
    entries = []
    for runs in groups.values():
        is_whole = len(runs) == runs[0][1].chosen.shards
        entries += [
            _join_runs(joined, submission) for joined in ([runs] if is_whole else [[run] for run in runs])
        ]
    return entries


def _join_runs(runs: Sequence[tuple[Path, _TorchRun]], submission: EvidenceSubmission) -> Evidence:
    """Return a result of all shards of a run, or of one that stands alone."""
    path, first = runs[0]
    counts, parts = Counter[str](), [(file, part) for file, run in runs for part in run.parts]
    for file, part in parts:
        _require_matching_report(file, part)
        counts.update(part.counts)
    known_failures, faults = counts.pop("known", 0), list(_list_part_faults(parts))
    suite = TestedSuite(name=first.chosen.suite)
    if len(runs) < first.chosen.shards:
        chosen = first.chosen
        suite = TestedSuite(name=chosen.suite, shard=chosen.shard, shards=chosen.shards, plan=chosen.plan)
    faults += _list_untested([run for _, run in runs], whole=suite.shards == 1)
    left_out = counts.pop("left_out", 0)
    total_counts = OutcomeCounts(**{**counts, "skipped": counts["skipped"] + known_failures})
    lost_gpus = [fault.partition("\n")[0] for _, run in runs for fault in run.lost_gpus]
    detail = [
        f"suite {suite}",
        *(f"lost {fault}" for fault in lost_gpus),
        f"tests of {first.of.commit[:12]}" if first.of.commit else "",
        *faults,
    ]
    detail += [
        f"{tables.format_count(known_failures, 'failure')} known" if known_failures else "",
        f"{left_out} known to hang or crash" if left_out else "",
    ]
    return submission.make_evidence(
        "tests",
        total_counts,
        find_tested_hashes(first.files, path, submission, tip=_TORCH_WHEELS_TIP),
        source=path,
        tool=first.tool,
        when=min(run.when for _, run in runs),
        host=first.host,
        gfx=_find_torch_target(path, first, submission),
        outcome="lost" if any(run.lost for _, run in runs) else _decide_outcome(total_counts, faults),
        detail="; ".join(filter(None, detail)),
        failed=list(_list_failed_tests(run for _, run in runs)),
        flaky=[test.name for _, part in parts for test in part.flaky],
        selected=_describe_torch_selection([run for _, run in runs]),
        digest=_digest_record_files(file for file, _ in runs),
        machine=first.machine,
        suite=suite,
    )


def _list_failed_tests(runs: Iterable[_TorchRun]) -> Iterable[str]:
    """Yield the names of tests that failed; none of a file that a lost GPU did not let come to its end."""
    for run in runs:
        for part in run.parts:
            if part.complete or not run.lost:
                yield from (bad.name for bad in part.bad)


def _require_matching_report(record: Path, part: _TorchPart) -> None:
    """Raise DataError where a report is not there, was changed, or counts other tests than the record."""
    if not part.complete:
        return
    file = record.parent / part.report
    if not part.report or not file.is_file() or not file.resolve().is_relative_to(record.parent.resolve()):
        raise DataError(f"{record}: the report of {part.name} is not there", tip="hand in the whole folder")
    report: junit.JunitReport = junit.read_junit_report(file)
    bad = sum(part.counts.get(count_name, 0) for count_name in _FAILED_COUNTS)
    skipped = part.counts.get("skipped", 0) + part.counts.get("known", 0)
    recorded_counts = (part.counts.get("passed", 0), bad, skipped, part.counts.get("flaky", 0))
    report_bad = report.failed + report.crashed + report.timeout
    report_counts = (report.passed, report_bad, report.skipped, report.flaky)
    # a report without tests is one that is not whole, elsewhere
    if (
        report.digest != part.sha256
        or recorded_counts != report_counts
        or (report.fault and any(report_counts))
    ):
        why = report.fault or (
            f"{report_counts[0]} passed and {report_counts[1]} did not, and {record.name} says "
            f"{recorded_counts[0]} and {recorded_counts[1]}"
        )
        raise DataError(f"{file} is not what {record} speaks of: {why}", tip="run again, and change neither")


def _list_part_faults(parts: Iterable[tuple[Path, _TorchPart]]) -> Iterable[str]:
    waiting = [part.name for _, part in parts if not part.complete]
    if waiting:
        yield (
            f"{tables.format_count(len(waiting), 'file')} did not finish: "
            f"{', '.join(waiting[:_MOST_FILES_SHOWN])}"
        )
    yield from (f"{part.name}: {part.fault.partition(chr(10))[0]}" for _, part in parts if part.fault)


def _list_untested(runs: Sequence[_TorchRun], *, whole: bool) -> Iterable[str]:
    """Say what runs lack: the GPU that they are of, and all shards together files of the suite, or shares."""
    first = runs[0]
    parts = [part for run in runs for part in run.parts]
    shares: dict[str, set[int]] = defaultdict(set)
    totals: dict[str, int] = {}
    for name in (name for name, times in Counter(part.name for part in parts).items() if times > 1):
        yield f"{name} is there twice"
    for part in parts:
        file, number, total = torch_tests.split_test_share(part.name)
        shares[file].add(number)
        totals[file] = max(totals.get(file, 1), total)
    for file, numbers in shares.items() if whole else ():
        if missing_shares := sorted({*range(1, totals[file] + 1)} - numbers):
            yield f"{file} {missing_shares[0]}/{totals[file]} is not there"
    suite = torch_tests.load_torch_tests().suites.get(first.chosen.suite)
    passed = {torch_tests.split_test_share(part.name)[0] for part in parts if part.counts.get("passed")}
    for file in (
        suite.named_files
        if whole and suite is not None and not (first.chosen.files or first.chosen.exclude)
        else ()
    ):
        if file not in passed:
            yield f"{file}: none of its tests passed" if file in shares else f"{file} was not run"
    if first.gfx is not None:
        used = {strip_features(device) for part in parts for device in part.devices}
        may_be_none = suite is None or suite.gpus == "every"  # distributed tests have other processes use it
        if used != {strip_features(first.gfx)} and (used or not may_be_none):
            yield f"the tests used {', '.join(sorted(used)) or 'no GPU'}, not the {first.gfx}"


def _decide_outcome(counts: OutcomeCounts, faults: Sequence[str]) -> EvidenceOutcome:
    outcome = counts.decide_outcome()
    return "missing" if faults and outcome == "pass" else outcome


def _describe_torch_selection(runs: Sequence[_TorchRun]) -> str:
    """Return how tests were chosen; "" for a whole suite of the tests that are torch's own."""
    chosen = runs[0].chosen
    words = find_selecting_words(chosen.pytest_args)
    selections = [] if chosen.suite in torch_tests.SUITE_NAMES else [f"only the suite {chosen.suite}"]
    selections += [shell.format_command(words) if words else "", *chosen.changes]
    selections += [f"{name}={value}" for name, value in sorted(chosen.variables.items())]
    selections += [f"only {', '.join(chosen.files)}" if chosen.files else ""]
    selections += [f"without {', '.join(chosen.exclude)}" if chosen.exclude else ""]
    unchosen = sum(part.unchosen for run in runs for part in run.parts)
    selections += [
        f"{tables.format_count(unchosen, 'test')} left out" if unchosen else "",
        *(run.of.doubt for run in runs),
    ]
    return "; ".join(dict.fromkeys(filter(None, selections)))


def _find_torch_target(path: Path, run: _TorchRun, submission: EvidenceSubmission) -> str | None:
    target = None if run.gfx is None else strip_features(run.gfx)
    if submission.gfx in {None, target} or (submission.gfx == NO_GPU_WORD and target is None):
        return target
    raise UsageError(f"{path} {f'ran on {target}' if target else 'saw no GPU'}, not on {submission.gfx}")


def _digest_record_files(files: Iterable[Path]) -> str:
    digests = sorted(hash_file(file) for file in files)
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def make_results_evidence(
    results: test_results.Results, source: Path, submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what a document of results says: one evidence of all wheels that nothing bad is said of.

    And one of each that something is said of, with the tests that are about it.
    """
    tip = "test the wheels of the set"
    tested = find_tested_hashes(results.wheels, source, submission, tip=tip)
    names = [name for name, sha256 in results.wheels.items() if sha256 in tested]
    about = {
        name: [test for test in results.tests if not test.wheels or name in test.wheels] for name in names
    }
    bad = [name for name in names if any(test.is_bad for test in about[name])]
    together = not any(test.wheels for test in results.tests)
    good = [name for name in names if name not in bad and about[name]]  # of others nothing is known
    groups = [names] if together else [good, *([name] for name in bad)]
    return [_make_group_evidence(results, group, source, submission) for group in groups if group]


def _make_group_evidence(
    results: test_results.Results, names: Sequence[str], source: Path, submission: EvidenceSubmission
) -> Evidence:
    """Return the evidence of wheels by all tests that are about any of them."""
    tests = [test for test in results.tests if not test.wheels or set(names) & set(test.wheels)]
    counts = Counter[str]("skipped" if test.known else test.outcome for test in tests)
    flaky = [test.name for test in tests if test.outcome == "passed" and test.tries > 1]
    bad = [f"{test.name}: {test.detail}" if test.detail else test.name for test in tests if test.is_bad]
    suite = results.suite
    known = sum(bool(test.known) for test in tests)
    detail = [
        f"lost {results.lost_gpu}" if results.lost_gpu else "",
        f"{tables.format_count(known, 'failure')} known" if known else "",
        tables.format_count(len(names), "wheel") if results.kind in {"audit", "resolver"} else "",
    ]
    return submission.make_evidence(
        results.kind,
        OutcomeCounts(**counts, flaky=len(flaky)),
        [results.wheels[name] for name in names],
        source=source,
        tool=results.tool,
        when=results.when,
        host=results.host,
        gfx=results.gfx,
        outcome="lost" if results.lost_gpu else None,
        detail="; ".join(filter(None, detail)),
        failed=bad,
        flaky=flaky,
        selected=results.selected,
        digest=hash_file(source),
        machine=results.machine,
        suite=TestedSuite(**suite.model_dump()) if suite is not None else None,
        speeds=results.speeds,
    )


def read_results(paths: Sequence[Path], submission: EvidenceSubmission) -> list[Evidence]:
    """Return the evidence in files: each JSON file by itself, all JUnit files (and folders) as one run.

    A folder that ``torch-tests`` wrote is the records in it.

    Raises UsageError, DataError or ReleaseError for a file that is not there, is nothing that we know, is
    not whole (JUnit reports that are not whole make a failure), or speaks of other wheels.
    """
    if absent := [path for path in paths if not path.exists()]:
        raise UsageError(
            f"there is no {absent[0]}", tip="no results are no evidence; look why none were written"
        )
    paths = [file for path in paths for file in (list_torch_records(path) if path.is_dir() else []) or [path]]
    reports = [path for path in paths if path.is_dir() or path.suffix.lower() == ".xml"]
    read = [(path, _load_json(path)) for path in paths if path not in reports]
    evidence = [
        item
        for path, value in read
        if not is_torch_record(value)
        for item in _make_json_evidence(path, value, submission)
    ]
    if records := [(path, value) for path, value in read if is_torch_record(value)]:
        evidence += make_torch_evidence(records, submission)
    if reports:
        evidence.append(_make_junit_evidence(reports, submission))
    elif submission.suite:
        raise UsageError("--suite is that of JUnit files (*.xml), and there is none among the results")
    elif submission.reports is not None:
        raise UsageError("--reports counts JUnit files (*.xml), and there is none among the results")
    if not evidence:
        raise UsageError("no results were named", tip="name a file: --from results.json")
    return evidence


def hash_wheels(paths: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of wheels by name, those in folders included. UsageError for a path without any."""
    sha256_by_name: dict[str, str] = {}
    for path in paths:
        files = sorted(path.glob("*.whl")) if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise UsageError(f"there is no wheel {path}" if not path.is_dir() else f"no wheels are in {path}")
        for file in files:
            sha256 = hash_file(file)
            if sha256_by_name.setdefault(file.name, sha256) != sha256:
                raise UsageError(f"two files are called {file.name}, with different bytes")
    return sha256_by_name


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as broken:  # also what is no UTF-8, or nested without end
        tip = "an empty or truncated result is none: look why it is, and run again"
        raise DataError(f"{path} is truncated or no JSON ({broken})", tip=tip) from None


def _make_json_evidence(path: Path, value: Any, submission: EvidenceSubmission) -> list[Evidence]:
    if isinstance(value, dict) and value.get("kind") in test_results.RESULT_KINDS:
        results = parse_result(test_results.Results, value, path)
        return make_results_evidence(results, path, submission)
    if isinstance(value, dict) and isinstance(value.get("wheels"), list) and "tool" in value:
        return make_audit_evidence(value, path, submission)
    if isinstance(value, dict) and "checks" in value:
        return make_resolver_evidence(value, path, submission)
    if isinstance(value, dict) and "tests" in value:
        return make_smoke_evidence(value, path, submission)
    raise DataError(
        f"{path} holds no known results",
        tip="known are audit and resolve-check --json, smoke-tests and torch-tests, and JUnit XML",
    )


def _make_junit_evidence(paths: Sequence[Path], submission: EvidenceSubmission) -> Evidence:
    source = paths[0]
    if submission.gfx is None:
        raise UsageError(
            "JUnit reports do not say which GPU the tests ran on",
            tip=f"say it: --gfx gfx942, or --gfx {NO_GPU_WORD}",
        )
    hashes = submission.require_given_hashes(source, "a JUnit report")
    several = {python for name in submission.wheels for python in wheel_set.list_wheel_pythons(name)}
    if len(several) > 1:
        raise UsageError(
            f"tests run with one Python, and the wheels are for {', '.join(sorted(several))}",
            tip="name the wheels that were installed: --wheels FILE",
        )
    run = read_junit_run(list_report_files(paths, submission.reports), submission.reports)
    return submission.make_evidence(
        "tests",
        run.counts,
        hashes,
        source=source,
        tool="JUnit",
        when=run.when,
        host=", ".join(run.hosts),
        gfx=None if submission.gfx == NO_GPU_WORD else submission.gfx,
        outcome=run.outcome,
        detail="; ".join(run.faults),
        failed=run.failed,
        digest=_join_digests(run.digests) if run.when else "",
        suite=TestedSuite(name=submission.suite) if submission.suite else None,
    )


def _join_digests(files: Sequence[str]) -> str:
    """Return the sha256 of one file, or of several together."""
    return files[0] if len(files) == 1 else hashlib.sha256("\n".join(files).encode()).hexdigest()

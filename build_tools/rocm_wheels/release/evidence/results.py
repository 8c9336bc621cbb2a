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
    EvidenceSubmission,
    OutcomeCounts,
    TestedSuite,
    list_report_files,
    read_junit_run,
)
from rocm_wheels.wheels import dist_info

ResultModel = TypeVar("ResultModel")
_Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Shard = Annotated[int, Field(ge=1, le=test_results.MOST_SHARDS)]
_MOST_NAMES_SHOWN = 3
TORCH_RECORD_FILE = "results.json"
RUN_AGAIN_TIP = "it is not whole: run again"


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
    evidence, records = list[Evidence](), list[tuple[Path, _TorchRun]]()
    for path in paths:
        if path in reports:
            continue
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as broken:  # also what is no UTF-8, or nested without end
            tip = "an empty or truncated result is none: look why it is, and run again"
            raise DataError(f"{path} is truncated or no JSON ({broken})", tip=tip) from None
        keys = value if isinstance(value, dict) else {}
        if "parts" in keys and "chosen" in keys:
            records.append((path, parse_result(_TorchRun, value, path)))
        elif keys.get("kind") in test_results.RESULT_KINDS:
            results = parse_result(test_results.Results, value, path)
            evidence += make_results_evidence(results, path, submission)
        elif isinstance(keys.get("wheels"), list) and "tool" in keys:
            evidence += make_audit_evidence(parse_result(_AuditResult, value, path), path, submission)
        elif "checks" in keys:
            resolved = parse_result(_ResolverResult, value, path)
            evidence.append(make_resolver_evidence(resolved, path, submission))
        elif "tests" in keys:
            evidence.append(make_smoke_evidence(parse_result(_SmokeResult, value, path), path, submission))
        else:
            tip = "known are audit and resolve-check --json, smoke-tests and torch-tests, and JUnit XML"
            raise DataError(f"{path} holds no known results", tip=tip)
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


def parse_result(model: type[ResultModel], value: object, source: Path) -> ResultModel:
    """Read JSON into a model. Raises DataError with the places of mistakes."""
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as wrong:
        tip = "it is not whole, or of another version"
        raise DataError(f"{source}: {summarize_faults(wrong, model)}", tip=tip) from None


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


def find_tested_hashes(
    files: Mapping[str, str], source: Path, submission: EvidenceSubmission, *, tip: str
) -> list[str]:
    """Return the digests of the set's wheels that were tested, of ``files`` (sha256 by name) that were there.

    Others are named. Raises DataError with ``tip`` where none is of the set.
    """
    projects = submission.document.projects
    tested = {
        name: sha256
        for name, sha256 in files.items()
        if canonicalize_name(dist_info.split_wheel_name(name).distribution) in projects
    }
    _note_others(source, set(files) - set(tested))
    if not tested:
        raise DataError(f"{source} names no wheel of {submission.document.id}", tip=tip)
    return submission.require_set_hashes(tested, source)


def _note_others(source: Path, names: Iterable[str]) -> None:
    if others := sorted(names):
        log.log_note(f"{source}: also there, and not of this set: {', '.join(others)}")


def _find_target(
    source: Path, tested: Iterable[str], submission: EvidenceSubmission, *, may_have_died: bool = False
) -> str | None:
    """Return the target that a result is of; what people say must agree.

    ``may_have_died``: it failed, perhaps before it had seen the GPU that people name.
    """
    targets = sorted({strip_features(gfx) for gfx in tested})
    if len(targets) > 1:
        raise UsageError(
            f"{source} is of {' and '.join(targets)} together: one may have skipped what another passed",
            tip=f"add those that are beside it: results-{targets[0]}.json and the others",
        )
    target = targets[0] if targets else None
    if submission.gfx in {None, target} or (submission.gfx == NO_GPU_WORD and target is None):
        return target
    if target is None and may_have_died:
        return submission.gfx
    raise UsageError(f"{source} {f'ran on {target}' if target else 'saw no GPU'}, not on {submission.gfx}")


def _make_suite(source: Path, **values: Any) -> TestedSuite:
    """Return the suite that a result names. DataError for a name, shard or plan that evidence cannot hold."""
    try:
        return TestedSuite(**values)
    except ValidationError as wrong:
        raise DataError(f"{source}: suite: {summarize_faults(wrong, TestedSuite)}") from None


def _join_digests(digests: Iterable[str]) -> str:
    """Return the sha256 of one file, or of several together."""
    files = sorted(digests)
    return files[0] if len(files) == 1 else hashlib.sha256("\n".join(files).encode()).hexdigest()


# ---- results in the one form


def make_results_evidence(
    results: test_results.Results, source: Path, submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what a document of results says: one evidence of all wheels that nothing bad is said of.

    And one of each that something is said of, with the tests that are about it.
    """
    tested = find_tested_hashes(results.wheels, source, submission, tip="test the wheels of the set")
    has_failed = results.lost_gpu or any(test.is_bad for test in results.tests)
    seen = [results.gfx] if results.gfx else []
    gfx = _find_target(source, seen, submission, may_have_died=bool(has_failed))
    suite = _make_suite(source, **results.suite.model_dump()) if results.suite is not None else None
    names = [name for name, sha256 in results.wheels.items() if sha256 in tested]
    about = {
        name: [test for test in results.tests if not test.wheels or name in test.wheels] for name in names
    }
    groups = [names]
    if any(test.wheels for test in results.tests):
        bad = [name for name in names if any(test.is_bad for test in about[name])]
        good = [name for name in names if name not in bad and about[name]]  # of others nothing is known
        groups = [good, *([name] for name in bad)]
    evidence = []
    for group in filter(None, groups):
        tests = [test for test in results.tests if not test.wheels or set(group) & set(test.wheels)]
        known = sum(bool(test.known) for test in tests)
        flaky = [test.name for test in tests if test.outcome == "passed" and test.tries > 1]
        counts = Counter[str]("skipped" if test.known else test.outcome for test in tests)
        detail = [
            f"lost {results.lost_gpu}" if results.lost_gpu else "",
            f"{tables.format_count(known, 'failure')} known" if known else "",
            tables.format_count(len(group), "wheel") if results.kind in {"audit", "resolver"} else "",
        ]
        evidence.append(
            submission.make_evidence(
                results.kind,
                OutcomeCounts(**counts, flaky=len(flaky)),
                [results.wheels[name] for name in group],
                source=source,
                tool=results.tool,
                when=results.when,
                host=results.host,
                gfx=gfx,
                outcome="lost" if results.lost_gpu else None,
                detail="; ".join(filter(None, detail)),
                failed=[
                    f"{test.name}: {test.detail}" if test.detail else test.name
                    for test in tests
                    if test.is_bad
                ],
                flaky=flaky,
                selected=results.selected,
                digest=hash_file(source),
                machine=results.machine,
                suite=suite,
                measurements=find_least_measurements(tests),
            )
        )
    return evidence


def find_least_measurements(tests: Iterable[test_results.TestResult | _SmokeTest]) -> dict[str, float]:
    """Return what tests that passed measured, by name; of what several measured (each GPU), the least."""
    least: dict[str, float] = {}
    for test in tests:
        for name, number in test.measurements.items() if test.outcome == "passed" else ():
            least[name] = min(number, least.get(name, number))
    return least


# ---- audit


class _AuditFinding(BaseModel):
    severity: Literal["error", "warning", "info"]
    what: str
    check: str = ""


class _Report(BaseModel):
    passed: bool
    findings: tuple[_AuditFinding, ...] = ()
    ignored: tuple[_AuditFinding, ...] = ()
    ran: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """Its errors: what was let pass there is not let pass here."""
        named = (*self.findings, *self.ignored)
        return [f"{finding.check}: {finding.what}" for finding in named if finding.severity == "error"]


class _WheelReport(_Report):
    wheel: str
    sha256: lock.Sha256Digest
    device_wheels_sha256: Mapping[str, lock.Sha256Digest] = {}  # of those that were read with it
    recipe: str = ""


class _SetReport(_Report):
    wheels: Mapping[str, lock.Sha256Digest]


class _AuditResult(BaseModel):
    tool: str
    when: AwareDatetime | None = None
    wheels: tuple[_WheelReport, ...]
    set: _SetReport | None = None


def make_audit_evidence(audit: _AuditResult, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what ``audit --json`` found: one of all wheels that passed, one of each that did not.

    UsageError for a wheel that was held to no recipe. What the checks of a set found counts for every wheel
    of it. Wheels of the audited set that are not of the staged one (ROCm packages) are left out; device
    wheels need no recipe beside their host.
    """
    hashes, names = submission.document.hashes, {file.name for file in submission.document.files}
    of_set = audit.set or _SetReport(passed=True, wheels={})
    others = {
        report.wheel
        for report in audit.wheels
        if report.wheel in of_set.wheels and report.wheel not in names and report.sha256 not in hashes
    }
    _note_others(source, others)
    reports = [report for report in audit.wheels if report.wheel not in others]
    if not reports:
        raise DataError(f"{source} has no report in it", tip="audit the wheels of the set")
    parts = {sha256 for report in reports if report.recipe for sha256 in report.device_wheels_sha256.values()}
    for report in reports:
        if not report.recipe and report.sha256 not in parts:
            raise UsageError(
                f"{source}: {report.wheel} was audited without its recipe, which says what it must be",
                tip="hold each to its recipe: rocm-wheels audit --by-recipe --json",
            )
    set_problems = [f"set: {problem}" for problem in of_set.problems]
    if not of_set.passed and not set_problems:
        set_problems = ["set: it failed"]
    if set_problems:  # of a wheel that was not reported on, too
        reported = {report.sha256 for report in reports}
        reports += [
            _WheelReport(passed=True, wheel=name, sha256=sha256)
            for name, sha256 in of_set.wheels.items()
            if sha256 in hashes - reported
        ]

    def make(counts: OutcomeCounts, wheels: Mapping[str, str], detail: str) -> Evidence:
        return submission.make_evidence(
            "audit",
            counts,
            submission.require_set_hashes(wheels, source),
            source=source,
            tool=audit.tool or "rocm-wheels audit",
            when=audit.when,
            digest=hash_file(source) if audit.when else "",
            detail=detail,
        )

    evidence, passed, checks = list[Evidence](), dict[str, str](), Counter[str]()
    for report in reports:
        wheels = {report.wheel: report.sha256, **report.device_wheels_sha256}
        problems, ran, skipped = report.problems, len(report.ran), len(report.skipped)
        if of_set.wheels.get(report.wheel) == report.sha256:
            problems, ran = [*problems, *set_problems], ran + len(of_set.ran)
            skipped += len(of_set.skipped)
        if report.passed and ran and not problems:
            passed |= wheels
            checks.update(passed=ran, skipped=skipped)
            continue
        problems = problems or ["no check ran"]
        counts = OutcomeCounts(passed=max(ran - len(problems), 0), failed=len(problems), skipped=skipped)
        evidence.append(make(counts, wheels, f"{report.wheel}: {problems[0]}"))
    if passed:
        evidence.append(make(OutcomeCounts(**checks), passed, tables.format_count(len(passed), "wheel")))
    return evidence


# ---- resolver


class _ResolverCheck(BaseModel):
    requirement: str
    python: str
    tool: str
    fault: str
    picked: str = ""


class _ResolverResult(BaseModel):
    checks: tuple[_ResolverCheck, ...] = Field(min_length=1)
    when: AwareDatetime | None = None
    tool: str = "rocm-wheels index resolve-check"


def make_resolver_evidence(result: _ResolverResult, source: Path, submission: EvidenceSubmission) -> Evidence:
    """Return what ``resolve-check --json`` found, of those of the given wheels that it speaks of.

    It speaks of those that a check picked; when a check failed, of all whose projects were asked for.
    """
    checks, failed = result.checks, any(check.fault for check in result.checks)
    requested = {
        (parse_project(check.requirement, str(source)), check.python, "" if failed else check.picked)
        for check in checks
    }
    submission.require_given_hashes(source, "of `resolve-check`")
    about = {name: sha for name, sha in submission.wheels.items() if covers_wheel(requested, name)}
    if uncovered := sorted(set(submission.wheels) - set(about)):
        rest = " and others" if len(uncovered) > _MOST_NAMES_SHOWN else ""
        log.log_note(f"{source} says nothing of {', '.join(uncovered[:_MOST_NAMES_SHOWN])}{rest}")
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
    return submission.make_evidence(
        "resolver",
        OutcomeCounts(passed=len(checks) - len(bad), failed=len(bad)),
        submission.require_set_hashes(about, source),
        source=source,
        tool=result.tool,
        when=result.when,
        digest=hash_file(source) if result.when else "",
        detail=tables.format_count(len(about), "wheel"),
        failed=bad,
    )


def covers_wheel(requested: set[tuple[str, str, str]], name: str) -> bool:
    """Tell whether questions (project, Python, version that was picked or "") are about a wheel."""
    wheel, pythons = dist_info.parse_wheel_name(name), wheel_set.list_wheel_pythons(name)
    project = canonicalize_name(dist_info.split_wheel_name(name).distribution)
    return any(
        project == requested_project
        and (not pythons or python in pythons)
        and (not picked or _is_version(wheel.version, picked))
        for requested_project, python, picked in requested
    )


def _is_version(version: Version, picked: str) -> bool:
    try:
        return Version(picked) == version
    except InvalidVersion:
        return False


def parse_project(requirement: str, source: str = "the question") -> str:
    """Return the project (normalized) of a requirement. DataError for what is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        raise DataError(f"{source}: {requirement!r} is no requirement") from None


# ---- smoke tests

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
    measurements: Mapping[str, float] = {}


class _SmokeSelection(BaseModel):
    pytest_args: tuple[str, ...] = ()
    deselected: _Count = 0


class _SmokeResult(BaseModel):
    schema_version: Literal[1] = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    gfx: tuple[str, ...]
    files: Mapping[str, lock.Sha256Digest]
    tests: tuple[_SmokeTest, ...]
    counts: Mapping[str, _Count]
    selection: _SmokeSelection | None = None
    machine: tested_machine.TestedMachine | None = None


def make_smoke_evidence(result: _SmokeResult, source: Path, submission: EvidenceSubmission) -> Evidence:
    """Return what the smoke tests found, on the GPUs of one target or on none.

    Raises DataError for results that are not of our smoke tests, or name a GPU that no test passed on.
    """
    listed = Counter[str](test.outcome for test in result.tests)
    if (stated := Counter({name: number for name, number in result.counts.items() if number})) != listed:
        raise DataError(
            f"{source} counts {_format_counts(stated)}, and lists {_format_counts(listed)}", tip=RUN_AGAIN_TIP
        )
    counts = OutcomeCounts(**listed)
    if not (result.tool.startswith("rocm-wheels ") and " smoke tests" in result.tool):
        raise DataError(
            f"{source} is of another tool ({result.tool[:_LONGEST_TOOL_SHOWN]})",
            tip="run build_tools/run_pytorch_smoke_tests.py; of other tests, hand in the JUnit files",
        )
    passed = counts.decide_outcome() == "pass"
    on_gpu = any(_GPU_TEST_NAME.search(test.name) and test.outcome == "passed" for test in result.tests)
    if result.gfx and passed and not on_gpu:
        raise DataError(f"{source} names {', '.join(result.gfx)}, and no test passed on a GPU")
    if result.selection is None:  # of a version that put the words behind its name
        selected = result.tool.partition(" smoke tests")[2].strip(" ()")
    else:
        words = find_selecting_words(result.selection.pytest_args)
        left_out = f"{result.selection.deselected} left out" if result.selection.deselected else ""
        selected = ", ".join(filter(None, [shell.format_command(words) if words else "", left_out]))
    tip = "run the smoke tests where the wheels of the set are installed, from its own index"
    return submission.make_evidence(
        "smoke",
        counts,
        find_tested_hashes(result.files, source, submission, tip=tip),
        source=source,
        tool=result.tool,
        when=result.when,
        host=result.host,
        gfx=_find_target(source, result.gfx, submission, may_have_died=not passed),
        failed=[test.name for test in result.tests if test.outcome not in {"passed", "skipped"}],
        selected=selected,
        digest=hash_file(source),
        machine=result.machine,
        measurements=find_least_measurements(result.tests),
    )


def find_selecting_words(words: Iterable[str]) -> list[str]:
    """Return the words that may choose among tests, of those that pytest was given.

    Those are known that choose nothing; any other may.
    """
    return [word for word in words if not _HARMLESS_ARGUMENT.fullmatch(word)]


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"


# ---- torch's own tests

_TorchCount = Literal[
    "passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out", "flaky"
]
_FAILED_COUNTS: tuple[_TorchCount, ...] = ("failed", "crashed", "timeout", "missing")


class _TorchFailure(BaseModel):
    name: str


class _TorchPart(BaseModel):
    name: Annotated[str, Field(max_length=1000)]
    complete: bool
    fault: str = ""
    counts: Mapping[_TorchCount, _Count] = {}
    unchosen: _Count = 0
    devices: tuple[str, ...] = ()
    report: str = ""
    sha256: str = ""
    bad: tuple[_TorchFailure, ...] = ()
    flaky: tuple[_TorchFailure, ...] = ()


class _TorchSelection(BaseModel):
    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: _Shard
    shards: _Shard
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


def list_torch_records(folder: Path) -> list[Path]:
    """Return the records in a folder: its own, or those of folders in it (a GPU), or in these (a shard)."""
    record = folder / TORCH_RECORD_FILE
    if record.is_file():
        return [record]
    return sorted([*folder.glob(f"*/{TORCH_RECORD_FILE}"), *folder.glob(f"*/*/{TORCH_RECORD_FILE}")])


def make_torch_evidence(
    records: Sequence[tuple[Path, _TorchRun]], submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what torch's tests found: all shards of one run are one result, each GPU target another.

    Where some shards are not among the records, each is a result of its own: the gate puts them together.
    Raises DataError for records that their reports contradict, or that are of no wheel of the set.
    """
    groups: dict[tuple[object, ...], list[tuple[Path, _TorchRun]]] = defaultdict(list)
    shards = Counter[object]()
    for path, run in records:
        reports = [part.report for part in run.parts if part.complete]
        if len(reports) != len(set(reports)):
            tip = "run again, and do not change it"
            raise DataError(f"{path} names a report for two files of tests", tip=tip)
        chosen = run.chosen.model_dump(exclude={"shard"})
        key = (run.gfx, run.of.torch, run.of.python, run.of.commit, repr(chosen), *sorted(run.files.items()))
        repetition = shards[key, run.chosen.shard]  # another GPU of the same kind: a run of its own
        shards[key, run.chosen.shard] += 1
        group = (repetition, *key)
        groups[group].append((path, run))
    evidence = []
    for runs in groups.values():
        is_whole = len(runs) == runs[0][1].chosen.shards
        apart = [runs] if is_whole else [[run] for run in runs]
        evidence += [_join_runs(some, submission) for some in apart]
    return evidence


def _join_runs(records: Sequence[tuple[Path, _TorchRun]], submission: EvidenceSubmission) -> Evidence:
    """Return a result of all shards of a run, or of one that stands alone."""
    path, first = records[0]
    runs, chosen, counts = [run for _, run in records], first.chosen, Counter[str]()
    for file, run in records:
        for part in run.parts:
            _require_matching_report(file, part)
            counts.update(part.counts)
    parts = [part for run in runs for part in run.parts]
    known, left_out = counts.pop("known", 0), counts.pop("left_out", 0)
    suite = _make_suite(path, name=chosen.suite)
    if len(runs) < chosen.shards:
        shard = {"shard": chosen.shard, "shards": chosen.shards, "plan": chosen.plan}
        suite = _make_suite(path, name=chosen.suite, **shard)
    faults = [*_list_untested(first, parts, whole=suite.shards == 1)]
    total = OutcomeCounts(**{**counts, "skipped": counts["skipped"] + known})
    outcome = total.decide_outcome()
    if any(run.lost for run in runs):
        outcome = "lost"
    elif faults and outcome == "pass":
        outcome = "missing"
    # none of a file that a lost GPU did not let come to its end
    ended = [part for run in runs for part in run.parts if part.complete or not run.lost]
    failed = [test.name for part in ended for test in part.bad]
    detail = [
        f"suite {suite}",
        *(f"lost {fault.partition(chr(10))[0]}" for run in runs for fault in run.lost_gpus),
        f"tests of {first.of.commit[:12]}" if first.of.commit else "",
        *faults,
        f"{tables.format_count(known, 'failure was', 'failures were')} known" if known else "",
        f"{left_out} known to hang or crash" if left_out else "",
    ]
    return submission.make_evidence(
        "tests",
        total,
        find_tested_hashes(
            first.files,
            path,
            submission,
            tip="run torch's tests where the wheels of the set are installed, and name them: --wheels DIR",
        ),
        source=path,
        tool=first.tool,
        when=min(run.when for run in runs),
        host=first.host,
        gfx=_find_target(path, [first.gfx] if first.gfx is not None else [], submission),
        outcome=outcome,
        detail="; ".join(filter(None, detail)),
        failed=failed,
        flaky=[test.name for part in parts for test in part.flaky],
        selected=_describe_torch_selection(runs, parts),
        digest=_join_digests(hash_file(file) for file, _ in records),
        machine=first.machine,
        suite=suite,
    )


def _require_matching_report(record: Path, part: _TorchPart) -> None:
    """Raise DataError where a report is not there, was changed, or counts other tests than the record."""
    if not part.complete:
        return
    file = record.parent / part.report
    if not part.report or not file.is_file() or not file.resolve().is_relative_to(record.parent.resolve()):
        raise DataError(f"{record}: the report of {part.name} is not there", tip="hand in the whole folder")
    report, counts = junit.read_junit_report(file), Counter[str](part.counts)
    recorded = (
        counts["passed"],
        sum(counts[name] for name in _FAILED_COUNTS),
        counts["skipped"] + counts["known"],
        counts["flaky"],
    )
    reported = (
        report.passed,
        report.failed + report.crashed + report.timeout,
        report.skipped,
        report.flaky,
    )
    # a report without tests is one that is not whole, elsewhere
    if report.digest != part.sha256 or recorded != reported or (report.fault and any(reported)):
        why = report.fault or (
            f"{reported[0]} passed and {reported[1]} did not, and {record.name} says "
            f"{recorded[0]} and {recorded[1]}"
        )
        raise DataError(f"{file} is not what {record} speaks of: {why}", tip="run again, and change neither")


def _list_untested(first: _TorchRun, parts: Sequence[_TorchPart], *, whole: bool) -> Iterable[str]:
    """Say what runs lack: files that did not finish, the GPU that they are of.

    All shards together (``whole``) also lack files of the suite, or shares of one.
    """
    if waiting := [part.name for part in parts if not part.complete]:
        named = ", ".join(waiting[:_MOST_NAMES_SHOWN])
        yield f"{tables.format_count(len(waiting), 'file')} did not finish: {named}"
    yield from (f"{part.name}: {part.fault.partition(chr(10))[0]}" for part in parts if part.fault)
    yield from (
        f"{name} is there twice" for name, times in Counter(part.name for part in parts).items() if times > 1
    )
    shares, totals, passed = defaultdict[str, set[int]](set), dict[str, int](), set[str]()
    for part in parts:
        file, number, total = torch_tests.split_test_share(part.name)
        shares[file].add(number)
        totals[file] = max(totals.get(file, 1), total)
        passed |= {file} if part.counts.get("passed") else set()
    suite = torch_tests.load_torch_tests().suites.get(first.chosen.suite)
    if whole:
        for file, numbers in shares.items():
            if missing := next((n for n in range(1, totals[file] + 1) if n not in numbers), 0):
                yield f"{file} {missing}/{totals[file]} is not there"
    if whole and suite is not None and not (first.chosen.files or first.chosen.exclude):
        for file in suite.named_files:
            if file not in passed:
                yield f"{file}: none of its tests passed" if file in shares else f"{file} was not run"
    if first.gfx is not None:
        used = {strip_features(device) for part in parts for device in part.devices}
        may_be_none = suite is None or suite.gpus == "every"  # distributed tests have other processes use it
        if used != {strip_features(first.gfx)} and (used or not may_be_none):
            yield f"the tests used {', '.join(sorted(used)) or 'no GPU'}, not the {first.gfx}"


def _describe_torch_selection(runs: Sequence[_TorchRun], parts: Sequence[_TorchPart]) -> str:
    """Return how tests were chosen; "" for a whole suite of the tests that are torch's own."""
    chosen = runs[0].chosen
    words = find_selecting_words(chosen.pytest_args)
    unchosen = sum(part.unchosen for part in parts)
    selections = [
        f"only the suite {chosen.suite}" if chosen.suite not in torch_tests.SUITE_NAMES else "",
        shell.format_command(words) if words else "",
        *chosen.changes,
        *(f"{name}={value}" for name, value in sorted(chosen.variables.items())),
        f"only {', '.join(chosen.files)}" if chosen.files else "",
        f"without {', '.join(chosen.exclude)}" if chosen.exclude else "",
        f"{tables.format_count(unchosen, 'test')} left out" if unchosen else "",
        *(run.of.doubt for run in runs),
    ]
    return "; ".join(dict.fromkeys(filter(None, selections)))


# ---- JUnit


def _make_junit_evidence(paths: Sequence[Path], submission: EvidenceSubmission) -> Evidence:
    source, files = paths[0], list_report_files(paths, submission.reports)
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
    run = read_junit_run(files, submission.reports)
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

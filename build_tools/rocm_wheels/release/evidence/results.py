"""Read results and make evidence of them: the one form of results, audit, resolve-check, JUnit.

What is in a file tells what it is of. What results of torch's tests say is compared with the files of its
suite. A run that was ended, that is one shard of several, of chosen tests, or of
tests of another torch is written down as what it is: none of them stands for the whole.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from rocm_wheels.core import log, tables
from rocm_wheels.core.errors import DataError, UsageError
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.records import summarize_faults
from rocm_wheels.models import lock, test_results, torch_tests
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
RESULTS_FILE = "results.json"


def read_results(paths: Sequence[Path], submission: EvidenceSubmission) -> list[Evidence]:
    """Return the evidence in files: each JSON file by itself, all JUnit files (and folders) as one run.

    A folder that ``test smoke`` or ``test torch`` wrote is the results in it.

    Raises UsageError, DataError or ReleaseError for a file that is not there, is nothing that we know, is
    not whole (JUnit reports that are not whole make a failure), or speaks of other wheels.
    """
    if absent := [path for path in paths if not path.exists()]:
        raise UsageError(
            f"there is no {absent[0]}", tip="no results are no evidence; look why none were written"
        )
    paths = [file for path in paths for file in (list_results(path) if path.is_dir() else []) or [path]]
    reports = [path for path in paths if path.is_dir() or path.suffix.lower() == ".xml"]
    evidence = list[Evidence]()
    for path in paths:
        if path in reports:
            continue
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as broken:  # also what is no UTF-8, or nested without end
            tip = "an empty or truncated result is none: look why it is, and run again"
            raise DataError(f"{path} is truncated or no JSON ({broken})", tip=tip) from None
        keys = value if isinstance(value, dict) else {}
        if keys.get("kind") in test_results.RESULT_KINDS:
            results = parse_result(test_results.Results, value, path)
            evidence += make_results_evidence(results, path, submission)
        elif isinstance(keys.get("wheels"), list) and "tool" in keys:
            evidence += make_audit_evidence(parse_result(_AuditResult, value, path), path, submission)
        elif "checks" in keys:
            resolved = parse_result(_ResolverResult, value, path)
            evidence.append(make_resolver_evidence(resolved, path, submission))
        else:
            tip = "known are results.json of `test smoke` and `test torch`, of `set check`, and JUnit XML"
            raise DataError(f"{path} holds no known results", tip=tip)
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


def list_results(folder: Path) -> list[Path]:
    """Return the results in a folder: its own, or those of folders in it (a GPU), or in these (a shard)."""
    own = folder / RESULTS_FILE
    if own.is_file():
        return [own]
    return sorted([*folder.glob(f"*/{RESULTS_FILE}"), *folder.glob(f"*/*/{RESULTS_FILE}")])


def make_results_evidence(
    results: test_results.Results, source: Path, submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what a document of results says: one evidence of all wheels that nothing bad is said of.

    And one of each that something is said of, with the tests that are about it. A shard of a suite is a
    result of its own: the gate puts them together.
    """
    tip = "test the wheels of the set where they are installed, and name them: --wheels DIR"
    tested = find_tested_hashes(results.wheels, source, submission, tip=tip)
    seen = [results.gfx] if results.gfx else []
    gfx = _find_target(source, seen, submission, may_have_died=not results.good)
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
    selected, untested = results.selected, list(_list_untested(results))
    if results.suite is not None and results.suite.name not in torch_tests.SUITE_NAMES:
        selected = "; ".join(filter(None, [f"only the suite {results.suite.name}", selected]))
    evidence = []
    for group in filter(None, groups):
        tests = [test for test in results.tests if not test.wheels or set(group) & set(test.wheels)]
        verdicts = Counter(test.verdict for test in tests)
        flaky = [test.name for test in tests if test.verdict == "flaky"]
        expected = {"known", "left out"}
        counts = OutcomeCounts(
            **Counter[str]("skipped" if test.verdict in expected else test.outcome for test in tests),
            flaky=len(flaky),
        )
        known, left_out = verdicts["known"], verdicts["left out"]
        unfinished = [test.name for test in tests if test.outcome == "missing"]
        detail = [
            f"suite {suite}" if suite is not None else "",
            f"lost {results.lost_gpu}" if results.lost_gpu else "",
            results.subject,
            *results.remarks,
            f"not run: {', '.join(unfinished[:_MOST_NAMES_SHOWN])}" if unfinished else "",
            *untested,
            f"{tables.format_count(known, 'failure was', 'failures were')} known" if known else "",
            f"{left_out} known to hang or crash" if left_out else "",
            tables.format_count(len(group), "wheel") if results.kind in {"audit", "resolver"} else "",
        ]
        outcome: EvidenceOutcome = counts.decide_outcome()
        if results.lost_gpu:
            outcome = "lost"
        elif untested and outcome == "pass":
            outcome = "missing"
        evidence.append(
            submission.make_evidence(
                results.kind,
                counts,
                [results.wheels[name] for name in group],
                source=source,
                tool=results.tool,
                when=results.when,
                host=results.host,
                gfx=gfx,
                outcome=outcome,
                detail="; ".join(filter(None, detail)),
                failed=[
                    f"{test.name}: {test.detail}" if test.detail else test.name
                    for test in tests
                    if test.is_bad
                ],
                flaky=flaky,
                selected=selected,
                digest=hash_file(source),
                machine=results.machine,
                suite=suite,
                measurements=find_least_measurements(tests),
            )
        )
    return evidence


def find_least_measurements(tests: Iterable[test_results.TestResult]) -> dict[str, float]:
    """Return what tests that passed measured, by name; of what several measured (each GPU), the least."""
    least: dict[str, float] = {}
    for test in tests:
        for name, number in test.measurements.items() if test.outcome == "passed" else ():
            least[name] = min(number, least.get(name, number))
    return least


def _list_untested(results: test_results.Results) -> Iterable[str]:
    """Say what a suite of torch's tests lacks: named files, shares of one, files in which nothing passed."""
    if results.suite is None:
        return
    is_whole = results.suite.shards == 1
    shares: dict[str, set[int]] = defaultdict(set)
    totals: dict[str, int] = {}
    for name in results.files:
        file, number, total = torch_tests.split_test_share(name)
        shares[file].add(number)
        totals[file] = total
    for file, numbers in shares.items():
        missing = next((number for number in range(1, totals[file] + 1) if number not in numbers), 0)
        if is_whole and missing:
            yield f"{file} {missing}/{totals[file]} is not there"
    suite = torch_tests.load_torch_tests().suites.get(results.suite.name)
    passed = {test.name.partition(".py::")[0] for test in results.tests if test.outcome == "passed"}
    for file in suite.named_files if suite is not None and not results.selected else ():
        if file in shares and file not in passed:
            yield f"{file}: none of its tests passed"
        elif is_whole and file not in shares:
            yield f"{file} was not run"


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

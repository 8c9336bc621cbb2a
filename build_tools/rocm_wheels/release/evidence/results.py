"""Read results and make evidence of them: the one form of results, and JUnit of others.

What results of torch's tests say is compared with the files of their suite. A run that was ended, that is
one shard of several, of chosen tests, or of tests of another torch is written down as what it is: none of
them stands for the whole.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import ValidationError

from rocm_wheels.core import log, tables
from rocm_wheels.core.errors import DataError, UsageError
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.records import summarize_faults
from rocm_wheels.models import test_results, torch_tests
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

_MOST_NAMES_SHOWN = 3
RESULTS_FILE = "results.json"
_FILE_KINDS = ("audit", "reproduced", "resolver")  # about files, not about what they do
# of tests, of `set check`, of `set reproduce`
_OWN_RESULTS = (RESULTS_FILE, "audit.json", "resolver.json", "reproduced.json")


def read_results(paths: Sequence[Path], submission: EvidenceSubmission) -> list[Evidence]:
    """Return the evidence in files: each JSON file by itself, all JUnit files (and folders) as one run.

    A folder that ``test smoke``, ``test torch`` or ``set check`` wrote is the results in it.

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
        if not isinstance(value, dict) or value.get("kind") not in test_results.RESULT_KINDS:
            tip = "known are results.json of `test smoke` and `test torch`, of `set check`, and JUnit XML"
            raise DataError(f"{path} holds no known results", tip=tip)
        try:
            results = test_results.Results.model_validate(value)
        except ValidationError as wrong:
            tip = "it is not whole, or of another version"
            faults = summarize_faults(wrong, test_results.Results)
            raise DataError(f"{path}: {faults}", tip=tip) from None
        evidence += make_results_evidence(results, path, submission)
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
    if own := [path for name in _OWN_RESULTS if (path := folder / name).is_file()]:
        return own
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
            tables.format_count(len(group), "wheel") if results.kind in _FILE_KINDS else "",
        ]
        outcome: EvidenceOutcome = counts.decide_outcome()
        if results.lost_gpu:
            outcome = "lost"
        elif untested and outcome == "pass":
            outcome = "missing"
        evidence.append(
            submission.make_evidence(
                source,
                kind=results.kind,
                counts=counts,
                hashes=tuple(sorted({results.wheels[name] for name in group})),
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
                source=hash_file(source),
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


# ---- what a question to an installer is about


def covers_wheel(requested: set[tuple[str, str, str]], name: str) -> bool:
    """Tell whether questions (project, Python, version that was picked or "") are about a wheel."""
    wheel = dist_info.parse_wheel_name(name)
    project = canonicalize_name(dist_info.split_wheel_name(name).distribution)
    return any(
        project == requested_project
        and wheel_set.is_wheel_for(name, python)
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
        source,
        kind="tests",
        counts=run.counts,
        hashes=tuple(hashes),
        tool="JUnit",
        when=run.when,
        host=", ".join(run.hosts),
        gfx=None if submission.gfx == NO_GPU_WORD else submission.gfx,
        outcome=run.outcome,
        detail="; ".join(run.faults),
        failed=run.failed,
        source=_join_digests(run.digests) if run.when else "",
        suite=TestedSuite(name=submission.suite) if submission.suite else None,
    )

"""Results of torch's own tests as ``torch-tests`` writes them: a folder with ``results.json`` and JUnit.

What the record says is compared with its reports, and with the files of its suite. A run that was ended, that
is one shard of several, of chosen tests, of a suite that does not stand for all, or of tests of another torch
is written down as what it is: none of them stands for the whole.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.model.lock import Sha256Digest
from rocm_wheels.model.torch_tests import load_torch_tests
from rocm_wheels.release.evidence import OutcomeCounts, Evidence, EvidenceOutcome
from rocm_wheels.release.evidence_given import NO_GPU_WORD, EvidenceSubmission
from rocm_wheels.release.evidence_results import parse_result, find_tested_hashes
from rocm_wheels.release.evidence_smoke import find_selecting_words
from rocm_wheels.release.junit_file import JunitReport, read_junit_report
from rocm_wheels.shell import format_command
from rocm_wheels.wheels.members import hash_file

TORCH_RECORD_FILE = "results.json"
_MOST_FILES_SHOWN = 3
_FILE_SHARE = re.compile(r"(.+) ([0-9]{1,4})/([0-9]{1,4})")  # of a file: "test_ops 2/3"
_TorchCount = Literal["passed", "failed", "crashed", "timeout", "skipped", "missing", "known", "left_out"]
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


class _TorchSelection(BaseModel):
    suite: str
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = Field(ge=1)
    shards: int = Field(ge=1)
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
    files: Mapping[str, Sha256Digest]
    chosen: _TorchSelection
    parts: tuple[_TorchPart, ...] = Field(min_length=1)
    counts: Mapping[str, int]


def is_torch_record(value: Any) -> bool:
    """Tell whether JSON is a record of torch's own tests."""
    return isinstance(value, dict) and "parts" in value and "chosen" in value


def list_torch_records(folder: Path) -> list[Path]:
    """Return the records in a folder: its own, or those of the folders in it (one for each GPU)."""
    record = folder / TORCH_RECORD_FILE
    return [record] if record.is_file() else sorted(folder.glob(f"*/{TORCH_RECORD_FILE}"))


def make_torch_evidence(
    records: Sequence[tuple[Path, Any]], submission: EvidenceSubmission
) -> list[Evidence]:
    """Return what torch's tests found: shards of one run are one result, each GPU target another.

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
    return [_join_shards(runs, submission) for runs in groups.values()]


def _join_shards(runs: Sequence[tuple[Path, _TorchRun]], submission: EvidenceSubmission) -> Evidence:
    path, first = runs[0]
    shards = {run.chosen.shard for _, run in runs}
    counts, parts = Counter[str](), [(file, part) for file, run in runs for part in run.parts]
    for file, part in parts:
        _require_matching_report(file, part)
        counts.update(part.counts)
    known_failures, faults = counts.pop("known", 0), list(_list_part_faults(parts))
    missing_shards = sorted(set(range(1, first.chosen.shards + 1)) - shards)
    if missing_shards:
        faults.append(f"shards {', '.join(map(str, missing_shards))} of {first.chosen.shards} are not there")
    faults += _list_untested([run for _, run in runs])
    left_out = counts.pop("left_out", 0)
    total_counts = OutcomeCounts(**{**counts, "skipped": counts["skipped"] + known_failures})
    detail = [
        f"suite {first.chosen.suite}",
        f"tests of {first.of.commit[:12]}" if first.of.commit else "",
        *faults,
    ]
    detail += [
        f"{known_failures} failures were known" if known_failures else "",
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
        outcome=_decide_outcome(total_counts, faults),
        detail="; ".join(filter(None, detail)),
        failed=[bad.name for _, part in parts for bad in part.bad],
        selected=_describe_torch_selection([run for _, run in runs]),
        digest=_digest_record_files(file for file, _ in runs),
    )


def _require_matching_report(record: Path, part: _TorchPart) -> None:
    """Raise DataError where a report is not there, was changed, or counts other tests than the record."""
    if not part.complete:
        return
    file = record.parent / part.report
    if not part.report or not file.is_file() or not file.resolve().is_relative_to(record.parent.resolve()):
        raise DataError(f"{record}: the report of {part.name} is not there", tip="hand in the whole folder")
    report: JunitReport = read_junit_report(file)
    bad = sum(part.counts.get(count_name, 0) for count_name in _FAILED_COUNTS)
    skipped = part.counts.get("skipped", 0) + part.counts.get("known", 0)
    recorded_counts = (part.counts.get("passed", 0), bad, skipped)
    report_counts = (report.passed, report.failed + report.crashed + report.timeout, report.skipped)
    # a report without tests is one that is not whole, elsewhere
    if (
        report.digest != part.sha256
        or recorded_counts != report_counts
        or (report.fault and any(report_counts))
    ):
        why = (
            report.fault
            or f"{report_counts[0]} passed and {report_counts[1]} did not, and {record.name} says {recorded_counts[0]} and {recorded_counts[1]}"
        )
        raise DataError(f"{file} is not what {record} speaks of: {why}", tip="run again, and change neither")


def _list_part_faults(parts: Iterable[tuple[Path, _TorchPart]]) -> Iterable[str]:
    waiting = [part.name for _, part in parts if not part.complete]
    if waiting:
        yield f"{len(waiting)} files were not run to their end: {', '.join(waiting[:_MOST_FILES_SHOWN])}"
    yield from (f"{part.name}: {part.fault.partition(chr(10))[0]}" for _, part in parts if part.fault)


def _list_untested(runs: Sequence[_TorchRun]) -> Iterable[str]:
    """Say what all shards together lack: files of the suite, shares of a file, the GPU that they are of."""
    first = runs[0]
    parts = [part for run in runs for part in run.parts]
    shares: dict[str, set[int]] = defaultdict(set)
    totals: dict[str, int] = {}
    for name in (name for name, times in Counter(part.name for part in parts).items() if times > 1):
        yield f"{name} is there twice"
    for part in parts:
        file, number, total = (
            match.groups() if (match := _FILE_SHARE.fullmatch(part.name)) else (part.name, 1, 1)
        )
        shares[file].add(int(number))
        totals[file] = max(totals.get(file, 1), int(total))
    for file, numbers in shares.items():
        if missing_shares := sorted({*range(1, totals[file] + 1)} - numbers):
            yield f"{file} {missing_shares[0]}/{totals[file]} is not there"
    suite = load_torch_tests().suites.get(first.chosen.suite)
    passed = {part.name for part in parts if part.counts.get("passed")}
    for file in (
        suite.named_files if suite is not None and not (first.chosen.files or first.chosen.exclude) else ()
    ):
        if file not in passed:
            yield f"{file}: none of its tests passed" if file in shares else f"{file} was not run"
    if first.gfx is not None:
        used = {strip_features(device) for part in parts for device in part.devices}
        may_be_none = suite is None or not suite.whole  # distributed tests have other processes use it
        if used != {strip_features(first.gfx)} and (used or not may_be_none):
            yield f"the tests used {', '.join(sorted(used)) or 'no GPU'}, not the {first.gfx}"


def _decide_outcome(counts: OutcomeCounts, faults: Sequence[str]) -> EvidenceOutcome:
    outcome = counts.decide_outcome()
    return "missing" if faults and outcome == "pass" else outcome


def _describe_torch_selection(runs: Sequence[_TorchRun]) -> str:
    """Return how tests were chosen; "" for a whole suite of the tests that are torch's own."""
    chosen = runs[0].chosen
    words, suite = find_selecting_words(chosen.pytest_args), load_torch_tests().suites.get(chosen.suite)
    selections = ["" if suite is not None and suite.whole else f"only the suite {chosen.suite}"]
    selections += [format_command(words) if words else "", *chosen.changes]
    selections += [f"{name}={value}" for name, value in sorted(chosen.variables.items())]
    selections += [f"only {', '.join(chosen.files)}" if chosen.files else ""]
    selections += [f"without {', '.join(chosen.exclude)}" if chosen.exclude else ""]
    unchosen = sum(part.unchosen for run in runs for part in run.parts)
    selections += [f"{unchosen} tests left out" if unchosen else "", *(run.of.doubt for run in runs)]
    return "; ".join(dict.fromkeys(filter(None, selections)))


def _find_torch_target(path: Path, run: _TorchRun, submission: EvidenceSubmission) -> str | None:
    target = None if run.gfx is None else strip_features(run.gfx)
    if submission.gfx in {None, target} or (submission.gfx == NO_GPU_WORD and target is None):
        return target
    raise UsageError(f"{path} {f'ran on {target}' if target else 'saw no GPU'}, not on {submission.gfx}")


def _digest_record_files(files: Iterable[Path]) -> str:
    digests = sorted(hash_file(file) for file in files)
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

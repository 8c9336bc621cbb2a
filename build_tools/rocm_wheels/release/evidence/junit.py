"""Read the JUnit reports of a test run. What is truncated, empty or missing is never a pass.

The shards of a run are several files; the outcome is that of the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rocm_wheels.core import JunitReport, UsageError, read_junit_report
from rocm_wheels.release.evidence.evidence import EvidenceOutcome, OutcomeCounts


@dataclass(frozen=True)
class JunitRun:
    """What JUnit files say together. ``faults`` are sentences about files that do not say all they should.

    ``when`` is the earliest time that a suite gives, None where none does: a run is as old as its oldest
    part. ``hosts`` are its machines, ``digests`` the sha256 of the files.
    """

    outcome: EvidenceOutcome
    counts: OutcomeCounts
    failed: tuple[str, ...]
    faults: tuple[str, ...]
    when: datetime | None
    hosts: tuple[str, ...]
    digests: tuple[str, ...]


def list_report_files(paths: Sequence[Path], expected: int | None) -> list[Path]:
    """Return the files among paths, those in folders (``*.xml`` at any depth) included.

    Of a folder nobody can tell what is missing: UsageError unless ``expected`` says how many there must be.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            if expected is None:
                raise UsageError(
                    f"{path} is a folder: a shard that died left no file in it, and nobody would know",
                    tip="say how many reports there must be: --reports N",
                )
            files += sorted(path.rglob("*.xml"))
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def read_junit_run(files: Sequence[Path], expected: int | None = None) -> JunitRun:
    """Read the shards of a run: a file that is not whole is a crash, fewer than expected are ``missing``.

    A shard that is there twice is counted once, and makes the run ``missing``: the other one is not there.
    """
    reports_by_digest: dict[str, JunitReport] = {}
    faults, names = [], dict[str, str]()
    for file in files:
        report = read_junit_report(file)
        if report.digest in reports_by_digest:
            faults.append(f"{file.name} is the same as {names[report.digest]}")
            continue
        reports_by_digest[report.digest], names[report.digest] = report, file.name
    reports = list(reports_by_digest.values())
    broken = [report.fault for report in reports if report.fault]
    faults = [*broken, *faults]
    if expected is not None and len(files) < expected:
        faults.append(f"{len(files)} of {expected} reports are there")
    counts = OutcomeCounts(
        passed=sum(report.passed for report in reports),
        failed=sum(report.failed for report in reports),
        crashed=len(broken) + sum(report.crashed for report in reports),
        timeout=sum(report.timeout for report in reports),
        skipped=sum(report.skipped for report in reports),
    )
    outcome = counts.decide_outcome()
    return JunitRun(
        outcome="missing" if outcome == "pass" and faults else outcome,
        counts=counts,
        failed=tuple(name for report in reports for name in report.names),
        faults=tuple(faults),
        when=min((report.when for report in reports if report.when), default=None),
        hosts=tuple(dict.fromkeys(host for report in reports for host in report.hosts)),
        digests=tuple(sorted(reports_by_digest)),
    )

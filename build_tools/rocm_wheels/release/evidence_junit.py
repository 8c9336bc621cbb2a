"""JUnit XML of full test runs. What is truncated, empty or not there is never a pass.

Several files are the shards of one run: its outcome is that of the worst of them. ``junit_file`` reads one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.release.evidence import Counts, Outcome
from rocm_wheels.release.junit_file import Report, read_report


@dataclass(frozen=True)
class Reports:
    """What JUnit files say together. ``faults`` are sentences about files that do not say all they should.

    ``when`` is the earliest time that a suite gives, None where none does: a run is as old as its oldest
    part. ``hosts`` are its machines, ``digests`` the sha256 of the files.
    """

    outcome: Outcome
    counts: Counts
    failed: tuple[str, ...]
    faults: tuple[str, ...]
    when: datetime | None
    hosts: tuple[str, ...]
    digests: tuple[str, ...]


def report_files(paths: Sequence[Path], expected: int | None) -> list[Path]:
    """Return the files among paths, those in folders (``*.xml`` at any depth) included.

    Of a folder nobody can tell what is missing: UsageError unless ``expected`` says how many there must be.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            if expected is None:
                raise UsageError(
                    f"{path} is a folder: a shard that died left no file in it, and nobody would know",
                    tip="say how many reports there must be: --reports N",
                )
            found += sorted(path.rglob("*.xml"))
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def read_reports(files: Sequence[Path], expected: int | None = None) -> Reports:
    """Read the shards of a run: a file that is not whole is a crash, fewer than expected are ``missing``.

    A shard that is there twice is counted once, and makes the run ``missing``: the other one is not there.
    """
    each: dict[str, Report] = {}
    faults, names = [], dict[str, str]()
    for file in files:
        one = read_report(file)
        if one.digest in each:
            faults.append(f"{file.name} is the same as {names[one.digest]}")
            continue
        each[one.digest], names[one.digest] = one, file.name
    reports = list(each.values())
    broken = [one.fault for one in reports if one.fault]
    faults = [*broken, *faults]
    if expected is not None and len(files) < expected:
        faults.append(f"{len(files)} of {expected} reports are there")
    counts = Counts(
        passed=sum(one.passed for one in reports),
        failed=sum(one.failed for one in reports),
        crashed=len(broken) + sum(one.crashed for one in reports),
        timeout=sum(one.timeout for one in reports),
        skipped=sum(one.skipped for one in reports),
    )
    outcome = counts.outcome()
    return Reports(
        outcome="missing" if outcome == "pass" and faults else outcome,
        counts=counts,
        failed=tuple(name for one in reports for name in one.names),
        faults=tuple(faults),
        when=min((one.when for one in reports if one.when), default=None),
        hosts=tuple(dict.fromkeys(host for one in reports for host in one.hosts)),
        digests=tuple(sorted(each)),
    )

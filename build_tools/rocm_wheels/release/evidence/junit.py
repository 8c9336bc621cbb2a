"""Read JUnit XML of test runs. What is truncated, empty or not there is never a pass.

The shards of a run are several files. A file is read as it streams by: a hundred thousand tests need no
more memory than one. Its tests are counted by what is inside it, and what its suites say of themselves
must not be more. A document type is refused: no runner writes one, and its entities could be a thousand
times the file. Of several files the outcome is that of the worst.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from rocm_wheels.core import UsageError
from rocm_wheels.release.evidence.evidence import EvidenceOutcome, OutcomeCounts

_TestState = Literal["passed", "failed", "crashed", "timeout", "skipped"]
_SUITE_TAGS = ("testsuites", "testsuite")
_FAILURE_TAGS = ("failure", "error")
_NOT_RUN_STATUSES = ("notrun", "disabled", "skipped")  # how GoogleTest and CTest say it, in an attribute
_MOST_NAMED = 1000  # of those that are bad
_MOST_HOSTS = 20
_PIECE_SIZE = 1 << 20


@dataclass(frozen=True)
class JunitReport:
    """What a file says. ``fault`` is why it does not say all that it should, "" when it does.

    ``when`` is when its first suite began; ``digest`` is the sha256 of the file.
    """

    digest: str
    passed: int = 0
    failed: int = 0
    crashed: int = 0
    timeout: int = 0
    skipped: int = 0
    names: tuple[str, ...] = ()
    fault: str = ""
    when: datetime | None = None
    hosts: tuple[str, ...] = ()


def read_junit_report(file: Path) -> JunitReport:
    """Read a file. What is wrong in it is its ``fault``; UsageError for a report of the smoke tests."""
    reader, digest = _JunitReader(), hashlib.sha256()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.begin_element
    parser.EndElementHandler = reader.end_element
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    fault, empty = "", True
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_SIZE):
            digest.update(piece)
            empty = empty and not piece.strip()
            fault = fault or _feed_parser(parser, piece, last=False)
    fault = "is empty" if empty else fault or _feed_parser(parser, b"", last=True)
    if reader.smoke:
        raise UsageError(
            f"{file} is a report of the smoke tests, which are not torch's own",
            tip="add the results.json beside it, which names the wheels, too",
        )
    if fault:
        return JunitReport(digest.hexdigest(), fault=f"{file.name} {fault}")
    return reader.make_report(file.name, digest.hexdigest())


def _feed_parser(parser: expat.XMLParserType, piece: bytes, *, last: bool) -> str:
    """Read on; return what is wrong, "" for nothing."""
    try:
        parser.Parse(piece, last)
    except _NotJunitError as cause:
        return str(cause)
    except (expat.ExpatError, ValueError, LookupError) as broken:  # also an encoding that is none
        return f"is truncated or no XML ({broken})"
    return ""


class _NotJunitError(Exception):
    """The file is nothing that a test runner writes."""


@dataclass
class _JunitReader:
    """What was read so far. ``claimed`` is what the outermost suites say of their tests."""

    depth: int = 0
    outermost: int = 0
    test: str | None = None
    state: _TestState = "passed"
    states: Counter[_TestState] = field(default_factory=Counter)
    tags: int = 0  # of failures and errors: a test can have both
    claimed: Counter[str] = field(default_factory=Counter)
    odd: str = ""
    names: dict[str, None] = field(default_factory=dict)  # a test and its cleaning up are two elements
    when: datetime | None = None
    hosts: dict[str, None] = field(default_factory=dict)
    smoke: bool = False

    def refuse_doctype(self, *_: object) -> None:
        raise _NotJunitError("has a document type, which no test runner writes")

    def begin_element(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.depth:
            if tag not in _SUITE_TAGS:
                raise _NotJunitError(f"is no JUnit report: it is <{tag[:40]}>")
            self.outermost = 1 if tag == "testsuite" else 2
        self.depth += 1
        if tag == "testsuite":
            self._read_suite(attributes)
        elif tag == "testcase" and self.test is None:
            self.test = "::".join(
                part for part in (attributes.get("classname"), attributes.get("name")) if part
            )
            self.state = "skipped" if attributes.get("status", "").lower() in _NOT_RUN_STATUSES else "passed"
        elif tag in _FAILURE_TAGS and self.test is not None:
            self.tags += 1
            failure_state = _classify_failure(attributes.get("message", ""))
            self.state = failure_state if self.state in {"passed", "skipped"} else self.state
        elif tag == "skipped" and self.state == "passed":
            self.state = "skipped"

    def end_element(self, tag: str) -> None:
        self.depth -= 1
        if tag != "testcase" or self.test is None:
            return
        self.states[self.state] += 1
        if self.state not in {"passed", "skipped"} and len(self.names) < _MOST_NAMED:
            self.names[self.test] = None
        self.test = None

    def _read_suite(self, attributes: dict[str, str]) -> None:
        self.smoke = self.smoke or attributes.get("name", "").split(" ")[0] == "smoke"
        if (host := attributes.get("hostname")) and len(self.hosts) < _MOST_HOSTS:
            self.hosts[host] = None
        if (when := _parse_time(attributes.get("timestamp", ""))) is not None:
            self.when = min(self.when or when, when)
        if self.depth != self.outermost:
            return  # its numbers are in those of the suite that it is in
        for name in ("tests", "failures", "errors"):
            text = attributes.get(name, "0")
            if text.isdecimal() and len(text) < 10:
                self.claimed[name] += int(text)
            else:
                self.odd = self.odd or f"{name} of a suite is no number: {text[:20]}"

    def make_report(self, name: str, digest: str) -> JunitReport:
        states, claimed = self.states, self.claimed
        unlisted = max(claimed["failures"] + claimed["errors"] - self.tags, 0)
        return JunitReport(
            digest,
            passed=states["passed"],
            failed=states["failed"] + unlisted,
            crashed=states["crashed"],
            timeout=states["timeout"],
            skipped=states["skipped"],
            names=tuple(self.names),
            fault=f"{name}: {self.odd}" if self.odd else self._find_fault(name),
            when=self.when,
            hosts=tuple(self.hosts),
        )

    def _find_fault(self, name: str) -> str:
        """Return why a report is not whole: it lists nothing, or less than it says it does."""
        tests = sum(self.states.values())
        if not tests:
            return f"{name} has no test in it"
        # pytest counts the failure of a test and the error of what cleans up after it as two, in one element
        claimed = self.claimed["tests"] - self.claimed["errors"]
        return f"{name} says {claimed} tests and lists {tests}" if tests < claimed else ""


def _classify_failure(message: str) -> _TestState:
    """Tell how a test ended, by what pytest-timeout and pytest-xdist say of it."""
    if message.removeprefix("Failed: ").startswith("Timeout"):
        return "timeout"
    return "crashed" if "worker '" in message and " crashed while running " in message else "failed"


def _parse_time(text: str) -> datetime | None:
    """Return when a suite began; a time without a zone is taken for UTC. None for what is no time."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):  # in no zone can a clock say year 0
        return None


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

"""Write and read JUnit XML, which CI systems show. What is truncated or empty is never a pass.

A file is read as it streams by: a hundred thousand tests need no more memory than one. Its tests are counted
by what is inside it, and what its suites state of themselves must not be more. A document type is refused:
no runner writes one, and its entities could be a thousand times the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET
from xml.parsers import expat

from rocm_wheels.core import errors, files

JunitTag = Literal["", "failure", "error", "skipped", "flakyFailure"]  # the last one as Surefire has it
SMOKE_SUITE = "smoke"  # the first word of the names of suites of smoke tests
_NOT_XML_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JunitCase:
    """One test to be written. ``tag`` is "" for one that passed; ``kind`` and ``reason`` explain the tag."""

    classname: str
    name: str
    seconds: float
    tag: JunitTag = ""
    kind: str = ""
    reason: str = ""


def write_junit_file(
    path: Path, suites: Iterable[tuple[str, Sequence[JunitCase]]], *, when: str, host: str
) -> None:
    """Write suites, by name, that ran on a host, whole or not at all. ``when`` is in ISO 8601."""
    listed = list(suites)
    root = ET.Element("testsuites", _count_cases([case for _, cases in listed for case in cases]))
    for name, cases in listed:
        heading = {"name": name, "timestamp": when, "hostname": host, **_count_cases(cases)}
        suite_element = ET.SubElement(root, "testsuite", heading)
        for case in cases:
            attributes = {"classname": case.classname, "name": case.name, "time": f"{case.seconds:.3f}"}
            case_element = ET.SubElement(suite_element, "testcase", attributes)
            if case.tag:
                reason = _NOT_XML_CHARACTER.sub("?", case.reason)
                message = {"message": reason.partition("\n")[0], "type": case.kind}
                ET.SubElement(case_element, case.tag, message).text = reason
    ET.indent(root, " ")
    files.write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _count_cases(cases: Sequence[JunitCase]) -> dict[str, str]:
    tags = Counter(case.tag for case in cases)
    return {
        "tests": str(len(cases)),
        "failures": str(tags["failure"]),
        "errors": str(tags["error"]),
        "skipped": str(tags["skipped"]),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


TestState = Literal["passed", "failed", "crashed", "timeout", "skipped", "flaky"]
_SUITE_TAGS = ("testsuites", "testsuite")
_FAILURE_TAGS = ("failure", "error")
_FLAKY_TAGS = ("flakyFailure", "flakyError")  # of a test that passed in the end
_NOT_RUN_STATUSES = ("notrun", "disabled", "skipped")  # how GoogleTest and CTest say it, in an attribute
_MOST_NAMED = 1000  # of those that are bad
_MOST_HOSTS = 20
_LONGEST_REASON = 200


@dataclass(frozen=True)
class JunitReport:
    """What a file says. ``fault`` is why it does not say all that it should, "" when it does.

    ``when`` is when its first suite began; ``digest`` is the sha256 of the file. ``counts`` says how many
    tests ended how, ``reasons`` why tests that are bad are so, in a line, by their names.
    """

    digest: str
    counts: Counter[TestState] = field(default_factory=Counter)
    reasons: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    when: datetime | None = None
    hosts: tuple[str, ...] = ()


def read_junit_report(file: Path) -> JunitReport:
    """Read a file. What is wrong in it is its ``fault``; UsageError for a report of the smoke tests."""
    reader, digest, fault = _JunitReader(), files.hash_file(file), ""
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.begin_element
    parser.EndElementHandler = reader.end_element
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    try:
        with file.open("rb") as stream:
            parser.ParseFile(stream)
    except _NotJunitError as cause:
        fault = str(cause)
    except (expat.ExpatError, ValueError, LookupError) as broken:  # also an encoding that is none
        fault = f"is empty, truncated or no XML ({broken})"
    if reader.is_smoke:
        raise errors.UsageError(
            f"{file} is a report of the smoke tests, which are not torch's own",
            tip="add the results.json beside it, which names the wheels, too",
        )
    if fault:
        return JunitReport(digest, fault=f"{file.name} {fault}")
    fault = reader.find_fault()
    return JunitReport(
        digest,
        reader.count_tests(),
        reader.reasons,
        f"{file.name} {fault}" if fault else "",
        min(reader.times, default=None),
        tuple(reader.hosts),
    )


class _NotJunitError(Exception):
    """The file is nothing that a test runner writes."""


@dataclass
class _JunitReader:
    """What was read so far. ``claimed`` is what the outermost suites say of their tests."""

    depth: int = 0
    outermost: int = 0
    test: str | None = None
    state: TestState = "passed"
    counts: Counter[TestState] = field(default_factory=Counter)
    tags: int = 0  # of failures and errors: a test can have both
    claimed: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    reasons: dict[str, str] = field(default_factory=dict)  # a test and its cleaning up are two elements
    times: set[datetime] = field(default_factory=set)
    hosts: dict[str, None] = field(default_factory=dict)
    is_smoke: bool = False

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
            self.test = "::".join(filter(None, map(attributes.get, ("classname", "name"))))
            self.state = "skipped" if attributes.get("status", "").lower() in _NOT_RUN_STATUSES else "passed"
            self.reason = ""
        elif tag in _FAILURE_TAGS and self.test is not None:
            self.tags += 1
            message = attributes.get("message", "")
            self.reason = self.reason or message.partition("\n")[0][:_LONGEST_REASON]
            if self.state in {"passed", "skipped"}:
                self.state = _classify_failure(message)
        elif tag == "skipped" and self.state == "passed":
            self.state = "skipped"
        elif tag in _FLAKY_TAGS and self.state == "passed":
            self.state = "flaky"

    def end_element(self, tag: str) -> None:
        self.depth -= 1
        if tag != "testcase" or self.test is None:
            return
        self.counts[self.state] += 1
        if self.state not in {"passed", "skipped", "flaky"} and len(self.reasons) < _MOST_NAMED:
            self.reasons.setdefault(self.test, self.reason)
        self.test = None

    def _read_suite(self, attributes: dict[str, str]) -> None:
        self.is_smoke = self.is_smoke or attributes.get("name", "").split(" ")[0] == SMOKE_SUITE
        if (host := attributes.get("hostname")) and len(self.hosts) < _MOST_HOSTS:
            self.hosts[host] = None
        if (when := _parse_time(attributes.get("timestamp", ""))) is not None:
            self.times = {min({when, *self.times})}
        if self.depth != self.outermost:
            return  # its numbers are in those of the suite that it is in
        for name in ("tests", "failures", "errors"):
            text = attributes.get(name, "0")
            if not text.isdecimal() or len(text) >= 10:
                raise _NotJunitError(f"is no JUnit report: {name} of a suite is no number: {text[:20]}")
            self.claimed[name] += int(text)

    def count_tests(self) -> Counter[TestState]:
        """Return how many tests ended how; failures that are stated and not listed count, too."""
        unlisted = self.claimed["failures"] + self.claimed["errors"] - self.tags
        counts = self.counts.copy()
        if unlisted > 0:
            counts["failed"] += unlisted
        return counts

    def find_fault(self) -> str:
        """Return why a report is not whole: it lists nothing, or less than it says it does."""
        tests = self.counts.total()
        if not tests:
            return "has no test in it"
        # pytest counts the failure of a test and the error of what cleans up after it as two, in one element
        claimed = self.claimed["tests"] - self.claimed["errors"]
        return f"says {claimed} tests and lists {tests}" if tests < claimed else ""


def _classify_failure(message: str) -> TestState:
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

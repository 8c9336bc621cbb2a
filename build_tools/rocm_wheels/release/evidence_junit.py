"""JUnit XML of full test runs. What is truncated, empty or not there is never a pass.

Several files are the shards of one run: its outcome is that of the worst of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.errors import UsageError
from rocm_wheels.release.evidence import Counts, Outcome

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_BAD = ("failure", "error")


@dataclass(frozen=True)
class Reports:
    """What JUnit files say together. ``faults`` are sentences about files that do not say all they should.

    ``when`` is the latest time that a suite gives, None where none does; ``hosts`` are their machines.
    """

    outcome: Outcome
    counts: Counts
    failed: tuple[str, ...]
    faults: tuple[str, ...]
    when: datetime | None
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class _Report:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    names: tuple[str, ...] = ()
    fault: str = ""
    whens: tuple[datetime, ...] = ()
    hosts: tuple[str, ...] = ()


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
    """Read the shards of a run: a file that is not whole is a crash, fewer than expected are ``missing``."""
    each = [_read(file) for file in files]
    faults = [one.fault for one in each if one.fault]
    crashed = len(faults)
    if expected is not None and len(files) < expected:
        faults.append(f"{len(files)} of {expected} reports are there")
    counts = Counts(
        passed=sum(one.passed for one in each),
        failed=sum(one.failed for one in each),
        crashed=crashed,
        skipped=sum(one.skipped for one in each),
    )
    outcome = counts.outcome()
    return Reports(
        outcome="missing" if outcome == "pass" and faults else outcome,
        counts=counts,
        failed=tuple(name for one in each for name in one.names),
        faults=tuple(faults),
        when=max((when for one in each for when in one.whens), default=None),
        hosts=tuple(dict.fromkeys(host for one in each for host in one.hosts)),
    )


def _read(file: Path) -> _Report:
    from xml.etree import ElementTree

    content = file.read_bytes()
    if not content.strip():
        return _Report(fault=f"{file.name} is empty")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as broken:  # also an encoding that is none
        return _Report(fault=f"{file.name} is truncated or no XML ({broken})")
    if root.tag not in {"testsuites", "testsuite"}:
        return _Report(fault=f"{file.name} is no JUnit report: it is <{root.tag}>")
    suites = [root] if root.tag == "testsuite" else list(root.iter("testsuite"))
    if suites and all(suite.get("name", "").split(" ")[0] == "smoke" for suite in suites):
        raise UsageError(
            f"{file} is a report of the smoke tests, which are not torch's own",
            tip="add the results.json beside it, which names the wheels, too",
        )
    tests = list(root.iter("testcase"))
    bad = [test for test in tests if any(test.find(tag) is not None for tag in _BAD)]
    skipped = sum(test.find("skipped") is not None for test in tests if test not in bad)
    claimed = sum(_number(suite, tag) for suite in _outermost(root) for tag in ("failures", "errors"))
    return _Report(
        passed=len(tests) - len(bad) - skipped,
        failed=max(len(bad), claimed),
        skipped=skipped,
        names=tuple(_name(test) for test in bad),
        fault=_fault(file.name, root, tests),
        whens=tuple(_whens(suites)),
        hosts=tuple(host for suite in suites if (host := suite.get("hostname"))),
    )


def _fault(name: str, root: Element, tests: Sequence[Element]) -> str:
    """Return why a report is not whole: it lists nothing, or less than it says it does."""
    if not tests:
        return f"{name} has no test in it"
    # pytest counts the failure of a test and the error of what cleans up after it as two, in one element
    claimed = sum(_number(suite, "tests") - _number(suite, "errors") for suite in _outermost(root))
    return f"{name} says {claimed} tests and lists {len(tests)}" if len(tests) < claimed else ""


def _outermost(root: Element) -> list[Element]:
    """Return the suites whose numbers are counted: those that are in no other suite."""
    return [root] if root.tag == "testsuite" else [child for child in root if child.tag == "testsuite"]


def _number(suite: Element, attribute: str) -> int:
    text = suite.get(attribute, "0")
    return int(text) if text.isdecimal() else 0


def _name(test: Element) -> str:
    return "::".join(part for part in (test.get("classname"), test.get("name")) if part)


def _whens(suites: Sequence[Element]) -> Iterator[datetime]:
    """Yield when suites began; a time without a zone is taken for UTC."""
    for suite in suites:
        try:
            when = datetime.fromisoformat((suite.get("timestamp") or "").replace("Z", "+00:00"))
        except ValueError:
            continue
        yield when if when.tzinfo else when.replace(tzinfo=timezone.utc)

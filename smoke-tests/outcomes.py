"""Write down what came of each test as soon as it is known, and first which tests there are.

A line of JSON each: ``{"planned": [names], "deselected": number}``, then ``{"begun": name}`` and ``{"name",
"outcome", "seconds", "reason"}`` of each. Whoever reads it sees a test that was begun and has no outcome, and
those that were planned and never begun: pytest itself came to an end, or was told to stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

_LINES, _COLUMNS = 15, 500  # of a reason


class Outcomes:
    """A plugin of pytest that writes to one file."""

    def __init__(self, path: Path, is_ours: Callable[[pytest.Item], bool]) -> None:
        """``is_ours`` tells whether a test is of the half that this session runs."""
        self._path, self._is_ours, self._deselected = path, is_ours, 0
        self._reports: list[pytest.TestReport] = []
        path.write_bytes(b"")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note all names."""
        planned = [item.nodeid for item in session.items]
        self._write({"planned": planned, "deselected": self._deselected})

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count what somebody chose not to run; the other half is not meant by that."""
        self._deselected += sum(map(self._is_ours, items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read: its tests are missing."""
        if report.failed:
            self._write(_line(report.nodeid or "collection", "failed", 0.0, reason(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that runs now."""
        self._write({"begun": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a phase."""
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Put the phases of a test together."""
        reports, self._reports = self._reports, []
        bad = [one for one in reports if one.failed]
        skipped = [one for one in reports if one.skipped]
        deciding = (bad or skipped or [one for one in reports if one.when == "call"] or reports)[0]
        told = dict(deciding.user_properties)
        outcome = str(told.get("outcome", "failed")) if bad else "skipped" if skipped else "passed"
        seconds = sum(one.duration for one in reports)
        measured = {name: value for name, value in told.items() if isinstance(value, (int, float))}
        line = _line(nodeid, outcome, seconds, reason(deciding))
        self._write({**line, "measurements": measured} if measured else line)

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def reason(report: Any) -> str:
    """Return why a test failed or was skipped, or what a passed one measured: a line or a few."""
    told = dict(getattr(report, "user_properties", ()))
    if report.skipped and isinstance(report.longrepr, (tuple, list)):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if not report.failed:
        return str(told.get("said", ""))
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None else str(report.longrepr)
    return "\n".join(line[:_COLUMNS] for line in text.splitlines()[:_LINES])


def _line(name: str, outcome: str, seconds: float, why: str) -> dict[str, Any]:
    return {"name": name, "outcome": outcome, "seconds": round(seconds, 3), "reason": why}

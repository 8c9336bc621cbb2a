"""A plugin of pytest, in the Python that is tested: it writes down at once what came of each test.

The option --rocm-wheels-recording names a file of JSON: ``outcomes`` is the file that is written to, ``done``
are names of tests that were run before, ``left_out`` those that are not to be run (``FILE::name`` is meant in
every class), ``only`` those that alone are to be run, null for all; ``limit`` the seconds that one may take:
then its process says where it is, and ends; ``torch`` is the folder of the torch that is tested, "" for any:
where tests import another one, none is run.

What is written is a line of JSON each: ``{"planned": [names], "left_out": [names], "unchosen": number}``,
then ``{"begun": name}`` and ``{"name", "outcome", "seconds", "reason"}`` of each test, once torch uses GPUs
``{"devices": [names]}``, at last ``{"finished": exit code}``: a process that ends without it was ended.
Nothing of rocm-wheels is imported: it is not there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

_OPTION = "--rocm-wheels-recording"
_LINES, _COLUMNS = 15, 500  # of a reason


class Recorder:
    """Writes to one file."""

    def __init__(self, said: dict[str, Any], config: pytest.Config) -> None:
        """``said`` is what is described above."""
        # torch has its pytest.ini above test/, and names of tests begin there; ours begin in test/
        inner = os.path.relpath(config.invocation_params.dir, config.rootpath).replace(os.sep, "/")
        self._inner = "" if inner.startswith(".") else f"{inner}/"
        self._path = Path(said["outcomes"])
        self._done, self._left_out = frozenset(said["done"]), frozenset(said["left_out"])
        self._only = None if said["only"] is None else frozenset(said["only"])
        self._limit, self._torch = float(said["limit"]), str(said["torch"])
        self._process, self._parent = os.getpid(), os.getppid()
        self._devices_told = False
        self._stderr = os.dup(_stderr())  # pytest captures the other one
        self._unchosen = 0
        self._own = 0  # tests that this plugin deselects
        self._left: list[str] = []
        self._reports: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take away what was run before, and what is not to be run: after all others have chosen."""
        names = {item: self._named(item.nodeid) for item in items}  # tens of thousands
        self._left = [name for name in names.values() if _names(name) & self._left_out]
        without = self._done.union(self._left)
        if self._only is not None:
            without = without.union(name for name in names.values() if not _names(name) & self._only)
        gone = [item for item, name in names.items() if name in without]
        if gone:
            items[:] = [item for item, name in names.items() if name not in without]
            self._own += len(gone)
            config.hook.pytest_deselected(items=gone)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what somebody chose not to run."""
        self._unchosen += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note all names, those of a run before as well. Another torch than that which is tested ends it."""
        own = getattr(sys.modules.get("torch"), "__file__", None)
        if own and self._torch and not Path(own).parent.samefile(self._torch):
            why = f"the tests import torch from {own}, and {self._torch} is tested"
            self._outcome("torch", "failed", 0.0, f"not read: {why}")
            pytest.exit(why, returncode=4)
        planned = [self._named(item.nodeid) for item in session.items]
        self._write({"planned": planned, "left_out": self._left, "unchosen": self._unchosen - self._own})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read, or skips itself as a whole."""
        name = self._named(report.nodeid) if report.nodeid else "collection"
        if report.failed:
            self._outcome(name, "failed", 0.0, f"not read: {_said(report)}")
        elif report.skipped:
            self._outcome(name, "skipped", 0.0, _said(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that runs now. Where nobody is there any more to look after it, none does."""
        if os.getpid() == self._process and os.getppid() != self._parent:
            pytest.exit("what started these tests was killed")
        self._reports = []
        self._write({"begun": self._named(nodeid)})
        faulthandler.dump_traceback_later(self._limit, file=self._stderr, exit=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a phase, of a part of a test, or of one try of several."""
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Put together what belongs to a test; one that passed when it was run again says so."""
        faulthandler.cancel_dump_traceback_later()
        if not self._devices_told and os.getpid() == self._process and (devices := _devices()):
            self._devices_told = True
            self._write({"devices": devices})
        nodeid = self._named(nodeid)
        reports, self._reports = self._reports, []
        again = [one for one in reports if str(one.outcome) == "rerun"]
        rest = [one for one in reports if one not in again]
        bad, skipped = [one for one in rest if one.failed], [one for one in rest if one.skipped]
        seconds = sum(one.duration for one in reports)
        if bad:
            self._outcome(nodeid, "failed", seconds, _said(bad[0]))
        elif skipped and all(one in skipped or one.when != "call" for one in rest):
            self._outcome(nodeid, "skipped", seconds, _said(skipped[0]))
        elif not any(one.when == "call" for one in rest):
            self._outcome(nodeid, "failed", seconds, "it was begun, and its end is not told")
        else:
            words = f"passed after it had failed {len(again)} times: {_said(again[0])}" if again else ""
            self._outcome(nodeid, "passed", seconds, words)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note that pytest came to its end."""
        self._write({"finished": int(exitstatus)})

    def _named(self, nodeid: str) -> str:
        return nodeid.removeprefix(self._inner)

    def _outcome(self, name: str, outcome: str, seconds: float, reason: str) -> None:
        self._write({"name": name, "outcome": outcome, "seconds": round(seconds, 3), "reason": reason})

    def _write(self, line: dict[str, Any]) -> None:
        if os.getpid() != self._process:
            return  # a test that forked: what the child goes on to do is no outcome
        with self._path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def _names(nodeid: str) -> set[str]:
    """Return the names that a test is meant by: with its class, and without."""
    file, _, test = nodeid.partition("::")
    return {nodeid, f"{file}::{test.rpartition('::')[2]}"}


def _devices() -> list[str]:
    """Return the architectures of the GPUs that torch uses; none before a test made it begin to."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return []
        found = [cuda.get_device_properties(number) for number in range(cuda.device_count())]
    except Exception:  # a test left the driver in ruins, or a stand-in: another one may tell
        return []
    return sorted({str(getattr(one, "gcnArchName", "") or one.name) for one in found})


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):  # replaced by something without a number
        return 2


def _said(report: Any) -> str:
    """Return why a test failed or was skipped, in a few lines."""
    if reason := getattr(report, "wasxfail", ""):
        return f"expected to fail: {reason}"
    longrepr = report.longrepr
    if report.skipped and isinstance(longrepr, (tuple, list)):
        return str(longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None and crash.message else str(longrepr).strip()
    lines = text.splitlines()
    shown = lines if crash is not None else lines[-_LINES:]  # of a traceback the end says what happened
    return "\n".join(line[:_COLUMNS] for line in shown[:_LINES])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(_OPTION, default="", help="what rocm-wheels is to know of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, where that is asked for."""
    if path := config.getoption(_OPTION):
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        config.pluginmanager.register(Recorder(said, config), "rocm-wheels-recorder")

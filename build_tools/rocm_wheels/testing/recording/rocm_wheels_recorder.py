"""A plugin of pytest, in the Python that is tested: it writes down at once what came of each test.

The option --rocm-wheels-recording names a file of JSON: ``outcomes`` is the file that is written to,
``done`` are names of tests that were run before, ``left_out`` those that are not to be run
(``FILE::name`` is meant in every class), ``only`` those that alone are to be run, null for all; ``limit``
the seconds that one may take: then its process says where it is, and ends; ``torch`` is the folder of the
torch that is tested, "" for any: where tests import another one, none is run.

What is written is a line of JSON each: ``{"planned": [names], "left_out": [names], "unchosen": number}``,
then ``{"begun": name, "at": seconds since 1970}`` and ``{"name", "outcome", "seconds", "reason"}`` of each
test, with ``measurements`` where it recorded numbers (``record_property``); once torch uses GPUs
``{"devices": [names]}``, at last ``{"finished": exit code}``: a process that ends without it was ended.

torch's run_test.py runs some files several times, for each backend, and says so in a variable: names of tests
have it behind them then (``NAME @dist-nccl-init-env``).

Nothing of rocm-wheels is imported: it is not there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_OPTION = "--rocm-wheels-recording"
_LINES, _COLUMNS = 15, 500  # of a reason


class Recorder:
    """Writes to one file."""

    def __init__(self, options: dict[str, Any], config: pytest.Config) -> None:
        """``options`` is what is described above."""
        # torch has its pytest.ini above test/, and names of tests begin there; ours begin in test/
        inner = os.path.relpath(config.invocation_params.dir, config.rootpath).replace(os.sep, "/")
        self._inner = "" if inner.startswith(".") else f"{inner}/"
        source = os.environ.get("TEST_REPORT_SOURCE_OVERRIDE", "")
        self._source = f" @{source}" if source else ""
        self._path = Path(options["outcomes"])
        self._done, self._left_out = frozenset(options["done"]), frozenset(options["left_out"])
        self._only = None if options["only"] is None else frozenset(options["only"])
        self._limit, self._torch = float(options["limit"]), str(options["torch"])
        self._process, self._parent = os.getpid(), os.getppid()
        self._devices_written = False
        self._stderr = os.dup(_find_stderr())  # pytest captures the other one
        self._unchosen = 0
        self._own_deselected = 0  # tests that this plugin deselects
        self._left_out_names: list[str] = []
        self._reports: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take away what was run before, and what is not to be run: after all others have chosen."""
        names = {item: self._name_test(item.nodeid) for item in items}  # tens of thousands
        self._left_out_names = [name for name in names.values() if self._list_meant(name) & self._left_out]
        without = self._done.union(self._left_out_names)
        if self._only is not None:
            without = without.union(
                name for name in names.values() if not self._list_meant(name) & self._only
            )
        deselected = [item for item, name in names.items() if name in without]
        if deselected:
            items[:] = [item for item, name in names.items() if name not in without]
            self._own_deselected += len(deselected)
            config.hook.pytest_deselected(items=deselected)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what somebody chose not to run."""
        self._unchosen += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note all names, those of a run before as well. Another torch than that which is tested ends it."""
        torch_file = getattr(sys.modules.get("torch"), "__file__", None)
        if torch_file and self._torch and not Path(torch_file).parent.samefile(self._torch):
            why = f"the tests import torch from {torch_file}, and {self._torch} is tested"
            self._write_outcome("torch", "failed", 0.0, f"not read: {why}")
            pytest.exit(why, returncode=4)
        planned = [self._name_test(item.nodeid) for item in session.items]
        self._write_line(
            {
                "planned": planned,
                "left_out": self._left_out_names,
                "unchosen": self._unchosen - self._own_deselected,
            }
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read, or skips itself as a whole."""
        name = self._name_test(report.nodeid) if report.nodeid else "collection"
        if report.failed:
            self._write_outcome(name, "failed", 0.0, f"not read: {_describe_report(report)}")
        elif report.skipped:
            self._write_outcome(name, "skipped", 0.0, _describe_report(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that runs now. Where nobody is there any more to look after it, none does."""
        if os.getpid() == self._process and os.getppid() != self._parent:
            pytest.exit("what started these tests was killed")
        self._reports = []
        self._write_line({"begun": self._name_test(nodeid), "at": time.time()})
        faulthandler.dump_traceback_later(self._limit, file=self._stderr, exit=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a phase, of a part of a test, or of one try of several."""
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Put together what belongs to a test; one that pytest-rerunfailures ran again is flaky."""
        faulthandler.cancel_dump_traceback_later()
        if not self._devices_written and os.getpid() == self._process and (devices := _list_devices()):
            self._devices_written = True
            self._write_line({"devices": devices})
        nodeid = self._name_test(nodeid)
        reports, self._reports = self._reports, []
        again = [part for part in reports if str(part.outcome) == "rerun"]
        rest = [part for part in reports if part not in again]
        bad, skipped = [part for part in rest if part.failed], [part for part in rest if part.skipped]
        seconds = sum(part.duration for part in reports)
        if bad:
            self._write_outcome(nodeid, "failed", seconds, _describe_report(bad[0]))
        elif skipped and all(part in skipped or part.when != "call" for part in rest):
            self._write_outcome(nodeid, "skipped", seconds, _describe_report(skipped[0]))
        elif not any(part.when == "call" for part in rest):
            self._write_outcome(nodeid, "failed", seconds, "it started and did not finish")
        else:
            properties = [pair for part in rest for pair in part.user_properties]
            measured = {str(name): value for name, value in properties if isinstance(value, (int, float))}
            tries = f"failed {len(again)} time{'s' * (len(again) > 1)}, then passed in the same process"
            words = f"{tries} (--reruns): {_describe_report(again[0])}" if again else ""
            self._write_outcome(nodeid, "flaky" if again else "passed", seconds, words, measured)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note that pytest came to its end."""
        self._write_line({"finished": int(exitstatus)})

    def _name_test(self, nodeid: str) -> str:
        return nodeid.removeprefix(self._inner) + self._source

    def _list_meant(self, name: str) -> set[str]:
        """Return the names that a test is meant by: with its class, and without."""
        nodeid = name.removesuffix(self._source)
        file, _, test = nodeid.partition("::")
        return {nodeid, f"{file}::{test.rpartition('::')[2]}"}

    def _write_outcome(
        self,
        name: str,
        outcome: str,
        seconds: float,
        reason: str,
        measurements: dict[str, float] | None = None,
    ) -> None:
        line = {"name": name, "outcome": outcome, "seconds": round(seconds, 3), "reason": reason}
        self._write_line({**line, "measurements": measurements} if measurements else line)

    def _write_line(self, line: dict[str, Any]) -> None:
        if os.getpid() != self._process:
            return  # a test that forked: what the child goes on to do is no outcome
        with self._path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def _list_devices() -> list[str]:
    """Return the architectures of the GPUs that torch uses; none before a test made it begin to."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return []
        properties = [cuda.get_device_properties(number) for number in range(cuda.device_count())]
    except Exception:  # a test left the driver in ruins, or a stand-in: another one may tell
        return []
    return sorted({str(getattr(device, "gcnArchName", "") or device.name) for device in properties})


def _find_stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):  # replaced by something without a number
        return 2


def _describe_report(report: Any) -> str:
    """Return why a test failed or was skipped, in a few lines."""
    if reason := getattr(report, "wasxfail", ""):
        return f"expected to fail: {reason}"
    longrepr = report.longrepr
    if report.skipped and isinstance(longrepr, (tuple, list)):
        return str(longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    text = str(crash.message) if crash is not None and crash.message else str(longrepr).strip()
    lines = text.splitlines()
    kept_lines = lines if crash is not None else lines[-_LINES:]  # of a traceback the end says what happened
    return "\n".join(line[:_COLUMNS] for line in kept_lines[:_LINES])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(_OPTION, default="", help="what rocm-wheels is to know of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, where that is asked for."""
    if path := config.getoption(_OPTION):
        options = json.loads(Path(path).read_text(encoding="utf-8"))
        config.pluginmanager.register(Recorder(options, config), "rocm-wheels-recorder")

"""A plugin of pytest, in the Python that is tested: it writes down at once what came of each test.

The option --rocm-wheels-recording names a file of JSON: ``outcomes`` is the file that is written to,
``done`` are names of tests that were run before, ``left_out`` those that are not to be run
(``FILE::name`` is meant in every class), ``only`` those that alone are to be run, null for all; ``limit``
the seconds that one may take: then its process says where it is, and ends; with ``own_limits`` the limit that
a test marks itself with goes before it. ``torch`` is the folder of the torch that is
tested, "" for any: where tests import another one, none is run.

What is written is a line of JSON each: ``{"planned": [names], "left_out": [names], "unchosen": number}``,
then ``{"begun": name, "at": seconds since 1970, "limit": seconds}`` and ``{"name", "outcome", "seconds",
"detail"}`` of each test, with ``measurements`` where it recorded numbers (``record_property``) and ``tries``
where it was run again; once torch uses GPUs ``{"devices": [names]}``, ``{"poisoned": why}`` where a test that
failed left a GPU that does not calculate any more in this process, at last ``{"finished": exit code}``: a
process that ends without it was ended.

torch's run_test.py runs some files several times, for each backend, and says so in a variable: names of tests
have it behind them then (``NAME @dist-nccl-init-env``).

Nothing of rocm-wheels is imported: it is not there.
"""

from __future__ import annotations

import faulthandler
import hashlib
import itertools
import json
import math
import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import _pytest.capture
import pytest

_OPTION = "--rocm-wheels-recording"
_LINES, _COLUMNS, _LONGEST = 15, 500, 3500  # of why a test failed
_LONGEST_NAME = 1000
_WATCH_SECONDS = 0.5
_MOST_PRINTED = 64 << 20  # bytes of a test

if _printed := os.environ.pop("ROCM_TEST_PRINTED", ""):
    _numbers = itertools.count()

    def _open_named(**_: object) -> Any:
        """Open a file with a name: what is left of what a test printed that takes its process along."""
        return Path(_printed, str(next(_numbers))).open("w+b", buffering=0)

    _pytest.capture.TemporaryFile = _open_named  # type: ignore[attr-defined, assignment]


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
        self._limit, self._own_limits = float(options["limit"]), bool(options["own_limits"])
        self._torch = str(options["torch"])
        self._process, self._parent = os.getpid(), os.getppid()
        self._devices_written = False
        self._stderr = os.dup(_find_stderr())  # pytest captures the other one
        self._unchosen = 0
        self._own_deselected = 0  # tests that this plugin deselects
        self._left_out_names: list[str] = []
        self._reports: list[pytest.TestReport] = []
        self._limits: dict[str, float] = {}
        threading.Thread(target=self._watch, daemon=True).start()
        if os.name != "nt":  # no image of memory is left of a crash, neither the kernel's nor that of a GPU
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def _watch(self) -> None:
        """End all that these tests started where nobody is there any more to look after them, and a process
        that prints without end: a kernel's printf in a loop fills a disk."""
        while os.name != "nt" and os.getpid() == self._process:
            if os.getppid() != self._parent:
                if os.getpgrp() == self._process:
                    os.killpg(self._process, signal.SIGKILL)
                os.kill(self._process, signal.SIGKILL)
            for number in (1, 2):  # files, while a test runs
                status = os.fstat(number)
                if stat.S_ISREG(status.st_mode) and status.st_size > _MOST_PRINTED:
                    why = f"stopped: it printed more than {_MOST_PRINTED >> 20} MB\n"
                    os.ftruncate(number, 0)
                    os.write(self._stderr, why.encode())
                    os._exit(1)
            time.sleep(_WATCH_SECONDS)

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
        for item in items:
            if self._own_limits and (mark := item.get_closest_marker("limit")):
                self._limits[item.nodeid] = mark.args[0]

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
        self._reports = []
        limit = self._limits.get(nodeid, self._limit)
        self._write_line({"begun": self._name_test(nodeid), "at": time.time(), "limit": limit})
        faulthandler.dump_traceback_later(limit, file=self._stderr, exit=True)

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
            if os.getpid() == self._process and (why := _find_poison()):
                self._write_line({"poisoned": why})
                pytest.exit(why, returncode=3)  # what is behind it begins in a fresh process
        elif skipped and all(part in skipped or part.when != "call" for part in rest):
            self._write_outcome(nodeid, "skipped", seconds, _describe_report(skipped[0]))
        elif not any(part.when == "call" for part in rest):
            self._write_outcome(nodeid, "failed", seconds, "it started and did not finish")
        else:
            properties = dict(pair for part in rest for pair in part.user_properties)
            detail, more = str(properties.get("said", "")), dict[str, object]()
            measured = {
                str(name): value
                for name, value in properties.items()
                if isinstance(value, (int, float)) and math.isfinite(value)
            }
            if measured:
                more["measurements"] = measured
            if again:
                times = f"{len(again)} time{'s' * (len(again) > 1)}"
                first = _describe_report(again[0])
                detail = f"failed {times}, then passed in the same process (--reruns): {first}"
                more["tries"] = 1 + len(again)
            self._write_outcome(nodeid, "passed", seconds, detail, **more)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note that pytest came to its end."""
        self._write_line({"finished": int(exitstatus)})

    def _name_test(self, nodeid: str) -> str:
        name = nodeid.removeprefix(self._inner)
        if len(name) > _LONGEST_NAME:  # an argument of megabytes is no name
            name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        return name + self._source

    def _list_meant(self, name: str) -> set[str]:
        """Return the names that a test is meant by: with its class, and without."""
        nodeid = name.removesuffix(self._source)
        file, _, test = nodeid.partition("::")
        return {nodeid, f"{file}::{test.rpartition('::')[2]}"}

    def _write_outcome(self, name: str, outcome: str, seconds: float, detail: str, **more: object) -> None:
        # a reason may hold megabytes, and bytes that are no text: a record of results takes neither
        detail = detail[:_LONGEST].encode(errors="backslashreplace").decode()
        line = {"name": name, "outcome": outcome, "seconds": round(seconds, 3), "detail": detail, **more}
        self._write_line(line)

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


def _find_poison() -> str:
    """Say why the GPU that torch uses does not calculate any more in this process, "" where it does.

    An error of the device stays with its process: each test behind it would fail by it.
    """
    torch: Any = sys.modules.get("torch")
    try:
        if not torch.cuda.is_initialized():
            return ""
    except Exception:  # no torch, or a stand-in
        return ""
    try:
        torch.cuda.synchronize()
        numbers = torch.arange(64, dtype=torch.int64)
        wrong = int((numbers.to("cuda") * 3).sum()) != int(numbers.sum()) * 3
    except Exception as cause:
        return f"since this test failed, the GPU refuses to calculate in its process: {cause}"
    return "since this test failed, the GPU calculates wrong sums in its process" if wrong else ""


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
    return "\n".join(line[:_COLUMNS] for line in kept_lines[:_LINES])[:_LONGEST]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(_OPTION, default="", help="what rocm-wheels is to know of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, where that is asked for."""
    if path := config.getoption(_OPTION):
        options = json.loads(Path(path).read_text(encoding="utf-8"))
        config.pluginmanager.register(Recorder(options, config), "rocm-wheels-recorder")

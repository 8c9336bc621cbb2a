"""Run a test in a process of its own, with a limit, and end everything that it started.

Whatever a test does to its process (a crash, a hang, a device that fails for good), the next one begins in a
fresh one. On POSIX the process is a fork of pytest's own, which has imported torch and never touched a
device: forking is safe until then, and spares every test the seconds of the import. Elsewhere, and with
``--smoke-processes spawn``, it is a new interpreter that runs this one test.

The process leads a session: everything in that session is killed when the test has ended, in whatever way.
Its reports come back through a file, and so does what it printed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from processes import children, describe, end_of, end_session, end_strays, end_with_parent, is_over

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"  # Apple's libraries do not survive a fork
_GRACE = 2.0  # seconds between writing down where a test hangs and ending it
MOST_PRINTED = 64 << 20  # bytes that a test may print; a kernel's printf in a loop fills a disk
_SHOWN_LINES = 40
_SENT, _PRINTED = "reports", "printed"  # files of a test
# frames of a traceback (the innermost is first) that are not of the test: below it there is only pytest
_OF_PYTEST = re.compile(
    r'\s+File "([^"]*[/\\](_pytest|pluggy|pytest)[/\\]'
    r'|[^"]*(isolation|conftest|runpy|start_pytest)\.py|<frozen runpy>)'
)


class Ended(NamedTuple):
    """How a process ended: exit code (negative: a signal), None when it was stopped, and why that was.

    ``left``: it is still there, because the kernel does not let it die.
    """

    code: int | None
    seconds: float
    why: str = ""
    left: bool = False


def end_on_signals() -> None:
    """Let SIGTERM be an interruption: what runs in sessions of its own would outlive us."""

    def interrupt(_signal: int, _frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@dataclass
class RunningTest:
    """A test that runs in a process of its own, until ``finish_test``; ``why`` it was stopped, if it was."""

    item: pytest.Item
    pid: int
    poll: Callable[[], int | None]
    folder: tempfile.TemporaryDirectory[str]
    begun: float
    limit: float
    code: int | None = None
    seconds: float = 0.0
    why: str = ""

    @property
    def is_running(self) -> bool:
        """It has neither ended nor reached a limit, as far as the last look tells."""
        return self.code is None and not self.why

    def look(self) -> None:
        """See whether it has ended, or come to a limit: that of its time, or of what it may print."""
        self.seconds = time.monotonic() - self.begun
        self.code = self.poll()
        if self.code is not None:
            return
        if self.seconds >= self.limit + _GRACE:
            self.why = f"stopped after {self.limit:g} s"
        elif Path(self.folder.name, _PRINTED).stat().st_size > MOST_PRINTED:
            self.why = f"stopped: it printed more than {MOST_PRINTED >> 20} MB"
        if self.why:
            end_session(self.pid)  # now, and not when its turn comes


def start_test(item: pytest.Item, *, limit: float, fork: bool, words: list[str]) -> RunningTest:
    """Start a test in a process of its own.

    ``words`` are what a new interpreter is told besides the test, when it is not a fork.
    """
    folder = tempfile.TemporaryDirectory(prefix="smoke-", ignore_cleanup_errors=True)
    sent, printed = Path(folder.name, _SENT), Path(folder.name, _PRINTED)
    printed.touch()
    begun = time.monotonic()
    if fork:
        pid, poll = _fork(item, sent, printed, limit)
    else:
        pid, poll = _spawn(item, sent, printed, [*words, "-o", f"faulthandler_timeout={limit}"])
    return RunningTest(item, pid, poll, folder, begun, limit)


def end_test(process: RunningTest) -> Ended:
    """End a test and all that is in its session."""
    end_session(process.pid)
    left = not is_over(process.poll)
    if left:
        process.why += f"; process {process.pid} cannot be ended: it waits in the kernel"
    return Ended(None if process.why else process.code, process.seconds, process.why, left)


def finish_test(process: RunningTest) -> list[pytest.TestReport]:
    """End a test that is over; return its reports, made here when it did not live to send them."""
    item, printed = process.item, Path(process.folder.name, _PRINTED)
    with process.folder:
        ended = end_test(process)
        reports = _received(item, Path(process.folder.name, _SENT))
        said = end_of(printed)
    fault = _fault(ended, reports)
    if fault is not None:
        before = [one for one in reports if one.when == "setup"]
        reports = [*before, _died(item, *fault, said=said, seconds=ended.seconds)]
    elif said.strip():
        for report in reports:
            if report.when == "call" or report.failed:
                report.sections.append(("printed", "\n".join(said.splitlines()[-_SHOWN_LINES:])))
                break
    return reports


class Runner:
    """Runs the tests of a session, up to ``jobs`` at once; their reports are asked for in their order."""

    def __init__(self, start: Callable[[pytest.Item], RunningTest | None], jobs: int) -> None:
        """``start`` starts a test, or returns None when there is nothing to run."""
        self._start, self._jobs = start, jobs
        self._processes: dict[str, RunningTest | None] = {}
        self._started: set[str] = set()
        self._before = children()

    def run(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Wait for a test, while others go on; return its reports, none when there was nothing to run."""
        self._start_once(item)
        pause = 0.002
        while self._go_on(item):
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        process = self._processes[item.nodeid]
        reports = [] if process is None else finish_test(process)
        del self._processes[item.nodeid]
        self._end_strays()
        return reports

    def end(self) -> None:
        """End all that still runs."""
        while self._processes:
            _, process = self._processes.popitem()
            if process is not None:
                end_test(process)
                process.folder.cleanup()
        self._end_strays()

    def _start_once(self, item: pytest.Item) -> bool:
        """Start a test that was not started yet; tell whether a process runs for that."""
        if item.nodeid in self._started:
            return False
        self._started.add(item.nodeid)
        self._processes[item.nodeid] = self._start(item)
        return self._processes[item.nodeid] is not None

    def _go_on(self, item: pytest.Item) -> bool:
        """Look after all that runs, start what may run beside it, and tell whether this test still runs."""
        running = [process for process in self._processes.values() if process and process.is_running]
        for process in running:
            process.look()
        free = self._jobs - sum(process.is_running for process in running)
        for other in item.session.items if self._jobs > 1 else ():
            if free <= 0:
                break
            free -= self._start_once(other)
        awaited = self._processes[item.nodeid]
        return awaited is not None and awaited.is_running

    def _end_strays(self) -> None:
        """End what tests left behind outside of their sessions, unless one runs that it may be of."""
        if not any(self._processes.values()):
            end_strays(self._before)


def send(config: pytest.Config, reports: list[pytest.TestReport], path: Path) -> None:
    """Write reports for the process that waits, the file whole."""
    lines = [config.hook.pytest_report_to_serializable(config=config, report=one) for one in reports]
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(lines, default=str), encoding="utf-8")
    beside.replace(path)


def _fork(item: pytest.Item, sent: Path, printed: Path, limit: float) -> tuple[int, Callable[[], int | None]]:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # BLAS has threads of its own, and has seen to forks; Python 3.12 warns of every thread
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            end_with_parent(signal.SIGKILL)
            _become_quiet(item.config, printed)
            faulthandler.enable(all_threads=True)
            faulthandler.dump_traceback_later(limit)
            send(item.config, runtestprotocol(item, log=False), sent)
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    known: list[int] = []

    def poll() -> int | None:
        if not known:
            done, status = os.waitpid(pid, os.WNOHANG)
            known.extend([os.waitstatus_to_exitcode(status)] if done else [])
        return known[0] if known else None

    return pid, poll


def _become_quiet(config: pytest.Config, printed: Path) -> None:
    """Let everything that this process prints go to a file, from whatever language, unless it is wanted."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if config.getoption("capture") == "no":
        return
    if capture is not None:
        capture.stop_global_capturing()
        config.pluginmanager.unregister(capture)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with printed.open("ab") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        for number in (1, 2)
    )


def _spawn(
    item: pytest.Item, sent: Path, printed: Path, words: list[str]
) -> tuple[int, Callable[[], int | None]]:
    file, _, rest = item.nodeid.partition("::")
    test = f"{item.path}::{rest}" if rest else file
    start = Path(__file__).with_name("start_pytest.py")
    argv = [sys.executable, str(start), "-q", "-s", "-p", "no:cacheprovider", *words]
    argv += [f"--rootdir={item.config.rootpath}", f"--smoke-one={sent}", test]
    with printed.open("ab") as sink:
        child = subprocess.Popen(
            argv,
            cwd=item.config.rootpath,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=os.name != "nt",
        )
    return child.pid, child.poll


def _received(item: pytest.Item, path: Path) -> list[pytest.TestReport]:
    if not path.is_file():
        return []
    config = item.config
    lines = json.loads(path.read_text(encoding="utf-8"))
    reports = [config.hook.pytest_report_from_serializable(config=config, data=line) for line in lines]
    for report in reports:
        if isinstance(report.longrepr, list):
            report.longrepr = tuple(report.longrepr)  # of a skip; JSON has no tuples
        report.user_properties = [tuple(one) for one in report.user_properties]
    return reports


def _fault(ended: Ended, reports: list[pytest.TestReport]) -> tuple[str, str] | None:
    """Return the outcome that the test's own reports do not tell: a crash, or a limit."""
    if ended.code is None:
        return "failed" if "printed" in ended.why and not ended.left else "timeout", ended.why
    whole = any(one.when == "teardown" for one in reports)
    if ended.code < 0 or not whole:
        return "crashed", describe(ended.code)
    return None


def _died(item: pytest.Item, outcome: str, how: str, *, said: str, seconds: float) -> pytest.TestReport:
    spoken = [line.rstrip() for line in said.splitlines() if line.strip()]
    lines = [line for line in spoken if not _OF_PYTEST.match(line)][-_SHOWN_LINES:]
    text = how + "".join(f"\n  | {line}" for line in lines)
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when="call",
        user_properties=[*item.user_properties, ("outcome", outcome), ("said", how)],
        duration=seconds,
    )

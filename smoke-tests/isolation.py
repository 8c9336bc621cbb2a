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
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from processes import children, describe, end_of, end_session, end_strays, end_with_parent, is_over

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"  # Apple's libraries do not survive a fork
_GRACE = 2.0  # seconds between writing down where a test hangs and ending it
MOST_PRINTED = 64 << 20  # bytes that a test may print; a kernel's printf in a loop fills a disk
_SHOWN_LINES = 40
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


def run_apart(item: pytest.Item, *, limit: float, fork: bool, words: list[str]) -> list[pytest.TestReport]:
    """Run a test in a process of its own; return its reports, made here when it did not live to send them.

    ``words`` are what a new interpreter is told besides the test, when it is not a fork.
    """
    with tempfile.TemporaryDirectory(prefix="smoke-", ignore_cleanup_errors=True) as name:
        sent, printed = Path(name, "reports"), Path(name, "printed")
        printed.touch()
        begun, known = time.monotonic(), children()
        if fork:
            pid, poll = _fork(item, sent, printed, limit)
        else:
            pid, poll = _spawn(item, sent, printed, [*words, "-o", f"faulthandler_timeout={limit}"])
        ended = _wait(pid, poll, printed, known, begun=begun, limit=limit)
        reports = _received(item, sent)
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


def _wait(
    pid: int, poll: Callable[[], int | None], printed: Path, known: set[int], *, begun: float, limit: float
) -> Ended:
    """Wait for the end of a test or for that of its limits; then end all that it started."""
    pause, why = 0.002, ""
    try:
        while (code := poll()) is None and not why:
            if time.monotonic() >= begun + limit + _GRACE:
                why = f"stopped after {limit:g} s"
            elif printed.stat().st_size > MOST_PRINTED:
                why = f"stopped: it printed more than {MOST_PRINTED >> 20} MB"
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        seconds = time.monotonic() - begun
    finally:
        end_session(pid)
        end_strays({*known, pid})
        left = not is_over(poll)
    if left:
        why += f"; process {pid} cannot be ended: it waits in the kernel"
    return Ended(None if why else code, seconds, why, left)


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

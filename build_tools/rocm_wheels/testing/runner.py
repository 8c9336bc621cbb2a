"""Run a suite of tests, file by file, on one GPU or on none; carry on where a run was ended.

A test that takes its process with it costs nothing but itself: pytest is begun again behind it, once the
GPU has shown that it still calculates; so it is where a test left a GPU that refuses its process. A test that
failed is tried again, alone in a fresh process. Several GPUs take files from one list; what one of them was
at when it got lost, another one carries on. ``results.json`` is there from the start, and says what is
missing whatever ends the run; ``junit.xml`` comes at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import queue
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Literal

from rocm_wheels import __version__
from rocm_wheels.audit import import_check
from rocm_wheels.core import errors, log, parallel, process, tables
from rocm_wheels.core.files import lock_folder, write_atomically
from rocm_wheels.models import project_names, test_results, tested_machine, torch_tests
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.testing import installed_torch
from rocm_wheels.testing.journal import Journal, make_test, note, note_test, read_journal
from rocm_wheels.testing.places import GpuPlace
from rocm_wheels.testing.results import JUNIT_FILE, RESULTS_FILE, write_junit, write_results

TOOL_NAME = f"rocm-wheels {__version__} tests"
NO_KNOWN_TESTS = torch_tests.KnownTests((), date.min)
WORK_FOLDER = "run"  # journals and logs, beside results.json and junit.xml
_STATE_FILE = "state.json"  # what run it is of
_GOOD_EXIT_CODES = (0, 1, 5)  # pytest's exit codes: passed, some failed, no tests
_REFUSAL_LINE = re.compile(r".*: error: (.+)")  # what argparse says of a command line
_MAX_STARTS = 50  # of one file: each begins behind a test that ended the one before
_PLUGIN_NAME = "rocm_wheels_recorder"
_MARK_VARIABLE = "ROCM_TEST_PROCESS"
_KEPT_LINES, _SHOWN_LINES = 80, 4  # lines
_LONGEST_TEXT = 4000  # characters, as results take them
_MOST_PRINTED = 1 << 18  # bytes, of the end of what a test printed
_TRACE_LINE = re.compile(r"(Current t|T)hread 0x.*")  # faulthandler: what follows is where it was
_TIMEOUT_LINE = re.compile(r"Timeout \([0-9:.]+\)!$")  # likewise: a test took too long
_STOPPED = ("stopped", "")  # how a process ends that leaves tests for another one
_LEFT_OUT = "left out"  # and where a file ends well before pytest begins: what it tests is not there
# seconds that a process may say nothing beside the limit of a test: it starts, reads tests
_QUIET_SECONDS = 300.0
_LONGEST_LIMIT = 1800.0  # seconds that a test may mark itself with
_LOOK_SECONDS = 0.2  # between looks whether a process is over
_KEEP_SECONDS = 1.0  # how old the results on the disk may be while tests run


@dataclass(frozen=True)
class TestFile:
    """What one process of pytest runs: a file of the folder of tests (``test_nn``), or a share of its tests.

    ``paths`` are several files that one process runs, under one name. ``environment`` is its own alone.
    ``run_by`` says whether pytest runs it, or torch's run_test.py with ``words``.
    """

    __test__ = False  # pytest takes classes of this name for tests

    file: str
    share: int = 1
    shares: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    run_by: torch_tests.TestRunner = "pytest"
    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in results: ``test_nn``, ``test_ops 2/3``."""
        return self.file if self.shares == 1 else f"{self.file} {self.share}/{self.shares}"

    @property
    def slug(self) -> str:
        """Its name as that of a file."""
        return re.sub(r"[^\w-]+", "-", self.name)


@dataclass(frozen=True)
class TestRequest:
    """What is to be run, for every place alike: ``files`` of the folder ``tests``, by a Python.

    ``wheels`` are those that are installed, by sha256. ``limit`` and ``file_limit`` are seconds that a test
    and a file may take; a limit that a test has itself is multiplied by ``scale``, and 0 is for none.
    ``words`` go to pytest, so do those that ``place_words`` makes; ``environment`` is that of tests on a GPU.
    ``known`` are all rows of known failures, ``known_folder`` is before the names of tests there, and
    ``known_as`` the version of torch that counts ("all": any; "": the installed one's). Of them those that
    hang or crash are not run, or with ``debug`` they and those that fail alone. Of other tests that fail so
    many as ``tests_alone`` are tried again. ``left_out`` are files that the suite leaves out, and why.
    ``find_gpu_fault`` says why a GPU of a target does not calculate any more in an environment, "" where it
    does; None, where nobody is to ask it. ``uses_gpu``: on a GPU, a test at least must have used it.
    ``torch`` is the folder of the one that is tested, ``record`` what tells it from one that is installed
    later. ``fresh``: not to carry on.
    """

    __test__ = False

    kind: Literal["smoke", "tests"]
    target: installed_torch.TargetPython
    tests: Path
    files: Sequence[TestFile]
    wheels: Mapping[str, str]
    limit: float
    file_limit: float
    scale: float = 0.0
    words: tuple[str, ...] = ()
    place_words: Callable[[GpuPlace], Sequence[str]] = lambda place: ()
    environment: Mapping[str, str] = field(default_factory=dict)
    subject: str = ""
    selected: str = ""
    remarks: tuple[str, ...] = ()
    suite: test_results.Suite | None = None
    known: Sequence[torch_tests.KnownTestRow] = ()
    known_folder: str = ""
    known_as: str = ""
    debug: bool = False
    tests_alone: int = 20
    left_out: Mapping[str, str] = field(default_factory=dict)
    find_gpu_fault: Callable[[str, Mapping[str, str]], str] | None = None
    uses_gpu: bool = True
    torch: Path | None = None
    record: Callable[[], str] = lambda: ""
    machine: tested_machine.TestedMachine | None = None
    cache: bool = False
    fresh: bool = False


def find_known_tests(request: TestRequest, gfx: str | None) -> torch_tests.KnownTests:
    """Return what is known of tests on a target; without a GPU, nothing is."""
    if gfx is None:
        return NO_KNOWN_TESTS
    system: project_names.Platform = "windows" if sys.platform == "win32" else "linux"
    version = request.known_as or request.target.torch_version
    return torch_tests.select_known_tests(
        request.known,
        None if version == "all" else version,
        gfx,
        system,
        request.target.python_version,
        today=datetime.now(timezone.utc).date(),
    )


def run_in_place(request: TestRequest, place: GpuPlace, folder: Path, show: Callable[[str], None]) -> Results:
    """Run all that is not done in a place, and return the results, which are in ``folder`` all the time.

    A run of the same that was ended is carried on; one of something else, or that is complete, is begun anew.
    A GPU that got lost takes no further file; where none is left the run ends, and its results say so.
    Raises UsageError for a folder with something else in it or words that pytest does not take, and
    ChecksError where pytest cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, purpose="tests"):
        run = _Run(request, place, folder, show)
        waiting = [number for number, file in enumerate(request.files) if not run.is_done(file)]
        run.keep()
        try:
            parallel.run_growing_work(run.run_file, waiting, jobs=1 + len(place.beside))
        finally:
            results = run.keep()
            write_junit(folder / JUNIT_FILE, results)
        return results


class _GpuLostError(Exception):
    """A GPU does not calculate any more: nothing that would be run on it says anything of the wheels."""


class _Run:
    """The run in a place: its journals, the GPUs that are free, and the results that all of it comes to."""

    def __init__(
        self, request: TestRequest, place: GpuPlace, folder: Path, show: Callable[[str], None]
    ) -> None:
        self.request, self.place, self.folder = request, place, folder
        self.work = folder / WORK_FOLDER
        self.known = find_known_tests(request, place.gfx)
        self._show = show
        self._record = request.record()
        self._lock = threading.Lock()
        self._environments = [
            {**env, **(request.environment if place.gfx else {})} for env in (place.env, *place.beside)
        ]
        self._free: queue.Queue[int | None] = queue.Queue()  # GPUs; None for all time once none is left
        for number in range(len(self._environments)):
            self._free.put(number)
        self._left = len(self._environments)
        self._lost: list[str] = []
        self._done: dict[str, tuple[Journal, list[TestResult]]] = {}  # files that are, so read once
        self._kept, self._keep_seconds = time.monotonic(), 0.0
        self._when = self._begin()
        self.ask_gpu = request.find_gpu_fault if place.gfx else None
        if self.ask_gpu and place.gfx and request.kind == "smoke" and self.ask_gpu(place.gfx, place.env):
            self.ask_gpu = None  # it never calculated: that is for the tests to find, and no GPU got lost

    def journal(self, file: TestFile) -> Path:
        return self.work / f"{file.slug}.jsonl"

    def is_done(self, file: TestFile) -> bool:
        return read_journal(self.journal(file)).end is not None

    def _begin(self) -> datetime:
        """Return when this run began: one that is carried on, or a new one, of which nothing is done."""
        request, state = self.request, self.work / _STATE_FILE
        now = datetime.now(timezone.utc).replace(microsecond=0)
        identity: list[object] = [
            [request.kind, request.subject, request.selected, str(request.suite), self.place.gfx],
            [str(request.tests), str(request.target.python), request.words, request.debug],
            [(file.name, sorted(file.environment.items()), file.run_by) for file in request.files],
            [file.words for file in request.files],
            [sorted(request.wheels.items()), self._record, sorted(request.environment.items())],
            [row.model_dump(mode="json") for row in request.known],
        ]  # fmt: skip
        inputs = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        # what shows files of JUnit does not look whether they are of this run
        (self.folder / JUNIT_FILE).unlink(missing_ok=True)
        # a hidden file is the beginning of a state that was not written to its end
        if self.work.exists() and any(path.name[0] != "." for path in self.work.iterdir()):
            try:
                before = json.loads(state.read_text(encoding="utf-8"))
                is_same = before["inputs"] == inputs
                began = datetime.fromisoformat(before["when"])
            except (OSError, ValueError, KeyError, TypeError):
                raise errors.UsageError(
                    f"{self.work} is not of a run of tests", tip="name another folder: --output-dir"
                ) from None
            done = sum(map(self.is_done, request.files))
            if is_same and not request.fresh and done < len(request.files):
                of = tables.format_count(len(request.files), "file")
                log.log_note(f"resuming a run that ended after {done} of {of}")
                return began
            # killed in here, neither the old run nor a part of it is taken for the new one
            write_atomically(state, json.dumps({**before, "inputs": ""}))
            for path in self.work.iterdir():
                if path != state:
                    path.unlink()
        (self.folder / RESULTS_FILE).unlink(missing_ok=True)
        self.work.mkdir(exist_ok=True)
        write_atomically(state, json.dumps({"inputs": inputs, "when": now.isoformat()}))
        return now

    def run_file(self, number: int) -> tuple[None, Sequence[int]]:
        """Run a file on the next GPU that is free; where that gets lost, the file is to be run again."""
        gpu = self._free.get()
        if gpu is None:
            self._free.put(None)
            return None, ()
        file, env = self.request.files[number], self._environments[gpu]
        several = len(self._environments) > 1
        name = f"{self.place.label} #{gpu}" if several else self.place.label
        log.log_note(f"{file.name} on {name} ({number + 1} of {len(self.request.files)})")

        def show(line: str) -> None:
            self._show(f"#{gpu} {line}" if several else line)
            if time.monotonic() > self._kept + max(_KEEP_SECONDS, 20 * self._keep_seconds):
                self.keep()

        try:
            try:
                self._run_to_end(_FileRun(self, file, env, show))
            except _GpuLostError as cause:
                fault = str(cause).partition("\n")[0]
                log.log_warning(f"{name} is lost: {fault}")
                with self._lock:
                    self._left -= 1
                    self._lost.append(f"{name}, at {file.name}: {fault}")
                again = (number,) if self._left else ()
                gpu = None
            else:
                again = ()
            self.keep()
        except BaseException:
            self._free.put(None)  # others wait for this GPU
            raise
        if gpu is not None or not self._left:
            self._free.put(gpu)
        return None, again

    def _run_to_end(self, run: _FileRun) -> None:
        """Run a file, look at what GPU and torch it was run with, and write down that it ended."""
        end, gfx = run.run(), self.place.gfx
        journal = read_journal(run.path)
        others = [device for device in journal.devices if gfx and strip_features(device) != gfx]
        if others:
            why = f"torch used {', '.join(others)}, not {gfx}"
            note_test(run.path, make_test(f"{run.file.name}: GPU", "failed", why))
        if not journal.devices:
            # a driver in ruins makes tests vanish, or skip themselves: what was written says nothing
            try:
                run.require_gpu()
            except _GpuLostError:
                run.path.unlink()
                raise
        if self.request.record() != self._record:
            why = "torch was reinstalled while its tests ran"
            note_test(run.path, make_test(f"{run.file.name}: torch", "failed", why))
        note(run.path, over=end)

    def keep(self) -> Results:
        """Write down and return what is known by now."""
        with self._lock:
            begin = time.monotonic()
            results = self._make_results()
            write_results(self.folder, results)
            self._kept, self._keep_seconds = time.monotonic(), time.monotonic() - begin
            return results

    def _make_results(self) -> Results:
        request, gfx = self.request, self.place.gfx
        tests: list[TestResult] = []
        seconds: dict[str, float] = {}
        devices: set[str] = set()
        unchosen = 0
        for file in request.files:
            if file.name in self._done:
                journal, told = self._done[file.name]
            else:
                journal = read_journal(self.journal(file))
                told = self._tell_tests(file, journal)
            if journal.end is not None:
                self._done[file.name] = journal, told
                seconds[file.name] = round(journal.seconds, 3)
            devices.update(map(strip_features, journal.devices))
            unchosen += journal.unchosen
            tests += told
        tests += [make_test(name, "skipped", why) for name, why in request.left_out.items()]
        selected = [request.selected]
        if unchosen:
            selected.append(f"{tables.format_count(unchosen, 'test')} left out")
        selected = list(filter(None, selected))
        is_done = len(seconds) == len(request.files)
        if gfx and is_done and request.uses_gpu and gfx not in devices:
            if selected:
                gfx = None  # the chosen tests need none
            else:
                tests.append(make_test("GPU", "missing", f"the tests used no GPU, not the {gfx}"))
        is_lost = self._lost and not self._left
        remarks = [*request.remarks, *(f"lost {fault}" for fault in self._lost if not is_lost)]
        return Results(
            kind=request.kind,
            tool=TOOL_NAME,
            when=self._when,
            host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
            wheels=request.wheels,
            gfx=gfx,
            machine=request.machine,
            tests=tuple(tests),
            lost_gpu=self._lost[-1][:_LONGEST_TEXT] if is_lost else "",
            suite=request.suite,
            selected="; ".join(selected)[:_LONGEST_TEXT],
            subject=request.subject,
            remarks=tuple(remark[:_LONGEST_TEXT] for remark in remarks),
            files=seconds,
        )

    def _tell_tests(self, file: TestFile, journal: Journal) -> list[TestResult]:
        """Return all tests of a file, with what is known of each; what was not run is missing."""
        why = journal.end or "the run was ended before"
        tests = [*journal.results.values()]
        tests += [make_test(name, "missing", f"not run: {why}") for name in journal.missing]
        tests = [self._judge(test) for test in tests]
        for name in journal.left_out:
            row = self._find_known(name)
            tests.append(make_test(name, "skipped", "").model_copy(update={"known": describe_known(row)}))
        if journal.end is None and not journal.missing:
            tests.append(make_test(file.name, "missing", "not run to its end"))
        return tests

    def _find_known(self, name: str) -> torch_tests.KnownTestRow | None:
        return self.known.find_test(self.request.known_folder + name.partition(" @")[0])

    def _judge(self, test: TestResult) -> TestResult:
        """Return a test with why its failure is expected; one that was, until some day, says so."""
        row = self._find_known(test.name)
        if row is not None and test.outcome in {"failed", "passed"}:
            return test.model_copy(update={"known": describe_known(row)})
        expired = self.known.find_expired(self.request.known_folder + test.name.partition(" @")[0])
        if row is None and expired is not None and test.outcome not in {"passed", "skipped"}:
            words = f"known until {expired.expires}, and expired ({expired.owner}, {expired.issue})"
            detail = f"{words}: {expired.reason}\n{test.detail}"[:4000]
            return test.model_copy(update={"detail": detail})
        return test


def describe_known(row: torch_tests.KnownTestRow | None) -> str:
    """Say why a test is expected not to pass, by whom, and where that is tracked."""
    return "it is known" if row is None else f"{row.effect}: {row.reason} ({row.owner}, {row.issue})"


@dataclass(frozen=True)
class _FileRun:
    """A file of a run, on one GPU or none. ``only`` these tests are run, if not None."""

    whole: _Run
    file: TestFile
    env: Mapping[str, str]
    show: Callable[[str], None]
    only: tuple[str, ...] | None = None
    own_path: Path | None = None

    @property
    def path(self) -> Path:
        return self.own_path or self.whole.journal(self.file)

    def require_gpu(self) -> None:
        """Raise _GpuLostError where the GPU does not calculate any more."""
        gfx, ask = self.whole.place.gfx, self.whole.ask_gpu
        if gfx and ask is not None and (fault := ask(gfx, self.env)):
            raise _GpuLostError(fault)

    def run(self) -> str:
        """Run what is not done of the file; return how that ended, "" for well.

        A process that dies, or says nothing for so long as a test may take, is begun again behind the test
        that it was at. Raises ChecksError where pytest cannot be started, UsageError where it does not take
        the words that somebody gave, _GpuLostError where the GPU did not survive a process.
        """
        path, file = self.path, self.file
        deadline = time.monotonic() + self.whole.request.file_limit
        for _ in range(_MAX_STARTS):
            note(path, process=True)
            before = read_journal(path)
            how = self._run_pytest(before, deadline - time.monotonic())
            after = read_journal(path)
            if how == _STOPPED:
                if after.poisoned:
                    self.require_gpu()
                    log.log_note(f"{file.name}: {after.poisoned}; the rest continues in a fresh process")
                continue
            if how is not None and how[0] == _LEFT_OUT:
                note_test(path, make_test(f"{file.file}.py", "skipped", how[1]))
                return ""
            if how is None:
                failed = [
                    test.name
                    for test in after.results.values()
                    # a file that cannot be read is no test
                    if test.is_bad
                    and test.name in after.planned
                    and self.whole._find_known(test.name) is None
                    if test.outcome == "failed"
                ]
                if failed:
                    self.require_gpu()  # else they fail alone, too, and all behind them
                    if file.run_by == "pytest":  # run_test.py does so itself
                        self._try_alone(failed, deadline)
                return ""
            outcome: test_results.TestOutcome = "timeout" if how[0] == "timeout" else "crashed"
            if after.begun:
                seconds = time.time() - after.begun_at if after.begun_at is not None else 0.0
                note_test(path, make_test(after.begun, outcome, f"its process {how[1]}", seconds))
            self.require_gpu()
            if not after.begun:  # it was at no test: that is a failure of the file
                is_new = after.results != before.results
                if not any(test.detail.startswith("not read: ") for test in after.results.values()):
                    spot = "between two tests" if after.missing else "behind its last test"
                    spot = spot if is_new else "before its first test"
                    note_test(path, make_test(f"{file.slug}: {spot}", outcome, f"pytest {how[1]}"))
                if not (is_new and after.missing):
                    return f"pytest {how[1]}"
            if time.monotonic() >= deadline:
                return f"{file.name} {how[1]}"
            words = how[1].partition("\n")[0]
            log.log_note(f"{file.name}: {after.begun or 'pytest'} {words}; the rest continues")
        return f"{file.name} was begun {_MAX_STARTS} times, and died each time"

    def _try_alone(self, failed: Sequence[str], deadline: float) -> None:
        """Try each test that failed again: alone in a fresh process."""
        most = self.whole.request.tests_alone
        if len(failed) > most:
            if most:
                many = f"{len(failed)} tests failed, too many to try each again alone"
                log.log_note(f"{self.file.name}: {many}")
            return
        tried = read_journal(self.path).alone
        for name in failed:
            if name in tried or time.monotonic() >= deadline:
                continue
            log.log_note(f"{self.file.name}: {name} failed; it is tried again alone")
            with tempfile.TemporaryDirectory(prefix="rocm-wheels-tests-") as folder:
                alone = replace(self, only=(name,), own_path=Path(folder, "journal"))
                note(alone.path, process=True)
                how = alone._run_pytest(Journal(), deadline - time.monotonic())
                after = read_journal(alone.path)
            passed = how is None and [test.outcome for test in after.results.values()] == ["passed"]
            note(self.path, took=round(after.seconds, 3))
            note(self.path, alone=name, passed=passed)
            if how is not None:
                self.require_gpu()

    def _run_pytest(self, before: Journal, seconds: float) -> tuple[str, str] | None:
        """Run pytest on what is not done; return None when it ended well, else what happened."""
        request, file = self.whole.request, self.file
        last_lines: list[str] = []

        def keep_line(line: str) -> None:
            last_lines[:] = [*last_lines[1 - _KEPT_LINES :], line]
            self.show(line)

        with tempfile.TemporaryDirectory(prefix="rocm-wheels-tests-", ignore_cleanup_errors=True) as name:
            order, printed, mark = Path(name, "recording.json"), Path(name, "printed"), uuid.uuid4().hex
            order.write_text(json.dumps(self._make_order(before)), encoding="utf-8")
            printed.mkdir()
            begin = time.monotonic()
            try:
                code = process.run_command(
                    self._make_command(order),
                    env={**self._make_environment(Path(name), order), _MARK_VARIABLE: mark},
                    cwd=request.tests,
                    log=self.whole.work / f"{file.slug}.log",
                    on_line=keep_line,
                    timeout=max(seconds, 0.001),
                    silence=max(request.limit, _LONGEST_LIMIT * request.scale) + _QUIET_SECONDS,
                    check=None,
                    description="it",
                    on_start=lambda pid: threading.Thread(
                        target=_end_leftovers, args=(pid, mark), daemon=True
                    ).start(),
                ).returncode
            except errors.BuildError as cause:
                if isinstance(cause.__cause__, OSError) or process.is_interrupted():
                    raise errors.ChecksError(f"pytest could not be run by {request.target.python}") from cause
                return "timeout", str(cause).removeprefix("it ")
            finally:
                note(self.path, took=round(time.monotonic() - begin, 3))
                _end_marked_processes(mark)
            if code and process.is_interrupted():  # what ended it was no fault of a test
                raise errors.ChecksError("the tests were interrupted")
            words = _read_printed(printed)
        _require_words_taken(request.words, last_lines)
        after = read_journal(self.path)
        if file.run_by == "run_test":
            return _judge_handler_end(code, before, after, last_lines)
        how = judge_end(code, before, after, last_lines, after.limit or request.limit)
        if how is None or how == _STOPPED:
            return how
        head, line_end, rest = how[1].partition("\n")
        return how[0], "".join([head, *(f"\n  | {word}" for word in words), line_end, rest])

    def _make_order(self, before: Journal) -> dict[str, object]:
        """Return what the recorder is told: where outcomes go, what is not run, how long a test may take."""
        request, known = self.whole.request, self.whole.known
        files = [f"{request.known_folder}{path}" for path in self.file.paths or (f"{self.file.file}.py",)]
        names = [name for file in files for name in known.list_names(file)]
        only, left_out = self.only or (names if request.debug else None), list[str]()
        if only is None:
            left_out = [name for file in files for name in known.list_skipped(file)]
            if self.file.run_by == "run_test":  # some of its handlers end at the first test that fails
                left_out = names
        return {
            "outcomes": str(self.path.absolute()),
            "done": [*before.results],
            "left_out": [name.removeprefix(request.known_folder) for name in left_out],
            "only": None if only is None else [name.removeprefix(request.known_folder) for name in only],
            "limit": request.limit,
            "scale": request.scale,
            "torch": str(request.torch or ""),
        }

    def _make_command(self, order: Path) -> list[str]:
        request, file = self.whole.request, self.file
        words = [*self.whole.request.place_words(self.whole.place), *request.words]
        if file.run_by == "run_test":
            argv = [str(request.target.python), str(request.tests / "run_test.py")]
            argv += ["--include", file.file, *file.words, "--keep-going", "--verbose"]
            return [*argv, *(["--", *words] if words else [])]
        argv = [str(request.target.python), "-X", "faulthandler", "-m", "pytest", "-v", "-p", _PLUGIN_NAME]
        # with "=": pytest takes any other word that is a file for tests
        argv.append(f"--rocm-wheels-recording={order}")
        argv += [] if request.cache else ["-p", "no:cacheprovider"]
        argv += file.paths or (f"{file.file}.py",)
        if file.shares > 1:
            argv += [f"--shard-id={file.share}", f"--num-shards={file.shares}"]
        return [*argv, *words]

    def _make_environment(self, scratch: Path, order: Path) -> dict[str, str]:
        """Return the environment of a process; kernels that MIOpen compiles for torch's tests go with it.

        Each pytest that run_test.py starts is told to record by a variable. It is to show what they print at
        once, and not to choose GPUs by itself, as it does for files that it runs side by side.
        """
        plugin = str(Path(__file__).with_name("recording"))  # nothing in it imports rocm-wheels
        env = {**self.env, **self.file.environment}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [plugin, env.get("PYTHONPATH", "")]))
        env["PYTHONUNBUFFERED"] = "1"  # a line that waits in a buffer looks like a test that hangs
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        env["ROCM_TEST_PRINTED"] = str(scratch / "printed")
        if self.whole.request.kind == "tests":
            env["MIOPEN_CUSTOM_CACHE_DIR"] = str(scratch)
        if self.file.run_by == "run_test":
            del env["ROCM_TEST_PRINTED"]
            env["PYTEST_ADDOPTS"] = shlex.join(["-p", _PLUGIN_NAME, f"--rocm-wheels-recording={order}"])
            env["PYTORCH_TEST_RUN_EVERYTHING_IN_SERIAL"] = env["VERBOSE_TEST_LOGS"] = "1"
        return env


def _end_leftovers(pid: int, mark: str) -> None:
    """End what a process left behind as soon as it is over: it may hold what the process printed into."""
    start = process.get_process_start(pid)
    while process.is_process_alive(pid, start):
        time.sleep(_LOOK_SECONDS)
    _end_marked_processes(mark)


def _end_marked_processes(mark: str) -> None:
    """End what tests started and left behind, also outside of their session: all with this mark (Linux)."""
    for entry in Path("/proc").glob("[0-9]*") if sys.platform == "linux" else ():
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile, or is none of ours


def _read_printed(folder: Path) -> list[str]:
    """Return the last lines that a test printed which took its process along."""
    lines: list[str] = []
    for file in sorted(folder.iterdir()):
        with file.open("rb") as content:
            content.seek(max(file.stat().st_size - _MOST_PRINTED, 0))
            text = content.read().decode("utf-8", "replace")
        lines += [line[:500] for line in text.splitlines() if line.strip()][-_SHOWN_LINES:]
    return lines


def _require_words_taken(words: Sequence[str], lines: Sequence[str]) -> None:
    """Raise UsageError where pytest has refused words of somebody's: no file can be tested with them."""
    refused = next((match[1] for line in lines if (match := _REFUSAL_LINE.fullmatch(line.strip()))), "")
    named = {word.rstrip(":") for word in refused.split()}
    if named & {part for word in words for part in (word, word.partition("=")[0])}:
        raise errors.UsageError(
            f"pytest rejects its options: {refused}",
            tip="words behind -- and those of PYTEST_ADDOPTS are handed to it: take these out",
        )


def judge_end(
    code: int, before: Journal, after: Journal, output_lines: Sequence[str], limit: float
) -> tuple[str, str] | None:
    """Judge a process of pytest by its exit code, its journal and what it printed; None: it ended well.

    Exit code 1 is a failed test's only where a test failed that was not done ``before``.
    """
    if after.poisoned:
        return _STOPPED
    new = [test for name, test in after.results.items() if name not in before.results]
    failed = any(test.outcome == "failed" for test in new)
    if code in _GOOD_EXIT_CODES and after.finished and (code != 1 or failed):
        return None
    where = "".join(f"\n  | {line}" for line in _select_telling_lines(output_lines))
    if code == 1 and any(_TIMEOUT_LINE.search(line) for line in output_lines):
        return "timeout", f"was stopped after {tables.format_duration(limit)} in it{where}"
    if code == 1 and after.finished:
        return "crashed", f"ended with exit code 1, and no test failed{where}"
    if code in _GOOD_EXIT_CODES:
        return "crashed", f"ended with exit code {code} in the middle{where}"
    return "crashed", f"{import_check.describe_exit(code)}{where}"


def _judge_handler_end(
    code: int, before: Journal, after: Journal, output_lines: Sequence[str]
) -> tuple[str, str] | None:
    """Judge run_test.py as ``judge_end`` does pytest; _STOPPED where it left tests behind a failure."""
    where = "".join(f"\n  | {line}" for line in _select_telling_lines(output_lines))
    if after.begun:
        is_timeout = any(_TIMEOUT_LINE.search(line) for line in output_lines)
        return "timeout" if is_timeout else "crashed", f"ended in it{where}"
    new = [test for name, test in after.results.items() if name not in before.results]
    if (code == 1 and any(test.is_bad for test in new)) or after.poisoned:
        return _STOPPED if after.missing else None
    if code == 0:
        return None if after.finished else (_LEFT_OUT, f"it ended before a test was read{where}")
    return "crashed", f"{import_check.describe_exit(code)}{where}"


def _select_telling_lines(output_lines: Sequence[str]) -> list[str]:
    """Return the lines that say where a process died, or its last ones."""
    lines = [line for line in output_lines if line.strip()]
    traces = [number for number, line in enumerate(lines) if _TRACE_LINE.match(line)]
    return lines[traces[-1] + 1 :][:_SHOWN_LINES] if traces else lines[-_SHOWN_LINES:]

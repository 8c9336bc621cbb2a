"""Run a suite of tests, file by file, on a GPU or on none; carry on where a run was ended.

A test that takes its process with it costs nothing but itself: pytest is begun again behind it, once the
GPU has shown that it still calculates; so it is where a test left a GPU that refuses its process. A test that
failed is tried again, alone in a fresh process. Where the GPU got lost the run ends, and the same command
carries it on. ``results.json`` is there from the start, and says what is missing whatever ends the run;
``junit.xml`` comes at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path

from rocm_wheels.audit import import_check
from rocm_wheels.core import errors, log, process, tables
from rocm_wheels.core.files import lock_folder, write_atomically
from rocm_wheels.models import project_names, test_results, torch_tests
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.testing import installed_torch
from rocm_wheels.testing.journal import LONGEST_TEXT, Journal, make_test, note, note_test, read_journal
from rocm_wheels.testing.results import JUNIT_FILE, RESULTS_FILE, write_junit, write_results
from rocm_wheels.testing.tested_gpus import GpuPlace

WORK_FOLDER = "run"  # journals and logs, beside results.json and junit.xml
_STATE_FILE = "state.json"  # what run it is of
_GOOD_EXIT_CODES = (0, 1, 5)  # pytest's exit codes: passed, some failed, no tests
_REFUSAL_LINE = re.compile(r".*: error: (.+)")  # what argparse says of a command line
_MAX_STARTS = 50  # of one file: each begins behind a test that ended the one before
_PLUGIN_NAME = "rocm_wheels_recorder"
_MARK_VARIABLE = "ROCM_TEST_PROCESS"
_KEPT_LINES, _SHOWN_LINES = 80, 4  # lines
_MOST_PRINTED = 1 << 18  # bytes, of the end of what a test printed
_TRACE_LINE = re.compile(r"(Current t|T)hread 0x.*")  # faulthandler: what follows is where it was
_TIMEOUT_LINE = re.compile(r"Timeout \([0-9:.]+\)!$")  # likewise: a test took too long
_STOPPED = ("stopped", "")  # how a process ends that leaves tests for another one
_LEFT_OUT = "left out"  # and where a file ends well before pytest begins: what it tests is not there
# seconds that a process may say nothing beside the limit of a test: it starts, reads tests
_QUIET_SECONDS = 300.0
_LONGEST_LIMIT = 1800.0  # seconds that a test may mark itself with
_LOOK_SECONDS = 0.2  # between looks whether a process is over


@dataclass(frozen=True)
class TestFile:
    """What one process of pytest runs: a file of the folder of tests (``test_nn``), or a share of its tests.

    ``paths`` are several files that one process runs, under one name. ``run_by`` says whether pytest runs
    it, or torch's run_test.py with ``words``.
    """

    __test__ = False  # pytest takes classes of this name for tests

    file: str
    share: int = 1
    shares: int = 1
    run_by: torch_tests.TestRunner = "pytest"
    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in results: ``test_nn``, ``test_ops 2/3``."""
        return self.file if self.shares == 1 else f"{self.file} {self.share}/{self.shares}"


@dataclass(frozen=True)
class TestRequest:
    """What is to be run, for every place alike: ``files`` of the folder ``tests``, by a Python.

    ``header`` are the results before any test: what is tested, and how tests were chosen. ``limit`` and
    ``file_limit`` are seconds that a test and a file may take; with ``own_limits`` a limit goes before it
    that a test marks itself with. ``words`` go to pytest, so do those that ``place_words`` makes;
    ``environment`` is that of tests on a GPU. ``known`` are all rows of known failures, of which those count
    that hold for ``known_torch`` (None: for any). What hangs or crashes is not run. Of other tests that fail
    so many as ``tests_alone`` are tried again. ``left_out`` are files that the suite leaves out, and why.
    ``find_gpu_fault`` says why a GPU of a target does not calculate any more in an environment, "" where it
    does; None, where nobody is to ask it. ``uses_gpu``: on a GPU, a test at least must have used it.
    """

    __test__ = False

    header: Results
    target: installed_torch.TargetPython
    tests: Path
    files: Sequence[TestFile]
    limit: float
    file_limit: float
    own_limits: bool = False
    words: tuple[str, ...] = ()
    place_words: Callable[[GpuPlace], Sequence[str]] = lambda place: ()
    environment: Mapping[str, str] = field(default_factory=dict)
    known: Sequence[torch_tests.KnownTestRow] = ()
    known_torch: str | None = None
    tests_alone: int = 20
    left_out: Mapping[str, str] = field(default_factory=dict)
    find_gpu_fault: Callable[[str, Mapping[str, str]], str] | None = None
    uses_gpu: bool = True


def find_known_tests(request: TestRequest, gfx: str | None) -> torch_tests.KnownTests:
    """Return what is known of tests on a target; without a GPU, nothing is."""
    if gfx is None:
        return torch_tests.KnownTests((), date.min)
    system: project_names.Platform = "windows" if sys.platform == "win32" else "linux"
    today, python = datetime.now(timezone.utc).date(), request.target.python_version
    return torch_tests.select_known_tests(
        request.known, request.known_torch, gfx, system, python, today=today
    )


def run_in_place(request: TestRequest, place: GpuPlace, folder: Path, show: Callable[[str], None]) -> Results:
    """Run all that is not done in a place, and return the results, which are in ``folder`` all the time.

    A run of the same that was ended is carried on; smoke tests, and a run of something else or one that is
    complete, begin anew. Where the GPU gets lost the run ends, and its results say so. Raises UsageError for
    a folder with something else in it or words that pytest does not take, and ChecksError where pytest
    cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, purpose="tests"):
        run = _Run(request, place, folder, show)
        run.keep()
        try:
            for number, file in enumerate(request.files, 1):
                if not run.is_done(file):
                    log.log_note(f"{file.name} on {place.label} ({number} of {len(request.files)})")
                    run.run_file(file)
                    run.keep()
        except _GpuLostError as cause:
            run.lost = f"{place.label}, at {file.name}: {str(cause).partition(chr(10))[0]}"
            log.log_warning(f"lost {run.lost}")
        finally:
            results = run.keep()
            write_junit(folder / JUNIT_FILE, results)
        return results


class _GpuLostError(Exception):
    """A GPU does not calculate any more: nothing that would be run on it says anything of the wheels."""


class _Run:
    """The run in a place: its journals, and the results that all of it comes to."""

    def __init__(
        self, request: TestRequest, place: GpuPlace, folder: Path, show: Callable[[str], None]
    ) -> None:
        self.request, self.place, self.folder, self.show = request, place, folder, show
        self.work = folder / WORK_FOLDER
        self.known = find_known_tests(request, place.gfx)
        self.env = {**place.env, **(request.environment if place.gfx else {})}
        self.lost = ""
        self._torch_record = request.target.digest_torch_record()
        self._done: dict[str, tuple[Journal, list[TestResult]]] = {}  # files that are, so read once
        self._when = self._begin()
        self._ask_gpu = request.find_gpu_fault if place.gfx else None
        if self._ask_gpu and place.gfx and request.header.kind == "smoke":
            # one that never calculated is for the tests to find, and did not get lost
            self._ask_gpu = None if self._ask_gpu(place.gfx, place.env) else self._ask_gpu

    def path_of(self, file: TestFile, suffix: str = ".jsonl") -> Path:
        """Return the journal of a file, or its log."""
        return self.work / (re.sub(r"[^\w-]+", "-", file.name) + suffix)

    def is_done(self, file: TestFile) -> bool:
        return file.name in self._done or read_journal(self.path_of(file)).end is not None

    def _begin(self) -> datetime:
        """Return when this run began: one that is carried on, or a new one, of which nothing is done."""
        request, state = self.request, self.work / _STATE_FILE
        now = datetime.now(timezone.utc).replace(microsecond=0)
        of = {"kind", "wheels", "suite", "selected", "subject"}
        identity: list[object] = [
            [request.header.model_dump(mode="json", include=of), self.place.gfx, self._torch_record],
            [str(request.tests), str(request.target.python), request.words],
            [asdict(file) for file in request.files],
            sorted(request.environment.items()),
            [row.model_dump(mode="json") for row in request.known],
        ]
        inputs = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        # what shows files of JUnit does not look whether they are of this run
        (self.folder / JUNIT_FILE).unlink(missing_ok=True)
        # a hidden file is the beginning of a state that was not written to its end
        if self.work.exists() and any(path.name[0] != "." for path in self.work.iterdir()):
            try:
                before = json.loads(state.read_text(encoding="utf-8"))
                is_same = before["inputs"] == inputs and request.header.kind != "smoke"
                began = datetime.fromisoformat(before["when"])
            except (OSError, ValueError, KeyError, TypeError):
                raise errors.UsageError(
                    f"{self.work} is not of a run of tests", tip="name another folder: --output-dir"
                ) from None
            done = sum(map(self.is_done, request.files))
            if is_same and done < len(request.files):
                of_all = tables.format_count(len(request.files), "file")
                log.log_note(f"resuming a run that ended after {done} of {of_all}")
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

    def keep(self) -> Results:
        """Write down and return what is known by now."""
        request, gfx = self.request, self.place.gfx
        tests: list[TestResult] = []
        seconds: dict[str, float] = {}
        devices: set[str] = set()
        unchosen = 0
        for file in request.files:
            journal, file_tests = self._done.get(file.name) or self._read_tests(file)
            if journal.end is not None:
                self._done[file.name] = journal, file_tests
                seconds[file.name] = round(journal.seconds, 3)
            devices.update(map(strip_features, journal.devices))
            unchosen += journal.unchosen
            tests += file_tests
        tests += [make_test(name, "skipped", why) for name, why in request.left_out.items()]
        chosen = [request.header.selected]
        chosen += [f"{tables.format_count(unchosen, 'test')} left out"] if unchosen else []
        selected = "; ".join(filter(None, chosen))
        if gfx and len(seconds) == len(request.files) and request.uses_gpu and gfx not in devices:
            if selected:
                gfx = None  # the chosen tests need none
            else:
                tests.append(make_test("GPU", "missing", f"the tests used no GPU, not the {gfx}"))
        results = request.header.model_copy(
            update={
                "when": self._when,
                "gfx": gfx,
                "tests": tuple(tests),
                "lost_gpu": self.lost[:LONGEST_TEXT],
                "selected": selected[:LONGEST_TEXT],
                "files": seconds,
            }
        )
        write_results(self.folder, results)
        return results

    def _read_tests(self, file: TestFile) -> tuple[Journal, list[TestResult]]:
        """Return all tests of a file, with what is known of each; what was not run is missing."""
        journal = read_journal(self.path_of(file))
        why = journal.end or "the run was ended before"
        tests: list[TestResult] = []
        for test in (
            *journal.results.values(),
            *(make_test(name, "missing", f"not run: {why}") for name in journal.missing),
        ):
            name = test.name.partition(" @")[0]
            row, expired = self.known.find_test(name), self.known.find_expired(name)
            changes: dict[str, str] = {}
            if row is not None and test.outcome in {"failed", "passed"}:
                changes["known"] = describe_known(row)
            elif row is None and expired is not None and test.outcome not in {"passed", "skipped"}:
                words = f"known until {expired.expires}, and expired ({expired.owner}, {expired.issue})"
                changes["detail"] = f"{words}: {expired.reason}\n{test.detail}"[:LONGEST_TEXT]
            tests.append(test.model_copy(update=changes) if changes else test)
        for name in journal.left_out:
            row = self.known.find_test(name.partition(" @")[0])
            tests.append(make_test(name, "skipped", "").model_copy(update={"known": describe_known(row)}))
        if journal.end is None and not journal.missing:
            tests.append(make_test(file.name, "missing", "not run to its end"))
        return journal, tests

    def run_file(self, file: TestFile) -> None:
        """Run what is not done of a file, look at what GPU and torch that was with, and note how it ended.

        Raises ChecksError where pytest cannot be started, UsageError where it does not take the words that
        somebody gave, _GpuLostError where the GPU did not survive a process.
        """
        end, path, gfx = self._run_to_end(file), self.path_of(file), self.place.gfx
        journal = read_journal(path)
        others = [device for device in journal.devices if gfx and strip_features(device) != gfx]
        if others:
            why = f"torch used {', '.join(others)}, not {gfx}"
            note_test(path, make_test(f"{file.name}: GPU", "failed", why))
        if not journal.devices:
            try:
                self._require_gpu()
            except _GpuLostError:
                path.unlink()
                raise
        if self.request.target.digest_torch_record() != self._torch_record:
            why = "torch was reinstalled while its tests ran"
            note_test(path, make_test(f"{file.name}: torch", "failed", why))
        note(path, over=end)

    def _require_gpu(self) -> None:
        """Raise _GpuLostError where the GPU does not calculate any more."""
        gfx, ask = self.place.gfx, self._ask_gpu
        if gfx and ask is not None and (fault := ask(gfx, self.env)):
            raise _GpuLostError(fault)

    def _run_to_end(self, file: TestFile) -> str:
        """Run what is not done of a file; return how that ended, "" for well.

        A process that dies, or says nothing for so long as a test may take, is begun again behind the test
        that it was at.
        """
        path = self.path_of(file)
        deadline = time.monotonic() + self.request.file_limit
        for _ in range(_MAX_STARTS):
            note(path, process=True)
            before = read_journal(path)
            how = self._run_pytest(file, path, before, deadline)
            after = read_journal(path)
            if how is None:
                # a file that cannot be read is no test
                failed = [
                    test.name
                    for test in after.results.values()
                    if test.outcome == "failed" and test.is_bad and test.name in after.planned
                    if self.known.find_test(test.name.partition(" @")[0]) is None
                ]
                if failed:
                    self._require_gpu()  # else they fail alone, too, and all behind them
                    if file.run_by == "pytest":  # run_test.py does so itself
                        self._try_alone(file, failed, deadline)
                return ""
            if how[0] == _LEFT_OUT:
                note_test(path, make_test(f"{file.file}.py", "skipped", how[1]))
                return ""
            if how == _STOPPED:
                if after.poisoned:
                    self._require_gpu()
                    log.log_note(f"{file.name}: {after.poisoned}; the rest continues in a fresh process")
                continue
            outcome: test_results.TestOutcome = "timeout" if how[0] == "timeout" else "crashed"
            if after.begun:
                seconds = time.time() - after.begun_at if after.begun_at is not None else 0.0
                note_test(path, make_test(after.begun, outcome, f"its process {how[1]}", seconds))
            self._require_gpu()
            if not after.begun:  # it was at no test: that is a failure of the file
                is_new = after.results != before.results
                if not any(test.detail.startswith("not read: ") for test in after.results.values()):
                    spot = "between two tests" if after.missing else "behind its last test"
                    name = f"{path.stem}: {spot if is_new else 'before its first test'}"
                    note_test(path, make_test(name, outcome, f"pytest {how[1]}"))
                if not (is_new and after.missing):
                    return f"pytest {how[1]}"
            if time.monotonic() >= deadline:
                return f"{file.name} {how[1]}"
            words = how[1].partition("\n")[0]
            log.log_note(f"{file.name}: {after.begun or 'pytest'} {words}; the rest continues")
        return f"{file.name} was begun {_MAX_STARTS} times, and died each time"

    def _try_alone(self, file: TestFile, failed: Sequence[str], deadline: float) -> None:
        """Try each test that failed again: alone in a fresh process; none, where many did."""
        most, path = self.request.tests_alone, self.path_of(file)
        if len(failed) > most:
            if most:
                many = f"{len(failed)} tests failed, too many to try each again alone"
                log.log_note(f"{file.name}: {many}")
            return
        tried = read_journal(path).alone
        for name in failed:
            if name in tried or time.monotonic() >= deadline:
                continue
            log.log_note(f"{file.name}: {name} failed; it is tried again alone")
            with tempfile.TemporaryDirectory(prefix="rocm-wheels-tests-") as folder:
                alone = Path(folder, "journal")
                note(alone, process=True)
                how = self._run_pytest(file, alone, Journal(), deadline, only=(name,))
                after = read_journal(alone)
            passed = how is None and [test.outcome for test in after.results.values()] == ["passed"]
            note(path, took=round(after.seconds, 3))
            note(path, alone=name, passed=passed)
            if how is not None:
                self._require_gpu()

    def _run_pytest(
        self, file: TestFile, path: Path, before: Journal, deadline: float, *, only: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Run pytest on what is not done of a file, or on ``only`` these tests, with the journal ``path``.

        Return None when it ended well, else what happened.
        """
        request, last_lines = self.request, list[str]()

        def keep_line(line: str) -> None:
            last_lines[:] = [*last_lines[1 - _KEPT_LINES :], line]
            self.show(line)

        with tempfile.TemporaryDirectory(prefix="rocm-wheels-tests-", ignore_cleanup_errors=True) as name:
            order, printed, mark = Path(name, "recording.json"), Path(name, "printed"), uuid.uuid4().hex
            order.write_text(json.dumps(self._make_order(file, path, before, only)), encoding="utf-8")
            printed.mkdir()
            argv, env = self._make_command(file, Path(name), order, printed)
            own_limit = _LONGEST_LIMIT if request.own_limits else 0.0
            begin = time.monotonic()
            try:
                code = process.run_command(
                    argv,
                    env={**env, _MARK_VARIABLE: mark},
                    cwd=request.tests,
                    log=self.path_of(file, ".log"),
                    on_line=keep_line,
                    timeout=max(deadline - begin, 0.001),
                    silence=max(request.limit, own_limit) + _QUIET_SECONDS,
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
                note(path, took=round(time.monotonic() - begin, 3))
                _end_marked_processes(mark)
            if code and process.is_interrupted():  # what ended it was no fault of a test
                raise errors.ChecksError("the tests were interrupted")
            words = _read_printed(printed)
        _require_words_taken(request.words, last_lines)
        after = read_journal(path)
        if file.run_by == "run_test":
            return _judge_handler_end(code, before, after, last_lines)
        how = _judge_end(code, before, after, last_lines, after.limit or request.limit)
        if how is None or how == _STOPPED:
            return how
        head, line_end, rest = how[1].partition("\n")
        return how[0], "".join([head, *(f"\n  | {word}" for word in words), line_end, rest])

    def _make_order(
        self, file: TestFile, path: Path, before: Journal, only: Sequence[str]
    ) -> dict[str, object]:
        """Return what the recorder is told: where outcomes go, what is not run, how long a test may take."""
        request = self.request
        paths = file.paths or (f"{file.file}.py",)
        left_out: list[str] = []
        if not only:
            for test_file in paths:  # some handlers of run_test.py end at the first test that fails
                left_out += self.known.list_names(test_file, skipped=file.run_by == "pytest")
        return {
            "outcomes": str(path.absolute()),
            "done": [*before.results],
            "left_out": left_out,
            "only": [*only] or None,
            "limit": request.limit,
            "own_limits": request.own_limits,
            "torch": str(request.target.torch_folder or ""),
        }

    def _make_command(
        self, file: TestFile, scratch: Path, order: Path, printed: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command of a process and its environment.

        Kernels that MIOpen compiles for torch's tests go with it. Each pytest that run_test.py starts is
        told to record by a variable. It is to show what they print at once, and not to choose GPUs by itself,
        as it does for files that it runs side by side.
        """
        request = self.request
        argv = [str(request.target.python)]
        words = [*request.place_words(self.place), *request.words]
        recording = f"--rocm-wheels-recording={order}"  # with "=": pytest takes any other word for tests
        plugin = str(Path(__file__).with_name("recording"))  # nothing in it imports rocm-wheels
        env = dict(self.env)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [plugin, env.get("PYTHONPATH", "")]))
        env["PYTHONUNBUFFERED"] = "1"  # a line that waits in a buffer looks like a test that hangs
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        # folders of tests go with their process: pytest keeps three runs' elsewhere, and deletes what others
        # left there before it ends, for minutes
        env.setdefault("PYTEST_DEBUG_TEMPROOT", str(scratch))
        if request.header.kind == "tests":
            env["MIOPEN_CUSTOM_CACHE_DIR"] = str(scratch)
        if file.run_by == "run_test":
            env["PYTEST_ADDOPTS"] = shlex.join(["-p", _PLUGIN_NAME, recording])
            env["PYTORCH_TEST_RUN_EVERYTHING_IN_SERIAL"] = env["VERBOSE_TEST_LOGS"] = "1"
            argv += [str(request.tests / "run_test.py"), "--include", file.file, *file.words]
            return [*argv, "--keep-going", "--verbose", *(["--", *words] if words else [])], env
        env["ROCM_TEST_PRINTED"] = str(printed)
        argv += ["-X", "faulthandler", "-m", "pytest", "-v", "-p", _PLUGIN_NAME, recording]
        argv += ["-p", "no:cacheprovider"]
        argv += file.paths or (f"{file.file}.py",)
        if file.shares > 1:
            argv += [f"--shard-id={file.share}", f"--num-shards={file.shares}"]
        return [*argv, *words], env


def describe_known(row: torch_tests.KnownTestRow | None) -> str:
    """Say why a test is expected not to pass, by whom, and where that is tracked."""
    return "it is known" if row is None else f"{row.effect}: {row.reason} ({row.owner}, {row.issue})"


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


def _judge_end(
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
    """Judge run_test.py as ``_judge_end`` does pytest; _STOPPED where it left tests behind a failure."""
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

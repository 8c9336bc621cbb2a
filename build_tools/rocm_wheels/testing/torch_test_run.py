"""Run torch's own tests, file by file, on one GPU or on none; carry on where a run was ended.

A test that takes its process with it costs nothing but itself: pytest is begun again behind it, once the
GPU has shown that it still calculates. A test that failed is tried again, alone in a fresh process. Several
GPUs take files from one list; what one of them was at when it got lost, another one carries on.
"""

from __future__ import annotations

import hashlib
import json
import platform
import queue
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import Literal

from rocm_wheels import __version__
from rocm_wheels.audit import import_check
from rocm_wheels.core import errors, log, parallel, process, tables
from rocm_wheels.core.files import hash_file, lock_folder
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models import project_names, tested_machine, torch_tests
from rocm_wheels.models.gfx import strip_features
from rocm_wheels.testing import installed_torch, smoke, torch_test_plan
from rocm_wheels.testing.results import (
    BAD_OUTCOMES,
    RESULTS_FILE,
    ChosenTests,
    FileOutcomes,
    FileResult,
    TestOutcome,
    TorchResults,
    TorchUnderTest,
    judge_results,
    make_file_result,
    note_alone,
    note_duration,
    note_end,
    note_outcome,
    note_process,
    read_outcomes,
    read_torch_results,
    write_torch_junit,
    write_torch_results,
)

_GOOD_EXIT_CODES = (0, 1, 5)  # pytest's exit codes: passed, some failed, no tests
_REFUSAL_LINE = re.compile(r".*: error: (.+)")  # what argparse says of a command line
_MAX_STARTS = 50  # of one file: each begins behind a test that ended the one before
_PLUGIN_NAME = "rocm_wheels_recorder"
_KEPT_LINES, _SHOWN_LINES = 80, 4  # lines
_TRACE_LINE = re.compile(r"(Current t|T)hread 0x.*")  # faulthandler: what follows is where it was
_TIMEOUT_LINE = re.compile(r"Timeout \([0-9:.]+\)!$")  # likewise: a test took too long
_XDIST_OPTION = re.compile(
    r"-n(\d+|auto|logical)?|--(numprocesses|maxprocesses|dist|tx)(=.*)?|-d"
)  # pytest-xdist's
_STOPPED = ("stopped", "")  # how run_test.py ends at a test that failed, and leaves others
_LEFT_OUT = "left out"  # and where a file ends well before pytest begins: what it tests is not there
_QUIET_SECONDS = (
    300.0  # seconds that a process may say nothing beside the limit of a test: it starts, reads tests
)


@dataclass(frozen=True)
class TorchTestRun:
    """What all files have: the Python, its environment, where tests and results are, limits in seconds.

    ``torch`` is the folder of the one that is tested, None where it is installed another way. ``only`` these
    tests are run, if not None. ``cache``: pytest keeps its cache, in the folder of the sources. Of
    ``known_tests`` those that hang or crash are not run, or with ``debug`` they and those that fail alone. Of
    other tests that fail so many as ``tests_alone`` are tried again.
    ``ask_gpu`` says why the GPU does not calculate any more, "" where it does.
    """

    python: Path
    env: Mapping[str, str]
    tests: Path
    folder: Path
    words: tuple[str, ...]
    test_limit: float
    file_limit: float
    show: Callable[[str], None]
    torch: Path | None = None
    only: tuple[str, ...] | None = None
    cache: bool = False
    known_tests: torch_tests.KnownTests = field(default_factory=lambda: torch_tests.KnownTests((), date.min))
    debug: bool = False
    tests_alone: int = 0
    ask_gpu: Callable[[], str] = lambda: ""
    outcomes_folder: Path | None = None

    def outcomes_path(self, part: torch_test_plan.TorchTestFile) -> Path:
        """Return where the outcomes of a file are written."""
        return (self.outcomes_folder or self.folder / "outcomes") / f"{part.slug}.jsonl"

    def log_path(self, part: torch_test_plan.TorchTestFile) -> Path:
        """Return where its output goes."""
        return self.folder / "logs" / f"{part.slug}.log"


class _GpuLostError(Exception):
    """A GPU does not calculate any more: nothing that would be run on it says anything of the wheels."""


def run_file(test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile) -> FileOutcomes:
    """Run what is not done of a file, and return all that is known of it then.

    A process that dies, or says nothing for so long as a test may take, is begun again behind the test
    that it was at. Raises ChecksError where pytest cannot be started, UsageError where it does not take the
    words that somebody gave, _GpuLostError where the GPU did not survive a process: what was not run, is not
    done.
    """
    path = test_run.outcomes_path(test_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + test_run.file_limit
    for _ in range(_MAX_STARTS):
        note_process(path)
        before = read_outcomes(path)
        how = _run_pytest(test_run, test_file, before, deadline - time.monotonic())
        after = read_outcomes(path)
        if how == _STOPPED:
            continue
        if how is not None and how[0] == _LEFT_OUT:
            note_outcome(path, f"{test_file.file}.py", "skipped", how[1])
            note_end(path, "")
            break
        if how is None:
            if failed := _list_new_failures(test_run, path):
                _require_gpu(test_run)  # else they fail alone, too, and all behind them
                if test_file.run_by == "pytest":  # run_test.py does so itself
                    _try_failed_alone(test_run, test_file, failed, deadline)
            note_end(path, "")
            break
        is_blamed = _blame_test(path, after, how)
        _require_gpu(test_run)
        if not is_blamed:
            note_end(path, _blame_file(path, before, after, how))
            break
        if time.monotonic() >= deadline:
            note_end(path, f"{test_file.name} {how[1]}")
            break
        words = how[1].partition("\n")[0]
        log.log_note(f"{test_file.name}: {after.begun} {words}; the rest continues")
    else:
        note_end(path, f"{test_file.name} was begun {_MAX_STARTS} times, and died each time")
    return read_outcomes(path)


def _require_gpu(test_run: TorchTestRun) -> None:
    """Raise _GpuLostError where the GPU does not calculate any more."""
    if fault := test_run.ask_gpu():
        raise _GpuLostError(fault)


def _require_gpu_was_there(test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile) -> None:
    """Raise _GpuLostError where no test of a file used a GPU because there is none any more.

    A driver in ruins makes tests vanish, or skip themselves: what was written of the file says nothing.
    """
    try:
        _require_gpu(test_run)
    except _GpuLostError:
        test_run.outcomes_path(test_file).unlink()
        raise


def _list_new_failures(test_run: TorchTestRun, path: Path) -> list[str]:
    """Return the tests that failed and are not known to; a file that cannot be read is none."""
    outcomes = read_outcomes(path)
    is_test = frozenset(outcomes.planned)
    return [
        result.name
        for result in outcomes.results
        if result.outcome == "failed"
        and result.name in is_test
        and test_run.known_tests.find_test(result.name) is None
    ]


def _try_failed_alone(
    test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, failed: Sequence[str], deadline: float
) -> None:
    """Try each test that failed again: alone in a fresh process."""
    path = test_run.outcomes_path(test_file)
    if len(failed) > test_run.tests_alone:
        if test_run.tests_alone:
            log.log_note(f"{test_file.name}: {len(failed)} tests failed, too many to try each again alone")
        return
    tried = frozenset(read_outcomes(path).alone)
    for name in failed:
        if name in tried or time.monotonic() >= deadline:
            continue
        log.log_note(f"{test_file.name}: {name} failed; it is tried again alone")
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as folder:
            alone = replace(test_run, only=(name,), outcomes_folder=Path(folder))
            note_process(alone.outcomes_path(test_file))
            how = _run_pytest(alone, test_file, FileOutcomes(), deadline - time.monotonic())
            after = read_outcomes(alone.outcomes_path(test_file))
        passed = how is None and [result.outcome for result in after.results] == ["passed"]
        note_duration(path, after.seconds)
        note_alone(path, name, passed=passed)
        if how is not None:
            _require_gpu(test_run)


def _blame_test(path: Path, after: FileOutcomes, how: tuple[str, str]) -> bool:
    """Write down that a test ended its process, and tell whether there was one."""
    if not after.begun:
        return False
    seconds = time.time() - after.begun_at if after.begun_at is not None else 0.0
    outcome: TestOutcome = "timeout" if how[0] == "timeout" else "crashed"
    note_outcome(path, after.begun, outcome, f"its process {how[1]}", seconds)
    return True


def _blame_file(path: Path, before: FileOutcomes, after: FileOutcomes, how: tuple[str, str]) -> str:
    """Say how a process ended that was at no test, and count it as a failure of the file."""
    words = f"pytest {how[1]}"
    if not any(result.reason.startswith("not read: ") for result in after.results):
        name = "before its first test" if after.results == before.results else "behind its last test"
        note_outcome(path, f"{path.stem}: {name}", "timeout" if how[0] == "timeout" else "crashed", words)
    return words


def _run_pytest(
    test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, before: FileOutcomes, seconds: float
) -> tuple[str, str] | None:
    """Run pytest on what is not done; return None when it ended well, else what happened, and in words."""
    last_lines: list[str] = []

    def keep_line(line: str) -> None:
        last_lines[:] = [*last_lines[1 - _KEPT_LINES :], line]
        test_run.show(line)

    with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as name:
        order = Path(name, "recording.json")
        order.write_text(json.dumps(_make_recorder_options(test_run, test_file, before)), encoding="utf-8")
        begin = time.monotonic()
        try:
            code = process.run_command(
                _make_command(test_run, test_file, order),
                env=_make_environment(test_run, test_file, Path(name), order),
                cwd=test_run.tests,
                log=test_run.log_path(test_file),
                on_line=keep_line,
                timeout=max(seconds, 0.001),
                silence=test_run.test_limit + _QUIET_SECONDS,
                check=None,
                description="it",
            ).returncode
        except errors.BuildError as cause:
            if isinstance(cause.__cause__, OSError) or process.is_interrupted():
                raise errors.ChecksError(f"pytest could not be run by {test_run.python}") from cause
            return "timeout", str(cause).removeprefix("it ")
        finally:
            note_duration(test_run.outcomes_path(test_file), time.monotonic() - begin)
    if code and process.is_interrupted():  # what ended it was no fault of a test
        raise errors.ChecksError("the tests were interrupted")
    _require_words_taken(test_run.words, last_lines)
    after = read_outcomes(test_run.outcomes_path(test_file))
    if test_file.run_by == "run_test":
        return _judge_handler_end(code, before, after, last_lines)
    return _judge_end(code, before, after, last_lines, test_run.test_limit)


def _require_words_taken(words: Sequence[str], lines: Sequence[str]) -> None:
    """Raise UsageError where pytest has refused words of somebody's: no file can be tested with them."""
    refused = next((match[1] for line in lines if (match := _REFUSAL_LINE.fullmatch(line.strip()))), "")
    named = {word.rstrip(":") for word in refused.split()}
    if named & {part for word in words for part in (word, word.partition("=")[0])}:
        raise errors.UsageError(
            f"pytest rejects its options: {refused}",
            tip="words behind -- and those of PYTEST_ADDOPTS are handed to it: take these out",
        )


def _make_recorder_options(
    test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, before: FileOutcomes
) -> dict[str, object]:
    """Return what the recorder in pytest is told: where outcomes go, what is not run, how long a test may."""
    file, known_tests = f"{test_file.file}.py", test_run.known_tests
    only = test_run.only or (known_tests.list_names(file) if test_run.debug else None)
    left_out = known_tests.list_skipped(file) if only is None else []
    if (
        only is None and test_file.run_by == "run_test"
    ):  # some of its handlers end at the first test that fails
        left_out = known_tests.list_names(file)
    return {
        "outcomes": str(test_run.outcomes_path(test_file).absolute()),
        "done": before.done,
        "left_out": left_out,
        "only": only,
        "limit": test_run.test_limit,
        "torch": str(test_run.torch or ""),
    }


def _judge_end(
    code: int, before: FileOutcomes, after: FileOutcomes, output_lines: Sequence[str], limit: float
) -> tuple[str, str] | None:
    """Judge a process of pytest by its exit code, its outcomes and what it printed; None: it ended well.

    Exit code 1 is a failed test's only where a test failed that was not done ``before``.
    """
    done = frozenset(before.done)
    failed = any(result.outcome == "failed" for result in after.results if result.name not in done)
    if code in _GOOD_EXIT_CODES and after.finished and (code != 1 or failed):
        return None
    where = "".join(f"\n  | {line}" for line in _select_telling_lines(output_lines))
    if code == 1 and any(_TIMEOUT_LINE.search(line) for line in output_lines):
        return "timeout", f"was stopped after {tables.format_duration(limit)} in it{where}"
    if code == 1 and after.finished:
        return "crashed", f"ended with exit code 1, and no test failed{where}"
    how = (
        f"ended with exit code {code} in the middle"
        if code in _GOOD_EXIT_CODES
        else import_check.describe_exit(code)
    )
    return "crashed", f"{how}{where}"


def _judge_handler_end(
    code: int, before: FileOutcomes, after: FileOutcomes, output_lines: Sequence[str]
) -> tuple[str, str] | None:
    """Judge run_test.py as ``_judge_end`` does pytest; _STOPPED where it left tests behind a failure."""
    where = "".join(f"\n  | {line}" for line in _select_telling_lines(output_lines))
    if after.begun:
        is_timeout = any(_TIMEOUT_LINE.search(line) for line in output_lines)
        return "timeout" if is_timeout else "crashed", f"ended in it{where}"
    done = frozenset(before.done)
    failed = any(result.outcome in BAD_OUTCOMES for result in after.results if result.name not in done)
    if code == 1 and failed:
        return _STOPPED if set(after.planned) - set(after.done) else None
    if code == 0:
        return None if after.finished else (_LEFT_OUT, f"it ended before a test was read{where}")
    return "crashed", f"{import_check.describe_exit(code)}{where}"


def _select_telling_lines(output_lines: Sequence[str]) -> list[str]:
    """Return the lines that say where a process died, or its last ones."""
    lines = [line for line in output_lines if line.strip()]
    traces = [number for number, line in enumerate(lines) if _TRACE_LINE.match(line)]
    return lines[traces[-1] + 1 :][:_SHOWN_LINES] if traces else lines[-_SHOWN_LINES:]


def _make_command(test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, order: Path) -> list[str]:
    if test_file.run_by == "run_test":
        script = str(test_run.tests / "run_test.py")
        argv = [str(test_run.python), script, "--include", test_file.file, *test_file.words]
        return [*argv, "--keep-going", "--verbose", *(["--", *test_run.words] if test_run.words else [])]
    shares = (
        [f"--shard-id={test_file.share}", f"--num-shards={test_file.shares}"] if test_file.shares > 1 else []
    )
    argv = [str(test_run.python), "-X", "faulthandler", "-m", "pytest", "-v", "-p", _PLUGIN_NAME]
    # with "=": pytest takes any other word that is a file for tests
    argv.append(f"--rocm-wheels-recording={order}")
    cache = [] if test_run.cache else ["-p", "no:cacheprovider"]
    return [*argv, *cache, f"{test_file.file}.py", *shares, *test_run.words]


def _make_environment(
    test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, scratch: Path, order: Path
) -> dict[str, str]:
    """Return the environment of a process; kernels that MIOpen compiles go with the folder.

    Each pytest that run_test.py starts is told to record by a variable. It is to show what they print at
    once, and not to choose GPUs by itself, as it does for files that it runs side by side.
    """
    plugin = str(Path(__file__).with_name("recording"))  # nothing in it imports rocm-wheels
    search_path = test_run.env.get("PYTHONPATH", "")
    separator = ";" if sys.platform == "win32" else ":"
    handler_environment = {
        "PYTEST_ADDOPTS": shlex.join(["-p", _PLUGIN_NAME, f"--rocm-wheels-recording={order}"]),
        "PYTORCH_TEST_RUN_EVERYTHING_IN_SERIAL": "1",
        "VERBOSE_TEST_LOGS": "1",
    }
    return {
        **test_run.env,
        **test_file.environment,
        "PYTHONPATH": separator.join(filter(None, [plugin, search_path])),
        "PYTHONUNBUFFERED": "1",  # a line that waits in a buffer looks like a test that hangs
        "MIOPEN_CUSTOM_CACHE_DIR": str(scratch),
        **(handler_environment if test_file.run_by == "run_test" else {}),
    }


def join_pytest_arguments(addopts: Sequence[str], expression: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return what pytest is told: what its own variable says, ``-k``, and what stands behind ``--``.

    Raises UsageError for tests side by side: which of them ended its process, nobody would know.
    """
    arguments = (*addopts, *(["-k", expression] if expression else []), *words)
    if several := next((word for word in arguments if _XDIST_OPTION.fullmatch(word)), None):
        tip = "leave it out (also of PYTEST_ADDOPTS); --shard and --num-shards share the files out"
        raise errors.UsageError(f"{several}: torch's tests run one by one on a GPU", tip=tip)
    return arguments


TOOL_NAME = f"rocm-wheels {__version__} torch tests"
_OWN_FOLDERS = ("outcomes", "logs", "junit")  # what a folder of results holds besides results.json


@dataclass(frozen=True)
class TorchTestRequest:
    """What is to be run, for every GPU alike. ``files`` are the wheels that are installed, by sha256.

    ``limits``: seconds that a test may say nothing, and that a file may take. ``fresh``: not to carry on.
    ``find_gpu_fault`` says why a GPU of a target does not calculate any more in an environment, "" where it
    does; None, where nobody is to ask it. ``plan`` is the digest of how files were shared out.
    """

    target: installed_torch.TargetPython
    python_version: str
    sources: torch_test_plan.TorchTestSources
    chosen: torch_test_plan.TorchTestSelection
    parts: Sequence[torch_test_plan.TorchTestFile]
    left_out: Mapping[str, str]
    table: torch_tests.TorchTestTable
    files: Mapping[str, str]
    limits: tuple[float, float]
    fresh: bool = False
    machine: tested_machine.TestedMachine | None = None
    plan: str = ""
    find_gpu_fault: Callable[[str, Mapping[str, str]], str] | None = None


@dataclass(frozen=True)
class GpuPlace:
    """Where tests run: the GPUs that they see are all in ``env``; without a ``gfx`` there is none.

    ``beside`` are environments of further GPUs of the target, which take files from the same list.
    """

    label: str
    gfx: str | None
    env: Mapping[str, str]
    beside: tuple[Mapping[str, str], ...] = ()


GpuUse = Literal["alone", "every", "share"]


def list_places(chosen: Sequence[Gpu], env: Mapping[str, str], use: GpuUse) -> list[GpuPlace]:
    """Return a place for each GPU, or one for all of a target: which see ``every`` one of them at once, or
    ``share`` the files, each file on one GPU. Without any, the CPU.
    """
    sessions = smoke.plan_sessions(chosen, chosen, hidden=True)
    if not chosen:
        return [GpuPlace("cpu", None, sessions[0].make_environment(env))]
    alone = [session for session in sessions if session.gfx]
    if use == "alone":
        return [
            GpuPlace(session.label.replace("#", "-"), session.gfx, session.make_environment(env))
            for session in alone
        ]
    gpu_places = []
    for gfx in dict.fromkeys(session.gfx for session in alone):
        first, *others = [session for session in alone if session.gfx == gfx]
        first_env = first.make_environment(env)
        if use == "every":
            visible = ",".join(str(session.index) for session in (first, *others))
            gpu_places.append(GpuPlace(str(gfx), gfx, {**first_env, smoke.HIP_VARIABLE: visible}))
        else:
            beside = tuple(session.make_environment(env) for session in others)
            gpu_places.append(GpuPlace(str(gfx), gfx, first_env, beside))
    return gpu_places


def refuse_unseen_gpus(chosen: Sequence[Gpu], target: installed_torch.TargetPython) -> None:
    """Raise ChecksError where torch does not see a GPU that is to be tested.

    Without it most tests are not even there, and thousands that need none would pass.
    """
    seen_targets = {strip_features(device) for device in target.devices}
    for gpu in chosen:
        if gpu.gfx is not None and strip_features(gpu.gfx) not in seen_targets:
            raise errors.ChecksError(
                f"torch {target.torch_version} does not see the {gpu.gfx} that is to be tested:"
                f" {', '.join(sorted(seen_targets)) or 'no GPU'} is what it sees",
                tip="`rocm-wheels doctor` says why",
            )


def find_known_tests(request: TorchTestRequest, gfx: str | None) -> torch_tests.KnownTests:
    """Return what is known of tests on a target; without a GPU, nothing is."""
    today = datetime.now(timezone.utc).date()
    if gfx is None:
        return torch_tests.KnownTests((), today)
    system: project_names.Platform = "windows" if sys.platform == "win32" else "linux"
    version = request.chosen.known_as or request.target.torch_version
    torch = None if version == "all" else version
    return torch_tests.select_known_tests(
        request.table.known, torch, gfx, system, request.python_version, today=today
    )


def run_in_place(
    request: TorchTestRequest, gpu_place: GpuPlace, folder: Path, show: Callable[[str], None]
) -> TorchResults:
    """Run all that is not done in a place; ``results.json`` is written after every file.

    A run of the same that was ended is carried on; one of something else, or that is complete, is begun anew.
    A GPU that got lost takes no further file; where none is left the run ends, and its results say so.
    Raises UsageError for a folder with something else in it, and ChecksError where pytest cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, purpose="torch's tests"):
        results = _begin_results(request, gpu_place.gfx, folder)
        waiting = []
        for number, part in enumerate(results.parts):
            if part.complete:
                log.log_note(f"{part.name}: done already")
            else:
                waiting.append(number)
        shared_run = _SharedRun(request, gpu_place, folder, show, results)
        parallel.run_growing_work(shared_run.run_file, waiting, jobs=1 + len(gpu_place.beside))
        return shared_run.results


class _SharedRun:
    """The GPUs of a place that are free, and the results that their threads put together."""

    def __init__(
        self,
        request: TorchTestRequest,
        gpu_place: GpuPlace,
        folder: Path,
        show: Callable[[str], None],
        results: TorchResults,
    ) -> None:
        self.results = results
        self._request, self._place, self._folder, self._show = request, gpu_place, folder, show
        self._known_tests = find_known_tests(request, gpu_place.gfx)
        self._record = torch_test_plan.digest_torch_record(request.target)
        self._lock = threading.Lock()
        self._environments = (gpu_place.env, *gpu_place.beside)
        self._free: queue.Queue[int | None] = queue.Queue()  # GPUs; None for all time once none is left
        for number in range(len(self._environments)):
            self._free.put(number)
        self._left = len(self._environments)

    def run_file(self, number: int) -> tuple[None, Sequence[int]]:
        """Run a file on the next GPU that is free; where that gets lost, the file is to be run again."""
        gpu = self._free.get()
        if gpu is None:
            self._free.put(None)
            return None, ()
        try:
            again = self._run_on(gpu, number)
        except BaseException:
            self._free.put(None)  # others wait for this GPU
            raise
        return None, again

    def _run_on(self, gpu: int, number: int) -> Sequence[int]:
        """Run a file on a GPU, which is free then; return it again where the GPU got lost."""
        test_file = self._request.parts[number]
        test_run = self._make_run(gpu)
        name = self._place.label if len(self._environments) == 1 else f"{self._place.label} #{gpu}"
        log.log_note(f"{test_file.name} on {name} ({number + 1} of {len(self._request.parts)})")
        fault: str | None = None
        try:
            file_outcomes = run_file(test_run, test_file)
            fault = _find_wrong_gpu(file_outcomes, self._place.gfx)
            if not file_outcomes.devices:
                _require_gpu_was_there(test_run, test_file)
            if torch_test_plan.digest_torch_record(self._request.target) != self._record:
                fault = "; ".join(filter(None, [fault, "torch was reinstalled while its tests ran"]))
        except _GpuLostError as cause:
            fault = None
            log.log_warning(f"{name} is lost: {cause}")
            return self._lose_gpu(number, f"{name}, at {test_file.name}: {cause}")
        finally:
            self._keep_result(number, test_run, test_file, fault)
        self._free.put(gpu)
        return ()

    def _lose_gpu(self, number: int, fault: str) -> Sequence[int]:
        """Take a GPU out; return the file that it was at where another one can carry it on."""
        with self._lock:
            self._left -= 1
            changes = {"lost_gpus": (*self.results.lost_gpus, fault), "lost": "" if self._left else fault}
            self.results = self.results.model_copy(update=changes)
            if self._left:
                return (number,)
            self._free.put(None)
            return ()

    def _keep_result(
        self, number: int, test_run: TorchTestRun, test_file: torch_test_plan.TorchTestFile, fault: str | None
    ) -> None:
        with self._lock:
            file_result = _judge_file(test_run, test_file, self.results, self._known_tests, fault)
            parts = (*self.results.parts[:number], file_result, *self.results.parts[number + 1 :])
            self.results = self.results.model_copy(update={"parts": parts})
            write_torch_results(self._folder, self.results)

    def _make_run(self, gpu: int) -> TorchTestRun:
        request, gfx = self._request, self._place.gfx
        env = {**self._environments[gpu], **(request.table.environment if gfx else {})}
        find_fault = request.find_gpu_fault
        show = self._show
        return TorchTestRun(
            python=request.target.python,
            env=env,
            tests=request.sources.tests,
            folder=self._folder.absolute(),
            cache=request.chosen.cache,
            words=request.chosen.words,
            test_limit=request.limits[0],
            file_limit=request.limits[1],
            show=show if len(self._environments) == 1 else (lambda line: show(f"#{gpu} {line}")),
            torch=torch_test_plan.find_torch_folder(request.target),
            known_tests=self._known_tests,
            debug=request.chosen.debug,
            tests_alone=request.table.limits.tests_alone,
            ask_gpu=partial(find_fault, gfx, env) if find_fault is not None and gfx else (lambda: ""),
        )


def _begin_results(request: TorchTestRequest, gfx: str | None, folder: Path) -> TorchResults:
    """Return the record to carry on, or write a new one, of which nothing is done."""
    new = _make_blank_results(request, gfx)
    before = None if request.fresh else read_torch_results(folder)
    if before is not None and before.inputs == new.inputs and not before.complete:
        done = sum(part.complete for part in before.parts)
        log.log_note(
            f"resuming a run that ended after {done} of {tables.format_count(len(before.parts), 'file')}"
        )
        return before.model_copy(update={"lost": ""})
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if strange := sorted(names - {*_OWN_FOLDERS, RESULTS_FILE}):
        tip = "name another folder: --output-dir"
        raise errors.UsageError(
            f"{folder} holds something else than results: {', '.join(strange[:3])}", tip=tip
        )
    for name in names & {*_OWN_FOLDERS}:
        shutil.rmtree(folder / name)
    write_torch_results(folder, new)
    return new


def _make_blank_results(request: TorchTestRequest, gfx: str | None) -> TorchResults:
    chosen = ChosenTests(
        suite=request.chosen.suite,
        files=request.chosen.include,
        exclude=request.chosen.exclude,
        shard=request.chosen.shard,
        shards=request.chosen.shards,
        plan=request.plan,
        pytest_args=request.chosen.words,
        variables=request.chosen.variables,
        changes=request.chosen.changes,
        from_environment=request.chosen.from_environment,
    )
    of = TorchUnderTest(
        torch=request.target.torch_version,
        python=request.python_version,
        commit=request.sources.commit,
        sources=request.sources.version,
        doubt=request.sources.doubt,
    )
    choice = chosen.model_dump(exclude={"from_environment"})
    identity: list[object] = [of.model_dump(), choice, gfx, sorted(request.files.items())]
    identity += [
        [(part.name, sorted(part.environment.items()), part.run_by, part.words) for part in request.parts],
        [str(request.sources.folder), str(request.target.python), sorted(request.table.environment.items())],
    ]
    rows = [row.model_dump(mode="json") for row in request.table.known]
    inputs = hashlib.sha256(json.dumps([*identity, rows], sort_keys=True).encode()).hexdigest()
    return TorchResults(
        schema=1,
        tool=TOOL_NAME,
        when=_format_now(),
        host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
        inputs=inputs,
        of=of,
        gfx=gfx,
        files=request.files,
        chosen=chosen,
        machine=request.machine,
        parts=tuple(FileResult(name=part.name) for part in request.parts),
        left_out=request.left_out,
    )


def _find_wrong_gpu(file_outcomes: FileOutcomes, gfx: str | None) -> str:
    """Say that torch used another GPU than that which is tested; "" where not."""
    if gfx is None:
        return ""
    others = [device for device in file_outcomes.devices if strip_features(device) != strip_features(gfx)]
    return f"torch used {', '.join(others)}, not {gfx}" if others else ""


def _judge_file(
    test_run: TorchTestRun,
    test_file: torch_test_plan.TorchTestFile,
    results: TorchResults,
    known_tests: torch_tests.KnownTests,
    fault: str | None,
) -> FileResult:
    """Return what came of a file so far, with its report, where it was run to its end.

    ``fault`` is what is wrong with its GPU or its torch, None where nobody came to look.
    """
    outcomes: FileOutcomes = read_outcomes(test_run.outcomes_path(test_file))
    why = outcomes.file_end or "the run was ended before"
    verdicts = judge_results(outcomes.list_all_results(f"not run: {why}"), known_tests)
    file_result = make_file_result(
        test_file.name,
        verdicts,
        outcomes.left_out,
        complete=outcomes.file_end is not None and fault is not None,
        fault="; ".join(filter(None, [outcomes.file_end, fault])),
        unchosen=outcomes.unchosen,
        seconds=outcomes.seconds,
        devices=outcomes.devices,
    )
    if not file_result.complete:
        return file_result
    report = Path("junit", f"{test_file.slug}.xml")
    (test_run.folder / "junit").mkdir(exist_ok=True)
    write_torch_junit(
        test_run.folder / report, test_file.name, verdicts, when=results.when, host=results.host
    )
    digest = hash_file(test_run.folder / report)
    return file_result.model_copy(update={"report": report.as_posix(), "sha256": digest})


def _format_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

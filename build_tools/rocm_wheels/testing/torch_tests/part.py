"""Run one file of torch's tests. A test that takes its process with it costs nothing but itself."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import ending, log
from rocm_wheels.audit.imports import describe_exit
from rocm_wheels.errors import BuildError, ChecksError, UsageError
from rocm_wheels.process import run_command
from rocm_wheels.testing import recording
from rocm_wheels.testing.torch_tests.outcomes import (
    FileOutcomes,
    note_outcome,
    note_end,
    note_process,
    read_outcomes,
)
from rocm_wheels.testing.torch_tests.plan import TorchTestFile

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
_QUIET_SECONDS = (
    300.0  # seconds that a process may say nothing beside the limit of a test: it starts, reads tests
)


@dataclass(frozen=True)
class TorchTestRun:
    """What all files have: the Python, its environment, where tests and results are, limits in seconds.

    ``torch`` is the folder of the one that is tested, None where it is installed another way. ``only`` these
    tests are run, if not None. ``cache``: pytest keeps its cache, in the folder of the sources.
    """

    python: Path
    env: Mapping[str, str]
    tests: Path
    folder: Path
    left_out: tuple[str, ...]
    words: tuple[str, ...]
    test_limit: float
    file_limit: float
    show: Callable[[str], None]
    torch: Path | None = None
    only: tuple[str, ...] | None = None
    cache: bool = False

    def outcomes_path(self, part: TorchTestFile) -> Path:
        """Return where the outcomes of a file are written."""
        return self.folder / "outcomes" / f"{part.slug}.jsonl"

    def log_path(self, part: TorchTestFile) -> Path:
        """Return where its output goes."""
        return self.folder / "logs" / f"{part.slug}.log"


def run_file(test_run: TorchTestRun, test_file: TorchTestFile) -> FileOutcomes:
    """Run what is not done of a file, and return all that is known of it then.

    A process that dies, or says nothing for so long as a test may take, is begun again behind the test
    that it was at. Raises ChecksError where pytest cannot be started, UsageError where it does not take the
    words that somebody gave.
    """
    path = test_run.outcomes_path(test_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + test_run.file_limit
    for _ in range(_MAX_STARTS):
        note_process(path)
        before = read_outcomes(path)
        how = _run_pytest(test_run, test_file, before, deadline - time.monotonic())
        after = read_outcomes(path)
        if how is None:
            note_end(path, "")
            break
        if not _blame_test(path, after, how):
            note_end(path, _blame_file(path, before, after, how))
            break
        if time.monotonic() >= deadline:
            note_end(path, f"{test_file.name} {how[1]}")
            break
        words = how[1].partition("\n")[0]
        log.log_note(f"{test_file.name}: {after.begun} {words}; the rest goes on")
    else:
        note_end(path, f"{test_file.name} was begun {_MAX_STARTS} times, and died each time")
    return read_outcomes(path)


def _blame_test(path: Path, after: FileOutcomes, how: tuple[str, str]) -> bool:
    """Write down that a test ended its process, and tell whether there was one."""
    if not after.begun:
        return False
    note_outcome(path, after.begun, "timeout" if how[0] == "timeout" else "crashed", f"its process {how[1]}")
    return True


def _blame_file(path: Path, before: FileOutcomes, after: FileOutcomes, how: tuple[str, str]) -> str:
    """Say how a process ended that was at no test, and count it as a failure of the file."""
    words = f"pytest {how[1]}"
    if not any(result.reason.startswith("not read: ") for result in after.results):
        name = "before its first test" if after.results == before.results else "behind its last test"
        note_outcome(path, f"{path.stem}: {name}", "timeout" if how[0] == "timeout" else "crashed", words)
    return words


def _run_pytest(
    test_run: TorchTestRun, test_file: TorchTestFile, before: FileOutcomes, seconds: float
) -> tuple[str, str] | None:
    """Run pytest on what is not done; return None when it ended well, else what happened, and in words."""
    last_lines: list[str] = []

    def keep_line(line: str) -> None:
        last_lines[:] = [*last_lines[1 - _KEPT_LINES :], line]
        test_run.show(line)

    with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as name:
        order = Path(name, "recording.json")
        order.write_text(json.dumps(_make_recorder_options(test_run, test_file, before)), encoding="utf-8")
        try:
            code = run_command(
                _make_pytest_command(test_run, test_file, order),
                env=_make_pytest_environment(test_run, test_file, Path(name)),
                cwd=test_run.tests,
                log=test_run.log_path(test_file),
                on_line=keep_line,
                timeout=max(seconds, 0.001),
                silence=test_run.test_limit + _QUIET_SECONDS,
                check=None,
                description="it",
            ).returncode
        except BuildError as cause:
            if isinstance(cause.__cause__, OSError) or ending.is_interrupted():
                raise ChecksError(f"pytest could not be run by {test_run.python}") from cause
            return "timeout", str(cause).removeprefix("it ")
    _require_words_taken(test_run.words, last_lines)
    return _judge_end(
        code, before, read_outcomes(test_run.outcomes_path(test_file)), last_lines, test_run.test_limit
    )


def _require_words_taken(words: Sequence[str], lines: Sequence[str]) -> None:
    """Raise UsageError where pytest has refused words of somebody's: no file can be tested with them."""
    refused = next((match[1] for line in lines if (match := _REFUSAL_LINE.fullmatch(line.strip()))), "")
    named = {word.rstrip(":") for word in refused.split()}
    if named & {part for word in words for part in (word, word.partition("=")[0])}:
        raise UsageError(
            f"pytest refuses what it is told: {refused}",
            tip="words behind -- and those of PYTEST_ADDOPTS are handed to it: take these out",
        )


def _make_recorder_options(
    test_run: TorchTestRun, test_file: TorchTestFile, before: FileOutcomes
) -> dict[str, object]:
    """Return what the recorder in pytest is told: where outcomes go, what is not run, how long a test may."""
    return {
        "outcomes": str(test_run.outcomes_path(test_file).absolute()),
        "done": before.done,
        "left_out": list(test_run.left_out),
        "only": None if test_run.only is None else list(test_run.only),
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
        return "timeout", f"was stopped after {limit:g} s in it{where}"
    if code == 1 and after.finished:
        return "crashed", f"ended with exit code 1, and no test failed{where}"
    how = f"ended with exit code {code} in the middle" if code in _GOOD_EXIT_CODES else describe_exit(code)
    return "crashed", f"{how}{where}"


def _select_telling_lines(output_lines: Sequence[str]) -> list[str]:
    """Return the lines that say where a process died, or its last ones."""
    lines = [line for line in output_lines if line.strip()]
    traces = [number for number, line in enumerate(lines) if _TRACE_LINE.match(line)]
    return lines[traces[-1] + 1 :][:_SHOWN_LINES] if traces else lines[-_SHOWN_LINES:]


def _make_pytest_command(test_run: TorchTestRun, test_file: TorchTestFile, order: Path) -> list[str]:
    shares = (
        [f"--shard-id={test_file.share}", f"--num-shards={test_file.shares}"] if test_file.shares > 1 else []
    )
    argv = [str(test_run.python), "-X", "faulthandler", "-m", "pytest", "-v", "-p", _PLUGIN_NAME]
    # with "=": pytest takes any other word that is a file for tests
    argv.append(f"--rocm-wheels-recording={order}")
    cache = [] if test_run.cache else ["-p", "no:cacheprovider"]
    return [*argv, *cache, f"{test_file.file}.py", *shares, *test_run.words]


def _make_pytest_environment(
    test_run: TorchTestRun, test_file: TorchTestFile, scratch: Path
) -> dict[str, str]:
    """Return the environment of a process; kernels that MIOpen compiles go with the folder."""
    plugin = str(Path(next(iter(recording.__path__))))
    search_path = test_run.env.get("PYTHONPATH", "")
    separator = ";" if sys.platform == "win32" else ":"
    return {
        **test_run.env,
        **test_file.environment,
        "PYTHONPATH": separator.join(filter(None, [plugin, search_path])),
        "PYTHONUNBUFFERED": "1",  # a line that waits in a buffer looks like a test that hangs
        "MIOPEN_CUSTOM_CACHE_DIR": str(scratch),
    }


def join_pytest_arguments(addopts: Sequence[str], expression: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return what pytest is told: what its own variable says, ``-k``, and what stands behind ``--``.

    Raises UsageError for tests side by side: which of them ended its process, nobody would know.
    """
    arguments = (*addopts, *(["-k", expression] if expression else []), *words)
    if several := next((word for word in arguments if _XDIST_OPTION.fullmatch(word)), None):
        tip = "leave it out (also of PYTEST_ADDOPTS); --shard and --num-shards share the files out"
        raise UsageError(f"{several}: torch's tests run one by one on a GPU", tip=tip)
    return arguments

"""Run torch's own tests, file by file, on one GPU or on none; carry on where a run was ended.

A test that takes its process with it costs nothing but itself: pytest is begun again behind it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import __version__
from rocm_wheels.audit import describe_exit
from rocm_wheels.core import (
    BuildError,
    ChecksError,
    RocmWheelsError,
    UsageError,
    format_count,
    format_duration,
    hash_file,
    is_interrupted,
    lock_folder,
    log_note,
    run_command,
)
from rocm_wheels.gpus import Gpu
from rocm_wheels.models import (
    KnownTests,
    Platform,
    TestedMachine,
    TorchTestTable,
    select_known_tests,
    strip_features,
)
from rocm_wheels.testing.installed_torch import TargetPython
from rocm_wheels.testing.results import (
    RESULTS_FILE,
    ChosenTests,
    FileOutcomes,
    FileResult,
    TorchResults,
    TorchUnderTest,
    judge_results,
    make_file_result,
    note_end,
    note_outcome,
    note_process,
    read_outcomes,
    read_torch_results,
    write_torch_junit,
    write_torch_results,
)
from rocm_wheels.testing.smoke import HIP_VARIABLE, plan_sessions
from rocm_wheels.testing.torch_test_plan import (
    TorchTestFile,
    TorchTestSelection,
    TorchTestSources,
    digest_torch_record,
    find_torch_folder,
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
        log_note(f"{test_file.name}: {after.begun} {words}; the rest continues")
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
            if isinstance(cause.__cause__, OSError) or is_interrupted():
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
            f"pytest rejects its options: {refused}",
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
        return "timeout", f"was stopped after {format_duration(limit)} in it{where}"
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
    plugin = str(Path(__file__).with_name("recording"))  # nothing in it imports rocm-wheels
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


TOOL_NAME = f"rocm-wheels {__version__} torch tests"
_OWN_FOLDERS = ("outcomes", "logs", "junit")  # what a folder of results holds besides results.json


@dataclass(frozen=True)
class TorchTestRequest:
    """What is to be run, for every GPU alike. ``files`` are the wheels that are installed, by sha256.

    ``limits``: seconds that a test may say nothing, and that a file may take. ``fresh``: not to carry on.
    ``ask_devices`` tells which GPU targets torch sees in an environment; None, where nobody is to ask it.
    """

    target: TargetPython
    python_version: str
    sources: TorchTestSources
    chosen: TorchTestSelection
    parts: Sequence[TorchTestFile]
    left_out: Mapping[str, str]
    table: TorchTestTable
    files: Mapping[str, str]
    limits: tuple[float, float]
    fresh: bool = False
    ask_devices: Callable[[Mapping[str, str]], Sequence[str]] | None = None
    machine: TestedMachine | None = None


@dataclass(frozen=True)
class GpuPlace:
    """Where tests run: the GPUs that they see are all in ``env``; without a ``gfx`` there is none."""

    label: str
    gfx: str | None
    env: Mapping[str, str]


def list_places(chosen: Sequence[Gpu], env: Mapping[str, str], *, every: bool) -> list[GpuPlace]:
    """Return a place for each GPU, or with ``every`` for all of a target at once; without any, the CPU."""
    sessions = plan_sessions(chosen, chosen, hidden=True)
    if not chosen:
        return [GpuPlace("cpu", None, sessions[0].make_environment(env))]
    alone = [session for session in sessions if session.gfx]
    if not every:
        return [
            GpuPlace(session.label.replace("#", "-"), session.gfx, session.make_environment(env))
            for session in alone
        ]
    gpu_places = []
    for gfx in dict.fromkeys(session.gfx for session in alone):
        target_sessions = [session for session in alone if session.gfx == gfx]
        visible = ",".join(str(session.index) for session in target_sessions)
        gpu_places.append(
            GpuPlace(str(gfx), gfx, {**target_sessions[0].make_environment(env), HIP_VARIABLE: visible})
        )
    return gpu_places


def refuse_unseen_gpus(chosen: Sequence[Gpu], target: TargetPython) -> None:
    """Raise ChecksError where torch does not see a GPU that is to be tested.

    Without it most tests are not even there, and thousands that need none would pass.
    """
    seen_targets = {strip_features(device) for device in target.devices}
    for gpu in chosen:
        if gpu.gfx is not None and strip_features(gpu.gfx) not in seen_targets:
            raise ChecksError(
                f"torch {target.torch_version} does not see the {gpu.gfx} that is to be tested:"
                f" {', '.join(sorted(seen_targets)) or 'no GPU'} is what it sees",
                tip="`rocm-wheels doctor` says why",
            )


def find_known_tests(request: TorchTestRequest, gfx: str | None) -> KnownTests:
    """Return what is known of tests on a target; without a GPU, nothing is."""
    if gfx is None:
        return KnownTests(())
    system: Platform = "windows" if sys.platform == "win32" else "linux"
    version = request.chosen.known_as or request.target.torch_version
    torch = None if version == "all" else version
    return select_known_tests(request.table.known, torch, gfx, system, request.python_version)


def run_in_place(
    request: TorchTestRequest, gpu_place: GpuPlace, folder: Path, show: Callable[[str], None]
) -> TorchResults:
    """Run all that is not done in a place; ``results.json`` is written after every file.

    A run of the same that was ended is carried on; one of something else, or that is complete, is begun anew.
    Raises UsageError for a folder with something else in it, and ChecksError where pytest cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, purpose="torch's tests"):
        results = _begin_results(request, gpu_place.gfx, folder)
        known_tests, record = find_known_tests(request, gpu_place.gfx), digest_torch_record(request.target)
        table_environment = request.table.environment if gpu_place.gfx else {}
        test_run = TorchTestRun(
            python=request.target.python,
            env={**gpu_place.env, **table_environment},
            tests=request.sources.tests,
            folder=folder.absolute(),
            left_out=() if request.chosen.debug else tuple(known_tests.list_skipped()),
            only=tuple(known_tests.list_names()) if request.chosen.debug else None,
            cache=request.chosen.cache,
            words=request.chosen.words,
            test_limit=request.limits[0],
            file_limit=request.limits[1],
            show=show,
            torch=find_torch_folder(request.target),
        )
        for number, test_file in enumerate(request.parts):
            before = results.parts[number]
            if before.complete:
                log_note(f"{test_file.name}: done already")
                continue
            log_note(f"{test_file.name} on {gpu_place.label} ({number + 1} of {len(request.parts)})")
            lost: str | None = None
            try:
                file_outcomes = run_file(test_run, test_file)
                lost = _why_gpu_lost(request, file_outcomes, gpu_place.gfx, test_run.env)
                if digest_torch_record(request.target) != record:
                    lost = "; ".join(filter(None, [lost, "torch was reinstalled while its tests ran"]))
            finally:
                file_result = _judge_file(test_run, test_file, results, known_tests, lost)
                parts = (*results.parts[:number], file_result, *results.parts[number + 1 :])
                results = results.model_copy(update={"parts": parts})
                write_torch_results(folder, results)
        return results


def _begin_results(request: TorchTestRequest, gfx: str | None, folder: Path) -> TorchResults:
    """Return the record to carry on, or write a new one, of which nothing is done."""
    new = _make_blank_results(request, gfx)
    before = None if request.fresh else read_torch_results(folder)
    if before is not None and before.inputs == new.inputs and not before.complete:
        done = sum(part.complete for part in before.parts)
        log_note(f"resuming a run that ended after {done} of {format_count(len(before.parts), 'file')}")
        return before
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if strange := sorted(names - {*_OWN_FOLDERS, RESULTS_FILE}):
        tip = "name another folder: --output-dir"
        raise UsageError(f"{folder} holds something else than results: {', '.join(strange[:3])}", tip=tip)
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
        pytest_args=request.chosen.words,
        variables=request.chosen.variables,
        changes=request.chosen.changes,
    )
    of = TorchUnderTest(
        torch=request.target.torch_version,
        python=request.python_version,
        commit=request.sources.commit,
        sources=request.sources.version,
        doubt=request.sources.doubt,
    )
    identity: list[object] = [of.model_dump(), chosen.model_dump(), gfx, sorted(request.files.items())]
    identity += [
        [(part.name, sorted(part.environment.items())) for part in request.parts],
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


def _why_gpu_lost(
    request: TorchTestRequest, file_outcomes: FileOutcomes, gfx: str | None, env: Mapping[str, str]
) -> str:
    """Say that a file did not run on its GPU: on another one, or on none, for it is not there any more.

    A driver that one file left in ruins makes the tests of all others vanish, which is nothing that fails.
    """
    if gfx is None:
        return ""
    if others := [
        device for device in file_outcomes.devices if strip_features(device) != strip_features(gfx)
    ]:
        return f"torch used {', '.join(others)}, not {gfx}"
    if file_outcomes.devices or request.ask_devices is None:
        return ""
    try:
        seen_targets = {strip_features(device) for device in request.ask_devices(env)}
    except RocmWheelsError as cause:
        return f"torch does not tell any more which GPUs it sees: {cause}"
    return "" if strip_features(gfx) in seen_targets else f"torch does not see the {gfx} any more"


def _judge_file(
    test_run: TorchTestRun,
    test_file: TorchTestFile,
    results: TorchResults,
    known_tests: KnownTests,
    lost: str | None,
) -> FileResult:
    """Return what came of a file so far, with its report, where it was run to its end.

    ``lost`` is what is wrong with its GPU or its torch, None where nobody came to look.
    """
    outcomes: FileOutcomes = read_outcomes(test_run.outcomes_path(test_file))
    why = outcomes.file_end or "the run was ended before"
    verdicts = judge_results(outcomes.list_all_results(f"not run: {why}"), known_tests)
    file_result = make_file_result(
        test_file.name,
        verdicts,
        outcomes.left_out,
        complete=outcomes.file_end is not None and lost is not None,
        fault="; ".join(filter(None, [outcomes.file_end, lost])),
        unchosen=outcomes.unchosen,
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

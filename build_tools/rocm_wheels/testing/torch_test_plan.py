"""Plan torch's own tests: which files, in which shares, what is known to fail.

What is known of single tests is ``data/torch_tests.yaml``.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from rocm_wheels.core import errors, log, process, shell, tables
from rocm_wheels.models import tested_machine, torch_tests
from rocm_wheels.models.test_results import Suite
from rocm_wheels.testing import installed_torch, pytest_words, torch_sources
from rocm_wheels.testing.results import RESULTS_FILE, read_results, start_results
from rocm_wheels.testing.runner import TestFile, TestRequest

_LISTED_FILE = re.compile(r"    (\S+) (\d+)/(\d+)")
_LISTING_SECONDS = 600.0
_MAX_SHOWN_LINES = 15
# read in torch/testing/_internal/common_utils.py and common_device_type.py of 2.15.0
_CHOOSING_VARIABLE = re.compile(
    r"PYTORCH_(TEST|OPINFO)\w*|OPINFO_RESTRICT_TO_DSL|TORCH_TEST_DEVICES|(SLOW|DISABLED)_TESTS_FILE"
    r"|TEST_CONFIG|SANDCASTLE|TW_JOB_USER|PYTEST_PLUGINS"
)


@dataclass(frozen=True)
class TorchTestSelection:
    """What is chosen of a suite. ``words`` go to pytest; ``shard`` of ``shards``, from 1.

    ``variables`` are those of the environment by which torch's tests choose among themselves.
    ``durations``: seconds that files took, by name.
    """

    suite: str = "default"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = 1
    shards: int = 1
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)

    def estimate_seconds(self, test_file: TestFile) -> float:
        """Return how long a file, or a share of one, is likely to take."""
        unrecorded = torch_tests.load_torch_tests().limits.unrecorded_seconds
        return self.durations.get(test_file.file, unrecorded) / test_file.shares

    def describe(self, doubt: str = "") -> str:
        """Say how tests are chosen; "" for a whole suite of the tests that are torch's own (no ``doubt``)."""
        words = pytest_words.find_selecting_words(self.words)
        selections = [
            shell.format_command(words) if words else "",
            *(f"{name}={value}" for name, value in sorted(self.variables.items())),
            f"only {', '.join(self.include)}" if self.include else "",
            f"without {', '.join(self.exclude)}" if self.exclude else "",
            doubt,
        ]
        return "; ".join(filter(None, selections))


@dataclass(frozen=True)
class TorchTestPlan:
    """The files of a shard, longest first, and what the table leaves out of what is listed.

    ``digest`` names how all files were shared out ("" where they were not): shards of two plans may hold one
    file twice, and another one not at all.
    """

    files: tuple[TestFile, ...]
    left_out: tuple[torch_tests.LeftOutFiles, ...]
    digest: str = ""


def find_choosing_variables(env: Mapping[str, str], own_names: Iterable[str]) -> dict[str, str]:
    """Return what of the environment keeps torch from running some tests, without our ``own_names``."""
    without = frozenset(own_names)
    return {
        name: env[name] for name in sorted(env) if _CHOOSING_VARIABLE.fullmatch(name) and name not in without
    }


def plan_test_files(
    suite: torch_tests.TorchTestSuite,
    chosen: TorchTestSelection,
    tests: Path,
    python: Path,
    env: Mapping[str, str],
) -> TorchTestPlan:
    """Return what is run, longest first, and what the table leaves out of what is listed.

    ``include`` names files instead of those of the suite, whatever it leaves out. Raises UsageError for names
    of files that there are not, and where nothing is left; ChecksError where run_test.py lists nothing.
    """
    for option, names in (("--include", chosen.include), ("--exclude", chosen.exclude)):
        _refuse_unknown_files(option, names, tests)
    groups = suite.groups
    skipped: list[torch_tests.LeftOutFiles] = []
    test_files: list[TestFile] = []
    if chosen.include:
        # as the group that names a file has it run, else as one that has its files listed does
        listing = next((group for group in groups if group.listed_by), None)
        for name in chosen.include:
            naming = next((group for group in groups if name in group.files), listing)
            test_files.append(_make_test_file(name, naming) if naming else TestFile(name))
    else:
        without = {file for row in suite.left_out for file in row.files}
        for group in groups:
            if group.listed_by:
                group_files = _ask_run_test(group, tests, python, env)
            else:
                group_files = [_make_test_file(name, group) for name in group.files]
            listed = {test_file.file for test_file in group_files}
            skipped += [row for row in suite.left_out if listed & set(row.files) and row not in skipped]
            test_files += [test_file for test_file in group_files if test_file.file not in without]
    test_files = [test_file for test_file in test_files if test_file.file not in chosen.exclude]
    _refuse_unknown_files(f"the suite {chosen.suite}", [test_file.file for test_file in test_files], tests)
    # torch's conftest.py knows to run a share of a long file; run_test.py runs whole ones
    share_seconds = torch_tests.load_torch_tests().limits.share_seconds
    for test_file in [file for file in test_files if file.run_by == "pytest" and file.shares == 1]:
        if (shares := math.ceil(chosen.durations.get(test_file.file, 0.0) / share_seconds)) > 1:
            place = test_files.index(test_file)
            cut = [replace(test_file, share=share, shares=shares) for share in range(1, shares + 1)]
            test_files[place : place + 1] = cut
    shared = share_out(list(map(chosen.estimate_seconds, test_files)), chosen.shards)
    if not shared[chosen.shard - 1]:
        raise errors.UsageError(
            f"no file of tests is left to run of {tables.format_count(len(test_files), 'file')}",
            tip="--dry-run shows what a choice comes to; fewer shards than files hold one each",
        )
    sharing = [[test_files[number].name for number in shard] for shard in shared]
    digest = hashlib.sha256(json.dumps(sharing).encode()).hexdigest()[:12] if chosen.shards > 1 else ""
    return TorchTestPlan(
        tuple(test_files[number] for number in shared[chosen.shard - 1]), tuple(skipped), digest
    )


def _make_test_file(file_name: str, group: torch_tests.TorchTestGroup) -> TestFile:
    return TestFile(file_name, run_by=group.run_by, words=group.words)


def _ask_run_test(
    group: torch_tests.TorchTestGroup, tests: Path, python: Path, env: Mapping[str, str]
) -> list[TestFile]:
    """Return all that torch's own run_test.py would run: it knows the platform, and cuts long files."""
    argv = [str(python), str(tests / "run_test.py"), *group.listed_by, "--dry-run", "--shard", "1", "1"]
    lines: list[str] = []
    log.log_note("asking test/run_test.py which files there are")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as home:
        code = process.run_command(
            argv,
            env={**env, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": home},
            cwd=tests,
            on_line=lines.append,
            timeout=_LISTING_SECONDS,
            check=None,
            description="run_test.py",
        ).returncode
    last = "".join(f"\n  | {line}" for line in lines[-_MAX_SHOWN_LINES:])
    if code:
        raise errors.ChecksError(
            f"run_test.py lists no tests, and ended with {code}:{last}",
            tip="it needs more than pytest: the same command with --requirements prints what to install",
        )
    test_files: list[TestFile] = []
    inside = False
    for line in lines:
        if line.startswith("Name: "):
            inside = line.startswith("Name: tests to run")
        elif inside and line.startswith("    "):
            match = _LISTED_FILE.fullmatch(line.rstrip())
            if match is None:
                raise errors.ChecksError(
                    f"run_test.py lists {line.strip()!r}, which is no file and share (NAME 1/2)"
                )
            test_file = _make_test_file(match[1], group)
            if group.run_by == "pytest":  # run_test.py runs whole files
                test_file = replace(test_file, share=int(match[2]), shares=int(match[3]))
            if test_file not in test_files:
                test_files.append(test_file)
    if not test_files:
        raise errors.ChecksError(f"run_test.py lists no tests:{last}", tip="see what --dry-run prints")
    return test_files


def _refuse_unknown_files(source: str, names: Sequence[str], tests: Path) -> None:
    for name in names:
        if (tests / f"{name}.py").is_file():
            continue
        existing = [path.relative_to(tests).with_suffix("").as_posix() for path in tests.rglob("test_*.py")]
        raise errors.UsageError(
            f"{source} names {name}, and there is no {tests / name}.py{tables.suggest_name(name, existing)}",
            tip="name files of test/ without .py: test_nn, nn/test_pooling",
        )


def make_torch_request(
    target: installed_torch.TargetPython,
    sources: torch_sources.TorchTestSources,
    chosen: TorchTestSelection,
    env: Mapping[str, str],
    *,
    wheels: Mapping[str, str],
    limit: float | None = None,
    find_gpu_fault: Callable[[str, Mapping[str, str]], str] | None = None,
    machine: tested_machine.TestedMachine | None = None,
    remarks: Sequence[str] = (),
) -> TestRequest:
    """Return what is to be run of torch's own tests; ``limit``: seconds of a test, else the table's.

    Raises UsageError and ChecksError as ``plan_test_files`` does, which is asked in the environment ``env``.
    """
    table = torch_tests.load_torch_tests()
    suite = table.suites[chosen.suite]
    plan = plan_test_files(suite, chosen, sources.tests, target.python, {**env, **table.environment})
    commit = sources.commit or sources.version
    header = start_results(
        "tests",
        wheels=wheels,
        machine=machine,
        suite=Suite(name=chosen.suite, shard=chosen.shard, shards=chosen.shards, plan=plan.digest),
        subject=f"torch {target.torch_version}, Python {target.python_version}, tests of {commit}",
        selected=chosen.describe(sources.doubt),
        remarks=remarks,
    )
    return TestRequest(
        header,
        target,
        sources.tests,
        plan.files,
        limit=limit or table.waiting.test_minutes * 60,
        file_limit=table.waiting.file_minutes * 60,
        words=chosen.words,
        environment=table.environment,
        known=table.known,
        known_torch=target.torch_version,
        tests_alone=table.limits.tests_alone,
        left_out={file: row.reason for row in plan.left_out for file in row.files},
        find_gpu_fault=find_gpu_fault,
        uses_gpu=suite.gpus == "one",  # distributed tests have other processes use them
    )


_LONGEST_SECONDS = 7 * 24 * 3600.0
_PATH_TIP = "name a folder of results of `rocm-wheels test torch`, or its results.json"


def read_durations(paths: Sequence[Path], suite: str) -> dict[str, float]:
    """Return the seconds that files of a suite took, by name; of several results the newest counts.

    ``paths`` are results.json of torch's tests, and folders with some at any depth, other results among them.
    What was not run to its end says nothing; of a file in shares, all must be there. Raises UsageError for a
    path without any, DataError for results that cannot be read, or say that a file took more than a week.
    """
    newest: dict[tuple[str, int], dict[int, tuple[datetime, float]]] = defaultdict(dict)  # by file and shares
    for path in paths:
        if not path.exists():
            raise errors.UsageError(f"ROCM_WHEELS_DURATIONS: there is no {path}", tip=_PATH_TIP)
        if path.is_file() and path.name != RESULTS_FILE:
            raise errors.UsageError(f"ROCM_WHEELS_DURATIONS: {path} is no {RESULTS_FILE}", tip=_PATH_TIP)
        files = sorted(path.rglob(RESULTS_FILE)) if path.is_dir() else [path]
        records = [(file, read_results(file)) for file in files]
        records = [(file, record) for file, record in records if record.suite is not None]
        if not records:
            raise errors.UsageError(
                f"ROCM_WHEELS_DURATIONS: there are no results of torch's tests in {path}", tip=_PATH_TIP
            )
        for file, record in records:
            for name, seconds in record.files.items():
                if seconds > _LONGEST_SECONDS:
                    raise errors.DataError(
                        f"{file} says that {name} took {seconds:.3g} s, more than a week",
                        tip="leave it out of ROCM_WHEELS_DURATIONS",
                    )
                if record.suite is not None and record.suite.name == suite and seconds:
                    test_file, share, shares = torch_tests.split_test_share(name)
                    known = newest[test_file, shares].get(share, (record.when, 0.0))
                    newest[test_file, shares][share] = max(known, (record.when, seconds))
    totals: dict[str, tuple[datetime, float]] = {}
    for (test_file, shares), by_share in newest.items():
        if len(by_share) == shares:
            oldest = min(when for when, _ in by_share.values())
            total = oldest, sum(seconds for _, seconds in by_share.values())
            totals[test_file] = max(totals.get(test_file, total), total)
    return {test_file: seconds for test_file, (_, seconds) in sorted(totals.items())}


def share_out(seconds: Sequence[float], shards: int) -> list[list[int]]:
    """Return for each shard the numbers of its items: the longest is given out first, to the shortest shard.

    Of items that take as long, the earlier one goes first. Every item is in one shard. Who takes part in a
    run shares out alone, and must come to what all others do.
    """
    order = sorted(range(len(seconds)), key=lambda number: (-seconds[number], number))
    loads = [(0.0, shard) for shard in range(shards)]
    shared: list[list[int]] = [[] for _ in range(shards)]
    for number in order:
        load, shard = heapq.heappop(loads)
        shared[shard].append(number)
        heapq.heappush(loads, (load + seconds[number], shard))
    return shared

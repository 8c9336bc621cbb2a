"""Run the files of a plan on one GPU, or on none; carry on where a run was ended."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import __version__, log
from rocm_wheels.errors import ChecksError, RocmWheelsError, UsageError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.model.project import Platform
from rocm_wheels.model.torch_tests import KnownTests, TorchTestTable, select_known_tests
from rocm_wheels.testing.sessions import HIP_VARIABLE, plan_sessions
from rocm_wheels.testing.target import TargetPython
from rocm_wheels.testing.torch_tests.outcomes import FileOutcomes, judge_results, read_outcomes
from rocm_wheels.testing.torch_tests.part import TorchTestRun, run_file
from rocm_wheels.testing.torch_tests.plan import TorchTestFile, TorchTestSelection
from rocm_wheels.testing.torch_tests.records import (
    RESULTS_FILE,
    ChosenTests,
    FileResult,
    TorchUnderTest,
    TorchResults,
    make_file_result,
    read_torch_results,
    write_torch_results,
)
from rocm_wheels.testing.torch_tests.reports import write_torch_junit
from rocm_wheels.testing.torch_tests.sources import TorchTestSources, find_torch_folder, digest_torch_record
from rocm_wheels.wheels.members import hash_file
from rocm_wheels.workspace import lock_folder

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
                log.log_note(f"{test_file.name}: done already")
                continue
            log.log_note(f"{test_file.name} on {gpu_place.label} ({number + 1} of {len(request.parts)})")
            lost: str | None = None
            try:
                file_outcomes = run_file(test_run, test_file)
                lost = _why_gpu_lost(request, file_outcomes, gpu_place.gfx, test_run.env)
                if digest_torch_record(request.target) != record:
                    lost = "; ".join(filter(None, [lost, "torch was installed anew while its tests ran"]))
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
        log.log_note(f"a run was ended after {done} of {len(before.parts)} files: it is carried on")
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

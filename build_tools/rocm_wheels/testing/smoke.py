"""Run the smoke tests of an installed torch, on each GPU that is asked for, and account for every test."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rocm_wheels import __version__, log
from rocm_wheels.audit.imports import describe_end
from rocm_wheels.errors import BuildError, ChecksError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.model.gfx import base_target
from rocm_wheels.process import run
from rocm_wheels.shell import shell_line
from rocm_wheels.testing.data import smoke_data
from rocm_wheels.testing.results import BAD, Results, TestResult, counted
from rocm_wheels.testing.sessions import Policy, Session, chosen_gpus, planned_sessions
from rocm_wheels.testing.target import Target, ask_target
from rocm_wheels.testing.wheels import wheels_under_test

NO_TESTS = 5  # pytest's exit code
FAILED = 1  # likewise
_DEFAULT = ("-v", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Asked:
    """What is to be tested: the torch of ``python``, by the tests in ``folder``, on which GPUs.

    ``targets`` are those of ``--amdgpu-family``, None for any. ``wheels`` are files or folders of the wheels
    that are installed. ``words`` go to pytest, which runs in ``folder``. ``limit``: seconds for each test,
    None as the tests say.
    """

    python: Path
    folder: Path
    policy: Policy = "unique"
    targets: tuple[str, ...] | None = None
    require_gpu: bool = False
    wheels: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    limit: float | None = None


@dataclass(frozen=True)
class Ran:
    """What came of it: all results, those of each target where there are several, and pytest's exit code."""

    results: Results
    by_gfx: Mapping[str, Results]
    code: int


@dataclass(frozen=True)
class _Done:
    session: Session
    gfx: str | None
    tests: tuple[TestResult, ...]
    code: int


def run_smoke_tests(
    asked: Asked, gpus: Sequence[Gpu], env: Mapping[str, str], *, show: Callable[[str], None]
) -> Ran:
    """Run the smoke tests; ``gpus`` are those of the machine, ``show`` gets what pytest prints.

    Raises ChecksError where torch or pytest is not installed, or the tests are not there, and UsageError
    for wheels that are not what is installed. A test that fails is no error of this function.
    """
    probe = asked.folder / "probe.py"
    if not probe.is_file():
        raise ChecksError(f"the smoke tests are not in {asked.folder}", tip="run this from a whole clone")
    target = ask_target(asked.python, probe, env)
    files = wheels_under_test(target.installed, asked.wheels)
    chosen = _chosen(asked, target, gpus)
    sessions = planned_sessions(chosen, gpus, hidden=asked.targets is not None)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        done = [
            _one_session(asked, target, session, env, scratch=Path(name), show=show) for session in sessions
        ]
    return _together(target, files, done, asked.words)


def _chosen(asked: Asked, target: Target, gpus: Sequence[Gpu]) -> list[Gpu]:
    chosen = chosen_gpus(gpus, asked.policy, asked.targets)
    if not chosen and asked.targets is not None:
        log.warn(f"no GPU of {' '.join(asked.targets)} is here for the tests that need one")
    if chosen and target.kind not in ("rocm", ""):
        named = ", ".join(str(gpu.gfx) for gpu in chosen)
        log.warn(f"torch {target.version} is a build for {target.kind}: {named} is not tested")
        return []
    return chosen


def _one_session(
    asked: Asked,
    target: Target,
    session: Session,
    env: Mapping[str, str],
    *,
    scratch: Path,
    show: Callable[[str], None],
) -> _Done:
    """Run pytest once; what was planned and has no outcome has crashed."""
    data, outcomes = scratch / "data.json", scratch / "outcomes.jsonl"
    rocm = target.of if target.kind == "rocm" else None
    rows = smoke_data(_gfx(session, target), target.version or None, rocm)
    data.write_text(json.dumps(rows), encoding="utf-8")
    outcomes.unlink(missing_ok=True)
    argv = [str(asked.python), "-m", "pytest", *_DEFAULT]
    # with "=": pytest takes any other word that is a file for tests, and looks beside it for conftest.py
    argv += [f"--smoke-half={session.half}", f"--smoke-data={data}", f"--smoke-outcomes={outcomes}"]
    argv += [f"--smoke-gfx={session.gfx}"] if session.gfx else []
    argv += ["--require-gpu"] if session.gfx or (asked.require_gpu and session.half == "both") else []
    argv += [f"--smoke-limit={asked.limit:g}"] if asked.limit is not None else []
    log.note(f"smoke tests: {session.label or {'cpu': 'on the CPU'}.get(session.half, 'on what is here')}")
    try:
        code = run(
            [*argv, *asked.words],
            env=session.environment(env),
            cwd=asked.folder,
            on_line=show,
            check=None,
            what="pytest",
        ).returncode
    except BuildError as cause:
        raise ChecksError(f"pytest could not be run by {asked.python}") from cause
    return _Done(session, _gfx(session, target), _accounted(outcomes, session, code), code)


def _gfx(session: Session, target: Target) -> str | None:
    """Return the target that a session tests: its own, else that of the first GPU that torch sees."""
    if session.gfx or session.half == "cpu" or session.hidden or not target.devices:
        return session.gfx
    return base_target(target.devices[0])


def _accounted(outcomes: Path, session: Session, code: int) -> tuple[TestResult, ...]:
    """Return every planned test with its outcome; whatever pytest did not come to, is no pass."""
    planned: list[str] = []
    found: dict[str, TestResult] = {}
    for line in outcomes.read_text(encoding="utf-8").splitlines() if outcomes.is_file() else ():
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died while it wrote this line
        if "planned" in said:
            planned = said["planned"]
        else:
            found[said["name"]] = TestResult.model_validate(said)
    how = describe_end(code)
    for name in planned:
        if name not in found:
            why = f"no result: pytest {how}"
            found[name] = TestResult(name=name, outcome="crashed", seconds=0, reason=why)
    if code not in (0, NO_TESTS) and not any(one.outcome in BAD for one in found.values()):
        found["pytest"] = TestResult(name="pytest", outcome="failed", seconds=0, reason=how)
    mark = f" @{session.label}" if session.label else ""
    return tuple(one.model_copy(update={"name": one.name + mark}) for one in found.values())


def _tested(done: _Done) -> str | None:
    """Return the target of a session, if any of its tests of the GPU was run."""
    ran = (one for one in done.tests if "[gpu" in one.name and one.outcome != "skipped")
    return done.gfx if any(ran) else None


def _together(
    target: Target, files: Mapping[str, str], done: Sequence[_Done], words: Sequence[str] = ()
) -> Ran:
    """Put the sessions into one, and into one for each target with what was tested without a GPU.

    ``words`` are what pytest was told besides: some tests may be chosen, so they go into the results.
    """
    told = f" ({shell_line(words)})" if words else ""

    def results(chosen: Sequence[_Done]) -> Results:
        tests = tuple(test for one in chosen for test in one.tests)
        return Results(
            schema=1,
            tool=f"rocm-wheels {__version__} smoke tests{told}",
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
            torch=target.torch_version,
            gfx=tuple(dict.fromkeys(gfx for gfx in map(_tested, chosen) if gfx)),
            files=files,
            tests=tests,
            counts=counted(tests),
        )

    targets = list(dict.fromkeys(one.gfx for one in done if one.gfx))
    by_gfx = {gfx: results([one for one in done if one.gfx in (gfx, None)]) for gfx in targets}
    whole = results(done)
    codes = [one.code for one in done if one.code not in (0, NO_TESTS)]
    code = NO_TESTS if not whole.tests else codes[0] if codes else FAILED if whole.bad else 0
    return Ran(whole, by_gfx if len(targets) > 1 else {}, code)

"""Run the smoke tests of an installed torch, on each GPU that is asked for, and account for every test."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import BuildError, ChecksError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.process import run_command
from rocm_wheels.testing.accounting import SmokeRun, account_for_tests, combine_sessions
from rocm_wheels.testing.data import make_smoke_data
from rocm_wheels.testing.sessions import DevicePolicy, GpuSession, choose_gpus, plan_sessions
from rocm_wheels.testing.target import TargetPython, inspect_target_python
from rocm_wheels.testing.wheels import identify_wheels

_KEEP_SECONDS = 1.0  # how old the results on the disk may be while tests run
_PYTEST_ARGUMENTS = ("-v", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class SmokeRequest:
    """What is to be tested: the torch of ``python``, by the tests in ``folder``, on which GPUs.

    ``targets`` are those of ``--amdgpu-family``, None for any. ``wheels`` are files or folders of the wheels
    that are installed. ``words`` go to pytest, which runs in ``folder``. ``limit``: seconds for each test,
    None as the tests say; all limits are multiplied by ``scale``.
    """

    python: Path
    folder: Path
    policy: DevicePolicy = "unique"
    targets: tuple[str, ...] | None = None
    require_gpu: bool = False
    wheels: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    limit: float | None = None
    scale: float = 1.0


def run_smoke_tests(
    request: SmokeRequest,
    gpus: Sequence[Gpu],
    env: Mapping[str, str],
    *,
    show: Callable[[str], None],
    keep: Callable[[SmokeRun], None] = lambda _: None,
) -> SmokeRun:
    """Run the smoke tests; ``gpus`` are those of the machine, ``show`` gets what pytest prints.

    ``keep`` is to write the results down: it is called before the first test, while tests run, and at the
    end, also when that is an interruption; what was not run by then is missing. Raises ChecksError where
    torch or pytest is not installed, or the tests are not there, and UsageError for wheels that are not
    what is installed. A test that fails is no error of this function.
    """
    looking_script = request.folder / "looking.py"
    if not looking_script.is_file():
        raise ChecksError(f"the smoke tests are not in {request.folder}", tip="install rocm-wheels again")
    target = inspect_target_python(request.python, looking_script, env)
    files = identify_wheels(target.installed, request.wheels)
    chosen = _choose_tested_gpus(request, target, gpus)
    sessions = plan_sessions(chosen, gpus, hidden=request.targets is not None)
    words = (*shlex.split(env.get("PYTEST_ADDOPTS", "")), *request.words)
    codes: list[int | None] = [None] * len(sessions)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        outcomes = [Path(name, f"outcomes-{number}.jsonl") for number in range(len(sessions))]

        def now() -> SmokeRun:
            parts = zip(outcomes, sessions, codes, strict=True)
            done = [
                account_for_tests(file, gpu_session, _find_session_target(gpu_session, target), code)
                for file, gpu_session, code in parts
            ]
            return combine_sessions(target, files, done, words)

        keep(now())
        try:
            for number, session in enumerate(sessions):
                show_and_keep = _keep_while_showing(show, lambda: keep(now()))
                codes[number] = _run_session(
                    request, target, session, env, outcomes=outcomes[number], show=show_and_keep
                )
        finally:
            ran = now()
            keep(ran)
    return ran


def _keep_while_showing(show: Callable[[str], None], keep: Callable[[], None]) -> Callable[[str], None]:
    """Return what shows a line, and keeps the results when that was a while ago."""
    last = time.monotonic()

    def show_line(line: str) -> None:
        nonlocal last
        show(line)
        if time.monotonic() > last + _KEEP_SECONDS:
            keep()
            last = time.monotonic()

    return show_line


def _choose_tested_gpus(request: SmokeRequest, target: TargetPython, gpus: Sequence[Gpu]) -> list[Gpu]:
    chosen = choose_gpus(gpus, request.policy, request.targets)
    if not chosen and request.targets is not None:
        log.log_warning(f"no GPU of {' '.join(request.targets)} is here for the tests that need one")
    if chosen and target.kind not in ("rocm", ""):
        named = ", ".join(str(gpu.gfx) for gpu in chosen)
        log.log_warning(f"torch {target.version} is a build for {target.kind}: {named} is not tested")
        return []
    return chosen


def _run_session(
    request: SmokeRequest,
    target: TargetPython,
    session: GpuSession,
    env: Mapping[str, str],
    *,
    outcomes: Path,
    show: Callable[[str], None],
) -> int:
    """Run pytest once, which writes to ``outcomes``; return its exit code."""
    data = outcomes.with_name("data.json")
    rocm = target.kind_version if target.kind == "rocm" else None
    rows = make_smoke_data(_find_session_target(session, target), target.version or None, rocm)
    data.write_text(json.dumps(rows), encoding="utf-8")
    argv = [str(request.python), "-m", "pytest", *_PYTEST_ARGUMENTS]
    # with "=": pytest takes any other word that is a file for tests, and looks beside it for conftest.py
    argv += [f"--smoke-half={session.half}", f"--smoke-data={data}", f"--smoke-outcomes={outcomes}"]
    argv += [f"--smoke-gfx={session.gfx}"] if session.gfx else []
    argv += ["--require-gpu"] if session.gfx or (request.require_gpu and session.half == "both") else []
    argv += [f"--smoke-limit={request.limit:g}"] if request.limit is not None else []
    argv += [f"--smoke-scale={request.scale:g}"]
    log.log_note(
        f"smoke tests: {session.label or {'cpu': 'on the CPU'}.get(session.half, 'on what is here')}"
    )
    try:
        return run_command(
            [*argv, *request.words],
            env=session.make_environment(env),
            cwd=request.folder,
            on_line=show,
            check=None,
            description="pytest",
        ).returncode
    except BuildError as cause:
        raise ChecksError(f"pytest could not be run by {request.python}") from cause


def _find_session_target(session: GpuSession, target: TargetPython) -> str | None:
    """Return the target that a session tests: its own, else that of the first GPU that torch sees."""
    if session.gfx or session.half == "cpu" or session.hidden or not target.devices:
        return session.gfx
    return strip_features(target.devices[0])

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
from rocm_wheels.model.gfx import base_target
from rocm_wheels.process import run
from rocm_wheels.testing.accounting import Ran, accounted, together
from rocm_wheels.testing.data import smoke_data
from rocm_wheels.testing.sessions import Policy, Session, chosen_gpus, planned_sessions
from rocm_wheels.testing.target import Target, ask_target
from rocm_wheels.testing.wheels import wheels_under_test

_WRITTEN_SECONDS = 1.0  # how old the results on the disk may be while tests run
_DEFAULT = ("-v", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Asked:
    """What is to be tested: the torch of ``python``, by the tests in ``folder``, on which GPUs.

    ``targets`` are those of ``--amdgpu-family``, None for any. ``wheels`` are files or folders of the wheels
    that are installed. ``words`` go to pytest, which runs in ``folder``. ``limit``: seconds for each test,
    None as the tests say; all limits are multiplied by ``scale``.
    """

    python: Path
    folder: Path
    policy: Policy = "unique"
    targets: tuple[str, ...] | None = None
    require_gpu: bool = False
    wheels: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    limit: float | None = None
    scale: float = 1.0


def run_smoke_tests(
    asked: Asked,
    gpus: Sequence[Gpu],
    env: Mapping[str, str],
    *,
    show: Callable[[str], None],
    keep: Callable[[Ran], None] = lambda _: None,
) -> Ran:
    """Run the smoke tests; ``gpus`` are those of the machine, ``show`` gets what pytest prints.

    ``keep`` is to write the results down: it is called before the first test, while tests run, and at the
    end, also when that is an interruption; what was not run by then is missing. Raises ChecksError where
    torch or pytest is not installed, or the tests are not there, and UsageError for wheels that are not
    what is installed. A test that fails is no error of this function.
    """
    looking = asked.folder / "looking.py"
    if not looking.is_file():
        raise ChecksError(f"the smoke tests are not in {asked.folder}", tip="install rocm-wheels again")
    target = ask_target(asked.python, looking, env)
    files = wheels_under_test(target.installed, asked.wheels)
    chosen = _chosen(asked, target, gpus)
    sessions = planned_sessions(chosen, gpus, hidden=asked.targets is not None)
    words = (*shlex.split(env.get("PYTEST_ADDOPTS", "")), *asked.words)
    codes: list[int | None] = [None] * len(sessions)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        outcomes = [Path(name, f"outcomes-{number}.jsonl") for number in range(len(sessions))]

        def now() -> Ran:
            parts = zip(outcomes, sessions, codes, strict=True)
            done = [accounted(file, one, _gfx(one, target), code) for file, one, code in parts]
            return together(target, files, done, words)

        keep(now())
        try:
            for number, session in enumerate(sessions):
                shown = _and_keep(show, lambda: keep(now()))
                codes[number] = _one_session(
                    asked, target, session, env, outcomes=outcomes[number], show=shown
                )
        finally:
            ran = now()
            keep(ran)
    return ran


def _and_keep(show: Callable[[str], None], keep: Callable[[], None]) -> Callable[[str], None]:
    """Return what shows a line, and keeps the results when that was a while ago."""
    last = time.monotonic()

    def shown(line: str) -> None:
        nonlocal last
        show(line)
        if time.monotonic() > last + _WRITTEN_SECONDS:
            keep()
            last = time.monotonic()

    return shown


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
    outcomes: Path,
    show: Callable[[str], None],
) -> int:
    """Run pytest once, which writes to ``outcomes``; return its exit code."""
    data = outcomes.with_name("data.json")
    rocm = target.of if target.kind == "rocm" else None
    rows = smoke_data(_gfx(session, target), target.version or None, rocm)
    data.write_text(json.dumps(rows), encoding="utf-8")
    argv = [str(asked.python), "-m", "pytest", *_DEFAULT]
    # with "=": pytest takes any other word that is a file for tests, and looks beside it for conftest.py
    argv += [f"--smoke-half={session.half}", f"--smoke-data={data}", f"--smoke-outcomes={outcomes}"]
    argv += [f"--smoke-gfx={session.gfx}"] if session.gfx else []
    argv += ["--require-gpu"] if session.gfx or (asked.require_gpu and session.half == "both") else []
    argv += [f"--smoke-limit={asked.limit:g}"] if asked.limit is not None else []
    argv += [f"--smoke-scale={asked.scale:g}"]
    log.note(f"smoke tests: {session.label or {'cpu': 'on the CPU'}.get(session.half, 'on what is here')}")
    try:
        return run(
            [*argv, *asked.words],
            env=session.environment(env),
            cwd=asked.folder,
            on_line=show,
            check=None,
            what="pytest",
        ).returncode
    except BuildError as cause:
        raise ChecksError(f"pytest could not be run by {asked.python}") from cause


def _gfx(session: Session, target: Target) -> str | None:
    """Return the target that a session tests: its own, else that of the first GPU that torch sees."""
    if session.gfx or session.half == "cpu" or session.hidden or not target.devices:
        return session.gfx
    return base_target(target.devices[0])

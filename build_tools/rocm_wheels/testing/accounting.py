"""What came of every test that was planned: none is left out because nobody said anything of it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rocm_wheels import __version__
from rocm_wheels.audit.imports import describe_exit
from rocm_wheels.shell import format_command
from rocm_wheels.testing.results import BAD_OUTCOMES, Results, ResultSelection, TestResult, count_outcomes
from rocm_wheels.testing.sessions import GpuSession
from rocm_wheels.testing.target import TargetPython

NO_TESTS_EXIT_CODE = 5  # pytest's exit code
FAILED_EXIT_CODE = 1  # likewise


@dataclass(frozen=True)
class SmokeRun:
    """What came of it: all results, those of each target where there are several, and pytest's exit code."""

    results: Results
    by_gfx: Mapping[str, Results]
    code: int


@dataclass(frozen=True)
class SessionResult:
    """A session, the target that it is about, its tests, how many were left out; ``code`` None: not over."""

    session: GpuSession
    gfx: str | None
    tests: tuple[TestResult, ...]
    code: int | None
    deselected: int = 0


def account_for_tests(
    outcomes: Path, session: GpuSession, gfx: str | None, code: int | None
) -> SessionResult:
    """Return every planned test of a session with its outcome, by what its pytest wrote so far.

    A test in which pytest itself ended has crashed; one that it did not come to is missing. So is all of a
    session that has not begun.
    """
    planned, deselected = list[str](), 0
    begun: set[str] = set()
    results: dict[str, TestResult] = {}
    for line in outcomes.read_text(encoding="utf-8").splitlines() if outcomes.is_file() else ():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died, or is about to go on, while it wrote this line
        if "planned" in entry:
            planned, deselected = entry["planned"], entry["deselected"]
        elif "begun" in entry:
            begun.add(entry["begun"])
        else:
            results[entry["name"]] = TestResult.model_validate(entry)
    for name in planned:
        results.setdefault(name, _make_lost_result(name, begun=name in begun, code=code))
    if code is None and not planned:
        results["pytest"] = TestResult(name="pytest", outcome="missing", seconds=0, reason="not run")
    if code not in (None, 0, NO_TESTS_EXIT_CODE) and not any(
        result.outcome in BAD_OUTCOMES for result in results.values()
    ):
        how = describe_exit(code or 0)
        results["pytest"] = TestResult(name="pytest", outcome="failed", seconds=0, reason=how)
    mark = f" @{session.label}" if session.label else ""
    tests = tuple(result.model_copy(update={"name": result.name + mark}) for result in results.values())
    return SessionResult(session, gfx, tests, code, deselected)


def combine_sessions(
    target: TargetPython, files: Mapping[str, str], done: Sequence[SessionResult], words: Sequence[str] = ()
) -> SmokeRun:
    """Put the sessions into one, and into one for each target with what was tested without a GPU.

    ``words`` are what pytest was told besides: some tests may be chosen, so they go into the results.
    """
    arguments_text = f" ({format_command(words)})" if words else ""

    def make_results(chosen: Sequence[SessionResult]) -> Results:
        tests = tuple(test for session_result in chosen for test in session_result.tests)
        return Results(
            schema=1,
            tool=f"rocm-wheels {__version__} smoke tests{arguments_text}",
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
            torch=target.torch_version,
            gfx=tuple(dict.fromkeys(gfx for gfx in map(_find_tested_target, chosen) if gfx)),
            files=files,
            selection=ResultSelection(
                pytest_args=tuple(words),
                deselected=sum(session_result.deselected for session_result in chosen),
            ),
            tests=tests,
            counts=count_outcomes(tests),
        )

    targets = list(dict.fromkeys(session_result.gfx for session_result in done if session_result.gfx))
    by_gfx = {
        gfx: make_results([session_result for session_result in done if session_result.gfx in (gfx, None)])
        for gfx in targets
    }
    whole = make_results(done)
    codes = [
        session_result.code
        for session_result in done
        if session_result.code not in (None, 0, NO_TESTS_EXIT_CODE)
    ]
    code = (
        NO_TESTS_EXIT_CODE
        if not whole.tests
        else (codes[0] or 0)
        if codes
        else FAILED_EXIT_CODE
        if whole.bad
        else 0
    )
    return SmokeRun(whole, by_gfx if len(targets) > 1 else {}, code)


def _make_lost_result(name: str, *, begun: bool, code: int | None) -> TestResult:
    if code is None:
        why = "not run to its end" if begun else "not run"
        return TestResult(name=name, outcome="missing", seconds=0, reason=f"{why}: the run is not over")
    how = f"pytest {describe_exit(code) if code else 'did not come to it'}"
    if begun:
        return TestResult(name=name, outcome="crashed", seconds=0, reason=f"no result: {how}")
    return TestResult(name=name, outcome="missing", seconds=0, reason=f"not run: {how}")


def _find_tested_target(done: SessionResult) -> str | None:
    """Return the target of a session, if any of its tests of the GPU was run."""
    ran = (test for test in done.tests if "[gpu" in test.name and test.outcome not in ("skipped", "missing"))
    return done.gfx if any(ran) else None

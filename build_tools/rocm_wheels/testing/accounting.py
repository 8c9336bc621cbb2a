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
from rocm_wheels.audit.imports import describe_end
from rocm_wheels.shell import shell_line
from rocm_wheels.testing.results import BAD, Results, Selection, TestResult, counted
from rocm_wheels.testing.sessions import Session
from rocm_wheels.testing.target import Target

NO_TESTS = 5  # pytest's exit code
FAILED = 1  # likewise


@dataclass(frozen=True)
class Ran:
    """What came of it: all results, those of each target where there are several, and pytest's exit code."""

    results: Results
    by_gfx: Mapping[str, Results]
    code: int


@dataclass(frozen=True)
class Done:
    """A session, the target that it is about, its tests, how many were left out; ``code`` None: not over."""

    session: Session
    gfx: str | None
    tests: tuple[TestResult, ...]
    code: int | None
    deselected: int = 0


def accounted(outcomes: Path, session: Session, gfx: str | None, code: int | None) -> Done:
    """Return every planned test of a session with its outcome, by what its pytest wrote so far.

    A test in which pytest itself ended has crashed; one that it did not come to is missing. So is all of a
    session that has not begun.
    """
    planned, deselected = list[str](), 0
    begun: set[str] = set()
    found: dict[str, TestResult] = {}
    for line in outcomes.read_text(encoding="utf-8").splitlines() if outcomes.is_file() else ():
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died, or is about to go on, while it wrote this line
        if "planned" in said:
            planned, deselected = said["planned"], said["deselected"]
        elif "begun" in said:
            begun.add(said["begun"])
        else:
            found[said["name"]] = TestResult.model_validate(said)
    for name in planned:
        found.setdefault(name, _without_outcome(name, begun=name in begun, code=code))
    if code is None and not planned:
        found["pytest"] = TestResult(name="pytest", outcome="missing", seconds=0, reason="not run")
    if code not in (None, 0, NO_TESTS) and not any(one.outcome in BAD for one in found.values()):
        how = describe_end(code or 0)
        found["pytest"] = TestResult(name="pytest", outcome="failed", seconds=0, reason=how)
    mark = f" @{session.label}" if session.label else ""
    tests = tuple(one.model_copy(update={"name": one.name + mark}) for one in found.values())
    return Done(session, gfx, tests, code, deselected)


def together(
    target: Target, files: Mapping[str, str], done: Sequence[Done], words: Sequence[str] = ()
) -> Ran:
    """Put the sessions into one, and into one for each target with what was tested without a GPU.

    ``words`` are what pytest was told besides: some tests may be chosen, so they go into the results.
    """
    told = f" ({shell_line(words)})" if words else ""

    def results(chosen: Sequence[Done]) -> Results:
        tests = tuple(test for one in chosen for test in one.tests)
        return Results(
            schema=1,
            tool=f"rocm-wheels {__version__} smoke tests{told}",
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
            torch=target.torch_version,
            gfx=tuple(dict.fromkeys(gfx for gfx in map(_tested, chosen) if gfx)),
            files=files,
            selection=Selection(pytest_args=tuple(words), deselected=sum(one.deselected for one in chosen)),
            tests=tests,
            counts=counted(tests),
        )

    targets = list(dict.fromkeys(one.gfx for one in done if one.gfx))
    by_gfx = {gfx: results([one for one in done if one.gfx in (gfx, None)]) for gfx in targets}
    whole = results(done)
    codes = [one.code for one in done if one.code not in (None, 0, NO_TESTS)]
    code = NO_TESTS if not whole.tests else (codes[0] or 0) if codes else FAILED if whole.bad else 0
    return Ran(whole, by_gfx if len(targets) > 1 else {}, code)


def _without_outcome(name: str, *, begun: bool, code: int | None) -> TestResult:
    if code is None:
        why = "not run to its end" if begun else "not run"
        return TestResult(name=name, outcome="missing", seconds=0, reason=f"{why}: the run is not over")
    how = f"pytest {describe_end(code) if code else 'did not come to it'}"
    if begun:
        return TestResult(name=name, outcome="crashed", seconds=0, reason=f"no result: {how}")
    return TestResult(name=name, outcome="missing", seconds=0, reason=f"not run: {how}")


def _tested(done: Done) -> str | None:
    """Return the target of a session, if any of its tests of the GPU was run."""
    ran = (one for one in done.tests if "[gpu" in one.name and one.outcome not in ("skipped", "missing"))
    return done.gfx if any(ran) else None

"""Start checks in a process of their own under another Python, and go on after one that crashed or hung.

One process does as many cases as it survives: starting torch takes seconds. What kills it, is the outcome of
the case that it was at; the rest goes to a new one. The process is a group that ends with us.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocm_wheels.audit.imports import describe_end
from rocm_wheels.errors import BuildError, HostError
from rocm_wheels.hosts.selftest.checks.run import PROGRESS
from rocm_wheels.hosts.selftest.outcome import Case, Outcome
from rocm_wheels.process import run

_SCRIPT = Path(__file__).with_name("checks") / "run.py"
_START_SECONDS = 60.0
_KEPT_LINES = 200
_SHOWN_LINES = 15


def run_cases(
    cases: Sequence[Case],
    python: Path,
    env: Mapping[str, str],
    scratch: Path,
    *,
    limit: float,
    done: Callable[[Outcome], None] = lambda outcome: None,
    more: Mapping[str, object] | None = None,
) -> list[Outcome]:
    """Run cases one after the other under ``python``; each has ``limit`` seconds. Return every outcome.

    ``scratch`` is a folder for what the processes leave. ``done`` is told each outcome as it comes. ``more``
    is passed on: files of groups that are not among the checks, and options (``checks.run``). Raises
    HostError when a process cannot be started, or ends without having done anything.
    """
    left = list(cases)
    outcomes: list[Outcome] = []
    while left:
        found = _one_process(left, python, env, scratch=scratch, limit=limit, more=more or {})
        for outcome in found:
            outcomes.append(outcome)
            done(outcome)
        over = {outcome.case for outcome in found}
        left = [case for case in left if case not in over]
    return outcomes


def _one_process(
    cases: Sequence[Case],
    python: Path,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit: float,
    more: Mapping[str, object],
) -> list[Outcome]:
    """Return what one process came to, with the case that it died of."""
    answers = scratch / "answers.jsonl"
    answers.unlink(missing_ok=True)
    spoken: deque[str] = deque(maxlen=_KEPT_LINES)
    words = json.dumps([[case.group, case.name, case.device] for case in cases])
    pids: list[int] = []
    end, state = "", "crash"
    try:
        code = run(
            [python, "-X", "faulthandler", _SCRIPT, answers, words, json.dumps(more)],
            env=env,
            cwd=scratch,
            on_line=spoken.append,
            silence=limit,
            timeout=_START_SECONDS + limit * len(cases),
            check=None,
            what=str(python),
            started=pids.append,
        ).returncode
        end = describe_end(code) if code else "ended in the middle of it, with exit code 0"
    except BuildError as failure:
        if not pids:
            raise HostError(str(failure)) from failure.__cause__
        end, state = f"stopped after {limit:g} s", "timeout"
    found, begun = _read(answers)
    if begun is not None:
        said = end + _tail(spoken)
        found.append(
            Outcome(begun, "timeout" if state == "timeout" else "crash", said, limit * (state == "timeout"))
        )
    if not found:
        raise HostError(f"{python} could not run the checks: {end}{_tail(spoken)}")
    return found


def _read(answers: Path) -> tuple[list[Outcome], Case | None]:
    """Return the outcomes that were written down, and the case that was begun and not ended."""
    found: list[Outcome] = []
    begun: Case | None = None
    text = answers.read_text(encoding="utf-8", errors="replace") if answers.is_file() else ""
    for line in text.splitlines():
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died while it wrote this line
        if "begin" in said:
            begun = Case(*said["begin"])
        else:
            begun = None
            found.append(_outcome(said))
    return found, begun


def _outcome(said: Mapping[str, Any]) -> Outcome:
    outcome = Outcome(Case(*said["end"]), said["state"], said["detail"], said["seconds"], said.get("missing"))
    return replace(outcome, facts=said.get("facts") or {})


def _tail(spoken: Sequence[str]) -> str:
    """Return the last lines that a process printed; our own lines of progress are no news."""
    lines = [line.rstrip() for line in spoken if line.strip() and not line.startswith(PROGRESS)]
    return "".join(f"\n  | {line}" for line in lines[-_SHOWN_LINES:])

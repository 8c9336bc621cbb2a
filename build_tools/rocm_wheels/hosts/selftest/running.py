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

from rocm_wheels.audit.imports import describe_exit
from rocm_wheels.errors import BuildError, HostError
from rocm_wheels.hosts.selftest.checks.run import PROGRESS
from rocm_wheels.hosts.selftest.outcome import SelfTestCase, SelfTestOutcome
from rocm_wheels.process import run_command

_CHECKS_SCRIPT = Path(__file__).with_name("checks") / "run_command.py"
_START_SECONDS = 60.0
_KEPT_LINES = 200
_SHOWN_LINES = 15


def run_cases(
    cases: Sequence[SelfTestCase],
    python: Path,
    env: Mapping[str, str],
    scratch: Path,
    *,
    limit: float,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
    more: Mapping[str, object] | None = None,
) -> list[SelfTestOutcome]:
    """Run cases one after the other under ``python``; each has ``limit`` seconds. Return every outcome.

    ``scratch`` is a folder for what the processes leave. ``done`` is told each outcome as it comes. ``more``
    is passed on: files of groups that are not among the checks, and options (``checks.run``). Raises
    HostError when a process cannot be started, or ends without having done anything.
    """
    remaining = list(cases)
    outcomes: list[SelfTestOutcome] = []
    while remaining:
        finished = _run_process(remaining, python, env, scratch=scratch, limit=limit, more=more or {})
        for outcome in finished:
            outcomes.append(outcome)
            done(outcome)
        over = {outcome.case for outcome in finished}
        remaining = [case for case in remaining if case not in over]
    return outcomes


def _run_process(
    cases: Sequence[SelfTestCase],
    python: Path,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit: float,
    more: Mapping[str, object],
) -> list[SelfTestOutcome]:
    """Return what one process came to, with the case that it died of."""
    answers = scratch / "answers.jsonl"
    answers.unlink(missing_ok=True)
    spoken: deque[str] = deque(maxlen=_KEPT_LINES)
    words = json.dumps([[case.group, case.name, case.device] for case in cases])
    pids: list[int] = []
    end, state = "", "crash"
    try:
        code = run_command(
            [python, "-X", "faulthandler", _CHECKS_SCRIPT, answers, words, json.dumps(more)],
            env=env,
            cwd=scratch,
            on_line=spoken.append,
            silence=limit,
            timeout=_START_SECONDS + limit * len(cases),
            check=None,
            description=str(python),
            on_start=pids.append,
        ).returncode
        end = describe_exit(code) if code else "ended in the middle of it, with exit code 0"
    except BuildError as failure:
        if not pids:
            raise HostError(str(failure)) from failure.__cause__
        end, state = f"stopped after {limit:g} s", "timeout"
    outcomes, begun = _read_answers(answers)
    if begun is not None:
        detail = end + _format_tail(spoken)
        outcomes.append(
            SelfTestOutcome(
                begun, "timeout" if state == "timeout" else "crash", detail, limit * (state == "timeout")
            )
        )
    if not outcomes:
        raise HostError(f"{python} could not run the checks: {end}{_format_tail(spoken)}")
    return outcomes


def _read_answers(answers: Path) -> tuple[list[SelfTestOutcome], SelfTestCase | None]:
    """Return the outcomes that were written down, and the case that was begun and not ended."""
    outcomes: list[SelfTestOutcome] = []
    begun: SelfTestCase | None = None
    text = answers.read_text(encoding="utf-8", errors="replace") if answers.is_file() else ""
    for line in text.splitlines():
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died while it wrote this line
        if "begin" in answer:
            begun = SelfTestCase(*answer["begin"])
        else:
            begun = None
            outcomes.append(_make_outcome(answer))
    return outcomes, begun


def _make_outcome(answer: Mapping[str, Any]) -> SelfTestOutcome:
    outcome = SelfTestOutcome(
        SelfTestCase(*answer["end"]),
        answer["state"],
        answer["detail"],
        answer["seconds"],
        answer.get("missing"),
    )
    return replace(outcome, facts=answer.get("facts") or {})


def _format_tail(spoken: Sequence[str]) -> str:
    """Return the last lines that a process printed; our own lines of progress are no news."""
    lines = [line.rstrip() for line in spoken if line.strip() and not line.startswith(PROGRESS)]
    return "".join(f"\n  | {line}" for line in lines[-_SHOWN_LINES:])

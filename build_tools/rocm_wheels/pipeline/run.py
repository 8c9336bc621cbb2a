"""A run of ``build``: plan, record, every step that is not current, and a row for each wheel."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError, explain
from rocm_wheels.pipeline.execute import events
from rocm_wheels.pipeline.execute.executor import Executor, How, Outcome
from rocm_wheels.pipeline.execute.screen import Screen
from rocm_wheels.pipeline.hipified import hipify_sources
from rocm_wheels.pipeline.plan.file import write_plan
from rocm_wheels.pipeline.plan.planning import Planned, look_over, make_planned, say_what_holds
from rocm_wheels.pipeline.plan.text import against_text
from rocm_wheels.pipeline.preflight.planned import preflight
from rocm_wheels.pipeline.preflight.subject import PreflightFinding
from rocm_wheels.pipeline.preflight.table import refuse_errors
from rocm_wheels.pipeline.record.writing import RunRecord, new_run
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.pipeline.rows import rows_of
from rocm_wheels.pipeline.summary import Row
from rocm_wheels.workspace import WAIT, Workspace, exclusive

PLAN = "plan.json"


@dataclass(frozen=True)
class Summary:
    """What a run came to: a row a wheel, and the error that it ended with, if any. ``record``: its folder."""

    rows: tuple[Row, ...]
    failure: RocmWheelsError | KeyboardInterrupt | None
    seconds: float
    record: Path | None = None


def build_wheels(request: WheelsRequest, env: Mapping[str, str], how: How, command: str) -> Summary:
    """Build what is asked for and return a row a wheel, also when something failed.

    ``command`` is the line that people gave. Errors before the first step begins are raised.
    """
    begin = time.monotonic()
    asked = look_over(request, env)
    with exclusive(asked.request.work, what="build", tip=f"{WAIT}, or give this run another --work-dir"):
        _end_left_behind(Workspace(asked.request.work))
        if asked.locked is None:  # else the trees are as they were left
            hipify_sources(asked.projects, asked.request.sources, asked.env)
        planned = make_planned(asked)
        if all(step.verdict in ("skip", "left out") for step in planned.plan):
            outcomes = {
                step.id: Outcome(step, "skipped" if step.verdict == "skip" else "left out")
                for step in planned.plan
            }
            rows = rows_of(planned.plan, planned.facts, outcomes)
            _say_what_holds(planned)
            return Summary(rows, None, time.monotonic() - begin)
        findings = preflight(planned)
        refuse_errors(findings)
        _say_what_holds(planned)
        for finding in findings:
            log.warn(f"{finding.text}\n  tip: {finding.tip}")
        return _run(planned, findings, env, how, command=command, begin=begin)


def _say_what_holds(planned: Planned) -> None:
    for wheel in planned.plan.against:
        log.note(against_text(wheel))
    say_what_holds(planned)


def _run(
    planned: Planned,
    findings: Sequence[PreflightFinding],
    env: Mapping[str, str],
    how: How,
    *,
    command: str,
    begin: float,
) -> Summary:
    workspace = planned.facts.workspace
    record = new_run(workspace.runs, datetime.now(timezone.utc))
    plan = record.folder / PLAN
    try:
        write_plan(plan, planned.file)
        _record_begin(planned, record, plan, command)
    except OSError:
        shutil.rmtree(record.folder, ignore_errors=True)  # a run that did not begin
        raise
    record.write("preflight", findings=[asdict(finding) for finding in findings])
    log.note(f"run {record.folder.name}: record and logs in {record.folder}")
    executor = Executor(
        planned.graph, planned.facts, plan, record, env, how, Screen(), settled=dict(planned.plan.steps)
    )
    failure: RocmWheelsError | KeyboardInterrupt | None = None
    try:
        executor.run()
    except (KeyboardInterrupt, RocmWheelsError) as ended:
        failure = ended
    except OSError:  # of the record itself, as a rule; what was at work makes room when it is ended
        with suppress(OSError):
            record.write("run-ended", outcome="failed", seconds=time.monotonic() - begin, exit_code=2)
        raise
    finally:
        executor.screen.close()
    several = len({step.cell for step in planned.plan if step.kind == "build"}) > 1
    failures = [_of_step(one, several) for one in executor.outcomes.values() if one.failure is not None]
    if failure is None and failures:
        failure = failures[0]
        for another in failures[1:]:
            log.error(explain(another))
    seconds = time.monotonic() - begin
    outcome = (
        "done" if failure is None else "interrupted" if isinstance(failure, KeyboardInterrupt) else "failed"
    )
    code = failure.exit_code if isinstance(failure, RocmWheelsError) else 130 if failure is not None else 0
    record.write("run-ended", outcome=outcome, seconds=round(seconds, 3), exit_code=code)
    rows = rows_of(planned.plan, executor.facts, executor.outcomes)
    return Summary(rows, failure, seconds, record.folder)


def _of_step(outcome: Outcome, several: bool) -> RocmWheelsError:
    """Return the failure of a step, which says whose it is: ``several`` Pythons fail in the same words."""
    failure, step = outcome.failure, outcome.step
    assert failure is not None
    named = step.id in failure.message or ((step.project or "") in failure.message and not several)
    if named or failure.__cause__ is not None:
        return failure
    return type(failure)(f"{step.id}: {failure.message}", tip=failure.tip)


def _record_begin(planned: Planned, record: RunRecord, plan: Path, command: str) -> None:
    facts, locked = planned.facts, planned.facts.locked
    events.run_begun(
        record,
        facts.request,
        facts.machine,
        plan,
        command=command,
        steps=len(planned.plan.steps),
        lock=None if locked is None else (locked.path, locked.digest),
        targets=planned.plan.targets,
        pythons=list(facts.pythons),
        against=planned.plan.against,
    )


def _end_left_behind(workspace: Workspace) -> None:
    """End what the steps of a killed run had started; a step that somebody does now is left alone."""
    for ledger in sorted(workspace.steps.glob(".locks/*/.groups")):
        try:
            with exclusive(ledger.parent, what="build"):
                continue
        except RocmWheelsError:
            continue  # `run-step` is at it; a step of this run that needs it will say so

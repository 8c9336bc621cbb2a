"""A run of ``build``: plan, record, every step that is not current, and a row for each wheel.

A command for several Pythons or target sets is a run for each of these cells, one after the other; all are
planned, and looked over, before the first begins.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels.compile import compiler_cache
from rocm_wheels.core import errors, files, log
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import gfx, project
from rocm_wheels.pipeline import (
    local_executor,
    outputs,
    preflight,
    run_record,
    run_step,
    status,
)
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.plan import (
    CheckedRequest,
    PlannedRun,
    check_request,
    format_built_against,
    log_rocm_and_targets,
    plan_cells,
    plan_run,
    write_plan,
)
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.pipeline.step import PACKAGING_KINDS, Plan, Step


def make_rows(
    plan: Plan, facts: Facts, outcomes: Mapping[str, local_executor.StepOutcome]
) -> tuple[status.SummaryRow, ...]:
    """Return a row for each wheel of a plan, in its order: as its build ended, else the first step after it
    that was not done.
    """
    chains: list[list[Step]] = []  # a build, and the steps that package its wheel
    for step in plan:
        if step.kind == "build":
            chains.append([step])
        elif step.kind in PACKAGING_KINDS:
            next(chain for chain in chains if chain[-1].id == step.after[0]).append(step)
    rows = []
    for steps in chains:
        build, *packaging = ends = [outcomes[step.id] for step in steps]
        stopped = next((end for end in ends if end.state not in ("done", "skipped")), None)
        row = status.SummaryRow(
            str(steps[0].project),
            "" if stopped is None else str(stopped.state),
            python=facts.python.tag,
            target_set=facts.request.target_set,
            seconds=sum(end.seconds for end in ends) or None,
        )
        if stopped is not None and stopped.state == "not begun":
            rows.append(replace(row, outcome="not built" if stopped is build else "not packaged"))
            continue
        if stopped is not None:
            distribution = project.load_project(row.project).distribution
            earlier = outputs.list_wheels(facts.request.wheels_folder, distribution, row.python)
            rows.append(replace(row, note="an earlier wheel is still in the output" if earlier else ""))
            continue
        delivering = next(step for step in steps if step.delivers)
        stamp = facts.done[delivering.id].stamp
        notes = [str(stamp.facts.get("note") or "")]
        if steps[-1].kind == "variant":
            notes.append(f"variant {facts.done[steps[-1].id].stamp.facts['label']}")
        is_packaged = any(end.state == "done" for end in packaging)
        row = replace(
            row,
            outcome="built" if build.state == "done" else "packaged" if is_packaged else "up to date",
            wheel=Path(stamp.outputs[0].path).name,
            version=str(stamp.facts["version"]),
            targets=tuple(map(str, stamp.facts["targets"])),
            size=stamp.outputs[0].size,
            sha256=stamp.outputs[0].sha256,
            checked="verified",
            note="; ".join(filter(None, notes)),
            lock=facts.locked.digest if facts.locked else "",
        )
        rows.append(row)
    return tuple(rows)


RUN_PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class RunSummary:
    """What a command came to: a row a wheel, and the error that it ended with, if any.

    ``records``: the folders of its runs; none where nothing had to be done.
    """

    rows: tuple[status.SummaryRow, ...]
    failure: errors.RocmWheelsError | KeyboardInterrupt | None
    seconds: float
    records: tuple[Path, ...] = ()


def build_wheels(
    request: WheelsRequest,
    env: Mapping[str, str],
    options: local_executor.ExecutionOptions,
    command: str,
    *,
    checked: CheckedRequest | None = None,
) -> RunSummary:
    """Build what is asked for and return a row a wheel, also when something failed.

    ``command`` is the line that people gave, ``checked`` what ``check_request`` made of the request, where
    it was called already. After a failure no other cell begins, but with ``keep_going``. Errors before the
    first step begins are raised.
    """
    begin = time.monotonic()
    checked = checked or check_request(request, env)
    with files.lock_folder(
        checked.request.work, purpose="build", tip=f"{files.WAIT_TIP}, or give this run another --work-dir"
    ):
        _end_orphans(Workspace(checked.request.work))
        plans = plan_cells(checked, hipify=True)
        looked: dict[errors.Finding, None] = {}
        for planned in plans:
            if _has_work(planned):
                refuse_missing_gpus(planned.plan, env)
                looked.update(dict.fromkeys(preflight.preflight_plan(planned)))
        preflight.refuse_errors(tuple(looked))
        rows: list[status.SummaryRow] = []
        records: list[Path] = []
        failure: errors.RocmWheelsError | KeyboardInterrupt | None = None
        for cell, first_plan in zip(checked.cells, plans, strict=True):
            stopped = failure is not None and not (
                options.keep_going and isinstance(failure, errors.RocmWheelsError)
            )
            planned, ended = first_plan, None
            try:
                if records and not stopped:  # another run may have made what this one needs
                    planned = plan_run(checked, cell, first_plan.facts.trees)
                if not stopped:
                    _log_plan_basis(planned)
                if not stopped and _has_work(planned):
                    for finding in looked if not records else ():
                        log.log_warning(f"{finding.message}\n  tip: {finding.tip}")
                    ended = _run_plan(
                        planned, tuple(looked), env, options, command=command, several=len(plans) > 1
                    )
            except errors.RocmWheelsError as wrong:
                if not records:
                    raise
                ended = RunSummary((), wrong, 0.0)
            if ended is None or not ended.records:
                outcomes = {
                    step.id: local_executor.StepOutcome(
                        step, "skipped" if step.verdict == "skip" else "not begun"
                    )
                    for step in planned.plan
                }
                rows += make_rows(planned.plan, planned.facts, outcomes)
            if ended is None:
                continue
            rows += ended.rows
            records += ended.records
            if failure is None or isinstance(ended.failure, KeyboardInterrupt):
                failure = ended.failure
            elif ended.failure is not None:
                log.log_error(errors.explain_error(ended.failure))
        return RunSummary(tuple(rows), failure, time.monotonic() - begin, tuple(records))


def _has_work(planned: PlannedRun) -> bool:
    return any(step.verdict != "skip" for step in planned.plan)


@contextmanager
def _serve_cache(facts: Facts, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Have one server of sccache for all steps of a run, which may work side by side; yield its address."""
    if facts.cache is None or facts.cache.kind != "sccache":
        yield {}
        return
    root = facts.workspace.root
    base = compiler_cache.find_base_folder([root, *facts.request.sources.values()])
    with compiler_cache.open_cache_session(facts.cache, env, root / "compiler-cache", base) as variables:
        yield {name: variables[name] for name in compiler_cache.ADDRESS_VARIABLES if name in variables}


def refuse_missing_gpus(plan: Plan, env: Mapping[str, str]) -> None:
    """Raise UsageError for tests to be run that need a GPU which is not here, before hours of building."""
    from rocm_wheels.gpus import detect

    testing = [step for step in plan if step.needs_gpu and step.may_run]
    if not testing:
        return
    here = {
        gfx.strip_features(gpu.gfx) for gpu in detect.detect_hardware(env, vendors=("amd",)).usable if gpu.gfx
    }
    for step in testing:
        targets = step.inputs.get("targets")
        named = {gfx.strip_features(target) for target in targets.split(",")} if targets else here
        if not here & named:
            raise errors.UsageError(
                f"{step.id} needs a GPU{f' of {targets}' if targets else ''}, and "
                f"{', '.join(sorted(here)) or 'none'} is here",
                tip="--test-on-cpu runs those that need none; a workflow for Snakemake runs all on a cluster",
            )


def _log_plan_basis(planned: PlannedRun) -> None:
    for wheel in planned.plan.against:
        log.log_note(format_built_against(wheel))
    log_rocm_and_targets(planned)


def _run_plan(
    planned: PlannedRun,
    findings: Sequence[errors.Finding],
    env: Mapping[str, str],
    options: local_executor.ExecutionOptions,
    *,
    command: str,
    several: bool,
) -> RunSummary:
    begin, workspace = time.monotonic(), planned.facts.workspace
    record = run_record.create_run_record(workspace.runs, datetime.now(timezone.utc))
    plan = record.folder / RUN_PLAN_FILE
    try:
        file, machine = planned.plan_file, planned.facts.machine
        write_plan(plan, file)
        run_step.record_run_begin(record, file, plan, machine, command=command, steps=len(file.plan.steps))
    except OSError:
        shutil.rmtree(record.folder, ignore_errors=True)  # a run that did not begin
        raise
    record.write("preflight", findings=[asdict(finding) for finding in findings])
    log.log_note(f"run {record.folder.name}: record and logs in {record.folder}")
    executor = local_executor.LocalExecutor(
        planned.steps,
        planned.facts,
        plan,
        record,
        env,
        options,
        status.StepDisplay(),
        settled=dict(planned.plan.steps),
    )
    failure: errors.RocmWheelsError | KeyboardInterrupt | None = None
    try:
        with _serve_cache(planned.facts, env) as variables:
            executor.env = {**env, **variables}
            executor.run()
    except (KeyboardInterrupt, errors.RocmWheelsError) as ended:
        failure = ended
    except OSError:  # of the record itself, as a rule; what was at work makes room when it is ended
        with suppress(OSError):
            record.write("run-ended", outcome="failed", seconds=time.monotonic() - begin, exit_code=2)
        raise
    finally:
        executor.screen.close()
    failures = [
        _name_step_failure(step_outcome, several)
        for step_outcome in executor.outcomes.values()
        if step_outcome.failure is not None
    ]
    if failure is None and failures:
        failure = failures[0]
        for another in failures[1:]:
            log.log_error(errors.explain_error(another))
    seconds = time.monotonic() - begin
    outcome, code = "done", 0
    if isinstance(failure, errors.RocmWheelsError):
        outcome, code = "failed", failure.exit_code
    elif failure is not None:
        outcome, code = "interrupted", 130
    record.write("run-ended", outcome=outcome, seconds=round(seconds, 3), exit_code=code)
    rows = make_rows(planned.plan, executor.facts, executor.outcomes)
    return RunSummary(rows, failure, seconds, (record.folder,))


def _name_step_failure(outcome: local_executor.StepOutcome, several: bool) -> errors.RocmWheelsError:
    """Return the failure of a step, which says whose it is: ``several`` cells fail in the same words."""
    failure, step = outcome.failure, outcome.step
    assert failure is not None
    named = step.id in failure.message or ((step.project or "") in failure.message and not several)
    if named or failure.__cause__ is not None:
        return failure
    return type(failure)(f"{step.id}: {failure.message}", tip=failure.tip)


def end_killed_run(work: Path) -> None:
    """End what a run that was killed had started in a work directory; one at work there is left alone.

    Its steps hold the sources: who wants those before a run begins would wait for them, for hours.
    """
    with suppress(errors.UsageError), files.lock_folder(work, purpose="build"):
        _end_orphans(Workspace(work))


def _end_orphans(workspace: Workspace) -> None:
    """End what the steps of a killed run had started; a step that somebody does now is left alone."""
    for ledger in sorted(workspace.steps.glob(".locks/*/.groups")):
        try:
            with files.lock_folder(ledger.parent, purpose="build"):
                continue
        except errors.RocmWheelsError:
            continue  # `run-step` is at it; a step of this run that needs it will say so

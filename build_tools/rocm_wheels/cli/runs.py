"""Runs of a build: their list, status and report, and ``run-step``, one step of a plan."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, build_options, catalogue, command
from rocm_wheels.cli.options import print_result
from rocm_wheels.core import errors, log, page_templates, tables
from rocm_wheels.pipeline import status

if TYPE_CHECKING:
    from rocm_wheels.pipeline import run_record

_LONGEST_LINE = 300  # characters of a line of a message; its log and the report have it whole


def format_runs(run_list: Sequence[run_record.RecordedRun], *, width: int | None) -> str:
    """Return a line a run: id, state, when, how long, its steps, and the command, cut at ``width``."""
    head = ["run", "state", "began", "time", "steps", "command"]
    rows = [
        [
            run.id,
            describe_run_state(run),
            format_start(run),
            _format_time(run),
            count_steps(run),
            status.join_lines(run.begun.get("command") or ""),
        ]
        for run in run_list
    ]
    return tables.format_table(head, rows, width=width, cut=True)


def describe_run_state(run: run_record.RecordedRun) -> str:
    """Return the state of a run, with where it is when that cannot be asked."""
    return f"running on {status.join_lines(run.begun['host'])}?" if run.elsewhere else run.state


def format_start(run: run_record.RecordedRun) -> str:
    """Return when a run began, in UTC to the second."""
    return str(run.begun.get("time", ""))[:19].replace("T", " ")


def count_steps(run: run_record.RecordedRun) -> str:
    """Count the steps of a run by their state: ``3 done, 1 failed``."""
    states = [step.state for step in run.steps.values()]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))


def describe_damage(run: run_record.RecordedRun) -> list[str]:
    """Say what of a record could not be read."""
    notes = []
    if run.damaged:
        notes.append(f"{tables.format_count(run.damaged, 'damaged line')} left out")
    if run.torn and run.state != "running":
        notes.append("the last line broke off")
    return notes


def describe_run(run: run_record.RecordedRun, *, width: int | None) -> str:
    """Return one run in full: where, what, each step, each wheel, each failure."""
    begun = run.begun
    machine = [status.join_lines(begun.get("platform") or "")]
    if begun.get("cores"):
        machine.append(f"{begun['cores']:g} cores")
    machine.append(tables.format_size(begun.get("memory"), unknown=""))
    facts = [
        ("run", run.id),
        ("state", " after ".join(filter(None, (describe_run_state(run), _format_time(run))))),
        ("began", f"{format_start(run)} UTC" if begun else ""),
        (
            "on",
            f"{status.join_lines(begun.get('host') or '')} ({', '.join(filter(None, machine))})"
            if begun
            else "",
        ),
        ("version", status.join_lines(begun.get("version") or "")),
        ("command", status.join_lines(begun.get("command") or "")),
        ("targets", ", ".join(map(status.join_lines, begun.get("targets") or []))),
        (
            "lock",
            " ".join(map(status.join_lines, filter(None, (begun.get("lock"), begun.get("lock_digest"))))),
        ),
        ("record", "; ".join([str(run.folder), *describe_damage(run)])),
    ]
    blocks = ["\n".join(tables.align_rows([fact for fact in facts if fact[1]]))]
    if run.steps:
        head = ["step", "outcome", "time", "peak memory", "why"]
        step_rows = [_step_row(step) for step in run.steps.values()]
        blocks.append(tables.format_table(head, step_rows, width=width, cut=True))
    wheels = [output for step in run.steps.values() for output in step.outputs]
    if wheels:
        rows = [
            [
                status.join_lines(w.get("path") or "?").rpartition("/")[2],
                tables.format_size(w.get("size"), unknown=""),
            ]
            for w in wheels
        ]
        blocks.append(tables.format_table(["output", "size"], rows))
    blocks += ["\n".join(lines)] if (lines := list(_cache_lines(run))) else []
    blocks += [failure for step in run.steps.values() if (failure := _describe_failure(step))]
    return "\n\n".join(blocks)


def describe_work(run_status: status.RunStatus, *, width: int | None) -> str:
    """Return what a run at work is at: two lines a step, its times and the last line of its log."""
    run = run_status.run
    head = f"run {run.id}: {log.paint_result(describe_run_state(run), 'bold')}"
    head += f", {tables.format_duration(run_status.seconds)}"
    if run_status.seconds_left is not None:
        head += f", at least {tables.format_duration(run_status.seconds_left)} left"
    counted = [count_steps(run), f"{run_status.to_come} to come" if run_status.to_come else ""]
    lines = [head, ", ".join(filter(None, counted)), *describe_damage(run)]
    for step in run_status.running:
        name, figures = status.join_lines(step.id), "  ".join(_list_figures(step))
        fitting = figures if width is None else tables.cut_line(figures, width - len(name) - 2)
        lines += ["", f"{log.paint_result(name, 'bold')}  {fitting}"]
        lines += [tables.cut_line(f"  {step.line}", width)] if step.line else []
    for ended_step in run.steps.values():
        lines += ["", failure] if (failure := _describe_failure(ended_step)) else []
    return "\n".join(lines)


def _list_figures(step: status.StepStatus) -> Iterable[str]:
    yield tables.format_duration(step.seconds)
    if step.seconds_left is not None:
        source = f" ({_brief_source(step)})" if step.source else ""
        if step.seconds_left >= 0 or step.expected is None:
            yield f"about {tables.format_duration(step.seconds_left)} left{source}"
        else:
            yield (
                f"{tables.format_duration(-step.seconds_left)} longer than the "
                f"{tables.format_duration(step.expected)} expected{source}"
            )
    if step.memory is not None:
        yield tables.format_size(step.memory)


def _brief_source(step: status.StepStatus) -> str:
    """Return where an estimate is from; what plan and report have of it in detail is left out."""
    source = status.join_lines(step.source or "")
    return source if source.startswith("ninja: ") else source.partition(":")[0].partition(" (")[0]


def _cache_lines(run: run_record.RecordedRun) -> Iterable[str]:
    """Say what a compiler cache did for each build, and whether it passed its test."""
    for event in run.events:
        if event["event"] == "cache-test":
            verdict = "can" if event.get("trusted") else "CANNOT"
            yield f"{status.join_lines(str(event.get('kind')))} {verdict} be trusted with device code"
        elif event["event"] == "cache":
            hits = [
                f"{side} {figures['hits']} of {figures['hits'] + figures['misses']}"
                for side in ("host", "device", "unsorted")
                if (figures := event.get(side)) and figures.get("hits", 0) + figures.get("misses", 0)
            ]
            name = status.join_lines(str(event.get("step")))
            yield (
                f"{name}: {status.join_lines(str(event.get('kind')))} hits: "
                f"{', '.join(hits) or 'no requests'}"
            )


def _step_row(step: run_record.RecordedStep) -> list[str]:
    duration = "" if step.seconds is None else tables.format_duration(step.seconds)
    return [
        status.join_lines(step.id),
        step.state,
        duration,
        tables.format_size(step.peak_memory or None, unknown=""),
        status.shorten_digests(status.join_lines(step.why)),
    ]


def _describe_failure(step: run_record.RecordedStep) -> str:
    """Return what a step that did not succeed said, with its tip and where to read on."""
    if step.state in {"done", "skipped", "running"}:
        return ""
    ended = step.ended or {}
    lost = "no end is recorded" if step.ended is None else "no reason is recorded"
    message = page_templates.strip_controls(ended.get("message") or "").strip() or lost
    message_lines = [tables.cut_line(line, _LONGEST_LINE) for line in message.splitlines()]
    lines = [f"{status.join_lines(step.id)}: {step.state}: {message_lines[0]}", *message_lines[1:]]
    if step.state == "interrupted":  # which is all that there is to say
        lines = [f"{status.join_lines(step.id)}: interrupted"]
    elif ended.get("tip"):
        lines.append(f"tip: {page_templates.strip_controls(ended['tip']).strip()}")
    if step.log is not None and str(step.log) not in message and not _is_log_missing(step.log):
        lines.append(f"log: {status.join_lines(str(step.log))}")
    return "\n".join(lines)


def _is_log_missing(log_file: Path) -> bool:
    """Tell whether a step ended before it wrote a log: its run is here, and that is not."""
    try:
        return log_file.parent.is_dir() and not log_file.exists()
    except (OSError, ValueError):
        return False


def _format_time(run: run_record.RecordedRun) -> str:
    return "" if run.seconds is None or run.state == "running" else tables.format_duration(run.seconds)


_REDRAW_SECONDS = 1.0


@command.command("runs list")
@build_options.work_options
@command.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="List the newest N runs.",
)
@catalogue.ALL.but(help="List every run.")
@catalogue.JSON
def list_command(limit: int, everything: bool, as_json: bool, **options: Any) -> None:
    """List the runs of a work directory, newest first.

    A run without an end whose process is gone is called killed.

    \b
    Examples:
      rocm-wheels runs list --limit 5
    """
    from rocm_wheels.pipeline import run_record

    workspace = build_options.find_workspace(options)
    run_list = run_record.list_runs(workspace.runs, limit=None if everything else limit)
    if as_json:
        click.echo(json.dumps([_run_as_json(run) for run in run_list], indent=1))
        return
    if not run_list:
        log.log_note(f"there are no runs in {workspace.runs}")
        return
    click.echo(format_runs(run_list, width=tables.get_output_width()))
    if (more := len(run_record.list_run_ids(workspace.runs)) - len(run_list)) > 0:
        log.log_note(f"and {more} older; --all lists them")


@command.command("runs show")
@click.argument("run", required=False, metavar="[RUN]")
@build_options.work_options
@command.option("--watch", is_flag=True, help="Redraw it every second until its command ends, or Ctrl-C.")
@catalogue.JSON
def show_command(run: str | None, watch: bool, as_json: bool, **options: Any) -> None:
    """Show a run [default: the newest at work, else the newest].

    Of a run at work, from another terminal: what it is at now. For every step at work: how long, how much
    longer (when that can be estimated), the memory that its programs hold, and the last line of its log. Of
    one that has ended: its steps, wheels and failures.

    \b
    Examples:
      rocm-wheels runs show --watch
      rocm-wheels runs show 20261122-101500-1a2b --json
    """
    from rocm_wheels.pipeline import run_record

    if watch and as_json:
        raise errors.UsageError("--watch and --json exclude each other")
    chosen_run = build_options.find_run(build_options.find_workspace(options), run, at_work=True)
    if as_json:
        now = status.read_run_status(chosen_run, run_record.read_moment()).as_json()
        outputs = {step.id: step.outputs for step in chosen_run.steps.values()}
        document = {**_run_as_json(chosen_run), **now, "outputs": outputs, "events": chosen_run.events}
        click.echo(json.dumps(document, indent=1))
        return
    try:
        _draw_run(chosen_run, again=watch)
        while watch and run is None and (following := _await_next_run(chosen_run)) is not None:
            _draw_run(following, again=True)
            chosen_run = following
    except KeyboardInterrupt:
        if not watch:
            raise
        # to stop watching is no failure, and there is nothing to carry on


def _await_next_run(run: run_record.RecordedRun) -> run_record.RecordedRun | None:
    """Return the run that the same command begins after one has ended; ``None`` when the command is over."""
    from rocm_wheels.pipeline import run_record

    while run.may_be_followed:
        newest = run_record.read_newest_run(run.folder.parent)
        if newest is not None and newest.id != run.id and newest.begun.get("pid") == run.begun.get("pid"):
            return newest
        time.sleep(_REDRAW_SECONDS)
    return None


def _draw_run(run: run_record.RecordedRun, *, again: bool) -> None:
    """Show a run; ``again`` and again until it has ended, then in full."""
    from rocm_wheels.pipeline import run_record

    clear = again and sys.stdout.isatty()
    while True:
        if clear:
            boundary.clear_terminal()
        width = tables.get_output_width()
        if run.state != "running":
            click.echo(describe_run(run, width=width))
            return
        click.echo(describe_work(status.read_run_status(run, run_record.read_moment()), width=width))
        if not again:
            return
        time.sleep(_REDRAW_SECONDS)
        if not clear:
            click.echo()
        run = run_record.read_run(run.folder)


@command.command("runs report")
@click.argument("run", required=False, metavar="[RUN]")
@build_options.work_options
@command.option(
    "--format",
    "form",
    type=click.Choice(("page", "trace")),
    default="page",
    show_default=True,
    help="page: for a browser. trace: when everything ran, for ui.perfetto.dev or chrome://tracing.",
)
@catalogue.OUTPUT.but(help="Where it goes; - is stdout [default: report.html or trace.json].")
@catalogue.JSON
def report_command(run: str | None, form: str, output: Path | None, as_json: bool, **options: Any) -> None:
    """Write what a run did as one web page that needs no network [default: the newest run].

    With --format trace: when each step and each command of ninja ran, for Perfetto.

    \b
    Examples:
      rocm-wheels runs report -o report.html
      rocm-wheels runs report --format trace -o trace.json
    """
    from rocm_wheels.pipeline import report, run_record, trace

    chosen_run = build_options.find_run(build_options.find_workspace(options), run)
    if form == "trace":
        text = json.dumps(trace.make_trace(chosen_run)) + "\n"
    else:
        text = report.render_report(chosen_run, run_record.read_run_before(chosen_run))
    default = Path("trace.json" if form == "trace" else "report.html")
    _write_output(output or default, text, chosen_run, as_json=as_json)


def _write_output(output: Path, page: str, chosen_run: run_record.RecordedRun, *, as_json: bool) -> None:
    """Write what was made of a run to a file, which appears whole, or print it."""
    from rocm_wheels.core import files

    if str(output) == "-":
        if as_json:
            raise errors.UsageError("-o - and --json both print on stdout", tip="name a file")
        click.echo(page, nl=False)
        return
    nearest = next(folder for folder in output.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise errors.UsageError(f"-o {output}: {nearest} is not a folder", tip="choose another path")
    files.write_atomically(output.absolute(), page)
    log.log_note(f"{output}: run {chosen_run.id}, {chosen_run.state}")
    document = {"file": output.absolute(), "run": chosen_run.id, "state": chosen_run.state}
    print_result(document, (), as_json=as_json)


def _run_as_json(run: run_record.RecordedRun) -> dict[str, object]:
    """Return a run as ``--json`` prints it. Keys are added later, never renamed."""
    return {
        "run": run.id,
        "state": run.state,
        "elsewhere": run.elsewhere,
        "began": run.begun.get("time"),
        "seconds": run.seconds,
        "command": run.begun.get("command"),
        "folder": str(run.folder),
        "damaged": run.damaged,
        "torn": run.torn,
        "steps": {
            step.id: {
                "state": step.state,
                "why": step.why,
                "seconds": step.seconds,
                "peak_memory": step.peak_memory,
                "log": None if step.log is None else str(step.log),
            }
            for step in run.steps.values()
        },
    }


@command.command("run-step")
@click.argument("step", shell_complete=command.complete_with("list_steps"))
@catalogue.PLAN.but(
    required=True, help="A plan that `plan -o` or a run (plan.json in its folder) has written."
)
@catalogue.ROCM_INDEX.but(
    envvar="ROCM_WHEELS_INDEX_URL",
    help="Package index of the ROCm packages, where its address has a password.",
)
@catalogue.FIND_LINKS.but(
    envvar="ROCM_WHEELS_FIND_LINKS",
    help="Folder or page with ROCm packages, where its address has a password.",
)
def run_step(step: str, plan_file: Path, **addresses: str | None) -> None:
    """Do one step of a plan, if it is not done: here, in a cluster job or in CI.

    `build` itself starts exactly this line for each of its steps. What the step needs must be done.

    \b
    Examples:
      rocm-wheels run-step build-pytorch-cp312 --plan plan.json
    """
    from rocm_wheels.core import files
    from rocm_wheels.pipeline import plan
    from rocm_wheels.pipeline.run_step import (
        ADDRESS_VARIABLES,
        RECORD_VARIABLE,
        result_path,
        run_single_step,
        run_step_in_record,
    )

    env = {
        name: value
        for name, value in boundary.read_build_environment().items()
        if name not in ADDRESS_VARIABLES.values()
    }
    record = env.pop(RECORD_VARIABLE, None)
    file = plan.restore_addresses(plan.read_plan(plan_file), step, addresses)
    path = plan_file.absolute()
    if record is None:
        run_single_step(file, path, step, env)
        return
    result: dict[str, object] = {}
    try:
        result["again"] = run_step_in_record(Path(record), file, path, step, env)
    except errors.RocmWheelsError as failure:
        result["message"], result["tip"] = errors.split_explanation(failure)
        raise click.exceptions.Exit(failure.exit_code) from None
    except KeyboardInterrupt:  # said once, by the run
        result["message"] = f"{step} was interrupted"
        raise click.exceptions.Exit(boundary.INTERRUPTED) from None
    finally:
        result["cpu_seconds"] = round(sum(os.times()[:4]), 2)  # ours, and of all that we waited for
        files.write_json_file(result_path(Path(record), step), result)

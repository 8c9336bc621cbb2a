"""Runs of a build: their list, status and report, and ``run-step``, one step of a plan."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, build_options, catalogue, command
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, page_templates, tables
from rocm_wheels.pipeline import status

if TYPE_CHECKING:
    from rocm_wheels.pipeline import run_record

_LONGEST_LINE = 300  # characters of a line of a message; its log and the report have it whole


def describe_run_state(run: run_record.RecordedRun) -> str:
    """Return the state of a run, with where it is when that cannot be asked."""
    return f"running on {status.join_lines(run.begun.text('host'))}?" if run.elsewhere else run.state


def format_start(run: run_record.RecordedRun) -> str:
    """Return when a run began, in UTC to the second."""
    return run.begun.text("time")[:19].replace("T", " ")


def count_steps(run: run_record.RecordedRun) -> str:
    """Count the steps of a run by their state: ``3 done, 1 failed``."""
    states = [step.state for step in run.steps.values()]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))


def _format_time(run: run_record.RecordedRun) -> str:
    return "" if run.seconds is None or run.state == "running" else tables.format_duration(run.seconds)


def _describe_damage(run: run_record.RecordedRun) -> Iterator[str]:
    if run.damaged:
        yield f"{tables.format_count(run.damaged, 'damaged line')} left out"
    if run.torn and run.state != "running":
        yield "the last line broke off"


def describe_run(run: run_record.RecordedRun, *, width: int | None) -> str:
    """Return one run in full: where, what, each step, each wheel, each failure."""
    begun = run.begun
    host, system, version, command_line, lock, digest = (
        status.join_lines(begun.text(name))
        for name in ("host", "platform", "version", "command", "lock", "lock_digest")
    )
    cores = f"{begun.number('cores'):g} cores" if begun.number("cores") else ""
    machine = filter(None, (system, cores, tables.format_size(begun.count("memory"), unknown="")))
    facts = [
        ("run", run.id),
        ("state", " after ".join(filter(None, (describe_run_state(run), _format_time(run))))),
        ("began", f"{format_start(run)} UTC" if begun else ""),
        ("on", f"{host} ({', '.join(machine)})" if begun else ""),
        ("version", version),
        ("command", command_line),
        ("targets", ", ".join(map(status.join_lines, begun.texts("targets")))),
        ("lock", f"{lock} {digest}".strip()),
        ("record", "; ".join([str(run.folder), *_describe_damage(run)])),
    ]
    blocks = ["\n".join(tables.align_rows([fact for fact in facts if fact[1]]))]
    if run.steps:
        steps = [
            (
                status.join_lines(step.id),
                step.state,
                "" if step.seconds is None else tables.format_duration(step.seconds),
                tables.format_size(step.peak_memory or None, unknown=""),
                status.shorten_digests(status.join_lines(step.why)),
            )
            for step in run.steps.values()
        ]
        head = ("step", "outcome", "time", "peak memory", "why")
        blocks.append(tables.format_table(head, steps, width=width, cut=True))
    outputs = [
        (
            status.join_lines(output.text("path") or "?").rpartition("/")[2],
            tables.format_size(output.count("size"), unknown=""),
        )
        for step in run.steps.values()
        for output in step.outputs
    ]
    if outputs:
        blocks.append(tables.format_table(("output", "size"), outputs))
    blocks.append("\n".join(_describe_caches(run)))
    blocks += map(_describe_failure, run.steps.values())
    return "\n\n".join(filter(None, blocks))


def _describe_caches(run: run_record.RecordedRun) -> Iterator[str]:
    """Say what a compiler cache did for each build, and whether it passed its test."""
    for event in run.events:
        name, kind = status.join_lines(event.text("step")), status.join_lines(event.text("kind"))
        if event.kind == "cache-test":
            verdict = "can" if event.get("trusted") else "CANNOT"
            yield f"{kind} {verdict} be trusted with device code"
        elif event.kind == "cache":
            counts = [(side, event.part(side)) for side in ("host", "device", "unsorted")]
            hits = [(side, part.count("hits") or 0, part.count("misses") or 0) for side, part in counts]
            texts = [f"{side} {hit} of {hit + missed}" for side, hit, missed in hits if hit + missed]
            yield f"{name}: {kind} hits: {', '.join(texts) or 'no requests'}"


def _describe_failure(step: run_record.RecordedStep) -> str:
    """Return what a step that did not succeed said, with its tip and where to read on."""
    name, log_file = status.join_lines(step.id), str(step.log or "")
    if step.state in ("done", "skipped", "running"):
        return ""
    if step.state == "interrupted":
        lines = [f"{name}: interrupted"]  # which is all that there is to say
    else:
        lost = "no reason is recorded" if step.ended else "no end is recorded"
        message = page_templates.strip_controls(step.ended.text("message")).strip() or lost
        cut = [tables.cut_line(line, _LONGEST_LINE) for line in message.splitlines()]
        lines = [f"{name}: {step.state}: {cut[0]}", *cut[1:]]
        if tip := page_templates.strip_controls(step.ended.text("tip")).strip():
            lines.append(f"tip: {tip}")
    if log_file and log_file not in step.ended.text("message") and not _is_log_missing(Path(log_file)):
        lines.append(f"log: {status.join_lines(log_file)}")
    return "\n".join(lines)


def _is_log_missing(log_file: Path) -> bool:
    """Tell whether a step ended before it wrote a log: its run is here, and that is not."""
    try:
        return log_file.parent.is_dir() and not log_file.exists()
    except (OSError, ValueError):
        return False


def describe_work(run_status: status.RunStatus, *, width: int | None) -> str:
    """Return what a run at work is at: two lines a step, its times and the last line of its log."""
    run, total = run_status.run, tables.format_duration(run_status.seconds)
    head = f"run {run.id}: {log.paint_result(describe_run_state(run), 'bold')}, {total}"
    if run_status.left is not None:
        head += f", at least {tables.format_duration(run_status.left)} left"
    counts = [count_steps(run), f"{run_status.to_come} to come" if run_status.to_come else ""]
    lines = [head, ", ".join(filter(None, counts)), *_describe_damage(run)]
    for step in run_status.running:
        name, figures = status.join_lines(step.step), [tables.format_duration(step.seconds)]
        if step.left is not None:
            # what plan and report have of an estimate in detail is left out
            origin = status.join_lines(step.source or "")
            origin = origin if origin.startswith("ninja: ") else re.split(r":| \(", origin)[0]
            late = step.left < 0 and step.expected is not None
            left = tables.format_duration(abs(step.left))
            expected = tables.format_duration(step.expected or 0.0)
            text = f"{left} longer than the {expected} expected" if late else f"about {left} left"
            figures.append(f"{text} ({origin})" if origin else text)
        if step.memory is not None:
            figures.append(tables.format_size(step.memory))
        line = "  ".join(figures)
        fitting = line if width is None else tables.cut_line(line, width - len(name) - 2)
        lines += ["", f"{log.paint_result(name, 'bold')}  {fitting}"]
        lines += [tables.cut_line(f"  {step.line}", width)] if step.line else []
    failures = filter(None, map(_describe_failure, run.steps.values()))
    return "\n".join(lines + [line for failure in failures for line in ("", failure)])


_MOST_RUNS = 20


@command.command("runs list")
@catalogue.WORK_DIR
@catalogue.JSON
def list_command(as_json: bool, **options: Any) -> None:
    """List the latest runs of a work directory, newest first; --json lists all.

    A run whose process is gone without an end is shown as killed.

    \b
    Examples:
      rocm-wheels runs list --json
    """
    from rocm_wheels.pipeline import run_record

    workspace = build_options.find_workspace(options)
    run_list = run_record.list_runs(workspace.runs, limit=None if as_json else _MOST_RUNS)
    if not run_list and not as_json:
        log.log_note(f"there are no runs in {workspace.runs}")
    head = ("run", "state", "began", "time", "steps", "command")
    rows = [
        (
            run.id,
            describe_run_state(run),
            format_start(run),
            _format_time(run),
            count_steps(run),
            status.join_lines(run.begun.text("command")),
        )
        for run in run_list
    ]
    table = tables.format_table(head, rows, width=tables.get_output_width(), cut=True) if rows else ""
    print_result([_run_as_json(run) for run in run_list], [table] if rows else [], as_json=as_json)
    if not as_json and (more := len(run_record.list_run_ids(workspace.runs)) - len(run_list)) > 0:
        log.log_note(f"and {more} older; --json lists them")


@command.command("runs show")
@click.argument("run", required=False, metavar="[RUN]")
@catalogue.WORK_DIR
@catalogue.JSON
def show_command(run: str | None, as_json: bool, **options: Any) -> None:
    """Show a run [default: the newest active one, else the newest].

    For an active run, from another terminal: each running step with its time, the estimated rest, the memory
    of its programs and the last line of its log. For an ended run: its steps, wheels and failures.

    \b
    Examples:
      watch -n 1 rocm-wheels runs show
      rocm-wheels runs show 20261122-101500-1a2b --json
    """
    from rocm_wheels.pipeline import run_record

    chosen_run = build_options.find_run(build_options.find_workspace(options), run, at_work=True)
    if as_json:
        document = _run_as_json(chosen_run)
        document |= status.read_run_status(chosen_run, run_record.read_moment()).as_json()
        document["outputs"] = {step.id: step.outputs for step in chosen_run.steps.values()}
        document["events"] = chosen_run.events
        print_result(document, (), as_json=True)
        return
    width = tables.get_output_width()
    if chosen_run.state == "running":
        work = status.read_run_status(chosen_run, run_record.read_moment())
        click.echo(describe_work(work, width=width))
    else:
        click.echo(describe_run(chosen_run, width=width))


@command.command("runs report")
@click.argument("run", required=False, metavar="[RUN]")
@catalogue.WORK_DIR
@command.option(
    "--format",
    "form",
    type=click.Choice(("page", "trace")),
    default="page",
    show_default=True,
    help="page: for a browser. trace: when everything ran, for ui.perfetto.dev or chrome://tracing.",
)
@catalogue.OUTPUT.but(help="File to write; - is stdout [default: report.html or trace.json].")
@catalogue.JSON
def report_command(run: str | None, form: str, output: Path | None, as_json: bool, **options: Any) -> None:
    """Write what a run did as one web page that needs no network [default: the newest run].

    With --format trace: when each step and each command of ninja ran, for Perfetto.

    \b
    Examples:
      rocm-wheels runs report -o report.html
      rocm-wheels runs report --format trace -o trace.json
    """
    from rocm_wheels.pipeline import report, trace

    chosen_run = build_options.find_run(build_options.find_workspace(options), run)
    if form == "trace":
        text = json.dumps(trace.make_trace(chosen_run)) + "\n"
    else:
        text = report.render_report(chosen_run)
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
@catalogue.PLAN.but(required=True, help="A plan written by `plan -o` or by a run (plan.json in its folder).")
def run_step(step: str, plan_file: Path) -> None:
    """Run one step of a plan, if it is not done: here, in a cluster job or in CI.

    `build` starts exactly this command for each of its steps. The steps that it needs must be done. A plan
    holds no passwords: if the address of an index or page has one, set ROCM_WHEELS_INDEX_URL or
    ROCM_WHEELS_FIND_LINKS to the whole address.

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

    env = boundary.read_build_environment()
    addresses = {name: env.pop(variable, None) for name, variable in ADDRESS_VARIABLES.items()}
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

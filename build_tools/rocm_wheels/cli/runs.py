"""``runs_group``, ``status_command`` and ``report_command``: what was recorded of builds, and what one is at now."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.work import find_run, work_options, find_workspace
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.pipeline.record.reading import RecordedRun

_REDRAW_SECONDS = 1.0
_CLEAR = "\033[H\033[2J"


@click.group("runs", invoke_without_command=True)
@work_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="List the newest N runs.",
)
@click.option("--all", "everything", is_flag=True, help="List every run.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON on stdout.")
@click.pass_context
def runs_group(ctx: click.Context, /, limit: int, everything: bool, as_json: bool, **options: Any) -> None:
    """List the runs of a work directory, newest first, or show one.

    A run without an end whose process is gone is called killed.
    """
    ctx.obj = options
    if ctx.invoked_subcommand is not None:
        return
    from rocm_wheels.cli.runs_text import format_runs
    from rocm_wheels.pipeline.record.reading import list_runs, list_run_ids

    workspace = find_workspace(options)
    run_list = list_runs(workspace.runs, limit=None if everything else limit)
    if as_json:
        click.echo(json.dumps([_run_as_json(run) for run in run_list], indent=1))
        return
    if not run_list:
        log.log_note(f"there are no runs in {workspace.runs}")
        return
    click.echo(format_runs(run_list, width=_terminal_width()))
    if (more := len(list_run_ids(workspace.runs)) - len(run_list)) > 0:
        log.log_note(f"and {more} older; --all lists them")


@runs_group.command("show", short_help="Show one run in full [default: the newest].")
@click.argument("run", required=False, metavar="[RUN]")
@work_options
@click.option("--json", "as_json", is_flag=True, help="Print the run, with every event, as JSON on stdout.")
@click.pass_context
def show_command(ctx: click.Context, /, run: str | None, as_json: bool, **options: Any) -> None:
    """Show a run in full: its steps, wheels and failures [default: the newest]."""
    from rocm_wheels.cli.runs_text import describe_run

    merged_options = {name: value if value is not None else ctx.obj[name] for name, value in options.items()}
    chosen_run = find_run(find_workspace(merged_options), run)
    if as_json:
        outputs = {step.id: step.outputs for step in chosen_run.steps.values()}
        click.echo(
            json.dumps(
                {**_run_as_json(chosen_run), "outputs": outputs, "events": chosen_run.events}, indent=1
            )
        )
    else:
        click.echo(describe_run(chosen_run, width=_terminal_width()))


@click.command("status")
@click.argument("run", required=False, metavar="[RUN]")
@work_options
@click.option("--watch", is_flag=True, help="Draw it anew every second until the run ends, or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON on stdout.")
def status_command(run: str | None, watch: bool, as_json: bool, **options: Any) -> None:
    """Show what a run is at now, from another terminal [default: the newest at work, else the newest].

    For every step at work: how long, how much longer (when that can be estimated), the memory that its
    programs hold, and the last line of its log.
    """
    from rocm_wheels.pipeline.record.status import read_run_status
    from rocm_wheels.pipeline.record.writing import read_moment

    if watch and as_json:
        raise UsageError("--watch and --json exclude each other")
    chosen_run = find_run(find_workspace(options), run, at_work=True)
    if as_json:
        click.echo(json.dumps(read_run_status(chosen_run, read_moment()).as_json(), indent=1))
        return
    try:
        _draw_status(chosen_run, again=watch)
    except KeyboardInterrupt:
        if not watch:
            raise
        # to stop watching is no failure, and there is nothing to carry on


def _draw_status(run: RecordedRun, *, again: bool) -> None:
    """Show a run; ``again`` and again until it has ended."""
    from rocm_wheels.cli.runs_text import describe_work
    from rocm_wheels.pipeline.record.reading import read_run
    from rocm_wheels.pipeline.record.status import read_run_status
    from rocm_wheels.pipeline.record.writing import read_moment

    clear = _CLEAR if again and sys.stdout.isatty() else ""
    while True:
        click.echo(clear + describe_work(read_run_status(run, read_moment()), width=_terminal_width()))
        if not again or run.state != "running":
            return
        time.sleep(_REDRAW_SECONDS)
        if not clear:
            click.echo()
        run = read_run(run.folder)


@click.command("report")
@click.argument("run", required=False, metavar="[RUN]")
@work_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Where the page goes; - is stdout.",
)
def report_command(run: str | None, output: Path, **options: Any) -> None:
    """Write what a run did as one web page that needs no network [default: the newest run]."""
    from rocm_wheels.pipeline.report.page import render_report
    from rocm_wheels.workspace import write_atomically

    chosen_run = find_run(find_workspace(options), run)
    page = render_report(chosen_run)
    if str(output) == "-":
        click.echo(page, nl=False)
        return
    nearest = next(folder for folder in output.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"-o {output}: {nearest} is not a folder", tip="choose another path")
    write_atomically(output.absolute(), page)
    log.log_note(f"{output}: run {chosen_run.id}, {chosen_run.state}")


def _run_as_json(run: RecordedRun) -> dict[str, object]:
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


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

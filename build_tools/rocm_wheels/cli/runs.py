"""``runs``, ``status`` and ``report``: what was recorded of builds, and what one is at now."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.work import find_run, work_options, workspace_of
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.pipeline.record.reading import Run

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
def runs(ctx: click.Context, /, limit: int, everything: bool, as_json: bool, **options: Any) -> None:
    """List the runs of a work directory, newest first, or show one.

    A run without an end whose process is gone is called killed.
    """
    ctx.obj = options
    if ctx.invoked_subcommand is not None:
        return
    from rocm_wheels.cli.runs_text import listed
    from rocm_wheels.pipeline.record.reading import list_runs, run_ids

    workspace = workspace_of(options)
    found = list_runs(workspace.runs, limit=None if everything else limit)
    if as_json:
        click.echo(json.dumps([_summary(run) for run in found], indent=1))
        return
    if not found:
        log.note(f"there are no runs in {workspace.runs}")
        return
    click.echo(listed(found, width=_width()))
    if (more := len(run_ids(workspace.runs)) - len(found)) > 0:
        log.note(f"and {more} older; --all lists them")


@runs.command("show", short_help="Show one run in full [default: the newest].")
@click.argument("run", required=False, metavar="[RUN]")
@work_options
@click.option("--json", "as_json", is_flag=True, help="Print the run, with every event, as JSON on stdout.")
@click.pass_context
def show(ctx: click.Context, /, run: str | None, as_json: bool, **options: Any) -> None:
    """Show a run in full: its steps, wheels and failures [default: the newest]."""
    from rocm_wheels.cli.runs_text import shown

    given = {name: value if value is not None else ctx.obj[name] for name, value in options.items()}
    found = find_run(workspace_of(given), run)
    if as_json:
        outputs = {step.id: step.outputs for step in found.steps.values()}
        click.echo(json.dumps({**_summary(found), "outputs": outputs, "events": found.events}, indent=1))
    else:
        click.echo(shown(found, width=_width()))


@click.command("status")
@click.argument("run", required=False, metavar="[RUN]")
@work_options
@click.option("--watch", is_flag=True, help="Draw it anew every second until the run ends, or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON on stdout.")
def status(run: str | None, watch: bool, as_json: bool, **options: Any) -> None:
    """Show what a run is at now, from another terminal [default: the newest at work, else the newest].

    For every step at work: how long, how much longer (when that can be estimated), the memory that its
    programs hold, and the last line of its log.
    """
    from rocm_wheels.pipeline.record.status import status_of
    from rocm_wheels.pipeline.record.writing import this_moment

    if watch and as_json:
        raise UsageError("--watch and --json exclude each other")
    found = find_run(workspace_of(options), run, at_work=True)
    if as_json:
        click.echo(json.dumps(status_of(found, this_moment()).as_json(), indent=1))
        return
    try:
        _draw(found, again=watch)
    except KeyboardInterrupt:
        if not watch:
            raise
        # to stop watching is no failure, and there is nothing to carry on


def _draw(found: Run, *, again: bool) -> None:
    """Show a run; ``again`` and again until it has ended."""
    from rocm_wheels.cli.runs_text import working
    from rocm_wheels.pipeline.record.reading import read_run
    from rocm_wheels.pipeline.record.status import status_of
    from rocm_wheels.pipeline.record.writing import this_moment

    clear = _CLEAR if again and sys.stdout.isatty() else ""
    while True:
        click.echo(clear + working(status_of(found, this_moment()), width=_width()))
        if not again or found.state != "running":
            return
        time.sleep(_REDRAW_SECONDS)
        if not clear:
            click.echo()
        found = read_run(found.folder)


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
def report(run: str | None, output: Path, **options: Any) -> None:
    """Write what a run did as one web page that needs no network [default: the newest run]."""
    from rocm_wheels.pipeline.report.page import report_page
    from rocm_wheels.workspace import write_whole

    found = find_run(workspace_of(options), run)
    page = report_page(found)
    if str(output) == "-":
        click.echo(page, nl=False)
        return
    nearest = next(folder for folder in output.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise UsageError(f"-o {output}: {nearest} is not a folder", tip="choose another path")
    write_whole(output.absolute(), page)
    log.note(f"{output}: run {found.id}, {found.state}")


def _summary(run: Run) -> dict[str, object]:
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


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

"""``install-rocm`` and ``build``, with the options that people's scripts already use."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_build_environment, format_command_line, read_environment
from rocm_wheels.cli.build_options import build_options, project_options, sdk_options
from rocm_wheels.cli.build_request import resolve_folders, make_sdk_request, make_wheels_request
from rocm_wheels.cli.quantities import Duration
from rocm_wheels.errors import explain_error

if TYPE_CHECKING:
    from rocm_wheels.pipeline.run import RunSummary


@click.group()
@click.option("--index-url", metavar="URL", help="Package index of the ROCm packages, for both commands.")
@click.pass_context
def production(ctx: click.Context, index_url: str | None) -> None:
    """Install the ROCm packages and build the wheels of PyTorch and its companions.

    \b
    Example:
      build_prod_wheels.py build --install-rocm --index-url URL \\
          --pytorch-rocm-arch gfx942,gfx1100 --output-dir dist
    """
    ctx.default_map = {name: {"index_url": index_url} for name in ("install-rocm", "build")}


@click.command("install-rocm")
@sdk_options
def install_rocm(**options: Any) -> None:
    """Install the ROCm packages into a build environment, and print what they are.

    The environment is made under the work directory, one a (Python, ROCm request); `build`
    finds it there. An unpinned version is resolved anew each time.
    """
    from rocm_wheels.pipeline.steps.installs import install_rocm_now
    from rocm_wheels.workspace import WAIT_TIP, Workspace, lock_folder

    env = read_environment()
    _, work = resolve_folders(options)
    with lock_folder(work, purpose="install-rocm", tip=f"{WAIT_TIP}, or give this run another --work-dir"):
        ready = install_rocm_now(make_sdk_request(options, env), Workspace(work), env)
    click.echo(f"python   {ready.environment.python}")
    click.echo(f"version  {ready.sdk.version}")
    click.echo(f"root     {ready.sdk.root}")
    click.echo(f"targets  {', '.join(ready.sdk.targets)}")


@click.command("build")
@sdk_options
@project_options
@build_options
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Steps at a time [default: by cores].")
@click.option("--keep-going", is_flag=True, help="After a failure, go on with what does not need it.")
@click.option("--step-timeout", type=Duration(), metavar="TIME", help="End a step after 90m, 6h, 30s, ….")
@click.option("--dry-run", is_flag=True, help="Print what would be done, with details.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary (or the plan) as JSON on stdout.")
def build(**options: Any) -> None:
    """Build, check and collect the wheels of every source tree that is there.

    Run again, it does what is missing: a wheel whose inputs did not change is not built
    again, and a build that was killed goes on in its build tree.

    \b
    Example:
      rocm-wheels build --install-rocm --index-url URL \\
          --pytorch-rocm-arch gfx942,gfx1100 --python 3.12 --output-dir dist
      rocm-wheels status --watch       # in another terminal
    """
    from rocm_wheels.pipeline.execute.executor import ExecutionOptions
    from rocm_wheels.pipeline.run import build_wheels

    env = read_build_environment()
    request = make_wheels_request(options, env)
    if options["dry_run"]:
        print_plan(request, env, as_json=options["as_json"], details=True, of_done=False)
        return
    how = ExecutionOptions(options["jobs"], options["keep_going"], options["step_timeout"])
    summary = build_wheels(request, env, how, format_command_line())
    _print_summary(summary, env, as_json=options["as_json"])
    if summary.failure is not None:
        raise summary.failure


production.add_command(install_rocm)
production.add_command(build)


def print_plan(
    request: Any, env: Mapping[str, str], *, as_json: bool, details: bool, of_done: bool = True
) -> Any:
    """Print a plan; return it."""
    from rocm_wheels.pipeline.hipified import note_stale_sources
    from rocm_wheels.pipeline.plan.file import make_plan_json
    from rocm_wheels.pipeline.plan.planning import check_request, plan_run, log_rocm_and_targets
    from rocm_wheels.pipeline.plan.text import format_plan
    from rocm_wheels.pipeline.preflight.planned import preflight_plan
    from rocm_wheels.pipeline.preflight.table import format_findings

    examined = check_request(request, env)
    note_stale_sources(examined.projects, examined.request.sources, examined.env)
    planned = plan_run(examined)
    for line in format_findings(preflight_plan(planned)):
        log.log_note(line)
    if as_json:
        click.echo(json.dumps(make_plan_json(planned.plan_file), indent=1))
        return planned
    log_rocm_and_targets(planned)
    click.echo(format_plan(planned.plan, details=details, of_done=of_done))
    return planned


def _print_summary(summary: RunSummary, env: Mapping[str, str], *, as_json: bool) -> None:
    """Print the table (or JSON) and append it to GitHub's step summary."""
    from rocm_wheels.pipeline.summary import (
        format_duration,
        format_json_summary,
        format_markdown_summary,
        format_summary,
    )

    if as_json:
        click.echo(format_json_summary(summary.rows))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(format_summary(summary.rows, width=width))
    current = all(row.outcome == "up to date" for row in summary.rows)
    if summary.record is None:
        log.log_note(f"nothing to do: every wheel is up to date ({format_duration(summary.seconds)})")
    elif summary.failure is None:
        remark = "; nothing had to be built" if current else ""
        log.log_note(f"run {summary.record.name}: done in {format_duration(summary.seconds)}{remark}")
    else:
        log.log_note(f"run {summary.record.name}: ended after {format_duration(summary.seconds)}")
    sys.stdout.flush()
    if page := env.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(format_markdown_summary(summary.rows))
                if summary.failure is not None:
                    file.write(f"\n```\n{explain_error(summary.failure)}\n```\n")
        except OSError as failure:  # the wheels are made, or have failed, all the same
            log.log_warning(f"the step summary cannot be written: {failure.strerror} ({page})")

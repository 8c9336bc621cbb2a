"""``install-rocm`` and ``build``, with the options that people's scripts already use."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import build_environment, command_line, environment
from rocm_wheels.cli.build_options import build_options, project_options, sdk_options
from rocm_wheels.cli.build_request import folders, sdk_request, wheels_request
from rocm_wheels.cli.quantities import Duration
from rocm_wheels.errors import explain

if TYPE_CHECKING:
    from rocm_wheels.pipeline.run import Summary


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
    from rocm_wheels.pipeline.steps.installs import install_now
    from rocm_wheels.workspace import WAIT, Workspace, exclusive

    env = environment()
    _, work = folders(options)
    with exclusive(work, what="install-rocm", tip=f"{WAIT}, or give this run another --work-dir"):
        ready = install_now(sdk_request(options, env), Workspace(work), env)
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
    from rocm_wheels.pipeline.execute.executor import How
    from rocm_wheels.pipeline.run import build_wheels

    env = build_environment()
    request = wheels_request(options, env)
    if options["dry_run"]:
        show_plan(request, env, as_json=options["as_json"], details=True, of_done=False)
        return
    how = How(options["jobs"], options["keep_going"], options["step_timeout"])
    summary = build_wheels(request, env, how, command_line())
    _show(summary, env, as_json=options["as_json"])
    if summary.failure is not None:
        raise summary.failure


production.add_command(install_rocm)
production.add_command(build)


def show_plan(
    request: Any, env: Mapping[str, str], *, as_json: bool, details: bool, of_done: bool = True
) -> Any:
    """Print a plan; return it."""
    from rocm_wheels.pipeline.hipified import say_stale
    from rocm_wheels.pipeline.plan.file import plan_json
    from rocm_wheels.pipeline.plan.planning import look_over, make_planned, say_what_holds
    from rocm_wheels.pipeline.plan.text import plan_text
    from rocm_wheels.pipeline.preflight.planned import preflight
    from rocm_wheels.pipeline.preflight.table import finding_lines

    asked = look_over(request, env)
    say_stale(asked.projects, asked.request.sources, asked.env)
    planned = make_planned(asked)
    for line in finding_lines(preflight(planned)):
        log.note(line)
    if as_json:
        click.echo(json.dumps(plan_json(planned.file), indent=1))
        return planned
    say_what_holds(planned)
    click.echo(plan_text(planned.plan, details=details, of_done=of_done))
    return planned


def _show(summary: Summary, env: Mapping[str, str], *, as_json: bool) -> None:
    """Print the table (or JSON) and append it to GitHub's step summary."""
    from rocm_wheels.pipeline.summary import human_time, json_summary, markdown_table, text_table

    if as_json:
        click.echo(json_summary(summary.rows))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(text_table(summary.rows, width=width))
    current = all(row.outcome == "up to date" for row in summary.rows)
    if summary.record is None:
        log.note(f"nothing to do: every wheel is up to date ({human_time(summary.seconds)})")
    elif summary.failure is None:
        said = "; nothing had to be built" if current else ""
        log.note(f"run {summary.record.name}: done in {human_time(summary.seconds)}{said}")
    else:
        log.note(f"run {summary.record.name}: ended after {human_time(summary.seconds)}")
    sys.stdout.flush()
    if page := env.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(markdown_table(summary.rows))
                if summary.failure is not None:
                    file.write(f"\n```\n{explain(summary.failure)}\n```\n")
        except OSError as failure:  # the wheels are made, or have failed, all the same
            log.warn(f"the step summary cannot be written: {failure.strerror} ({page})")

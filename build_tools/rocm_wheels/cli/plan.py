"""``plan`` and ``why``: what a build would do, and why."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_build_environment
from rocm_wheels.cli.build import print_plan
from rocm_wheels.cli.build_options import build_options, project_options, sdk_options
from rocm_wheels.cli.build_request import resolve_folders, make_wheels_request
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.work import work_options
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.pipeline.plan.planning import PlannedRun

_FILE = GivenPath()


@click.command("plan")
@sdk_options
@project_options
@build_options
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Keep the plan: `run-step` goes by it.")
@click.option("--details", is_flag=True, help="Show command, environment and inputs of each step.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON on stdout.")
def plan(output: Path | None, details: bool, as_json: bool, **options: Any) -> None:
    """Show what `build` would do with the same options: each step, whether it runs, and why.

    Nothing is installed or built. What a step has yet to find out is `known after` it. How a
    build goes about it (`--jobs`, `--keep-going`, `--step-timeout`) is not part of a plan.

    \b
    Example:
      rocm-wheels plan --install-rocm --index-url URL --pytorch-rocm-arch gfx942 \\
          --output-dir dist -o plan.json
      rocm-wheels run-step build-pytorch-cp312 --plan plan.json
    """
    from rocm_wheels.pipeline.plan.file import write_plan

    if output is not None and output.is_dir():
        raise UsageError(f"-o {output} is a folder", tip="name a file: plan.json in it")
    env = read_build_environment()
    planned = print_plan(make_wheels_request(options, env), env, as_json=as_json, details=details)
    if output is not None:
        write_plan(output.absolute(), planned.file)
        log.log_note(
            f"wrote {output}; `rocm-wheels run-step STEP --plan {shlex.quote(str(output))}` does a step of it"
        )


@click.command("why")
@click.argument("step")
@work_options
@click.option(
    "--plan",
    "plan_file",
    type=_FILE,
    metavar="FILE",
    help="Plan that has the step [default: that of the newest run].",
)
def why(step: str, plan_file: Path | None, **options: Any) -> None:
    """Say whether a step of the last run would run again now, and all that changed since it was done.

    \b
    Example:
      rocm-wheels why build-pytorch-cp312 --work-dir work
    """
    from rocm_wheels.pipeline.plan.file import read_plan
    from rocm_wheels.pipeline.plan.planning import check_request, plan_run
    from rocm_wheels.pipeline.plan.settle import make_comparable_stamp
    from rocm_wheels.pipeline.plan.text import explain_step
    from rocm_wheels.pipeline.stamps import describe_changes

    env = read_build_environment()
    _, work = resolve_folders(options)
    file = read_plan(plan_file or _find_newest_plan(work))
    file.plan.find_step(step)
    planned: PlannedRun = plan_run(check_request(file.request, env))
    planned_step = planned.plan.find_step(step)
    done = planned.facts.done.get(step)
    changes: list[str] = []
    if done is not None:
        changes += describe_changes(
            make_comparable_stamp(planned_step, done.stamp), planned_step.known_inputs
        )
        changes += [done.fault] if done.fault else []
    click.echo(
        explain_step(
            planned_step, never=done is None and planned_step.kind != "install-rocm", changes=changes
        )
    )


def _find_newest_plan(work: Path) -> Path:
    """Return the plan that the newest run went by: its own, or the one that `run-step` was given."""
    from rocm_wheels.pipeline.record.reading import read_newest_run

    run = read_newest_run(work / "runs")
    if run is None or not run.begun.get("plan"):
        raise UsageError(f"no build has run in {work}", tip="name its --work-dir, or a plan with --plan FILE")
    return Path(run.begun["plan"])

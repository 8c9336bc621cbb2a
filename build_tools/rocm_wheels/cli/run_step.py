"""``run-step``: one step of a plan. What it imports is waited for by every step of every run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from rocm_wheels.cli.boundary import INTERRUPTED, read_build_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.core import RocmWheelsError, explain_error


@click.command("run-step")
@click.argument("step")
@click.option(
    "--plan",
    "plan_file",
    type=GivenPath(),
    required=True,
    metavar="FILE",
    help="A plan that `plan -o` or a run (plan.json in its folder) has written.",
)
@click.option(
    "--index-url",
    envvar="ROCM_WHEELS_INDEX_URL",
    metavar="URL",
    help="Package index of the ROCm packages, where its address has a password.",
)
@click.option(
    "--find-links",
    envvar="ROCM_WHEELS_FIND_LINKS",
    metavar="DIR|URL",
    help="Folder or page with ROCm packages, where its address has a password.",
)
def run_step(step: str, plan_file: Path, **addresses: str | None) -> None:
    """Do one step of a plan, if it is not done: here, in a cluster job or in CI.

    `build` itself starts exactly this line for each of its steps. What the step needs must be done.
    """
    from rocm_wheels.core import write_json_file
    from rocm_wheels.pipeline import (
        ADDRESS_VARIABLES,
        RECORD_VARIABLE,
        read_plan,
        restore_addresses,
        result_path,
        run_single_step,
        run_step_in_record,
    )

    env = {
        name: value
        for name, value in read_build_environment().items()
        if name not in ADDRESS_VARIABLES.values()
    }
    record = env.pop(RECORD_VARIABLE, None)
    file = restore_addresses(read_plan(plan_file), step, addresses)
    path = plan_file.absolute()
    if record is None:
        run_single_step(file, path, step, env)
        return
    result: dict[str, object] = {}
    try:
        result["again"] = run_step_in_record(Path(record), file, path, step, env)
    except RocmWheelsError as failure:
        result |= {"message": explain_without_tip(failure), "tip": find_tip(failure)}
        raise click.exceptions.Exit(failure.exit_code) from None
    except KeyboardInterrupt:  # said once, by the run
        result["message"] = f"{step} was interrupted"
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        result["cpu_seconds"] = round(sum(os.times()[:4]), 2)  # ours, and of all that we waited for
        write_json_file(result_path(Path(record), step), result)


def explain_without_tip(failure: RocmWheelsError) -> str:
    """Return the whole message of a failure."""
    return explain_error(failure).rsplit("\ntip: ", 1)[0]


def find_tip(failure: RocmWheelsError) -> str | None:
    """Return what to do about a failure."""
    _, separator, tip = explain_error(failure).rpartition("\ntip: ")
    return tip if separator else None

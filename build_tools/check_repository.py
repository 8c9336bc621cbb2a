#!/usr/bin/env python3
"""Say whether a repository on GitHub has what a run needs, before machines work for it.

check_repository.py --event NAME [--promote true|false] [--branch NAME --default-branch NAME]

Without a store (ROCM_WHEELS_STORE) what begins by itself is skipped, and says so in the summary of the
run: a fork stays green. What somebody begins by hand fails. Outputs of the step: `store`, empty where all
of the run is to be skipped, and `promote`. A night shows on a channel what its gate lets pass where the
schedule begins it, and where somebody asks for that, on the default branch alone.
"""

from __future__ import annotations

if __name__ == "__main__":  # before imports that the Python which runs this may lack
    import _script

    _script.run("check_repository:check_repository")

import click

from rocm_wheels.ci import matrix_report
from rocm_wheels.cli import boundary, command
from rocm_wheels.core import errors

_BY_HAND = "workflow_dispatch"
_TIP = "set it in Settings, Secrets and variables, Actions; or pass it to a run by hand"


@command.command("check_repository", help=__doc__)
@command.option("--event", required=True, metavar="NAME", help="What began the run: schedule, push, …")
@command.option(
    "--store", default="", envvar="ROCM_WHEELS_STORE", metavar="STORE", help="The store of releases."
)
@command.option(
    "--promote", default="false", type=click.Choice(["true", "false", ""]), help="Whether to promote."
)
@command.option("--branch", default="", metavar="NAME", help="The branch that runs.")
@command.option("--default-branch", default="", metavar="NAME", help="The one that may promote.")
def check_repository(event: str, store: str, promote: str, branch: str, default_branch: str) -> None:
    """Check, and set the outputs."""
    env, store = boundary.read_environment(), store.strip()
    matrix_report.require_output_file(env)
    promotes = event == "schedule" or promote == "true"
    if promotes and event != "schedule" and branch != default_branch:  # GitHub runs that there alone
        tip = "leave `promote` out: what is staged can be promoted later, by the workflow promote"
        raise errors.UsageError(
            f"only {default_branch} promotes, and this is {branch or 'no branch'}", tip=tip
        )
    if not store and event == _BY_HAND:
        raise errors.UsageError("this repository does not set ROCM_WHEELS_STORE", tip=_TIP)
    matrix_report.set_outputs(env, {"store": store, "promote": "true" if promotes else "false"})
    if store:
        click.echo(f"store: {store}")
        return
    note = f"Skipped: this repository does not set the variable ROCM_WHEELS_STORE ({_TIP})."
    click.echo(note)
    boundary.append_step_summary(env, f"{note}\n")

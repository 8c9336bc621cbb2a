"""``rocm-wheels test``: does the installed torch work on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import ChecksError

if TYPE_CHECKING:
    from rocm_wheels.hosts.selftest.outcome import SelfTestOutcome, SelfTestReport

_OUTCOME_COLOURS = {"pass": "green", "skip": "dim", "fail": "red", "crash": "red", "timeout": "red"}
_TEST_HELP = """Test the installed torch: all checks, or some of import, devices, compile, math, functions.

The checks run in processes of their own: a crash or a hang is the outcome of one check, and the others still
run. Numbers are compared with float64 on the CPU. The exit code is 16 when a check failed, crashed or was
stopped, and 17 when there is no torch.
"""


@click.command("test", help=_TEST_HELP)
@click.argument("groups", nargs=-1, metavar="[all|import|devices|compile|math|functions]...")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="auto (every GPU, else the CPU), all (both), cpu, or one as torch names it: cuda:1.",
)
@click.option("--require-gpu", is_flag=True, help="It is a failure when torch sees no GPU.")
@click.option(
    "--configured", is_flag=True, help="Test with the variables that `rocm-wheels configure` says are needed."
)
@click.option(
    "--python",
    type=GivenPath(),
    metavar="PATH",
    help="Python or virtual environment whose torch is tested [default: this one].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="A check that takes longer is stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON.")
def selftest_command(  # noqa: PLR0917 - click passes them by name
    groups: tuple[str, ...],
    device: str,
    require_gpu: bool,
    configured: bool,
    python: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Run the checks, show each outcome as it comes, and leave with 16 when one is bad."""
    from rocm_wheels.hosts.selftest.cases import parse_groups
    from rocm_wheels.hosts.selftest.selftest import SelfTestRequest, run_self_test

    request = SelfTestRequest(parse_groups(groups), device, python, require_gpu, timeout)
    env = read_environment()
    if configured:
        from rocm_wheels.hosts.configure.machine import make_configuration

        variables = make_configuration(env, python=python).variables
        for name, value in variables.items():
            log.log_note(f"with {name}={value}")
        env = {**env, **variables}
    report = run_self_test(request, env, done=_note_failure if as_json else _print_outcome)
    if as_json:
        document = asdict(report)
        for outcome in document["outcomes"]:
            outcome.update(outcome.pop("case"))
            del outcome["facts"], outcome["missing"]
        click.echo(json.dumps({**document, "ok": not report.failures}, indent=1))
    else:
        click.echo(report.summary())
    if report.failures:
        names = ", ".join(str(outcome.case) for outcome in report.failures[:3])
        more = f" and {len(report.failures) - 3} more" if len(report.failures) > 3 else ""
        raise ChecksError(f"torch does not work here: {names}{more}", tip=_choose_tip(report, configured))


def _print_outcome(outcome: SelfTestOutcome) -> None:
    state = log.paint_text(f"{outcome.state:7}", _OUTCOME_COLOURS[outcome.state])
    click.echo(f"{state} {outcome.case}" + (f": {outcome.detail}" if outcome.detail else ""))


def _note_failure(outcome: SelfTestOutcome) -> None:
    if outcome.state not in ("pass", "skip"):
        log.log_note(f"{outcome.state}: {outcome.case}: {outcome.detail}")


def _choose_tip(report: SelfTestReport, configured: bool) -> str:
    from rocm_wheels.hosts.selftest.selftest import NO_KERNEL_MESSAGES

    kernels = any(sign in outcome.detail for outcome in report.failures for sign in NO_KERNEL_MESSAGES)
    if kernels and not configured:
        return (
            "torch has no kernels for a GPU; try `rocm-wheels test --configured`, or see `rocm-wheels doctor`"
        )
    return "`rocm-wheels doctor` looks for what is wrong"

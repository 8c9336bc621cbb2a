"""``rocm-wheels benchmark``: how fast the installed torch is here."""

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
    from rocm_wheels.hosts.selftest.outcome import SelfTestOutcome

_HELP = """Measure the installed torch: matmul, convolution, attention, by dtype.

Sizes grow until a run can be timed or a quarter of the free memory is used. After a warm-up the median of the
runs counts; spread is the distance of the quartiles. GPUs are timed by their own events, and the CPU is
measured beside them (times CPU: the rates; sizes may differ). float32 is computed in float32.
"""


@click.command("benchmark", help=_HELP)
@click.argument("workloads", nargs=-1, metavar="[matmul|convolution|attention]...")
@click.option("--dtype", "dtypes", multiple=True, metavar="DTYPE", help="Only this one; can be repeated.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="auto (every GPU and the CPU), cpu, or one as torch names it: cuda:1.",
)
@click.option("--no-cpu", is_flag=True, help="Do not measure the CPU beside GPUs.")
@click.option(
    "--python",
    type=GivenPath(),
    metavar="PATH",
    help="Python or virtual environment whose torch is measured [default: this one].",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=600),
    default=1.0,
    show_default=True,
    help="Time for the runs of each measurement.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(  # noqa: PLR0917 - click passes them by name
    workloads: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    no_cpu: bool,
    python: Path | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure, print, and leave with 16 when a measurement failed."""
    from rocm_wheels.hosts.benchmark.benchmark import Wanted, benchmark
    from rocm_wheels.hosts.benchmark.table import lines

    request = Wanted(workloads, dtypes, device, not no_cpu, python, seconds)
    measured = benchmark(request, read_environment(), done=_note_outcome)
    log.show_live_line("")
    if as_json:
        click.echo(json.dumps(asdict(measured), indent=1))
    else:
        for line in lines(measured):
            click.echo(line)
    failed = [figure for figure in measured.figures if figure.state not in ("pass", "skip")]
    if failed:
        first = failed[0]
        raise ChecksError(
            f"{len(failed)} of {len(measured.figures)} measurements failed: "
            f"{first.workload} {first.dtype} on {first.device}: {first.fault}",
            tip="rocm-wheels test",
        )


def _note_outcome(outcome: SelfTestOutcome) -> None:
    log.show_live_line(f"{outcome.case.name} {outcome.case.device}: {outcome.detail.partition(chr(10))[0]}")

"""``rocm-wheels doctor``: what is wrong with this machine for torch, and what to do about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import HostError

if TYPE_CHECKING:
    from rocm_wheels.hosts.doctor.subject import Severity

_SEVERITY_COLOURS = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red"}


@click.command("doctor")
@click.option(
    "--python",
    type=GivenPath(),
    metavar="PATH",
    help="A Python or environment to look at [default: the active one, else that of this program].",
)
@click.option(
    "--gfx",
    multiple=True,
    metavar="LIST|none",
    help="The GPUs of a machine to be: gfx942,gfx1100 or 'RX 7900 XTX'; those here do not count then.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor_command(python: Path | None, gfx: tuple[str, ...], as_json: bool) -> None:
    """Find what is wrong with this machine for torch, and how to put it right.

    Driver, devices and their permissions, container or WSL, every ROCm, torch and its companions, harmful
    variables, and whether the installed files hold kernels for this machine's GPUs: that is read from
    the files. Nothing is imported or changed; it works without torch and without a GPU. The exit code is 17
    when something is an error.
    """
    from rocm_wheels.hosts.doctor.looking import inspect_host
    from rocm_wheels.hosts.doctor.report import make_report_json as report_as_json
    from rocm_wheels.hosts.doctor.report import count_findings, summarize_findings, format_findings
    from rocm_wheels.hosts.doctor.table import run_checks

    subject = inspect_host(read_environment(), python=python, gfx=gfx)
    findings = run_checks(subject)
    if as_json:
        click.echo(json.dumps(report_as_json(subject, findings), indent=1))
    else:
        coloured = (
            sys.stdout.isatty() and not subject.env.get("NO_COLOR") and subject.env.get("TERM") != "dumb"
        )
        for line in format_findings(findings, _paint_text if coloured else _keep_text):
            click.echo(line)
    if count_findings(findings, "error"):
        raise HostError(f"this machine is not right for torch: {summarize_findings(findings)}")


def _paint_text(text: str, severity: Severity) -> str:
    return click.style(text, fg=_SEVERITY_COLOURS[severity])


def _keep_text(text: str, severity: Severity) -> str:
    return text

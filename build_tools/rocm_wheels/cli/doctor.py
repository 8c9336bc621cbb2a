"""``rocm-wheels doctor``: what is wrong with this machine for torch, and what to do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli.boundary import environment
from rocm_wheels.errors import HostError, UsageError

if TYPE_CHECKING:
    from rocm_wheels.gpus.gpu import Hardware
    from rocm_wheels.hosts.doctor.subject import Severity, Subject

_COLOURS = {"ok": "green", "info": "blue", "warning": "yellow", "error": "red"}


@click.command("doctor")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A Python or a virtual environment to look at [default: the one that runs this].",
)
@click.option(
    "--gfx",
    metavar="LIST",
    help="The GPUs of a machine to be, like gfx942 or gfx1100,gfx1101; this one's devices do not count then.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(python: Path | None, gfx: str | None, as_json: bool) -> None:
    """See what is wrong with this machine for torch, each with a fix.

    Driver, devices and their permissions, container or WSL, every ROCm, torch and its companions, harmful
    variables, and whether the installed files hold kernels for this machine's GPUs: that is read from
    the files. Nothing is imported or changed; it works without torch and without a GPU. The exit code is 17
    when something is an error.
    """
    from rocm_wheels.hosts.doctor.report import as_json as report_as_json
    from rocm_wheels.hosts.doctor.report import count, summary, text_lines
    from rocm_wheels.hosts.doctor.table import examine

    subject = look_at(environment(), python, gfx)
    findings = examine(subject)
    if as_json:
        click.echo(json.dumps(report_as_json(subject, findings), indent=1))
    else:
        coloured = (
            sys.stdout.isatty() and not subject.env.get("NO_COLOR") and subject.env.get("TERM") != "dumb"
        )
        for line in text_lines(findings, _painted if coloured else _plain):
            click.echo(line)
    if count(findings, "error"):
        raise HostError(f"this machine is not right for torch: {summary(findings)}")


def look_at(env: Mapping[str, str], python: Path | None, gfx: str | None, root: Path = Path("/")) -> Subject:
    """Read everything that the checks look at; ``root`` is where the system's files are."""
    from rocm_wheels.hosts.doctor.machine import read_machine
    from rocm_wheels.hosts.doctor.subject import Subject
    from rocm_wheels.hosts.installed import look_at_packages

    installed = look_at_packages(python, env)
    hardware = _hardware(env, gfx, root, installed.environment.path)
    machine = read_machine(env, root=root)
    return Subject(hardware, installed, machine, env, stated=gfx is not None, python=python)


def _hardware(env: Mapping[str, str], gfx: str | None, root: Path, path: tuple[Path, ...]) -> Hardware:
    from dataclasses import replace

    from rocm_wheels.gpus.gpu import Gpu
    from rocm_wheels.gpus.look import look
    from rocm_wheels.gpus.names import is_chip, read_name

    try:
        found = look(env, root=root, site_packages=path)
    except ValueError as wrong:
        raise UsageError(str(wrong), tip="unset the variable, or set it to what the message says") from None
    if gfx is None:
        return found
    names = []
    for word in gfx.replace(",", " ").split():
        try:
            name = read_name(word)
        except ValueError as wrong:
            raise UsageError(f"--gfx: {wrong}") from None
        if not is_chip(name):
            raise UsageError(
                f"--gfx: {word} is not one GPU's target", tip="for example: --gfx gfx942,gfx1100"
            )
        names.append(name)
    if not names:
        raise UsageError("--gfx names no GPU", tip="for example: --gfx gfx942,gfx1100")
    gpus = tuple(
        Gpu("amd", name, name, index=index, source="forced", confidence="forced")
        for index, name in enumerate(names)
    )
    return replace(found, gpus=gpus, faults=())


def _painted(text: str, severity: Severity) -> str:
    return click.style(text, fg=_COLOURS[severity])


def _plain(text: str, severity: Severity) -> str:
    return text

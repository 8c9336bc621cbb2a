"""How the demonstration runs its commands: ours in this process, others as programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from rocm_wheels import log
from rocm_wheels.demo.commands import BUILD, PACKAGES, ROCM_WHEELS, SMOKE, Call
from rocm_wheels.errors import SdkError


def commands() -> Mapping[str, click.Command]:
    """Return the click command behind each door."""
    from rocm_wheels.cli import build, main, python_packages, smoke_tests

    return {
        PACKAGES: python_packages.command,
        ROCM_WHEELS: main.cli,
        BUILD: build.production,
        SMOKE: smoke_tests.command,
    }


def show(call: Call) -> None:
    """Print a command."""
    log.note(log.paint(f"$ {call.line()}", "bold"))


def run_all(wanted: Iterable[Call]) -> None:
    """Run our own commands in this process, through the same click commands that their doors call."""
    for call in wanted:
        show(call)
        with contextlib.ExitStack() as opened:
            if call.output is not None:
                file = opened.enter_context(call.output.open("w", encoding="utf-8"))
                opened.enter_context(contextlib.redirect_stdout(file))
            code = commands()[call.door].main(
                args=list(call.arguments), prog_name=Path(call.door).name, standalone_mode=False
            )
        if code:  # one that has told its failures itself
            raise click.exceptions.Exit(code)


def run_programs(wanted: Iterable[Call], env: Mapping[str, str]) -> None:
    """Run programs that are not ours. Raises SdkError when one fails."""
    from rocm_wheels.process import run

    for call in wanted:
        show(call)
        run([call.door, *call.arguments], env=env, on_line=log.note, check=SdkError)

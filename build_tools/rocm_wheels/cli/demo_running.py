"""How the demonstration runs its commands: ours in this process, others as programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from rocm_wheels import log
from rocm_wheels.demo.commands import BUILD_SCRIPT, PACKAGES_SCRIPT, ROCM_WHEELS, SMOKE_SCRIPT, DemoCommand
from rocm_wheels.errors import SdkError


def load_commands() -> Mapping[str, click.Command]:
    """Return the click command behind each door."""
    from rocm_wheels.cli import build, main, python_packages, smoke_tests

    return {
        PACKAGES_SCRIPT: python_packages.packages_command,
        ROCM_WHEELS: main.cli,
        BUILD_SCRIPT: build.production,
        SMOKE_SCRIPT: smoke_tests.smoke_command,
    }


def print_call(call: DemoCommand) -> None:
    """Print a command."""
    log.log_note(log.paint_text(f"$ {call.format_line()}", "bold"))


def run_calls(demo_calls: Iterable[DemoCommand]) -> None:
    """Run our own commands in this process, through the same click commands that their doors call."""
    for call in demo_calls:
        print_call(call)
        with contextlib.ExitStack() as opened:
            if call.output is not None:
                file = opened.enter_context(call.output.open("w", encoding="utf-8"))
                opened.enter_context(contextlib.redirect_stdout(file))
            code = load_commands()[call.program].main(
                args=list(call.arguments), prog_name=Path(call.program).name, standalone_mode=False
            )
        if code:  # one that has told its failures itself
            raise click.exceptions.Exit(code)


def run_programs(demo_calls: Iterable[DemoCommand], env: Mapping[str, str]) -> None:
    """Run programs that are not ours. Raises SdkError when one fails."""
    from rocm_wheels.process import run_command

    for call in demo_calls:
        print_call(call)
        run_command([call.program, *call.arguments], env=env, on_line=log.log_note, check=SdkError)

"""``rocm-wheels configure``: the variables that this machine's cards need."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath

_SHELL_ALIASES = {"bash": "sh", "zsh": "sh", "pwsh": "powershell"}
_SHELLS = ("sh", "fish", "powershell", "cmd", "github", *_SHELL_ALIASES)
_CONFIGURE_HELP = """Say which variables this machine's GPUs need for the installed torch.

Most need none: a card with kernels of its own is left alone. HSA_OVERRIDE_GFX_VERSION is for a card that
torch has no kernels for and that is known to run another's; HIP_VISIBLE_DEVICES hides cards that torch cannot
use beside one that it can. What you have set yourself is never changed, only spoken of.

\b
  eval "$(rocm-wheels configure --print)"              in a shell
  rocm-wheels configure --print --shell github >> "$GITHUB_ENV"
  rocm_wheels.configure()                              in Python, before torch
"""


@click.command("configure", help=_CONFIGURE_HELP)
@click.option("--print", "as_lines", is_flag=True, help="Print lines that a shell runs, and nothing else.")
@click.option(
    "--shell", type=click.Choice(_SHELLS), help="Shell that reads the lines [default: that of $SHELL]."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--python",
    type=GivenPath(),
    metavar="PATH",
    help="Python or virtual environment whose torch it is about [default: this one].",
)
@click.option(
    "--gfx",
    multiple=True,
    metavar="LIST",
    help="Cards in place of a look, as the runtime numbers them: gfx1030,gfx1100.",
)
@click.option("--risky", is_flag=True, help="Also settings that are known to hang some machines.")
def configure_command(  # noqa: PLR0917 - click passes them by name
    as_lines: bool,
    shell: str | None,
    as_json: bool,
    python: Path | None,
    gfx: tuple[str, ...],
    risky: bool,
) -> None:
    """Look, decide, print."""
    from rocm_wheels.errors import UsageError
    from rocm_wheels.hosts.configure.machine import make_configuration
    from rocm_wheels.hosts.configure.shells import format_settings, detect_shell

    if shell and not as_lines:
        raise UsageError("--shell says how lines are printed", tip="add --print")
    if as_lines and as_json:
        raise UsageError("--print and --json exclude each other", tip="leave one of them out")
    env = read_environment()
    advice = make_configuration(env, python=python, gfx=gfx, risky=risky)
    if as_json:
        gpus = [asdict(gpu) for gpu in advice.machine.hardware.gpus]
        document = {
            "settings": [asdict(setting) for setting in advice.settings],
            "notes": advice.notes,
            "torch": advice.machine.torch,
            "targets": advice.machine.targets,
            "gpus": gpus,
        }
        click.echo(json.dumps(document, indent=1))
        return
    for note in advice.notes:
        log.log_note(note)
    if as_lines:
        for line in format_settings(
            advice.settings, _SHELL_ALIASES.get(shell or "", shell) or detect_shell(env, sys.platform)
        ):
            click.echo(line)
        return
    log.log_note(advice.machine.torch)
    for setting in advice.settings:
        click.echo(f"{setting.name}={setting.value}\n  {setting.why}\n  {setting.source}")
    if advice.settings:
        log.log_note('tip: eval "$(rocm-wheels configure --print)"')
    else:
        click.echo("no variable is needed")

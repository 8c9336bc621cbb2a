"""Completion in shells: the script for each, and the values that options and arguments can have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from rocm_wheels.cli.command import command

_SHELLS = ("bash", "zsh", "fish")


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    """Print what makes SHELL complete commands, options, projects, lines, families, targets and steps.

    \b
    Examples:
      rocm-wheels completion bash >> ~/.bashrc
      rocm-wheels completion zsh >> ~/.zshrc
      rocm-wheels completion fish > ~/.config/fish/completions/rocm-wheels.fish
    """
    from click.shell_completion import get_completion_class

    from rocm_wheels.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "rocm-wheels", "_ROCM_WHEELS_COMPLETE").source())


def list_projects() -> Iterable[str]:
    """Return the projects that recipes are of."""
    from rocm_wheels.models import list_project_names

    return list_project_names()


def list_lines() -> Iterable[str]:
    """Return the release lines."""
    from rocm_wheels.models import get_release_lines

    return [line.name for line in get_release_lines()]


def list_families() -> Iterable[str]:
    """Return the families of GPU targets."""
    from rocm_wheels.models import get_gfx_families

    return list(get_gfx_families())


def list_targets() -> Iterable[str]:
    """Return the GPU targets and their families."""
    from rocm_wheels.models import get_gfx_targets

    return [*get_gfx_targets(), *list_families()]


def list_steps() -> Iterable[str]:
    """Return the steps of the newest run below the current folder or in the clone; none without a run."""
    import json

    from rocm_wheels.cli.build_options import find_default_root
    from rocm_wheels.pipeline import read_newest_run

    run = read_newest_run(find_default_root() / ".rocm-wheels" / "runs")
    if run is None or not run.begun.get("plan"):
        return []
    plan = Path(run.begun["plan"])
    return (
        [step["id"] for step in json.loads(plan.read_text(encoding="utf-8"))["steps"]]
        if plan.is_file()
        else []
    )

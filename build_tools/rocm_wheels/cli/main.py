"""``rocm-wheels``: every command by name, each loaded only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from rocm_wheels import __version__
from rocm_wheels.cli.boundary import run_command

# name: (module:attribute under rocm_wheels.cli, one line for --help)
COMMANDS = {
    "lines": ("lines:command", "List the release lines: what belongs to each torch."),
    "lock": ("lock:command", "Pin every repository of a set in one file."),
    "checkout": ("checkout:command", "Check out several projects side by side."),
    "install-rocm": ("build:install_rocm", "Install the ROCm packages into a build environment."),
    "build": ("build:build", "Build, check and collect wheels."),
    "targets": ("targets:command", "List the gfx targets of the device code in files."),
    "verify": ("verify:command", "Check finished wheels without a GPU."),
    "wheel": ("wheel:group", "Show, check, retag and compare wheel files."),
    "stamp": ("stamp:stamp", "Make variant wheels: an installer takes the one for its GPU."),
    "unstamp": ("stamp:unstamp", "Make plain wheels of variant wheels."),
    "restamp": ("stamp:restamp", "Repair variant wheels of 2025 and of other producers."),
    "build-python-packages": ("python_packages:command", "Make ROCm Python packages from ROCm artifacts."),
    "index": ("index:command", "Make, change, check and serve static package indexes."),
    "resolve-check": ("resolve_check:command", "See whether pip and uv would pick the newest build."),
    "demo": ("demo:command", "Build real wheels from a miniature of everything."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run or explain it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or ``None`` when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"rocm_wheels.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is nearly one is named in the error."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="rocm-wheels")
def cli() -> None:
    """From pinned PyTorch sources to tested ROCm wheels that a machine can choose from."""


def main() -> None:
    """Console script."""
    sys.exit(run_command(cli))

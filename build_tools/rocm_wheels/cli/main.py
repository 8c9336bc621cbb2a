"""The command ``rocm-wheels``: groups of commands, each imported when it is called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from rocm_wheels import __version__
from rocm_wheels.cli.boundary import run_command

# name: (module:attribute under rocm_wheels.cli, one line for --help)
Commands = Mapping[str, tuple[str, str]]


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run or explain it."""

    def __init__(self, *args: Any, lazy: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the work."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or ``None`` when there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"rocm_wheels.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is nearly one is named in the error."""
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self._lazy, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


COMMANDS = {
    "lines": ("lines:command", "List the release lines: what belongs to each torch."),
    "lock": ("lock:lock_command", "Pin every repository of a set in one file."),
    "checkout": ("checkout:checkout_command", "Check out several projects side by side."),
    "sources": (
        "checkout:sources_group",
        "Take checkouts to other machines: hipified once, built everywhere.",
    ),
    "install-rocm": ("build:install_rocm", "Install the ROCm packages into a build environment."),
    "plan": ("build:plan", "Show what a build would do, and why."),
    "build": ("build:build", "Build, check and collect wheels."),
    "run-step": ("runs:run_step", "Do one step of a plan."),
    "why": ("build:why", "Say what changed since a step was done."),
    "clean": ("clean:command", "Delete what builds left, by kind, age, size or step."),
    "status": ("runs:status_command", "Show what a build is at now."),
    "runs": ("runs:runs_group", "List the runs of a work directory, or show one."),
    "report": ("runs:report_command", "Write what a run did as one web page."),
    "targets": ("wheel:targets_command", "List the gfx targets of the device code in files."),
    "verify": ("wheel:verify_command", "Check finished wheels without a GPU."),
    "wheel": ("wheel:group", "Show, check, retag and compare wheel files."),
    "stamp": ("stamp:stamp", "Make variant wheels: an installer takes the one for its GPU."),
    "unstamp": ("stamp:unstamp", "Make plain wheels of variant wheels."),
    "restamp": ("stamp:restamp", "Repair variant wheels of 2025 and of other producers."),
    "fetch-artifacts": ("artifacts:fetch_command", "Fetch artifacts of a ROCm build."),
    "install-rocm-from-artifacts": (
        "artifacts:command",
        "Install ROCm into a folder from what a build of it published.",
    ),
    "build-python-packages": ("artifacts:packages_command", "Make ROCm Python packages from ROCm artifacts."),
    "index": ("index:index_group", "Make, change, check and serve static package indexes."),
    "resolve-check": ("index:resolve_command", "See whether pip and uv would pick the newest build."),
    "compat": ("compat:group", "Ask what goes with what: GPUs, ROCm, torch, indexes; and who says so."),
    "choose": ("install:choose_command", "Say which wheel of an index a machine gets, and why."),
    "install": ("install:install_command", "Install torch and its companions for this machine's GPUs."),
    "configure": ("machine:configure_command", "Say which variables this machine's GPUs need."),
    "test": ("machine:selftest_command", "Test the installed torch on this machine."),
    "doctor": ("machine:doctor_command", "Say what is wrong with this machine for torch, and what to do."),
    "smoke-tests": (
        "torch_tests:smoke_command",
        "Test an installed torch part by part, on each kind of GPU.",
    ),
    "torch-tests": (
        "torch_tests:torch_tests_command",
        "Run torch's own tests, of the commit that it was built from.",
    ),
    "stage": ("stage:stage_command", "Make a set of wheels in a store, with an index of its own."),
    "finalize": ("stage:finalize_command", "Make a set with final versions out of one with pre-releases."),
    "releases": ("releases:command", "List the sets of a store."),
    "evidence": ("evidence:group", "Write down what was found out about a staged set, and list it."),
    "gate": ("evidence:gate_command", "Judge a staged set by its evidence: can it go to a channel?"),
    "promote": ("promote:promote", "Show a staged set on a channel, once its gate lets it pass."),
    "demote": ("promote:demote", "Take sets from a channel; roll back."),
    "refresh": ("promote:refresh_command", "Bring pages, views and support.json to what is known now."),
    "bisect": ("bisect:command", "Find the first set that a command fails with."),
    "matrix": ("matrix:command", "Say what CI builds and tests, why not the rest, and what it costs."),
    "submit": ("submit:command", "Run a plan on a Slurm cluster: one job a step, resumed and tried again."),
    "container": ("container:group", "Run a command in the image that wheels are built or tested in."),
    "demo": ("demo:command", "Build real wheels from a miniature of everything."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
@click.version_option(__version__, prog_name="rocm-wheels")
def cli() -> None:
    """From pinned PyTorch sources to tested ROCm wheels that a machine can choose from."""


def main() -> None:
    """Console script."""
    code = run_command(cli)
    gc.freeze()  # nobody looks for garbage once more: that took a tenth of a short command
    sys.exit(code)

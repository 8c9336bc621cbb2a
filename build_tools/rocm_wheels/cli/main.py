"""``rocm-wheels``: every command by name, each loaded only when it is called."""

from __future__ import annotations

import sys

import click

from rocm_wheels import __version__
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.lazy import LazyGroup

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


@click.group(cls=LazyGroup, lazy=COMMANDS)
@click.version_option(__version__, prog_name="rocm-wheels")
def cli() -> None:
    """From pinned PyTorch sources to tested ROCm wheels that a machine can choose from."""


def main() -> None:
    """Console script."""
    sys.exit(run_command(cli))

"""``rocm-wheels compat``: what goes with what, and who says so. Each command in a module of its own kind."""

from __future__ import annotations

import click

from rocm_wheels.cli.lazy import LazyGroup

COMMANDS = {
    "show": ("compat_show:show", "List the compatibility tables, or print one."),
    "matrix": ("compat_show:matrix", "Show which torch exists for which ROCm, GPU, Python and platform."),
    "explain": ("compat_explain:command", "Say whether a torch with a ROCm serves a GPU, and who says so."),
    "lint": ("compat_lint:command", "Look for contradictions and mistakes in the tables."),
    "gpu": ("compat_pci:gpu", "Show what is known of a GPU, by name, target or PCI id."),
    "refresh-pci": ("compat_pci:refresh_pci", "Compare the table of PCI ids with pci.ids."),
}


@click.group("compat", cls=LazyGroup, lazy=COMMANDS)
def group() -> None:
    """Ask what goes with what: GPU targets, ROCm, torch, dtypes, libraries, indexes, images.

    Every fact has a source, the day it was read, and a kind: documented (somebody states it), packaged (read
    out of what is published), tested (somebody ran it), believed (nobody states it; a note says why).
    """

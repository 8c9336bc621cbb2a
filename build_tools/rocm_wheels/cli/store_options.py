"""The options of commands about stores."""

from __future__ import annotations

from typing import Any

import click

from rocm_wheels.cli.paths import GivenPath


def layout_option(function: Any, name: str = "store_layout") -> Any:
    """Add the option that names the file with the names of areas and folders; it comes as ``name``."""
    return click.option(
        "--store-layout",
        name,
        type=GivenPath(),
        help="YAML file with the names of areas and folders in the store [default: v2-staging, v2, …].",
    )(function)


def unconditional_option(function: Any) -> Any:
    """Add the option that lets a store be written to which cannot keep two writers apart."""
    return click.option(
        "--unconditional",
        is_flag=True,
        help="Write to a store that ignores conditional writes: nobody else may write at the time.",
    )(function)

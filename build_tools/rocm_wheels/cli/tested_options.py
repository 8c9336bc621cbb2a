"""What commands that test an installed torch are all told: which GPUs, which Python, which wheels."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import click

from rocm_wheels.cli.boundary import pop_starting_python
from rocm_wheels.cli.option_lists import combine_options
from rocm_wheels.cli.paths import GivenPath

F = TypeVar("F", bound=Callable[..., Any])


# which GPUs are tested
gpu_options = combine_options(
    click.option(
        "--amdgpu-family",
        metavar="FAMILY",
        help="Test only GPUs of this family or target: gfx94X-dcgpu, gfx1100.  [default: any]",
    ),
    click.option(
        "--gpu-policy",
        type=click.Choice(["unique", "all", "first", "single"]),
        default="unique",
        show_default=True,
        help="Test one GPU of each target, all of them one by one, or the first (single) alone.",
    ),
)
# where torch is installed, and of which wheels
installed_options = combine_options(
    click.option(
        "--target-python",
        type=GivenPath(),
        metavar="PATH",
        help="Python or virtual environment with torch and pytest.  [default: the one that runs this]",
    ),
    click.option(
        "--wheels",
        type=GivenPath(),
        multiple=True,
        metavar="PATH",
        help="Wheel, or folder of wheels, that are what is installed: their digests go into the results.",
    ),
)


def find_tested_python(python: Path | None, env: MutableMapping[str, str]) -> Path:
    """Return the interpreter to test: the one named, else the one that started this.

    What the door notes of that is taken out of ``env``. Raises UsageError where there is none.
    """
    starting_python = pop_starting_python(env)
    return resolve_python(python or starting_python)


def resolve_python(python: Path) -> Path:
    """Return the interpreter that a path names: itself, or that of a virtual environment's folder."""
    from rocm_wheels.errors import UsageError

    path = python.expanduser()
    for relative in ("bin/python", "Scripts/python.exe") if path.is_dir() else ():
        if (path / relative).is_file():
            return (path / relative).absolute()
    if not path.is_file():
        raise UsageError(f"there is no Python {python}", tip="name one: --target-python .venv/bin/python")
    return path.absolute()  # not resolved: the link of a virtual environment is what makes it one

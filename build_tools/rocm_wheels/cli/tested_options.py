"""What commands that test an installed torch are all told: which GPUs, which Python, which wheels."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import click

from rocm_wheels.cli.boundary import started_by
from rocm_wheels.cli.option_lists import in_order
from rocm_wheels.cli.paths import GivenPath

F = TypeVar("F", bound=Callable[..., Any])


# which GPUs are tested
gpu_options = in_order(
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
installed_options = in_order(
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


def tested_python(given: Path | None, env: MutableMapping[str, str]) -> Path:
    """Return the interpreter to test: the one named, else the one that started this.

    What the door notes of that is taken out of ``env``. Raises UsageError where there is none.
    """
    door = started_by(env)
    return program(given or door)


def program(python: Path) -> Path:
    """Return the interpreter that a path names: itself, or that of a virtual environment's folder."""
    from rocm_wheels.errors import UsageError

    path = python.expanduser()
    for one in ("bin/python", "Scripts/python.exe") if path.is_dir() else ():
        if (path / one).is_file():
            return (path / one).absolute()
    if not path.is_file():
        raise UsageError(f"there is no Python {python}", tip="name one: --target-python .venv/bin/python")
    return path.absolute()  # not resolved: the link of a virtual environment is what makes it one

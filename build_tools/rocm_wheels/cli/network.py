"""Options of every command that reaches servers: mirrors, retries, patience, transfers at a time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rocm_wheels.sources.network.transport import Transport

_DEFAULT_JOBS = 8


def network_options(*, fills_mirrors: bool = True) -> list[click.Parameter]:
    """Return the options that ``make_transport`` reads; ``fills_mirrors``: the command writes there too."""
    mirrors = "that all checkouts share; made when missing." if fills_mirrors else "to look into first."
    return [
        click.Option(
            ["--mirror-dir"],
            metavar="DIR",
            envvar="ROCM_WHEELS_MIRROR_DIR",
            show_envvar=True,
            help=f"Folder of bare repositories {mirrors}",
        ),
        click.Option(
            ["--retries"],
            type=click.IntRange(min=0, max=100),
            default=4,
            show_default=True,
            help="Attempts after a failure of the network that may pass.",
        ),
        click.Option(
            ["--timeout"],
            type=click.IntRange(min=1, max=86400),
            default=120,
            show_default=True,
            metavar="SECONDS",
            help="A transfer in which nothing moves for so long is cut, then tried again.",
        ),
        click.Option(
            ["--jobs"],
            type=click.IntRange(min=1),
            help=f"Repositories to fetch at a time [default: as the recipe says, or {_DEFAULT_JOBS}].",
        ),
    ]


def make_transport(options: Mapping[str, Any], *, jobs: int | None = None) -> Transport:
    """Return how servers are reached, from the values of ``network_options``.

    ``jobs``: how many transfers at a time where ``--jobs`` is not given (a recipe's ``fetch_jobs``).
    """
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sources.network.transport import Transport

    folder = options["mirror_dir"]
    if folder is not None and not folder.strip():
        raise UsageError("--mirror-dir is empty", tip="name a folder; it is made when it is missing")
    mirrors = None if folder is None else Path(folder).expanduser().absolute()
    if mirrors is not None and mirrors.exists() and not mirrors.is_dir():
        raise UsageError(f"--mirror-dir {mirrors} is not a folder", tip="name another one")
    return _cached_transport(
        Transport, options["retries"], options["timeout"], mirrors, options["jobs"] or jobs or _DEFAULT_JOBS
    )


@functools.cache
def _cached_transport(
    kind: type[Transport], retries: int, timeout: float, mirrors: Path | None, jobs: int
) -> Transport:
    """Make one record for equal options: its places count for all projects of a command together."""
    return kind(retries, timeout, mirrors, jobs)

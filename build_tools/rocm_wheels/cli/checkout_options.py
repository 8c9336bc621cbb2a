"""What all commands share that check sources out: their options, and the request that they make of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import patches
from rocm_wheels.model.names import recipes_folder

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import Line
    from rocm_wheels.model.project import Platform, Project
    from rocm_wheels.sources.checkout import CheckoutRequest
    from rocm_wheels.sources.pins.choose import Pin

TORCH = "pytorch"  # the project that others' commits are pinned in


def repo_option() -> click.Option:
    """Return the option that says where the checkouts are."""
    return click.Option(
        ["--repo"],
        type=click.Path(path_type=Path),
        help="Folder of the checkouts (the clone's repos/, or here).",
    )


def commit_option() -> click.Option:
    """Return the option that says whether hipify commits."""
    return click.Option(
        ["--commit-hipify/--no-commit-hipify"],
        default=True,
        show_default=True,
        help="Commit what hipify wrote; without, HEAD stays the upstream commit.",
    )


def options() -> list[click.Parameter]:
    """Return the options that mean the same for one project and for several."""
    return [
        click.Option(["--line"], metavar="NAME", help="Release line to take (see `rocm-wheels lines`)."),
        click.Option(["--depth"], type=click.IntRange(min=1), help="Commits of history to fetch (all)."),
        click.Option(["--jobs"], type=click.IntRange(min=1), help="Submodules to fetch at a time."),
        click.Option(["--submodules/--no-submodules"], default=True, show_default=True),
        click.Option(["--hipify/--no-hipify"], default=None, help="Hipify [default: as the recipe says]."),
        commit_option(),
    ]


def torch_options() -> list[click.Parameter]:
    """Return the options about the torch checkout that pins a project."""
    return [
        click.Option(
            ["--torch-dir"],
            type=click.Path(path_type=Path),
            help=f"Torch checkout that pins the others ({TORCH} under --repo).",
        ),
        click.Option(["--require-related-commit"], is_flag=True, help="Fail when there is no such pin."),
    ]


def folder_of(repo: Path | None) -> Path:
    """Return the folder of the checkouts: ``--repo``, the clone's ``repos/``, else the current folder."""
    if repo is not None:
        return repo
    from rocm_wheels.workspace import in_clone

    return recipes_folder() if in_clone() else Path.cwd()


def platform() -> Platform:
    """Return the platform that we run on."""
    return "windows" if sys.platform == "win32" else "linux"


def line_of(given: Mapping[str, Any]) -> Line | None:
    """Return the release line that ``--line`` names, if any. Raises DataError."""
    from rocm_wheels.model.lines import line_named

    return None if given["line"] is None else line_named(given["line"])


def torch_of(given: Mapping[str, Any]) -> Path:
    """Return the folder of the torch checkout that pins are read in. Raises UsageError."""
    from rocm_wheels.errors import UsageError

    torch_dir: Path | None = given.get("torch_dir")
    if torch_dir is not None and not torch_dir.is_dir():
        raise UsageError(f"--torch-dir {torch_dir} is not a folder", tip="check out torch first")
    return torch_dir or folder_of(given["repo"]) / TORCH


def request_of(
    recipe: Project, pin: Pin, directory: Path, given: Mapping[str, Any], *, local_origin: bool = False
) -> CheckoutRequest:
    """Return the request of a checkout of one project, from the values of ``options``.

    Raises UsageError and DataError for options that cannot be meant.
    """
    from rocm_wheels.sources.checkout import CheckoutRequest

    system = platform()
    return CheckoutRequest(
        project=recipe,
        directory=directory,
        pin=pin,
        depth=given["depth"],
        jobs=given["jobs"] or recipe.source.on(system).fetch_jobs,
        submodules=given["submodules"],
        hipify=system in recipe.hipify.platforms if given["hipify"] is None else given["hipify"],
        commit_hipify=given["commit_hipify"],
        local_origin=local_origin,
        patches=patches.chosen(recipe.name, pin.ref, given),
    )

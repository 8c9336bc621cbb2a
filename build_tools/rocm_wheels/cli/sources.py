"""``rocm-wheels sources``: checkouts as one file, for other machines to build from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.errors import SourceError


@click.group("sources")
def sources_group() -> None:
    """Take checkouts to other machines: what was checked out and hipified once is built everywhere."""


def _repo_option(function: Any) -> Any:
    return click.option(
        "--repo",
        type=GivenPath(file_okay=False),
        help="Folder of the checkouts (the clone's repos/, or here).",
    )(function)


@sources_group.command("pack")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("projects", nargs=-1, metavar="[PROJECT]…")
@_repo_option
@click.option("--json", "as_json", is_flag=True, help="Print what each tree holds as JSON.")
def pack(file: Path, projects: tuple[str, ...], repo: Path | None, as_json: bool) -> None:
    """Write checkouts into FILE (a tar with zstd): all that are there, or the PROJECTs named.

    Build trees stay behind. The trees can be built from as they were: commits, tags and times are in it.
    """
    from dataclasses import asdict

    from rocm_wheels.cli.checkout_options import find_checkouts_folder
    from rocm_wheels.model.names import list_project_names
    from rocm_wheels.sources.packing import pack_checkouts as pack_trees

    folder = find_checkouts_folder(repo).absolute()
    checked_out = tuple(name for name in list_project_names() if (folder / name / ".git").is_dir())
    names = tuple(dict.fromkeys(_find_checkout_name(name, folder) for name in projects)) or checked_out
    if not names:
        raise SourceError(f"there are no checkouts in {folder}", tip="name their folder with --repo")
    packed = pack_trees({name: folder / name for name in names}, file.absolute(), env=read_environment())
    if as_json:
        click.echo(json.dumps({name: asdict(identity) for name, identity in packed.trees.items()}, indent=1))
        return
    for name, identity in packed.trees.items():
        click.echo(f"{name} {identity.commit}{' (changed)' if identity.dirty else ''}")
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


def _find_checkout_name(name: str, folder: Path) -> str:
    """Return what a checkout's folder is named: as people say, or as its project is. Raises UsageError."""
    from rocm_wheels.cli.checkout import find_project_name

    return name if name and (folder / name).is_dir() else find_project_name(name)


@sources_group.command("unpack")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_repo_option
def unpack(file: Path, repo: Path | None) -> None:
    """Put the checkouts of FILE in place. One that is there and holds the same is left alone."""
    from rocm_wheels.cli.checkout_options import find_checkouts_folder
    from rocm_wheels.sources.packing import unpack_checkouts as unpack_trees

    folder = find_checkouts_folder(repo).absolute()
    for name, outcome in unpack_trees(file, folder, env=read_environment()).items():
        click.echo(f"{folder / name}: {outcome}")

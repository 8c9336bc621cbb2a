"""``rocm-wheels index build|add|remove|yank``: the commands that change an index."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.errors import UsageError

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_wait_option = click.option(
    "--wait",
    type=click.IntRange(min=0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another writer of this index.",
)
_family_option = click.option("--family", default="", metavar="NAME", help="The index of this GPU family.")
_DIGESTS_HELP = "Digests that are known, as sha256sum writes them: taken at their word instead of hashing"


@click.command("build")
@click.argument("folder", type=_PATH, metavar="DIR")
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME",
    help="A folder in DIR with wheels of a GPU family; asked for once, remembered. Can be repeated.",
)
@click.option(
    "--digests",
    type=_FILE,
    help=f"{_DIGESTS_HELP}; where a .metadata file lies beside such a wheel, that is not opened at all.",
)
@click.option("--drop-missing", is_flag=True, help="Drop wheels that are gone from the pages.")
@_wait_option
def build(
    folder: Path, families: tuple[str, ...], digests: Path | None, drop_missing: bool, wait: int
) -> None:
    """Write the pages for the wheels and source distributions in DIR and in the folders of projects in it.

    A wheel that is known by its name, size and time is not read again; pages that would be the same
    stay untouched. A wheel that is gone, or has other bytes than before, is an error.
    """
    from rocm_wheels.index.building import build_index

    built = build_index(
        folder.absolute(),
        now=read_source_date(read_environment()),
        new_families=families,
        digests=_read_given_digests(digests),
        drop_missing=drop_missing,
        patience=wait,
    )
    for name in built.missing:
        log.log_note(f"dropped: {name}")
    click.echo(f"{folder}: {built.files} files of {built.projects} projects, {built.new} new")


@click.command("add")
@click.argument("folder", type=_PATH, metavar="DIR")
@click.argument("wheels", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option("--family", default="", metavar="NAME", help="Put them into the index of this GPU family.")
@click.option("--link", is_flag=True, help="Hard-link the files instead of copying them.")
@click.option(
    "--files-url",
    metavar="URL",
    help="Do not copy: the wheels lie, or will, at URL/<file name>. Their .metadata files must be put "
    "beside them. URL may be relative to a project page (../../files/).",
)
@click.option("--digests", type=_FILE, help=f"{_DIGESTS_HELP}.")
@_wait_option
def add(  # noqa: PLR0917 - click passes them by name
    folder: Path,
    wheels: tuple[Path, ...],
    family: str,
    link: bool,
    files_url: str | None,
    digests: Path | None,
    wait: int,
) -> None:
    """Add wheels and source distributions to the index DIR, all or none; DIR is made when it is missing.

    Only the pages of their projects change. A wheel that the index has with the same bytes is left; with
    other bytes it is an error, since what is published is never replaced.
    """
    from rocm_wheels.index.adding import add_wheels

    if link and files_url is not None:
        raise UsageError(
            "--link and --files-url exclude each other", tip="with --files-url nothing is copied"
        )
    added = add_wheels(
        folder.absolute(),
        [wheel.absolute() for wheel in wheels],
        now=read_source_date(read_environment()),
        family=family,
        link=link,
        files_url=files_url,
        digests=_read_given_digests(digests),
        patience=wait,
    )
    for name in added.new:
        click.echo(f"added {name}")
    for name in added.unchanged:
        click.echo(f"had {name}")
    if files_url is not None and added.new:
        log.log_note(f"put these wheels and their .metadata files at {files_url} before the pages are seen")


@click.command("remove")
@click.argument("folder", type=_PATH, metavar="DIR")
@click.argument("what", nargs=-1, required=True, metavar="WHEEL|NAME==VERSION...")
@_family_option
@_wait_option
def remove(folder: Path, what: tuple[str, ...], family: str, wait: int) -> None:
    """Take wheels out of the index DIR: from its pages first, then the files.

    Whoever has pinned them finds them gone: yank is the friendlier way.
    """
    from rocm_wheels.index.marking import remove_wheels

    for name in remove_wheels(folder.absolute(), what, family=family, patience=wait):
        click.echo(f"removed {name}")


@click.command("yank")
@click.argument("folder", type=_PATH, metavar="DIR")
@click.argument("what", nargs=-1, required=True, metavar="WHEEL|NAME==VERSION...")
@click.option("--reason", metavar="TEXT", help="Why: installers show it.")
@click.option("--unyank", is_flag=True, help="Take it back.")
@_family_option
@_wait_option
def yank(  # noqa: PLR0917 - click passes them by name
    folder: Path, what: tuple[str, ...], reason: str | None, unyank: bool, family: str, wait: int
) -> None:
    """Yank wheels (PEP 592): they are installed only where their exact version is asked for."""
    from rocm_wheels.index.marking import yank_wheels

    if unyank and reason is not None:
        raise UsageError("--unyank takes no --reason", tip="leave one of them out")
    new_reason = None if unyank else reason or ""
    for name in yank_wheels(folder.absolute(), what, reason=new_reason, family=family, patience=wait):
        click.echo(f"{'unyanked' if unyank else 'yanked'} {name}")


def read_source_date(env: Mapping[str, str]) -> str:
    """Return when a wheel is added (PEP 700): now, or at SOURCE_DATE_EPOCH."""
    epoch = env.get("SOURCE_DATE_EPOCH")
    moment: Any = datetime.datetime.now(datetime.timezone.utc)
    if epoch:
        try:
            moment = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
        except (ValueError, OverflowError, OSError):
            tip = "it is a number of seconds since 1970"
            raise UsageError(f"SOURCE_DATE_EPOCH={epoch!r} is not a time", tip=tip) from None
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _read_given_digests(digests: Path | None) -> Mapping[str, str] | None:
    from rocm_wheels.index.digests import read_digests_file

    return None if digests is None else read_digests_file(digests)

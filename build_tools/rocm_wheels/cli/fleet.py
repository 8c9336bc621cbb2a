"""``lock install`` and ``index bundle``: one installation for many machines, locked, or taken along whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.cli.install import open_wheel_cache, refuse_index_and_channel
from rocm_wheels.cli.options import print_result
from rocm_wheels.core import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocm_wheels.user.fleet import FleetRequest

_FLEET_OPTIONS = (
    click.argument("packages", nargs=-1, metavar="[PACKAGES]..."),
    catalogue.MACHINE_GFX.but(
        required=True,
        help="A kind of machine, by its GPUs: gfx942, or gfx1201,gfx1100 where both are in it; none: without"
        " one. Can be repeated.",
    ),
    catalogue.PYTHON_WORDS.but(
        name="pythons",
        multiple=True,
        required=True,
        metavar="V,…",
        help="The Pythons of the machines: 3.12,3.13. Can be repeated.",
    ),
    catalogue.INDEX,
    catalogue.DEPENDENCY_INDEX,
    catalogue.OTHER_ROCM_INDEX,
    catalogue.INDEX_CHANNEL,
    catalogue.PRE,
    catalogue.CACHE_DIR,
)


def _fleet_options(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_FLEET_OPTIONS):
        function = decorate(function)
    return function


def _make_fleet(gfx: tuple[str, ...], pythons: tuple[str, ...], options: Mapping[str, Any]) -> FleetRequest:
    from rocm_wheels.user import plan_install
    from rocm_wheels.user.fleet import FleetRequest

    refuse_index_and_channel(options["index"], options["channel"])
    install = plan_install.InstallRequest(**{**options, "channel": options["channel"] or "stable"})
    words = (word.strip() for text in pythons for word in text.split(","))
    return FleetRequest(install, gfx, tuple(word for word in words if word))


_LOCK_HELP = """Lock an installation of torch for many machines in one file (pylock.toml, PEP 751).

PACKAGES are as for `rocm-wheels install`. Each kind of machine (--gfx) is planned with each Python, and
every file stands in the lock with its sha256. A kind of machine whose GPUs the chosen torch does not serve
is an error. `rocm-wheels install --lock FILE` installs what is for the machine that it runs on. A lock of
one kind of machine is for uv as well, and for pip where no wheel is a variant.

\b
Examples:
  rocm-wheels lock install --gfx gfx942 --gfx gfx1100 --python 3.12,3.13 -o pylock.toml
  rocm-wheels install --lock pylock.toml --venv .venv
"""


@command.command("lock install", help=_LOCK_HELP)
@_fleet_options
@catalogue.OUTPUT.but(required=True, help="The lock: pylock.toml, or pylock.NAME.toml.")
@catalogue.JSON
def lock_install_command(
    gfx: tuple[str, ...],
    pythons: tuple[str, ...],
    cache_dir: Path | None,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan for all machines, and write the lock; nothing is fetched but what tells what is required."""
    from rocm_wheels.core import errors
    from rocm_wheels.core.files import write_atomically
    from rocm_wheels.user.fleet import list_locked_packages, make_lock, plan_fleet

    if not re.fullmatch(r"pylock(\.[^.]+)?\.toml", output.name):
        raise errors.UsageError(
            f"--output {output}: a lock of PEP 751 is called pylock.toml or pylock.NAME.toml",
            tip=f"for example: -o {output.with_name('pylock.toml')}",
        )
    env = boundary.read_environment()
    fleet = _make_fleet(gfx, pythons, options)
    with open_wheel_cache(cache_dir, no_cache=False, env=env) as cache:
        members = plan_fleet(fleet, cache, env)
    write_atomically(output, make_lock(members))
    locked = list_locked_packages(members, {})
    files = [file for package in locked for file in package.files]
    document = {
        "lock": str(output),
        "machines": list(dict.fromkeys(member.gfx for member in members)),
        "pythons": list(dict.fromkeys(member.python for member in members)),
        "packages": [
            {
                "name": package.project,
                "version": package.version,
                "machines": list(package.gfx),
                "pythons": list(package.pythons),
                "files": [file.name for file in package.files],
            }
            for package in locked
        ],
    }
    size = sum(file.size or 0 for file in files)
    summary = f"{tables.format_count(len(files), 'file')}, {tables.format_size(size)}"
    lines = [f"{output}: {tables.format_count(len(locked), 'package')}, {summary}"]
    for gfx_words in document["machines"]:
        torch = next((entry for entry in locked if entry.project == "torch" and gfx_words in entry.gfx), None)
        lines.append(f"  {gfx_words}: torch {torch.version if torch else 'is not part of it'}")
    print_result(document, lines, as_json=as_json)


_BUNDLE_HELP = """Write a folder from which machines without a network install torch.

It has every wheel for each kind of machine (--gfx) and each Python, as package indexes and with a lock
(pylock.toml), rocm-wheels itself and uv, the digests of all files, and the lines that install from it. Files
that several machines have are there once where downloads are kept on the same file system. The same command
goes on where it was ended.

\b
Examples:
  rocm-wheels index bundle --gfx gfx942 --gfx gfx1100 --python 3.12 -o torch-offline
  cd torch-offline && sha256sum --check --quiet SHA256SUMS && cat README.txt
"""


@command.command("index bundle", help=_BUNDLE_HELP)
@_fleet_options
@catalogue.OUTPUT_DIR.but(
    name="folder",
    required=True,
    help="The folder: one that is not there yet, or that the same command has begun.",
)
@command.option("--no-tool", is_flag=True, help="Leave rocm-wheels itself, and uv, out.")
@catalogue.JSON
def bundle_command(  # noqa: PLR0917 - click passes them by name
    gfx: tuple[str, ...],
    pythons: tuple[str, ...],
    cache_dir: Path | None,
    folder: Path,
    no_tool: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan for all machines, fetch everything, and write the folder."""
    from rocm_wheels.cli import index
    from rocm_wheels.user.bundle import write_bundle

    env = boundary.read_environment()
    fleet = _make_fleet(gfx, pythons, options)
    with open_wheel_cache(cache_dir, no_cache=False, env=env) as cache:
        bundle = write_bundle(
            folder, fleet, cache, env, now=index.read_source_date(env), with_tool=not no_tool
        )
    document = {
        "folder": str(bundle.folder),
        "files": bundle.files,
        "bytes": bundle.size,
        "install": list(bundle.install_lines),
    }
    lines = [
        f"{bundle.folder}: {tables.format_count(bundle.files, 'file')}, {tables.format_size(bundle.size)}",
        *bundle.install_lines,
    ]
    print_result(document, lines, as_json=as_json)

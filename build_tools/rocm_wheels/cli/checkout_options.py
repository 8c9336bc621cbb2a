"""What all commands share that check sources out: their options, and the request that they make of them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli import network, patches
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.model.names import recipes_folder

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import Line
    from rocm_wheels.model.project import Platform, Project
    from rocm_wheels.sources.lock.follow import LockFile
    from rocm_wheels.sources.patches.sets import PatchSet
    from rocm_wheels.sources.pins.choose import Pin
    from rocm_wheels.sources.request import CheckoutRequest

_COUNT = click.IntRange(min=1, max=2**31 - 1)  # what git can count
TORCH = "pytorch"  # the project that others' commits are pinned in
_SAID_BY_A_LOCK = {
    "repo_hashtag": "--repo-hashtag",
    "line": "--line",
    "release": "--release",
    "torch_dir": "--torch-dir",
    "require_related_commit": "--require-related-commit",
    "patchset": "--patchset",
}


def repo_option() -> click.Option:
    """Return the option that says where the checkouts are."""
    return click.Option(
        ["--repo"],
        type=GivenPath(),
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
        click.Option(
            ["--depth"],
            type=_COUNT,
            help="Commits of history to fetch (all; a history that was cut stays so).",
        ),
        click.Option(["--submodules/--no-submodules"], default=True, show_default=True),
        click.Option(["--hipify/--no-hipify"], default=None, help="Hipify [default: as the recipe says]."),
        commit_option(),
        *network.options(),
        click.Option(
            ["--lock"],
            metavar="FILE",
            type=GivenPath(),
            help="Take commits and patch sets from a lock (see `rocm-wheels lock`).",
        ),
    ]


def torch_options() -> list[click.Parameter]:
    """Return the options about the torch checkout that pins a project."""
    return [
        click.Option(
            ["--torch-dir"],
            type=GivenPath(),
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


def of_line(
    recipes: Iterable[Project], line: Line | None, platform: Platform, wished: Collection[str] = ()
) -> list[Project]:
    """Return what is built of a line on a platform; say what the line has on other platforms only.

    ``wished``: projects that an option says something of, which are taken all the same.
    """
    found = [recipe for recipe in recipes if platform in recipe.build.platforms]
    if line is None:
        return found
    without = [one.name for one in found if one.name not in wished and line.leaves_out(one.name, platform)]
    for name in without:
        log.note(f"without {name}: release line {line.name} has none for {platform}")
    return [one for one in found if one.name not in without]


def torch_of(given: Mapping[str, Any]) -> Path:
    """Return the folder of the torch checkout that pins are read in. Raises UsageError."""
    from rocm_wheels.errors import UsageError

    torch_dir: Path | None = given.get("torch_dir")
    if torch_dir is not None and not torch_dir.is_dir():
        raise UsageError(f"--torch-dir {torch_dir} is not a folder", tip="check out torch first")
    return torch_dir or folder_of(given["repo"]) / TORCH


def lock_of(given: Mapping[str, Any]) -> LockFile | None:
    """Return the lock that ``--lock`` names, if any. Raises UsageError, DataError.

    Options that say something else than the lock are refused.
    """
    if given["lock"] is None:
        return None
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sources.lock.follow import open_lock

    others = [option for key, option in _SAID_BY_A_LOCK.items() if given.get(key) not in (None, False)]
    others += [] if given["patch"] else ["--no-patch"]
    if others:
        raise UsageError(
            f"--lock says which commits and patches, and so {'does' if len(others) == 1 else 'do'} "
            + ", ".join(others),
            tip="leave one of them out; `rocm-wheels lock update` changes a lock",
        )
    return open_lock(given["lock"], platform())


def locked_request(
    recipe: Project, file: LockFile, directory: Path, given: Mapping[str, Any], *, origin: str | None = None
) -> CheckoutRequest:
    """Return the request of a checkout of what a lock says; ``origin`` is another place for it.

    Raises UsageError and SourceError for a project or a patch set that is not there as locked.
    """
    from rocm_wheels.sources.lock.follow import locked_patches, locked_pin
    from rocm_wheels.sources.network.remote import origin_of

    pin = locked_pin(file, recipe.name, origin=origin)
    chosen = locked_patches(file, recipe.name, patches.folder_of(given))
    local = origin_of(pin.origin, Path.cwd())[1]
    return request_of(recipe, pin, directory, given, chosen=chosen, local_origin=local)


def request_of(
    recipe: Project,
    pin: Pin,
    directory: Path,
    given: Mapping[str, Any],
    *,
    chosen: PatchSet | None,
    local_origin: bool = False,
) -> CheckoutRequest:
    """Return the request of a checkout of one project; ``chosen`` is its patch set."""
    from rocm_wheels.sources.request import CheckoutRequest

    system = platform()
    return CheckoutRequest(
        project=recipe,
        directory=directory,
        pin=pin,
        depth=given["depth"],
        submodules=given["submodules"],
        hipify=system in recipe.hipify.platforms if given["hipify"] is None else given["hipify"],
        commit_hipify=given["commit_hipify"],
        local_origin=local_origin,
        patches=chosen,
        transport=network.transport_of(given, jobs=recipe.source.on(system).fetch_jobs),
    )

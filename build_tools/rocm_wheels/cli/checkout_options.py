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
from rocm_wheels.model.names import get_recipes_folder

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import TorchLine
    from rocm_wheels.model.project import Platform, Project
    from rocm_wheels.sources.lock.follow import LockFile
    from rocm_wheels.sources.patches.sets import PatchSet
    from rocm_wheels.sources.pins.choose import Pin
    from rocm_wheels.sources.request import CheckoutRequest

_GIT_COUNT = click.IntRange(min=1, max=2**31 - 1)  # what git can count
TORCH = "pytorch"  # the project that others' commits are pinned in
_SET_BY_LOCK = {
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


def shared_checkout_options() -> list[click.Parameter]:
    """Return the options that mean the same for one project and for several."""
    return [
        click.Option(["--line"], metavar="NAME", help="Release line to take (see `rocm-wheels lines`)."),
        click.Option(
            ["--depth"],
            type=_GIT_COUNT,
            help="Commits of history to fetch (all; a history that was cut stays so).",
        ),
        click.Option(["--submodules/--no-submodules"], default=True, show_default=True),
        click.Option(["--hipify/--no-hipify"], default=None, help="Hipify [default: as the recipe says]."),
        commit_option(),
        *network.network_options(),
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


def find_checkouts_folder(repo: Path | None) -> Path:
    """Return the folder of the checkouts: ``--repo``, the clone's ``repos/``, else the current folder."""
    if repo is not None:
        return repo
    from rocm_wheels.workspace import is_clone

    return get_recipes_folder() if is_clone() else Path.cwd()


def detect_platform() -> Platform:
    """Return the platform that we run on."""
    return "windows" if sys.platform == "win32" else "linux"


def parse_line_option(options: Mapping[str, Any]) -> TorchLine | None:
    """Return the release line that ``--line`` names, if any. Raises DataError."""
    from rocm_wheels.model.lines import get_release_line

    return None if options["line"] is None else get_release_line(options["line"])


def select_line_projects(
    recipes: Iterable[Project], line: TorchLine | None, platform: Platform, wished: Collection[str] = ()
) -> list[Project]:
    """Return what is built of a line on a platform; say what the line has on other platforms only.

    ``wished``: projects that an option says something of, which are taken all the same.
    """
    buildable = [recipe for recipe in recipes if platform in recipe.build.platforms]
    if line is None:
        return buildable
    without = [
        recipe.name
        for recipe in buildable
        if recipe.name not in wished and line.leaves_out(recipe.name, platform)
    ]
    for name in without:
        log.log_note(f"without {name}: release line {line.name} has none for {platform}")
    return [recipe for recipe in buildable if recipe.name not in without]


def find_torch_checkout(options: Mapping[str, Any]) -> Path:
    """Return the folder of the torch checkout that pins are read in. Raises UsageError."""
    from rocm_wheels.errors import UsageError

    torch_dir: Path | None = options.get("torch_dir")
    if torch_dir is not None and not torch_dir.is_dir():
        raise UsageError(f"--torch-dir {torch_dir} is not a folder", tip="check out torch first")
    return torch_dir or find_checkouts_folder(options["repo"]) / TORCH


def open_given_lock(options: Mapping[str, Any]) -> LockFile | None:
    """Return the lock that ``--lock`` names, if any. Raises UsageError, DataError.

    Options that say something else than the lock are refused.
    """
    if options["lock"] is None:
        return None
    from rocm_wheels.errors import UsageError
    from rocm_wheels.sources.lock.follow import open_lock

    others = [option for key, option in _SET_BY_LOCK.items() if options.get(key) not in (None, False)]
    others += [] if options["patch"] else ["--no-patch"]
    if others:
        raise UsageError(
            f"--lock says which commits and patches, and so {'does' if len(others) == 1 else 'do'} "
            + ", ".join(others),
            tip="leave one of them out; `rocm-wheels lock update` changes a lock",
        )
    return open_lock(options["lock"], detect_platform())


def make_locked_request(
    recipe: Project, file: LockFile, directory: Path, options: Mapping[str, Any], *, origin: str | None = None
) -> CheckoutRequest:
    """Return the request of a checkout of what a lock says; ``origin`` is another place for it.

    Raises UsageError and SourceError for a project or a patch set that is not there as locked.
    """
    from rocm_wheels.sources.lock.follow import read_locked_patches, read_locked_pin
    from rocm_wheels.sources.network.remote import parse_origin

    pin = read_locked_pin(file, recipe.name, origin=origin)
    patch_set = read_locked_patches(file, recipe.name, patches.find_patch_folder(options))
    local = parse_origin(pin.origin, Path.cwd())[1]
    return make_checkout_request(recipe, pin, directory, options, patch_set=patch_set, local_origin=local)


def make_checkout_request(
    recipe: Project,
    pin: Pin,
    directory: Path,
    options: Mapping[str, Any],
    *,
    patch_set: PatchSet | None,
    local_origin: bool = False,
) -> CheckoutRequest:
    """Return the request of a checkout of one project; ``patch_set`` is its patch set."""
    from rocm_wheels.sources.request import CheckoutRequest

    system = detect_platform()
    return CheckoutRequest(
        project=recipe,
        directory=directory,
        pin=pin,
        depth=options["depth"],
        submodules=options["submodules"],
        hipify=system in recipe.hipify.platforms if options["hipify"] is None else options["hipify"],
        commit_hipify=options["commit_hipify"],
        local_origin=local_origin,
        patches=patch_set,
        transport=network.make_transport(options, jobs=recipe.source.get_platform_source(system).fetch_jobs),
    )

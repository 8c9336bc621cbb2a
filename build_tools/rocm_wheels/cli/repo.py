"""Doors of the source trees: `checkout`, `hipify`, and those of patches, for one recipe."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import patches
from rocm_wheels.cli.boundary import environment
from rocm_wheels.model.names import recipes_folder

if TYPE_CHECKING:
    from rocm_wheels.model.project import Platform

_TORCH = "pytorch"  # the project that others' commits are pinned in


def door(project: str, *features: str) -> click.Group:
    """Return the command group of a recipe, by its file name; the recipe is read on use.

    ``features``: ``release`` for a recipe that names release branches.
    """
    group = click.Group(name=project, help=f"Sources of {project}: check out, patch, hipify, look.")
    group.add_command(_checkout(project, features))
    group.add_command(_hipify(project))
    for command in patches.commands(project, _place_options(project), _directory):
        group.add_command(command)
    return group


def _checkout(project: str, features: Collection[str]) -> click.Command:
    options = [
        *_place_options(project),
        click.Option(["--repo-hashtag"], metavar="REF", help="Branch, tag, refs/pull/N/head or commit."),
        click.Option(["--gitrepo-origin"], metavar="URL", help="Repository to check out from."),
        click.Option(
            ["--line"], metavar="NAME", help="Release line (see `rocm-wheels lines`) to take both of."
        ),
        click.Option(["--depth"], type=click.IntRange(min=1), help="Commits of history to fetch (all)."),
        click.Option(["--jobs"], type=click.IntRange(min=1), help="Submodules to fetch at a time."),
        click.Option(["--submodules/--no-submodules"], default=True, show_default=True),
        click.Option(["--hipify/--no-hipify"], default=None, help="Hipify [default: as the recipe says]."),
        _commit_option(),
        *patches.checkout_options(),
    ]
    if project != _TORCH:
        options += [
            click.Option(
                ["--torch-dir"],
                type=click.Path(path_type=Path),
                help=f"Torch checkout that pins this project ({_TORCH} under --repo).",
            ),
            click.Option(["--require-related-commit"], is_flag=True, help="Fail when there is no such pin."),
        ]
    if "release" in features:
        options.append(
            click.Option(
                ["--release/--no-release"],
                default=False,
                show_default=True,
                help="Take the release branch of the version that the torch checkout names, not its pin.",
            )
        )
    return click.Command(
        "checkout",
        params=list(options),
        callback=lambda **values: _run_checkout(project, **values),
        help="Check out one commit, tag it, hipify. Again: brings the tree to the wanted commit.",
    )


def _hipify(project: str) -> click.Command:
    return click.Command(
        "hipify",
        params=[*_place_options(project), _commit_option()],
        callback=lambda **values: _run_hipify(project, **values),
        help="Hipify a checkout again; only files whose content changes get a new time.",
    )


def _place_options(project: str) -> list[click.Parameter]:
    folder = click.Path(path_type=Path)
    return [
        click.Option(["--repo"], type=folder, help="Folder of the checkouts (the clone's repos/, or here)."),
        click.Option(["--repo-name"], metavar="NAME", help=f"Folder under --repo ({project})."),
        click.Option(["--checkout-dir"], type=folder, help="The whole path of the checkout; wins."),
    ]


def _commit_option() -> click.Option:
    return click.Option(
        ["--commit-hipify/--no-commit-hipify"],
        default=True,
        show_default=True,
        help="Commit what hipify wrote; without, HEAD stays the upstream commit.",
    )


def _folder(repo: Path | None) -> Path:
    if repo is not None:
        return repo
    from rocm_wheels.workspace import in_clone

    return recipes_folder() if in_clone() else Path.cwd()


def _directory(project: str, repo: Path | None, repo_name: str | None, checkout_dir: Path | None) -> Path:
    if checkout_dir is not None:
        return checkout_dir
    if repo_name is not None and (not repo_name or Path(repo_name).name != repo_name or repo_name == ".."):
        from rocm_wheels.errors import UsageError

        raise UsageError(
            f"--repo-name {repo_name!r} is not the name of a folder",
            tip="it lies under --repo; --checkout-dir takes a whole path",
        )
    return _folder(repo) / (repo_name or project)


def _platform() -> Platform:
    return "windows" if sys.platform == "win32" else "linux"


def _run_checkout(project: str, **given: Any) -> None:
    from rocm_wheels.errors import UsageError
    from rocm_wheels.model.lines import line_named
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.checkout import CheckoutRequest, checkout
    from rocm_wheels.sources.network.remote import origin_of
    from rocm_wheels.sources.pins.choose import choose_pin

    recipe, platform = load_project(project), _platform()
    origin, local = given["gitrepo_origin"], False
    if origin is not None:
        origin, local = origin_of(origin, Path.cwd())
    torch_dir = given.get("torch_dir")
    if torch_dir is not None and not torch_dir.is_dir():
        raise UsageError(f"--torch-dir {torch_dir} is not a folder", tip="check out torch first")
    pin = choose_pin(
        recipe,
        platform=platform,
        origin=origin,
        ref=given["repo_hashtag"],
        torch_dir=torch_dir or _folder(given["repo"]) / _TORCH,
        release=given.get("release", False),
        line=None if given["line"] is None else line_named(given["line"]),
        require_related_commit=given.get("require_related_commit", False),
    )
    request = CheckoutRequest(
        project=recipe,
        directory=_directory(project, given["repo"], given["repo_name"], given["checkout_dir"]),
        pin=pin,
        depth=given["depth"],
        jobs=given["jobs"] or recipe.source.on(platform).fetch_jobs,
        submodules=given["submodules"],
        hipify=platform in recipe.hipify.platforms if given["hipify"] is None else given["hipify"],
        commit_hipify=given["commit_hipify"],
        local_origin=local,
        patches=patches.chosen(project, pin.ref, given),
    )
    checkout(request, env=environment(), python=Path(sys.executable))


def _run_hipify(project: str, **given: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.hipify import hipify

    directory = _directory(project, given["repo"], given["repo_name"], given["checkout_dir"])
    hipify(
        load_project(project),
        directory,
        commit=given["commit_hipify"],
        env=environment(),
        python=Path(sys.executable),
    )

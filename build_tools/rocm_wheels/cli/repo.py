"""Doors of the source trees: `checkout`, `hipify`, and those of patches, for one recipe."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import checkout_options, patches
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.checkout_options import TORCH, commit_option, find_checkouts_folder, repo_option
from rocm_wheels.cli.paths import GivenPath

if TYPE_CHECKING:
    from rocm_wheels.model.project import Project
    from rocm_wheels.sources.pins.choose import Pin


def make_recipe_group(project: str, *features: str) -> click.Group:
    """Return the command group of a recipe, by its file name; the recipe is read on use.

    ``features``: ``release`` for a recipe that names release branches.
    """
    group = click.Group(name=project, help=f"Sources of {project}: check out, patch, hipify, look.")
    group.add_command(_make_recipe_checkout(project, features))
    group.add_command(_make_recipe_hipify(project))
    for command in patches.make_patch_commands(project, _directory_options(project), _find_directory):
        group.add_command(command)
    return group


def _make_recipe_checkout(project: str, features: Collection[str]) -> click.Command:
    options = [
        *_directory_options(project),
        click.Option(["--repo-hashtag"], metavar="REF", help="Branch, tag, refs/pull/N/head or commit."),
        click.Option(["--gitrepo-origin"], metavar="URL", help="Repository to check out from."),
        *checkout_options.shared_checkout_options(),
        *patches.patch_options(),
    ]
    if project != TORCH:
        options += checkout_options.torch_options()
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
        callback=lambda **values: _checkout_recipe(project, **values),
        help="Check out one commit, tag it, hipify. Again: brings the tree to the wanted commit.",
    )


def _make_recipe_hipify(project: str) -> click.Command:
    return click.Command(
        "hipify",
        params=[*_directory_options(project), commit_option()],
        callback=lambda **values: _hipify_recipe(project, **values),
        help="Hipify a checkout again; only files whose content changes get a new time.",
    )


def _directory_options(project: str) -> list[click.Parameter]:
    folder = GivenPath()
    return [
        repo_option(),
        click.Option(["--repo-name"], metavar="NAME", help=f"Folder under --repo ({project})."),
        click.Option(["--checkout-dir"], type=folder, help="The whole path of the checkout; wins."),
    ]


def _find_directory(
    project: str, repo: Path | None, repo_name: str | None, checkout_dir: Path | None
) -> Path:
    if checkout_dir is not None:
        return checkout_dir
    if repo_name is not None and (
        not repo_name or Path(repo_name).name != repo_name or repo_name in ("..", ".git")
    ):
        from rocm_wheels.errors import UsageError

        raise UsageError(
            f"--repo-name {repo_name!r} is not the name of a folder",
            tip="it lies under --repo; --checkout-dir takes a whole path",
        )
    return find_checkouts_folder(repo) / (repo_name or project)


def _checkout_recipe(project: str, **options: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.checkout import checkout_project
    from rocm_wheels.sources.lock.follow import check_checkout
    from rocm_wheels.sources.network.remote import parse_origin

    recipe, origin, local = load_project(project), options["gitrepo_origin"], False
    if origin is not None:
        origin, local = parse_origin(origin, Path.cwd())
    directory = _find_directory(project, options["repo"], options["repo_name"], options["checkout_dir"])
    env, lock = read_environment(), checkout_options.open_given_lock(options)
    if lock is not None:
        request = checkout_options.make_locked_request(recipe, lock, directory, options, origin=origin)
        check_checkout(
            lock, request, checkout_project(request, env=env, python=Path(sys.executable)), env=env
        )
        return
    pin = _choose_recipe_pin(recipe, origin, options)
    patch_set = patches.choose_patch_set(project, pin.ref, options)
    request = checkout_options.make_checkout_request(
        recipe, pin, directory, options, patch_set=patch_set, local_origin=local
    )
    checkout_project(request, env=env, python=Path(sys.executable))


def _choose_recipe_pin(recipe: Project, origin: str | None, options: Mapping[str, Any]) -> Pin:
    from rocm_wheels.sources.pins.choose import choose_pin

    return choose_pin(
        recipe,
        platform=checkout_options.detect_platform(),
        origin=origin,
        ref=options["repo_hashtag"],
        torch_dir=checkout_options.find_torch_checkout(options),
        release=options.get("release", False),
        line=checkout_options.parse_line_option(options),
        require_related_commit=options.get("require_related_commit", False),
    )


def _hipify_recipe(project: str, **options: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.hipify import hipify_checkout

    directory = _find_directory(project, options["repo"], options["repo_name"], options["checkout_dir"])
    hipify_checkout(
        load_project(project),
        directory,
        commit=options["commit_hipify"],
        env=read_environment(),
        python=Path(sys.executable),
    )

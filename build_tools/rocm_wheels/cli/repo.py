"""Doors of the source trees: `checkout`, `hipify`, and those of patches, for one recipe."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import checkout_options, patches
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.checkout_options import TORCH, commit_option, folder_of, repo_option
from rocm_wheels.cli.paths import GivenPath

if TYPE_CHECKING:
    from rocm_wheels.model.project import Project
    from rocm_wheels.sources.pins.choose import Pin


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
        *checkout_options.options(),
        *patches.checkout_options(),
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
        callback=lambda **values: _run_checkout(project, **values),
        help="Check out one commit, tag it, hipify. Again: brings the tree to the wanted commit.",
    )


def _hipify(project: str) -> click.Command:
    return click.Command(
        "hipify",
        params=[*_place_options(project), commit_option()],
        callback=lambda **values: _run_hipify(project, **values),
        help="Hipify a checkout again; only files whose content changes get a new time.",
    )


def _place_options(project: str) -> list[click.Parameter]:
    folder = GivenPath()
    return [
        repo_option(),
        click.Option(["--repo-name"], metavar="NAME", help=f"Folder under --repo ({project})."),
        click.Option(["--checkout-dir"], type=folder, help="The whole path of the checkout; wins."),
    ]


def _directory(project: str, repo: Path | None, repo_name: str | None, checkout_dir: Path | None) -> Path:
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
    return folder_of(repo) / (repo_name or project)


def _run_checkout(project: str, **given: Any) -> None:
    from rocm_wheels.model.project import load_project
    from rocm_wheels.sources.checkout import checkout
    from rocm_wheels.sources.lock.follow import check_checkout
    from rocm_wheels.sources.network.remote import origin_of

    recipe, origin, local = load_project(project), given["gitrepo_origin"], False
    if origin is not None:
        origin, local = origin_of(origin, Path.cwd())
    directory = _directory(project, given["repo"], given["repo_name"], given["checkout_dir"])
    env, lock = environment(), checkout_options.lock_of(given)
    if lock is not None:
        request = checkout_options.locked_request(recipe, lock, directory, given, origin=origin)
        check_checkout(lock, request, checkout(request, env=env, python=Path(sys.executable)), env=env)
        return
    pin = _chosen_pin(recipe, origin, given)
    chosen = patches.chosen(project, pin.ref, given)
    request = checkout_options.request_of(recipe, pin, directory, given, chosen=chosen, local_origin=local)
    checkout(request, env=env, python=Path(sys.executable))


def _chosen_pin(recipe: Project, origin: str | None, given: Mapping[str, Any]) -> Pin:
    from rocm_wheels.sources.pins.choose import choose_pin

    return choose_pin(
        recipe,
        platform=checkout_options.platform(),
        origin=origin,
        ref=given["repo_hashtag"],
        torch_dir=checkout_options.torch_of(given),
        release=given.get("release", False),
        line=checkout_options.line_of(given),
        require_related_commit=given.get("require_related_commit", False),
    )


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

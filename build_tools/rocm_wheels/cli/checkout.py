"""Check sources out: ``checkout`` for several projects, one recipe's scripts, ``sources pack|unpack``."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.boundary import convert_disk_error, read_environment
from rocm_wheels.cli.checkout_options import (
    TORCH,
    choose_patch_set,
    commit_option,
    detect_platform,
    find_checkouts_folder,
    find_patch_folder,
    find_torch_checkout,
    make_checkout_request,
    make_locked_request,
    make_patch_commands,
    make_transport,
    open_given_lock,
    parse_line_option,
    patch_options,
    repo_option,
    select_line_projects,
    shared_checkout_options,
    shared_patch_options,
    torch_options,
)
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import (
    RocmWheelsError,
    SourceError,
    UsageError,
    align_rows,
    explain_error,
    format_size,
    log_error,
)
from rocm_wheels.models import list_project_names

if TYPE_CHECKING:
    from rocm_wheels.models import Project, TorchLine
    from rocm_wheels.sources import CheckoutOutcome, CheckoutRequest, CheckoutTask, LockFile, Pin

_CHECKOUT_HELP = """Check out several projects side by side.

A PROJECT is named as its recipe is, or as its wheel (torch for pytorch). torch comes first where it is
among them: the commits of the others are read in its tree. A project that fails stops none of
those that need nothing of it. With --lock, without names: every project of the lock.
"""


def _make_checkout_command() -> click.Command:
    return click.Command(
        "checkout",
        params=[
            click.Argument(["projects"], metavar="[PROJECT]…", nargs=-1),
            click.Option(["--all", "everything"], is_flag=True, help="All that line and platform have."),
            repo_option(),
            *shared_checkout_options(),
            *shared_patch_options(),
            *torch_options(),
        ],
        callback=_checkout_projects,
        help=_CHECKOUT_HELP,
    )


def _checkout_projects(**given: Any) -> None:
    from rocm_wheels.sources import checkout_projects

    env, lock = read_environment(), open_given_lock(given)
    if lock is None:
        recipes = choose_recipes(given["projects"], everything=given["everything"])
        if given["everything"]:
            line = parse_line_option(given)
            recipes = select_line_projects(recipes, line, detect_platform())
        tasks = _make_tasks(recipes, given)
    else:
        tasks = _make_locked_tasks(lock, given, env)
    folder = find_checkouts_folder(given["repo"]).absolute()
    _refuse_mirrors_inside(given, [folder / task.project for task in tasks])
    outcomes = checkout_projects(tasks, folder, env=env, python=Path(sys.executable))
    if code := report_outcomes(outcomes):
        click.get_current_context().exit(code)


def _refuse_mirrors_inside(options: Mapping[str, Any], checkouts: Sequence[Path]) -> None:
    """Raise UsageError when the mirrors would be in one of the checkouts: the others would put them there."""
    from rocm_wheels.sources import refuse_mirrors_inside

    mirrors = make_transport(options).mirrors
    for checkout in checkouts:
        refuse_mirrors_inside(mirrors, checkout)


def choose_recipes(names: Sequence[str], *, everything: bool) -> list[Project]:
    """Return the recipes of the projects named (``everything``: all there are), each once.

    Raises UsageError for an unknown name, or when it is not said what to check out.
    """
    from rocm_wheels.models import load_project

    if bool(names) == everything:
        raise UsageError(
            "name projects, or give --all, or a --lock"
            if not names
            else "--all and names of projects exclude each other",
            tip=f"projects: {', '.join(list_project_names())}",
        )
    if everything:
        return [load_project(name) for name in list_project_names()]
    return [load_project(name) for name in dict.fromkeys(map(find_project_name, names))]


def find_project_name(text: str) -> str:
    """Return the project of that name; the names of wheels count. Raises UsageError."""
    from rocm_wheels.core import suggest_name
    from rocm_wheels.models import load_project

    projects = list_project_names()
    if (name := text.replace("-", "_")) in projects:
        return name
    wheels = {load_project(project).distribution: project for project in projects}
    if text not in wheels:
        raise UsageError(
            f"there is no project {text!r}{suggest_name(text, [*projects, *wheels])}",
            tip=f"projects: {', '.join(projects)}",
        )
    return wheels[text]


def _make_tasks(recipes: Sequence[Project], options: Mapping[str, Any]) -> list[CheckoutTask]:
    """Return what is to be done; refuse at once what is wrong for all. Raises UsageError, DataError."""
    from rocm_wheels.sources import CheckoutTask

    names = [recipe.name for recipe in recipes]
    line, torch_dir = (
        parse_line_option(options),
        find_torch_checkout(options),
    )
    find_patch_folder(options)
    if options["torch_dir"] is not None and TORCH in names:
        raise UsageError(
            f"--torch-dir says where torch is, but {TORCH} is among the projects",
            tip="leave one of them out; --repo says where all checkouts are",
        )
    pinned = [recipe.name for recipe in recipes if _is_pinned(recipe)]
    if options["require_related_commit"] and not pinned:
        raise UsageError(f"--require-related-commit: no tree has pins of {', '.join(names)}")

    return [
        CheckoutTask(
            recipe.name,
            partial(_make_project_request, recipe, line, torch_dir, options),
            TORCH if recipe.name in pinned else None,
        )
        for recipe in recipes
    ]


def _make_locked_tasks(
    lock: LockFile, options: Mapping[str, Any], env: Mapping[str, str]
) -> list[CheckoutTask]:
    """Return what is to be done by a lock: no project waits for another. Raises UsageError."""
    from rocm_wheels.sources import CheckoutTask, check_checkout

    if options["everything"]:
        raise UsageError(
            "--all and --lock exclude each other", tip="--lock alone checks out every project in the lock"
        )
    recipes = choose_recipes(options["projects"] or list(lock.lock.projects), everything=False)
    for recipe in recipes:
        lock.project(recipe.name)
    find_patch_folder(options)
    folder = find_checkouts_folder(options["repo"])
    return [
        CheckoutTask(
            recipe.name,
            partial(make_locked_request, recipe, lock, folder / recipe.name, options),
            check=partial(check_checkout, lock, env=env),
        )
        for recipe in recipes
    ]


def _is_pinned(recipe: Project) -> bool:
    source = recipe.source.get_platform_source(detect_platform())
    return source.related_commits is not None or bool(source.pin_files)


def _make_project_request(
    recipe: Project, line: TorchLine | None, torch_dir: Path, options: Mapping[str, Any]
) -> CheckoutRequest:
    from rocm_wheels.sources import SEVERAL_PROJECTS_OPTIONS, choose_pin

    pin = choose_pin(
        recipe,
        platform=detect_platform(),
        torch_dir=torch_dir,
        line=line,
        require_related_commit=options["require_related_commit"],
        option_names=SEVERAL_PROJECTS_OPTIONS,
    )
    directory = find_checkouts_folder(options["repo"]) / recipe.name
    patch_set = choose_patch_set(recipe.name, pin.ref, options)
    return make_checkout_request(recipe, pin, directory, options, patch_set=patch_set)


def report_outcomes(outcomes: Sequence[CheckoutOutcome]) -> int:
    """Print a line a project, then every failure; return the exit code: 0, or that of the first failure."""
    for line in align_rows([(outcome.project, _describe_outcome(outcome)) for outcome in outcomes]):
        click.echo(line)
    code = 0
    for outcome in outcomes:
        if outcome.failure is not None:
            error = (
                outcome.failure
                if isinstance(outcome.failure, RocmWheelsError)
                else convert_disk_error(outcome.failure)
            )
            if error is None:
                raise outcome.failure
            log_error(f"{outcome.project}: {explain_error(error)}")
            code = code or error.exit_code
    return code


def _describe_outcome(outcome: CheckoutOutcome) -> str:
    if outcome.result is None:
        return (
            "failed" if outcome.failure is not None else f"not begun: its commit is read in {outcome.missing}"
        )
    pin = outcome.result.upstream
    of = "" if pin.ref == pin.commit else f" ({pin.ref})"
    return f"{'checked out' if outcome.result.changed else 'as it was'} at {pin.commit[:12]}{of}"


checkout_command = _make_checkout_command()


def make_recipe_group(project: str, *features: str) -> click.Group:
    """Return the command group of a recipe, by its file name; the recipe is read on use.

    ``features``: ``release`` for a recipe that names release branches.
    """
    group = click.Group(name=project, help=f"Sources of {project}: check out, patch, hipify, look.")
    group.add_command(_make_recipe_checkout(project, features))
    group.add_command(_make_recipe_hipify(project))
    for command in make_patch_commands(project, _directory_options(project), _find_directory):
        group.add_command(command)
    return group


def _make_recipe_checkout(project: str, features: Collection[str]) -> click.Command:
    options = [
        *_directory_options(project),
        click.Option(["--repo-hashtag"], metavar="REF", help="Branch, tag, refs/pull/N/head or commit."),
        click.Option(["--gitrepo-origin"], metavar="URL", help="Repository to check out from."),
        *shared_checkout_options(),
        *patch_options(),
    ]
    if project != TORCH:
        options += torch_options()
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
        help="Check out one commit, tag it, hipify. Again: brings the tree to the requested commit.",
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
        from rocm_wheels.core import UsageError

        raise UsageError(
            f"--repo-name {repo_name!r} is not the name of a folder",
            tip="it is under --repo; --checkout-dir takes a whole path",
        )
    return find_checkouts_folder(repo) / (repo_name or project)


def _checkout_recipe(project: str, **options: Any) -> None:
    from rocm_wheels.models import load_project
    from rocm_wheels.sources import checkout_project, parse_origin

    recipe, origin, local = load_project(project), options["gitrepo_origin"], False
    if origin is not None:
        origin, local = parse_origin(origin, Path.cwd())
    directory = _find_directory(project, options["repo"], options["repo_name"], options["checkout_dir"])
    env, lock = read_environment(), open_given_lock(options)
    if lock is not None:
        from rocm_wheels.sources import check_checkout

        request = make_locked_request(recipe, lock, directory, options, origin=origin)
        check_checkout(
            lock, request, checkout_project(request, env=env, python=Path(sys.executable)), env=env
        )
        return
    pin = _choose_recipe_pin(recipe, origin, options)
    patch_set = choose_patch_set(project, pin.ref, options)
    request = make_checkout_request(recipe, pin, directory, options, patch_set=patch_set, local_origin=local)
    checkout_project(request, env=env, python=Path(sys.executable))


def _choose_recipe_pin(recipe: Project, origin: str | None, options: Mapping[str, Any]) -> Pin:
    from rocm_wheels.sources import choose_pin

    return choose_pin(
        recipe,
        platform=detect_platform(),
        origin=origin,
        ref=options["repo_hashtag"],
        torch_dir=find_torch_checkout(options),
        release=options.get("release", False),
        line=parse_line_option(options),
        require_related_commit=options.get("require_related_commit", False),
    )


def _hipify_recipe(project: str, **options: Any) -> None:
    from rocm_wheels.models import load_project
    from rocm_wheels.sources import hipify_checkout

    directory = _find_directory(project, options["repo"], options["repo_name"], options["checkout_dir"])
    hipify_checkout(
        load_project(project),
        directory,
        commit=options["commit_hipify"],
        env=read_environment(),
        python=Path(sys.executable),
    )


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
    from rocm_wheels.models import list_project_names
    from rocm_wheels.sources import pack_checkouts as pack_trees

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
    click.echo(f"{file}: {format_size(file.stat().st_size)}")


def _find_checkout_name(name: str, folder: Path) -> str:
    """Return what a checkout's folder is named: as people say, or as its project is. Raises UsageError."""

    return name if name and (folder / name).is_dir() else find_project_name(name)


@sources_group.command("unpack")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_repo_option
def unpack(file: Path, repo: Path | None) -> None:
    """Put the checkouts of FILE in place. One that is there and holds the same is left alone."""
    from rocm_wheels.cli.checkout_options import find_checkouts_folder
    from rocm_wheels.sources import unpack_checkouts as unpack_trees

    folder = find_checkouts_folder(repo).absolute()
    for name, outcome in unpack_trees(file, folder, env=read_environment()).items():
        click.echo(f"{folder / name}: {outcome}")

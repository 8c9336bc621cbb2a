"""``rocm-wheels checkout``: several projects side by side, with the options of the single doors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels import log
from rocm_wheels.cli import checkout_options, network, patches
from rocm_wheels.cli.boundary import convert_disk_error, read_environment
from rocm_wheels.cli.checkout_options import TORCH
from rocm_wheels.errors import RocmWheelsError, UsageError, explain_error
from rocm_wheels.model.names import list_project_names

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import TorchLine
    from rocm_wheels.model.project import Project
    from rocm_wheels.sources.lock.follow import LockFile
    from rocm_wheels.sources.request import CheckoutRequest
    from rocm_wheels.sources.several import CheckoutOutcome, CheckoutTask

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
            checkout_options.repo_option(),
            *checkout_options.shared_checkout_options(),
            *patches.shared_patch_options(),
            *checkout_options.torch_options(),
        ],
        callback=_checkout_projects,
        help=_CHECKOUT_HELP,
    )


def _checkout_projects(**given: Any) -> None:
    from rocm_wheels.sources.several import checkout_projects

    env, lock = read_environment(), checkout_options.open_given_lock(given)
    if lock is None:
        recipes = choose_recipes(given["projects"], everything=given["everything"])
        if given["everything"]:
            line = checkout_options.parse_line_option(given)
            recipes = checkout_options.select_line_projects(recipes, line, checkout_options.detect_platform())
        tasks = _make_tasks(recipes, given)
    else:
        tasks = _make_locked_tasks(lock, given, env)
    folder = checkout_options.find_checkouts_folder(given["repo"]).absolute()
    _refuse_mirrors_inside(given, [folder / task.project for task in tasks])
    outcomes = checkout_projects(tasks, folder, env=env, python=Path(sys.executable))
    if code := report_outcomes(outcomes):
        click.get_current_context().exit(code)


def _refuse_mirrors_inside(options: Mapping[str, Any], checkouts: Sequence[Path]) -> None:
    """Raise UsageError when the mirrors would be in one of the checkouts: the others would put them there."""
    from rocm_wheels.sources.network.mirrors import refuse_mirrors_inside

    mirrors = network.make_transport(options).mirrors
    for checkout in checkouts:
        refuse_mirrors_inside(mirrors, checkout)


def choose_recipes(names: Sequence[str], *, everything: bool) -> list[Project]:
    """Return the recipes of the projects named (``everything``: all there are), each once.

    Raises UsageError for an unknown name, or when it is not said what to check out.
    """
    from rocm_wheels.model.project import load_project

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
    from rocm_wheels.model.project import load_project
    from rocm_wheels.records import suggest_name

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
    from rocm_wheels.sources.several import CheckoutTask

    names = [recipe.name for recipe in recipes]
    line, torch_dir = (
        checkout_options.parse_line_option(options),
        checkout_options.find_torch_checkout(options),
    )
    patches.find_patch_folder(options)
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
    from rocm_wheels.sources.lock.follow import check_checkout
    from rocm_wheels.sources.several import CheckoutTask

    if options["everything"]:
        raise UsageError(
            "--all and --lock exclude each other", tip="--lock alone checks out every project in the lock"
        )
    recipes = choose_recipes(options["projects"] or list(lock.lock.projects), everything=False)
    for recipe in recipes:
        lock.project(recipe.name)
    patches.find_patch_folder(options)
    folder = checkout_options.find_checkouts_folder(options["repo"])
    return [
        CheckoutTask(
            recipe.name,
            partial(checkout_options.make_locked_request, recipe, lock, folder / recipe.name, options),
            check=partial(check_checkout, lock, env=env),
        )
        for recipe in recipes
    ]


def _is_pinned(recipe: Project) -> bool:
    source = recipe.source.get_platform_source(checkout_options.detect_platform())
    return source.related_commits is not None or bool(source.pin_files)


def _make_project_request(
    recipe: Project, line: TorchLine | None, torch_dir: Path, options: Mapping[str, Any]
) -> CheckoutRequest:
    from rocm_wheels.sources.pins.choose import choose_pin

    pin = choose_pin(
        recipe,
        platform=checkout_options.detect_platform(),
        torch_dir=torch_dir,
        line=line,
        require_related_commit=options["require_related_commit"],
    )
    directory = checkout_options.find_checkouts_folder(options["repo"]) / recipe.name
    patch_set = patches.choose_patch_set(recipe.name, pin.ref, options)
    return checkout_options.make_checkout_request(recipe, pin, directory, options, patch_set=patch_set)


def report_outcomes(outcomes: Sequence[CheckoutOutcome]) -> int:
    """Print a line a project, then every failure; return the exit code: 0, or that of the first failure."""
    width = max(len(outcome.project) for outcome in outcomes)
    for outcome in outcomes:
        click.echo(f"{outcome.project:<{width}}  {_describe_outcome(outcome)}")
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
            log.log_error(f"{outcome.project}: {explain_error(error)}")
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

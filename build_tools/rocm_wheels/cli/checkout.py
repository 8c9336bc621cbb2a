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
from rocm_wheels.cli.boundary import as_known, environment
from rocm_wheels.cli.checkout_options import TORCH
from rocm_wheels.errors import RocmWheelsError, UsageError, explain
from rocm_wheels.model.names import project_names

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import Line
    from rocm_wheels.model.project import Project
    from rocm_wheels.sources.lock.follow import LockFile
    from rocm_wheels.sources.request import CheckoutRequest
    from rocm_wheels.sources.several import Outcome, Task

_HELP = """Check out several projects side by side.

A PROJECT is named as its recipe is, or as its wheel (torch for pytorch). torch comes first where it is
among them: the commits of the others are read in its tree. A project that fails stops none of
those that need nothing of it. With --lock, without names: every project of the lock.
"""


def _command() -> click.Command:
    return click.Command(
        "checkout",
        params=[
            click.Argument(["projects"], metavar="[PROJECT]…", nargs=-1),
            click.Option(["--all", "everything"], is_flag=True, help="All that line and platform have."),
            checkout_options.repo_option(),
            *checkout_options.options(),
            *patches.several_options(),
            *checkout_options.torch_options(),
        ],
        callback=_run,
        help=_HELP,
    )


def _run(**given: Any) -> None:
    from rocm_wheels.sources.several import checkout_several

    env, lock = environment(), checkout_options.lock_of(given)
    if lock is None:
        recipes = chosen(given["projects"], everything=given["everything"])
        if given["everything"]:
            line = checkout_options.line_of(given)
            recipes = checkout_options.of_line(recipes, line, checkout_options.platform())
        tasks = _tasks(recipes, given)
    else:
        tasks = _locked_tasks(lock, given, env)
    folder = checkout_options.folder_of(given["repo"]).absolute()
    _refuse_mirrors_inside(given, [folder / task.project for task in tasks])
    outcomes = checkout_several(tasks, folder, env=env, python=Path(sys.executable))
    if code := report(outcomes):
        click.get_current_context().exit(code)


def _refuse_mirrors_inside(given: Mapping[str, Any], checkouts: Sequence[Path]) -> None:
    """Raise UsageError when the mirrors would be in one of the checkouts: the others would put them there."""
    from rocm_wheels.sources.network.mirrors import refuse_inside

    mirrors = network.transport_of(given).mirrors
    for checkout in checkouts:
        refuse_inside(mirrors, checkout)


def chosen(names: Sequence[str], *, everything: bool) -> list[Project]:
    """Return the recipes of the projects named (``everything``: all there are), each once.

    Raises UsageError for an unknown name, or when it is not said what to check out.
    """
    from rocm_wheels.model.project import load_project

    if bool(names) == everything:
        raise UsageError(
            "name projects, or give --all, or a --lock"
            if not names
            else "--all and names of projects exclude each other",
            tip=f"projects: {', '.join(project_names())}",
        )
    if everything:
        return [load_project(name) for name in project_names()]
    return [load_project(name) for name in dict.fromkeys(map(project_named, names))]


def project_named(text: str) -> str:
    """Return the project of that name; the names of wheels count. Raises UsageError."""
    from rocm_wheels.model.project import load_project
    from rocm_wheels.records import did_you_mean

    known = project_names()
    if (name := text.replace("-", "_")) in known:
        return name
    wheels = {load_project(one).distribution: one for one in known}
    if text not in wheels:
        raise UsageError(
            f"there is no project {text!r}{did_you_mean(text, [*known, *wheels])}",
            tip=f"projects: {', '.join(known)}",
        )
    return wheels[text]


def _tasks(recipes: Sequence[Project], given: Mapping[str, Any]) -> list[Task]:
    """Return what is to be done; refuse at once what is wrong for all. Raises UsageError, DataError."""
    from rocm_wheels.sources.several import Task

    names = [recipe.name for recipe in recipes]
    line, torch_dir = checkout_options.line_of(given), checkout_options.torch_of(given)
    patches.folder_of(given)
    if given["torch_dir"] is not None and TORCH in names:
        raise UsageError(
            f"--torch-dir says where torch is, but {TORCH} is among the projects",
            tip="leave one of them out; --repo says where all checkouts are",
        )
    pinned = [recipe.name for recipe in recipes if _is_pinned(recipe)]
    if given["require_related_commit"] and not pinned:
        raise UsageError(f"--require-related-commit: no tree has pins of {', '.join(names)}")

    return [
        Task(
            recipe.name,
            partial(_request, recipe, line, torch_dir, given),
            TORCH if recipe.name in pinned else None,
        )
        for recipe in recipes
    ]


def _locked_tasks(lock: LockFile, given: Mapping[str, Any], env: Mapping[str, str]) -> list[Task]:
    """Return what is to be done by a lock: no project waits for another. Raises UsageError."""
    from rocm_wheels.sources.lock.follow import check_checkout
    from rocm_wheels.sources.several import Task

    if given["everything"]:
        raise UsageError(
            "--all and --lock exclude each other", tip="--lock alone checks out every project in the lock"
        )
    recipes = chosen(given["projects"] or list(lock.lock.projects), everything=False)
    for recipe in recipes:
        lock.project(recipe.name)
    patches.folder_of(given)
    folder = checkout_options.folder_of(given["repo"])
    return [
        Task(
            recipe.name,
            partial(checkout_options.locked_request, recipe, lock, folder / recipe.name, given),
            check=partial(check_checkout, lock, env=env),
        )
        for recipe in recipes
    ]


def _is_pinned(recipe: Project) -> bool:
    source = recipe.source.on(checkout_options.platform())
    return source.related_commits is not None or bool(source.pin_files)


def _request(
    recipe: Project, line: Line | None, torch_dir: Path, given: Mapping[str, Any]
) -> CheckoutRequest:
    from rocm_wheels.sources.pins.choose import choose_pin

    pin = choose_pin(
        recipe,
        platform=checkout_options.platform(),
        torch_dir=torch_dir,
        line=line,
        require_related_commit=given["require_related_commit"],
    )
    directory = checkout_options.folder_of(given["repo"]) / recipe.name
    set_of_line = patches.chosen(recipe.name, pin.ref, given)
    return checkout_options.request_of(recipe, pin, directory, given, chosen=set_of_line)


def report(outcomes: Sequence[Outcome]) -> int:
    """Print a line a project, then every failure; return the exit code: 0, or that of the first failure."""
    width = max(len(one.project) for one in outcomes)
    for one in outcomes:
        click.echo(f"{one.project:<{width}}  {_said(one)}")
    code = 0
    for one in outcomes:
        if one.failure is not None:
            known = one.failure if isinstance(one.failure, RocmWheelsError) else as_known(one.failure)
            if known is None:
                raise one.failure
            log.error(f"{one.project}: {explain(known)}")
            code = code or known.exit_code
    return code


def _said(one: Outcome) -> str:
    if one.result is None:
        return "failed" if one.failure is not None else f"not begun: its commit is read in {one.missing}"
    pin = one.result.upstream
    of = "" if pin.ref == pin.commit else f" ({pin.ref})"
    return f"{'checked out' if one.result.changed else 'as it was'} at {pin.commit[:12]}{of}"


command = _command()

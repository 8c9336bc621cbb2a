"""``recipe check|new``: the recipes that hold here and what is wrong with them, the first draft of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import catalogue, options, output
from rocm_wheels.cli.command import complete_with, group, option
from rocm_wheels.core import errors, log, tables
from rocm_wheels.core.files import write_atomically

if TYPE_CHECKING:
    from rocm_wheels.models import project


@group("recipe")
def recipe_group() -> None:
    """Check recipes, and write new ones: files that describe a project and how its wheel is built.

    They are read from --recipe-dir (or `recipe-dir` of the configuration file), recipes/ here, installed
    packages with entry points of the group rocm_wheels.recipes, and our own.
    """


@recipe_group.command("recipe check")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=options.GivenPath())
@catalogue.JSON
@click.pass_context
def check_command(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Find errors in recipes, with file, line and column; without a FILE, in all that are used here.

    Without a FILE the recipes are also listed with their files, in build order. Errors are unknown keys and
    values, names that clash, build cycles, unknown projects, release lines and hooks, patterns that no wheel
    can match, and each TODO left from `recipe new`. The exit code is 2 if there are any.

    \b
    Examples:
      rocm-wheels recipe check
      rocm-wheels recipe check my-recipes/my_extension.yaml
    """
    from rocm_wheels.models import check_recipe, project_names

    found = project_names.find_recipes()
    recipe_paths = {name: recipe.path for name, recipe in found.items()}
    recipes = _read_recipes([path.absolute() for path in files] or recipe_paths.values())
    faults = check_recipe.check_recipes(list(recipes), recipe_paths)
    origins = {recipe.path: recipe.origin for recipe in found.values()}
    document = [
        {
            "name": path.stem,
            "distribution": recipe.distribution if recipe else None,
            "summary": recipe.summary if recipe else None,
            "after": recipe.build.after if recipe else None,
            "file": str(path),
            "from": origins.get(path),
            "faults": _pick_faults(faults, path, recipe),
        }
        for path, recipe in recipes.items()
    ]
    if as_json:
        output.print_result({"recipes": document, "faults": faults}, (), as_json=True)
        ctx.exit(2 if faults else 0)
    if not files:
        keys = ("name", "distribution", "from", "file")
        rows = [
            [*(str(row[key] or "?") for key in keys), "wrong" if row["faults"] else "right"]
            for row in document
        ]
        head = ("project", "wheel", "from", "file", "is")
        click.echo(tables.format_table(head, rows, width=tables.get_output_width()))
    if faults:
        raise errors.DataError("\n".join(faults), tip="every key: the page Recipes of the reference")
    log.log_note(f"nothing is wrong with {tables.format_count(len(recipes), 'recipe')}")


def _read_recipes(paths: Iterable[Path]) -> dict[Path, project.Project | None]:
    """Return recipes in the order of their builds, where there is one; ``None`` for what cannot be read."""
    from rocm_wheels.models import project

    recipes: dict[Path, project.Project | None] = {}
    for path in paths:
        try:
            recipes[path] = project.read_recipe(path)
        except errors.DataError:
            recipes[path] = None
    try:
        order = [recipe.name for recipe in project.sort_projects(filter(None, recipes.values()))]
    except errors.DataError:
        return recipes
    last = len(order)
    return dict(sorted(recipes.items(), key=lambda row: order.index(row[1].name) if row[1] else last))


def _pick_faults(faults: Sequence[str], path: Path, recipe: project.Project | None) -> list[str]:
    """Return the faults of one recipe, and of the file of its hooks."""
    files = [path, *([path.parent / recipe.hooks] if recipe and recipe.hooks else [])]
    return [fault for fault in faults if fault.startswith(tuple(f"{file}:" for file in files))]


@recipe_group.command("recipe new")
@click.argument("name", shell_complete=complete_with("list_projects"))
@option(
    "--from",
    "source",
    type=options.GivenPath(file_okay=False),
    metavar="DIR",
    help="Checkout whose options and variables are listed.",
)
def new_command(name: str, source: Path | None) -> None:
    """Write a template, recipes/NAME.yaml; with --from, list in it what a checkout's build reads.

    The list is in comments: the options of CMakeLists.txt, and the environment variables that it and setup.py
    read. Nothing is run.

    \b
    Example:
      rocm-wheels recipe new my_extension --from ~/src/my-extension
    """
    from rocm_wheels.models import project_names
    from rocm_wheels.sources import draft_recipe

    name = name.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise errors.UsageError(
            f"{name!r} is no name of a recipe", tip="use letters, digits and _, after a letter"
        )
    if (recipe := project_names.find_recipes().get(name)) is not None:
        raise errors.UsageError(f"there is a recipe of {name} already: {recipe.path}", tip="change that one")
    path = Path("recipes") / f"{name}.yaml"
    if path.exists():
        raise errors.UsageError(f"there is a file {path} already", tip="move it away")
    if source is not None and not source.is_dir():
        raise errors.UsageError(f"--from: there is no folder {source}", tip="check the project out first")
    text = draft_recipe.draft_recipe(name, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    log.log_note(f"wrote {path}: read it, then `rocm-wheels recipe check {path}`")
